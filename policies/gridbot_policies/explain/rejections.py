"""Why hosts do not get a BOT's jobs: which condition rejects how many, and what to relax."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from gridbot_policies.explain.relax import Bound, IsEnough, RelaxableHost, Relaxed, relaxed

S = TypeVar("S")

NEAREST = 3  # hosts that are named
VALUES = 3  # of what hosts have instead, the commonest
_LOOKED_AT = 500  # rejected hosts of which that is found out
_TOGETHER = 3  # conditions that are worth loosening at once


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
class Rejections(Generic[S]):
    """What rejects hosts, the worst first, and the hosts that fail fewest conditions.

    `together` are changes of several conditions for hosts that no single one would help.
    """

    obstacles: Sequence[Obstacle]
    nearest: Sequence[Miss[S]]
    together: Sequence[Relaxed]


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

    def explain(self, is_enough: IsEnough = lambda: False) -> Rejections[S]:
        """Count what the conditions reject, find the nearest misses and what would help.

        What hosts have, and would help, is left out from when it `is_enough`.
        """
        missed = sorted((v for v in self.verdicts if v.failed), key=lambda v: len(v.failed))
        rejected = self._failing(missed)
        nearest = [_miss(verdict, is_enough) for verdict in missed[:NEAREST]]
        failed = [(item, rejected[id(item)]) for item in self.conditions if id(item) in rejected]
        failed.sort(key=lambda found: -len(found[1]))
        obstacles = [_obstacle(item, by, is_enough) for item, by in failed]
        return Rejections(obstacles, nearest, _together(missed, is_enough))

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
    only = [verdict for verdict in rejected if len(verdict.failed) == 1]
    looked_at = itertools.takewhile(lambda _: not is_enough(), rejected[:_LOOKED_AT])
    values = Counter(condition.has(verdict.subject) for verdict in looked_at)
    return Obstacle(
        kind=condition.kind,
        text=condition.text,
        via=condition.via,
        rejects=len(rejected),
        only=len(only),
        values=values.most_common(VALUES),
        relaxed=_relaxed((condition,), only, is_enough),
    )


def _miss(verdict: Verdict[S], is_enough: IsEnough) -> Miss[S]:
    looked_at = itertools.takewhile(lambda _: not is_enough(), verdict.failed)
    return Miss(verdict.subject, [(item.text, item.has(verdict.subject)) for item in looked_at])


def _together(missed: Sequence[Verdict[S]], is_enough: IsEnough) -> list[Relaxed]:
    """Return what helps hosts that fail several conditions: the fewest, then the commonest."""
    groups = Counter(
        tuple(map(id, verdict.failed))
        for verdict in missed
        if 1 < len(verdict.failed) <= _TOGETHER and all(item.bound for item in verdict.failed)
    )
    if not groups:
        return []
    chosen = min(groups, key=lambda group: (len(group), -groups[group]))
    within = [verdict for verdict in missed if {id(item) for item in verdict.failed} <= {*chosen}]
    example = next(verdict for verdict in within if len(verdict.failed) == len(chosen))
    return _relaxed(example.failed, within, is_enough)


def _relaxed(
    conditions: Sequence[Condition[S]], rejected: Sequence[Verdict[S]], is_enough: IsEnough
) -> list[Relaxed]:
    """Return how to loosen conditions, besides which the rejected hosts fail none."""
    bounds = _bounds(conditions)
    if len(bounds) < len(conditions):
        return []
    missing = [RelaxableHost(verdict.subject, _bounds(verdict.failed)) for verdict in rejected]
    return list(relaxed(bounds, missing, is_enough))


def _bounds(conditions: Sequence[Condition[S]]) -> list[Bound[S]]:
    return [item.bound for item in conditions if item.bound]
