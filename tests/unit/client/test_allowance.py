"""Rates and amounts of transfers, decided without a network."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridbot_client.net.allowance import (
    Rate,
    TransferAllowance,
    TransferLimits,
    TransferWaits,
    piece,
)


@given(
    st.lists(st.tuples(st.integers(1, 10**6), st.floats(0, 100)), min_size=1), st.integers(1, 10**6)
)
def test_over_no_time_more_moves_than_the_rate_and_one_piece(
    pieces: list[tuple[int, float]], per_second: int
) -> None:
    rate, now, begun = Rate(), 0.0, []
    for moved, pause in pieces:
        now += pause + rate.wait(now + pause, moved, per_second)
        begun.append((now, moved))
    for first in range(len(begun)):
        for last in range(first, len(begun)):
            seconds = begun[last][0] - begun[first][0]
            before_last = sum(moved for _, moved in begun[first:last])
            assert before_last <= per_second * seconds * (1 + 1e-9) + 1e-3


def test_without_limits_everything_moves_at_once() -> None:
    assert piece(TransferLimits(), "down", 10**12, 0) == 10**12


def test_a_slow_line_is_used_in_small_pieces() -> None:
    limits = TransferLimits({"down": 100_000})
    assert piece(limits, "down", 10**12, 0) == 200_000
    assert piece(limits, "up", 10**12, 0) == 10**12


@given(st.lists(st.integers(1, 2000), max_size=20))
def test_a_day_has_its_amount_also_over_restarts_and_the_next_day_another(
    wanted: list[int],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        total, day = 0, "mon"
        for count in wanted:
            made = TransferAllowance(Path(folder) / "kept", today=lambda: day)
            made.limits = TransferLimits(daily_bytes=5000)
            try:
                total += made.take("up", count)
            except TransferWaits:
                assert total == 5000
                assert "daily-transfer" in made.obstacle()
        assert total == min(5000, sum(wanted))
        day = "tue"
        made = TransferAllowance(Path(folder) / "kept", today=lambda: day)
        made.limits = TransferLimits(daily_bytes=5000)
        assert made.take("down", 10_000) == 5000


def test_a_client_that_ends_waits_no_longer() -> None:
    made = TransferAllowance()
    made.limits = TransferLimits({"down": 1})
    made.take("down", 100)
    made.close()
    with pytest.raises(TransferWaits, match="the client ends"):
        made.take("down", 100)


def test_a_damaged_count_begins_anew(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    for text in ("", "[]", '{"day": "mon"}', '{"day": "mon", "bytes": "x"}'):
        kept.write_text(text)
        made = TransferAllowance(kept, today=lambda: "mon")
        made.limits = TransferLimits(daily_bytes=7)
        assert made.take("up", 10) == 7
