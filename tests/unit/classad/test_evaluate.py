from __future__ import annotations

import inspect
import math

import pytest
from tests.work import calls

from gridbot_policies.classad import (
    CLIENT_LIMITS,
    DEFAULT_LIMITS,
    ERROR,
    MAX_CLIENT_TEXT_BYTES,
    UNDEFINED,
    Limits,
    ParseError,
    Record,
    Value,
    evaluate,
    match_scope,
    parse,
    parse_definitions,
    record,
    record_of,
    unparse,
)
from gridbot_policies.classad.nodes import RecordNode


def value(text: str, scope: Record | None = None) -> Value:
    return evaluate(parse(text), scope)


# One row per left operand; columns: true, false, undefined, error, "text".
AND = {
    "true": ("true", "false", "undefined", "error", "error"),
    "false": ("false",) * 5,
    "undefined": ("undefined", "false", "undefined", "error", "error"),
    "error": ("error",) * 5,
    '"text"': ("error",) * 5,
}
OR = {
    "true": ("true",) * 5,
    "false": ("true", "false", "undefined", "error", "error"),
    "undefined": ("true", "undefined", "undefined", "error", "error"),
    "error": ("error",) * 5,
    '"text"': ("error",) * 5,
}


@pytest.mark.parametrize(("operator", "table"), [("&&", AND), ("||", OR)])
def test_logic_follows_the_truth_table_cell_by_cell(
    operator: str, table: dict[str, tuple[str, ...]]
) -> None:
    for left, row in table.items():
        for right, expected in zip(AND, row, strict=True):
            assert value(f"{left} {operator} {right}") is value(expected), (left, right)


@pytest.mark.parametrize("operator", ["+", "*", "%", "<", "==", "&", ">>"])
def test_an_error_beats_undefined_whichever_side_it_stands_on(operator: str) -> None:
    assert value(f"undefined {operator} error") is ERROR
    assert value(f"error {operator} undefined") is ERROR
    assert value(f"undefined {operator} 1") is UNDEFINED


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("9223372036854775807 + 1", -(2**63)),
        ("-7 / 2", -3),
        ("-7 % 2", -1),
        ("1 / 0", ERROR),
        ("1.0 / 0", ERROR),
        ("-1.0 / 0", -math.inf),
        ("5.5 % 2", ERROR),
        ("true + 1", 2),
        ("true & 1", ERROR),
        ("-true", ERROR),
        ("-1 >>> 1", 2**63 - 1),
        ('"a" + 1', ERROR),
        ("9007199254740993 == 9007199254740992.0", True),
        ('"ABC" == "abc"', True),
        ('"ABC" =?= "abc"', False),
        ('"_" < "a"', True),
        ('"1" == 1', ERROR),
        ("1 =?= 1.0", False),
        ("undefined =?= undefined", True),
        ("{1} =?= {1}", ERROR),
        ("undefined ? 1 : 2", UNDEFINED),
        ('"x" ? 1 : 2', ERROR),
        ("true ? 1 : error", 1),
        ("error ?: 1", ERROR),
        ("{1,2}[2]", ERROR),
        ("{[a=1],2}.a[1]", ERROR),
        ("{{[a=1]}}.a[0][0]", 1),
    ],
)
def test_operators_give_htcondors_values(text: str, expected: object) -> None:
    result = value(text)
    assert (result, type(result)) == (expected, type(expected))


def test_names_are_sought_outwards_and_evaluated_where_they_are_found() -> None:
    assert value("[x=1; inner=[y=x; x=2]].inner.y") == 2
    assert value("[x=1; y=x; inner=[x=2; z=y]].inner.z") == 1
    assert value("[a=[c=1]; b=7].a.b") == 7
    assert value('[a=[c=1]; b=7].a["b"]') is UNDEFINED
    assert value("[X=1].x") == 1


def test_special_names_mean_the_ad_they_start_from() -> None:
    scope = record({"a": 1, "n": {"a": 2}})
    assert value("n.parent.a", scope) == 1
    assert value("n.self.a", scope) == 2
    assert value("n.root.a", scope) == 1
    assert value(".a", scope) == 1


