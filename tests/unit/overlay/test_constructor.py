"""Claims about whole rounds, between a Slurm of files and a server of fixed answers."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from tests.overlay_cluster import FAKE, GRID, Api, Cluster, Round, a_round, bot, rounds, serving
from tests.system.deployment import eventually

from gridbot_overlay.act.store import PilotStore
from gridbot_overlay.decide.model import Grid, GridLimits, PilotState
from gridbot_overlay.decide.reconcile import GRACE_SECONDS

NOW = 1_000_000.0
LATER = NOW + GRACE_SECONDS + 1


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster(tmp_path)
    monkeypatch.setenv("PATH", f"{made.bin}:/usr/bin:/bin")
    return made


@pytest.fixture
def api() -> Iterator[Api]:
    with serving() as api:
        yield api


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "overlay"


def test_pilots_come_with_the_demand_and_go_with_it(
    cluster: Cluster, api: Api, folder: Path
) -> None:
    a_round(folder, api.url, NOW)
    assert len(cluster.live) == 5
    assert a_round(folder, api.url, NOW + 10).plan.submits == ()
    api.bots = []
    for number in range(2, 6):
        a_round(folder, api.url, NOW + 10 * number)
    assert cluster.live == []
    assert api.revoked == set(api.keys) == {1}


def test_a_key_is_for_one_grid_its_owners_and_one_lifetime(
    cluster: Cluster, api: Api, folder: Path
) -> None:
    a_round(folder, api.url, NOW)
    lifetime = GRID.shape.walltime_seconds + GRID.limits.max_queue_seconds
    assert len(api.offered) == 1  # what nodes fetch, before there are pilots
    key = api.keys[1]
    assert (key["grid"], key["owners"], key["seconds"]) == ("ice", ["ann"], lifetime)


def test_the_server_hears_once_of_pilots_that_ended(
    cluster: Cluster, api: Api, folder: Path
) -> None:
    first = a_round(folder, api.url, NOW)
    cluster.put([])
    api.bots = []
    for number in (200, 210, 220):
        a_round(folder, api.url, NOW + number)
    assert sorted(api.ended) == sorted(pilot.id for pilot in first.pilots)


def test_the_server_hears_of_grids_that_may_get_pilots_but_not_whose_machines_are_there(
    cluster: Cluster, api: Api, folder: Path
) -> None:
    away = Grid(name="away", kind="grid_engine")
    a_round(folder, api.url, NOW, away, GRID)
    assert api.grids.keys() == {"ice"}
    told = api.grids["ice"]
    assert (told["Kind"], told["MaxRunning"]) == ("slurm", GRID.limits.max_running)
    assert "LastHost" not in told
    a_round(folder, api.url, NOW + 10, GRID)
    assert api.grids["ice"]["Queued"] == 5
    PilotStore.open(folder).drain("ice", "now")
    a_round(folder, api.url, NOW + 20, GRID)
    assert api.grids == {}


def test_what_operators_order_at_the_server_is_done_once(
    cluster: Cluster, api: Api, folder: Path
) -> None:
    a_round(folder, api.url, NOW)
    assert (len(cluster.live), api.drained, api.heard) == (5, {"ice": ""}, 0)
    api.orders = [{"number": 7, "grid": "ice", "drained": "now"}]
    dry = a_round(folder, api.url, NOW + 10, dry=True)
    assert any("ice: would: gets no more pilots" in line for line in dry.said)
    assert len(cluster.live) == 5
    found = a_round(folder, api.url, NOW + 20)
    assert any("as an operator said at the server" in line for line in found.said)
    assert (cluster.live, api.drained, api.heard) == ([], {"ice": "now"}, 7)
    PilotStore.open(folder).resume("ice", NOW + 25)  # what is said here later counts
    a_round(folder, api.url, NOW + 30)
    assert (len(cluster.live), api.drained, api.heard) == (5, {"ice": ""}, 7)
    api.orders = [{"number": 8, "grid": "another", "drained": "now"}]
    a_round(folder, api.url, NOW + 40)
    assert (len(cluster.live), api.heard) == (5, 7)


def test_a_dry_run_says_what_it_would_do_and_does_nothing(
    cluster: Cluster, api: Api, folder: Path
) -> None:
    found = a_round(folder, api.url, NOW, dry=True)
    assert any("would submit 5 pilots" in line for line in found.said)
    assert (cluster.jobs, api.keys) == ([], {})
    assert PilotStore.open(folder).pilots("ice", 0) == []


def test_pilots_of_ours_that_nobody_remembers_are_cancelled_and_strangers_are_not(
    cluster: Cluster, api: Api, folder: Path
) -> None:
    ours = PilotStore.open(folder).prefix
    names = {"7": f"{ours}99", "8": "gbffffffn1", "9": "sleep"}
    cluster.put([{"id": key, "name": name, "state": "RUNNING"} for key, name in names.items()])
    api.bots = []
    a_round(folder, api.url, NOW)
    assert cluster.live == ["8", "9"]


LOW, HIGH = (replace(GRID, name=name, limits=GridLimits(max_queued=3)) for name in ("low", "high"))


def stray(cluster: Cluster, tag: str) -> None:
    """Let a pilot run that the folder does not know."""
    cluster.put([*cluster.jobs, {"id": "77", "name": tag, "state": "RUNNING"}])


def test_grids_of_one_batch_system_leave_each_others_pilots_alone(
    cluster: Cluster, api: Api, folder: Path
) -> None:
    api.bots = [bot(unsent=6)]
    first = a_round(folder, api.url, NOW, LOW, HIGH)
    assert {pilot.grid for pilot in first.pilots} == {"low", "high"}
    for number, state in enumerate(("PENDING", "RUNNING", "RUNNING"), 1):
        cluster.set_all(state)
        found = a_round(folder, api.url, NOW + 10 * number, LOW, HIGH)
    assert len(cluster.live) == 6
    assert sorted(pilot.native_id for pilot in found.pilots) == sorted(cluster.live)
    assert all(pilot.state is PilotState.RUNNING for pilot in found.pilots)
    assert found.said == []


def test_a_grid_that_cannot_be_asked_loses_no_pilot_to_another_of_its_batch_system(
    cluster: Cluster, api: Api, folder: Path, tmp_path: Path
) -> None:
    api.bots = [bot(unsent=6)]
    a_round(folder, api.url, NOW, LOW, HIGH)
    away = replace(HIGH, options={"environment": {"PATH": str(tmp_path)}})
    for number in (1, 2):
        found = a_round(folder, api.url, NOW + 100 * number, LOW, away)
    assert any(line.startswith("high: cannot be asked") for line in found.said)
    assert len(cluster.live) == 6


def test_a_listing_that_comes_late_costs_another_grid_of_its_batch_system_nothing(
    cluster: Cluster, api: Api, folder: Path, tmp_path: Path
) -> None:
    stuck = Stuck(tmp_path / "stuck", "squeue")
    late = replace(stuck.grid, limits=GridLimits(max_queued=0))
    (cluster.bin / "jobs.json").symlink_to(stuck.cluster.bin / "jobs.json")
    with rounds(folder, api.url, late, GRID, patience_seconds=0.5) as one:
        one(NOW)
        assert len(cluster.live) == 5
        stuck.let_go()
        numbers = count(1)
        eventually(lambda: not one(NOW + next(numbers)).said, what="its answer")
        assert len(cluster.live) == 5


def test_an_orphan_that_several_grids_list_is_cancelled_once_and_named(
    cluster: Cluster, api: Api, folder: Path
) -> None:
    tag = f"{PilotStore.open(folder).prefix}lost"
    stray(cluster, tag)
    api.bots = []
    dry = a_round(folder, api.url, NOW, LOW, HIGH, dry=True)
    assert dry.said == [f"low: would cancel 77 of {tag}: no constructor knows it"]
    assert cluster.live == ["77"]
    found = a_round(folder, api.url, NOW, LOW, HIGH)
    assert found.said == [f"low: cancels 77 of {tag}: no constructor knows it"]
    assert cluster.live == []


def test_a_pilot_whose_submission_was_forgotten_is_cancelled(
    cluster: Cluster, api: Api, folder: Path
) -> None:
    a_round(folder, api.url, NOW, LOW)
    [tag] = {pilot.tag for pilot in PilotStore.open(folder).pilots("low", 0)}
    cluster.put([])
    api.bots = []
    for number in (1, 2):
        a_round(folder, api.url, LATER + number, LOW)
    PilotStore.open(folder).forget(LATER + 8 * 86_400)
    stray(cluster, tag)
    found = a_round(folder, api.url, LATER + 8 * 86_400, LOW, HIGH)
    assert f"low: cancels 77 of {tag}: no constructor knows it" in found.said


def test_a_pilot_whose_key_is_good_is_left_alone_and_that_is_said_once(
    cluster: Cluster, api: Api, folder: Path
) -> None:
    tag = f"{PilotStore.open(folder).prefix}copy"
    stray(cluster, tag)
    api.bots, api.keys = [], {41: {"tag": tag}}
    with rounds(folder, api.url, LOW, HIGH) as one:
        said = [line for number in range(3) for line in one(NOW + number).said]
        assert cluster.live == ["77"]
        assert len(said) == 1
        assert f"leaves 77 of {tag} alone" in said[0]
        assert said[0].endswith("gridbot token revoke 41")
        api.revoked.add(41)
        assert one(NOW + 10).said == [f"low: cancels 77 of {tag}: no constructor knows it"]
    assert cluster.live == []


def test_while_the_server_is_away_no_unknown_pilot_is_cancelled(
    cluster: Cluster, api: Api, folder: Path
) -> None:
    stray(cluster, f"{PilotStore.open(folder).prefix}lost")
    found = a_round(folder, "http://127.0.0.1:1", NOW, LOW)
    assert any(line.startswith("left alone: 1 submission") for line in found.said)
    assert cluster.live == ["77"]


def test_a_constructor_with_a_copy_of_the_folder_cancels_no_pilot_of_the_first(
    cluster: Cluster, api: Api, folder: Path, tmp_path: Path
) -> None:
    PilotStore.open(folder).close()
    shutil.copytree(folder, tmp_path / "copy")
    a_round(folder, api.url, NOW)
    quiet = replace(GRID, limits=GridLimits(max_queued=0))
    found = a_round(tmp_path / "copy", api.url, NOW + 10, quiet)
    assert len(cluster.live) == 5
    assert any("alone: this folder does not know it" in line for line in found.said)


def test_what_waits_of_a_grid_that_was_removed_is_cancelled_by_another_of_its_batch_system(
    cluster: Cluster, api: Api, folder: Path
) -> None:
    a_round(folder, api.url, NOW, LOW)
    tag = PilotStore.open(folder).pilots("low", 0)[0].tag
    api.bots = []
    found = a_round(folder, api.url, NOW + 10, HIGH)
    assert (
        f"high: cancels 1_0, 1_1, 1_2 of {tag}: its grid is not configured any more" in found.said
    )
    assert cluster.live == []


def test_hosts_of_another_constructors_grid_of_the_same_name_say_nothing_of_ours(
    cluster: Cluster, api: Api, folder: Path
) -> None:
    a_round(folder, api.url, NOW)
    cluster.set_all("RUNNING")
    row = {
        "pilot": "of.another",
        "client": 1,
        "host": 4,
        "host_name": "n1",
        "core_seconds": 0.0,
        "jobs": 3,
    }
    row |= {"failures": 0, "running": 0, "seen_seconds_ago": 1.0, "error": None}
    api.pilots = [{**row, "ad": {"OpSys": "LINUX"}}]
    api.bots = [bot(unsent=50, policy='JobRequirements = Host.OpSys == "PLAN9"')]
    assert a_round(folder, api.url, NOW + 10).plan.unserved == {}


def test_a_lost_reply_neither_loses_nor_doubles_pilots(
    cluster: Cluster, api: Api, folder: Path
) -> None:
    cluster.fail("sbatch", "silent")
    first = a_round(folder, api.url, NOW)
    assert any("is not confirmed: sbatch" in line for line in first.said)
    second = a_round(folder, api.url, NOW + 10)
    assert {pilot.native_id for pilot in second.pilots} == set(cluster.live)
    a_round(folder, api.url, LATER)
    assert len(cluster.live) == 5


def test_a_refusal_pauses_the_grid_with_its_own_words(
    cluster: Cluster, api: Api, folder: Path
) -> None:
    cluster.fail("sbatch", "refuse")
    a_round(folder, api.url, NOW)
    found = a_round(folder, api.url, NOW + 10)
    assert "invalid partition specified: nowhere" in found.plan.notes["ice"]
    assert "paused" in found.plan.notes["ice"]
    cluster.work()
    assert len(a_round(folder, api.url, NOW + 61).pilots) == 6
    assert len(cluster.live) == 1  # it probes


def test_what_was_accepted_of_a_submission_stays_when_a_later_part_is_refused(
    cluster: Cluster, api: Api, folder: Path
) -> None:
    limits = GridLimits(max_queued=2000, max_running=2000, submits_per_minute=2000)
    grid = replace(GRID, limits=limits)
    api.bots = [bot(unsent=1003)]
    cluster.fail("sbatch", "refuse_later")
    first = a_round(folder, api.url, NOW, grid)
    [said] = [line for line in first.said if "not confirmed" in line]
    assert "only 1001 of 1003 pilots were accepted: sbatch ended with code 1" in said
    second = a_round(folder, api.url, NOW + 10, grid)
    assert sum(pilot.state is PilotState.QUEUED for pilot in second.pilots) == 1001
    cluster.work()
    third = a_round(folder, api.url, LATER, grid)
    refused = [pilot for pilot in third.pilots if pilot.state is PilotState.ENDED]
    assert [pilot.index for pilot in refused] == [1001, 1002]
    assert "invalid partition" in refused[0].reason
    assert len(cluster.live) == 1003  # two were submitted instead


def test_a_grid_that_is_away_does_not_stop_the_others(
    cluster: Cluster, api: Api, folder: Path
) -> None:
    away = Grid(name="away", kind="grid_engine")
    found = a_round(folder, api.url, NOW, away, GRID)
    assert "cannot be asked" in found.plan.notes["away"]
    assert len(cluster.live) == 5


class Stuck:
    """A cluster one of whose commands hangs until it is let go, and then works."""

    def __init__(self, folder: Path, command: str) -> None:
        folder.mkdir()
        self.cluster = Cluster(folder)
        self._called, self._gate = folder / "called", folder / "gate"
        os.mkfifo(self._called)
        os.mkfifo(self._gate)
        self._path = path = self.cluster.bin / command
        self._usual = folder / "usual"
        path.rename(self._usual)
        works = folder / command
        works.symlink_to(FAKE)
        (folder / "jobs.json").symlink_to(self.cluster.bin / "jobs.json")
        path.write_text(f'#!/bin/sh\necho > {self._called}\ncat {self._gate}\nexec {works} "$@"\n')
        path.chmod(0o755)

    @property
    def grid(self) -> Grid:
        path = f"{self.cluster.bin}:/usr/bin:/bin"
        return replace(GRID, name="stuck", options={"environment": {"PATH": path}})

    def let_go(self) -> None:
        """Let the call that hangs go on, and later ones not hang; none would stop the test."""
        self._usual.replace(self._path)
        self._called.read_text()
        self._gate.write_text("")


@pytest.mark.parametrize("command", ["squeue", "sbatch"])
def test_a_grid_whose_command_hangs_keeps_no_other_waiting(
    cluster: Cluster, api: Api, folder: Path, tmp_path: Path, command: str
) -> None:
    stuck = Stuck(tmp_path / "stuck", command)
    api.bots = [bot(unsent=200)]
    with rounds(folder, api.url, stuck.grid, GRID, patience_seconds=0.5) as one:
        first, second = one(NOW), one(NOW + 10)
        assert len(cluster.live) == 100
        assert "it has not answered for" in second.plan.notes["stuck"]
        assert [item.grid for item in (*first.plan.submits, *second.plan.submits)].count("ice") == 1
        stuck.let_go()
        numbers = count(2)
        eventually(
            lambda: len(known(one(NOW + 10 * next(numbers)))) == 100,
            what="the pilots that were late",
        )
        assert known(one(NOW + 1000)) == sorted(stuck.cluster.live)


def known(found: Round) -> list[str]:
    return sorted(
        pilot.native_id for pilot in found.pilots if pilot.grid == "stuck" and pilot.is_live
    )


def test_without_the_server_nothing_is_submitted_and_nothing_cancelled(
    cluster: Cluster, api: Api, folder: Path
) -> None:
    a_round(folder, api.url, NOW)
    for number in range(1, 6):
        found = a_round(folder, "http://127.0.0.1:1", NOW + 100 * number)
    assert any(line.startswith("nothing is planned") for line in found.said)
    assert len(cluster.live) == 5


def test_without_the_server_a_drain_is_carried_out_all_the_same(
    cluster: Cluster, api: Api, folder: Path
) -> None:
    a_round(folder, api.url, NOW)
    PilotStore.open(folder).drain("ice", "now")
    a_round(folder, "http://127.0.0.1:1", NOW + 10)
    assert cluster.live == []


def test_pilots_of_a_grid_that_is_configured_no_more_are_given_up_once(
    cluster: Cluster, api: Api, folder: Path
) -> None:
    first = a_round(folder, api.url, NOW)
    other = Grid(name="fire", kind="slurm", limits=GridLimits(max_queued=0))
    found = a_round(folder, api.url, NOW + 10, other)
    assert "ice: 5 pilots given up: its grid is not configured any more" in found.said
    assert api.revoked == {1}
    assert sorted(api.ended) == sorted(pilot.id for pilot in first.pilots)
    again = a_round(folder, api.url, NOW + 20, other)
    assert not any(line.startswith("ice") for line in again.said)
    assert PilotStore.open(folder).grids_with_pilots() == set()


def test_pilots_that_are_killed_in_their_first_job_do_not_pause_the_grid(
    cluster: Cluster, api: Api, folder: Path
) -> None:
    first = a_round(folder, api.url, NOW)
    cluster.set_all("RUNNING")
    row = {
        "client": 1,
        "host": 4,
        "host_name": "n1",
        "core_seconds": 0.0,
        "jobs": 0,
        "failures": 0,
        "running": 1,
    }
    row |= {"seen_seconds_ago": 1.0, "error": None, "ad": {}}
    api.pilots = [{**row, "pilot": pilot.id} for pilot in first.pilots]
    a_round(folder, api.url, NOW + 10)
    cluster.set_all("PREEMPTED")
    a_round(folder, api.url, NOW + 20)
    api.pilots = []
    found = a_round(folder, api.url, NOW + 30)
    assert "paused" not in found.plan.notes["ice"]
    assert len(cluster.live) == 5


def test_a_drained_grid_is_empty_after_one_look_and_its_keys_are_revoked(
    cluster: Cluster, api: Api, folder: Path
) -> None:
    a_round(folder, api.url, NOW)
    PilotStore.open(folder).drain("ice", "now")
    found = a_round(folder, api.url, NOW + 10)
    assert (cluster.live, api.revoked) == ([], {1})
    assert "drained" in found.plan.notes["ice"]
    PilotStore.open(folder).resume("ice", NOW + 20)
    a_round(folder, api.url, NOW + 30)
    assert len(cluster.live) == 5


def test_while_pilots_of_a_drained_grid_may_finish_their_keys_are_good(
    cluster: Cluster, api: Api, folder: Path
) -> None:
    a_round(folder, api.url, NOW)
    cluster.set_all("RUNNING")
    PilotStore.open(folder).drain("ice", "finish")
    a_round(folder, api.url, NOW + 10)
    assert (len(cluster.live), api.revoked) == (5, set())


def test_what_the_server_says_of_a_pilot_is_remembered(
    cluster: Cluster, api: Api, folder: Path
) -> None:
    first = a_round(folder, api.url, NOW)
    cluster.set_all("RUNNING")
    row = {
        "pilot": first.pilots[0].id,
        "client": 1,
        "host": 4,
        "host_name": "n1",
        "core_seconds": 0.0,
        "jobs": 3,
    }
    row |= {"failures": 1, "running": 2, "seen_seconds_ago": 1.0, "error": "why", "ad": {}}
    api.pilots = [row, {**row, "pilot": "of.another", "host": 5}]
    found = a_round(folder, api.url, NOW + 10).pilots[0]
    assert (found.jobs, found.failures, found.holding, found.error) == (3, 1, 2, "why")
    assert (found.has_joined, found.node, found.state) == (True, "n1", PilotState.RUNNING)


def test_a_pilot_that_ran_unseen_is_charged_when_the_server_tells_of_it(
    cluster: Cluster, api: Api, folder: Path
) -> None:
    [first, *_] = a_round(folder, api.url, NOW).pilots
    cluster.put([])
    row = {"pilot": first.id, "client": 1, "host": 4, "host_name": "n1", "core_seconds": 9.0}
    row |= {"jobs": 3, "failures": 0, "running": 0, "seen_seconds_ago": 1.0, "error": None}
    api.pilots = [{**row, "ad": {}}]
    found = {pilot.id: pilot for pilot in a_round(folder, api.url, LATER).pilots}
    assert found[first.id].started_at == NOW
    assert [
        pilot.hours for pilot in found.values() if not pilot.has_joined and not pilot.is_live
    ] == [0.0] * 4


def _settle(cluster: Cluster, api: Api, folder: Path) -> None:
    """Do rounds until whatever was left open is closed."""
    api.kill_at = None
    cluster.work()
    for number in range(3):
        a_round(folder, api.url, LATER + number * GRACE_SECONDS)


def _assert_all_is_well(cluster: Cluster, api: Api, folder: Path) -> None:
    store = PilotStore.open(folder)
    known = [pilot for pilot in store.pilots("ice", 0) if pilot.is_live]
    assert sorted(pilot.native_id for pilot in known) == sorted(cluster.live)
    assert len(cluster.live) == 5
    good = {token for _, token in store.tokens_of("ice")}
    assert good <= set(api.keys) - api.revoked


def _killed_round(api: Api, folder: Path, now: float) -> None:
    command = [sys.executable, "-m", "tests.overlay_cluster", str(folder), api.url, str(now)]
    process = subprocess.Popen(command, cwd=Path(__file__).parents[3])
    api.victim = process.pid
    assert process.wait(60) == -9


@pytest.mark.parametrize("command", ["squeue", "scontrol", "sbatch"])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_constructor_killed_at_a_command_loses_nothing_and_doubles_nothing(
    cluster: Cluster, api: Api, folder: Path, command: str, moment: str
) -> None:
    cluster.fail(command, moment)
    _killed_round(api, folder, NOW)
    _settle(cluster, api, folder)
    _assert_all_is_well(cluster, api, folder)


@pytest.mark.parametrize("request_number", [1, 2])
def test_a_constructor_killed_while_the_server_answers_loses_nothing_and_doubles_nothing(
    cluster: Cluster, api: Api, folder: Path, request_number: int
) -> None:
    api.kill_at = request_number
    _killed_round(api, folder, NOW)
    _settle(cluster, api, folder)
    _assert_all_is_well(cluster, api, folder)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_constructor_killed_while_it_cancels_loses_nothing(
    cluster: Cluster, api: Api, folder: Path, moment: str
) -> None:
    a_round(folder, api.url, NOW)
    api.bots = [bot(unsent=2)]
    for number in (1, 2):
        a_round(folder, api.url, NOW + number)
    cluster.fail("scancel", moment)
    _killed_round(api, folder, NOW + 3)
    api.bots = [bot()]
    _settle(cluster, api, folder)
    _assert_all_is_well(cluster, api, folder)


def test_how_pilots_ended_is_told_once(cluster: Cluster, api: Api, folder: Path) -> None:
    a_round(folder, api.url, NOW)
    # They left by themselves: there is nothing that they should have said.
    row = {"client": 1, "host": 4, "host_name": "n1", "core_seconds": 9.0, "jobs": 3}
    row |= {"failures": 0, "running": 0, "error": "", "ad": {}}
    [*names] = (pilot.id for pilot in PilotStore.open(folder).pilots("ice", 0))
    api.pilots = [{**row, "pilot": name} for name in names]
    cluster.set_all("COMPLETED")
    api.bots = []
    a_round(folder, api.url, NOW + 10)
    told = dict(api.logs)
    assert told.keys() == set(names)
    assert {(log["node"], log["words"]) for log in told.values()} == {("n1", "")}
    assert sorted(api.ended) == sorted(names)
    api.logs.clear()
    a_round(folder, api.url, NOW + 20)
    assert api.logs == {}
    assert sorted(api.ended) == sorted(names)
    store = PilotStore.open(folder)
    assert all(pilot.is_logged for pilot in store.pilots("ice", 0))
