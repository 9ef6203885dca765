from __future__ import annotations

import math

import pytest

from gridbot_policies.classad import (
    Limits,
    Record,
    evaluate,
    match_scope,
    matches,
    parse,
    parse_definitions,
    rank,
    record_of,
    symmetric_match,
)
from gridbot_policies.classad.nodes import RecordNode


def ad(text: str) -> Record:
    return record_of(RecordNode(parse_definitions(text)))


@pytest.mark.parametrize(
    ("requirements", "accepted"),
    [
        ("true", True),
        ("1", True),
        ("-2.5", True),
        ("false", False),
        ("0", False),
        ("0.0", False),
        ("undefined", False),
        ("error", False),
        ('"true"', False),
        ("{true}", False),
        ("TARGET.Memory >= RequestMemory", True),
        ("Memory >= MY.RequestMemory", True),
        ("TARGET.Gpus > 0", False),
        ("START", True),
    ],
)
def test_requirements_hold_if_true_or_a_number_other_than_zero(
    requirements: str, accepted: bool
) -> None:
    job = ad(f"RequestMemory = 10; START = TARGET.Memory > 60; Requirements = {requirements}")
    assert matches(job, ad("Memory = 64")) is accepted


def test_an_ad_without_requirements_matches_nothing() -> None:
    demanding, silent = ad("Requirements = true"), ad("Memory = 64")
    assert matches(demanding, silent)
    assert not matches(silent, demanding)
    assert not symmetric_match(demanding, silent)


def test_a_match_needs_the_consent_of_both() -> None:
    job = ad('Owner = "ada"; Requirements = TARGET.Memory > 10')
    open_host = ad("Memory = 64; Requirements = true")
    picky_host = ad('Memory = 64; Requirements = TARGET.Owner == "bob"')
    assert symmetric_match(job, open_host)
    assert symmetric_match(open_host, job)
    assert matches(job, picky_host)
    assert not symmetric_match(job, picky_host)
    assert not symmetric_match(picky_host, job)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("TARGET.Memory / 2", 32.0),
        ("true", 1.0),
        ("2.5", 2.5),
        ("-1", -1.0),
        ('"high"', 0.0),
        ("undefined", 0.0),
        ("error", 0.0),
        ('real("nan")', 0.0),
        ("-1.0 / 0", -math.inf),
    ],
)
def test_rank_is_a_number_or_zero(expression: str, expected: float) -> None:
    assert rank(ad(f"Rank = {expression}"), ad("Memory = 64; Rank = 7")) == expected


def test_the_rank_of_the_other_ad_does_not_stand_in_for_a_missing_one() -> None:
    assert rank(ad("Memory = 1"), ad("Rank = 7")) == 0.0


def test_a_match_has_a_budget_a_clock_and_a_mode() -> None:
    recent, long = ad("Requirements = time() > 100"), ad(f"Requirements = 1{' + 1' * 100}")
    assert matches(recent, ad(""), now=101.0)
    assert not matches(recent, ad(""), now=99.0)
    assert matches(long, ad(""))
    assert not matches(long, ad(""), limits=Limits(steps=50))
    lazy = ad("Requirements = Memory > 1")
    assert matches(lazy, ad("Memory = 64"))
    assert not matches(lazy, ad("Memory = 64"), strict=True)


def test_the_names_of_a_match_can_be_used_in_expressions() -> None:
    scope = match_scope(ad("Requirements = 1; Rank = 2"), ad("Requirements = TARGET.Rank == 2; "))
    assert evaluate(parse("symmetricMatch"), scope) is True
    assert evaluate(parse("leftRankValue"), scope) == 2
    assert evaluate(parse("RIGHT.Requirements && lCtx.my.Rank == 2"), scope) is True
