"""Two ads face to face, as HTCondor's matchmaking puts them: MY and TARGET."""

from __future__ import annotations

import math

from gridbot_policies.classad.evaluate import DEFAULT_LIMITS, Limits, evaluate
from gridbot_policies.classad.nodes import Attribute, Node, RecordNode
from gridbot_policies.classad.parser import parse_definitions
from gridbot_policies.classad.scopes import record_of
from gridbot_policies.classad.values import Record, Value, fold


def _template(text: str) -> Record:
    return record_of(RecordNode(parse_definitions(text)))


# The names are HTCondor's: expressions may use any of them.
_MATCH = _template("""[
  symmetricMatch = RIGHT.requirements && LEFT.requirements;
  leftMatchesRight = RIGHT.requirements; leftRankValue = LEFT.rank;
  rightMatchesLeft = LEFT.requirements; rightRankValue = RIGHT.rank ]""")
_LEFT = _template("[ other = .RIGHT; target = .RIGHT; my = .LEFT; ad = .LEFT ]")
_RIGHT = _template("[ other = .LEFT; target = .LEFT; my = .RIGHT; ad = .RIGHT ]")
_REQUIREMENTS, _RANK = Attribute("Requirements"), Attribute("Rank")


def match_scope(mine: Record, target: Record) -> Record:
    """Return `mine` as a scope in which TARGET is `target`, and MY is `mine`."""
    held: dict[str, Node | Value] = {}
    match = Record(held, ("lCtx", "LEFT", "rCtx", "RIGHT", *_MATCH.names))
    held["lctx"] = left_context = _LEFT.within(match)
    held["left"] = left = mine.within(left_context)
    held["rctx"] = right_context = _RIGHT.within(match)
    held["right"] = right = target.within(right_context)
    held.update(_MATCH.attributes)
    left.other, right.other = right, left
    return left


def matches(
    mine: Record,
    target: Record,
    *,
    now: float | None = None,
    limits: Limits = DEFAULT_LIMITS,
    strict: bool = False,
) -> bool:
    """Tell whether the Requirements of `mine` accept `target`.

    They do if they are true or a number other than 0. Undefined, an error or a string is no
    match, and so are Requirements that are not there at all: that is HTCondor's way.
    """
    return _holds(_sought(_REQUIREMENTS, match_scope(mine, target), now, limits, strict))


def symmetric_match(
    left: Record,
    right: Record,
    *,
    now: float | None = None,
    limits: Limits = DEFAULT_LIMITS,
    strict: bool = False,
) -> bool:
    """Tell whether each of the two ads has Requirements that accept the other."""
    scope = match_scope(left, right)
    assert scope.other is not None
    return all(
        _holds(_sought(_REQUIREMENTS, side, now, limits, strict)) for side in (scope, scope.other)
    )


def rank(
    mine: Record,
    target: Record,
    *,
    now: float | None = None,
    limits: Limits = DEFAULT_LIMITS,
    strict: bool = False,
) -> float:
    """Return how much `mine` likes `target`: its Rank, 0 if that is not a number or not there."""
    value = _sought(_RANK, match_scope(mine, target), now, limits, strict)
    number = float(value) if isinstance(value, int | float) else 0.0
    return 0.0 if math.isnan(number) else number


def _sought(
    name: Attribute, side: Record, now: float | None, limits: Limits, strict: bool
) -> Value:
    # From within its own ad only: another's Requirements must not stand in for missing ones.
    own = fold(name.name) in side.attributes
    return evaluate(name, side, now=now, limits=limits, strict=strict) if own else False


def _holds(value: Value) -> bool:
    return isinstance(value, int | float) and value != 0
