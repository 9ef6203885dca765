"""Two ads face to face, as HTCondor's matchmaking puts them: MY and TARGET."""

from __future__ import annotations

from gridbot_policies.classad import nodes
from gridbot_policies.classad.evaluate import record_of
from gridbot_policies.classad.nodes import Node
from gridbot_policies.classad.parser import parse
from gridbot_policies.classad.values import Record, Value


def _template(text: str) -> Record:
    node = parse(text)
    assert isinstance(node, nodes.RecordNode)
    return record_of(node)


# The names are HTCondor's: expressions may use any of them.
_MATCH = _template("""[
  symmetricMatch = leftMatchesRight && rightMatchesLeft;
  leftMatchesRight = LEFT.Requirements; leftRankValue = LEFT.Rank;
  rightMatchesLeft = RIGHT.Requirements; rightRankValue = RIGHT.Rank ]""")
_LEFT = _template("[ other = .RIGHT; target = .RIGHT; my = .LEFT; ad = .LEFT ]")
_RIGHT = _template("[ other = .LEFT; target = .LEFT; my = .RIGHT; ad = .RIGHT ]")


def match_scope(mine: Record, target: Record) -> Record:
    """Return `mine` as a scope in which TARGET is `target`, and MY is `mine`."""
    held: dict[str, Node | Value] = dict(_MATCH.attributes)
    match = Record(held, (*_MATCH.names, "lCtx", "rCtx", "LEFT", "RIGHT"))
    held["lctx"] = left_context = _LEFT.within(match)
    held["rctx"] = right_context = _RIGHT.within(match)
    held["left"] = left = mine.within(left_context)
    held["right"] = right = target.within(right_context)
    left.other, right.other = right, left
    return left
