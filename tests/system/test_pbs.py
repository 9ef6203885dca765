"""Pilots by the command line of a PBS: Slurm's wrappers of the same names, on a real cluster.

They know no arrays with a PBS's ids and no queues with limits; what they do differ in is not
tested here but with written outputs, in tests/unit/overlay/test_submitter_pbs.py.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.orders import make_order
from tests.system.batch_systems import Slurm, open_folder, slurm, torque_wrappers
from tests.system.deployment import Deployment
from tests.system.overlays import overlay
from tests.system.sightings import WAITS, found
from tests.system.ssh_daemon import LoginNode, login_node

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


# Four jobs meet that run at the same time, after one that the pilot runs alone.
MEETS = (
    'test "$1" = 0 && exit; touch "$0/$1";'
    ' while [ "$(ls "$0" | wc -l)" -lt 4 ]; do sleep 0.05; done; echo "$GRIDBOT_NODES"'
)
# One that has both nodes starts something on the second as mpirun does, as words of a shell.
REACHES = 'echo "$GRIDBOT_NODES"; "$OMPI_MCA_plm_rsh_agent" n2 echo "it is" "; echo \\$0"'


def wide(cluster: Slurm, login: LoginNode) -> list[str]:
    """Options of a grid whose pilots have two nodes; the second one is reached by ssh.

    A PBS writes the file with the nodes' names, and Slurm's wrappers do not.  A job that starts
    something on the other node reads what ssh reads.
    """
    names, config = cluster.folder / "nodes", login.folder / "config"
    names.write_text("n1\nn1\nn2\nn2\n")
    config.write_text(
        f"Host n2\nHostName 127.0.0.1\nPort {login.port}\nIdentityFile {login.folder}/identity\n"
        f"UserKnownHostsFile {login.folder}/known_hosts\n"
    )
    path = f"{cluster.folder / 'bin'}:{os.environ['PATH']}"
    environment = ", ".join(
        f"{name} = {json.dumps(value)}" for name, value in {**cluster.env, "PATH": path}.items()
    )
    options = (
        'flavour="torque"', "arrays=false", f"environment={{{environment}}}",
        f'ssh=["ssh", "-F", "{config}", "-o", "BatchMode=yes"]',
    )  # fmt: skip
    return [
        *("--nodes", "2", "--cpus", "2", "--memory", "1800", "--max-running", "1"),
        *("--setup", f"export GRIDBOT_ALLOW_READ={login.folder}"),
        f"--directive=-V -v PBS_NODEFILE={names}",
        *(word for option in options for word in ("--option", option)),
    ]


def test_a_pilot_of_two_nodes_runs_jobs_on_both_and_on_both_at_once(
    running: Deployment, private_directory: Path
) -> None:
    meeting = running.folder / "meeting"
    meeting.mkdir()
    with open_folder("slurm") as folder, login_node(private_directory) as login:
        torque_wrappers(folder / "bin")
        with slurm(folder, nodes=2) as cluster, overlay(running, "wide") as made:
            made.add("pbs", "wide", *wide(cluster, login))
            bots = [
                running.submit("--range", "0:5", "--", "sh", "-c", MEETS, str(meeting), "{}"),
                running.submit("--cpus", "4", "--range", "0:1", "--", "sh", "-c", REACHES),
            ]
            made.start()
            for bot in bots:
                running.wait(bot, 180.0)
            made.wait_left()
            assert len(made.pilots("wide")) == 1
    with running.session() as session:
        met, alone = ([str(one.stdout) for one in session.bot(bot).results()] for bot in bots)
    assert sorted(met) == ["", "n1\n", "n1\n", "n2\n", "n2\n"]
    assert alone == ["n1,n2\nit is\nsh\n"]
