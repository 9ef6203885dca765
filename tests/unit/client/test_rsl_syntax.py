"""RSL is read and written as GRAM's own parser does."""

from __future__ import annotations

import pytest

from gridbot.api.errors import BadInput
from gridbot.rsl.syntax import Joined, Relation, RslVariable, Specs, Variables, parse, written

ACCEPTED = [
    "&(x = (1 1) )",
    "+(&(x < 1))",
    "&(rsl_substitution = (x y))(z = $(x))",
    "x = 1",
    'executable = "/bin/a ""b"" c"',
    "x = ^%100%% sure%",
    "&(x = $(A)b$(C d)'e')",
    "& (* what (it) does *) (a = 'it''s') (b != 2 3)",
    "+(&(a=1))(&(b>=2))",
    "|(&(a=1))(b<=2)",
    "x = a+b&c|d",
]
REFUSED = [
    "x = 1(",
    "(&x = 1)",
    "&(x y = 1 1 )",
    "&&(+(x < 1))",
    "",
    "&",
    "x =",
    "x = 'a",
    "x = $x",
]


@pytest.mark.parametrize("text", ACCEPTED)
def test_what_is_written_reads_the_same(text: str) -> None:
    spec = parse(text)
    assert parse(written(spec)) == spec


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_no_rsl_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(BadInput, match=r"RSL, line 1, column \d+"):
        parse(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("&(x =\n", "line 2, column 1: a value was expected, not 'the end': $"),
        ("&(x = 1\f\n)(y", "line 2, column 4: one of .* not 'the end': \\)\\(y$"),
    ],
)
def test_the_line_of_an_error_is_shown(text: str, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        parse(text)


def test_what_touches_a_variable_is_joined_to_it() -> None:
    assert parse("x = a$(B)c d # e") == Relation(
        "x", "=", (Joined(("a", RslVariable("B"), "c")), Joined(("d", "e")))
    )
    assert parse("x = a $(B) c") == Relation("x", "=", ("a", RslVariable("B"), "c"))


def test_names_of_attributes_count_without_case_and_underscores() -> None:
    spec = parse("&(maxWallTime = 1)(max_wall_time = 1)")
    assert isinstance(spec, Specs)
    assert {item.name for item in spec.items if isinstance(item, Relation)} == {"maxwalltime"}


def test_variables_are_replaced_or_take_their_default() -> None:
    spec = parse("x = $(HOME)/data $(N 5) ($(HOME))")
    assert isinstance(spec, Relation)
    found = [*map(Variables({"HOME": "/home/ada"}).substituted, spec.values)]
    assert found == ["/home/ada/data", "5", ("/home/ada",)]
    with pytest.raises(BadInput, match="nothing defines the variable HOME"):
        Variables({}).substituted(spec.values[0])


def test_deep_parentheses_are_refused() -> None:
    with pytest.raises(BadInput, match="at most 100"):
        parse("&(" * 500 + "x = 1" + ")" * 500)
    with pytest.raises(BadInput, match="at most 100"):
        parse("x = " + "(" * 500 + "1" + ")" * 500)
