"""The ClassAd language: parse an expression, evaluate it among ads, write it out again.

    >>> ad = record({"NumCpus": 4})
    >>> evaluate(parse("2 * NumCpus"), ad)
    8

Usable by itself: it needs the standard library and google-re2 only.
"""

from gridbot_policies.classad.evaluate import (
    CLIENT_LIMITS,
    DEFAULT_LIMITS,
    Limits,
    evaluate,
    evaluate_counted,
)
from gridbot_policies.classad.lexer import ParseError
from gridbot_policies.classad.match import match_scope, matches, rank, symmetric_match
from gridbot_policies.classad.nodes import Node
from gridbot_policies.classad.old_syntax import parse_old, unparse_old
from gridbot_policies.classad.parser import (
    MAX_CLIENT_TEXT_BYTES,
    MAX_TEXT_BYTES,
    parse,
    parse_definitions,
)
from gridbot_policies.classad.scopes import record_of
from gridbot_policies.classad.unparse import unparse
from gridbot_policies.classad.values import ERROR, UNDEFINED, Record, Value, record

__all__ = [
    "CLIENT_LIMITS",
    "DEFAULT_LIMITS",
    "ERROR",
    "MAX_CLIENT_TEXT_BYTES",
    "MAX_TEXT_BYTES",
    "UNDEFINED",
    "Limits",
    "Node",
    "ParseError",
    "Record",
    "Value",
    "evaluate",
    "evaluate_counted",
    "match_scope",
    "matches",
    "parse",
    "parse_definitions",
    "parse_old",
    "rank",
    "record",
    "record_of",
    "symmetric_match",
    "unparse",
    "unparse_old",
]
