"""Claims about what the constructor remembers, and the ad that it makes of that."""

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.overlay_factories import NOW, grid, pilot

from gridbot.api.errors import GridbotError
from gridbot_overlay.act.store import SQL, PilotStore, SubmissionRecord
from gridbot_overlay.decide.grid_ad import GRID_ATTRIBUTES, grid_ad
from gridbot_overlay.decide.model import Pilot, PilotState
from gridbot_overlay.decide.money import MoneySpent

WEEK = 7 * 86_400.0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[PilotStore]:
    store = PilotStore.open(tmp_path)
    yield store
    store.close()


def put(store: PilotStore, *pilots: Pilot, token: int = 1) -> None:
    tag = pilots[0].tag
    store.submitting(SubmissionRecord(tag, pilots[0].grid, NOW, token, "why"), pilots)


def ended(index: int, hours: float, **changes: object) -> Pilot:
    values = {"started_at": NOW - 3600 * hours, "ended_at": NOW, "is_settled": True, **changes}
    return pilot(index, PilotState.ENDED, **values)


def test_a_pilot_is_remembered_with_all_that_is_known_of_it(
    store: PilotStore, tmp_path: Path
) -> None:
    known = ended(
        3, 1, owners=("ann", "bob"), node="n", exit_code=-9, error="é", stderr="x\ny", jobs=7
    )
    known = replace(known, has_held=True, running_at=NOW - 9)
    put(store, known)
    again = PilotStore.open(tmp_path)
    assert again.pilots("g", 0) == [known]
    assert again.prefix == store.prefix


def test_the_file_is_for_the_operators_eyes_only(store: PilotStore, tmp_path: Path) -> None:
    assert (tmp_path / "overlay.db").stat().st_mode & 0o777 == 0o600


def test_no_tag_is_given_twice_nor_to_another_constructor(
    store: PilotStore, tmp_path: Path
) -> None:
    other = PilotStore.open(tmp_path / "other")
    tags = [store.new_tag(), store.new_tag(), PilotStore.open(tmp_path).new_tag(), other.new_tag()]
    assert len(set(tags)) == 4
    assert all(tag.isalnum() and len(tag) <= 15 for tag in tags)
    assert not other.new_tag().startswith(store.prefix)


def test_a_file_that_is_restored_from_a_backup_gives_no_tag_again(store: PilotStore) -> None:
    backup = store.copy()
    tags = [one.new_tag() for one in (store, backup) for _ in range(100)]
    assert len(set(tags)) == 200


def test_a_submission_is_known_with_its_grid_until_it_is_forgotten(store: PilotStore) -> None:
    put(store, ended(0, 1.0))
    put(store, replace(pilot(0), tag="u", grid="h"), token=2)
    store.revoked("t")
    assert store.grids_of({"t", "u", "v"}) == {"t": "g", "u": "h"}
    store.forget(NOW + WEEK + 1)
    assert store.grids_of({"t", "u", "v"}) == {"u": "h"}


def test_live_pilots_and_those_of_whose_end_nobody_heard_are_listed_however_old(
    store: PilotStore,
) -> None:
    live = pilot(0, submitted_at=NOW - 10 * WEEK)
    silent = ended(1, 1, is_settled=False, ended_at=NOW - WEEK)
    put(store, live, silent, ended(2, 1, ended_at=NOW - WEEK), ended(3, 1))
    assert [found.index for found in store.pilots("g", NOW - 60)] == [0, 1, 3]


def test_hours_that_were_used_stay_known_when_the_pilots_are_forgotten(store: PilotStore) -> None:
    put(store, ended(0, 2.0), ended(1, 0.5))
    put(store, replace(ended(0, 4.0), tag="u"), token=2)
    store.revoked("t")
    assert store.used_hours("g") == pytest.approx(6.5)
    store.forget(NOW + WEEK - 1)
    assert len(store.pilots("g", 0)) == 3
    store.forget(NOW + WEEK + 1)
    # What holds a key that is not revoked yet is not forgotten.
    assert [found.tag for found in store.pilots("g", 0)] == ["u"]
    assert store.used_hours("g") == pytest.approx(6.5)


def test_hours_in_which_cores_ran_nothing_are_wasted(store: PilotStore) -> None:
    put(store, ended(0, 2.0, cpus=4, core_seconds=4 * 3600.0), ended(1, 0.5))
    # Walls and clocks differ a little: nothing is won by it.
    put(store, replace(ended(0, 1.0, core_seconds=3601.0), tag="u"), token=2)
    assert store.totals("g")["wasted_hours"] == pytest.approx(1.0 + 0.5)


