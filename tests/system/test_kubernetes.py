"""Kubernetes: pilots as Jobs, by a fake kubectl, because no cluster can run here."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.orders import make_order
from tests.system.deployment import Deployment, eventually
from tests.system.kubernetes_cluster import KubernetesCluster
from tests.system.overlays import overlay
from tests.system.sightings import WAITS, found

from gridbot_overlay.decide.model import Grid, PilotState
from gridbot_overlay.submitters import GridError, kubernetes
from gridbot_overlay.submitters.kubernetes import Kubernetes

TAG = "gbaaaaaan1"


@pytest.fixture
def cluster(tmp_path: Path) -> KubernetesCluster:
    return KubernetesCluster.of(tmp_path / "cluster")


@pytest.fixture
def pilots(cluster: KubernetesCluster) -> Iterator[Kubernetes]:
    made = submitter(cluster)
    yield made
    made.cancel([pilot.native_id for pilot in made.pilots("gb")])


def submitter(cluster: KubernetesCluster) -> Kubernetes:
    """One that knows nothing of what was submitted, as after a start."""
    options = {"image": "python:3.12", "environment": {"PATH": cluster.path}}
    return Kubernetes(Grid(name="k8s", kind="kubernetes", options=options), cluster.folder)


def state_of(pilots: Kubernetes, index: int) -> PilotState:
    [state] = [one.state for one in pilots.pilots(TAG) if one.index == index]
    return state


def test_a_bot_runs_on_pods_and_the_key_is_in_no_argument(
    running: Deployment, cluster: KubernetesCluster
) -> None:
    options = ("image=python:3.12", f'environment={{PATH = "{cluster.path}"}}')
    given = [word for option in options for word in ("--option", option)]
    with overlay(running, "kubernetes") as constructor:
        constructor.add("kubernetes", "k8s", *given)
        bot = running.submit("--range", "0:3", "--", "echo", "{}")
        constructor.start()
        running.wait(bot)
        constructor.wait_left()
        pilots = constructor.pilots("k8s")
    assert {pilot.exit_code for pilot in pilots} == {0}
    assert {pilot.node for pilot in pilots} == {"node-1"}
    assert cluster.names("jobs") == {f"{pilot.tag}-{pilot.index}" for pilot in pilots}
    assert "gb_pilot_" not in (cluster.folder / "calls").read_text()


def test_pilots_end_with_their_code_and_last_words_or_by_a_cancel(
    pilots: Kubernetes, cluster: KubernetesCluster
) -> None:
    script = 'echo "I am $GRIDBOT_PILOT_TAG $GRIDBOT_PILOT_INDEX $GRIDBOT_NATIVE_ID" >&2\n'
    script += "echo to nobody; test $GRIDBOT_PILOT_INDEX = 1 || exit 5; sleep 600"
    ids = pilots.submit(make_order(TAG, script, count=2))
    eventually(lambda: state_of(pilots, 0) is PilotState.ENDED, what="the first one's end")
    failed, _ = sorted(submitter(cluster).pilots(TAG), key=lambda one: one.index)
    assert (failed.native_id, failed.exit_code) == (ids[0], 5)
    assert pilots.tail(ids[0], TAG) == f"I am {TAG} 0 {ids[0]}\n"
    pilots.cancel([ids[1], "nonesuch"])
    assert [one.index for one in pilots.pilots(TAG)] == [0]
    assert pilots.tail(ids[1], TAG) == ""


def test_where_there_is_no_room_a_pilot_is_queued_and_says_why(
    pilots: Kubernetes, cluster: KubernetesCluster
) -> None:
    cluster.tell("slots", "1")
    pilots.submit(make_order(TAG, WAITS, count=2))
    states = {one.index: (one.state, one.reason) for one in pilots.pilots(TAG)}
    queued = (PilotState.QUEUED, "Unschedulable: 0/1 nodes are available")
    assert states == {0: (PilotState.RUNNING, ""), 1: queued}


def test_a_submission_whose_reply_is_lost_is_found_and_made_only_once(
    pilots: Kubernetes, cluster: KubernetesCluster
) -> None:
    cluster.tell("fault", "create before")
    with pytest.raises(GridError, match="was refused") as away:
        pilots.submit(make_order(TAG, WAITS))
    assert not away.value.is_lasting
    pilots.submit(make_order(TAG, WAITS, count=2))
    assert len(submitter(cluster).pilots(TAG)) == 2
    with pytest.raises(GridError, match="already exists"):
        pilots.submit(make_order(TAG, WAITS, count=2))


def test_what_a_quota_allows_is_made_and_the_rest_is_refused_in_its_words(
    pilots: Kubernetes, cluster: KubernetesCluster
) -> None:
    cluster.tell("quota", "2")
    with pytest.raises(GridError, match=r"made 2 of 3 Jobs: .*exceeded quota") as partly:
        pilots.submit(make_order(TAG, WAITS, count=3))
    assert not partly.value.is_lasting
    assert len(pilots.pilots(TAG)) == 2
    with pytest.raises(GridError, match="exceeded quota") as refused:
        pilots.submit(make_order("gbaaaaaan2", WAITS))
    assert refused.value.is_lasting


def test_a_key_leaves_the_cluster_with_the_last_pilot_of_its_order(
    pilots: Kubernetes, cluster: KubernetesCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubernetes, "_YOUNG_SECONDS", -1.0)
    pilots.submit(make_order("gbaaaaaan1", WAITS))
    pilots.submit(make_order("gbaaaaaan2", "exit 0"))
    pilots.submit(make_order("gbbbbbbbn1", "exit 0"))  # another constructor's
    found(pilots, "gbaaaaaan2", PilotState.ENDED)
    found(pilots, "gbbbbbbbn1", PilotState.ENDED)
    submitter(cluster).pilots("gbaaaaaa")
    assert "gbaaaaaan2" not in cluster.names("secrets")
    assert "gbaaaaaan1" in cluster.names("secrets")


def test_a_cluster_that_is_away_is_no_empty_cluster(
    pilots: Kubernetes, cluster: KubernetesCluster
) -> None:
    pilots.submit(make_order(TAG, WAITS))
    cluster.tell("fault", "get before")
    with pytest.raises(GridError, match="was refused") as away:
        pilots.pilots(TAG)
    assert not away.value.is_lasting
    assert len(pilots.pilots(TAG)) == 1


def test_check_asks_for_rights_and_lets_the_cluster_judge_a_job_that_is_not_made(
    pilots: Kubernetes, cluster: KubernetesCluster
) -> None:
    assert [(one.what, one.is_good) for one in pilots.check()] == [
        ("kubernetes", True),
        ("job", True),
    ]
    assert not cluster.names("jobs")
    cluster.tell("forbidden", "create secrets")
    [result] = pilots.check()
    assert not result.is_good
    assert result.text == "the user of kubectl may not: create secrets"
