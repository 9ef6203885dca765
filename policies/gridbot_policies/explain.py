"""Why hosts do not get a BOT's jobs: which condition rejects how many, and what to relax."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from gridbot_policies.ads import Ads
from gridbot_policies.classad import Value, evaluate, nodes
from gridbot_policies.classad.nodes import Attribute, Node
from gridbot_policies.classad.operators import truth
from gridbot_policies.clauses import Clause, Splitter, bare, is_of_the_bot
from gridbot_policies.impossible import comparison
from gridbot_policies.policy_set import PolicySet
from gridbot_policies.source import Source
from gridbot_policies.trace import trace, value_text

S = TypeVar("S")

NEAREST = 3  # hosts that are named
VALUES = 3  # of what hosts have instead, the commonest
_LOOKED_AT = 500  # rejected hosts of which that is found out
_LOOSE = {"<": "<=", "<=": "<=", ">": ">=", ">=": ">="}


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

    def main_obstacle(self) -> tuple[Condition[S], int] | None:
        """Return the condition that most hosts fail, the earliest of several, and their number."""
        counts = Counter(id(item) for verdict in self.verdicts for item in verdict.failed)
        if not counts:
            return None
        most = max(self.conditions, key=lambda item: counts[id(item)])
        return most, counts[id(most)]

    def explain(self) -> Explanation[S]:
        """Count what the conditions reject, find the nearest misses and what would help."""
        missed = sorted((v for v in self.verdicts if v.failed), key=lambda v: len(v.failed))
        obstacles = [
            _obstacle(item, rejected)
            for item in self.conditions
            if (rejected := [v for v in missed if any(item is other for other in v.failed)])
        ]
        obstacles.sort(key=lambda found: -found.rejects)
        return Explanation(obstacles, [_miss(verdict) for verdict in missed[:NEAREST]])


def judge(
    conditions: Sequence[Condition[S]],
    subjects: Iterable[tuple[int, S]],
    suits: Callable[[S], bool],
    is_enough: Callable[[], bool] = lambda: False,
) -> Judged[S]:
    """Judge hosts, given as (host, client of it): of several clients the best one counts.

    `suits` has the last word. The last condition counts only where none of the others fails.
    A policy may take milliseconds for each host: it ends before its time when `is_enough`.
    """
    best: dict[int, Verdict[S]] = {}
    is_partial = False
    for host, subject in subjects:
        if is_partial := is_enough():
            break
        known = best.get(host)
        if known and not known.failed:
            continue
        failed: Sequence[Condition[S]] = ()
        if not suits(subject):
            failed = [item for item in conditions[:-1] if not item.meets(subject)]
            failed = failed or conditions[-1:]
        if known is None or len(failed) < len(known.failed):
            best[host] = Verdict(subject, failed)
    return Judged(conditions, list(best.values()), is_partial)


def _obstacle(condition: Condition[S], rejected: Sequence[Verdict[S]]) -> Obstacle:
    only = [verdict.subject for verdict in rejected if len(verdict.failed) == 1]
    values = Counter(condition.has(verdict.subject) for verdict in rejected[:_LOOKED_AT])
    return Obstacle(
        kind=condition.kind,
        text=condition.text,
        via=condition.via,
        rejects=len(rejected),
        only=len(only),
        values=values.most_common(VALUES),
        relaxed=list(_relaxed(condition.bound, only)) if condition.bound else [],
    )


def _miss(verdict: Verdict[S]) -> Miss[S]:
    fails = [(item.text, item.has(verdict.subject)) for item in verdict.failed]
    return Miss(verdict.subject, fails)


def _relaxed(bound: Bound[S], subjects: Sequence[S]) -> Iterator[Relaxed]:
    """Yield the limits at which one, half and all of the hosts would pass."""
    found = (bound.amount(subject) for subject in subjects)
    amounts = sorted((n for n in found if n is not None), reverse=bound.at_least)
    if not amounts:
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
        return str(int(number))
    places = 2 - math.floor(math.log10(abs(number)))
    cut = (math.floor if down else math.ceil)(number * 10**places) / 10**places
    return f"{cut:.{max(0, places)}f}".rstrip("0").rstrip(".") if places > 0 else f"{cut:.0f}"


class PolicyConditions(Generic[S]):
    """The clauses of a BOT's JobRequirements, and its Concurrency, as conditions.

    `ads` gives the ads of a host, `shown` the same as far as they may be shown.
    """

    def __init__(
        self, policies: PolicySet, bot: Ads, ads: Callable[[S], Ads], shown: Callable[[S], Ads]
    ) -> None:
        self._policies = policies
        self._source = Source.of_definitions(policies.text)
        self._own = self._source.within(policies.attributes)
        self._bot = bot
        self._ads = ads
        self._shown = shown

    def conditions(self) -> Iterator[Condition[S]]:
        """Yield a condition for each clause that hosts may fail, then one for Concurrency."""
        attributes = self._own.attributes
        requirements = attributes["jobrequirements"]
        assert isinstance(requirements, Node)
        for clause in Splitter(attributes, self._settled).clauses(requirements):
            yield self._clause(clause)
        yield Condition(
            "Concurrency",
            "Concurrency >= 1",
            lambda host: self._policies.concurrency(self._ads(host)) >= 1,
            lambda host: value_text(self._value(Attribute("Concurrency"), self._shown(host))),
        )

    def whole(self) -> Condition[S]:
        """Return JobRequirements as one condition, for what none of the clauses tells."""
        return Condition(
            "JobRequirements",
            "JobRequirements",
            lambda host: self._policies.requirements(self._ads(host)),
            lambda host: value_text(self._value(Attribute("JobRequirements"), self._shown(host))),
        )

    def _clause(self, clause: Clause) -> Condition[S]:
        return Condition(
            "JobRequirements",
            self._source.shown(bare(clause.node)),
            lambda host: truth(self._value(clause.node, self._ads(host))) is True,
            lambda host: self._has(clause.node, self._shown(host)),
            clause.via,
            self._bound(bare(clause.node)),
        )

    def _bound(self, node: Node) -> Bound[S] | None:
        found = comparison(node)
        if found is None or found.operator == "==" or self._source.replaced(node, "") is None:
            return None

        def amount(host: S) -> float | None:
            value = self._value(found.side, self._ads(host))
            return value if isinstance(value, int | float) and math.isfinite(value) else None

        def text(limit: str) -> str:
            side = self._source.shown(found.side)
            return f"{side} {_LOOSE[found.operator]} {limit}"

        def change(limit: str) -> Mapping[str, str]:
            return {"policy": self._source.replaced(node, text(limit)) or ""}

        return Bound(found.operator in (">", ">="), amount, text, change)

    def _has(self, node: Node, ads: Ads) -> str:
        """Return the value that a comparison is about, or the attributes that a clause read."""
        if side := _compared(bare(node)):
            return value_text(self._value(side, ads))
        steps = trace(node, self._own.within(ads.scope), now=ads.now).walk()
        read = {
            self._source.shown(step.node): value_text(step.value)
            for step in steps
            if not step.children and isinstance(step.node, nodes.Attribute | nodes.Selection)
        }
        if not read:
            return value_text(self._value(node, ads))
        return ", ".join(f"{name} = {value}" for name, value in list(read.items())[:VALUES])

    def _settled(self, node: Node) -> Value | None:
        if not is_of_the_bot(node, self._own.attributes):
            return None
        return self._value(node, self._bot)

    def _value(self, node: Node, ads: Ads) -> Value:
        return evaluate(node, self._own.within(ads.scope), now=ads.now)


def _compared(node: Node) -> Node | None:
    """Return what a comparison with a constant compares."""
    if not isinstance(node, nodes.Binary) or node.operator in ("&&", "||"):
        return None
    for side, other in ((node.left, node.right), (node.right, node.left)):
        if isinstance(bare(other), nodes.Constant) and not isinstance(side, nodes.Constant):
            return side
    return None