def test_a_key_is_idle_when_the_last_of_its_pilots_has_ended(store: PilotStore) -> None:
    put(store, pilot(0), ended(1, 1))
    assert store.idle_tokens() == []
    store.save([ended(0, 1)])
    assert store.idle_tokens() == [("t", 1)]
    store.revoked("t")
    assert store.idle_tokens() == []


def test_what_pilots_cost_is_counted_by_their_submission_and_outlasts_their_rows(
    store: PilotStore,
) -> None:
    submission = SubmissionRecord("t", "g", NOW, 1, "")
    store.submitting(submission, [])
    done = replace(pilot(0), price=0.36, is_settled=True, state=PilotState.ENDED)
    store.save(
        [
            replace(done, index=0, started_at=NOW, ended_at=NOW + 100.5),  # by the second
            replace(done, index=1, started_at=NOW, ended_at=NOW + 1),  # a minute at least
            replace(done, index=2, started_at=None, ended_at=NOW + 1),  # it never ran
            replace(done, index=3, started_at=NOW, ended_at=None, state=PilotState.RUNNING),
        ]
    )
    assert store.spent("g", NOW - 200) == pytest.approx(0.0101 + 0.006)
    assert store.spent("g", NOW) == 0
    assert store.spent("other", 0) == 0
    store.save([replace(done, index=3, started_at=None, ended_at=NOW)])
    store.revoked("t")
    store.forget(NOW + 30 * 86_400)
    assert store.pilots("g", 0) == []
    day = NOW // 86_400 * 86_400
    assert store.spent("g", day) == pytest.approx(0.0161)
    assert store.spent("g", day + 86_400) == 0


def test_what_happens_to_a_copy_does_not_happen_to_the_store(store: PilotStore) -> None:
    store.copy().drain("g", "now")
    assert store.grid("g").drained == ""


def test_a_grids_ad_has_the_attributes_of_the_table() -> None:
    found = grid_ad(
        grid(), [pilot(0), pilot(1, PilotState.RUNNING)], 0.5, 2.0, 0.5, [{"OpSys": "LINUX"}],
        MoneySpent(),
    )  # fmt: skip
    assert set(found) == set(GRID_ATTRIBUTES)
    assert (found["Queued"], found["Running"], found["FreeSlots"]) == (1, 1, 998)
    assert (found["QueueWait"], found["LastHost"]) == (50.0, {"OpSys": "LINUX"})
    assert (found["PilotHoursLeft"], found["PilotHoursWasted"]) == (None, 0.5)
    assert (found["Price"], found["Spent"], found["BudgetLeft"]) == (0.0, None, None)
    capped = grid(budget_pilot_hours=3.0, price=0.4, cpus=4, budget=5.0)
    found = grid_ad(capped, [], 0.0, 2.0, 0.5, [], MoneySpent(spent=1.5, reserved=1.0))
    assert found["PilotHoursLeft"] == 1.0
    assert (found["Price"], found["Spent"], found["BudgetLeft"]) == (0.1, 1.5, 3.5)


def test_a_file_of_the_first_release_is_brought_up_to_date(tmp_path: Path) -> None:
    old = sqlite3.connect(tmp_path / "overlay.db")
    old.executescript(SQL["migration 1"] + "INSERT INTO overlay VALUES ('abcdef', 7);")
    old.execute(
        "INSERT INTO pilot VALUES ('t', 0, 'g', 'running', 1, 't.0', 1, 2, NULL, '', '[\"ann\"]',"
        " 'n1', NULL, 3600, NULL, 1, 0, 4, 0, '', '', '', 0, 0)"
    )
    old.commit()
    old.close()
    store = PilotStore.open(tmp_path)
    [found] = store.pilots("g", 0)
    assert (found.jobs, found.has_held, found.running_at) == (4, False, None)
    store.save([replace(found, has_held=True)])
    assert PilotStore.open(tmp_path).pilots("g", 0)[0].has_held
    assert store.new_tag().startswith("gbabcdefn")


def test_a_file_of_a_newer_release_is_left_alone(store: PilotStore, tmp_path: Path) -> None:
    newer = sqlite3.connect(tmp_path / "overlay.db")
    newer.execute("PRAGMA user_version = 99")
    with pytest.raises(GridbotError, match=r"overlay\.db is of a newer release \(schema 99"):
        PilotStore.open(tmp_path)
    assert newer.execute("PRAGMA user_version").fetchone() == (99,)
