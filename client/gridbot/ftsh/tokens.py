"""Words, signs and ends of lines of a script."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from gridbot.ftsh.tree import Piece, ScriptError, Stream, TextPiece, VariablePiece, Word

# What a line says about streams: number, variable or not, direction, both or another stream.
_ARROW = re.compile(r"(?P<number>[0-2]?)(?P<dash>-?)(?P<way>>>|>|<<|<)(?P<and>&?)")
_BOTH_FIRST = re.compile(r"&(?P<way>>>|>)")
_NAME = re.compile(r"\{(?P<braced>[^}]*)\}|\((?P<bracketed>[^)]*)\)|(?P<plain>\d+|\w+|[$#@*])")
_VARIABLE = re.compile(r"\d+|[A-Za-z_]\w*|[$#@*]", re.ASCII)
_ASSIGNED = re.compile(r"[A-Za-z_]\w*(?==)", re.ASCII)
_BLANK = re.compile(r"(?:[ \t\r]|\\\r?\n)+|#[^\n]*")
_ENDS_WORD = " \t\r\n;><&|'\"`()"


class Sign(Enum):
    """What is no word."""

    LINE_END = "the end of the line"
    LEFT = "("
    RIGHT = ")"
    COMMA = ","


@dataclass(frozen=True)
class Arrow:
    """A redirection, without where it leads."""

    stream: Stream
    mode: str  # "r", "w" or "a"
    is_variable: bool
    leads_to_stream: bool = False  # n>&m
    both: bool = False  # standard output and standard error


@dataclass(frozen=True)
class Assigned:
    """A name with the `=` that follows it, at the beginning of a command."""

    name: str


@dataclass(frozen=True)
class ScriptToken:
    """A part of a script, and the line where it begins, from 1 on."""

    what: Sign | Arrow | Assigned | Word
    line: int


def tokens_of(text: str) -> Iterator[ScriptToken]:
    """Yield the tokens of a script; the last one is an end of line.  Raises ScriptError."""
    yield from _Scanner(text).tokens()


class _Scanner:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._line = 1
        self._depth = 0  # of parentheses: inside, a comma is a sign

    def tokens(self) -> Iterator[ScriptToken]:
        begins = True  # a command
        while self._skip_blanks():
            line = self._line
            found = self._next(begins)
            begins = found is Sign.LINE_END
            yield ScriptToken(found, line)
        yield ScriptToken(Sign.LINE_END, self._line)

    def _skip_blanks(self) -> bool:
        """Skip what says nothing; False at the end of the script."""
        while blank := _BLANK.match(self._text, self._at):
            self._move(blank.end())
        return self._at < len(self._text)

    def _move(self, to: int) -> None:
        self._line += self._text.count("\n", self._at, to)
        self._at = to

    def _next(self, begins: bool) -> Sign | Arrow | Assigned | Word:
        here = self._text[self._at]
        if here in "\n;":
            self._move(self._at + 1)
            self._depth = 0
            return Sign.LINE_END
        if here in "'\"":
            return self._quoted(here)
        if here in "()" or (here == "," and self._depth):
            self._move(self._at + 1)
            self._depth = max(0, self._depth + {"(": 1, ")": -1, ",": 0}[here])
            return Sign(here)
        if arrow := self._arrow():
            return arrow
        if here in "|&`":
            raise ScriptError(self._line, _UNSUPPORTED[here])
        if begins and (name := _ASSIGNED.match(self._text, self._at)):
            self._move(name.end() + 1)
            return Assigned(name[0])
        return self._plain()

    def _arrow(self) -> Arrow | None:
        if first := _BOTH_FIRST.match(self._text, self._at):
            self._move(first.end())
            return Arrow(1, _MODES[first["way"]], is_variable=False, both=True)
        found = _ARROW.match(self._text, self._at)
        if not found:
            return None
        if found["way"] == "<<":
            raise ScriptError(self._line, "here-documents (<<) are not supported; use a variable")
        number, is_variable = found["number"], bool(found["dash"])
        leads = bool(found["and"])
        if leads and (found["way"] == "<" or (number and is_variable)):
            raise ScriptError(self._line, f"{found[0]} is no redirection")
        self._move(found.end())
        stream: Stream = int(number or (0 if found["way"] == "<" else 1))  # type: ignore[assignment]
        return Arrow(
            stream,
            _MODES[found["way"]],
            is_variable,
            leads_to_stream=leads and bool(number),
            both=leads and not number,
        )

    def _plain(self) -> Word:
        end, start, line = self._at, self._at, self._line
        stops = _ENDS_WORD + ("," if self._depth else "")
        while end < len(self._text) and self._text[end] not in stops:
            if self._text[end] == "\\":
                if self._text[end + 1 : end + 2] in ("", "\n") or self._text.startswith(
                    "\r\n", end + 1
                ):
                    break
                end += 1
            elif self._text.startswith("$(", end):
                end = self._closing(end)
            end += 1
        self._move(end)
        return Word(line, self._pieces(self._text[start:end]), is_quoted=False)

    def _closing(self, start: int) -> int:
        found = self._text.find(")", start)
        if found < 0 or "\n" in self._text[start:found]:
            raise ScriptError(self._line, "$( without its )")
        return found

    def _quoted(self, quote: str) -> Word:
        start, line = self._at + 1, self._line
        end = start
        while self._text[end : end + 1] != quote:
            if end >= len(self._text):
                raise ScriptError(line, f"{quote} without its end")
            end += 2 if self._text[end] == "\\" else 1
        pieces = self._pieces(self._text[start:end])
        self._move(end + 1)
        return Word(line, pieces, is_quoted=True)

    def _pieces(self, raw: str) -> tuple[Piece, ...]:
        """Texts without their escapes, and variables."""
        found: list[Piece] = []
        text, at = "", 0
        while at < len(raw):
            if raw[at] == "\\":
                text += raw[at + 1 : at + 2]
                at += 2
            elif raw[at] == "$":
                name = _NAME.match(raw, at + 1)
                found += [TextPiece(text)] if text else []
                found.append(VariablePiece(self._name(name)))
                text, at = "", name.end() if name else at
            else:
                text += raw[at]
                at += 1
        return (*found, TextPiece(text)) if text or not found else tuple(found)

    def _name(self, match: re.Match[str] | None) -> str:
        if match is None:
            raise ScriptError(self._line, r"a $ without a name after it; write \$ for the sign")
        name = match["braced"] or match["bracketed"] or match["plain"] or ""
        if not _VARIABLE.fullmatch(name):
            raise ScriptError(self._line, f"${{{name}}} is no name of a variable")
        return name


_MODES = {"<": "r", ">": "w", ">>": "a"}
_UNSUPPORTED = {
    "|": "pipes are not supported; send the output to a variable: first -> x, then second -< x",
    "&": "commands in the background are not supported; see forall",
    "`": "back-ticks are not supported; send the output to a variable: command -> x",
}
