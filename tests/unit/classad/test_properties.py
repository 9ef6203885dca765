from __future__ import annotations

import json
import math
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import classad_adapter

from gridbot_policies.classad import (
    ERROR,
    UNDEFINED,
    Node,
    ParseError,
    Value,
    evaluate,
    nodes,
    parse,
    parse_old,
    record,
    unparse,
    unparse_old,
)
from gridbot_policies.classad.functions import FUNCTIONS
from gridbot_policies.classad.grammar import LEVEL, SYNONYMS
from gridbot_policies.classad.values import (
    AbsTime,
    ListValue,
    Missing,
    Record,
    RelTime,
    text_of_bytes,
)

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
    return plain(left) == plain(right)


def plain(value: Node | Value, depth: int = 3) -> object:
    """Return a value with what is in it, as far as `depth`: an ad may hold itself."""
    match value:
        case ListValue(items, scope) if depth:
            values = (evaluate(i, scope) if isinstance(i, Node) else i for i in items)
            return [plain(item, depth - 1) for item in values]
        case Record() if depth:
            own = {name: evaluate(nodes.Attribute(name), value) for name in value.names}
            return {name: plain(item, depth - 1) for name, item in own.items()}
        case ListValue() | Record():
            return type(value)
        case _:
            return type(value), repr(value)


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


# What a literal can say, and the times that only a computation gives.
LITERALS = st.one_of(
    st.sampled_from([UNDEFINED, ERROR, True, False, math.inf, -math.inf, math.nan, -0.0]),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.text(st.characters(exclude_characters="\0")),
    st.binary(max_size=5).filter(lambda data: 0 not in data).map(text_of_bytes),
    st.builds(AbsTime, st.integers(0, 2**31), st.integers(-14 * 60, 14 * 60).map(lambda m: m * 60)),
    st.builds(RelTime, st.integers(1, 10**6).map(float)),
)
SCALARS = (
    LITERALS
    | st.builds(AbsTime, st.integers(0, 2**31 - 1), st.integers(-20 * 60, 20 * 60))
    | st.builds(RelTime, st.floats(-1e9, 1e9))
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


ODD_NAMES = st.sampled_from(
    ["is", "true", "a b", "", "it's", "\n", "é", 'q"', "\\", "parent", "x1"]
)
NAMES = st.sampled_from(["a", "b", "x", "y", "Host", "L", "self", "MY", "root"]) | ODD_NAMES


def _nodes(inner: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    several = st.lists(inner, max_size=3).map(tuple)
    # Every name may be sought, but an ad has none that is empty.
    definitions = st.builds(nodes.Definition, NAMES.filter(bool), inner, st.just(0))
    return st.one_of(
        st.builds(nodes.Selection, inner, NAMES),
        st.builds(nodes.Subscript, inner, inner),
        st.builds(nodes.Parenthesis, inner),
        st.builds(nodes.Unary, st.sampled_from("-+!~"), inner),
        st.builds(nodes.Binary, st.sampled_from(BINARY_OPERATORS), inner, inner),
        st.builds(nodes.Elvis, inner, inner),
        st.builds(nodes.Conditional, inner, inner, inner),
        st.builds(nodes.Call, st.sampled_from(CALLED) | ODD_NAMES, several),
        st.builds(nodes.ListNode, several),
        st.builds(nodes.RecordNode, st.lists(definitions, max_size=3).map(tuple)),
    )


BINARY_OPERATORS = sorted(set(LEVEL) - set(SYNONYMS))
CALLED = ("size", "strcat", "string", "ifThenElse", "absTime", "relTime", "member", "nosuch")
TREES = st.recursive(
    LITERALS.map(nodes.Constant)
    | st.builds(nodes.Attribute, NAMES)
    | st.builds(nodes.Absolute, NAMES),
    _nodes,
    max_leaves=10,
)


@settings(repeatable, max_examples=500)
@given(TREES, st.booleans())
def test_a_tree_written_out_reads_back_with_the_same_value(tree: Node, strict: bool) -> None:
    again = parse(unparse(tree), strict=strict)
    values = [evaluate(node, SCOPE, now=1000.0, strict=strict) for node in (tree, again)]
    assert alike(*values)
    assert unparse(parse(unparse(again), strict=strict)) == unparse(again)


@settings(repeatable, max_examples=500)
@given(TREES)
def test_what_the_old_syntax_can_write_it_reads_back_with_the_same_value(tree: Node) -> None:
    ad = nodes.RecordNode((nodes.Definition("It", tree, 0),))
    try:
        text = unparse_old(ad)
    except ValueError as error:
        assert "the old syntax cannot write" in str(error)
        return
    (again,) = parse_old(text)
    assert alike(*(evaluate(node, SCOPE, now=1000.0) for node in (tree, again.expression)))


CORPUS = os.environ.get("GRIDBOT_CLASSAD_CORPUS", "")


@pytest.mark.skipif(not CORPUS, reason="set GRIDBOT_CLASSAD_CORPUS to the folder of the corpus")
def test_every_expression_of_the_corpus_written_out_keeps_its_value() -> None:
    changed = []
    for case in json.loads(Path(CORPUS, "corpus_public.json").read_text("utf-8")):
        strict = case["mode"] == "strict"
        try:
            tree = parse(case["expr"], strict=strict)
        except ParseError:
            continue
        again = unparse(tree)
        if classad_adapter.evaluate(
            case["my"], case["target"], again, case["mode"]
        ) != classad_adapter.evaluate(case["my"], case["target"], case["expr"], case["mode"]):
            changed.append((case["id"], case["expr"], again))
    assert changed == []
