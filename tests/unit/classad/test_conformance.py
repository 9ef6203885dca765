from __future__ import annotations

import pytest

from gridbot_policies.classad import (
    Record,
    Value,
    evaluate,
    match_scope,
    parse,
    parse_definitions,
    record_of,
)
from gridbot_policies.classad.nodes import RecordNode
from gridbot_policies.classad.values import AbsTime, ListValue, Missing, RelTime

# Everything here was observed in HTCondor 25.14.1.

OPERANDS = (
    "true", "7", "2.5", '"a"', "undefined", "error", "{1}", "[a=1]",
    "absTime(100,0)", "relTime(60)",
)  # fmt: skip

# A row per left operand, a column per right one. T and F are booleans, U and E what is missing;
# a100 and r60.0 are a moment and a span of time.
TABLES = {
    "+": """
        2 8 3.5 E U E E E E E
        8 14 9.5 E U E E E E E
        3.5 9.5 5.0 E U E E E E E
        E E E E U E E E E E
        U U U U U E U U U U
        E E E E E E E E E E
        E E E E U E E E E E
        E E E E U E E E E E
        E E E E U E E E E a160
        E E E E U E E E a160 r120.0""",
    "-": """
        0 -6 -1.5 E U E E E E E
        6 0 4.5 E U E E E E E
        1.5 -4.5 0.0 E U E E E E E
        E E E E U E E E E E
        U U U U U E U U U U
        E E E E E E E E E E
        E E E E U E E E E E
        E E E E U E E E E E
        E E E E U E E E r0.0 a40
        E E E E U E E E E r0.0""",
    "*": """
        1 7 2.5 E U E E E E E
        7 49 17.5 E U E E E E r420.0
        2.5 17.5 6.25 E U E E E E r150.0
        E E E E U E E E E E
        U U U U U E U U U U
        E E E E E E E E E E
        E E E E U E E E E E
        E E E E U E E E E E
        E E E E U E E E E E
        E r420.0 r150.0 E U E E E E E""",
    "/": """
        1 0 0.4 E U E E E E E
        7 1 2.8 E U E E E E E
        2.5 0.35714285714285715 1.0 E U E E E E E
        E E E E U E E E E E
        U U U U U E U U U U
        E E E E E E E E E E
        E E E E U E E E E E
        E E E E U E E E E E
        E E E E U E E E E E
        E r8.571428571428571 r24.0 E U E E E E E""",
    "%": """
        0 1 E E U E E E E E
        0 0 E E U E E E E E
        E E E E U E E E E E
        E E E E U E E E E E
        U U U U U E U U U U
        E E E E E E E E E E
        E E E E U E E E E E
        E E E E U E E E E E
        E E E E U E E E E E
        E E E E U E E E E E""",
    "==": """
        T F F E U E E E E E
        F T F E U E E E E E
        F F T E U E E E E E
        E E E T U E E E E E
        U U U U U E U U U U
        E E E E E E E E E E
        E E E E U E E E E E
        E E E E U E E E E E
        E E E E U E E E T E
        E E E E U E E E E T""",
    "<": """
        F T T E U E E E E E
        F F F E U E E E E E
        F T F E U E E E E E
        E E E F U E E E E E
        U U U U U E U U U U
        E E E E E E E E E E
        E E E E U E E E E E
        E E E E U E E E E E
        E E E E U E E E F E
        E E E E U E E E E F""",
    ">=": """
        T F F E U E E E E E
        T T T E U E E E E E
        T F T E U E E E E E
        E E E T U E E E E E
        U U U U U E U U U U
        E E E E E E E E E E
        E E E E U E E E E E
        E E E E U E E E E E
        E E E E U E E E T E
        E E E E U E E E E T""",
    "=?=": """
        T F F F F F F F F F
        F T F F F F F F F F
        F F T F F F F F F F
        F F F T F F F F F F
        F F F F T F F F F F
        F F F F F T F F F F
        F F F F F F E F F F
        F F F F F F F E F F
        F F F F F F F F T F
        F F F F F F F F F T""",
    "=!=": """
        F T T T T T T T T T
        T F T T T T T T T T
        T T F T T T T T T T
        T T T F T T T T T T
        T T T T F T T T T T
        T T T T T F T T T T
        T T T T T T E T T T
        T T T T T T T E T T
        T T T T T T T T F T
        T T T T T T T T T F""",
    "&": """
        E E E E U E E E E E
        E 7 E E U E E E E E
        E E E E U E E E E E
        E E E E U E E E E E
        U U U U U E U U U U
        E E E E E E E E E E
        E E E E U E E E E E
        E E E E U E E E E E
        E E E E U E E E E E
        E E E E U E E E E E""",
    ">>": """
        E E E E U E E E E E
        E 0 E E U E E E E E
        E E E E U E E E E E
        E E E E U E E E E E
        U U U U U E U U U U
        E E E E E E E E E E
        E E E E U E E E E E
        E E E E U E E E E E
        E E E E U E E E E E
        E E E E U E E E E E""",
    "&&": """
        T T T E U E E E E E
        T T T E U E E E E E
        T T T E U E E E E E
        E E E E E E E E E E
        U U U E U E E E E E
        E E E E E E E E E E
        E E E E E E E E E E
        E E E E E E E E E E
        E E E E E E E E E E
        E E E E E E E E E E""",
    "||": """
        T T T T T T T T T T
        T T T T T T T T T T
        T T T T T T T T T T
        E E E E E E E E E E
        T T T E U E E E E E
        E E E E E E E E E E
        E E E E E E E E E E
        E E E E E E E E E E
        E E E E E E E E E E
        E E E E E E E E E E""",
}