def test_lists_use_their_own_scope_when_indexed_and_the_callers_in_functions() -> None:
    scope = "[x=3; r=[x=50; l={x}]; first=r.l[0]; total=sum(r.l)]"
    assert value(f"{scope}.first") == 50
    assert value(f"{scope}.total") == 3


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[a=a+1].a", UNDEFINED),
        ("[a=b; b=a].a", UNDEFINED),
        ("[a = a ?: 4].a", 4),
        ("[x = x2+1; x2 = x is undefined ? 1 : 2].x", 2),
        ("[a=[b=a.b]].a.b", UNDEFINED),
    ],
)
def test_a_circular_reference_is_undefined(text: str, expected: object) -> None:
    assert value(text) == expected


def test_two_ads_see_each_other_as_target() -> None:
    job = record({"Owner": "ada", "Memory": 10})
    machine = record({"Memory": 64, "Arch": "X86_64"})
    mine = match_scope(job, machine)
    assert value("TARGET.Memory > MY.Memory", mine) is True
    assert value("Arch", mine) == "X86_64"  # found in the other ad
    assert value("TARGET.TARGET.Owner", mine) == "ada"


def test_an_ad_made_of_text_holds_plain_constants_as_one_made_of_a_mapping() -> None:
    made = ad('a = 1; b = "x"; c = true; d = undefined; e = -2.5; f = a + 1; A = 3')
    assert made.attributes == {
        **record({"a": 3, "b": "x", "c": True, "d": None, "e": -2.5}).attributes,
        "f": parse("a + 1"),
    }
    assert unparse(made) == (
        '[ a = 3; b = "x"; c = true; d = undefined; e = -2.500000000000000E+00; f = a + 1 ]'
    )


def test_an_ad_is_made_of_plain_values() -> None:
    ad = record({"Name": "h1", "Missing": None, "Nested": {"Deep": [1, {"x": 2}]}})
    assert value("name", ad) == "h1"
    assert value("Missing", ad) is UNDEFINED
    assert value("Nested.Deep[1].x", ad) == 2
    assert value("Nested.Deep[1].Name", ad) == "h1"  # nested ads climb too


def test_an_ad_refuses_what_it_cannot_hold() -> None:
    with pytest.raises(TypeError, match="attribute Sent: an ad cannot hold a object"):
        record({"Sent": object()})
    with pytest.raises(ValueError, match="attribute given twice"):
        record({"name": 1, "Name": 2})


def test_the_clock_is_only_what_is_passed_in() -> None:
    assert evaluate(parse("time()"), now=1000.9) == 1000
    assert evaluate(parse("CurrentTime"), record({}), now=1000.9) == 1000
    assert evaluate(parse("time()")) is UNDEFINED


