"""The fuzzer of the ClassAd evaluator, and what it found: HTCondor's library decides."""

import importlib.util
import json
import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scripts.classad_fuzz import compiled, generator, library, ours, signatures
from scripts.classad_fuzz.blocks import COMPILED, Block, run, words_of
from scripts.classad_fuzz.cases import Case, Texts
from scripts.classad_fuzz.classes import Disagreement, class_of
from scripts.classad_fuzz.library import Library
from scripts.classad_fuzz.patterns import pattern
from scripts.classad_fuzz.shrink import shrunk
from scripts.classad_fuzz.trees import Tree, smaller
from scripts.classad_fuzz.values import same

from gridbot_policies.classad import ParseError, parse
from gridbot_policies.classad.functions import FUNCTIONS

SEEDS = Path(library.__file__).with_name("seeds.jsonl")

needs_library = pytest.mark.skipif(
    importlib.util.find_spec("htcondor2") is None,
    reason="HTCondor's library, which decides, has no wheel here: pip install htcondor",
)


def kept() -> list[dict[str, Any]]:
    return [json.loads(line) for line in SEEDS.read_text().splitlines()]


def texts_of(seed: dict[str, Any]) -> Texts:
    my, target, expression = seed["texts"]
    return my, target, expression


def case_of(expression: Tree) -> Case:
    return Case("0:0", "condor", None, None, expression)


# ------------------------------------------------------------------ what was found and mended


@pytest.mark.parametrize("seed", kept(), ids=lambda seed: seed["seed"])
def test_what_once_disagreed_agrees_now(seed: dict[str, Any]) -> None:
    assert same(ours.answer(texts_of(seed), seed["mode"]), seed["theirs"])


@needs_library
def test_the_library_still_gives_the_kept_values() -> None:
    with Library("condor") as condor, Library("strict") as strict:
        sides = {"condor": condor, "strict": strict}
        changed = [
            seed["seed"]
            for seed in kept()
            if not same(sides[seed["mode"]].answer(texts_of(seed)), seed["theirs"])
        ]

    assert changed == []


@needs_library
def test_a_block_of_new_cases_shows_nothing_unexplained() -> None:
    outcome = run(Block(20_260_101, range(400), ("condor", "strict")))

    assert [finding for finding in outcome.findings if not finding.explained] == []
    assert len(outcome.types) > 8  # of values: they are not all errors


# ------------------------------------------------------------------------------- the cases


def test_the_same_seed_and_number_give_the_same_case() -> None:
    assert generator.case(3, 17, "condor") == generator.case(3, 17, "condor")
    assert generator.case(3, 17, "condor").texts != generator.case(4, 17, "condor").texts


def test_every_function_of_the_evaluator_is_called_or_left_out_on_purpose() -> None:
    called = {each.name.lower() for each in signatures.SIGNATURES}

    assert set(FUNCTIONS) - called == set(FUNCTIONS) & signatures.LEFT_OUT


def test_no_case_asks_the_clock() -> None:
    texts = [generator.case(1, number, "condor").texts[2].lower() for number in range(3000)]

    assert not [text for text in texts if re.search(r"\b(abstime|formattime|time)\(\)", text)]
    assert any("abstime(" in text for text in texts)


def test_ads_always_parse() -> None:
    for number in range(0, 2000, generator.SHARING):
        for ad in generator.case(2, number, "strict").texts[:2]:
            if ad is not None:
                parse(ad)


def test_most_cases_parse_and_some_do_not() -> None:
    def parses(number: int) -> bool:
        try:
            parse(generator.case(5, number, "condor").texts[2])
        except ParseError:
            return False
        return True

    assert 600 < sum(map(parses, range(1000))) < 990


def test_patterns_are_of_the_syntax_that_both_engines_share() -> None:
    draw = random.Random(0)
    patterns = {pattern(draw.random).text for _ in range(500)}

    assert len(patterns) > 300
    assert not [each for each in patterns if "(?=" in each or "\\1" in each]


# ------------------------------------------------------------------------------- shrinking


