"""Functions of lists."""

from __future__ import annotations

import re

from gridbot_policies.classad import nodes
from gridbot_policies.classad.functions.call import (
    ANY_NUMBER,
    Call,
    Function,
    eager,
    lazy,
    text_of,
)
from gridbot_policies.classad.nodes import Node
from gridbot_policies.classad.operators import binary, truth
from gridbot_policies.classad.values import (
    ERROR,
    UNDEFINED,
    ListValue,
    Missing,
    Record,
    Value,
    fold,
)


@eager(1)
def _size(_call: Call, value: Value) -> Value:
    match value:
        case str():
            return len(value.encode("utf-8", "surrogatepass"))
        case ListValue(items):
            return len(items)
        case Record():
            return len(value.attributes)
        case _:
            return UNDEFINED if value is UNDEFINED else ERROR


@eager(2)
def _member(call: Call, value: Value, values: Value) -> Value:
    if UNDEFINED in (value, values):
        return UNDEFINED
    if value is ERROR or isinstance(value, ListValue | Record) or not isinstance(values, ListValue):
        return ERROR
    return any(binary("==", value, item) is True for item in call.elements(values))


@eager(2)
def _identical_member(call: Call, value: Value, values: Value) -> Value:
    if values is UNDEFINED:
        return UNDEFINED
    if isinstance(value, ListValue | Record) or not isinstance(values, ListValue):
        return ERROR
    return any(binary("is", value, item) is True for item in call.elements(values))


_COMPARISONS = ("<", "<=", "==", "!=", ">=", ">", "is", "isnt")


def _comparing(decisive: bool) -> Function:
    def apply(call: Call, operator: Value, values: Value, value: Value) -> Value:
        if UNDEFINED in (operator, values):
            return UNDEFINED
        if operator not in _COMPARISONS or not isinstance(values, ListValue):
            return ERROR
        for item in call.elements(values):
            result = binary(str(operator), item, value)
            if isinstance(result, Missing):
                return ERROR if result is ERROR else False
            if result is decisive:
                return decisive
        return not decisive

    return Function(apply, 3, 3)


@eager(0, ANY_NUMBER)
def _join(call: Call, *values: Value) -> Value:
    if len(values) == 1 and not isinstance(values[0], ListValue):
        return values[0] if isinstance(values[0], Missing) else ""
    separator, items = (values[0], values[1:]) if len(values) > 1 else ("", values)
    if len(items) == 1 and isinstance(items[0], ListValue):
        items = tuple(call.elements(items[0]))
    texts = [text_of(call, item) for item in (separator, *items)]
    if ERROR in texts:
        return ERROR
    found = [text for text in texts[1:] if isinstance(text, str)]
    if not found and UNDEFINED in texts:
        return UNDEFINED
    return _joined(call, texts[0] if isinstance(texts[0], str) else "", found)


def _joined(call: Call, separator: str, texts: list[str]) -> str:
    pieces: list[str] = []
    begun = False
    for text in texts:
        pieces += [separator, text] if begun else [text]
        begun = begun or bool(text)  # leading empty items get no separator
    return call.text(pieces)


@eager(1, 2)
def _split(_call: Call, text: Value, separators: Value = ", \t") -> Value:
    if not isinstance(text, str) or not isinstance(separators, str):
        return ERROR
    return ListValue(tuple(_pieces(text, separators)), None)


def _pieces(text: str, separators: str) -> list[str]:
    """Split at any separator; white space melts into its neighbours, other separators do not."""
    blank = "".join(char for char in separators if char in " \t\n\v\f\r")
    hard = "".join(char for char in separators if char not in blank)
    text = text.strip(separators) if separators else text
    soft = f"[{re.escape(blank)}]" if blank else r"(?!)"
    firm = f"[{re.escape(hard)}]" if hard else r"(?!)"
    return re.split(f"{soft}*{firm}{soft}*|{soft}+", text) if text else []


def _splitting(name_first: bool) -> Function:
    def apply(_call: Call, name: Value) -> Value:
        if not isinstance(name, str):
            return ERROR
        before, at, after = name.partition("@")
        return ListValue((before, after) if at or name_first else ("", name), None)

    return Function(apply, 1, 1)


@lazy(2)
def _eval_in_each_context(call: Call, node: Node, ads: Node) -> Value:
    values = call.evaluate(ads)
    if not isinstance(values, ListValue):
        return UNDEFINED if values is UNDEFINED else ERROR
    return ListValue(tuple(_in_each(call, node, values)), None)


@lazy(2)
def _count_matches(call: Call, node: Node, ads: Node) -> Value:
    values = call.evaluate(ads)
    if not isinstance(values, ListValue):
        return 0 if values is UNDEFINED else ERROR
    return sum(truth(value) is True for value in _in_each(call, node, values))


def _in_each(call: Call, node: Node, ads: ListValue) -> list[Value]:
    node = _meant(call, node)
    return [_in_context(call, node, ad) for ad in call.elements(ads)]


def _in_context(call: Call, node: Node, ad: Value) -> Value:
    if isinstance(ad, Record):
        return call.evaluate_in(node, ad)
    return UNDEFINED if ad is UNDEFINED else ERROR


def _meant(call: Call, node: Node) -> Node:
    """Return the expression behind a name that is known here, else the name itself."""
    holder: Value | None = None
    if isinstance(node, nodes.Attribute):
        holder = call.scope
    elif isinstance(node, nodes.Selection):
        holder = call.evaluate(node.base)
    while isinstance(holder, Record) and isinstance(node, nodes.Attribute | nodes.Selection):
        found = holder.attributes.get(fold(node.name))
        if found is not None:
            return found if isinstance(found, Node) else nodes.Constant(found)
        holder = holder.parent
    return node


TABLE = {
    "size": _size,
    "member": _member,
    "identicalmember": _identical_member,
    "anycompare": _comparing(decisive=True),
    "allcompare": _comparing(decisive=False),
    "join": _join,
    "split": _split,
    "splitusername": _splitting(name_first=True),
    "splitslotname": _splitting(name_first=False),
    "evalineachcontext": _eval_in_each_context,
    "countmatches": _count_matches,
}
