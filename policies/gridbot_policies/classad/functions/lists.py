"""Functions of lists."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gridbot_policies.classad.functions.call import (
    ANY_NUMBER,
    CallContext,
    Function,
    eager,
    joined,
    lazy,
    text_of,
)
from gridbot_policies.classad.functions.names import (
    Name,
    expression_at,
    place_in_match,
    rooted,
    start_of,
)
from gridbot_policies.classad.nodes import Node
from gridbot_policies.classad.operators import binary, truth
from gridbot_policies.classad.scopes import root_of
from gridbot_policies.classad.values import (
    ERROR,
    UNDEFINED,
    ListValue,
    Missing,
    Record,
    Value,
    bytes_of,
    text_of_bytes,
)


@eager(1)
def _size(_call: CallContext, value: Value) -> Value:
    match value:
        case str():
            return len(bytes_of(value))
        case ListValue(items):
            return len(items)
        case Record():
            return len(value.attributes)
        case _:
            return UNDEFINED if value is UNDEFINED else ERROR


@eager(2)
def _member(call: CallContext, value: Value, values: Value) -> Value:
    if UNDEFINED in (value, values):
        return UNDEFINED
    if value is ERROR or isinstance(value, ListValue | Record) or not isinstance(values, ListValue):
        return ERROR
    return any(binary("==", value, item) is True for item in call.elements(values))


@eager(2)
def _identical_member(call: CallContext, value: Value, values: Value) -> Value:
    if values is UNDEFINED:
        return UNDEFINED
    if isinstance(value, ListValue | Record) or not isinstance(values, ListValue):
        return ERROR
    return any(binary("is", value, item) is True for item in call.elements(values))


_COMPARISONS = ("<", "<=", "==", "!=", ">=", ">", "is", "isnt")


def _comparing(decisive: bool) -> Function:
    def apply(call: CallContext, operator: Value, values: Value, value: Value) -> Value:
        if operator is UNDEFINED:
            return UNDEFINED
        if operator not in _COMPARISONS or not isinstance(values, ListValue):
            return UNDEFINED if values is UNDEFINED and operator in _COMPARISONS else ERROR
        for item in call.elements(values):
            result = binary(str(operator), item, value)
            if isinstance(result, Missing):
                return ERROR if result is ERROR else False
            if result is decisive:
                return decisive
        return not decisive

    return Function(apply, 3, 3)


@eager(0, ANY_NUMBER)
def _join(call: CallContext, *values: Value) -> Value:
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


def _joined(call: CallContext, separator: str, texts: list[str]) -> str:
    pieces: list[str] = []
    begun = False
    for text in texts:
        pieces += [separator, text] if begun else [text]
        begun = begun or bool(text)  # leading empty items get no separator
    return joined(call, pieces)


@eager(1, 2)
def _split(call: CallContext, text: Value, separators: Value = ", \t") -> Value:
    if not isinstance(text, str) or not isinstance(separators, str):
        return ERROR
    call.spend(len(text) // 16)
    pieces: list[str] = []
    for piece in _pieces(bytes_of(text), bytes_of(separators)):
        call.spend(1)
        pieces.append(text_of_bytes(piece))
    return ListValue(tuple(pieces), None)


def _pieces(text: bytes, separators: bytes) -> Iterator[bytes]:
    """Split at any separator. Between two of the same, with only others around, is an empty one.

    White space never counts as the same.
    """
    last, begin = -1, 0
    for match in re.finditer(b"[" + re.escape(separators) + b"]" if separators else b"(?!)", text):
        place = match.start()
        if place > begin:
            yield text[begin:place]
        elif text[place] == last:
            yield b""
        if text[place] not in b" \t\n\v\f\r":
            last = text[place]
        begin = place + 1
    if begin < len(text):
        yield text[begin:]


def _splitting(name_first: bool) -> Function:
    def apply(_call: CallContext, name: Value) -> Value:
        if not isinstance(name, str):
            return ERROR
        before, at, after = name.partition("@")
        return ListValue((before, after) if at or name_first else ("", name), None)

    return Function(apply, 1, 1)


@lazy(2)
def _eval_in_each_context(call: CallContext, node: Node, ads: Node) -> Value:
    meant, holder = _meant(call, node)
    values = _list_in(call, ads, holder)
    if not isinstance(values, ListValue):
        return UNDEFINED if values is UNDEFINED else ERROR
    each = call.elements(values, holder)
    return ListValue(tuple(_in_context(call, meant, ad) for ad in each), None)


@lazy(2)
def _count_matches(call: CallContext, node: Node, ads: Node) -> Value:
    meant, holder = _meant(call, node)
    values = _list_in(call, ads, holder)
    if not isinstance(values, ListValue):
        return 0 if values is UNDEFINED else ERROR
    each = (_in_context(call, meant, ad) for ad in call.elements(values, holder))
    return sum(truth(value) is True for value in each)


def _list_in(call: CallContext, ads: Node, holder: Record | None) -> Value:
    # What is written there is of the current ad; only names are sought in the other one.
    if holder is None:
        return call.evaluate(ads)
    return call.evaluate_in(rooted(call, ads, call.scope), holder)


def _in_context(call: CallContext, node: Node, ad: Value) -> Value:
    if isinstance(ad, Record):
        return call.evaluate_in(node, _facing_the_same(ad))
    return UNDEFINED if ad is UNDEFINED else ERROR


def _facing_the_same(ad: Record) -> Record:
    """Return an ad that one side of a match holds with the other side as its own."""
    if ad.parent is None or ad.parent.other is None:
        return ad
    facing = ad.within(ad.parent)
    facing.other = ad.parent.other
    return facing


def _meant(call: CallContext, node: Node) -> tuple[Node, Record | None]:
    """Return the expression behind a name that is known here, else the name itself.

    Beside it the ad where the search ended, which is where HTCondor then looks for the list:
    the ad that has the name, or the outermost one. None if nothing was sought.
    """
    start = start_of(call, node, call.scope) if isinstance(node, Name) else UNDEFINED
    if not isinstance(node, Name) or not isinstance(start, Record):
        return rooted(call, node, call.scope), None
    place = place_in_match(call, node, start)
    if place is None:
        return rooted(call, node, call.scope), root_of(start)
    return rooted(call, expression_at(place), place[0]), place[0]


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
