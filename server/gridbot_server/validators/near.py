"""When two numbers are near, as they stand in a text."""

from __future__ import annotations

import math
import re
from fractions import Fraction

from gridbot_server.validators.spec import Tolerance

# A number has no letter, digit or _ beside it, and no dot before it; a sign belongs to it.
# Possessive throughout: a hostile word costs linear time.
_DECIMAL = rb"(?:\d++(?:\.\d*+)?+|\.\d++)(?:[eEdDqQ][+-]?\d++)?+"
_HEX = rb"0[xX](?:[0-9a-fA-F]++(?:\.[0-9a-fA-F]*+)?+|\.[0-9a-fA-F]++)(?:[pP][+-]?\d++)?+"
_SPECIAL = rb"(?:[iI][nN][fF](?:[iI][nN][iI][tT][yY])?+|[nN][aA][nN])"
NUMBER = re.compile(
    rb"((?:[+-]|(?<![A-Za-z0-9_.]))(?>%b|%b|%b)(?![A-Za-z0-9_]))" % (_HEX, _DECIMAL, _SPECIAL)
)
_INTEGER = re.compile(rb"[+-]?\d+")
_EXPONENTS = bytes.maketrans(b"dDqQ", b"eeee")  # as Fortran writes them
_EXACT_TO = 1 << 53  # whole numbers that a double holds
_MOST_DIGITS = 400  # of a whole number; longer ones are text


def near(one: bytes, other: bytes, tolerance: Tolerance) -> bool:
    """Whether two numbers are near: `math.isclose`, and exactly so for whole numbers of any size.

    Numbers are read as doubles.  One beyond their range is near only to the very same characters.
    """
    left, right = value(one), value(other)
    if left is None or right is None:
        return one == other
    if math.isnan(left) or math.isnan(right):
        return tolerance.nan_is_equal and math.isnan(left) and math.isnan(right)
    if type(left) is int and type(right) is int and max(abs(left), abs(right)) > _EXACT_TO:
        allowed = max(Fraction(tolerance.abs), Fraction(tolerance.rel) * max(abs(left), abs(right)))
        return abs(left - right) <= allowed
    return math.isclose(left, right, rel_tol=tolerance.rel, abs_tol=tolerance.abs)


def value(number: bytes) -> int | float | None:
    """Value of what NUMBER matches; None if it is beyond a double's range."""
    if _INTEGER.fullmatch(number):
        if len(number) > _MOST_DIGITS:
            return None
        whole = int(number)
        return whole if abs(whole) < 1 << 1023 else None
    if number.lstrip(b"+-")[1:2] in (b"x", b"X"):
        try:
            return float.fromhex(number.decode("ascii"))
        except OverflowError:
            return None
    is_infinite = number[-1:] in b"fFyY"
    found = float(number if is_infinite else _plain(number))
    return None if math.isinf(found) and not is_infinite else found


def _plain(number: bytes) -> bytes:
    return number if number[-1:] in b"nN" else number.translate(_EXPONENTS)
