"""A place in the tokens of a script, from which they are read."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NoReturn

from gridbot.ftsh.tokens import ScriptToken, Sign
from gridbot.ftsh.tree import ScriptError, Word

RESERVED = frozenset(
    (
        *("function", "if", "in", "else", "end", "try", "every", "catch", "for", "forany"),
        *("forall", "or", "time", "times", "second", "seconds", "minute", "minutes", "hour"),
        *("hours", "day", "days", "shift", "while", "return"),
    )
)


class TokenCursor:
    """Reads tokens one after the other."""

    def __init__(self, tokens: Sequence[ScriptToken], operators: Collection[str]) -> None:
        self._tokens = tokens
        self._at = 0
        self._not_words = RESERVED | set(operators)

    @property
    def is_at_end(self) -> bool:
        """Whether all is read."""
        return self._at >= len(self._tokens)

    @property
    def line(self) -> int:
        """Line of the next token."""
        return self._tokens[min(self._at, len(self._tokens) - 1)].line

    @property
    def what(self) -> object:
        """The next token, or None at the end."""
        return None if self.is_at_end else self._tokens[self._at].what

    def advance(self) -> None:
        """Go behind the next token."""
        self._at += 1

    def sees(self, wanted: Collection[str]) -> str:
        """The next word if it is one of these, else an empty text."""
        plain = self.what.plain if isinstance(self.what, Word) else None
        return plain if plain is not None and plain in wanted else ""

    def take(self, wanted: Sign | str | Collection[str]) -> str:
        """Read the next token if it is this one, or one of these; return it as it is written."""
        if isinstance(wanted, Sign):
            found = wanted.value if self.what is wanted else ""
        else:
            found = self.sees((wanted,) if isinstance(wanted, str) else wanted)
        if found:
            self.advance()
        return found

    def need(self, wanted: Sign | str) -> None:
        """Read the next token, which must be this one.  Raises ScriptError."""
        if not self.take(wanted):
            expected = wanted.value if isinstance(wanted, Sign) else wanted
            self.refuse(f"expected {expected}, found {self.shown()}")

    def word(self, wanted: str) -> Word:
        """Read the next token, which must be a word.  Raises ScriptError."""
        found = self.what
        if not isinstance(found, Word):
            self.refuse(f"expected {wanted}, found {self.shown()}")
        if found.plain in self._not_words:
            self.refuse(f'{found.plain} is a reserved word; write "{found.plain}" for a text')
        self.advance()
        return found

    def shown(self) -> str:
        """The next token in words."""
        found = self.what
        if isinstance(found, Sign):
            return found.value
        if isinstance(found, Word):
            return found.plain or "a word"
        return "a redirection" if found is not None else "the end of the script"

    def refuse(self, what: str) -> NoReturn:
        """Raise ScriptError at this place."""
        raise ScriptError(self.line, what)
