"""Why hosts do not get a BOT's jobs: which condition rejects how many, and what to relax."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

S = TypeVar("S")

IsEnough = Callable[[], bool]

NEAREST = 3  # hosts that are named
VALUES = 3  # of what hosts have instead, the commonest
_LOOKED_AT = 500  # rejected hosts of which that is found out
_MOST_PLACES = 15  # behind the point of a number
_MANY = 2**63  # where the language's integers end


@dataclass(frozen=True, slots=True)
class Bound(Generic[S]):
    """A condition that can be loosened by a number: what each host has, and what then to write.

    `text` and `change` take the new number; `change` gives how to make the change.
    """

    at_least: bool  # the hosts' number must reach the limit, rather than stay below it
    amount: Callable[[S], float | None]
    text: Callable[[str], str]
    change: Callable[[str], Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class Condition(Generic[S]):
    """One thing that a host must meet: a clause of the policy, a resource, a permission."""

    kind: str  # JobRequirements, Concurrency, memory, trust, …
    text: str
    meets: Callable[[S], bool]
    has: Callable[[S], str]  # what the host has, beside what is asked
    via: str | None = None  # the owner's attribute in which it is written
    bound: Bound[S] | None = None


@dataclass(frozen=True, slots=True)
class Relaxed:
    """A looser form of a condition, with which so many of the otherwise suitable hosts pass."""

    hosts: int
    text: str
    change: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Obstacle:
    """A condition that rejects hosts; `only` of them meet all others."""

    kind: str
    text: str
    via: str | None
    rejects: int
    only: int
    values: Sequence[tuple[str, int]]  # what rejected hosts have, and how many of them
    relaxed: Sequence[Relaxed]


@dataclass(frozen=True, slots=True)
class Miss(Generic[S]):
    """A host that fails few conditions: each one's text and what the host has."""

    subject: S
    fails: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Explanation(Generic[S]):
    """What rejects hosts, the worst first, and the hosts that fail fewest conditions."""

    obstacles: Sequence[Obstacle]
    nearest: Sequence[Miss[S]]


@dataclass(frozen=True, slots=True)
class Verdict(Generic[S]):
    """A host, by the client of it that fails fewest, and the conditions that it fails."""

    subject: S
    failed: Sequence[Condition[S]]


@dataclass(frozen=True, slots=True)
class Judged(Generic[S]):
    """Hosts judged by the same conditions; `is_partial` if time was up before the last one."""

    conditions: Sequence[Condition[S]]
    verdicts: Sequence[Verdict[S]]
    is_partial: bool = False

    @property
    def matching(self) -> list[S]:
        """The hosts that meet every condition."""
        return [verdict.subject for verdict in self.verdicts if not verdict.failed]

    def main_obstacle(self) -> tuple[Condition[S], list[S]] | None:
        """Return the condition that most hosts fail, the earliest of several, and these hosts."""
        failing = self._failing(self.verdicts)
        if not failing:
            return None
        most = max(self.conditions, key=lambda item: len(failing.get(id(item), ())))
        return most, [verdict.subject for verdict in failing[id(most)]]

    def explain(self, is_enough: IsEnough = lambda: False) -> Explanation[S]:
        """Count what the conditions reject, find the nearest misses and what would help.

        What hosts have, and would help, is left out from when it `is_enough`.
        """
        missed = sorted((v for v in self.verdicts if v.failed), key=lambda v: len(v.failed))
        rejected = self._failing(missed)
        nearest = [_miss(verdict, is_enough) for verdict in missed[:NEAREST]]
        failed = [(item, rejected[id(item)]) for item in self.conditions if id(item) in rejected]
        failed.sort(key=lambda found: -len(found[1]))
        return Explanation([_obstacle(item, by, is_enough) for item, by in failed], nearest)

    def _failing(self, verdicts: Sequence[Verdict[S]]) -> dict[int, list[Verdict[S]]]:
        """Return the verdicts by the ids of the conditions that failed."""
        found: dict[int, list[Verdict[S]]] = {}
        for verdict in verdicts:
            for item in verdict.failed:
                found.setdefault(id(item), []).append(verdict)
        return found


