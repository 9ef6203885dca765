"""Instructions of two commits: what callgrind wrote, what PostgreSQL counted, and their ratio."""

from __future__ import annotations

import pytest
from scripts.benchmarks.harness.installation import BenchFailed
from scripts.benchmarks.harness.statements import Cost
from scripts.benchmarks.instructions import Figures, counted_in, row


def test_a_profile_says_how_many_instructions_a_thread_took() -> None:
    profile = b"thread: 2\nevents: Ir\nsummary: 47\n\nfn=(1) main\n0 12\ntotals: 47\n"

    assert counted_in(profile) == 47


def test_a_profile_that_was_cut_short_is_no_figure() -> None:
    with pytest.raises(BenchFailed, match="without a sum"):
        counted_in(b"thread: 2\nevents: Ir\nfn=(1) main\n0 12\n")


def test_the_change_is_that_of_the_medians_of_all_rounds() -> None:
    found = row(Figures(base=[100.0, 90.0, 500.0], new=[110.0, 110.0, 1.0]))

    assert (found["base_per_rpc"], found["new_per_rpc"]) == (100.0, 110.0)
    assert found["change_percent"] == pytest.approx(10.0)


def test_what_the_base_does_not_do_has_no_change() -> None:
    assert row(Figures(base=[0.0], new=[1.0]))["change_percent"] is None


def test_what_statements_cost_is_counted_between_two_moments() -> None:
    spent = Cost(12.0, 340.0, 5_600.0, 78.0).since(Cost(2.0, 40.0, 600.0, 8.0))

    assert spent == Cost(statements=10.0, pages=300.0, log_bytes=5_000.0, microseconds=70.0)