DOUBLING = ";".join(f"s{i + 1} = strcat(s{i}, s{i})" for i in range(60))
HOSTILE = {
    "strings that double 60 times": f'[s0 = "ab"; {DOUBLING}].s60',
    "attributes that double 60 times": "["
    + ";".join(f"a{i + 1} = a{i} + a{i}" for i in range(60))
    + "; a0 = 1].a60",
    "a chain deeper than any sensible one": "a" + ".a" * 5000,
    "490 negations": "!" * 490 + "true",
    "replacements that multiply": '[a = "' + "a" * 1000 + '"; b = replaceall("a", a, a);'
    ' c = replaceall("a", b, b)].c',
    "thousands of long conversions": '[a = "'
    + "a," * 4000
    + '"; b = {'
    + "toUpper(a)," * 800
    + '1}; c = size(join(",", b))].c',
    "ads that make themselves": '[f = eval("[g = f; h = f.g.h].h")].f + error',
    "a pattern larger than its budget": 'regexp("(((a{100}){100}){100})", "a")',
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_text_ends_as_an_error_within_its_budget(text: str) -> None:
    expression, ad = parse(text), record({"a": {}})
    assert evaluate(expression, ad) is ERROR
    assert calls(lambda: evaluate(expression, ad)) < 10 * DEFAULT_LIMITS.steps


def test_a_pattern_that_makes_others_backtrack_comes_to_an_end() -> None:
    # A matcher that backtracks would need 2**5000 steps.
    assert value('regexp("(a+)+$", "' + "a" * 5000 + 'b")') is False


def test_long_chains_of_operators_need_no_depth() -> None:
    assert value("+".join(["1"] * 2000)) == 2000
    hosts = " || ".join(f'Name == "h{i}"' for i in range(500))
    assert value(hosts, record({"Name": "h499"})) is True


def links(expression: str, number: int) -> Record:
    """Return an ad in which each of many attributes is made of the next."""
    text = ";".join(f"a{i} = {expression.format(f'a{i + 1}')}" for i in range(number))
    return ad(f"{text}; a{number} = 0")


def ad(text: str) -> Record:
    return record_of(RecordNode(parse_definitions(text)))


# How many attributes may lead into each other; HTCondor's numbers are 399 for bare names and
# 199 for operators, and more than ours for calls, which cost Python several frames.
@pytest.mark.parametrize(
    ("expression", "most"),
    [
        ("{}", 399),
        ("({})", 199),
        ("{} + 1", 199),
        ("true && {}", 199),
        ("false ? 1 : {}", 199),
        ("undefined ?: {}", 199),
        ("- {}", 199),
        ("MY.{}", 133),
        ("int({})", 199),
        ("ifThenElse(true, {}, 1)", 79),
        ("sum({{{}}})", 57),
        ('eval("{}")', 79),
    ],
)
def test_depth_ends_at_a_number_whatever_the_callers_own(expression: str, most: int) -> None:
    def called_from(frames: int, scope: Record) -> Value:
        return called_from(frames - 1, scope) if frames else value("a0", scope)

    for frames in (0, 300 - len(inspect.stack())):
        assert called_from(frames, links(expression, most)) is not ERROR
        assert called_from(frames, links(expression, most + 1)) is ERROR


@pytest.mark.parametrize(
    "text",
    [
        "[a = a + 1; b = a ?: 7].b",
        "[l = {l}; b = 7].b",
        "[a = [b = a]; c = a.b.b.b.b; d = 7].d",
    ],
)
def test_what_leads_back_into_itself_does_no_harm(text: str) -> None:
    assert value(text) == 7


def test_the_budget_for_texts_of_clients_is_a_thousand_steps() -> None:
    short, long = "1" + " + 1" * 900, "1" + " + 1" * 1100
    assert evaluate(parse(short, max_bytes=MAX_CLIENT_TEXT_BYTES), limits=CLIENT_LIMITS) == 901
    with pytest.raises(ParseError, match="expected a text of at most 4096 bytes, found 4401"):
        parse(long, max_bytes=MAX_CLIENT_TEXT_BYTES)
    assert evaluate(parse(long), limits=CLIENT_LIMITS) is ERROR


def test_long_strings_cost_more_than_one_step() -> None:
    expression, ad = parse("size(s)"), record({"s": "a" * 6400})
    assert evaluate(expression, ad, limits=Limits(steps=200)) == 6400
    assert evaluate(expression, ad, limits=Limits(steps=50)) is ERROR


def test_without_an_ad_there_is_no_outermost_one() -> None:
    assert value("isError(.x)") is ERROR  # the whole evaluation fails
    assert value("isError(.x)", record({})) is False


def test_the_limits_are_the_callers() -> None:
    expression = parse("sum({1,2,3,4,5})")
    assert evaluate(expression, limits=Limits(steps=50)) == 15
    assert evaluate(expression, limits=Limits(steps=5)) is ERROR


@pytest.mark.parametrize("text", ["true && 5", "!0", "1 < 2"])
def test_conditions_give_booleans_not_numbers(text: str) -> None:
    assert value(text) is True
