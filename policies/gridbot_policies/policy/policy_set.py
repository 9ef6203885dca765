"""A BOT's policies as one object: which jobs suit a host, which first, how many, for how long."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from types import MappingProxyType

from gridbot_policies.classad import Record, Value, evaluate, evaluate_counted, parse
from gridbot_policies.classad.compiler import Evaluator, compile_attributes
from gridbot_policies.classad.lexer import line_and_column
from gridbot_policies.classad.nodes import Attribute, Definition, Node
from gridbot_policies.classad.parser import parse_definitions
from gridbot_policies.classad.unparse import unparse
from gridbot_policies.classad.values import fold, record
from gridbot_policies.policy.ads import LAYOUT, Ads, HostIsUnseen, grid_scope
from gridbot_policies.policy.hints import (
    changes_by_itself,
    closest,
    mentions_caches,
    mentions_replicas,
)

MAX_POLICY_BYTES = 16_384
MAX_KIND_CHARACTERS = 500
MAX_CONCURRENCY = 10_000
ASSURANCE = "Assurance"  # the confidence that results of strangers must reach
DEFAULT_DEADLINE_SECONDS = 86_400.0
MIN_DEADLINE_SECONDS, MAX_DEADLINE_SECONDS = 1.0, 365 * 86_400.0
# Far from where doubles overflow, so that the dispatcher may add to ranks.
MAX_RANK = 1e300
_NUMBER = (int, float)  # a union would be made anew for each look

DEFAULTS: Mapping[str, str] = MappingProxyType(
    {
        "JobRequirements": "true",
        "Rank": "0",
        # One job per core runs and one waits there, so that no core idles between two
        # requests; it is what the paper's Figure 3 does.
        "Concurrency": "2 * Host.NumCpus",
        "Deadline": f"{DEFAULT_DEADLINE_SECONDS:.0f}",
        # In the tail hosts are idle anyway: a second copy of a job that already takes three
        # times the mean is cheap, and ends the wait for a host that has gone.
        "ReplicationRequirements": (
            "Tail && NumberOfReplicas < 2 && Job.Age > 3 * BOT.MeanTurnaround"
        ),
        "GridPolicy": "true",
        "HomogeneousBy": "undefined",
    }
)
_DEFAULT_NODES = {name: parse(text) for name, text in DEFAULTS.items()}
_FALSE = parse("false")
_NOTHING = Record({}, ())
_UNNAMED = record({"Name": None, "Owner": None, "Requirements": None})
_PER_HOST = ("JobRequirements", "Rank", "Concurrency", "Deadline")
# Compiling costs as much as walking the same text some 130 times (measured).
_WALKS_BEFORE_COMPILING = 130


class SemanticError(ValueError):
    """The text parses, but cannot be what its author meant; the message says why.

    `offset` is where in the text.
    """

    def __init__(self, message: str, offset: int = 0) -> None:
        super().__init__(message)
        self.offset = offset


@dataclass(frozen=True, slots=True)
class PolicySet:
    """The policies of one BOT, those that its owner left out by default.

    No evaluation raises or takes long: a policy that fails counts as not satisfied,
    as zero, or as its default. `definitions` are the owner's own attributes.
    """

    text: str
    definitions: tuple[Definition, ...]
    attributes: Record
    looks_at_replicas: bool  # whether dispatch must look at a job's other replicas
    looks_at_caches: bool  # whether dispatch must look at what a host holds of the BOT's inputs
    is_restless: bool  # whether JobRequirements and Rank change though nothing of the BOT does
    is_homogeneous: bool  # whether the replicas of a job go to hosts of one kind
    has_concurrency: bool  # whether its owner says one
    has_deadline: bool
    may_replicate: bool  # whether ReplicationRequirements is anything but plainly false
    assurance: float | None  # the confidence that results must reach; None: its owner does not say
    _evaluators: Mapping[str, Evaluator]

    @staticmethod
    @lru_cache(maxsize=128)
    def parse(text: str) -> PolicySet:
        """Read `Name = expression; …`, with or without [ ] around it. "" means all defaults.

        Raises ParseError for bad syntax, SemanticError for a misspelt policy, a name
        defined twice or a text that is too long.
        """
        size = len(text.encode("utf-8", "surrogatepass"))
        if size > MAX_POLICY_BYTES:
            raise SemanticError(
                f"the policy has {size} bytes; at most {MAX_POLICY_BYTES} are allowed"
            )
        definitions = parse_definitions(text)
        check_defined_once(text, definitions)
        _check_policies(text, definitions)
        expressions = {**_DEFAULT_NODES, **_by_policy_name(definitions)}
        attributes = Record({fold(name): e for name, e in expressions.items()}, (*expressions,))
        return PolicySet(
            text=text,
            definitions=definitions,
            attributes=attributes,
            looks_at_replicas=mentions_replicas(expressions, _PER_HOST),
            looks_at_caches=mentions_caches(expressions, _PER_HOST),
            is_restless=changes_by_itself(expressions, ("JobRequirements", "Rank")),
            is_homogeneous=any(fold(item.name) == "homogeneousby" for item in definitions),
            assurance=_assurance(text, definitions, attributes),
            has_concurrency=any(fold(item.name) == "concurrency" for item in definitions),
            has_deadline=any(fold(item.name) == "deadline" for item in definitions),
            may_replicate=expressions["ReplicationRequirements"] != _FALSE,
            _evaluators=_Evaluators(attributes).by_policy,
        )

    def value(self, policy: str, ads: Ads) -> Value:
        """Return what one of the policies in `DEFAULTS` gives, as it is."""
        return self._evaluators[policy](ads)

    def requirements(self, ads: Ads) -> bool:
        """Tell whether the host may run the job."""
        return _is_satisfied(self._evaluators["JobRequirements"](ads))

    def rank(self, ads: Ads) -> float:
        """Return how much the host suits the job; 0 if the policy gives no number."""
        value = self._evaluators["Rank"](ads)
        if (type(value) is float or type(value) is int) and -MAX_RANK <= value <= MAX_RANK:
            return value
        number = _number(value)
        return 0.0 if number is None else max(-MAX_RANK, min(number, MAX_RANK))

    def for_any_host(self, ads: Ads) -> tuple[bool, float] | None:
        """Return `requirements` and `rank` if they are the same whatever host asks, else None.

        It is so while they do not look at the host, like `!Tail ? 5 : Host.JobsToday` before the
        tail: `ads` hold UNSEEN_HOST.
        """
        try:
            suits = self.requirements(ads)
            return suits, self.rank(ads) if suits else 0.0
        except HostIsUnseen:
            return None

    def concurrency(self, ads: Ads) -> int:
        """Return the most replicas that the host may hold at once; 0 if it gives no number."""
        number = _number(self._evaluators["Concurrency"](ads))
        return 0 if number is None else int(max(0.0, min(number, MAX_CONCURRENCY)))

    def deadline(self, ads: Ads) -> float:
        """Return the seconds that the host has for the job; the default if none are given."""
        number = _number(self._evaluators["Deadline"](ads))
        if number is None or number <= 0:
            return DEFAULT_DEADLINE_SECONDS
        return max(MIN_DEADLINE_SECONDS, min(number, MAX_DEADLINE_SECONDS))

    def wants_replica(self, ads: Ads) -> bool:
        """Tell whether the job should get another replica although none has failed."""
        return _is_satisfied(self._evaluators["ReplicationRequirements"](ads))

    def kind(self, ads: Ads) -> str:
        """Return what HomogeneousBy gives for the host, as text: equal for hosts of one kind.

        It sees the host alone, so that the value does not change as the BOT goes on; and not whose
        the host is, because the value is shown to the BOT's owner.
        """
        own = Ads(ads.host.overlaid(_UNNAMED), _NOTHING, _NOTHING, now=ads.now)
        text = unparse(self._evaluators["HomogeneousBy"](own))
        ads.steps += own.spent
        return text[:MAX_KIND_CHARACTERS]

    def accepts_grid(
        self, grid: Record, bot: Record, queue: Record, now: float | None = None
    ) -> bool:
        """Tell whether clients may be started in the grid on behalf of the BOT."""
        scope = self.attributes.within(grid_scope(grid, bot, queue))
        return _is_satisfied(evaluate(Attribute("GridPolicy"), scope, now=now))


class _Evaluators:
    """How the policies of one set are evaluated: walked at first, compiled when it pays."""

    def __init__(self, attributes: Record) -> None:
        self._attributes = attributes
        self._walks = 0
        self.by_policy: dict[str, Evaluator] = {
            name: partial(self._walk_while_cold, name) for name in DEFAULTS if name != "GridPolicy"
        }

    def _walk_while_cold(self, name: str, ads: Ads) -> Value:
        self._walks += 1
        if self._walks == _WALKS_BEFORE_COMPILING:
            compiled = compile_attributes(
                self.by_policy, self._attributes.attributes, LAYOUT, self._walk
            )
            self.by_policy.update(compiled)
        return self._walk(name, ads)

    def _walk(self, name: str, ads: Ads) -> Value:
        scope = self._attributes.within(ads.scope)
        value, steps = evaluate_counted(Attribute(name), scope, now=ads.now)
        ads.steps += steps
        return value


def _is_satisfied(value: Value) -> bool:
    return value is True or (isinstance(value, int | float) and value != 0)


def _number(value: Value) -> float | None:
    if not isinstance(value, _NUMBER) or math.isnan(value):
        return None
    return float(value)


def _assurance(text: str, definitions: Iterable[Definition], attributes: Record) -> float | None:
    """Return the Assurance, a number that holds for all hosts; raise SemanticError for another."""
    for item in definitions:
        if fold(item.name) == fold(ASSURANCE):
            value = evaluate(Attribute(item.name), attributes)
            number = _number(value)
            if isinstance(value, bool) or number is None or not 0.5 <= number < 1:
                message = f"{ASSURANCE} must be a number from 0.5 to below 1, such as 0.999"
                raise SemanticError(f"{_place(text, item)}: {message}", item.offset)
            return number
    return None


def _by_policy_name(definitions: tuple[Definition, ...]) -> dict[str, Node]:
    """Return the expressions by name, a policy's under our spelling of it."""
    ours = {fold(name): name for name in DEFAULTS}
    return {ours.get(fold(item.name), item.name): item.expression for item in definitions}


