"""Where in a text each part of its tree stands: for carets, and for showing a part as written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gridbot_policies.classad import nodes
from gridbot_policies.classad.lexer import Token, tokens
from gridbot_policies.classad.nodes import Definition, Node
from gridbot_policies.classad.parser import parse, parse_definitions
from gridbot_policies.classad.unparse import Spelling, pieces, unparse
from gridbot_policies.classad.values import Value

Span = tuple[int, int]  # offsets of the first character and of the one behind the last


@dataclass(frozen=True, slots=True)
class Source:
    """A text and its parsed parts; spans are known for the very nodes that it was parsed into."""

    text: str
    definitions: tuple[Definition, ...]
    expression: Node | None  # of a text that is one expression
    spans: dict[int, Span]  # by the id of a node, all of which `definitions` keep alive

    @classmethod
    def of_definitions(cls, text: str) -> Source:
        """Read `Name = expression; …`. Raises ParseError."""
        return cls.aligned(text, parse_definitions(text))

    @classmethod
    def aligned(cls, text: str, definitions: tuple[Definition, ...]) -> Source:
        """Find the places of definitions that were read from a text."""
        aligner = _Aligner(text)
        aligner.definitions(definitions)
        return cls(text, definitions, None, aligner.spans)

    @classmethod
    def of_expression(cls, text: str) -> Source:
        """Read one expression. Raises ParseError."""
        expression = parse(text)
        aligner = _Aligner(text)
        aligner.expression(expression)
        return cls(text, (), expression, aligner.spans)

    def shown(self, node: Node) -> str:
        """Return the node on one line, as it was written where that is known."""
        if span := self.spans.get(id(node)):
            return one_line(self.text, span)
        return unparse(node)

    def offset(self, node: Node) -> int:
        """Return where in the text the node begins; 0 if that is not known."""
        return self.spans.get(id(node), (0, 0))[0]

    def span(self, node: Node) -> Span | None:
        """Return where in the text the node stands; None if that is not known."""
        return self.spans.get(id(node))


def edited(text: str, edits: Mapping[Span, str]) -> str:
    """Return the text with other words at these places, none of which overlap."""
    for (start, end), words in sorted(edits.items(), reverse=True):
        text = text[:start] + words + text[end:]
    return text


def one_line(text: str, span: Span) -> str:
    """Return a stretch of a text without its comments and line breaks."""
    piece = text[slice(*span)]
    parts: list[str] = []
    end = 0
    for token in tokens(piece):
        gap = " " if parts and token.start > end and token.kind != "end" else ""
        parts.append(gap + piece[token.start : token.end])
        end = token.end
    return "".join(parts)


def brief(thing: Node | Value, most: int) -> str:
    """Return the text of an expression or a value, cut where it is longer than `most`."""
    text = ""
    for piece in pieces(thing, Spelling.EXACT):
        text += piece
        if len(text) > most:
            break
    return cut(text, most)


def cut(text: str, most: int) -> str:
    """Return the text, or its beginning if it is longer than `most`."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


class _Aligner:
    """Walks a tree and the tokens that it was parsed from side by side.

    Parentheses, operators and names come in the order of the text, so each node takes the tokens
    that are its own. Where the tree says something else than the text (a parser may have
    computed a constant), the rest of the tree simply has no spans.
    """

    def __init__(self, text: str) -> None:
        self._tokens: Sequence[Token] = tuple(tokens(text))
        self._at = 0
        self.spans: dict[int, Span] = {}

    def definitions(self, definitions: Sequence[Definition]) -> None:
        by_start = {token.start: index for index, token in enumerate(self._tokens)}
        for definition in definitions:
            self._at = by_start[definition.offset] + 2  # the name and =
            self.expression(definition.expression)

    def expression(self, node: Node) -> None:
        try:
            self._node(node)
        except (_Astray, RecursionError):
            return

    def _take(self, *expected: str) -> None:
        token = self._tokens[self._at]
        if expected and str(token.value).lower() not in expected:
            raise _Astray
        self._at += 1

    def _node(self, node: Node) -> None:
        start = self._tokens[self._at].start
        self._parts(node)
        self.spans[id(node)] = (start, self._tokens[self._at - 1].end)

    def _parts(self, node: Node) -> None:
        match node:
            case nodes.Constant():
                self._constant()
            case nodes.Attribute():
                self._take()
            case nodes.Absolute():
                self._take(".")
                self._take()
            case nodes.Selection(base, _):
                self._each(base, ".")
                self._take()
            case nodes.Subscript(base, index):
                self._each(base, "[", index, "]")
            case nodes.Parenthesis(inner):
                self._each("(", inner, ")")
            case nodes.Unary(operator, operand):
                self._each(operator, operand)
            case nodes.Binary():
                self._binary(node)
            case nodes.Elvis(left, right):
                self._each(left, "?:", right)
            case nodes.Conditional(test, then, otherwise):
                self._each(test, "?", then, ":", otherwise)
            case nodes.Call(_, arguments):
                self._take()
                self._sequence("(", arguments, ")")
            case nodes.ListNode(items):
                self._sequence("{", items, "}")
            case nodes.RecordNode(definitions):
                self._record(definitions)
            case _:
                raise _Astray

    def _each(self, *parts: Node | str) -> None:
        for part in parts:
            if isinstance(part, str):
                self._take(part)
            else:
                self._node(part)

    def _constant(self) -> None:
        token = self._tokens[self._at]
        self._take()
        if token.kind == "name" and self._tokens[self._at].value == "(":
            # absTime("2020-01-01") is a constant to the parser.
            self._take("(")
            self._take()
            self._take(")")

    def _binary(self, node: nodes.Binary) -> None:
        """Take a chain a + b + c, whose every beginning is a node too, without recursion."""
        chain = [node]
        while isinstance(left := chain[-1].left, nodes.Binary):
            chain.append(left)
        start = self._tokens[self._at].start
        self._node(chain[-1].left)
        for link in reversed(chain):
            self._take(*_SPELLINGS.get(link.operator, (link.operator,)))
            self._node(link.right)
            self.spans[id(link)] = (start, self._tokens[self._at - 1].end)

    def _sequence(self, opening: str, items: Sequence[Node], closing: str) -> None:
        self._take(opening)
        for index, item in enumerate(items):
            if index:
                self._take(",", ";")
            self._node(item)
        self._take(closing)

    def _record(self, definitions: Sequence[Definition]) -> None:
        self._take("[")
        for definition in definitions:
            while self._tokens[self._at].value == ";":
                self._take()
            start = self._tokens[self._at].start
            self._take()
            self._take("=")
            self._node(definition.expression)
            self.spans[id(definition)] = (start, self._tokens[self._at - 1].end)
        while self._tokens[self._at].value == ";":
            self._take()
        self._take("]")


class _Astray(Exception):
    """The tree and the text do not go together."""


_SPELLINGS = {"is": ("is", "=?="), "isnt": ("isnt", "=!=")}
