"""The page about what can go wrong names for each case the tests that show what then happens."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "battery.md").read_text(encoding="utf-8")
CASES = {"R": 17, "C": 20, "V": 10, "S": 18, "T": 15}
LEAST_SHOWN = 75
ROW = re.compile(r"^\| ([A-Z][0-9]+) \|(.*)\|$", re.M)
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def rows(page: str) -> dict[str, str]:
    """Each row's last column, by its name."""
    return {name: rest.rpartition("|")[2].strip() for name, rest in ROW.findall(page)}


def faults(page: str) -> Iterator[str]:
    """Rows that name no test and no reason, and tests that do not exist."""
    for name, shown in rows(page).items():
        tests = TEST.findall(shown)
        if not tests and not re.match("none: .{20}", shown):
            yield f"{name} names no test"
        for path, test in tests:
            file = ROOT / path
            if not file.exists() or f"\ndef {test}(" not in file.read_text(encoding="utf-8"):
                yield f"{name} names {path}::{test}, which does not exist"


def test_each_row_names_tests_that_exist_or_says_why_there_is_none() -> None:
    assert list(faults(PAGE)) == []


def test_the_page_has_each_case_once() -> None:
    names = [name for name, _ in ROW.findall(PAGE)]
    wanted = [f"{group}{number + 1}" for group, count in CASES.items() for number in range(count)]
    assert Counter(names) == Counter(wanted)


def test_at_least_75_of_80_are_shown() -> None:
    assert sum(bool(TEST.search(shown)) for shown in rows(PAGE).values()) >= LEAST_SHOWN


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        ("| R1 | a | b | by looking |", "R1 names no test"),
        ("| R1 | a | b | none: yet |", "R1 names no test"),
        ("| R1 | a | b | `tests/unit/test_battery.py::test_nothing` |", "which does not exist"),
        ("| R1 | a | b | `tests/unit/test_gone.py::test_x` |", "which does not exist"),
    ],
)
def test_a_row_without_a_test_is_seen(row: str, fault: str) -> None:
    (found,) = faults(row)
    assert fault in found
