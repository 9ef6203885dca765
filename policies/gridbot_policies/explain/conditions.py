"""A BOT's policy as the conditions that hosts must meet, each with what a host has instead."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

from gridbot_policies.classad import ERROR, UNDEFINED, Value, evaluate, nodes
from gridbot_policies.classad.evaluate import DEFAULT_LIMITS
from gridbot_policies.classad.nodes import Attribute, Node
from gridbot_policies.classad.operators import truth
from gridbot_policies.classad.source import Source, brief
from gridbot_policies.classad.values import fold
from gridbot_policies.explain.rejections import VALUES, Condition
from gridbot_policies.explain.relax import Bound, Change
from gridbot_policies.explain.trace import MAX_SHOWN, Traced, trace, value_text
from gridbot_policies.policy.ads import LIVE_ATTRIBUTES, Ads
from gridbot_policies.policy.clauses import BOT_NAMES, Clause, Fixed, Splitter, bare, comparison
from gridbot_policies.policy.policy_set import PolicySet
from gridbot_policies.policy.unknown import Attempt

S = TypeVar("S")

ONLY_ASKING = "known only while the host asks"
_MOST_CLAUSES = 50  # that are told apart
_LIVE = frozenset(map(fold, LIVE_ATTRIBUTES))
_REQUIREMENTS, _CONCURRENCY = Attribute("JobRequirements"), Attribute("Concurrency")
_LOOSE = {"<": "<=", "<=": "<=", ">": ">=", ">=": ">="}


class PolicyConditions(Generic[S]):
    """The clauses of a BOT's JobRequirements, and its Concurrency, as conditions.

    `ads` gives the ads of a host, `Unknown` in them what may not be looked at: a condition that
    depends on it is not told to fail. `shown` gives the same with something to show instead.
    """

    def __init__(
        self, policies: PolicySet, bot: Ads, ads: Callable[[S], Ads], shown: Callable[[S], Ads]
    ) -> None:
        self._source = Source.aligned(policies.text, policies.definitions)
        self._own = policies.attributes
        self._is_fixed = Fixed(self._own.attributes, BOT_NAMES)
        self._bot = self._attempt(bot)
        self._ads = ads
        self._shown = shown

    def conditions(self) -> Iterator[Condition[S]]:
        """Yield a condition for each clause that hosts may fail, then one for Concurrency.

        Of very many clauses the last ones are one condition.
        """
        attributes = self._own.attributes
        requirements = attributes["jobrequirements"]
        assert isinstance(requirements, Node)
        clauses = list(Splitter(attributes, self._settled).clauses(requirements))
        yield from map(self._clause, clauses[:_MOST_CLAUSES])
        if rest := clauses[_MOST_CLAUSES:]:
            yield self._rest(rest)
        yield Condition(
            "Concurrency",
            "Concurrency >= 1",
            lambda host: self._is_met(_CONCURRENCY, host, _is_one),
            lambda host: self._has(_CONCURRENCY, self._shown(host)),
        )

    def whole(self) -> Condition[S]:
        """Return JobRequirements as one condition, for what none of the clauses tells."""
        return Condition(
            "JobRequirements",
            "JobRequirements",
            lambda host: self._is_met(_REQUIREMENTS, host, _holds),
            lambda host: value_text(self._value(_REQUIREMENTS, self._shown(host))),
        )

    def _clause(self, clause: Clause) -> Condition[S]:
        return Condition(
            "JobRequirements",
            self._source.shown(bare(clause.node)),
            lambda host: self._is_met(clause.node, host, _holds),
            lambda host: self._has(clause.node, self._shown(host)),
            clause.via,
            self._bound(bare(clause.node)),
        )

    def _rest(self, clauses: Sequence[Clause]) -> Condition[S]:
        def failed(host: S) -> Node | None:
            # One budget for all: nobody looks at the clock between them.
            attempt = self._attempt(self._ads(host))
            values = ((item.node, attempt.value(item.node, ERROR)) for item in clauses)
            return next((n for n, value in values if value is not None and not _holds(value)), None)

        def has(host: S) -> str:
            first = failed(host)
            return "true" if first is None else f"not {brief(bare(first), MAX_SHOWN)}"

        return Condition(
            "JobRequirements",
            f"the {len(clauses)} conditions behind the first {_MOST_CLAUSES}",
            lambda host: failed(host) is None,
            has,
        )

    def _bound(self, node: Node) -> Bound[S] | None:
        found, span = comparison(node), self._source.span(node)
        if found is None or found.operator == "==" or span is None:
            return None
        side = self._source.shown(found.side)

        def amount(host: S) -> float | None:
            value = self._known(found.side, self._ads(host))
            return value if isinstance(value, int | float) else None

        def change(limit: str) -> Change:
            text = f"{side} {_LOOSE[found.operator]} {limit}"
            return Change(self._source.shown(node), text, edit=(span, text))

        return Bound(found.operator in (">", ">="), amount, change)

    def _has(self, node: Node, ads: Ads) -> str:
        """Return the value that a comparison is about, or the attributes that a clause read."""
        side = _compared(bare(node))
        value = self._value(side or node, ads)
        if value is UNDEFINED and self._reads_live(node, ads):
            return ONLY_ASKING
        if side or node is _CONCURRENCY:
            return value_text(value)
        read = {
            self._source.shown(step.node): value_text(step.value)
            for step in self._steps(node, ads)
            if not step.children and isinstance(step.node, nodes.Attribute | nodes.Selection)
        }
        if not read:
            return value_text(value)
        return ", ".join(f"{name} = {value}" for name, value in list(read.items())[:VALUES])

    def _reads_live(self, node: Node, ads: Ads) -> bool:
        """Tell whether a clause found nothing where the host says something when it asks."""
        return any(
            isinstance(step.node, nodes.Selection)
            and fold(step.node.name) in _LIVE
            and step.value is UNDEFINED
            for step in self._steps(node, ads)
        )

    def _steps(self, node: Node, ads: Ads) -> Iterator[Traced]:
        return trace(node, self._own.within(ads.scope), now=ads.now).walk()

    def _settled(self, node: Node) -> Value | None:
        return self._bot.value(node) if self._is_fixed(node) else None

    def _is_met(self, node: Node, host: S, holds: Callable[[Value], bool]) -> bool:
        value = self._known(node, self._ads(host))
        return value is None or holds(value)

    def _known(self, node: Node, ads: Ads) -> Value | None:
        return self._attempt(ads).value(node, exhausted=ERROR)

    def _attempt(self, ads: Ads) -> Attempt:
        return Attempt(self._own.within(ads.scope), ads.now, DEFAULT_LIMITS)

    def _value(self, node: Node, ads: Ads) -> Value:
        return evaluate(node, self._own.within(ads.scope), now=ads.now)


def _holds(value: Value) -> bool:
    return truth(value) is True


def _is_one(value: Value) -> bool:
    return isinstance(value, int | float) and value >= 1


def _compared(node: Node) -> Node | None:
    """Return what a comparison with a constant compares."""
    if not isinstance(node, nodes.Binary) or node.operator in ("&&", "||"):
        return None
    for side, other in ((node.left, node.right), (node.right, node.left)):
        if isinstance(bare(other), nodes.Constant) and not isinstance(side, nodes.Constant):
            return side
    return None
