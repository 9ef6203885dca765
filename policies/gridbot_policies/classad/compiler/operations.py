"""The code of the operators: the common types quickly, the rest as the walker does it."""

from __future__ import annotations

import re
from typing import Final

from gridbot_policies.classad import operators
from gridbot_policies.classad.compiler.code import (
    INT,
    NUMERIC,
    REAL,
    TRUTH,
    VALUE,
    Code,
    Term,
)
from gridbot_policies.classad.compiler.support import FREE_LENGTH, PLAIN
from gridbot_policies.classad.functions import Function
from gridbot_policies.classad.values import Missing

_COMPARISONS: Final = frozenset(("==", "!=", "<", "<=", ">", ">="))
_ARITHMETIC: Final = frozenset(("+", "-", "*"))
_MIRRORED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_INT_RANGE = f"{operators.INT_MIN} <= {{}} <= {operators.INT_MAX}"
_LITERAL = re.compile(r"(?P<start>\^?)(?P<text>[A-Za-z0-9_/:@%~ -]+)")
_EXACT = 2**53  # integers up to here are doubles as well


def binary(code: Code, operator: str, left: Term, right: Term) -> Term:
    """Emit any binary operator but the logical ones."""
    if left.constant is not None and right.constant is not None:
        return code.constant(operators.binary(operator, left.constant, right.constant))
    slow = f"BINARY({code.reference(operator)}, {left.text}, {right.text})"
    if operator in _COMPARISONS:
        return _choice(code, _comparisons(code, operator, left, right), slow, TRUTH)
    if operator in _ARITHMETIC:
        return _arithmetic(code, operator, left, right, slow)
    if operator == "/":
        return _choice(code, _division(code, left, right), slow, NUMERIC)
    if operator in ("is", "isnt"):
        return _identity(code, operator, left, right, slow)
    return code.assign(slow, NUMERIC)


def call(code: Code, meter: str, function: Function, arguments: list[Term]) -> Term:
    """Emit the call of a function of values."""
    parts = (code.reference(function), meter, *(argument.text for argument in arguments))
    return code.assign(f"CALL({', '.join(parts)})", VALUE)


def literal_search(code: Code, function: Function, arguments: list[Term]) -> Term | None:
    """Emit `regexp("text", x)`, whose pattern is no more than a text to look for.

    Looking for a text costs a tenth of what matching a pattern does. None for other patterns.
    """
    pattern = arguments[0].constant
    found = _LITERAL.fullmatch(pattern) if isinstance(pattern, str) else None
    if found is None or len(arguments) != 2:
        return None
    text, subject = code.reference(found["text"]), arguments[1].text
    is_there = f"{subject}.startswith({text})" if found["start"] else f"{text} in {subject}"
    slow = f"CALL({code.reference(function)}, METER(ads), {arguments[0].text}, {subject})"
    return _choice(code, [(_is_short_text(subject), is_there)], slow, TRUTH)


def _choice(code: Code, quick: list[tuple[str, str]], slow: str, kinds: int) -> Term:
    """Emit the first of the quick ways whose condition holds, otherwise the slow one."""
    name = code.variable()
    word = "if"
    for condition, text in quick:
        code.add(f"{word} {condition}: {name} = {text}")
        word = "elif"
    code.add(f"else: {name} = {slow}" if quick else f"{name} = {slow}")
    return Term(name, kinds)


def _comparisons(code: Code, operator: str, left: Term, right: Term) -> list[tuple[str, str]]:
    if left.constant is not None:
        return _comparisons(code, _MIRRORED[operator], right, left)
    if isinstance(right.constant, str):
        return _text_equality(code, operator, left, right.constant)
    a, b = left.text, right.text
    one = code.type_of(left)
    if right.constant is None:
        other = code.type_of(right)
        alike = f"{one} is {other} and ({one} is int or {one} is float)"
        mixed = f"({one} is int or {one} is float) and ({other} is int or {other} is float)"
        return [(alike, f"{a} {operator} {b}"), (mixed, f"float({a}) {operator} float({b})")]
    if type(right.constant) is int and abs(right.constant) <= _EXACT:
        return [(f"{one} is int or {one} is float", f"{a} {operator} {b}")]
    if type(right.constant) is float:
        return [
            (f"{one} is float", f"{a} {operator} {b}"),
            (f"{one} is int", f"float({a}) {operator} {b}"),
        ]
    return []


