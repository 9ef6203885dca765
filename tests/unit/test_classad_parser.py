from __future__ import annotations

import pytest

from gridbot_policies.classad import ERROR, ParseError, evaluate, parse, unparse
from gridbot_policies.classad.parser import MAX_NESTING, parse_definitions


@pytest.mark.parametrize(
    ("text", "grouped"),
    [
        ("1 + 2 * 3", "1 + (2 * 3)"),
        ("10 - 4 - 3", "(10 - 4) - 3"),
        ("1 << 2 + 1", "1 << (2 + 1)"),
        ("9 | 4 ^ 1 & 3", "9 | (4 ^ (1 & 3))"),
        ("1 == 1 && 2 < 3 || error", "((1 == 1) && (2 < 3)) || error"),
        ("7 =?= 3 < 2", "7 =?= (3 < 2)"),
        ("true ? 1 : false ? 2 : 3", "true ? 1 : (false ? 2 : 3)"),
        ("1 ? 0 ? 2 : 3 : 4", "1 ? (0 ? 2 : 3) : 4"),
        ("- 2 * 3", "(-2) * 3"),
        ("! false && false", "(! false) && false"),
        ("undefined ?: 3 * 2", "(undefined ?: 3) * 2"),
        ("2 * undefined ?: 3", "2 * (undefined ?: 3)"),
        ("undefined ?: 1 ? 2 : 3", "(undefined ?: 1) ? 2 : 3"),
        ("-undefined ?: 3", "-(undefined ?: 3)"),
    ],
)
def test_operators_bind_as_in_htcondor(text: str, grouped: str) -> None:
    assert evaluate(parse(text)) == evaluate(parse(grouped))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2 -1", 1),
        ("2--1", 3),
        ("- 5", -5),
        (".5", 0.5),
        ("1.5E-3", 0.0015),
        ("1e400", float("inf")),
        ("9223372036854775807", 2**63 - 1),
        ("9223372036854775808", 0),
        ("-9223372036854775808", -(2**63)),
        ('"a" "b"\n"c"', "abc"),
        (r'"\t\"\\\101\q\400"', '\t"\\Aq 0'),
        ("TRUE", True),
        ("1 IS 1", True),
        ("1 /* two\n lines */ + 1 // rest", 2),
        ("undefined ? : 3", 3),
        ("{1, 2}[1]", 2),
        ("[a = 1; ; b = a;].b", 1),
        ("[a = 1; A = 2].a", 2),
        ("['odd name' = 1].'odd name'", 1),
        ("[x=[y=1]]..x.y", 1),
        ("'strcat'(\"a\")", "a"),
        ("strcat(1; 2)", "12"),
        ("nosuchfunction(1)", ERROR),
    ],
)
def test_literals_and_forms_are_read(text: str, value: object) -> None:
    result = evaluate(parse(text))
    assert (result, type(result)) == (value, type(value))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1, column 1: expected an expression, found the end of the text"),
        ("a +\n  b + ;", "line 2, column 7: expected an expression, found ';'"),
        ("a b", "line 1, column 3: expected an operator or the end, found 'b'"),
        ("(1", "line 1, column 3: expected ')', found the end of the text"),
        ("{1 2}", "line 1, column 4: expected ',' or '}', found '2'"),
        ("f(1,)", "line 1, column 5: expected an expression, found ')'"),
        ("x.true", "line 1, column 3: expected an attribute name, found 'true'"),
        ("c ? 1", "line 1, column 6: expected ':', found the end of the text"),
        ("5M", "line 1, column 1: expected a number, found '5M'"),
        ("1.", "line 1, column 1: expected a number, found '1.'"),
        ("010", "line 1, column 1: expected an integer without leading zeros, found '010'"),
        ('"abc', 'line 1, column 1: expected the string to end with ", found the end of the text'),
        ("1 /* x", "expected the comment to end with '*/', found the end of the text"),
        (r'"\0"', "expected a string without NUL characters"),
        ("a $ b", "line 1, column 3: expected an expression or an operator, found '$'"),
        ("u ?: -x", "line 1, column 6: expected an expression, found '-'"),
        ('"a" /* not white space */ "b"', "column 27: expected an operator or the end"),
        ("[a = 1 b = 2]", "line 1, column 8: expected ';' or an operator, found 'b'"),
    ],
)
def test_an_error_says_where_and_what_was_expected(text: str, message: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse(text)
    assert message in str(caught.value)


def test_an_error_can_be_drawn_with_a_caret_under_the_place() -> None:
    with pytest.raises(ParseError) as caught:
        parse("Host.Memory > 100\n\t&& (Tail ||)")
    assert caught.value.pretty().splitlines()[1:] == ["  \t&& (Tail ||)", "  \t           ^"]
    assert (caught.value.line, caught.value.column) == (2, 13)


def test_nesting_has_a_limit_that_is_named() -> None:
    deep = MAX_NESTING - 1
    assert evaluate(parse("(" * deep + "1" + ")" * deep)) == 1
    with pytest.raises(ParseError, match=f"at most {MAX_NESTING} brackets inside each other"):
        parse("(" * 1_000_000)


@pytest.mark.parametrize("text", ["A = 1; b = A", "[ A = 1; b = A ]", ";A = 1;; b = A;"])
def test_definitions_need_no_brackets(text: str) -> None:
    assert [item.name for item in parse_definitions(text)] == ["A", "b"]


def test_text_after_the_closing_bracket_is_an_error() -> None:
    with pytest.raises(ParseError, match="column 10: expected the end, found ';'"):
        parse_definitions("[ A = 1 ];")


@pytest.mark.parametrize(
    ("text", "spelled"),
    [
        ("!a&&(b+1)*-c", " !a && (b + 1) *  -c"),
        ("a=?=b ? 1.5:{1,'two words'}", "a is b ? 1.500000000000000E+00 : { 1,'two words' }"),
        ("[a=1;b=F(.x)[0].y]", "[ a = 1; b = F(.x)[0].y ]"),
        (r'"tab\tquote\"bell\a\001"', r'"tab\tquote\"bell\a\001"'),
        ("x ?: 'is'", "x ?: 'is'"),
    ],
)
def test_unparse_spells_as_htcondor_does(text: str, spelled: str) -> None:
    assert unparse(parse(text)) == spelled


def test_unparse_manages_trees_deeper_than_python_recurses() -> None:
    assert unparse(parse("!" * 5000 + "x")).count("!") == 5000
