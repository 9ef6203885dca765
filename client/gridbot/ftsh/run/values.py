"""Values of expressions: texts.  Integers and `true` and `false` are texts, too."""

from __future__ import annotations

import operator
import os
import re
import stat
from collections.abc import Callable, Sequence

from gridbot.ftsh.run.log import Detail
from gridbot.ftsh.run.state import ShellState
from gridbot.ftsh.run.words import expanded, single, the_one
from gridbot.ftsh.tree import (
    BinaryExpression,
    CallExpression,
    Expression,
    RangeExpression,
    UnaryExpression,
    WordExpression,
)

# Calls a function of the script with arguments, in a line; returns the words that it returns.
CallFunction = Callable[[int, Sequence[str]], Sequence[str]]

_INTEGER = re.compile(r"\s*([+-]?[0-9]{1,4000})", re.ASCII)
_MOST_WORDS = 10_000_000  # of a range
_MOST_DIGITS = 4000  # of an integer; Python writes few more


def _quotient(left: int, right: int) -> int:
    """Towards 0, as C divides."""
    found = abs(left) // abs(right)
    return found if (left < 0) == (right < 0) else -found


def _rest(left: int, right: int) -> int:
    return left - right * _quotient(left, right)


def _power(base: int, exponent: int) -> int:
    if exponent > 0 and base.bit_length() * exponent > 4 * _MOST_DIGITS:
        raise ArithmeticError("too large")
    return int(base ** max(0, exponent))


_ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    ".add.": operator.add,
    ".sub.": operator.sub,
    ".mul.": operator.mul,
    ".div.": _quotient,
    ".mod.": _rest,
    ".pow.": _power,
}
_OF_INTEGERS: dict[str, Callable[[int, int], bool]] = {
    ".eql.": operator.eq,
    ".neql.": operator.ne,
    ".lt.": operator.lt,
    ".le.": operator.le,
    ".gt.": operator.gt,
    ".ge.": operator.ge,
}
_OF_TEXTS: dict[str, Callable[[str, str], bool]] = {".eq.": operator.eq, ".ne.": operator.ne}
_OF_TRUTHS: dict[str, Callable[[bool, bool], bool]] = {
    ".and.": operator.and_,
    ".or.": operator.or_,
}
_ACCESS = {".exists.": os.F_OK, ".isr.": os.R_OK, ".isw.": os.W_OK, ".isx.": os.X_OK}
_KINDS: dict[str, Callable[[int], bool]] = {
    ".isblock.": stat.S_ISBLK,
    ".ischar.": stat.S_ISCHR,
    ".isdir.": stat.S_ISDIR,
    ".isfile.": stat.S_ISREG,
    ".ispipe.": stat.S_ISFIFO,
    ".issock.": stat.S_ISSOCK,
}


class Evaluator:
    """Evaluates expressions over the state of a script; all methods may raise CommandFailure."""

    def __init__(self, state: ShellState, call: CallFunction) -> None:
        self._state = state
        self._call = call

    def words(self, expression: Expression) -> list[str]:
        """Words that an expression becomes: of a range and of a word without quotes, several."""
        if isinstance(expression, WordExpression):
            return expanded((expression.word,), self._state)
        if isinstance(expression, RangeExpression):
            return self._range(expression)
        if isinstance(expression, CallExpression):
            return self._called(expression)
        return [self._computed(expression)]

    def text(self, expression: Expression, line: int) -> str:
        """The one word that an expression becomes; of a range, all its numbers."""
        found = self.words(expression)
        if isinstance(expression, RangeExpression):
            return " ".join(found)
        return the_one(found, line, self._state)

    def integer(self, expression: Expression, line: int) -> int:
        """The integer that it becomes."""
        text = self.text(expression, line)
        found = _INTEGER.fullmatch(text)
        if not found:
            raise self._state.fail(line, f"{text!r} is no integer")
        return int(found[1])

    def truth(self, expression: Expression, line: int) -> bool:
        """Whether it is true: the text `true` or `false`."""
        text = self.text(expression, line)
        if text not in ("true", "false"):
            raise self._state.fail(line, f"{text!r} is neither true nor false")
        return text == "true"

    def _computed(self, expression: UnaryExpression | BinaryExpression) -> str:
        if isinstance(expression, UnaryExpression):
            if expression.operator == ".not.":
                return _said(not self.truth(expression.value, expression.line))
            return self._file_test(expression)
        name, line = expression.operator, expression.line
        if name in _OF_TEXTS:
            left, right = self.text(expression.left, line), self.text(expression.right, line)
            return _said(_OF_TEXTS[name](left, right))
        if name in _OF_TRUTHS:
            truths = self.truth(expression.left, line), self.truth(expression.right, line)
            return _said(_OF_TRUTHS[name](*truths))
        numbers = self.integer(expression.left, line), self.integer(expression.right, line)
        if name in _OF_INTEGERS:
            return _said(_OF_INTEGERS[name](*numbers))
        try:
            return str(_ARITHMETIC[name](*numbers))
        except (ArithmeticError, ValueError) as error:  # the latter for too many digits
            raise self._state.fail(
                line, f"{numbers[0]} {name} {numbers[1]} has no value: {error}"
            ) from None

    def _range(self, found: RangeExpression) -> list[str]:
        """Integers from the smaller end to the larger one."""
        line = found.line
        ends = self.integer(found.first, line), self.integer(found.last, line)
        step = abs(self.integer(found.step, line)) if found.step else 1
        if not step:
            raise self._state.fail(line, "a range with .step. 0 has no end")
        numbers = range(min(ends), max(ends) + 1, step)
        if len(numbers) > _MOST_WORDS:
            raise self._state.fail(line, f"a range of more than {_MOST_WORDS} numbers")
        return [str(number) for number in numbers]

    def _called(self, call: CallExpression) -> list[str]:
        line = call.name.line
        given = [single(call.name, self._state)]
        for argument in call.arguments:
            given.append(self.text(argument, line))
        return [*self._call(line, given)]

    def _file_test(self, test: UnaryExpression) -> str:
        name = self.text(test.value, test.line)
        path = self._state.path(name)
        try:
            found = _holds(test.operator, path)
        except (OSError, ValueError) as error:
            raise self._state.fail(test.line, f"{test.operator} {name}: {error}") from None
        self._state.say(Detail.COMMANDS, test.line, f"{test.operator} {name} is {_said(found)}")
        return _said(found)


def _holds(question: str, path: str) -> bool:
    if question in _ACCESS:
        return os.access(path, _ACCESS[question])
    try:
        if question == ".islink.":
            return stat.S_ISLNK(os.lstat(path).st_mode)
        return _KINDS[question](os.stat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return False


def _said(truth: bool) -> str:
    return "true" if truth else "false"
