from datetime import timedelta
from typing import Any

import pytest

from gridbot.api.errors import BadInput
from gridbot.api.state import bot_state
from gridbot.api.units import duration, seconds, size
from gridbot.printing import csv_cell, first_line, table
from gridbot.show.progress import status_line
from gridbot_client.terminal import printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ÄÖ 漢字", "plain ÄÖ 漢字"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("a\r\nb\x7f\x9b", "a\\r\\nb\\x7f\\x9b"),
        ("\u202etxt.exe", "\\u202etxt.exe"),
    ],
)
def test_control_characters_are_shown_not_obeyed(text: str, shown: str) -> None:
    assert printable(text) == shown


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("=1+1", "'=1+1"),
        ("@x", "'@x"),
        ("+cmd", "'+cmd"),
        ("-cmd", "'-cmd"),
        ("\tx", "'\tx"),
        ("-1.5e3", "-1.5e3"),
        ("+7", "+7"),
        ("text", "text"),
    ],
)
def test_no_cell_is_a_formula(text: str, cell: str) -> None:
    assert csv_cell(text) == cell


def test_the_first_line_is_the_first_that_says_something() -> None:
    assert first_line("\n  \n  one two\nthree") == "one two"
    assert first_line("x" * 100, 10) == "x" * 9 + "…"


def test_numbers_stand_to_the_right() -> None:
    assert table(("n", "name"), [(5, "a"), (10, "bc")]) == " n  name\n 5  a\n10  bc"


@pytest.mark.parametrize(
    ("text", "value"), [("90", 90), ("90s", 90), ("10m", 600), ("1.5h", 5400), ("2d", 172_800)]
)
def test_durations_are_read_as_people_write_them(text: str, value: float) -> None:
    assert seconds(text) == value


@pytest.mark.parametrize("text", ["", "0", "-3s", "10 weeks", "1e5", "s"])
def test_other_durations_are_refused(text: str) -> None:
    with pytest.raises(BadInput, match="is not a duration; write 90s, 10m, 2h or 1d"):
        seconds(text)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "0.5 s"),
        (59.999, "1 min 0 s"),
        (125, "2 min 5 s"),
        (7260, "2 h 1 min"),
        (90_000, "1 d 1 h"),
    ],
)
def test_durations_are_written_in_two_units(value: float, text: str) -> None:
    assert duration(timedelta(seconds=value)) == text


def test_sizes_have_three_digits() -> None:
    assert [size(n) for n in (0, 999, 1000, 1_234_567)] == ["0 B", "999 B", "1 kB", "1.23 MB"]


def state(**changes: Any) -> Any:
    document: Any = {
        "id": 3, "name": "scan", "owner": "alice", "state": "running", "jobs_total": 240,
        "jobs_done": 120, "jobs_failed": 3, "jobs_running": 8, "jobs_unsent": 109, **changes,
    }  # fmt: skip
    return bot_state(document)


def test_one_line_says_how_far_a_bot_is() -> None:
    line = status_line(state(jobs_per_second=12.5, eta_seconds=9.36, tail=True))
    assert line == "123 of 240 jobs, 3 failed, 8 in progress, 109 unsent, 12.5/s, 9.36 s left, tail"
    stuck = status_line(state(jobs_running=0, jobs_per_second=0.01, eta_seconds=9000.0))
    assert stuck == "123 of 240 jobs, 3 failed, 0 in progress, 109 unsent"
    assert status_line(state(state="done", jobs_done=237)) == "240 of 240 jobs, 3 failed, done"
