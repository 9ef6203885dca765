"""What reading and writing share: the reserved words, and how tightly each operator binds."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from gridbot_policies.classad.values import ERROR, UNDEFINED, Value

KEYWORDS: Final = MappingProxyType[str, Value](
    {"true": True, "false": False, "undefined": UNDEFINED, "error": ERROR}
)
RESERVED: Final = frozenset((*KEYWORDS, "is", "isnt"))
SYNONYMS: Final = MappingProxyType({"=?=": "is", "=!=": "isnt"})

# From loosest to tightest; operators of one level group from the left.
_LEVELS = (
    ("||",),
    ("&&",),
    ("|",),
    ("^",),
    ("&",),
    ("==", "!=", "=?=", "=!=", "is", "isnt"),
    ("<", "<=", ">", ">="),
    ("<<", ">>", ">>>"),
    ("+", "-"),
    ("*", "/", "%"),
)
LEVEL: Final = MappingProxyType(
    {operator: level for level, operators in enumerate(_LEVELS, 1) for operator in operators}
)
# c ? a : b binds more loosely than all of them, signs and `!` more tightly, `?:` still more.
CONDITIONAL: Final = 0
UNARY: Final = len(_LEVELS) + 1
ELVIS: Final = UNARY + 1
PRIMARY: Final = ELVIS + 1
