from __future__ import annotations

import pytest

from gridbot_policies.classad import CLIENT_LIMITS, ERROR, Limits, evaluate, parse, record

N = 65_000
AD = record(
    {
        "A": "a" * N,
        "AB": "a" * (N - 1) + "b",
        "Nines": "9" * N,
        "Dots": "1." * (N // 2),
        "Commas": "," * N,
        "Items": ",a" * (N // 2),
        "Blanks": " " * N,
        "Colons": ":" * N,
        "Quotes": "'" * N,
        "Braces": "(" * N,
        "Sum": "x+" * (N // 2) + "1",
        "Env": "A=1;" * (N // 4),
        "Lines": " \n" * (N // 2),
        "Percent": "%c" * (N // 2),
        "Wide": "%999c" * (N // 5),
        "Texts": ["a,b"] * 10_000,
        "Numbers": list(range(9_000)),
    }
)

# Long arguments that cost no more than they should.
ANSWERED: dict[str, object] = {
    "int(Nines)": -(2**63),
    "real(Nines)": float("inf"),
    "versioncmp(Nines, Nines)": 0,
    "versioncmp(Dots, strcat(Dots, 1))": -49,
    "version_in_range(Nines, Nines, Nines)": True,
    "strcmp(A, AB)": -1,
    "size(substr(A, 1))": N - 1,
    "size(toUpper(A))": N,
    "size(split(Blanks))": 0,
    "stringListSize(Items)": N // 2,
    'stringListMember("b", Items)': False,
    "stringListsIntersect(Items, Items)": True,
    "sum(Numbers)": 40_495_500,
    'regexp("(a+)+$", AB)': False,
    'regexp("(a|aa)+$", A)': True,
    r'regexp("\\s*$", Lines)': True,
    'size(replace("a+", A, "b"))': 1,
    "size(argsToList(A))": 1,
    "size(argsToList(Quotes)[0])": N // 2 - 1,
    'anyCompare(">", Numbers, 100)': True,
}


@pytest.mark.parametrize("text", ANSWERED)
def test_long_arguments_are_answered_within_the_budget(text: str) -> None:
    assert evaluate(parse(text), AD) == ANSWERED[text]


REFUSED = [
    "strcat(A, A)",
    "join(A, Numbers)",
    'join("\u00e9", Texts)[0]',
    "string(Texts)",
    "split(Items)",
    "stringListSum(strcat(1, Commas))",
    "formatTime(0, Percent)",
    "formatTime(0, Wide)",
    "eval(Braces)",
    "eval(Sum)",
    "regexp(A, A)",
    "regexp(Braces, A)",
    'regexp("(a{1,30}){1,30}z", A)',
    'regexp("(?:a?){900}z", A)',
    'regexp("((((a{10}){10}){10}){10})", A)',
    'regexpMember("a.*z", Texts)',
    'stringList_regexpMember("b", Items)',
    'replaceall("a", A, "bb")',
    'replaceall("a.*b|a", A, "b")',
    'replaceall("", A, "b")',
    'mergeEnvironment(replaceall(";", Env, " "))',
    "countMatches(x, Numbers) + countMatches(x, Numbers)",
    "quantize(20000, Numbers) + quantize(20000, Numbers)",
    "max({sum(Numbers), sum(Numbers)})",
]


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_too_much_is_an_error(text: str) -> None:
    assert evaluate(parse(text), AD) is ERROR


@pytest.mark.parametrize(
    "text", ['relTime("{}")', 'absTime("{}")', 'regexp("{}", "a")', 'argsToList("{}")']
)
@pytest.mark.parametrize("char", [":", " ", "9", "(", "[[:", "'"])
def test_a_long_argument_in_the_text_ends_somehow(text: str, char: str) -> None:
    source = f"isError(eval(Text)) || true || {len(text)}"
    ad = record({"Text": text.format(char * (8_000 // len(char)))})
    assert evaluate(parse(source), ad) in (True, ERROR)


def test_a_pattern_costs_the_same_whether_or_not_it_was_asked_before() -> None:
    expression = parse('regexp("never asked before [0-9]+", "x")')
    enough = next(
        steps for steps in range(200) if evaluate(expression, limits=Limits(steps=steps)) is False
    )
    assert enough > 20
    assert evaluate(expression, limits=Limits(steps=enough - 1)) is ERROR
    assert evaluate(expression, limits=Limits(steps=enough)) is False


def test_what_clients_send_may_use_ordinary_patterns() -> None:
    requirements = parse(
        'regexp("^slot[0-9]+@.*[.]example[.]org$", Machine, "i") && stringListMember("x86", Arch)'
    )
    host = record({"Machine": "Slot1@node7.example.org", "Arch": "x86, arm"})
    assert evaluate(requirements, host, limits=CLIENT_LIMITS) is True
