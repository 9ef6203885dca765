"""The ClassAd language: parse an expression, evaluate it among ads, write it out again.

    >>> ad = record({"NumCpus": 4})
    >>> evaluate(parse("2 * NumCpus"), ad)
    8

Usable by itself: it needs the standard library and google-re2 only.
"""

from gridbot_policies.classad.evaluate import DEFAULT_LIMITS, Limits, evaluate, record_of
from gridbot_policies.classad.lexer import ParseError
from gridbot_policies.classad.match import match_scope
from gridbot_policies.classad.nodes import Node
from gridbot_policies.classad.parser import parse, parse_definitions
from gridbot_policies.classad.unparse import unparse
from gridbot_policies.classad.values import ERROR, UNDEFINED, Record, Value, record

__all__ = [
    "DEFAULT_LIMITS",
    "ERROR",
    "UNDEFINED",
    "Limits",
    "Node",
    "ParseError",
    "Record",
    "Value",
    "evaluate",
    "match_scope",
    "parse",
    "parse_definitions",
    "record",
    "record_of",
    "unparse",
]
