"""Claims about the statements that the simulator answers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gridbot_simulator.store.memory_store import SUBJECTS, MemoryStore, StoreBroken
from gridbot_simulator.store.not_covered import NOT_COVERED, WHOLE_FILES
from gridbot_simulator.store.sampling import order_of
from gridbot_simulator.store.statements import Statements
from gridbot_simulator.store.tables import Tables

SERVER = Path(__file__).resolve().parents[2] / "server" / "gridbot_server"
# The rooms whose code runs in a simulation.
SIMULATED = ("dispatch", "feeder", "cycles", "credit")


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.file)
def test_each_statement_has_a_function_or_a_reason_why_not(subject: Statements) -> None:
    assert subject.unanswered == NOT_COVERED.get(subject.file, {}).keys()


def test_each_file_of_statements_that_simulated_rooms_load_is_known() -> None:
    loaded = {
        name
        for room in SIMULATED
        for file in (SERVER / room).rglob("*.py")
        for name in re.findall(r'sql\.load\("(\w+\.sql)"\)', file.read_text("utf-8"))
    }
    assert loaded <= {subject.file for subject in SUBJECTS} | WHOLE_FILES.keys()


def test_a_statement_without_a_function_is_an_error_that_shows_it() -> None:
    with pytest.raises(NotImplementedError, match="SELECT pg_sleep"):
        MemoryStore(Tables(0.0)).execute(b"SELECT pg_sleep(1)")


def test_a_transaction_that_failed_leaves_a_store_that_answers_no_more() -> None:
    store = MemoryStore(Tables(0.0))
    with pytest.raises(ZeroDivisionError), store.transaction():
        _ = 1 / 0
    with pytest.raises(StoreBroken):
        store.execute(b"SELECT 1")


def test_jobs_with_more_replicas_are_sampled_less() -> None:
    order = [order_of(chance) for chance in range(1, 400)]
    first = sum(one(7, 1) < one(8, 3) for one in order)
    assert 0.65 < first / len(order) < 0.85  # three to one
