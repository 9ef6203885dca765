from __future__ import annotations

import pytest

from gridbot_policies.classad import ERROR, UNDEFINED, evaluate, parse, record
from gridbot_policies.classad.functions.regex import refusal

# Each value is what HTCondor's library gives.
SYNTAX: dict[tuple[str, str], bool] = {
    ("a$", "a\n"): True,
    ("a$", "a\n\n"): False,
    (r"a\Z", "a\n"): True,
    (r"a\z", "a\n"): False,
    ("(a|b$)", "xb\n"): True,
    ("(?m)^b$", "a\nb\nc"): True,
    ("a.c", "a\nc"): False,
    ("(?s)a.c", "a\nc"): True,
    (r"^\h\v$", " \x0b"): True,
    (r"\s", "\x0b"): True,
    (r"\N", "\n"): False,
    (r"^\Qa.b\E+$", "a.bb"): True,
    (r"[\Qa]\E]", "]"): True,
    ("^[]a]+$", "a]"): True,
    ("[^]a]", "]"): False,
    ("^[a-c-]+$", "a-c"): True,
    ("^[[:alpha:][:digit:]_.-]+$", "A1_.-"): True,
    ("[[:^alpha:]]", "a"): False,
    (r"^[\w\s]+$", "a b"): True,
    (r"[\b]", "\b"): True,
    ("^a{,2}$", "a{,2}"): True,
    ("^a{2}$", "aa"): True,
    ("a{ 1}", "a{ 1}"): True,
    ("(|a)b||c", ""): True,
    ("(?<first>a)(?P<second>b)(?'third'c)", "abc"): True,
    ("(a(?i)b|c)d", "Cd"): True,
    ("(a(?i)b|c)d", "cD"): False,
    ("a(?i:B)c", "abc"): True,
    ("(?i)[^[:upper:]]", "a"): False,
    ("(?x) a b # c", "ab"): True,
    ("(?#comment)a", "a"): True,
    (r"^\x61\x{62}\o{143}\104\cA\e$", "abcD\x01\x1b"): True,
    (r"\10", "\b"): True,
    (r"^\p{Lu}\P{L}\pL$", "A1b"): True,
    ("^.$", "é"): False,
    ("^..$", "é"): True,
    ("(?i)É", "é"): False,
    (r"\w", "é"): False,
    (r"^\D\W\S\H\V$", "a-a-a"): True,
}


@pytest.mark.parametrize(("pattern", "text"), SYNTAX)
def test_patterns_mean_what_they_mean_in_htcondor(pattern: str, text: str) -> None:
    ad = record({"Pattern": pattern, "Text": text})
    assert evaluate(parse("regexp(Pattern, Text)"), ad) is SYNTAX[pattern, text]
    assert refusal(pattern) is None


WRONG = [
    *("(", ")", "[a", "a{2,1}", "*a", "a**", "a{2}{3}", "^*", r"\b+", "(?i)*", "|*", "a\\", r"\i"),
    *("[z-a]", r"[a-\d]", "[[:foo:]]", "[:alpha:]", "[[.a.]]", "(?<n>a)(?<n>b)"),
    *(r"\x{100}", r"\o{400}", r"[\B]", "(?z)", "(?<1>a)", r"\N{U}", "a{70000}"),
]


@pytest.mark.parametrize("pattern", WRONG)
def test_a_pattern_that_is_wrong_is_an_error_and_matches_no_element(pattern: str) -> None:
    ad = record({"Pattern": pattern})
    assert evaluate(parse('regexp(Pattern, "a", "x")'), ad) is ERROR
    assert evaluate(parse('stringList_regexpMember(Pattern, "a")'), ad) is ERROR
    assert evaluate(parse('regexpMember(Pattern, {"a"})'), ad) is False
    assert evaluate(parse('regexpMember(Pattern, {undefined, "a"})'), ad) is UNDEFINED
    assert refusal(pattern, "x") is not None