def check_defined_once(text: str, definitions: Iterable[Definition]) -> None:
    """Raise SemanticError for a name that is defined twice."""
    seen: dict[str, Definition] = {}
    for item in definitions:
        if first := seen.get(fold(item.name)):
            line = line_and_column(text, first.offset)[0]
            message = f"{item.name} is defined twice, first in line {line}"
            raise SemanticError(f"{_place(text, item)}: {message}", item.offset)
        seen[fold(item.name)] = item


def _check_policies(text: str, definitions: Iterable[Definition]) -> None:
    for item in definitions:
        if meant := _misspelt_policy(item.name):
            message = f"there is no policy {item.name}; did you mean {meant}?"
            raise SemanticError(f"{_place(text, item)}: {message}", item.offset)


def _place(text: str, item: Definition) -> str:
    return "line {}, column {}".format(*line_and_column(text, item.offset))


def _misspelt_policy(name: str) -> str | None:
    """Return the policy that was meant, if the name is very like one but not built on one."""
    key = fold(name)
    meant = closest(name, (*DEFAULTS, ASSURANCE), similarity=0.84)
    if meant is None or key == fold(meant):
        return None
    # Rank2 and MyDeadline are names of the owner's own; Ranks is a slip.
    own = fold(meant) in key and (key[-1].isdigit() or len(key) > len(meant) + 1)
    return None if own else meant