def test_a_case_is_shrunk_to_what_shows_the_fault() -> None:
    fault = Tree(("size(", Tree(('"a,b"',)), ")"), ", ")
    inner = Tree((Tree(("x",)), " + ", Tree(("{", Tree(("1",)), fault, "}"), ", ")))
    case = case_of(Tree(("(", inner, ")")))

    def shows(less: Case) -> str | None:
        return less.texts[2] if "size" in less.texts[2] else None

    least, found = shrunk(case, "", shows)

    assert least.texts[2] == found == "size()"


def test_what_shows_nothing_smaller_stays_as_it_is() -> None:
    case = case_of(Tree((Tree(("1",)), " + ", Tree(("2",)))))

    assert shrunk(case, "whole", lambda less: None) == (case, "whole")


def test_ads_are_left_out_first_and_stay_ads() -> None:
    ad = Tree(("[", Tree(("a = ", Tree(("1",)))), Tree(("b = ", Tree(("2",)))), "]"), "; ")
    case = replace(case_of(Tree(("a",))), my=ad, target=ad)

    offered = [less.texts for less in case.smaller()]

    assert offered[:2] == [("[a = 1; b = 2]", None, "a"), (None, None, "a")]
    assert ("[b = 2]", "[a = 1; b = 2]", "a") in offered
    assert all(my is None or my.startswith("[") for my, _, _ in offered)


def test_a_quoted_expression_shrinks_inside_its_quotes() -> None:
    text = Tree((Tree(("f(", Tree(('"b"',)), ")"), ", "),), is_quoted=True)
    call = Tree(("eval(", text, ")"), ", ")

    assert call.text == 'eval("f(\\"b\\")")'
    assert 'eval("f()")' in [less.text for less in smaller(call)]


# ---------------------------------------------------------------------- values and classes


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ({"type": "int", "value": 1}, {"type": "bool", "value": True}, False),
        ({"type": "real", "value": "nan"}, {"type": "real", "value": "nan"}, True),
        ({"type": "real", "value": "0.0"}, {"type": "real", "value": "-0.0"}, False),
        ({"type": "real", "value": "0.1"}, {"type": "real", "value": "0.10000000000000002"}, True),
        ({"type": "real", "value": "0.1"}, {"type": "real", "value": "0.1001"}, False),
        ({"type": "list", "value": []}, {"type": "list", "value": [{"type": "error"}]}, False),
        (
            {"type": "classad", "value": {"A": {"type": "error"}}},
            {"type": "classad", "value": {"a": {"type": "error"}}},
            True,
        ),
    ],
)
def test_values_are_compared_in_depth(one: Any, other: Any, expected: bool) -> None:
    assert same(one, other) is expected


@pytest.mark.parametrize(
    ("expression", "theirs", "name"),
    [
        ("-60 >> 64", {"type": "int", "value": -1}, "shift"),
        ("-60 >>> 0", {"type": "int", "value": 0}, "shift"),
        ('relTime("60")', {"type": "real", "value": "60.0"}, "literal relTime"),
        ('eval("relTime(\\"60\\")")', {"type": "real", "value": "60.0"}, "literal relTime"),
        ('{} is split("a")', {"type": "bool", "value": False}, "lists"),
        ("{.a}[0]", {"type": "undefined"}, "no ad"),
        ('[n = [a = 1]]["n"].a', {"type": "undefined"}, "freed"),
        ("..5", {"type": "real", "value": "0.0"}, "dots"),
        ("[l = {l.a}].l[0]", {"type": "undefined"}, "endless"),
        ("int(relTime(3e9))", {"type": "int", "value": -(2**31)}, "spans"),
        ("string(relTime(3e9))", {"type": "string", "value": "--24855+-3:-14:-8"}, "spans"),
        ('getYear(absTime("99999999"))', {"type": "int", "value": 10007}, "years"),
        ("splitTime(9223372036854775807)", {"type": "classad", "value": {}}, "no day"),
        ("isError({absTime(5, -1)}[0])", {"type": "bool", "value": True}, "failing"),
        ('isError("a" && random(0))', {"type": "error"}, "failing"),
        ("isUndefined(strcat(undefined, random(0)))", {"type": "bool", "value": True}, "failing"),
        ('regexp("(a)\\\\1", "aa")', {"type": "bool", "value": True}, "pattern"),
        ('"\\377"', {"type": "not_utf8"}, "bytes"),
        ("1", {"type": "crash"}, "library crash"),
        ("60 >> 2", {"type": "int", "value": 14}, None),
        ("relTime(60)", {"type": "real", "value": "60.0"}, None),
        ('regexp("a", "b")', {"type": "bool", "value": True}, None),
        ("int(relTime(3))", {"type": "int", "value": -(2**31)}, None),
        ('getYear(absTime("99999999"))', {"type": "int", "value": 10008}, None),
        ("splitTime(0)", {"type": "classad", "value": {}}, None),
        ("isError(random(0))", {"type": "bool", "value": True}, None),
        ("{1} is 1", {"type": "bool", "value": True}, None),
    ],
)
def test_a_class_explains_its_own_defect_and_nothing_else(
    expression: str, theirs: dict[str, Any], name: str | None
) -> None:
    texts = (None, None, expression)
    known = class_of(
        Disagreement(texts, "condor", ours.answer(texts, "condor"), theirs), is_smallest=True
    )

    assert (known and known.name) == name


