"""What Kubernetes is told, and what is read from its lists, written after its documentation."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from tests.orders import make_order

from gridbot_overlay.decide.model import Grid, PilotShape, PilotState, Sighting
from gridbot_overlay.submitters import KINDS, GridError
from gridbot_overlay.submitters.kubernetes import OPTIONS, job, secret
from gridbot_overlay.submitters.kubernetes_states import sightings

SHAPE = PilotShape(cpus=2, memory_mb=3000, gpus=1, walltime_seconds=600)
IMAGE = {**OPTIONS, "image": "python:3.12"}


def pod_spec(*directives: str, **fields: Any) -> dict[str, Any]:
    order = make_order("gb-x", "SECRET", *directives, shape=SHAPE, **fields)
    spec: dict[str, Any] = job(order, 3, IMAGE)["spec"]["template"]["spec"]
    return spec


def test_a_pod_asks_for_the_whole_pilot_lives_once_and_sees_no_account() -> None:
    made = job(make_order("gb-x", shape=SHAPE), 3, IMAGE)
    assert (made["metadata"]["name"], made["spec"]["backoffLimit"]) == ("gb-x-3", 0)
    spec = pod_spec()
    room = {"cpu": "2", "memory": "3000Mi", "nvidia.com/gpu": "1"}
    assert spec["containers"][0]["resources"] == {"requests": room, "limits": room}
    assert spec["activeDeadlineSeconds"] == 600
    assert (spec["restartPolicy"], spec["automountServiceAccountToken"]) == ("Never", False)


def test_the_script_with_its_key_is_in_the_secret_alone() -> None:
    order = make_order("gb-x", "SECRET")
    assert "SECRET" not in json.dumps(job(order, 0, IMAGE))
    script = base64.b64decode(secret(order)["data"]["pilot.sh"]).decode()
    assert script.startswith("#!/bin/sh")
    assert script.endswith("SECRET\n")


def test_directives_are_laid_over_the_pod() -> None:
    spec = pod_spec('{"nodeSelector": {"disk": "ssd"}}', '{"nodeSelector": {"zone": "a"}}')
    assert spec["nodeSelector"] == {"disk": "ssd", "zone": "a"}
    for wrong in ("--partition=long", "[1]"):
        with pytest.raises(GridError, match="is no JSON object") as refused:
            pod_spec(wrong)
        assert refused.value.is_lasting


def test_bad_nodes_are_avoided_and_what_is_no_name_of_a_node_is_left_out() -> None:
    spec = pod_spec(excluded_nodes=("n1", 'n2"}', "n3"))
    affinity = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    [term] = affinity["nodeSelectorTerms"]
    assert [field["values"] for field in term["matchFields"]] == [["n1"], ["n3"]]


def test_a_grid_needs_an_image_and_a_tag_must_be_a_name(tmp_path: Path) -> None:
    with pytest.raises(GridError, match="option image"):
        KINDS["kubernetes"](Grid(name="k", kind="kubernetes"), tmp_path)
    with pytest.raises(GridError, match="cannot be the name"):
        job(make_order("Upper_case"), 0, IMAGE)


def made_job(index: int, tag: str = "gb-a", **status: Any) -> dict[str, Any]:
    marks = {"gridbot/tag": tag, "gridbot/index": str(index)}
    metadata = {"name": f"{tag}-{index}", "uid": f"{tag}-{index}", "labels": marks}
    return {"kind": "Job", "metadata": metadata, "status": status}


def pod_of(index: int, phase: str, made: str = "1", **status: Any) -> dict[str, Any]:
    metadata = {"ownerReferences": [{"uid": f"gb-a-{index}"}], "creationTimestamp": made}
    status = {"phase": phase, **status}
    return {"kind": "Pod", "metadata": metadata, "spec": {"nodeName": "n1"}, "status": status}


def container(**state: Any) -> dict[str, Any]:
    return {"containerStatuses": [{"state": state}]}


def seen(*items: dict[str, Any]) -> Sighting:
    [found] = sightings(items, "gb-a")
    return found


FAILED = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}


@pytest.mark.parametrize(
    ("items", "state", "reason", "code"),
    [
        ([made_job(0)], PilotState.QUEUED, "", None),
        ([made_job(0), pod_of(0, "Pending")], PilotState.QUEUED, "", None),
        (
            [
                made_job(0),
                pod_of(0, "Pending", **container(waiting={"reason": "ImagePullBackOff"})),
            ],
            PilotState.HELD,
            "ImagePullBackOff",
            None,
        ),
        ([made_job(0), pod_of(0, "Running")], PilotState.RUNNING, "", None),
        ([made_job(0), pod_of(0, "Unknown")], PilotState.RUNNING, "", None),
        ([made_job(0), pod_of(0, "a new word")], PilotState.RUNNING, "", None),
        (
            [
                made_job(0, conditions=[FAILED]),
                pod_of(0, "Failed", **container(terminated={"exitCode": 3})),
            ],
            PilotState.ENDED,
            "",
            3,
        ),
        (
            [made_job(0), pod_of(0, "Failed", reason="Evicted", message="low on\nmemory")],
            PilotState.ENDED,
            "Evicted: low on memory",
            None,
        ),
        ([made_job(0, conditions=[FAILED])], PilotState.ENDED, "BackoffLimitExceeded", None),
        # A second pod of the Job, after the first was lost: the later one counts.
        (
            [made_job(0), pod_of(0, "Failed", made="1"), pod_of(0, "Running", made="2")],
            PilotState.RUNNING,
            "",
            None,
        ),
    ],
)
def test_a_pilot_is_where_its_pod_is(
    items: list[dict[str, Any]], state: PilotState, reason: str, code: int | None
) -> None:
    found = seen(*items)
    assert (found.state, found.reason, found.exit_code) == (state, reason, code)


def test_only_jobs_of_the_prefix_are_pilots() -> None:
    others = [{"kind": "Job", "metadata": {"name": "x", "uid": "x"}}, made_job(0, "gb-b")]
    assert seen(*others, made_job(7)).index == 7


@pytest.mark.parametrize("label", [None, "", "-1", "first", "\u00b2"])
def test_a_job_that_bears_our_tag_and_no_index_hides_no_pilot(label: str | None) -> None:
    foreign = made_job(0)
    del foreign["metadata"]["labels"]["gridbot/index"]
    if label is not None:
        foreign["metadata"]["labels"]["gridbot/index"] = label
    assert seen(foreign, made_job(7)).index == 7
