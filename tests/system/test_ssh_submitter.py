"""Pilots on a Slurm cluster behind a login node that only a real sshd lets us use."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.orders import make_order
from tests.system.batch_systems import Slurm, open_folder, slurm
from tests.system.deployment import eventually
from tests.system.sightings import WAITS, found
from tests.system.ssh_daemon import LoginNode, login_node

from gridbot_overlay.decide.model import Grid, PilotState
from gridbot_overlay.submitters import KINDS, GridError, Submitter


@pytest.fixture(scope="module")
def cluster() -> Iterator[Slurm]:
    with open_folder("slurm") as folder, slurm(folder, nodes=2) as made:
        yield made


@pytest.fixture
def node(private_directory: Path) -> Iterator[LoginNode]:
    with login_node(private_directory) as made:
        yield made


@pytest.fixture
def submitter(cluster: Slurm, node: LoginNode) -> Iterator[Submitter]:
    yield submitter_of(cluster, node)
    cluster.cancel_everything()
    cluster.wait_idle()


def submitter_of(cluster: Slurm, node: LoginNode, **options: Any) -> Submitter:
    options = {**node.options, "environment": cluster.env, **options}
    return KINDS["ssh"](Grid(name="far", kind="ssh", options=options), node.folder / "grid")


def calls(submitter: Submitter) -> list[Callable[[], object]]:
    return [
        lambda: submitter.pilots("p"),
        lambda: submitter.cancel(["1"]),
        lambda: submitter.submit(make_order("late", WAITS)),
    ]


def test_a_pilot_runs_behind_the_login_node_and_all_commands_share_one_login(
    submitter: Submitter, node: LoginNode
) -> None:
    hostile = 'echo "it\'s $GRIDBOT_PILOT_TAG; \\$(false) `echo *` ü" | head -c 9 >&2; exit 7'
    [native_id] = submitter.submit(make_order("far", hostile, owners=("o'brien", "b $(x)")))
    [pilot] = found(submitter, "far", PilotState.ENDED)
    assert (pilot.native_id, pilot.exit_code) == (native_id, 7)
    assert submitter.tail(native_id, "far") == "it's far;"
    assert node.logins() == 1


def test_what_lies_on_the_login_node_is_private(submitter: Submitter, node: LoginNode) -> None:
    [native_id] = submitter.submit(make_order("hidden", "echo secret >&2"))
    found(submitter, "hidden", PilotState.ENDED)
    [log] = node.home.rglob("*.err")
    assert log.name == f"hidden.{native_id}.err"
    assert log.parent.stat().st_mode & 0o777 == 0o700


def test_another_constructor_finds_the_pilots_and_cancels_them(
    submitter: Submitter, cluster: Slurm, node: LoginNode
) -> None:
    native_ids = submitter.submit(make_order("kept", WAITS, count=6))
    again = submitter_of(cluster, node)
    assert sorted(pilot.native_id for pilot in again.pilots("kept")) == native_ids
    again.cancel([*native_ids, "99999"])
    # Those that waited disappear from Slurm's listing at once.
    eventually(
        lambda: all(pilot.state is PilotState.ENDED for pilot in again.pilots("kept")),
        what="their end",
    )


def test_a_login_node_that_is_away_is_no_refusal_and_no_empty_list(
    submitter: Submitter, node: LoginNode
) -> None:
    [native_id] = submitter.submit(make_order("patient", WAITS))
    node.stop()
    for call in calls(submitter):
        with pytest.raises(GridError, match=r"127\.0\.0\.1 is not reached") as caught:
            call()
        assert not caught.value.is_lasting
    node.start()
    assert [pilot.native_id for pilot in submitter.pilots("patient")] == [native_id]


def test_a_link_that_went_silent_is_noticed_and_replaced(
    submitter: Submitter, cluster: Slurm, node: LoginNode
) -> None:
    quick = ["-o", "ServerAliveInterval=1", *node.options["ssh"]]
    impatient = submitter_of(cluster, node, ssh=quick)
    [native_id] = impatient.submit(make_order("silent", WAITS))
    node.freeze()
    # ssh gives the connection up after three questions without an answer, and makes a new one.
    assert [pilot.native_id for pilot in impatient.pilots("silent")] == [native_id]
    assert node.logins() == 2


def test_a_key_that_is_not_let_in_is_a_refusal_in_sshs_words(
    cluster: Slurm, node: LoginNode
) -> None:
    stranger = submitter_of(cluster, node, identity=str(node.folder / "stranger"))
    for call in calls(stranger):
        with pytest.raises(GridError, match="Permission denied") as caught:
            call()
        assert caught.value.is_lasting
    [finding] = stranger.check()
    assert not finding.is_good
    assert "Permission denied" in finding.text


def test_a_login_node_that_nobody_vouches_for_is_refused(cluster: Slurm, node: LoginNode) -> None:
    (node.folder / "known_hosts").write_text("")
    with pytest.raises(GridError, match="Host key verification failed") as caught:
        submitter_of(cluster, node).pilots("p")
    assert caught.value.is_lasting
    assert node.logins() == 0


def test_slurms_own_refusal_comes_through(submitter: Submitter) -> None:
    with pytest.raises(GridError, match="invalid partition specified: nowhere") as caught:
        submitter.submit(make_order("refused", WAITS, "--partition=nowhere"))
    assert caught.value.is_lasting


def test_check_looks_at_the_connection_and_at_the_cluster(submitter: Submitter) -> None:
    findings = submitter.check()
    assert all(finding.is_good for finding in findings), findings
    assert [finding.what for finding in findings][:2] == ["ssh", "slurm"]


def test_where_a_socket_cannot_lie_every_command_logs_in(
    cluster: Slurm, submitter: Submitter, node: LoginNode
) -> None:
    deep = node.folder / ("x" * 60)
    options = {**node.options, "environment": cluster.env}
    alone = KINDS["ssh"](Grid(name="far", kind="ssh", options=options), deep)
    assert alone.pilots("nobody") == []
    assert node.logins() == 2  # for the home, and for the list
    assert "each command logs in anew" in alone.check()[0].text
