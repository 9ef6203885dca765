"""Pilots by the command line of a PBS: Slurm's wrappers of the same names, on a real cluster.

They know no arrays with a PBS's ids and no queues with limits; what they do differ in is not
tested here but with written outputs, in tests/unit/overlay/test_submitter_pbs.py.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.orders import make_order
from tests.system.batch_systems import Slurm, open_folder, slurm, torque_wrappers
from tests.system.sightings import WAITS, found

from gridbot_overlay.decide.model import Grid, PilotState
from gridbot_overlay.submitters import KINDS, GridError, Submitter


@pytest.fixture(scope="module")
def cluster() -> Iterator[Slurm]:
    with open_folder("slurm") as folder:
        torque_wrappers(folder / "bin")
        with slurm(folder, nodes=1) as made:
            yield made


@pytest.fixture
def submitter(cluster: Slurm, private_directory: Path) -> Iterator[Submitter]:
    environment = {**cluster.env, "PATH": f"{cluster.folder / 'bin'}:{os.environ['PATH']}"}
    options = {"environment": environment, "flavour": "torque", "arrays": False}
    yield KINDS["pbs"](Grid(name="p", kind="pbs", options=options), private_directory)
    cluster.cancel_everything()


def test_pilots_run_know_themselves_and_their_end_is_seen(
    cluster: Slurm, submitter: Submitter
) -> None:
    assert submitter.pilots("knows") == []  # and no error
    says = 'echo "$GRIDBOT_PILOT_TAG $GRIDBOT_PILOT_INDEX $GRIDBOT_NATIVE_ID" >&2'
    native_ids = submitter.submit(make_order("knows", says, count=2))
    pilots = sorted(found(submitter, "knows", PilotState.ENDED), key=lambda pilot: pilot.index)
    assert {pilot.native_id: pilot.index for pilot in pilots} == {
        native_ids[0]: 0,
        native_ids[1]: 1,
    }
    assert [submitter.tail(native_id, "knows") for native_id in native_ids] == [
        f"knows {index} {native_id}\n" for index, native_id in enumerate(native_ids)
    ]


def test_pilots_are_cancelled(submitter: Submitter) -> None:
    native_ids = submitter.submit(make_order("waits", WAITS, count=2))
    found(submitter, "waits", PilotState.RUNNING)
    submitter.cancel(native_ids)
    found(submitter, "waits", PilotState.ENDED)
    submitter.cancel(native_ids)  # gone already, which is no error


def test_a_refusal_holds_the_systems_words(submitter: Submitter) -> None:
    with pytest.raises(GridError, match="invalid partition specified: nowhere") as caught:
        submitter.submit(make_order("refused", "exit 0", "-q nowhere"))
    assert caught.value.is_lasting


def test_a_server_that_is_away_is_an_error_and_not_an_empty_list(
    cluster: Slurm, submitter: Submitter
) -> None:
    cluster.stop_controller()
    try:
        with pytest.raises(GridError, match="qstat ended with code") as caught:
            submitter.pilots("lonely")
        assert not caught.value.is_lasting
    finally:
        cluster.start_controller()