def test_a_pattern_excuses_only_the_smallest_case() -> None:
    texts = (None, None, 'regexp("(a)\\\\1", "aa")')
    found = Disagreement(texts, "condor", {"type": "error"}, {"type": "bool", "value": True})

    assert class_of(found, is_smallest=True) is not None
    assert class_of(found, is_smallest=False) is None


def test_a_name_lost_in_a_match_is_told_from_one_that_is_missing() -> None:
    texts = ("[l = 1]", "[x = 2]", "unresolved(nope) ?: l")
    mine = ours.answer(texts, "condor")
    known = class_of(Disagreement(texts, "condor", mine, {"type": "undefined"}), is_smallest=True)

    assert mine == {"type": "int", "value": 1}
    assert known is not None
    assert known.name == "lost"


def test_a_value_that_our_budget_refused_is_told_from_a_wrong_one() -> None:
    half = "a" * 40_000
    texts = (f'[x = "{half}"]', None, "strcat(x, x)")
    found = Disagreement(
        texts, "condor", ours.answer(texts, "condor"), {"type": "string", "value": half * 2}
    )
    wrong = replace(found, theirs={"type": "string", "value": "b"})

    known = class_of(found, is_smallest=False)
    assert known is not None
    assert known.name == "our budget"
    assert class_of(wrong, is_smallest=True) is None


def test_kinds_of_disagreement_are_named_by_functions_or_else_by_operators() -> None:
    def named(text: str) -> str:
        return words_of(
            Disagreement((None, None, text), "condor", {"type": "int"}, {"type": "error"})
        )

    assert named('size(toLower("x") + 1)') == "functions size tolower: int for error"
    assert named('a["b c"] + 12') == "language + [ ]: int for error"


# ------------------------------------------------------------------------ compiled policies


def test_compiled_policies_give_what_the_walker_gives() -> None:
    outcome = run(Block(20_260_102, range(300), (COMPILED,)))

    assert outcome.findings == []
    assert outcome.types.total() - outcome.types["walked"] > 60  # were settled by code


def test_a_policy_that_the_walker_must_evaluate_is_not_compared() -> None:
    assert compiled.answers(("[a = 1]", "[b = 2]", "[c = 1].c")) is None
    assert compiled.answers(("[a = 1]", "[b = 2]", "a + TARGET.b")) is not None


# ------------------------------------------------------------------------------ the library


@needs_library
def test_a_crash_of_the_library_is_the_value_of_the_case_that_crashed_it() -> None:
    crashing = (None, None, "evalInEachContext({1, 2}, {[a = 1], [b = 2]})")
    batch = [(None, None, "1 + 1"), crashing, (None, None, "2 + 2")]
    with Library("condor") as side:
        side.send(batch)
        kinds = [answer["type"] for answer in side.answers(batch)]

    assert kinds == ["int", "crash", "int"]


@needs_library
def test_each_mode_has_a_library_of_its_own() -> None:
    my, target = "[a = 1]", "[b = 2]"
    with Library("condor") as condor, Library("strict") as strict:
        assert condor.answer((my, target, "b")) == {"type": "int", "value": 2}
        assert strict.answer((my, target, "b")) == {"type": "undefined"}
