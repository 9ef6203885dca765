from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gridbot_policies import Ads, PolicySet
from gridbot_policies.classad import ERROR, UNDEFINED, ParseError, evaluate, parse, record
from gridbot_policies.classad.evaluate import Limits
from gridbot_policies.classad.source import Source
from gridbot_policies.classad.values import ListValue
from gridbot_policies.explain.trace import MAX_SHOWN, Traced, trace, value_text

SCOPE = Ads(
    host=record({"Memory": 7900, "OpSys": "LINUX", "ErrorRate": 0.2}),
    bot=record({"Tail": True}),
    queue=record({}),
).scope

WORDS = 'Host.Memory Host.X Tail 1 2.5 "a" ( ) + * < == && || ? : ?: ! { } , size( ifThenElse( [0]'


def traced(text: str) -> tuple[Source, Traced]:
    source = Source.of_expression(text)
    assert source.expression is not None
    return source, trace(source.expression, SCOPE)


def steps(text: str) -> list[tuple[str, str]]:
    source, whole = traced(text)
    return [(source.shown(step.node), value_text(step.value)) for step in whole.walk()]


def decisive(text: str) -> list[str]:
    source, whole = traced(text)
    return [source.shown(step.node) for step in whole.walk() if step.decisive]


def test_every_part_that_was_looked_at_has_its_value() -> None:
    assert steps("Host.Memory * 2 + 1 >= 8192 && Host.X") == [
        ("Host.Memory * 2 + 1 >= 8192 && Host.X", "undefined"),
        ("Host.Memory * 2 + 1 >= 8192", "true"),
        ("Host.Memory * 2 + 1", "15801"),
        ("Host.Memory * 2", "15800"),
        ("Host.Memory", "7900"),
        ("Host.X", "undefined"),
    ]


def test_parts_that_were_not_looked_at_are_left_out() -> None:
    assert steps("Host.Memory > 9000 && Host.X") == [
        ("Host.Memory > 9000 && Host.X", "false"),
        ("Host.Memory > 9000", "false"),
        ("Host.Memory", "7900"),
    ]
    assert ("Host.X", "undefined") not in steps("Tail ? 1 : Host.X")


def test_an_attribute_shows_the_expression_that_it_stands_for() -> None:
    policies = PolicySet.parse("Reliable = Host.ErrorRate < 0.1; Both = Tail && Reliable")
    source, own = Source.aligned(policies.text, policies.definitions), policies.attributes
    whole = trace(parse("Both"), own.within(SCOPE))
    shown = [source.shown(step.node) for step in whole.walk()]
    assert shown == [
        "Both", "Tail && Reliable", "Tail", "Reliable", "Host.ErrorRate < 0.1", "Host.ErrorRate",
    ]  # fmt: skip
    assert [source.shown(step.node) for step in whole.walk() if step.decisive] == [
        "Host.ErrorRate < 0.1"
    ]


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("Tail && Host.Memory > 9000 && Host.X", "Host.Memory > 9000"),
        ("Tail && (Host.X > 3)", "Host.X"),
        ("Tail ? Host.ErrorRate < 0.1 : true", "Host.ErrorRate < 0.1"),
        ("!Tail || Host.ErrorRate < 0.1", "!Tail || Host.ErrorRate < 0.1"),
        ("Host.Memory > 1 && false", "Host.Memory > 1 && false"),
        ("Host.X ?: (Host.ErrorRate < 0.1)", "(Host.ErrorRate < 0.1)"),
        ("size(Host.OpSys) + nothing(3) > 1", "nothing(3)"),
        ("Host.OpSys > 5", "Host.OpSys > 5"),
        ("false", "false"),
    ],
)
def test_the_part_that_decides_is_marked(text: str, part: str) -> None:
    assert decisive(text) == [part]


@pytest.mark.parametrize("text", ["true", "Host.Memory", "Tail && Host.Memory > 3", "1 + 2", "0"])
def test_what_holds_or_is_no_condition_has_no_decisive_part(text: str) -> None:
    assert decisive(text) == []


def test_circular_attributes_are_traced_as_they_are_evaluated() -> None:
    own = PolicySet.parse("a = a ?: 4").attributes
    whole = trace(parse("a"), own)
    assert whole.value == 4
    assert [value_text(step.value) for step in whole.walk()] == ["4", "4", "undefined"]


def test_a_long_chain_is_flat_and_a_spent_budget_is_an_error() -> None:
    node = parse(" || ".join(["Host.Memory == 1"] * 300))
    assert len(trace(node, SCOPE).children) == 300
    spent = trace(node, SCOPE, limits=Limits(steps=50))
    assert spent.value is ERROR


@pytest.mark.parametrize(
    "text",
    ["!" * 350 + "Tail", "(" * 160 + "Host.X" + ")" * 160, "1 + 2 - " * 1500 + "1",
     "Tail && (" * 120 + "Host.X" + ")" * 120, "Host.X ?: " * 400 + "1"],
)  # fmt: skip
def test_a_deep_text_is_traced_as_far_as_it_can_be_shown(text: str) -> None:
    source, whole = traced(text)
    assert value_text(whole.value) == value_text(evaluate(whole.node, SCOPE))
    assert whole.document(source.shown)["value"] == value_text(whole.value)


def test_json_has_the_text_the_value_and_the_parts() -> None:
    source, whole = traced("Host.Memory > 9000")
    expected: dict[str, Any] = {
        "text": "Host.Memory > 9000", "value": "false", "decisive": True,
        "parts": [{"text": "Host.Memory", "value": "7900", "decisive": False, "parts": []}],
    }  # fmt: skip
    assert whole.document(source.shown) == expected


@settings(derandomize=True, deadline=None, max_examples=300)
@given(st.lists(st.sampled_from(WORDS.split()), max_size=12))
def test_a_trace_has_the_value_of_the_evaluation(words: list[str]) -> None:
    try:
        node = parse(" ".join(words))
    except ParseError:
        return
    value, whole = evaluate(node, SCOPE), trace(node, SCOPE)
    assert value_text(whole.value) == value_text(value)
    undecided = value is not False and value is not UNDEFINED and value is not ERROR
    assert any(step.decisive for step in whole.walk()) is not undecided


def test_a_long_value_is_written_only_as_far_as_it_is_shown() -> None:
    value = evaluate(parse(f'split("{"a " * 4000}")'))
    tracemalloc.start()
    shown = value_text(ListValue((value,) * 200, None))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(shown) == MAX_SHOWN
    assert shown.startswith('{ { "a","a"')
    assert shown.endswith("…")
    assert peak < 1_000_000
