"""Carries out the commands of a script.

A group is brittle: the first command that fails, fails the group and all around it, up to a `try`.
Failures are exceptions (`CommandFailure`, and OutOfTime of a limit that has passed), a function's
return and the script's exit are others, which no `try` holds.  Limits, pauses and branches are
those of `gridbot.reliable`; before each command, and while programs run, it is seen whether time
is over.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from gridbot import reliable
from gridbot.ftsh.run.builtins import BUILTINS
from gridbot.ftsh.run.log import Detail
from gridbot.ftsh.run.redirect import Streams, redirected
from gridbot.ftsh.run.state import (
    MOST_BRANCHES,
    MOST_CALLS,
    CommandFailure,
    Exited,
    Returned,
    ShellState,
)
from gridbot.ftsh.run.values import Evaluator
from gridbot.ftsh.run.words import expanded, single
from gridbot.ftsh.tree import (
    Assign,
    For,
    Group,
    If,
    Return,
    ScriptFunction,
    Shift,
    Simple,
    TimeSpan,
    Try,
    While,
)

FAILURES = (CommandFailure, reliable.OutOfTime)


class Interpreter:
    """Runs commands over one state; all methods may raise CommandFailure, Returned and Exited."""

    def __init__(self, state: ShellState) -> None:
        self.state = state
        self._values = Evaluator(state, self._called)
        self._carry_out = {
            Simple: self._simple,
            Assign: self._assign,
            If: self._if,
            While: self._while,
            Try: self._try,
            For: self._for,
            Shift: self._shift,
            Return: self._return,
        }

    def group(self, group: Group) -> None:
        """Run commands one after the other."""
        for command in group:
            reliable.check()
            self._carry_out[type(command)](command)  # type: ignore[operator]

    def _simple(self, command: Simple) -> None:
        with redirected(command.redirections, command.line, self.state) as streams:
            words = expanded(command.words, self.state)
            if not words:
                raise self.state.fail(command.line, "there is no command: its variable is empty")
            self.state.say(Detail.COMMANDS, command.line, " ".join(words))
            if function := self.state.functions.get(words[0]):
                self._call(function, command.line, words, streams)
            elif builtin := BUILTINS.get(words[0]):
                with _streams(self.state, streams):
                    builtin(command.line, words[1:], self.state)
            else:
                self._program(command.line, words, streams)

    def _program(self, line: int, words: Sequence[str], streams: Streams) -> None:
        name = words[0]
        try:
            code = reliable.run(
                words, check=False, cwd=self.state.folder, env=self.state.environment,
                stdin=streams[0], stdout=streams[1], stderr=streams[2], ending=self.state.ending,
            )  # fmt: skip
        except reliable.OutOfTime:
            self.state.say(Detail.FAILURES, line, f"{name} ran out of time")
            raise
        except (OSError, ValueError) as error:
            raise self.state.fail(line, f"{name} cannot be run: {error}") from None
        if code:
            how = f"exit code {code}" if code > 0 else f"signal {-code}"
            raise self.state.fail(line, f"{name} ended with {how}")
        self.state.say(Detail.PROCESSES, line, f"{name} ended with exit code 0")

    def _call(
        self,
        function: ScriptFunction,
        line: int,
        words: Sequence[str],
        streams: Streams,
    ) -> Sequence[str] | None:
        """Call a function; return the words that it returns, None if it just ends."""
        state = self.state
        if state.calls >= MOST_CALLS:
            raise state.fail(line, f"more than {MOST_CALLS} calls within each other")
        state.say(Detail.STRUCTURES, function.line, f"function {' '.join(words)}")
        arguments, state.arguments = state.arguments, list(words)
        state.calls += 1
        try:
            with _streams(state, streams):
                self.group(function.body)
        except Returned as returned:
            return returned.words
        finally:
            state.arguments = arguments
            state.calls -= 1
        return None

    def _called(self, line: int, words: Sequence[str]) -> Sequence[str]:
        """Call a function of an expression."""
        function = self.state.functions.get(words[0])
        if function is None:
            raise self.state.fail(line, f"there is no function {words[0]}")
        found = self._call(function, line, words, self.state.streams)
        if found is None:
            raise self.state.fail(line, f"function {words[0]} returned no value")
        return found

    def _assign(self, command: Assign) -> None:
        if command.value is None:
            self.state.variables.pop(command.name, None)
            return
        value = self._values.text(command.value, command.line)
        self.state.say(Detail.COMMANDS, command.line, f"{command.name}={value}")
        self.state.variables[command.name] = value

    def _if(self, command: If) -> None:
        holds = self._values.truth(command.condition, command.line)
        self.state.say(Detail.STRUCTURES, command.line, f"if {'true' if holds else 'false'}")
        self.group(command.then if holds else command.otherwise)

    def _while(self, command: While) -> None:
        while self._values.truth(command.condition, command.line):
            reliable.check()
            self.state.say(Detail.STRUCTURES, command.line, "while true")
            self.group(command.body)

    def _try(self, command: Try) -> None:
        try:
            self._attempts(command)
        except FAILURES as failure:
            self.state.say(Detail.FAILURES, command.line, f"try has failed: {failure}")
            if command.catch is None:
                raise
        else:
            return
        self.state.say(Detail.STRUCTURES, command.line, "catch")
        self.group(command.catch)

    def _attempts(self, command: Try) -> None:
        trying = reliable.trying(
            for_=self._span(command.time, command.line),
            times=self._times(command),
            every=self._span(command.every, command.line),
            on=FAILURES,
            back_off=self.state.settings.back_off,
            told=partial(self._told, command.line),
        )
        for attempt in trying:
            with attempt:
                self.state.say(Detail.STRUCTURES, command.line, f"try, attempt {attempt.number}")
                self.group(command.body)

    def _told(self, line: int, _: Exception, pause: float) -> None:
        self.state.say(Detail.STRUCTURES, line, f"try, again after {pause:.1f} s")

    def _times(self, command: Try) -> int | None:
        if command.times is None:
            return None
        found = self._values.integer(command.times, command.line)
        if found < 1:
            raise self.state.fail(command.line, f"try {found} times: it is at least once")
        return found

    def _span(self, span: TimeSpan | None, line: int) -> int | None:
        if span is None:
            return None
        number = self._values.integer(span.number, line)
        if not 0 <= number * span.unit < 1e9:
            raise self.state.fail(line, f"{number} is no duration")
        return number * span.unit

    def _for(self, command: For) -> None:
        name = single(command.name, self.state)
        words: list[str] = []
        for expression in command.words:
            words += self._values.words(expression)
        self.state.say(
            Detail.STRUCTURES, command.line, f"{command.kind} {name} in {len(words)} words"
        )
        if command.kind == "forall":
            self._for_all(command, name, words)
            return
        if not words:
            raise self.state.fail(command.line, f"{command.kind} {name}: there is no word")
        if command.kind == "forany":
            reliable.any_of(words, partial(self._with_word, command, name), on=FAILURES)
            return
        for word in words:
            self._with_word(command, name, word)

    def _with_word(self, command: For, name: str, word: str) -> None:
        self.state.say(Detail.STRUCTURES, command.line, f"{name}={word}")
        self.state.variables[name] = word
        self.group(command.body)

    def _for_all(self, command: For, name: str, words: Sequence[str]) -> None:
        """All at once; what the branches assign is lost, and an exit ends only its branch."""

        def branch(word: str) -> None:
            inner = Interpreter(self.state.branch())
            try:
                inner._with_word(command, name, word)
            except Returned:
                return
            except Exited as ended:
                if ended.code:
                    what = f"{name}={word} has exited with {ended.code}"
                    raise self.state.fail(command.line, what) from None

        if len(words) > MOST_BRANCHES:
            what = f"forall of {len(words)} words: {MOST_BRANCHES} at most run at once"
            raise self.state.fail(command.line, what)
        reliable.all_of(words, branch)

    def _shift(self, command: Shift) -> None:
        number = 1
        if command.number is not None:
            number = self._values.integer(command.number, command.line)
        given = len(self.state.arguments) - 1
        if not 0 <= number <= given:
            raise self.state.fail(command.line, f"cannot shift {number} of {given} arguments")
        del self.state.arguments[1 : 1 + number]

    def _return(self, command: Return) -> None:
        raise Returned(self._values.words(command.value))


class _streams:
    """Streams of what the shell itself carries out, as long as it does."""

    def __init__(self, state: ShellState, streams: Streams) -> None:
        self._state, self._inner, self._outer = state, streams, state.streams

    def __enter__(self) -> None:
        self._state.streams = self._inner

    def __exit__(self, *_: object) -> None:
        self._state.streams = self._outer
