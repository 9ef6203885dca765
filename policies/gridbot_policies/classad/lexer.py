"""From text to tokens, and the error that says where a text is wrong."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from gridbot_policies.classad.slips import advice_at
from gridbot_policies.classad.values import bytes_of, text_of_bytes

Kind = Literal["number", "string", "name", "quoted name", "symbol", "end"]


class ParseError(ValueError):
    """The text is not a ClassAd expression; `line` and `column` count from 1.

    `expected` names what would have been right there, `advice` what to write instead ("" if
    that is not clear); `pretty()` draws the place.
    """

    def __init__(
        self, text: str, offset: int, expected: str, found: str, advice: str | None = None
    ) -> None:
        self.text = text
        self.offset = offset
        self.expected = expected
        self.found = found
        self.advice = advice_at(text, offset) if advice is None else advice
        self.line, self.column = line_and_column(text, offset)
        place = f"line {self.line}, column {self.column}"
        advised = f"; {self.advice}" if self.advice else ""
        super().__init__(f"{place}: expected {expected}, found {found}{advised}")

    def pretty(self) -> str:
        """Return the message with the offending line and a caret under the place."""
        line = self.text.split("\n")[self.line - 1].rstrip("\r")
        # Of a very long line only the surroundings are shown.
        first = max(0, self.column - 1 - 60) if len(line) > 120 else 0
        line = line[first : first + 120]
        # Tabs are kept, so that the caret stands right whatever their width.
        indent = "".join("\t" if char == "\t" else " " for char in line[: self.column - 1 - first])
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


# A text that is all brackets and commas takes long for its size: this many take some 40 ms.
MAX_WORDS = 16_384

_SPACE = r"[ \t\n\v\f\r]"
# The elvis operator may have white space inside; `..` is an oddity that counts as one dot.
_SYMBOL = (
    rf">>>|=\?=|=!=|&&|\|\||==|!=|<=|>=|<<|>>|\?{_SPACE}*:|\.\.|[-+*/%<>=!~&|^?:.,;()\[\]{{}}]"
)
_NUMBER = r"(?:0[xX][0-9a-fA-F]+|(?:[0-9]+\.[0-9]+|\.[0-9]+|[0-9]++(?!\.))(?:[eE][+-]?[0-9]+)?)"


def _word(sign: str) -> re.Pattern[str]:
    # Quantifiers are possessive (`*+`): what is skipped is never looked at again.
    return re.compile(
        rf"(?:{_SPACE}|//[^\n]*+|/\*.*?\*/)*+"
        rf"(?:(?P<name>[A-Za-z_][A-Za-z0-9_]*+)|(?P<number>{sign}{_NUMBER})|(?P<quote>[\"'])"
        rf"|(?P<comment>/\*)|(?P<symbol>{_SYMBOL})|(?P<end>\Z)|(?P<unknown>.))",
        re.DOTALL,
    )


# A minus before digits belongs to the number, except after an operand: 2 -1 is 1.
_WORD, _WORD_AFTER_OPERAND = _word("-?"), _word("")
_NUMBER_TAIL = re.compile(r"(?!is(?:nt)?\b)[A-Za-z_][A-Za-z0-9_.]*", re.IGNORECASE)  # as in 5M
_QUOTED = {
    quote: re.compile(rf"{_SPACE}*{quote}((?:[^{quote}\\]|\\.)*+){quote}", re.DOTALL)
    for quote in "\"'"
}
# In old syntax a quote behind a backslash ends the string only where it ends the line.
_OLD_QUOTED = {
    quote: re.compile(rf"{quote}((?:[^{quote}]|(?<=\\){quote}(?=.))*+){quote}", re.DOTALL)
    for quote in "\"'"
}
_ESCAPE = re.compile(r"\\([0-3][0-7]{2}|[0-7]{1,2}|.)", re.DOTALL)
_ESCAPED = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_INT64 = range(-(2**63), 2**63)


def tokens(text: str, *, strict: bool = False, old: bool = False) -> Iterator[Token]:
    """Yield the words of `text` as they are asked for, then one "end". Raises ParseError.

    `strict` changes which integers may have leading zeros; `old` what a backslash means.
    """
    position, word = 0, _WORD
    for count in itertools.count():
        match = word.match(text, position)
        assert match is not None  # whatever is left over is "unknown"
        kind, start = match.lastgroup, match.start(match.lastindex or 0)
        if count >= MAX_WORDS:
            raise ParseError(text, start, f"a text of at most {MAX_WORDS} words", "more", "")
        position = match.end()
        if kind == "name":
            name = match[1]
            yield Token("name", name, start, position)
            word = _WORD if name.lower() in _WORD_OPERATORS else _WORD_AFTER_OPERAND
        elif kind == "symbol":
            symbol = match[5]
            yield Token("symbol", _SPELLING.get(symbol[:2], symbol), start, position)
            word = _WORD_AFTER_OPERAND if symbol in _ENDS_OPERAND else _WORD
        elif kind == "number":
            yield Token("number", _number(text, match, start, strict), start, position)
            word = _WORD_AFTER_OPERAND
        elif kind == "quote":
            token = _old_string(text, start) if old else _string(text, start)
            yield token
            position, word = token.end, _WORD_AFTER_OPERAND
        elif kind == "end":
            yield Token("end", "", start, start)
            return
        else:
            raise _unreadable(text, start)


_WORD_OPERATORS = frozenset(("is", "isnt"))
_ENDS_OPERAND = frozenset((".", "..", ")", "]", "}"))
_SPELLING = {"?:": "?:", "..": ".", **{f"?{space}": "?:" for space in " \t\n\v\f\r"}}


def _unreadable(text: str, start: int) -> ParseError:
    if text.startswith("/*", start):
        return ParseError(text, start, "the comment to end with '*/'", "the end of the text", "")
    if digits := re.compile(r"-?[0-9]+\.?[A-Za-z0-9_.]*").match(text, start):
        return ParseError(text, start, "a number", repr(digits[0]))
    return ParseError(text, start, "an expression or an operator", repr(text[start]))


def _number(text: str, match: re.Match[str], start: int, strict: bool) -> int | float:
    digits, end = match[2], match.end()
    if tail := _NUMBER_TAIL.match(text, end):
        raise ParseError(text, start, "a number", repr(digits + tail[0]))
    if digits.isdecimal() and len(digits) < 19 and (digits[0] != "0" or digits == "0"):
        return int(digits)
    unsigned = digits.lstrip("-")
    if unsigned[:2] in ("0x", "0X") or unsigned.isdecimal():
        return _odd_integer(text, start, digits, unsigned, strict)
    return float(digits)


def _odd_integer(text: str, start: int, digits: str, unsigned: str, strict: bool) -> int:
    """Return the value of an integer that is long, negative, hexadecimal or begins with 0."""
    if unsigned[0] == "0" and len(unsigned) > 1:
        # HTCondor's old semantics refuse them, except after a sign, which hides the zero.
        if digits == unsigned and not strict:
            raise ParseError(text, start, "an integer without leading zeros", repr(digits))
        if unsigned[1] in "xX":
            return 0
        if "8" in unsigned or "9" in unsigned:
            raise ParseError(text, start, "octal digits after the leading zero", repr(digits))
    # A literal of more than 64 bits is 0 in HTCondor. Long digit strings are not even converted.
    value = int(digits) if len(unsigned.lstrip("0")) < 20 else 0
    return value if value in _INT64 else 0


def _string(text: str, start: int) -> Token:
    """Read a string and those adjacent to it; only white space may stand between them."""
    quote = text[start]
    pieces: list[str] = []
    end = start
    while match := _QUOTED[quote].match(text, end):
        pieces.append(match[1])
        end = match.end()
    value = "".join(pieces)
    if "\\" in value:
        value = _ESCAPE.sub(_unescape, value)
        if not value.isascii():
            value = text_of_bytes(bytes_of(value))  # bytes that now form a character
    return _string_token(text, start, end, value)


def _old_string(text: str, start: int) -> Token:
    quote = text[start]
    match = _OLD_QUOTED[quote].match(text, start)
    value, end = (match[1], match.end()) if match else ("", start)
    return _string_token(text, start, end, value.replace(f"\\{quote}", quote))


def _string_token(text: str, start: int, end: int, value: str) -> Token:
    quote = text[start]
    if start == end:
        raise ParseError(text, start, f"the string to end with {quote}", "the end of the text", "")
    if "\0" in value:
        found = repr(text[start:end][:40])
        raise ParseError(text, start, "a string without NUL characters", found, "")
    return Token("string" if quote == '"' else "quoted name", value, start, end)


def _unescape(match: re.Match[str]) -> str:
    code = match[1]
    if code[0] not in "01234567":
        return _ESCAPED.get(code, code)
    byte = int(code, 8)
    return chr(byte) if byte < 128 else chr(0xDC00 + byte)
