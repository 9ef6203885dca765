from __future__ import annotations

import inspect
import sys

import pytest
from tests.work import calls

from gridbot_policies.classad import ERROR, ParseError, evaluate, parse, record_of, unparse
from gridbot_policies.classad.lexer import MAX_WORDS
from gridbot_policies.classad.nodes import Call, Constant, Parenthesis, RecordNode
from gridbot_policies.classad.parser import MAX_NESTING, parse_definitions
from gridbot_policies.classad.values import AbsTime, RelTime


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
        ("a >\n\n", "line 1, column 4: expected an expression, found the end of the text"),
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


# What is written by people who know other languages: the place, and what to write instead.
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = 3", "column 3: expected an operator or the end, found '='; write == to compare"),
        ("a and b", "column 3: expected an operator or the end, found 'and'; write && for and"),
        ("a OR b", "column 3: expected an operator or the end, found 'OR'; write || for or"),
        ("not a", "column 5: expected an operator or the end, found 'a'; write ! for not"),
        ("a => 3", "column 3: expected an operator or the end, found '='; write >= for =>"),
        ("a =< 3", "column 3: expected an operator or the end, found '='; write <= for =<"),
        ("a <> 3", "column 4: expected an expression, found '>'; write != for <>"),
        ("a === b", "column 5: expected an expression, found '='; write == or"),
        ("a ! = b", "column 3: expected an operator or the end, found '!'; write != without a"),
        ("a =~ b", "column 3: expected an operator or the end, found '='; write regexp("),
        ("a in {1}", "column 3: expected an operator or the end, found 'in'; write member("),
        ("2 ** 3", "column 4: expected an expression, found '*'; write pow("),
        ("if a then b", "column 4: expected an operator or the end, found 'a'; write condition ?"),
        ("5M", "column 1: expected a number, found '5M'; write sizes in full"),
        ("4 GB", "column 3: expected an operator or the end, found 'GB'; write sizes in full"),
        ("1.", "column 1: expected a number, found '1.'; write a digit after the point"),
        ("x.true", "column 3: expected an attribute name, found 'true'; in single quotes"),
        ("f(1,)", "column 5: expected an expression, found ')'; leave out the last ,"),
        ("(a + f(b)", "found the end of the text; what opens at line 1, column 1 is not closed"),
        ("{1,\n f(2, 3}", "line 2, column 8: expected ',' or ')', found '}'"),
        ("[a = {1; b = 2]", "column 8: expected ',' or '}', found ';'"),
        ('"abc', 'column 1: expected the string to end with ", found the end of the text'),
        ("\u201cabc\u201d == x", "column 1: expected an expression or an operator, found '\u201c';"
         " write strings in straight quotes"),
        ("a;", "column 2: expected an operator or the end, found ';'; one expression by itself"),
        ("a # b", "column 3: expected an expression or an operator, found '#'; comments begin"),
        ("$(Cpus) > 1", "found '$'; only submit files know $(NAME)"),
        ('absTime("tomorrow")', 'column 1: expected a time like "2020-01-31T23:59:59+01:00"'),
        ('1 + relTime("soon")', 'column 5: expected a span of time like "1+23:59:59"'),
    ],
)  # fmt: skip
def test_a_slip_is_told_what_to_write_instead(text: str, message: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse(text)
    assert message in str(caught.value)
    assert caught.value.pretty().splitlines()[-1].strip() == "^"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = 1\nb = 2", "line 2, column 1: expected ';' or an operator, found 'b'; write ;"),
        ("a = 1, b = 2", "column 6: expected ';' or an operator, found ','; write ; between"),
        ("a: 1", "column 2: expected '=', found ':'; attributes are written [name = value]"),
        ("[a = 1; b = 2", "found the end of the text; what opens at line 1, column 1"),
        ("a = 1]", "column 6: expected ';' or an operator, found ']'"),
    ],
)
def test_a_slip_between_definitions_is_told_what_to_write(text: str, message: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse_definitions(text)
    assert message in str(caught.value)


def test_of_a_very_long_line_only_the_place_is_drawn() -> None:
    with pytest.raises(ParseError) as caught:
        parse("1 + " * 1000 + ")" + " + 1" * 1000)
    _, line, caret = caught.value.pretty().splitlines()
    assert len(line) < 130
    assert line[caret.index("^")] == ")"


def test_literal_times_are_read_with_the_text() -> None:
    assert parse('absTime("1970-01-02T00:00:00Z")') == Constant(AbsTime(86400, 0))
    assert parse('RELTIME("1:00")') == Constant(RelTime(60.0))
    assert isinstance(parse('absTime(("1970-01-02"))'), Call)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r'"\303\251"', "é"),
        (r'"\303" "\251"', "é"),
        (r'"\1" "01"', "A"),  # pieces are joined before escapes are read
        (r'"\377"', "\udcff"),
        (r'"\777"', "?7"),
        ('"é"', "é"),
    ],
)
def test_strings_are_bytes_that_may_form_characters(text: str, value: str) -> None:
    assert evaluate(parse(text)) == value
    assert evaluate(parse(unparse(parse(text)))) == value


