"""Words with what their variables hold.

A value is data: blanks divide it in a word without quotes, and quotes or a $ in it mean nothing.
(ftsh reads them again as a part of the script, which makes a value a program.)
"""

from __future__ import annotations

from collections.abc import Iterable

from gridbot.ftsh.run.state import ShellState
from gridbot.ftsh.tree import Piece, TextPiece, VariablePiece, Word

_ALL_ARGUMENTS = (VariablePiece("@"),)


def expanded(words: Iterable[Word], state: ShellState) -> list[str]:
    """The arguments that words become."""
    found: list[str] = []
    for word in words:
        if word.is_quoted and tuple(word.pieces) == _ALL_ARGUMENTS:
            found += state.arguments[1:]
        elif word.is_quoted:
            found.append("".join(_value(piece, state) for piece in word.pieces))
        else:
            found += _divided(word, state)
    return found


def single(word: Word, state: ShellState) -> str:
    """The one argument that a word becomes.  Raises CommandFailure."""
    return the_one(expanded((word,), state), word.line, state)


def the_one(found: list[str], line: int, state: ShellState) -> str:
    """The only one of some words.  Raises CommandFailure."""
    if len(found) != 1:
        what = "nothing" if not found else f"{len(found)} words: {' '.join(found)}"
        raise state.fail(line, f"one word is expected here, not {what}")
    return found[0]


def _value(piece: Piece, state: ShellState) -> str:
    return piece.text if isinstance(piece, TextPiece) else state.value(piece.name)


def _divided(word: Word, state: ShellState) -> list[str]:
    """Divide values at their blanks, and join what touches a text to it."""
    found: list[str] = []
    open_word: str | None = None
    for piece in word.pieces:
        value = _value(piece, state)
        if isinstance(piece, TextPiece):
            open_word = (open_word or "") + value
            continue
        parts = value.split()
        if value[:1].isspace() and open_word is not None:
            found.append(open_word)
            open_word = None
        for place, part in enumerate(parts):
            if place and open_word is not None:
                found.append(open_word)
                open_word = None
            open_word = (open_word or "") + part
        if value[-1:].isspace() and open_word is not None:
            found.append(open_word)
            open_word = None
    return found if open_word is None else [*found, open_word]
