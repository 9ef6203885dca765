"""Reads a whole script, so that what is wrong with it is said before anything runs.

The grammar is that of ftsh 4 (`parser.y` of cctools, told in its manual), with these differences: a
comment ends before its line's end, `=` and, outside of parentheses, `,` may stand in words.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Literal as OneOf
from typing import cast

from gridbot.ftsh.cursor import RESERVED, TokenCursor
from gridbot.ftsh.expressions import OPERATORS, expression
from gridbot.ftsh.tokens import Arrow, Assigned, Sign, tokens_of
from gridbot.ftsh.tree import (
    Assign,
    Command,
    Expression,
    For,
    FtshScript,
    Group,
    If,
    Return,
    ScriptError,
    ScriptFunction,
    Shift,
    Simple,
    StreamRedirection,
    TextPiece,
    TimeSpan,
    Try,
    While,
    Word,
)

_UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400}
_UNIT_OF = {f"{unit}{plural}": size for unit, size in _UNITS.items() for plural in ("", "s")}
_TIMES = ("time", "times")
_LOOPS = ("for", "forany", "forall")
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def read(text: str) -> FtshScript:
    """The script that a text holds.  Raises ScriptError at the first thing that is wrong."""
    reader = _Reader(TokenCursor(list(tokens_of(text)), OPERATORS))
    try:
        return FtshScript(reader.group(()), reader.functions)
    except RecursionError:
        raise ScriptError(reader.line, "too many structures within each other") from None


class _Reader:
    def __init__(self, cursor: TokenCursor) -> None:
        self._cursor = cursor
        self.functions: dict[str, ScriptFunction] = {}

    @property
    def line(self) -> int:
        """Line up to which it has read."""
        return self._cursor.line

    def group(self, ends: Collection[str], opened: str = "") -> Group:
        """Read commands up to one of the words, which is left, or up to the script's end."""
        commands: list[Command] = []
        begun = self._cursor.line
        while not self._cursor.sees(ends):
            if self._cursor.is_at_end:
                if ends:
                    self._cursor.refuse(f"{opened} of line {begun} has no end")
                return commands
            if not self._cursor.take(Sign.LINE_END):
                commands += self._command()
        return commands

    def _command(self) -> list[Command]:
        line = self._cursor.line
        if isinstance(self._cursor.what, Assigned):
            return [self._assign(line, self._cursor.what.name)]
        word = self._cursor.take(RESERVED)
        if word == "function":
            self._function(line)
            return []
        return [self._structure(word, line) if word else self._simple(line)]

    def _structure(self, word: str, line: int) -> Command:
        if word == "try":
            return self._try(line)
        if word in _LOOPS:
            return self._for(cast("OneOf['for', 'forany', 'forall']", word), line)
        if word == "while":
            condition = self._condition()
            return While(line, condition, self._until_end(word))
        if word == "if":
            return self._if(line)
        if word == "shift":
            number = None if self._cursor.what is Sign.LINE_END else expression(self._cursor)
            self._cursor.need(Sign.LINE_END)
            return Shift(line, number)
        if word == "return":
            value = expression(self._cursor)
            self._cursor.need(Sign.LINE_END)
            return Return(line, value)
        self._cursor.refuse(f'{word} stands here alone; write "{word}" for a text')

    def _until_end(self, opened: str) -> Group:
        body = self.group(("end",), opened)
        self._cursor.need("end")
        self._cursor.need(Sign.LINE_END)
        return body

    def _condition(self) -> Expression:
        found = expression(self._cursor)
        self._cursor.need(Sign.LINE_END)
        return found

    def _function(self, line: int) -> None:
        name = self._cursor.word("the name of a function").plain
        if name is None:
            self._cursor.refuse("the name of a function is one word, without quotes and variables")
        if other := self.functions.get(name):
            self._cursor.refuse(f"function {name} is there already, in line {other.line}")
        self._cursor.need(Sign.LINE_END)
        self.functions[name] = ScriptFunction(line, name, self._until_end("function"))

    def _try(self, line: int) -> Try:
        time: TimeSpan | None = None
        times: Expression | None = None
        while not self._cursor.sees(("every",)) and self._cursor.what is not Sign.LINE_END:
            self._cursor.take(("for", "or"))
            number = expression(self._cursor)
            if unit := self._cursor.take(_UNIT_OF):
                if time is not None:
                    self._cursor.refuse("try has two limits of time")
                time = TimeSpan(number, _UNIT_OF[unit])
            elif self._cursor.take(_TIMES):
                if times is not None:
                    self._cursor.refuse("try has two numbers of times")
                times = number
            else:
                self._cursor.refuse("expected times, seconds, minutes, hours or days")
        every = self._every()
        self._cursor.need(Sign.LINE_END)
        body = self.group(("catch", "end"), "try")
        catch: Group | None = None
        if self._cursor.take("catch"):
            self._cursor.need(Sign.LINE_END)
            catch = self.group(("end",), "try")
        self._cursor.need("end")
        self._cursor.need(Sign.LINE_END)
        return Try(line, body, time, times, every, catch)

    def _every(self) -> TimeSpan | None:
        if not self._cursor.take("every"):
            return None
        number = expression(self._cursor)
        unit = self._cursor.take(_UNIT_OF)
        if not unit:
            self._cursor.refuse("expected seconds, minutes, hours or days")
        return TimeSpan(number, _UNIT_OF[unit])

    def _for(self, kind: OneOf["for", "forany", "forall"], line: int) -> For:
        name = self._cursor.word("the name of a variable")
        if not _NAME.fullmatch(name.plain or "x"):
            self._cursor.refuse(f"{name.plain} is no name of a variable")
        self._cursor.need("in")
        words = [expression(self._cursor)]
        while self._cursor.what is not Sign.LINE_END:
            words.append(expression(self._cursor))
        self._cursor.advance()
        return For(line, kind, name, words, self._until_end(kind))

    def _if(self, line: int) -> If:
        condition = self._condition()
        then = self.group(("else", "end"), "if")
        if self._cursor.take("else"):
            if self._cursor.take("if"):  # a chain has one end
                return If(line, condition, then, [self._if(self._cursor.line)])
            self._cursor.need(Sign.LINE_END)
            return If(line, condition, then, self._until_end("if"))
        self._cursor.need("end")
        self._cursor.need(Sign.LINE_END)
        return If(line, condition, then, ())

    def _assign(self, line: int, name: str) -> Assign:
        self._cursor.advance()
        value = None if self._cursor.what is Sign.LINE_END else expression(self._cursor)
        self._cursor.need(Sign.LINE_END)
        return Assign(line, name, value)

    def _simple(self, line: int) -> Simple:
        words = [self._cursor.word("a command")]
        redirections: list[StreamRedirection] = []
        while not self._cursor.take(Sign.LINE_END):
            if isinstance(self._cursor.what, Arrow):
                redirections += self._redirections(self._cursor.what)
            else:
                words.append(self._cursor.word("an argument"))
        return Simple(line, words, redirections)

    def _redirections(self, arrow: Arrow) -> list[StreamRedirection]:
        self._cursor.advance()
        target = self._cursor.word("where a redirection leads")
        kind: OneOf["file", "variable", "stream"] = "variable" if arrow.is_variable else "file"
        if arrow.leads_to_stream:
            kind = "stream"
            if target.plain not in ("0", "1", "2"):
                self._cursor.refuse("behind >& stands 0, 1 or 2")
        elif arrow.both and target.plain in ("0", "1", "2"):
            self._cursor.refuse(f"behind >& alone stands a file; for a stream: 1>&{target.plain}")
        found = [StreamRedirection(arrow.stream, arrow.mode, kind, target)]
        if arrow.both:
            output = Word(target.line, (TextPiece("1"),), is_quoted=False)
            found.append(StreamRedirection(2, arrow.mode, "stream", output))
        return found
