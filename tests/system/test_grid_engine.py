"""Pilots on a real Grid Engine: one host with four slots, in namespaces of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.orders import make_order
from tests.system.batch_systems import open_folder
from tests.system.deployment import eventually
from tests.system.grid_engine_cell import GridEngine, grid_engine
from tests.system.sightings import WAITS, found

from gridbot_overlay.decide.model import Grid, GridLimits, PilotShape, PilotState, Sighting
from gridbot_overlay.submitters import KINDS, GridError, Submitter


@pytest.fixture(scope="module")
def cell() -> Iterator[GridEngine]:
    with open_folder("sge") as folder, grid_engine(folder) as made:
        yield made


@pytest.fixture
def submitter(cell: GridEngine, private_directory: Path) -> Iterator[Submitter]:
    yield submitter_of(cell, private_directory)
    cell.cancel_everything()


def submitter_of(
    cell: GridEngine, folder: Path, shape: PilotShape | None = None, **options: str
) -> Submitter:
    # The way into the namespaces stands for the way to a login node.
    through = [*cell.entrance, "sh", "-c"]
    grid = Grid(
        name="g",
        kind="grid_engine",
        shape=shape or PilotShape(),
        limits=GridLimits(max_running=4),
        options={"environment": cell.env, "through": through, **options},
    )
    return KINDS["grid_engine"](grid, folder)


def test_pilots_run_know_themselves_and_their_end_is_in_the_accounting(
    cell: GridEngine, submitter: Submitter, private_directory: Path
) -> None:
    gate = private_directory / "gate"
    gate.touch()
    says = 'echo "$GRIDBOT_PILOT_TAG $GRIDBOT_PILOT_INDEX $GRIDBOT_NATIVE_ID" >&2'
    waits = f"while test -e {gate}; do sleep 0.1; done; exit 7"
    order = make_order("knows", f"{says}; {waits}", count=2, owners=("alice", "bob"))
    native_ids = submitter.submit(order)
    found(submitter, "knows", PilotState.RUNNING)
    gate.unlink()

    def ended() -> list[Sighting]:
        seen = submitter.pilots("knows")
        return seen if {pilot.exit_code for pilot in seen} == {7} else []

    pilots = eventually(ended, what="the accounting's records")
    assert {pilot.state for pilot in pilots} == {PilotState.ENDED}
    assert [submitter.tail(native_id, "knows") for native_id in native_ids] == [
        f"knows {index} {native_id}\n" for index, native_id in enumerate(native_ids)
    ]
    job = native_ids[0].partition(".")[0]
    assert "gridbot.alice+bob" in cell.run("qacct", "-j", job)


def test_pilots_that_find_no_room_are_queued_and_leave_when_cancelled(
    submitter: Submitter,
) -> None:
    native_ids = submitter.submit(make_order("full", WAITS, count=6))

    def is_full() -> bool:
        states = [pilot.state for pilot in submitter.pilots("full")]
        return states.count(PilotState.RUNNING) == 4 and states.count(PilotState.QUEUED) == 2

    eventually(is_full, what="4 that run and 2 that wait")
    submitter.cancel([*native_ids, "99999"])
    found(submitter, "full", PilotState.ENDED)
    submitter.cancel(native_ids)  # gone already, which is no error


def test_a_pilot_that_its_node_could_not_start_is_held_with_the_nodes_words(
    submitter: Submitter,
) -> None:
    submitter.submit(make_order("broken", WAITS, "-wd /nonexistent"))
    [pilot] = found(submitter, "broken", PilotState.HELD)
    assert "can't chdir to /nonexistent" in pilot.reason


def test_the_cell_ends_a_pilot_at_its_walltime_and_says_so(submitter: Submitter) -> None:
    submitter.submit(make_order("long", WAITS, "-l h_rt=2"))

    def ended() -> str:
        return "".join(pilot.reason for pilot in submitter.pilots("long"))

    assert "h_rt" in eventually(ended, what="the accounting's record")


def test_what_could_never_start_is_refused_at_once(submitter: Submitter) -> None:
    with pytest.raises(GridError, match="no suitable queues") as caught:
        submitter.submit(make_order("never", WAITS, "-l h_rt=99999"))
    assert caught.value.is_lasting
    with pytest.raises(GridError, match="unknown resource"):
        submitter.submit(make_order("never", WAITS, "-l nonsense=1"))
    assert submitter.pilots("never") == []


def test_a_master_that_is_away_is_an_error_and_not_an_empty_list(
    cell: GridEngine, submitter: Submitter
) -> None:
    [native_id] = submitter.submit(make_order("lonely", WAITS))
    found(submitter, "lonely", PilotState.RUNNING)
    cell.stop_master()
    try:
        with pytest.raises(GridError, match="qmaster") as caught:
            submitter.pilots("lonely")
        assert not caught.value.is_lasting
        with pytest.raises(GridError, match="qmaster"):
            submitter.cancel([native_id])
        [finding] = submitter.check()
        assert not finding.is_good
    finally:
        cell.start_master()
    # It ran on meanwhile, and a submitter that knows nothing yet finds it.
    assert found(submitter, "lonely", PilotState.RUNNING)[0].native_id == native_id


def test_a_pilot_whose_node_has_died_says_so(cell: GridEngine, submitter: Submitter) -> None:
    submitter.submit(make_order("deserted", WAITS))
    found(submitter, "deserted", PilotState.RUNNING)
    cell.kill_host()
    try:

        def reason() -> bool:
            return {p.reason for p in submitter.pilots("deserted")} == {"its node does not answer"}

        eventually(reason, what="the host's silence")
    finally:
        cell.start_host()
    eventually(
        lambda: {pilot.reason for pilot in submitter.pilots("deserted")} == {""},
        what="the host's return",
    )


def test_check_is_green_where_pilots_can_run(cell: GridEngine, private_directory: Path) -> None:
    findings = submitter_of(cell, private_directory).check()
    assert all(finding.is_good for finding in findings), findings
    shape = PilotShape(cpus=2)
    findings = submitter_of(cell, private_directory, shape, parallel_environment="smp").check()
    assert all(finding.is_good for finding in findings), findings
    assert not cell.run("qstat", "-u", "*").strip()  # and nothing was submitted


@pytest.mark.parametrize(
    ("shape", "options", "said"),
    [
        (PilotShape(walltime_seconds=7200), {}, "there are all.q 3600 s"),
        (PilotShape(cpus=2), {}, "see qconf -spl"),
        (PilotShape(cpus=2), {"parallel_environment": "mpi"}, '"mpi" does not exist'),
        (PilotShape(), {"memory": "nonsense"}, 'unknown resource "nonsense"'),
    ],
)
def test_check_says_before_any_submission_what_would_never_start(
    cell: GridEngine,
    private_directory: Path,
    shape: PilotShape,
    options: dict[str, str],
    said: str,
) -> None:
    findings = submitter_of(cell, private_directory, shape, **options).check()
    bad = [finding.text for finding in findings if not finding.is_good]
    assert any(said in text for text in bad), bad