def code(value: Value) -> str:
    match value:
        case Missing() | bool():
            return {"undefined": "U", "error": "E", "True": "T", "False": "F"}[repr(value)]
        case AbsTime(seconds):
            return f"a{seconds}"
        case RelTime(seconds):
            return f"r{seconds!r}"
        case ListValue() | Record():
            return type(value).__name__
        case _:
            return repr(value)


@pytest.mark.parametrize("operator", TABLES)
def test_an_operator_has_htcondors_value_for_each_pair_of_types(operator: str) -> None:
    rows = TABLES[operator].split("\n")[1:]
    for left, row in zip(OPERANDS, rows, strict=False):
        for right, expected in zip(OPERANDS, row.split(), strict=True):
            text = f"{left} {operator} {right}"
            assert code(evaluate(parse(text))) == expected, text


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("-({})", "E -7 -2.5 E U E E E E r-60.0"),
        ("+({})", "E 7 2.5 E U E E E E r60.0"),
        ("!({})", "F F F E U E E E E E"),
        ("~({})", "E -8 E E U E E E E E"),
        ("({}) ? 1 : 2", "1 1 1 E U E E E E E"),
        ("({}) ?: 5", "T 7 2.5 'a' 5 E ListValue Record a100 r60.0"),
        ("{{1, 2}}[{}]", "E E E E U E E E E E"),
        ("({})[0]", "E E E E U E 1 E E E"),
        ("({}).a", "E E E E U E ListValue 1 E E"),
        ('({})["a"]', "E E E E U E E 1 E E"),
    ],
)
def test_a_form_has_htcondors_value_for_each_type(form: str, expected: str) -> None:
    values = [code(evaluate(parse(form.format(operand)))) for operand in OPERANDS]
    assert values == expected.split()