def judge(
    conditions: Sequence[Condition[S]],
    subjects: Iterable[tuple[int, S]],
    suits: Callable[[S], bool],
    is_enough: IsEnough = lambda: False,
) -> Judged[S]:
    """Judge hosts, given as (host, client of it): of several clients the best one counts.

    `suits` has the last word. The last condition counts only where none of the others fails.
    A policy may take milliseconds for each host and condition: it ends before its time when
    `is_enough`.
    """
    best: dict[int, Verdict[S]] = {}
    for host, subject in subjects:
        known = best.get(host)
        if known and not known.failed:
            continue
        failed = _failed(conditions, subject, suits, is_enough)
        if failed is None:
            return Judged(conditions, list(best.values()), is_partial=True)
        if known is None or len(failed) < len(known.failed):
            best[host] = Verdict(subject, failed)
    return Judged(conditions, list(best.values()))


def _failed(
    conditions: Sequence[Condition[S]],
    subject: S,
    suits: Callable[[S], bool],
    is_enough: IsEnough,
) -> Sequence[Condition[S]] | None:
    """Return the conditions that a host fails; None when it is enough before that is known."""
    if is_enough():
        return None
    if suits(subject):
        return ()
    failed = []
    for item in conditions[:-1]:
        if is_enough():
            return None
        if not item.meets(subject):
            failed.append(item)
    return failed or conditions[-1:]


def _obstacle(
    condition: Condition[S], rejected: Sequence[Verdict[S]], is_enough: IsEnough
) -> Obstacle:
    only = [verdict.subject for verdict in rejected if len(verdict.failed) == 1]
    looked_at = itertools.takewhile(lambda _: not is_enough(), rejected[:_LOOKED_AT])
    values = Counter(condition.has(verdict.subject) for verdict in looked_at)
    return Obstacle(
        kind=condition.kind,
        text=condition.text,
        via=condition.via,
        rejects=len(rejected),
        only=len(only),
        values=values.most_common(VALUES),
        relaxed=list(_relaxed(condition.bound, only, is_enough)) if condition.bound else [],
    )


def _miss(verdict: Verdict[S], is_enough: IsEnough) -> Miss[S]:
    looked_at = itertools.takewhile(lambda _: not is_enough(), verdict.failed)
    return Miss(verdict.subject, [(item.text, item.has(verdict.subject)) for item in looked_at])


def _relaxed(bound: Bound[S], subjects: Sequence[S], is_enough: IsEnough) -> Iterator[Relaxed]:
    """Yield the limits at which one, half and all of the hosts would pass."""
    looked_at = list(itertools.takewhile(lambda _: not is_enough(), subjects))
    found = (amount for host in looked_at if (amount := bound.amount(host)) is not None)
    amounts = sorted(filter(math.isfinite, found), reverse=bound.at_least)
    if not amounts or len(looked_at) < len(subjects):
        return
    told = set[str]()
    for wanted in (1, math.ceil(len(amounts) / 2), len(amounts)):
        limit = _round(amounts[wanted - 1], down=bound.at_least)
        if limit not in told:
            told.add(limit)
            least = float(limit)
            passing = [n for n in amounts if (n >= least if bound.at_least else n <= least)]
            yield Relaxed(len(passing), bound.text(limit), bound.change(limit))


def _round(number: float, down: bool) -> str:
    """Return a limit that the number still meets, with few digits where it is no integer."""
    if float(number).is_integer():
        return str(int(number)) if abs(number) < _MANY else repr(float(number))
    places = min(2 - math.floor(math.log10(abs(number))), _MOST_PLACES)
    cut = (math.floor if down else math.ceil)(number * 10**places) / 10**places
    return f"{cut:.{max(0, places)}f}".rstrip("0").rstrip(".") if places > 0 else f"{cut:.0f}"
