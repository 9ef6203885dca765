"""Policies to try for a BOT: what its owner's policy says, with other choices for the tail phase.

The choices are those of ExPERT (Ben-Yehuda et al., IPDPS 2012): how many replicas a job may have
at once, how long one is waited for before the next, the deadline, and whether the tail phase is
left to reliable hosts.  Copies may also begin late, when few jobs are left.  Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gridbot_policies import PolicySet, SemanticError
from gridbot_policies.classad import ParseError
from gridbot_policies.classad.unparse import unparse

PRESENT = "present policy"  # the name of what is there without a suggestion
_LATE_PART = 0.05  # of the jobs
_ERROR_RATE = 0.1  # of a host that counts as reliable: that of one of which nothing is known


@dataclass(frozen=True, slots=True)
class TailChoice:
    """What a policy does in the tail phase.  Times are in mean turnarounds of the BOT."""

    most: int  # replicas of a job at once; with 1 there are no copies
    wait: float = 0.0  # for a replica, before the next one
    is_late: bool = False  # copies begin when few jobs are left
    deadline: float | None = None  # None: the owner's
    is_reliable: bool = False  # replicas go to reliable hosts only

    @property
    def name(self) -> str:
        """What it does, for people."""
        parts = [f"{self.most} replicas, wait {self.wait:g}" if self.most > 1 else "no copies"]
        parts += ["late"] if self.is_late else []
        parts += [f"deadline {self.deadline:g}"] if self.deadline is not None else []
        parts += ["reliable"] if self.is_reliable else []
        return ", ".join(parts)


TAIL_CHOICES = (
    TailChoice(1),
    *(
        TailChoice(most, wait, is_reliable=is_reliable)
        for is_reliable in (False, True)
        for most in (2, 4)
        for wait in (1.2, 2.0, 3.0)
    ),
    TailChoice(1, is_reliable=True),
    TailChoice(2, 1.2, is_late=True),
    TailChoice(4, 1.2, is_late=True),
    TailChoice(1, deadline=4.0),
    TailChoice(2, 2.0, deadline=4.0),
    TailChoice(2, 2.0, deadline=4.0, is_reliable=True),
)
"""With the present policy 20 at most are tried."""


def candidates(policy: str) -> dict[str, str]:
    """Return policies by their names, the one that is given first.

    What the server would refuse, because with another choice it is too long, is left out.
    """
    made = {choice.name: _with(policy, choice) for choice in TAIL_CHOICES}
    return {PRESENT: policy, **{name: text for name, text in made.items() if _is_taken(text)}}


def _is_taken(text: str) -> bool:
    """Whether the server takes a policy."""
    try:
        PolicySet.parse(text)
    except (ParseError, SemanticError):
        return False
    return True


def _with(policy: str, choice: TailChoice) -> str:
    """Return a policy with another choice; all else that it says stays."""
    given = PolicySet.parse(policy).definitions
    own = {item.name.casefold(): (item.name, unparse(item.expression)) for item in given}
    required = own["jobrequirements"][1] if "jobrequirements" in own else None
    for name, value in _definitions(choice, required):
        own[name.casefold()] = name, value
    return "".join(f"{name} = {value};\n" for name, value in own.values())


def _definitions(choice: TailChoice, required: str | None) -> Iterator[tuple[str, str]]:
    yield "ReplicationRequirements", _replication(choice)
    if choice.deadline is not None:
        yield "Deadline", f"{choice.deadline:g} * BOT.MeanTurnaround"
    if choice.is_reliable:
        reliable = f"(!Tail || Host.ErrorRate < {_ERROR_RATE:g})"
        yield "JobRequirements", reliable if required is None else f"({required}) && {reliable}"


def _replication(choice: TailChoice) -> str:
    if choice.most == 1:
        return "false"
    late = f" && BOT.JobsLeft < {_LATE_PART:g} * BOT.JobsTotal" if choice.is_late else ""
    return (
        f"Tail && NumberOfReplicas < {choice.most}{late}"
        f" && Job.Age > {choice.wait:g} * NumberOfReplicas * BOT.MeanTurnaround"
    )