INEXPRESSIBLE = {
    "a(?=b)": "look-ahead",
    "(?<!a)b": "look-behind",
    "(?>a)": "an atomic group",
    r"(a)\1": r"a back-reference \1",
    r"(?<n>a)\k<n>": "a back-reference",
    "a++": "a possessive quantifier",
    "(?R)": "a recursion",
    "(?(1)a|b)": "a condition",
    "(?|a|b)": "a branch reset",
    "(*UTF)a": "a verb",
    r"a\Kb": r"\G, \K or \X",
    r"\R": r"write \r?\n",
    "a{2000}": "repeats more than 1000 times; repeat less",
    "(((a{20}){20}){20})": "the pattern is too large once its repetitions are written out",
    "a" * 5000: "a pattern of 5000 bytes is too long",
    "(" * 101 + ")" * 101: "groups nest deeper than 100",
}


@pytest.mark.parametrize("pattern", INEXPRESSIBLE)
def test_what_linear_time_cannot_match_is_an_error_and_says_why(pattern: str) -> None:
    ad = record({"Pattern": pattern})
    assert evaluate(parse('regexp(Pattern, "ab")'), ad) is ERROR
    assert evaluate(parse('regexpMember(Pattern, {"ab"})'), ad) is ERROR
    why = refusal(pattern)
    assert why is not None and INEXPRESSIBLE[pattern] in why


REPLACEMENTS: dict[str, object] = {
    r'regexps("(.)@(.)", "u@d", "\\2\\1")': "du",
    r'regexps("b", "abc", "<\\0>")': "<b>",
    r'regexps("x", "abc", "y")': "",
    r'regexps("(a)(b)?", "a", "\\2")': ERROR,
    r'regexps("(a)?(b)", "b", "[\\1]")': "[]",
    r'regexps("b", "abcb", "-", "f")': "a-cb",
    r'regexps("b", "abcb", "-", "g")': "--",
    r'regexps("b", "b", "\\x\\\\0\\")': r"\x\b" + "\\",
    r'replace("B", "abcb", "-", "i")': "a-cb",
    r'replaceall("b", "abcb", "-")': "a-c-",
    r'replaceall("^", "ab", "-")': "-ab",
    r'replaceall("\\b", "a b", "|")': ERROR,
    r'replaceall("x*", "abc", "-")': ERROR,
    r'replaceall("", "abc", "-")': ERROR,
    r'replace("b$", "ab\n", "-")': "a-\n",
    r'replace("(b$)", "ab\n", "<\\1>")': "a<b>\n",
    r'replaceall("\\s+$", "ab \n", "")': "ab",
    'size(regexps(".", "\u00e9", "\\\\0"))': 1,
    'replaceall(".", "\u00e9", "\\\\0")': "\u00e9",
    'replace("(", "a", "b")': ERROR,
    'replace("a", undefined, "b")': UNDEFINED,
    'replace("a", undefined, error)': ERROR,
    'replace("a", 1, "b")': ERROR,
    'regexp("a b", "ab", "xq")': True,
    'regexp("A", "a", "I")': False,
    'stringList_regexpMember("A", "b, a", ",", "I")': True,
    'stringList_regexpMember("a", "")': UNDEFINED,
    'regexpMember("^b", {"a", undefined, "bc"})': True,
    'regexpMember("^b", {"a", 1, "bc"})': ERROR,
}


@pytest.mark.parametrize("text", REPLACEMENTS)
def test_functions_of_patterns_give_htcondors_values(text: str) -> None:
    result = evaluate(parse(text))
    assert (result, type(result)) == (REPLACEMENTS[text], type(REPLACEMENTS[text]))


@pytest.mark.parametrize(
    "text",
    [
        'regexp("a$\\n", "a\\n")',
        'regexp("(?m)^$", "a\\n")',
        'replaceall("^a??", "aab", "-")',
        'regexps("(a|)+", "aab", "\\\\1")',
    ],
)
def test_where_the_engines_differ_no_answer_is_guessed(text: str) -> None:
    assert evaluate(parse(text)) is ERROR


def test_a_character_cut_into_bytes_becomes_whole_again() -> None:
    halves = """{regexps("^.", "\u00e9", "\\\\0"), substr("\u00e9", 1)}"""
    assert evaluate(parse(f"strcat({halves}[0], {halves}[1])")) == "\u00e9"
    assert evaluate(parse(f"join({halves})")) == "\u00e9"