def test_an_error_can_be_drawn_with_a_caret_under_the_place() -> None:
    with pytest.raises(ParseError) as caught:
        parse("Host.Memory > 100\n\t&& (Tail ||)")
    assert caught.value.pretty().splitlines()[1:] == ["  \t&& (Tail ||)", "  \t           ^"]
    assert (caught.value.line, caught.value.column) == (2, 13)


# What HTCondor's parser just takes, and one more of the same.
@pytest.mark.parametrize(
    ("begin", "middle", "end", "most"),
    [
        ("(", "1", ")", 165),
        ("{", "1", "}", 165),
        ("[a = ", "1", "]", 165),
        ("f(", "1", ")", 165),
        ("a[", "0", "]", 165),
        ("1 + 2 * (", "1", ")", 165),
        ("!(", "1", ")", 124),
        ("u ?: (", "1", ")", 124),
        ("true ? (", "1", ") : 2", 124),
        ("!", "true", "", 497),
        ("- ", "5", "", 497),
        ("u ?: ", "1", "", 497),
        ("false ? 1 : ", "1", "", 497),
        ("true ? ", "1", ": 2", 497),
    ],
)
def test_nesting_ends_where_htcondors_does(begin: str, middle: str, end: str, most: int) -> None:
    parse(begin * most + middle + end * most)
    with pytest.raises(ParseError, match=f"at most {MAX_NESTING} brackets inside each other"):
        parse(begin * (most + 1) + middle + end * (most + 1))


def test_the_parser_needs_no_depth_of_its_callers_stack() -> None:
    def called_from(frames: int) -> object:
        return called_from(frames - 1) if frames else parse("(" * 165 + "1" + ")" * 165)

    free = sys.getrecursionlimit() - len(inspect.stack())
    assert isinstance(called_from(free - 40), Parenthesis)


def test_long_chains_need_no_nesting() -> None:
    assert unparse(parse("1" + " + 1" * 8_000)).count("+") == 8_000
    parse("x" + ".a" * 8_000)


def refuse(text: str) -> None:
    with pytest.raises(ParseError):
        parse(text)


@pytest.mark.parametrize("text", ["(" * 10**6, "!" * 10**6, "1" + "+1" * 10**6, "a" * 10**6])
def test_a_text_of_a_megabyte_is_refused_without_reading_it(text: str) -> None:
    with pytest.raises(ParseError, match="expected a text of at most 65536 bytes, found"):
        parse(text)
    assert calls(lambda: refuse(text)) < 500


@pytest.mark.parametrize("text", ["1" + "+1" * 30_000, "{" + "a," * 30_000, "[" + ";" * 60_000])
def test_a_text_has_a_most_number_of_words(text: str) -> None:
    with pytest.raises(ParseError, match=f"expected a text of at most {MAX_WORDS} words"):
        parse(text)


@pytest.mark.parametrize("text", ["(" * 60_000, "!" * 60_000, "{[a=(" * 12_000])
def test_deep_nesting_is_refused_without_looking_at_the_rest(text: str) -> None:
    with pytest.raises(ParseError, match=f"at most {MAX_NESTING} brackets inside each other"):
        parse(text)
    assert calls(lambda: refuse(text)) < 10_000


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


def test_unparse_manages_deep_trees() -> None:
    assert unparse(parse("!" * 497 + "x")).count("!") == 497


@pytest.mark.parametrize(
    ("text", "spread"),
    [
        ("{3, {1}}", "\n   {\n      3,\n      \n         {\n            1\n         }\n   }"),
        ("[b = 2; a = 1]", "\n    [\n        a = 1; \n        b = 2\n    ]"),
        ("[a = {}]", "\n    [\n        a = \n           {\n           }\n    ]"),
        ("f({1}) + x", "f(\n   {\n      1\n   }) + x"),
        ("[]", "\n    [\n    ]"),
    ],
)
def test_the_function_unparse_spreads_lists_and_ads_over_lines(text: str, spread: str) -> None:
    ad = record_of(RecordNode(parse_definitions(f"x = {text}")))
    assert evaluate(parse("unparse(x)"), ad) == spread


def test_what_eval_takes_may_go_on_behind_a_choice() -> None:
    assert evaluate(parse('eval("1 ? 2 : 3 4")')) == 2
    assert evaluate(parse('eval("(1 ? 2 : 3) 4")')) is ERROR
    assert evaluate(parse('eval("1 4")')) is ERROR


def test_texts_for_people_keep_every_digit_and_functions_keep_htcondors() -> None:
    assert unparse(evaluate(parse("0.1 + 0.2"))) == "3.0000000000000004E-01"
    assert evaluate(parse("string(0.1 + 0.2)")) == "3.000000000000000E-01"
    assert unparse(parse("a.'b c' + 'is'('é')")) == "a.'b c' + 'is'('é')"
    assert evaluate(parse("string({a.'b c' + 'is'('é')})")) == r"{ a.b c + is('\303\251') }"
