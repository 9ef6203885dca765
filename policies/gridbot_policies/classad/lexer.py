"""From text to tokens, and the error that says where a text is wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

Kind = Literal["number", "string", "name", "quoted name", "symbol", "end"]


class ParseError(ValueError):
    """The text is not a ClassAd expression; `line` and `column` count from 1.

    `expected` names what would have been right there; `pretty()` draws the place.
    """

    def __init__(self, text: str, offset: int, expected: str, found: str) -> None:
        self.text = text
        self.offset = offset
        self.expected = expected
        self.line, self.column = line_and_column(text, offset)
        super().__init__(
            f"line {self.line}, column {self.column}: expected {expected}, found {found}"
        )

    def pretty(self) -> str:
        """Return the message with the offending line and a caret under the place."""
        line = self.text.split("\n")[self.line - 1].rstrip("\r")
        # Tabs are kept, so that the caret stands right whatever their width.
        indent = "".join("\t" if char == "\t" else " " for char in line[: self.column - 1])
        return f"{self}\n  {line}\n  {indent}^"


def line_and_column(text: str, offset: int) -> tuple[int, int]:
    """Return where in `text` the offset is; both count from 1."""
    before = text[:offset]
    return before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1


class Token(NamedTuple):
    """A word of the language; `value` is a number, a text or the symbol itself."""

    kind: Kind
    value: int | float | str
    start: int
    end: int


_SPACE = r"[ \t\n\v\f\r]"
_GAP = re.compile(rf"(?:{_SPACE}+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_EXPONENT = r"[eE][+-]?[0-9]+"
_NUMBER = re.compile(
    rf"-?(?:[0-9]+\.[0-9]+(?:{_EXPONENT})?|\.[0-9]+(?:{_EXPONENT})?|[0-9]+(?:{_EXPONENT})?)"
)
_NUMBER_TAIL = re.compile(r"[A-Za-z_.][A-Za-z0-9_.]*")  # 5M, 0x1F and 1. are no numbers
_QUOTED = {
    quote: re.compile(rf"{quote}((?:[^{quote}\\]|\\.)*){quote}", re.DOTALL) for quote in "\"'"
}
# The elvis operator may have white space inside; `..` is an oddity that counts as one dot.
_SYMBOL = re.compile(
    rf">>>|=\?=|=!=|&&|\|\||==|!=|<=|>=|<<|>>|\?{_SPACE}*:|\.\.|[-+*/%<>=!~&|^?:.,;()\[\]{{}}]"
)
_ESCAPE = re.compile(r"\\([0-3][0-7]{2}|[0-7]{1,2}|.)", re.DOTALL)
_ESCAPED = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_INT64 = range(-(2**63), 2**63)


def tokens(text: str) -> Iterator[Token]:
    """Yield the words of `text` as they are asked for, then one "end". Raises ParseError."""
    last: Token | None = None
    position = _skip(text, 0)
    while position < len(text):
        token = _token(text, position, after_operand=last is not None and _ends_operand(last))
        if last is not None and _continues(text, last, token):
            token = Token(token.kind, f"{last.value}{token.value}", last.start, token.end)
        elif last is not None:
            yield last
        last = token
        position = _skip(text, token.end)
    if last is not None:
        yield last
    yield Token("end", "", len(text), len(text))


def _skip(text: str, position: int) -> int:
    gap = _GAP.match(text, position)
    end = gap.end() if gap else position
    if text.startswith("/*", end):
        raise ParseError(text, end, "the comment to end with '*/'", "the end of the text")
    return end


def _token(text: str, start: int, after_operand: bool) -> Token:
    char = text[start]
    if char in _QUOTED:
        return _string(text, start)
    # A minus before digits belongs to the number, except after an operand: 2 -1 is 1.
    if (number := _NUMBER.match(text, start)) and not (char == "-" and after_operand):
        return _number(text, number)
    if name := _NAME.match(text, start):
        return Token("name", name[0], start, name.end())
    if symbol := _SYMBOL.match(text, start):
        value = "?:" if symbol[0][0] == "?" and len(symbol[0]) > 1 else symbol[0]
        return Token("symbol", "." if value == ".." else value, start, symbol.end())
    raise ParseError(text, start, "an expression or an operator", repr(char))


def _ends_operand(token: Token) -> bool:
    if token.kind == "name":
        return str(token.value).lower() not in ("is", "isnt")
    return token.kind != "symbol" or token.value in (".", ")", "]", "}")


def _continues(text: str, last: Token, token: Token) -> bool:
    """Adjacent strings are one string, unless a comment stands between them."""
    return (
        token.kind == last.kind
        and token.kind in ("string", "quoted name")
        and not text[last.end : token.start].strip(" \t\n\v\f\r")
    )


def _number(text: str, match: re.Match[str]) -> Token:
    digits, end = match[0], match.end()
    if tail := _NUMBER_TAIL.match(text, end):
        raise ParseError(text, match.start(), "a number", repr(digits + tail[0]))
    if not digits.lstrip("-").isdigit():
        return Token("number", float(digits), match.start(), end)
    if re.match("-?0[0-9]", digits):
        raise ParseError(text, match.start(), "an integer without leading zeros", repr(digits))
    # A literal of more than 64 bits is 0 in HTCondor. Long digit strings are not even converted.
    value = int(digits) if len(digits) <= 20 else 0
    return Token("number", value if value in _INT64 else 0, match.start(), end)


def _string(text: str, start: int) -> Token:
    quote = text[start]
    match = _QUOTED[quote].match(text, start)
    if match is None:
        raise ParseError(text, start, f"the string to end with {quote}", "the end of the text")
    value = _ESCAPE.sub(_unescape, match[1])
    if "\0" in value:
        raise ParseError(text, start, "a string without NUL characters", match[0][:40])
    return Token("string" if quote == '"' else "quoted name", value, start, match.end())


def _unescape(match: re.Match[str]) -> str:
    code = match[1]
    return chr(int(code, 8)) if code[0] in "01234567" else _ESCAPED.get(code, code)
