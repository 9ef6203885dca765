"""The table of facts about BOINC's client names tests that are there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
TABLE = (ROOT / "server" / "gridbot_server" / "boinc" / "README.md").read_text()
TESTS = {
    name
    for path in (ROOT / "tests").rglob("test_*.py")
    for name in re.findall(r"^def (test_\w+)", path.read_text(), flags=re.M)
}


def test_every_test_that_the_table_names_is_there() -> None:
    named = set(re.findall(r"`(test_\w+)`", TABLE))
    assert len(named) > 60
    assert named <= TESTS


def test_each_of_the_twenty_points_has_tests_of_its_number() -> None:
    for number in range(1, 21):
        row = next(line for line in TABLE.splitlines() if line.startswith(f"| {number} |"))
        assert f"`test_point_{number}_" in row


def test_every_row_names_a_test_or_says_why_not() -> None:
    facts = TABLE.partition("## Section by section")[2].partition("## 8.x")[0]
    rows = [line for line in facts.splitlines() if re.match(r"\| \d", line)]
    assert len(rows) > 35
    unfounded = [row for row in rows if not re.search(r"`test_|left out: |points? \d", row)]
    assert unfounded == []
