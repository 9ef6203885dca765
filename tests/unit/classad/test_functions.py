from __future__ import annotations

import pytest

from gridbot_policies.classad import (
    ERROR,
    UNDEFINED,
    Record,
    evaluate,
    match_scope,
    parse,
    record,
    unparse,
)

# Each value is what HTCondor's library gives.
CASES: dict[str, object] = {
    # types and conversion
    "isUndefined(nothing)": True,
    "isError(1/0)": True,
    "isInteger(true)": False,
    "isBoolean(1)": False,
    "isReal(1)": False,
    'int("12abc")': 12,
    'int(" 7.9 ")': 7,
    "int(7.9)": 7,
    "int(1e19)": -(2**63),
    'int("abc")': ERROR,
    "int(relTime(-1.75))": -1,
    "int(undefined)": UNDEFINED,
    'real("0x10")': 16.0,
    'real("0x1p3")': 8.0,
    'real("-0x1p9999")': float("-inf"),
    'real("3.5abc")': 3.5,
    'real("infinite")': float("inf"),
    'real("1e9999")': float("inf"),
    "real(relTime(1.75))": 1.0,
    "string(2.5)": "2.500000000000000E+00",
    "string({1, x})": "{ 1,x }",
    "string(absTime(0))": "1970-01-01T00:00:00-00:00",
    "string(relTime(93784))": "1+02:03:04",
    'bool("TRUE")': True,
    'bool("yes")': UNDEFINED,
    "bool(relTime(0.5))": False,
    "bool(absTime(1))": ERROR,
    "ifThenElse(undefined, 1, 2)": UNDEFINED,
    "ifThenElse(1, 2, error)": 2,
    'ifThenElse("true", 1, 2)': ERROR,
    'eval("x + 1")': 5,
    'eval("x +")': ERROR,
    "eval(undefined)": ERROR,
    "unparse(sum)": "x + 1",
    "unparse(nothing)": "",
    "unparse(1)": ERROR,
    # numbers
    "floor(-2.5)": -3,
    "round(2.5)": 2,
    'ceil("1.2")': 2,
    "ceiling(relTime(1.75))": 1,
    "floor(1e300)": -(2**63),
    "round(undefined)": ERROR,
    "pow(2, 10)": 1024,
    "pow(-2, 3)": -7,
    "pow(2.0, -1)": 0.5,
    "pow(0, -1)": float("inf"),
    "quantize(10, 4)": 12,
    "quantize(-3, 8)": 0,
    "quantize(3, {2, 5})": 5,
    "quantize(7, {2, 5})": 10,
    "quantize(7, {})": 7,
    "quantize(7.5, 0)": 7.5,
    'quantize(real("inf"), -0.5)': float("inf"),
    "sum({1, undefined, 2.5})": 3.5,
    "sum({true})": True,
    "avg({})": 0,
    "avg({1, 2})": 1.5,
    "max({3, 2.5})": 3.0,
    "max({true, 0})": 1,
    "min({})": UNDEFINED,
    'min({"a"})': ERROR,
    "random(0)": ERROR,
    "isError(random(0))": ERROR,
    "random(true)": ERROR,
    # lists
    'size("caf\u00e9")': 5,
    "size({1, 2})": 2,
    "size([a = 1])": 1,
    "size(1)": ERROR,
    'member("B", {"a", "b"})': True,
    'member(undefined, {"a"})': UNDEFINED,
    "member({1}, {{1}})": ERROR,
    'identicalMember("B", {"a", "b"})': False,
    "identicalMember(undefined, {undefined})": True,
    'anyCompare("<", {3, 1}, 2)': True,
    'anyCompare("==", {undefined, 1}, 1)': False,
    'anyCompare("=<", undefined, 1)': ERROR,
    'anyCompare("<", undefined, 1)': UNDEFINED,
    'allCompare("<", {3, 1}, 2)': False,
    'allCompare("<", {}, 2)': True,
    'join("-", {1, undefined, "b"})': "1-b",
    'join("-", "", "", "a", "", "b")': "a--b",
    "join({undefined})": UNDEFINED,
    'join("a")': "",
    'size(split("a,,b c"))': 4,
    'split("a, ,b")[1]': "",
    'size(split(" ,a;b, "))': 1,
    'split("a\u00e9b", "\u00e9")[1]': "b",
    'splitUserName("u@d")[1]': "d",
    'splitUserName("u")[1]': "",
    'splitSlotName("h")[1]': "h",
    "countMatches(v > 1, {[v=1], [v=2], [v=3]})": 2,
    "countMatches(Best, GPUs)": 1,
    "countMatches(Best, undefined)": 0,
    "sum(evalInEachContext(v, {[v=1], [v=2]}))": 3,
    "evalInEachContext(Cap, GPUs)[1]": 8,
    "isError(evalInEachContext(Cap, GPUs)[2])": True,
    # strings
    'strcat("a", 1, true)': "a1true",
    'strcat("a", undefined, error)': UNDEFINED,
    "strcat()": "",
    'toUpper("abc\u00e9")': "ABC\u00e9",
    "toLower({A})": "{ a }",
    'substr("abcdef", -3, 2)': "de",
    'substr("abcdef", 1, -1)': "bcde",
    'substr("abcdef", -9, 1)': "a",
    'substr("abcdef", 9223372036854775807)': "f",
    'substr("abc", true)': ERROR,
    "substr(1, undefined)": UNDEFINED,
    'strcmp("a", "B")': 1,
    'stricmp("a", "B")': -1,
    'strcmp("\u00e9", "z")': 1,
    "strcmp(error, undefined)": UNDEFINED,
    'versionLT("1.9", "1.10")': True,
    'versioncmp("a01", "a1")': -1,
    'versioncmp("1.100", "1.9")': 2,
    'versioncmp("\u00e9", "z")': -183,
    'version_in_range("8.9.12", "8.9", "8.10")': True,
    'version_in_range(undefined, "8.9", "8.10")': ERROR,
    'stringListMember("b", "a, b")': True,
    'stringListMember("c", "a,\\vc\\f", ",")': True,
    'stringListIMember("B", "a, b")': True,
    'stringListMember(undefined, "a")': False,
    "stringListMember(undefined, undefined)": UNDEFINED,
    'stringListSubsetMatch("a,b", "c, b, a")': True,
    'stringListSubsetMatch("", "a")': True,
    'stringListSubsetMatch(" ", "a")': False,
    'stringListsIntersect("a,b", "b,c")': True,
    'stringListsIntersect(" a", "a", ",")': False,
    'stringListsIntersect("a b", "b", "")': True,
    'stringListSize("a,, b")': 2,
    'stringListSize("a b", "")': 1,
    'stringListSum("1,2.5")': 3.5,
    'stringListSum("1, x")': ERROR,
    'stringListSum("0x10,0x")': ERROR,
    'stringListAvg("1,2")': 1,
    'stringListMax("-5,-6")': 0,
    'stringListMin("3, 1.5")': 1.5,
    'stringListMin("")': UNDEFINED,
    # wrong use
    "size()": ERROR,
    "size(1, 2)": ERROR,
    "member(1, 2)": ERROR,
    "noSuchFunction(1)": ERROR,
}


