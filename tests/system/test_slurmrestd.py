"""Pilots by the REST interface of a real Slurm cluster: four nodes of two CPUs and two GPUs."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.orders import make_order
from tests.system.batch_systems import open_folder
from tests.system.deployment import Deployment, eventually
from tests.system.overlays import overlay
from tests.system.sightings import WAITS, found
from tests.system.slurm_rest import SlurmRest, slurm_rest

from gridbot_overlay.decide.model import Grid, PilotShape, PilotState
from gridbot_overlay.submitters import KINDS, GridError, Submitter


@pytest.fixture(scope="module")
def rest() -> Iterator[SlurmRest]:
    with open_folder("slurmrestd") as folder, slurm_rest(folder, gpus=2) as made:
        yield made


@pytest.fixture
def submitter(rest: SlurmRest) -> Iterator[Submitter]:
    yield submitter_of(rest)
    rest.cluster.cancel_everything()
    rest.cluster.wait_idle()


def submitter_of(rest: SlurmRest, *directives: str, **options: str) -> Submitter:
    given = {**rest.options, **options}
    grid = Grid(name="s", kind="slurmrestd", directives=directives, options=given)
    return KINDS["slurmrestd"](grid, rest.cluster.folder / "grid")


def test_a_pilot_runs_knows_itself_and_shows_its_owners_to_the_accounting(
    rest: SlurmRest, submitter: Submitter
) -> None:
    says = 'echo "$GRIDBOT_PILOT_TAG $GRIDBOT_PILOT_INDEX $GRIDBOT_NATIVE_ID" >&2; exit 7'
    native_ids = submitter.submit(make_order("knows", says, owners=("alice", "b,o b"), count=2))
    pilots = found(submitter, "knows", PilotState.ENDED)
    assert {(one.native_id, one.index, one.exit_code) for one in pilots} == {
        (native_ids[0], 0, 7),
        (native_ids[1], 1, 7),
    }
    assert submitter.tail(native_ids[1], "knows") == f"knows 1 {native_ids[1]}\n"
    shown = rest.cluster.run("scontrol", "show", "job", native_ids[1])
    assert "Comment=gridbot for alice+b_o_b" in shown
    assert "Requeue=0" in shown
    assert "TimeLimit=00:10:00" in shown


def test_pilots_are_found_by_their_tags_and_end_by_a_cancel(
    rest: SlurmRest, submitter: Submitter
) -> None:
    rest.cluster.run("sbatch", "--job-name=other|thing", "--output=/dev/null", "--wrap=sleep 600")
    submitter.submit(make_order("mine-2", WAITS))
    native_ids = submitter.submit(make_order("mine-1", WAITS, count=8))

    def is_full() -> bool:
        states = [pilot.state for pilot in submitter_of(rest).pilots("mine-")]
        return states.count(PilotState.RUNNING) == 7 and states.count(PilotState.QUEUED) == 2

    eventually(is_full, what="7 that run and 2 that wait")
    submitter.cancel([*native_ids, "99999"])
    assert len(found(submitter, "mine-1", PilotState.ENDED)) == 8
    found(submitter, "mine-2", PilotState.RUNNING)
    submitter.cancel(native_ids)  # gone already, which is no error


def test_gpus_are_asked_for(submitter: Submitter) -> None:
    shape = PilotShape(memory_mb=100, walltime_seconds=600, gpus=2)
    [native_id] = submitter.submit(
        make_order("gpus", 'echo "$CUDA_VISIBLE_DEVICES" >&2', shape=shape)
    )
    found(submitter, "gpus", PilotState.ENDED)
    assert submitter.tail(native_id, "gpus") == "0,1\n"


@pytest.mark.parametrize(
    ("directive", "words"),
    [
        ("partition=nowhere", "Invalid partition name specified"),
        ("no_such_field=1", 'Unknown key "no_such_field"'),
        ("memory_per_node=900000", "Requested node configuration is not available"),
    ],
)
def test_what_slurm_refuses_is_refused_for_good_in_its_words(
    directive: str, words: str, rest: SlurmRest
) -> None:
    with pytest.raises(GridError, match=words) as error:
        submitter_of(rest, directive).submit(make_order("refused"))
    assert error.value.is_lasting
    # Slurm remembers some of those that it did not take.
    seen = submitter_of(rest).pilots("refused")
    assert {pilot.state for pilot in seen} <= {PilotState.ENDED}


def test_without_a_controller_nobody_says_that_there_are_no_pilots(rest: SlurmRest) -> None:
    submitter = submitter_of(rest)
    rest.cluster.stop_controller()
    try:
        with pytest.raises(GridError):
            submitter.pilots("any")
        with pytest.raises(GridError) as error:
            submitter.submit(make_order("away"))
        assert not error.value.is_lasting
    finally:
        rest.cluster.start_controller()
        rest.cluster.wait_idle()


def test_check_says_who_is_let_in_and_shows_no_token(rest: SlurmRest, tmp_path: Path) -> None:
    good = submitter_of(rest).check()
    assert [(one.what, one.is_good) for one in good] == [("slurmrestd", True), ("logs", True)]
    assert "Slurm 22.05" in good[0].text
    wrong = tmp_path / "token"
    wrong.write_text("SLURM_JWT=eyJhbGciOiJIUzI1NiJ9.e30.wrong")
    wrong.chmod(0o600)
    bad = submitter_of(rest, token=str(wrong)).check()
    assert not bad[0].is_good
    assert "eyJhbGci" not in bad[0].text


def test_a_bot_runs_on_pilots_that_leave(running: Deployment, rest: SlurmRest) -> None:
    with overlay(running, "slurmrestd") as constructor:
        given = [word for pair in rest.options.items() for word in ("--option", "=".join(pair))]
        known = ("--setup", 'export GRIDBOT_HOST_ID="$SLURMD_NODENAME"')
        constructor.add("slurmrestd", "s", *given, *known, "--memory", "900MB", "--walltime", "10m")
        bot = running.submit("--range", "0:8", "--", "echo", "{}")
        constructor.start()
        running.wait(bot, 180.0)
        constructor.wait_left()
        pilots = constructor.pilots("s")
    assert running.outcomes(bot) == dict.fromkeys(range(8), True)
    assert pilots and all(pilot.has_joined and pilot.native_id for pilot in pilots)
