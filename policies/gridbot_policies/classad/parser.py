"""From tokens to the syntax tree: the grammar of HTCondor's new ClassAd syntax."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from gridbot_policies.classad import nodes
from gridbot_policies.classad.lexer import ParseError, Token, tokens
from gridbot_policies.classad.nodes import Definition, Node
from gridbot_policies.classad.values import ERROR, UNDEFINED, Value

T = TypeVar("T")

# Brackets inside brackets. Each level costs the parser some six Python frames.
MAX_NESTING = 100

KEYWORDS: dict[str, Value] = {"true": True, "false": False, "undefined": UNDEFINED, "error": ERROR}
RESERVED = frozenset((*KEYWORDS, "is", "isnt"))

# From loosest to tightest; operators of one level group from the left.
_LEVELS = (
    ("||",),
    ("&&",),
    ("|",),
    ("^",),
    ("&",),
    ("==", "!=", "=?=", "=!=", "is", "isnt"),
    ("<", "<=", ">", ">="),
    ("<<", ">>", ">>>"),
    ("+", "-"),
    ("*", "/", "%"),
)
_LEVEL = {operator: level for level, operators in enumerate(_LEVELS) for operator in operators}
_SYNONYMS = {"=?=": "is", "=!=": "isnt"}


def parse(text: str) -> Node:
    """Return the tree of one expression. Raises ParseError."""
    parser = _Parser(text)
    expression = parser.expression()
    parser.expect_end("an operator or the end")
    return expression


def parse_definitions(text: str) -> tuple[Definition, ...]:
    """Return the attributes of `Name = expression; …`, with or without brackets around them.

    Raises ParseError.
    """
    parser = _Parser(text)
    if parser.accept("["):
        definitions = parser.definitions("]")
        parser.expect("]")
        parser.expect_end("the end")
        return definitions
    return parser.definitions("")


class _Parser:
    """The next token, those after it, and how deep in brackets it stands."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.rest = tokens(text)
        self.token = next(self.rest)
        self.nesting = 0

    def take(self) -> Token:
        token = self.token
        self.token = next(self.rest)
        return token

    def at(self, symbol: str) -> bool:
        return self.token.kind == "symbol" and self.token.value == symbol

    def at_close(self, close: str) -> bool:
        return self.at(close) or self.token.kind == "end"

    def accept(self, symbol: str) -> bool:
        accepted = self.at(symbol)
        if accepted:
            self.take()
        return accepted

    def expect(self, symbol: str) -> None:
        if not self.accept(symbol):
            raise self.error(repr(symbol))

    def expect_end(self, expected: str) -> None:
        if self.token.kind != "end":
            raise self.error(expected)

    def error(self, expected: str) -> ParseError:
        token = self.token
        found = self.text[token.start : token.end]
        return ParseError(
            self.text,
            token.start,
            expected,
            "the end of the text" if token.kind == "end" else repr(found[:40]),
        )

    def expression(self) -> Node:
        choices: list[tuple[Node, Node]] = []
        last = self.binary(0)
        while self.accept("?"):
            then = self.nested(self.expression)
            self.expect(":")
            choices.append((last, then))
            last = self.binary(0)
        for test, then in reversed(choices):
            last = nodes.Conditional(test, then, last)
        return last

    def binary(self, level: int) -> Node:
        left = self.unary()
        while (operator := self.binary_operator()) and _LEVEL[operator] >= level:
            self.take()
            right = self.binary(_LEVEL[operator] + 1)
            left = nodes.Binary(_SYNONYMS.get(operator, operator), left, right)
        return left

    def binary_operator(self) -> str:
        value = str(self.token.value)
        if self.token.kind == "name":
            value = value.lower()
            return value if value in ("is", "isnt") else ""
        return value if self.token.kind == "symbol" and value in _LEVEL else ""

    def unary(self) -> Node:
        operators: list[str] = []
        while self.token.kind == "symbol" and self.token.value in ("-", "+", "!", "~"):
            operators.append(str(self.take().value))
        operand = self.postfix()
        for operator in reversed(operators):
            operand = nodes.Unary(operator, operand)
        return operand

    def postfix(self, with_elvis: bool = True) -> Node:
        node = self.primary()
        while True:
            if self.accept("."):
                node = nodes.Selection(node, self.attribute_name())
            elif self.accept("["):
                node = nodes.Subscript(node, self.nested(self.expression))
                self.expect("]")
            elif with_elvis and self.accept("?:"):
                node = nodes.Elvis(node, self.postfix(with_elvis=False))
            else:
                return node

    def primary(self) -> Node:
        token = self.token
        if token.kind in ("number", "string"):
            return nodes.Constant(self.take().value)
        if token.kind in ("name", "quoted name"):
            return self.name()
        if self.accept("."):
            return nodes.Absolute(self.attribute_name())
        if self.accept("("):
            node: Node = nodes.Parenthesis(self.nested(self.expression))
            self.expect(")")
            return node
        if self.accept("{"):
            return nodes.ListNode(self.sequence("}"))
        if self.accept("["):
            node = nodes.RecordNode(self.nested(lambda: self.definitions("]")))
            self.expect("]")
            return node
        raise self.error("an expression")

    def name(self) -> Node:
        quoted = self.token.kind == "quoted name"
        name = str(self.token.value)
        keyword = "" if quoted else name.lower()
        if keyword in ("is", "isnt"):
            raise self.error("an expression")
        self.take()
        if keyword in KEYWORDS:
            return nodes.Constant(KEYWORDS[keyword])
        if self.accept("("):
            return nodes.Call(name, self.sequence(")"))
        return nodes.Attribute(name)

    def attribute_name(self) -> str:
        token = self.token
        if token.kind == "quoted name" or (
            token.kind == "name" and str(token.value).lower() not in RESERVED
        ):
            return str(self.take().value)
        raise self.error("an attribute name")

    def sequence(self, close: str) -> tuple[Node, ...]:
        if self.accept(close):
            return ()
        items = [self.nested(self.expression)]
        # HTCondor's old semantics, which real pools run, take ';' between arguments too.
        while self.accept(",") or (close == ")" and self.accept(";")):
            items.append(self.nested(self.expression))
        if not self.accept(close):
            raise self.error(f"',' or {close!r}")
        return tuple(items)

    def definitions(self, close: str) -> tuple[Definition, ...]:
        found: list[Definition] = []
        while True:
            while self.accept(";"):
                pass
            if self.at_close(close):
                return tuple(found)
            offset = self.token.start
            name = self.attribute_name()
            self.expect("=")
            found.append(Definition(name, self.expression(), offset))
            if not (self.at(";") or self.at_close(close)):
                raise self.error("';' or an operator")

    def nested(self, inner: Callable[[], T]) -> T:
        if self.nesting >= MAX_NESTING:
            raise self.error(f"at most {MAX_NESTING} brackets inside each other")
        self.nesting += 1
        try:
            return inner()
        finally:
            self.nesting -= 1