def _text_equality(code: Code, operator: str, left: Term, constant: str) -> list[tuple[str, str]]:
    if operator not in ("==", "!=") or len(constant) >= FREE_LENGTH:
        return []
    folded = code.reference(operators.fold_text(constant))
    exact, size = code.reference(constant), code.reference(len(constant))
    a = left.text
    same = f"({a} == {exact} or (len({a}) == {size} and FOLD({a}) == {folded}))"
    return [(_is_short_text(a), same if operator == "==" else f"not {same}")]


def _is_short_text(subject: str) -> str:
    return f"type({subject}) is str and len({subject}) < {FREE_LENGTH}"


def _arithmetic(code: Code, operator: str, left: Term, right: Term, slow: str) -> Term:
    numbers, integers = _all(code, left, right, INT | REAL), _all(code, left, right, INT)
    if not numbers:
        return code.assign(slow, NUMERIC)
    name, quick = code.variable(), f"{left.text} {operator} {right.text}"
    word = "if"
    if integers:
        with code.block(f"if {' and '.join(integers)}:"):
            code.add(f"{name} = {quick}")
            code.add(f"if not {_INT_RANGE.format(name)}: {name} = WRAP({name})")
        word = "elif"
    with code.block(f"{word} {' and '.join(numbers)}:"):
        code.add(f"{name} = {quick}")
        code.add(f"if {name} == INFINITY: {name} = E")
    code.add(f"else: {name} = {slow}")
    return Term(name, NUMERIC)


def _all(code: Code, left: Term, right: Term, kinds: int) -> list[str]:
    """Return conditions for both to be of these numeric kinds; none if one cannot be."""
    terms = [term for term in (left, right) if term.constant is None]
    if any(term.kinds & ~kinds for term in (left, right) if term not in terms):
        return []
    types = [code.type_of(term) for term in terms]
    if kinds == INT:
        return [f"{kind} is int" for kind in types]
    return [f"({kind} is float or {kind} is int)" for kind in types]


def _division(code: Code, left: Term, right: Term) -> list[tuple[str, str]]:
    # Only quotients that are finite for sure; of two integers the walker's is no real.
    conditions = _all(code, left, right, INT | REAL)
    if not conditions:
        return []
    a, b = left.text, right.text
    real = f"(type({a}) is float or type({b}) is float)"
    bounded = f"-1e300 < {a} < 1e300 and {b} > 1e-6"
    return [(" and ".join([*conditions, real, bounded]), f"{a} / {b}")]


def _identity(code: Code, operator: str, left: Term, right: Term, slow: str) -> Term:
    if left.constant is not None:
        left, right = right, left
    kind = type(right.constant)
    if kind not in PLAIN:  # not a constant, or not a simple one
        return code.assign(slow, TRUTH)
    if kind is str:
        return code.assign(slow, TRUTH)
    if kind is Missing or kind is bool:
        same = f"{left.text} is {right.text}"
    else:
        same = f"{code.type_of(left)} is {kind.__name__} and {left.text} == {right.text}"
    quick = same if operator == "is" else f"not ({same})"
    return _choice(code, [(f"{code.type_of(left)} in PLAIN", quick)], slow, TRUTH)


def truth(code: Code, value: Term) -> Term:
    """Emit the conversion to true, false, undefined or error, unless it is that already."""
    if not value.may(~TRUTH):
        return value
    if value.constant is not None:
        return code.constant(operators.truth(value.constant))
    a = value.text
    return code.assign(f"{a} if {a} is True or {a} is False else TRUTH({a})", TRUTH)


def unary(code: Code, operator: str, operand: Term) -> Term:
    """Emit a unary operator."""
    if operand.constant is not None:
        return code.constant(operators.unary(operator, operand.constant))
    if operator != "!":
        sign = code.reference(operator)
        return code.assign(f"UNARY({sign}, {operand.text})", NUMERIC)
    a = truth(code, operand).text
    return code.assign(f"{a} is False if {a} is True or {a} is False else {a}", TRUTH)
