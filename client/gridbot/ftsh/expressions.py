"""Reads expressions, by precedence."""

from __future__ import annotations

from gridbot.ftsh.cursor import TokenCursor
from gridbot.ftsh.tokens import Sign
from gridbot.ftsh.tree import (
    BinaryExpression,
    CallExpression,
    Expression,
    RangeExpression,
    UnaryExpression,
    WordExpression,
)

COMPARISONS = (".eq.", ".ne.", ".eql.", ".neql.", ".lt.", ".le.", ".gt.", ".ge.")
FILE_TESTS = (
    ".exists.", ".isr.", ".isw.", ".isx.", ".isblock.", ".ischar.", ".isdir.", ".isfile.",
    ".islink.", ".ispipe.", ".issock.",
)  # fmt: skip
# From the weakest to the strongest; what comes before a value binds between the last two.
_LEVELS = ((".or.",), (".and.",), COMPARISONS, (".add.", ".sub."), (".mul.", ".div.", ".mod."))
_PREFIXES = (".not.", *FILE_TESTS)
_POWER = ".pow."
OPERATORS = {name for level in _LEVELS for name in level} | {*_PREFIXES, _POWER, ".to.", ".step."}


def expression(cursor: TokenCursor) -> Expression:
    """Read one.  Raises ScriptError."""
    first = _joined(cursor, 0)
    line = cursor.line
    if not cursor.take(".to."):
        return first
    last = _joined(cursor, 0)
    step = _joined(cursor, 0) if cursor.take(".step.") else None
    if cursor.sees((".to.", ".step.")):
        cursor.refuse("an expression has one .to. and one .step.; use parentheses")
    return RangeExpression(line, first, last, step)


def _joined(cursor: TokenCursor, level: int) -> Expression:
    """Read operators of a level or stronger ones, from left to right."""
    if level == len(_LEVELS):
        return _prefixed(cursor)
    operators = _LEVELS[level]
    found = _joined(cursor, level + 1)
    joined = 0
    while True:
        line = cursor.line
        operator = cursor.take(operators)
        if not operator:
            return found
        joined += 1
        if joined > 1 and operators is COMPARISONS:
            cursor.refuse("a comparison of a comparison needs parentheses")
        found = BinaryExpression(line, operator, found, _joined(cursor, level + 1))


def _prefixed(cursor: TokenCursor) -> Expression:
    line = cursor.line
    if operator := cursor.take(_PREFIXES):
        return UnaryExpression(line, operator, _prefixed(cursor))
    found = _single(cursor)
    line = cursor.line
    while operator := cursor.take(_POWER):
        found = BinaryExpression(line, operator, found, _single(cursor))
    return found


def _single(cursor: TokenCursor) -> Expression:
    if cursor.take(Sign.LEFT):
        inner = expression(cursor)
        cursor.need(Sign.RIGHT)
        return inner
    word = cursor.word("a value")
    if not cursor.take(Sign.LEFT):
        return WordExpression(word)
    arguments: list[Expression] = []
    while not cursor.take(Sign.RIGHT):
        if arguments:
            cursor.need(Sign.COMMA)
        arguments.append(expression(cursor))
    return CallExpression(word, arguments)
