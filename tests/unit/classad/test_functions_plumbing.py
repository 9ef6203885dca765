from __future__ import annotations

import pytest

from gridbot_policies.classad import ERROR, UNDEFINED, evaluate, parse
from gridbot_policies.classad.values import ListValue

AD = """[
  x = 4; asked = x + Memory + TARGET.Arch + memory; deep = other.a.b + r.z + r.x; r = [x = 1];
  circle = foo + wheel; wheel = circle; wrong = foo + x.y; all = asked + deep; clock = CurrentTime;
  inner = [p = q; q = s]; odd = 'a b'.c + 'd e'; mine = MY.x + MY.t; me = foo + self;
]"""

# Each value is what HTCondor's library gives.
CASES: dict[str, object] = {
    # arguments
    """argsToList("a 'b c' 'it''s' x'y'z ''")""": ["a", "b c", "it's", "xyz", ""],
    'argsToList("a\\tb\\nc\\rd\\ve")': ["a", "b", "c", "d\ve"],
    'argsToList("")': [],
    """argsToList("'a")""": ERROR,
    """argsToList("a 'b c'", 1)""": ["a", "'b", "c'"],
    'argsToList("a", 3)': ERROR,
    'argsToList("a", 4294967298)': ["a"],
    "argsToList(undefined)": ERROR,
    """listToArgs({"a", "b c", "it's", "", "\\t'"})""": "a b' 'c it''''s '' '\t'''",
    'listToArgs({"a", "b"}, 1)': "a b",
    'listToArgs({"", "", "a", "", "b"}, 1)': "a  b",
    'listToArgs({"a b"}, 1)': ERROR,
    "listToArgs({1})": ERROR,
    'listToArgs("a")': ERROR,
    # environments
    """envV1ToV2("B=1; A=x y;;C='z'")""": "A=x' 'y B=1 C=''''z''''",
    'envV1ToV2("A=1\\nB=2;A=3")': "A=3 B=2",
    'envV1ToV2("|A=1|B=2;3")': "A=1 B=2;3",
    'envV1ToV2("A=1;$$(x)")': "$$(x) A=1",
    'envV1ToV2("A")': ERROR,
    'envV1ToV2("=1")': ERROR,
    "envV1ToV2(undefined)": UNDEFINED,
    """mergeEnvironment("B=2 A=1", undefined, "a=3 B='x ''y'")""": "A=1 B=x' '''y a=3",
    'mergeEnvironment("A= B==")': "A= B==",
    "mergeEnvironment()": "",
    """mergeEnvironment("A=1 ''")""": ERROR,
    'mergeEnvironment("A=1 B")': ERROR,
    'mergeEnvironment("A=1", 2)': ERROR,
    # users
    'userMap("m", "u")': UNDEFINED,
    'userMap("m", "u", "preferred")': UNDEFINED,
    'userMap("m", undefined, 1, "default")': "default",
    'userMap(error, "u", 1, "default")': ERROR,
    'userHome("no such user")': UNDEFINED,
    'userHome("no such user", "/tmp")': "/tmp",
    'userHome(1, "/tmp")': "/tmp",
    "userHome(1)": ERROR,
    # names that another ad must know
    "unresolved(asked)": "Memory,Arch",
    "unresolved(deep)": "other.a.b,z",
    "unresolved(all)": "Memory,other.a.b,Arch,z",
    "unresolved(circle)": "",
    "unresolved(wrong)": "",
    "unresolved(me)": "",
    "unresolved(inner)": "q,s",
    "unresolved(odd)": "'a b'.c,d e",
    "unresolved(r.asked)": "Memory,Arch",
    "unresolved(.asked)": "Memory,Arch",
    "unresolved(nothing)": UNDEFINED,
    "unresolved(x)": "",
    "unresolved((asked))": ERROR,
    'unresolved(asked, "^mem")': True,
    'unresolved(asked, "target")': False,
    'unresolved(asked, "x*")': False,
    'unresolved(asked, "(")': ERROR,
    'unresolved(nothing, "(")': UNDEFINED,
}


def plain(value: object) -> object:
    return list(value.items) if isinstance(value, ListValue) else value


@pytest.mark.parametrize("text", CASES)
def test_functions_for_htcondors_own_texts_give_its_values(text: str) -> None:
    scope = evaluate(parse(AD))
    for strict in (False, True):
        result = plain(evaluate(parse(text), scope, strict=strict))  # type: ignore[arg-type]  # an ad
        assert (result, type(result)) == (CASES[text], type(CASES[text]))


def test_what_my_and_the_clock_mean_to_unresolved_depends_on_the_mode() -> None:
    scope = evaluate(parse(AD))
    asked = parse("strcat(unresolved(mine), unresolved(clock))")
    assert evaluate(asked, scope) == "t"  # type: ignore[arg-type]  # an ad
    assert evaluate(asked, scope, strict=True) == "MY.t,MY.xCurrentTime"  # type: ignore[arg-type]


def test_nobody_has_a_home_where_nothing_outside_the_ads_is_looked_at() -> None:
    assert evaluate(parse('userHome("root")')) is UNDEFINED
    assert evaluate(parse('userHome("root", "/tmp")')) == "/tmp"
