"""Where a name is found, for functions that look at expressions instead of their values."""

from __future__ import annotations

from gridbot_policies.classad import nodes
from gridbot_policies.classad.functions.call import CallContext
from gridbot_policies.classad.nodes import Node
from gridbot_policies.classad.scopes import root_of
from gridbot_policies.classad.values import UNDEFINED, ListValue, Record, Value, fold

Name = nodes.Attribute | nodes.Selection | nodes.Absolute
Place = tuple[Record, str]  # an ad, and the key of an attribute that it has


def start_of(call: CallContext, name: Name, scope: Record | None) -> Value:
    """Return the ad in which the search for a name begins; another value if there is none."""
    match name:
        case nodes.Selection(base):
            return call.evaluate(base) if scope is None else call.evaluate_in(base, scope)
        case nodes.Absolute():
            return UNDEFINED if scope is None else root_of(scope)
        case nodes.Attribute():
            return UNDEFINED if scope is None else scope


def place_of(name: Name, start: Record) -> Place | None:
    """Return where the name is found: there or farther out."""
    key = fold(name.name)
    if isinstance(name, nodes.Absolute):
        return (start, key) if key in start.attributes else None
    return _outwards(key, start)


def place_in_match(call: CallContext, name: Name, start: Record) -> Place | None:
    """Return where the name is found: there, farther out, or in the other ad of a match."""
    place = place_of(name, start)
    if place is None and isinstance(name, nodes.Attribute) and not call.strict:
        place = _outwards(fold(name.name), start.other)
    return place


def _outwards(key: str, holder: Record | None) -> Place | None:
    while holder is not None:
        if key in holder.attributes:
            return holder, key
        holder = holder.parent
    return None


def expression_at(place: Place) -> Node:
    """Return what the attribute is defined as."""
    holder, key = place
    found = holder.attributes[key]
    return found if isinstance(found, Node) else nodes.Constant(found)


def rooted(call: CallContext, node: Node, scope: Record | None) -> Node:
    """Return the expression with the lists and ads that are written in it as those of `scope`.

    The names in it may then be sought from another ad: what is written there stays where it is.
    """
    call.spend(1)
    if not any(map(_is_written_out, nodes.walk(node))):
        return node

    def settled(part: Node) -> Node | None:
        if isinstance(part, nodes.ListNode):
            items = tuple(nodes.rebuilt(item, settled) for item in part.items)
            return nodes.Constant(ListValue(items, scope))
        if isinstance(part, nodes.RecordNode):
            return nodes.Constant(call.evaluate_in(part, scope) if scope else call.evaluate(part))
        return None

    return nodes.rebuilt(node, settled)


def _is_written_out(node: Node) -> bool:
    return isinstance(node, nodes.ListNode | nodes.RecordNode)