@pytest.mark.parametrize("text", CASES)
def test_functions_give_htcondors_values(text: str) -> None:
    scope = evaluate(
        parse("[x = 4; sum = x + 1; GPUs = {[Cap = 4], [Cap = 8], 5}; Best = Cap > 5]")
    )
    result = evaluate(parse(text), scope)  # type: ignore[arg-type]  # an ad
    assert (result, type(result)) == (CASES[text], type(CASES[text]))


def test_values_that_came_from_python_are_taken_as_they_are() -> None:
    ad = record({"Hosts": ["a", "b"], "Odd": "\ud800"})
    assert evaluate(parse('member("B", Hosts)'), ad) is True
    assert evaluate(parse("size(Odd)"), ad) == 1
    assert unparse(ad) == '[ Odd = "\ud800"; Hosts = { "a","b" } ]'


def test_nothing_is_random_where_the_same_ads_must_give_the_same_value() -> None:
    assert evaluate(parse("random()")) is UNDEFINED
    assert evaluate(parse("random(6)")) is UNDEFINED


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("int(relTime(3e9))", 3_000_000_000),
        ("string(relTime(3e9))", "34722+05:20:00"),
        ("getDays(relTime(3e9))", 34722),
    ],
)
def test_long_spans_are_right_though_htcondor_cuts_them_to_68_years(
    text: str, value: object
) -> None:
    assert evaluate(parse(text)) == value


def test_a_list_is_sought_where_the_search_for_the_name_before_it_ended() -> None:
    text = "[v = 1; l = {[]}; r = [l = {[], []}; here = countMatches(v, l)]]"
    assert evaluate(parse("r.here"), evaluate(parse(text))) == 1  # type: ignore[arg-type]  # an ad


def test_nested_ads_face_the_other_side_of_a_match_too() -> None:
    mine = evaluate(parse("[GPUs = {[Cap = 4], [Cap = 9]}]"))
    target = evaluate(parse("[Least = 5]"))
    assert isinstance(mine, Record)
    assert isinstance(target, Record)
    scope = match_scope(mine, target)
    assert evaluate(parse("countMatches(Cap >= Least, GPUs)"), scope) == 1
    assert evaluate(parse("countMatches(Cap >= Least, GPUs)"), scope, strict=True) == 0
    assert evaluate(parse("countMatches(Cap >= TARGET.Least, GPUs)"), scope, strict=True) == 1
