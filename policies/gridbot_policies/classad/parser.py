"""From tokens to the syntax tree: the grammar of HTCondor's new ClassAd syntax.

There is no recursion: a stack holds what is begun, so that no text can exhaust Python's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from gridbot_policies.classad import nodes
from gridbot_policies.classad.grammar import (
    CONDITIONAL,
    ELVIS,
    KEYWORDS,
    LEVEL,
    RESERVED,
    SYNONYMS,
    UNARY,
)
from gridbot_policies.classad.lexer import ParseError, Token, line_and_column, tokens
from gridbot_policies.classad.nodes import Definition, Node
from gridbot_policies.classad.values import ERROR, Value, fold

MAX_TEXT_BYTES = 65_536
MAX_CLIENT_TEXT_BYTES = 4_096  # for texts that nobody has looked at; see CLIENT_LIMITS
# As HTCondor counts: a bracket costs three, a sign, `!`, `?:` and an open choice one each.
MAX_DEPTH = 497
_BRACKET_DEPTH = 3
MAX_NESTING = MAX_DEPTH // _BRACKET_DEPTH


def parse(text: str, *, strict: bool = False, max_bytes: int = MAX_TEXT_BYTES) -> Node:
    """Return the tree of one expression. Raises ParseError, also for a text over `max_bytes`.

    `strict` is HTCondor's strict evaluation: integers may begin with a zero, and only
    commas separate arguments.
    """
    check_size(text, max_bytes)
    return _Parser(text, tokens(text, strict=strict), strict).whole("end")


def parse_for_eval(text: str, *, strict: bool = False, max_bytes: int = MAX_TEXT_BYTES) -> Node:
    """Return what `eval` evaluates: as `parse`, but what follows `c ? a : b` is ignored.

    That is HTCondor's way. Raises ParseError.
    """
    check_size(text, max_bytes)
    parser = _Parser(text, tokens(text, strict=strict), strict)
    node = parser.whole("beginning")
    if parser.token.kind != "end" and not isinstance(node, nodes.Conditional):
        raise parser.error("an operator or the end")
    return node


def parse_definitions(
    text: str, *, strict: bool = False, max_bytes: int = MAX_TEXT_BYTES
) -> tuple[Definition, ...]:
    """Return the attributes of `Name = expression; …`, with or without brackets around them.

    Raises ParseError.
    """
    check_size(text, max_bytes)
    parser = _Parser(text, tokens(text, strict=strict), strict)
    if parser.accept("["):
        node = parser.whole("record")
        if parser.token.kind != "end":
            raise parser.error("the end")
    else:
        node = parser.whole("definitions")
    assert isinstance(node, nodes.RecordNode)
    return node.definitions


def parse_beginning(text: str, words: Iterator[Token], strict: bool) -> Node:
    """Return the expression that `words` begin with, whatever follows it. Raises ParseError."""
    return _Parser(text, words, strict).whole("beginning")


def check_size(text: str, max_bytes: int) -> None:
    """Raise ParseError if the text is too long to be looked at."""
    if len(text) * 4 <= max_bytes:
        return
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > max_bytes:
        raise ParseError(text[:0], 0, f"a text of at most {max_bytes} bytes", f"{size} bytes")


@dataclass(slots=True)
class _Open:
    """Something between brackets, or the whole text, that has begun and not ended.

    `kind` is the opening bracket, "call", "record", "?" for `test ? then :`, or how the
    whole text ends.
    """

    kind: str
    start: int = 0  # where it opened
    head: Node | None = None  # of a subscript or a choice: what stands before it
    name: str = ""  # of a function, or of the attribute under way in a record
    offset: int = 0  # of that attribute
    items: list[Node] = field(default_factory=list)
    definitions: list[Definition] = field(default_factory=list)
    strength: int = -1  # no operator reaches out of brackets
    depth: int = _BRACKET_DEPTH


class _Pending(NamedTuple):
    """An operator that waits for its right operand."""

    strength: int
    operator: str
    left: Node | None = None
    then: Node | None = None


_CLOSE = {"(": ")", "{": "}", "[": "]", "call": ")", "record": "]"}
_SIGNS = frozenset("-+!~")


class _Parser:
    """The next token, those after it, and what is begun: brackets and operators in one stack."""

    def __init__(self, text: str, words: Iterator[Token], strict: bool) -> None:
        self.text = text
        self.rest = words
        self.token = next(words)
        self.separators = (",",) if strict else (",", ";")
        self.stack: list[_Open | _Pending] = []
        self.room = MAX_DEPTH + _BRACKET_DEPTH  # the whole text counts as a bracket

    def whole(self, kind: str) -> Node:
        node = self.begin(_Open(kind))
        while node is None or self.stack:
            node = self.operand() if node is None else self.after(node)
        return node

    def take(self) -> Token:
        token = self.token
        self.token = next(self.rest)
        return token

    def at(self, symbol: str) -> bool:
        return self.token.value == symbol and self.token.kind == "symbol"

    def accept(self, symbol: str) -> bool:
        if self.token.value == symbol and self.token.kind == "symbol":
            self.token = next(self.rest)
            return True
        return False

    def error(self, expected: str, advice: str | None = None) -> ParseError:
        token = self.token
        if token.kind == "end":
            return ParseError(self.text, self.end(), expected, "the end of the text", advice)
        found = repr(self.text[token.start : token.end][:40])
        return ParseError(self.text, token.start, expected, found, advice)

    def end(self) -> int:
        """Offset of the end of the text; of its last line that is not blank, if more follow."""
        start, last = self.token.start, len(self.text.rstrip())
        return last if "\n" in self.text[last:] else start

    def unclosed(self, opened: _Open, expected: str) -> ParseError:
        """Return the error for a bracket that is not closed where it should be."""
        if self.token.kind != "end":
            return self.error(expected)
        place = "line {}, column {}".format(*line_and_column(self.text, opened.start))
        return self.error(expected, f"what opens at {place} is not closed")

    def descend(self, depth: int) -> None:
        self.room -= depth
        if self.room < 0:
            raise self.error(f"at most {MAX_NESTING} brackets inside each other", "")

    def operand(self) -> Node:
        """Read signs and opening brackets up to an operand that is complete by itself."""
        while True:
            kind = self.token.kind
            if kind == "name" or kind == "quoted name":
                node = self.name()
            elif kind == "number" or kind == "string":
                return nodes.Constant(self.take().value)
            elif kind == "symbol":
                node = self.opened()
            else:
                raise self.error("an expression")
            if node is not None:
                return node

    def name(self) -> Node | None:
        token = self.take()
        name = str(token.value)
        if token.kind == "name" and (keyword := name.lower()) in RESERVED:
            if keyword not in KEYWORDS:
                self.token = token
                raise self.error("an expression")
            return nodes.Constant(KEYWORDS[keyword])
        if self.accept("("):
            return self.begin(_Open("call", token.start, name=name))
        return nodes.Attribute(name)

    def opened(self) -> Node | None:
        """Take a symbol that an operand may begin with; None if an operand must follow."""
        symbol, start = str(self.token.value), self.token.start
        if symbol in _SIGNS and self.stack[-1].strength != ELVIS:
            self.push(_Pending(UNARY, symbol))
            return None
        if symbol == ".":
            self.take()
            return nodes.Absolute(self.attribute_name())
        if symbol not in ("(", "{", "["):
            raise self.error("an expression")
        self.take()
        return self.begin(_Open("record" if symbol == "[" else symbol, start))

    def push(self, operator: _Pending) -> None:
        """Take a token as an operator that goes one level deeper."""
        self.descend(1)
        self.stack.append(operator)
        self.take()

    def attribute_name(self) -> str:
        token = self.token
        name = str(token.value)
        if token.kind == "quoted name" or (token.kind == "name" and name.lower() not in RESERVED):
            self.take()
            return name
        raise self.error("an attribute name")

    def after(self, node: Node) -> Node | None:
        """Take the token behind an operand; None if another operand must follow."""
        token = self.token
        operator = _operator(token)
        if operator in LEVEL:
            left = self.reduced(node, LEVEL[operator])
            operator = SYNONYMS.get(operator, operator)
            self.stack.append(_Pending(LEVEL[operator], operator, left))
            self.take()
            return None
        if operator == ".":
            self.take()
            return nodes.Selection(node, self.attribute_name())
        if operator == "[":
            self.take()
            return self.begin(_Open("[", token.start, head=node))
        if operator == "(" and isinstance(node, nodes.Selection) and fold(node.name) == "has":
            self.take()
            return self.begin(_Open("call", token.start, name="member", head=node.base))
        if operator == "?:":
            self.push(_Pending(ELVIS, operator, node))
            return None
        if operator == "?":
            self.take()
            test = self.reduced(node, CONDITIONAL + 1)
            return self.begin(_Open("?", token.start, head=test, depth=1))
        return self.closed(node)

    def reduced(self, node: Node, strength: int) -> Node:
        """Return `node` as the right operand of all that waits and binds at least so tightly."""
        stack = self.stack
        while stack[-1].strength >= strength:
            waiting = stack.pop()
            assert isinstance(waiting, _Pending)
            level, operator, left, then = waiting
            if CONDITIONAL < level < UNARY and left is not None:
                node = nodes.Binary(operator, left, node)
                continue
            self.room += 1
            if left is None:
                node = nodes.Unary(operator, node)
            elif then is None:
                node = nodes.Elvis(left, node)
            else:
                node = nodes.Conditional(left, then, node)
        return node

    def begin(self, opened: _Open) -> Node | None:
        """Go into brackets; return their node if they are empty."""
        self.descend(opened.depth)
        self.stack.append(opened)
        if opened.kind in ("record", "definitions"):
            return self.definition(opened)
        if opened.kind in ("call", "{") and self.accept(_CLOSE[opened.kind]):
            return self.ended(opened)
        return None

    def definition(self, opened: _Open) -> Node | None:
        """Read `name =`; return the record if it ends instead."""
        separated = False
        while self.accept(";"):
            separated = True
        if self.at_end(opened):
            if separated and opened.kind == "record" and not opened.definitions:
                raise self.error("an attribute name")  # [ ; ] is none, as in HTCondor
            if self.token.kind != "end":
                self.take()
            return self.ended(opened)
        if self.token.kind == "end":
            raise self.unclosed(opened, "an attribute name or ']'")
        opened.offset = self.token.start
        if self.token.kind == "quoted name" and not self.token.value:
            raise self.error("an attribute name that is not empty")
        opened.name = self.attribute_name()
        if not self.accept("="):
            raise self.error("'='")
        return None

    def at_end(self, opened: _Open) -> bool:
        return self.at("]") if opened.kind == "record" else self.token.kind == "end"

    def closed(self, node: Node) -> Node | None:
        """Take what ends an expression: a closing bracket, a comma or the like, or the end."""
        node = self.reduced(node, CONDITIONAL)
        opened = self.stack[-1]
        assert isinstance(opened, _Open)
        kind = opened.kind
        if kind == "?":
            if not self.accept(":"):
                raise self.error("':'")
            self.stack[-1] = _Pending(CONDITIONAL, "?", opened.head, node)
            return None
        if kind == "record" or kind == "definitions":
            opened.definitions.append(Definition(opened.name, node, opened.offset))
            if self.at(";") or self.at_end(opened):
                return self.definition(opened)
            raise self.unclosed(opened, "';' or an operator")
        opened.items.append(node)
        if kind in _CLOSE:
            return self.bracket(opened)
        if kind == "end" and self.token.kind != "end":
            raise self.error("an operator or the end")
        return self.ended(opened)

    def bracket(self, opened: _Open) -> Node | None:
        close = _CLOSE[opened.kind]
        if self.accept(close):
            return self.ended(opened)
        if opened.kind in ("(", "["):
            raise self.unclosed(opened, repr(close))
        separators = self.separators if opened.kind == "call" else (",",)
        if not any(self.accept(separator) for separator in separators):
            raise self.unclosed(opened, f"',' or {close!r}")
        return None

    def ended(self, opened: _Open) -> Node:
        """Leave brackets; return what they and what belongs to them stand for."""
        self.stack.pop()
        self.room += opened.depth
        match opened.kind:
            case "(":
                return nodes.Parenthesis(opened.items[0])
            case "[" if opened.head is not None:
                return nodes.Subscript(opened.head, opened.items[0])
            case "{":
                return nodes.ListNode(tuple(opened.items))
            case "call":
                return self.call(opened)
            case "record" | "definitions":
                return nodes.RecordNode(tuple(opened.definitions))
            case _:
                return opened.items[0]

    def call(self, opened: _Open) -> Node:
        """Return the call, or the time that `absTime("literal")` and relTime stand for."""
        items = tuple(opened.items)
        if opened.head is not None:  # Host.Has(hash)
            items = (*items, nodes.Selection(opened.head, "Cached"))
        if len(items) == 1 and isinstance(items[0], nodes.Constant):
            literal, function = items[0].value, fold(opened.name)
            if isinstance(literal, str) and function in _TIMES:
                value = _time_of(function, literal)
                if value is ERROR:
                    found = repr(literal[:40])
                    raise ParseError(self.text, opened.start, _TIMES[function], found, "")
                return nodes.Constant(value)
        return nodes.Call(opened.name, items)


def _operator(token: Token) -> str:
    """Return the token as an operator; a word that is none is "" or at least no operator."""
    if token.kind == "symbol":
        return str(token.value)
    return str(token.value).lower() if token.kind == "name" else ""


_TIMES = {
    "abstime": 'a time like "2020-01-31T23:59:59+01:00"',
    "reltime": 'a span of time like "1+23:59:59"',
}


def _time_of(function: str, literal: str) -> Value:
    # Not imported at the top, because there are functions that parse.
    from gridbot_policies.classad.functions import times

    return times.moment_of(literal) if function == "abstime" else times.span_of(literal)
