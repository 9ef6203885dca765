from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from gridbot_policies.classad import (
    ERROR,
    UNDEFINED,
    ParseError,
    Value,
    evaluate,
    parse,
    record,
    unparse,
)
from gridbot_policies.classad.functions import FUNCTIONS
from gridbot_policies.classad.values import AbsTime, ListValue, Missing, Record, RelTime

# The same examples on every machine and every run.
repeatable = settings(derandomize=True, deadline=None, max_examples=300)

WORDS = [
    *("a", "b", "Host", "x.y", ".a", "self", "parent", "MY", "TARGET", "'odd name'"),
    *("1", "-5", "2.5", "1e308", "0", "9223372036854775807", '"text"', '"a,b"', '"("'),
    *("true", "false", "undefined", "error", "is", "isnt", "{1, a}", "[a = b; b = 3]"),
    *("+", "-", "*", "/", "%", "<", "<=", "==", "=?=", "=!=", "&&", "||", "!", "~", "&", ">>>"),
    *(
        "?",
        ":",
        "?:",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        ",",
        ";",
        "=",
        ".",
        "/*",
        "*/",
        "//",
        '"',
        "\\",
    ),
    *FUNCTIONS,
]
LEAVES = st.sampled_from([word for word in WORDS[:27] if word not in ("is", "isnt")])
BINARY = st.sampled_from(
    ["+", "-", "*", "/", "%", "<", "<=", "==", "!=", "=?=", "=!=", "&&", "||", "&", "|", "^", "<<"]
)


def _forms(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    calls = st.tuples(st.sampled_from(sorted(FUNCTIONS)), st.lists(inner, max_size=4))
    return st.one_of(
        st.tuples(inner, BINARY, inner).map(" ".join),
        inner.map(lambda e: f"({e})"),
        inner.map(lambda e: f"- ({e})"),
        inner.map(lambda e: f"! {e}"),
        inner.map(lambda e: f"({e}).a"),
        st.tuples(inner, inner).map(lambda e: f"({e[0]})[{e[1]}]"),
        st.tuples(inner, inner).map(lambda e: f"({e[0]}) ?: ({e[1]})"),
        st.tuples(inner, inner, inner).map(lambda e: f"{e[0]} ? {e[1]} : {e[2]}"),
        st.lists(inner, max_size=3).map(lambda es: "{" + ", ".join(es) + "}"),
        st.lists(inner, max_size=3).map(
            lambda es: "[" + "; ".join(f"{'ab'[i % 2]} = {e}" for i, e in enumerate(es)) + "]"
        ),
        calls.map(lambda call: f"{call[0]}({', '.join(call[1])})"),
    )


EXPRESSIONS = st.recursive(LEAVES, _forms, max_leaves=12)
SCOPE = record({"a": 3, "x": {"y": "text", "a": 1.5}, "Host": {"Name": "h1"}, "L": [1, {"a": 2}]})
VALUES = (Missing, bool, int, float, str, AbsTime, RelTime, ListValue, Record)


def alike(left: Value, right: Value) -> bool:
    if type(left) is not type(right):
        return False
    if isinstance(left, float) and isinstance(right, float):
        return left == right or (math.isnan(left) and math.isnan(right))
    if isinstance(left, ListValue | Record):
        return unparse(left) == unparse(right)
    return left == right


@repeatable
@given(
    st.text()
    | st.text(alphabet=st.characters(codec="ascii"))
    | st.lists(st.sampled_from(WORDS)).map(" ".join)
)
def test_the_parser_raises_nothing_but_parse_errors(text: str) -> None:
    try:
        expression = parse(text)
    except ParseError as error:
        assert error.pretty().count("^") >= 1
        assert 1 <= error.line <= text.count("\n") + 1
    else:
        assert isinstance(evaluate(expression, SCOPE), VALUES)


@repeatable
@given(EXPRESSIONS)
def test_every_expression_has_a_value(text: str) -> None:
    assert isinstance(evaluate(parse(text), SCOPE, now=1000.0), VALUES)
    assert isinstance(evaluate(parse(text)), VALUES)


@repeatable
@given(EXPRESSIONS)
def test_text_made_from_a_tree_gives_the_same_value(text: str) -> None:
    expression = parse(text)
    again = parse(unparse(expression))
    assert alike(evaluate(expression, SCOPE, now=1000.0), evaluate(again, SCOPE, now=1000.0))
    assert unparse(again) == unparse(expression)


SCALARS = st.one_of(
    st.sampled_from([UNDEFINED, ERROR, True, False, math.inf, -math.inf, -0.0]),
    st.integers(-(2**63), 2**63 - 1),
    # Sixteen digits are written; what has fewer comes back exactly.
    st.integers(-(10**12), 10**12).map(lambda number: number / 1000),
    st.text().filter(lambda text: "\0" not in text),
    st.builds(AbsTime, st.integers(0, 2**32), st.integers(-14 * 60, 14 * 60).map(lambda m: m * 60)),
    st.builds(RelTime, st.integers(-(10**6), 10**6).map(float)),
)


@repeatable
@given(
    st.recursive(
        SCALARS,
        lambda inner: st.lists(inner, max_size=3).map(lambda items: ListValue(tuple(items), None)),
    )
)
def test_a_value_written_out_reads_back_as_itself(value: Value) -> None:
    assert alike(evaluate(parse(unparse(value))), value)