# expression, MY, TARGET, its value in default and in strict mode
SCOPING = [
    ("[b=7; a=[c=1]].a.b", None, None, "7", "7"),
    ("a.b", "[b=7; a=[c=1]]", None, "7", "7"),
    ('a["b"]', "[b=7; a=[c=1]]", None, "undefined", "undefined"),
    ("in.y", "[x=1; in=[y=x; x=2]]", None, "2", "2"),
    ("in.z", "[x=1; y=x; in=[x=2; z=y]]", None, "1", "1"),
    ("in.up", "[x=1; in=[x=2; up=parent.x]]", None, "1", "1"),
    ("in.me", "[x=1; in=[x=2; me=self.x]]", None, "2", "2"),
    ("in.top", "[x=1; in=[x=2; top=toplevel.x]]", None, "1", "1"),
    ("in.dot", "[x=1; in=[x=2; dot=.x]]", None, "1", "1"),
    ("in.mine", "[x=1; in=[x=2; mine=MY.x]]", None, "2", "undefined"),
    ("parent.x", "[x=1]", None, "undefined", "undefined"),
    ("in.parent.parent.x", "[x=1; in=[x=2]]", None, "undefined", "undefined"),
    ("self", "[self=3; in=[x=1]]", None, "3", "3"),
    ("r.l[0]", "[x=3; r=[x=50; l={x}]]", None, "50", "50"),
    ("sum(r.l)", "[x=3; r=[x=50; l={x}]]", None, "3", "3"),
    ("a", "[a=a+1]", None, "undefined", "undefined"),
    ("a", "[a=a ?: 4]", None, "4", "4"),
    ("a", "[a=b; b=c; c=a]", None, "undefined", "undefined"),
    ("x", "[x=x2+1; x2 = x is undefined ? 1 : 2]", None, "2", "2"),
    ("TARGET.x", "[x=1]", None, "undefined", "undefined"),
    ("TARGET.x", "[x=1]", "[x=2]", "2", "2"),
    ("MY.x", "[x=1]", "[x=2]", "1", "1"),
    ("other.x", "[x=1]", "[x=2]", "2", "2"),
    ("ad.x", "[x=1]", "[x=2]", "1", "1"),
    ("TARGET.TARGET.x", "[x=1]", "[x=2]", "1", "1"),
    ("TARGET.back", "[x=1]", "[x=2; back=TARGET.x]", "1", "1"),
    ("only", "[x=1]", "[only=2]", "2", "undefined"),
    ("MY.only", "[x=1]", "[only=2]", "undefined", "undefined"),
    ("self.only", "[x=1]", "[only=2]", "undefined", "undefined"),
    ("[z=only].z", "[x=1]", "[only=2]", "undefined", "undefined"),
    ("n.z", "[x=1; n=[z=only]]", "[only=2]", "undefined", "undefined"),
    ("TARGET.mine", "[x=1; mine=3]", "[only=2]", "undefined", "undefined"),
    ("TARGET.un", "[x=1; mine=3]", "[un=mine]", "3", "undefined"),
    (".x", "[x=1]", "[x=2]", "undefined", "undefined"),
    (".LEFT.x", "[x=1]", "[x=2]", "1", "1"),
    (".RIGHT.x", "[x=1]", "[x=2]", "2", "2"),
    ("LEFT.x + RIGHT.x", "[x=1]", "[x=2]", "3", "3"),
    ("n.e", "[x=1; n=[x=10; e=MY.x]]", "[x=2]", "10", "1"),
    ("n.t", "[x=1; n=[x=10; t=TARGET.x]]", "[x=2]", "2", "2"),
    ("parent.parent.LEFT.x", "[x=1]", "[x=2]", "1", "1"),
    ("isUndefined(CurrentTime)", "[x=1]", None, "false", "true"),
    ("MY.x", "[x=1]", None, "1", "undefined"),
    (
        "{[x=1],[x=2],3,undefined}.x",
        None,
        None,
        "{1, 2, error, undefined}",
        "{1, 2, error, undefined}",
    ),
    ('TARGET["un"]', "[mine=3]", "[un=mine]", "3", "undefined"),
]


@pytest.mark.parametrize(("text", "mine", "target", "default", "strict"), SCOPING)
def test_names_are_found_where_htcondor_finds_them(
    text: str, mine: str | None, target: str | None, default: str, strict: str
) -> None:
    assert shown(text, mine, target, strict=False) == default
    assert shown(text, mine, target, strict=True) == strict


def shown(text: str, mine: str | None, target: str | None, *, strict: bool) -> str:
    def value(text: str) -> Value:
        return evaluate(parse(text, strict=strict), scope, now=1000.0, strict=strict)

    scope = None if mine is None else ad(mine)
    if scope is not None and target is not None:
        scope = match_scope(scope, ad(target))
    found = value(text)
    if isinstance(found, ListValue):
        items = (repr(value(f"({text})[{i}]")) for i in range(len(found.items)))
        return f"{{{', '.join(items)}}}"
    return str(found).lower() if isinstance(found, bool) else repr(found)


def ad(text: str) -> Record:
    return record_of(RecordNode(parse_definitions(text)))


@pytest.mark.parametrize(
    ("text", "default", "strict"),
    [
        ("010", None, 10),
        ("-010", -10, -10),
        ("0x1F", None, 0),
        ("-0x1F", 0, 0),
        ("08", None, None),
        ("08.5", 8.5, 8.5),
        ("0", 0, 0),
        ('strcat("a"; "b")', "ab", None),
    ],
)
def test_the_modes_differ_in_leading_zeros_and_semicolons(
    text: str, default: Value, strict: Value
) -> None:
    assert parsed(text, strict=False) == default
    assert parsed(text, strict=True) == strict


def parsed(text: str, *, strict: bool) -> Value | None:
    try:
        return evaluate(parse(text, strict=strict), strict=strict)
    except ValueError:
        return None
