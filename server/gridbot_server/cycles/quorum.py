"""Which replicas' outputs agree, and whether enough do.

Nearness is not transitive: A near B and B near C says nothing of A and C.  So each answer is a
candidate for the canonical one, and has the support of those that agree with itself; no chain
counts.  The candidate with most support is taken, and among equals the one with the least number:
for one set of answers that is the same in whatever order they came, and no host chooses its number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

from gridbot_server.validators.digests import have_one_exit_code
from gridbot_server.validators.spec import Validator

EQUAL, DIFFERENT, CRASHED = "equal", "different", "crashed"  # verdicts


class Answer(Protocol):
    """A successful replica's answer."""

    @property
    def replica(self) -> int:
        """Its number within the job."""

    @property
    def digest(self) -> bytes | None:
        """Stands for its outputs."""


class Pair(NamedTuple):
    """The digests of two answers, the lesser first."""

    one: bytes
    other: bytes


class Compared(NamedTuple):
    """What came of comparing the contents of a pair."""

    verdict: str
    why: str = ""


def pair(one: bytes, other: bytes) -> Pair:
    """The pair of two digests."""
    return Pair(min(one, other), max(one, other))


class Judge(NamedTuple):
    """Says of two digests whether their answers agree; asks nobody."""

    validator: Validator
    known: Mapping[Pair, Compared]  # by comparing contents

    def verdict(self, one: bytes | None, other: bytes | None) -> str | None:
        """Return the verdict; None if the contents are still to be compared."""
        agree = self.validator.agree_by_digest(one, other)
        if agree is not None:
            return EQUAL if agree else DIFFERENT
        assert one is not None, "without a digest nothing agrees"
        assert other is not None, "without a digest nothing agrees"
        if not have_one_exit_code(one, other):
            return DIFFERENT
        found = self.known.get(pair(one, other))
        return None if found is None else found.verdict


T = TypeVar("T", bound=Answer)


@dataclass(frozen=True, slots=True)
class Support(Generic[T]):
    """The best candidate among answers, and what is still to be known."""

    best: Sequence[T]  # the candidate, and those that agree with it
    most: int  # support that a candidate might have, if what is not known agreed
    unknown: Sequence[Pair] = ()
    crashed: Sequence[Pair] = ()


def support(answers: Sequence[T], judge: Judge) -> Support[T]:
    """Find the candidate with most support among answers of different voters, the earliest first.

    Of equal answers the earliest is the candidate.
    """
    if len(answers) < 2 or _are_equal(answers, judge):  # as nearly always
        return Support(answers, len(answers))
    groups: dict[bytes | None, list[T]] = {}
    for answer in answers:
        groups.setdefault(answer.digest, []).append(answer)
    ordered = sorted(groups.items(), key=lambda item: min(each.replica for each in item[1]))
    verdicts = {
        (one, other): judge.verdict(one, other)
        for one in groups
        for other in groups
        if one != other or len(groups[one]) > 1
    }
    best: list[T] = []
    most = 0
    for digest, group in ordered:
        near = [
            answer
            for other, answers_ in groups.items()
            for answer in answers_
            if answer is group[0] or verdicts.get((digest, other)) == EQUAL
        ]
        open_ = sum(
            len(answers_) - (other == digest)
            for other, answers_ in groups.items()
            if verdicts.get((digest, other), DIFFERENT) is None
        )
        most = max(most, len(near) + open_)
        if len(near) > len(best):
            best = sorted(near, key=lambda answer: (answer is not group[0], answer.replica))
    return Support(best, most, _pairs(verdicts, None), _pairs(verdicts, CRASHED))


def _are_equal(answers: Sequence[Answer], judge: Judge) -> bool:
    """Whether all have one digest, and that tells enough."""
    digest = answers[0].digest
    return [answer.digest for answer in answers].count(digest) == len(answers) and bool(
        judge.validator.agree_by_digest(digest, digest)
    )


def factions(answers: Sequence[T], judge: Judge) -> list[list[T]]:
    """Sort answers into those that agree with a candidate, the best supported one first."""
    found: list[list[T]] = []
    left = list(answers)
    while left:
        best = support(left, judge).best
        found.append(list(best))
        left = [answer for answer in left if answer not in best]
    return found


def _pairs(
    verdicts: Mapping[tuple[bytes | None, bytes | None], str | None], wanted: str | None
) -> list[Pair]:
    found = {
        pair(one, other)
        for (one, other), verdict in verdicts.items()
        if verdict == wanted and one is not None and other is not None
    }
    return sorted(found)
