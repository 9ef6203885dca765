"""A script as it was read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal as OneOf

Stream = OneOf[0, 1, 2]


class ScriptError(ValueError):
    """What is wrong with a script, in which line."""

    def __init__(self, line: int, what: str) -> None:
        super().__init__(f"line {line}: {what}")
        self.line = line
        self.what = what


@dataclass(frozen=True)
class TextPiece:
    """Characters that stand for themselves."""

    text: str


@dataclass(frozen=True)
class VariablePiece:
    """What a variable holds: a name, the number of an argument, or one of $ # @ *."""

    name: str


Piece = TextPiece | VariablePiece


@dataclass(frozen=True)
class Word:
    """A word; one without quotes is divided at the blanks of what its variables hold."""

    line: int
    pieces: Sequence[Piece]
    is_quoted: bool

    @property
    def plain(self) -> str | None:
        """Its text, if it can be a reserved word: neither quoted nor with a variable."""
        if self.is_quoted or len(self.pieces) != 1:
            return None
        (piece,) = self.pieces
        return piece.text if isinstance(piece, TextPiece) else None


@dataclass(frozen=True)
class WordExpression:
    """A word as an expression."""

    word: Word


@dataclass(frozen=True)
class UnaryExpression:
    """`.not.`, or a question about a file."""

    line: int
    operator: str
    value: Expression


@dataclass(frozen=True)
class BinaryExpression:
    """Two values and what joins them."""

    line: int
    operator: str
    left: Expression
    right: Expression


@dataclass(frozen=True)
class RangeExpression:
    """`first .to. last .step. step`: integers, always upwards."""

    line: int
    first: Expression
    last: Expression
    step: Expression | None


@dataclass(frozen=True)
class CallExpression:
    """What a function returns."""

    name: Word
    arguments: Sequence[Expression]


Expression = WordExpression | UnaryExpression | BinaryExpression | RangeExpression | CallExpression


@dataclass(frozen=True)
class StreamRedirection:
    """Where a stream comes from or goes; `target` is a path, a variable or a stream's number."""

    stream: Stream
    mode: str  # "r", "w" or "a"
    kind: OneOf["file", "variable", "stream"]
    target: Word


@dataclass(frozen=True)
class Simple:
    """A program, a function or a built-in command, with arguments."""

    line: int
    words: Sequence[Word]
    redirections: Sequence[StreamRedirection]


@dataclass(frozen=True)
class Assign:
    """NAME=value; without a value the variable is deleted."""

    line: int
    name: str
    value: Expression | None


@dataclass(frozen=True)
class If:
    """One of two groups."""

    line: int
    condition: Expression
    then: Group
    otherwise: Group


@dataclass(frozen=True)
class While:
    """A group as long as a condition holds."""

    line: int
    condition: Expression
    body: Group


@dataclass(frozen=True)
class TimeSpan:
    """A duration: a number of seconds, minutes, hours or days."""

    number: Expression
    unit: int  # seconds


@dataclass(frozen=True)
class Try:
    """A group that is attempted until it succeeds or a limit is reached; then `catch`."""

    line: int
    body: Group
    time: TimeSpan | None = None
    times: Expression | None = None
    every: TimeSpan | None = None
    catch: Group | None = None


@dataclass(frozen=True)
class For:
    """A group for each of some words, for any, or for all at once."""

    line: int
    kind: OneOf["for", "forany", "forall"]
    name: Word
    words: Sequence[Expression]
    body: Group


@dataclass(frozen=True)
class Shift:
    """Take arguments away from the front; one without a number."""

    line: int
    number: Expression | None


@dataclass(frozen=True)
class Return:
    """Leave a function with a value."""

    line: int
    value: Expression


Command = Simple | Assign | If | While | Try | For | Shift | Return
Group = Sequence[Command]


@dataclass(frozen=True)
class ScriptFunction:
    """A named group."""

    line: int
    name: str
    body: Group


@dataclass(frozen=True)
class FtshScript:
    """A script: its functions, and what it does."""

    body: Group
    functions: Mapping[str, ScriptFunction] = field(default_factory=dict)
