"""Throughput lines of `gridbot top`."""

from typing import Any

from gridbot.show.throughput import throughput_lines


def history(times: int, left: int, **done: list[int]) -> dict[str, Any]:
    grids = [{"grid": grid.strip("_") or None, "done": values} for grid, values in done.items()]
    return {
        "id": 7,
        "times": list(range(times)),
        "left": [0] * (times - 1) + [left],
        "grids": grids,
    }


def test_the_minute_that_is_not_over_does_not_count() -> None:
    (line,) = throughput_lines([history(4, 90, ice=[0, 6, 6, 999], _=[3, 3, 3, 0])])
    assert line == "bot 7: 90 jobs left, 7.0 jobs a minute (ice 4.0, no grid 3.0)"


def test_only_the_last_minutes_count() -> None:
    (line,) = throughput_lines([history(12, 1, ice=[100] * 6 + [10] * 6)])
    assert line == "bot 7: 1 job left, 10.0 jobs a minute (ice 10.0)"


def test_a_bot_that_has_just_begun_has_no_line_and_one_that_stands_still_says_so() -> None:
    assert list(throughput_lines([history(1, 5, ice=[3])])) == []
    assert list(throughput_lines([history(3, 5, ice=[0, 0, 0])])) == [
        "bot 7: 5 jobs left, 0.0 jobs a minute"
    ]
