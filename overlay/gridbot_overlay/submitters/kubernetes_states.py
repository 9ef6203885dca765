"""Reads Kubernetes' list of our Jobs and pods.  Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gridbot_overlay.decide.model import PilotState, Sighting
from gridbot_overlay.submitters import GridError, rendering

# What names of Jobs, and so of their pods, may be: https://www.rfc-editor.org/rfc/rfc1123
_TAG = re.compile(r"[a-z]([-a-z0-9]{0,50}[a-z0-9])?")
_INDEX = re.compile(r"[0-9]{1,9}")
_TAG_LABEL, _INDEX_LABEL = "gridbot/tag", "gridbot/index"
# Why a container that waits will not start before somebody changes something.
_NEVER_STARTS = (
    "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "CreateContainerConfigError",
    "CreateContainerError", "RunContainerError",
)  # fmt: skip
_REASON_CHARACTERS = 500


def name_of(tag: str, index: int) -> str:
    """Name the Job of a pilot.  Raises GridError for a tag that Kubernetes would not take."""
    if not _TAG.fullmatch(tag):
        raise GridError(f"{tag!r} cannot be the name of a Job", is_lasting=True)
    return f"{tag}-{index}"


def labels(tag: str, index: int | None = None) -> dict[str, str]:
    """By what an order's objects are found again."""
    found = {"app.kubernetes.io/managed-by": "gridbot", _TAG_LABEL: tag}
    return found if index is None else {**found, _INDEX_LABEL: str(index)}


def sightings(items: Iterable[Mapping[str, Any]], prefix: str) -> list[Sighting]:
    """Give the pilots among Jobs and pods whose tag begins so.

    Raises KeyError, TypeError or ValueError for what is no such list.
    """
    jobs = list[Mapping[str, Any]]()
    pods = defaultdict[str, list[Mapping[str, Any]]](list)
    for item in items:
        if item["kind"] == "Job":
            jobs.append(item)
        elif item["kind"] == "Pod":
            for owner in item["metadata"].get("ownerReferences", ()):
                pods[owner["uid"]].append(item)
    seen = (_sighting(job, pods[job["metadata"]["uid"]], prefix) for job in jobs)
    return [item for item in seen if item]


def _sighting(
    job: Mapping[str, Any], pods: Sequence[Mapping[str, Any]], prefix: str
) -> Sighting | None:
    marks = job["metadata"].get("labels", {})
    named = rendering.read_name(marks.get(_TAG_LABEL, ""), prefix)
    index = marks.get(_INDEX_LABEL, "")
    if named is None or not _INDEX.fullmatch(index):
        return None  # somebody else's, perhaps a copy of ours
    latest = max(pods, key=lambda pod: str(pod["metadata"]["creationTimestamp"]), default=None)
    state, reason = _state(job, latest)
    return Sighting(
        tag=named[0],
        native_id=job["metadata"]["name"],
        index=int(index),
        state=state,
        reason=reason[:_REASON_CHARACTERS],
        node=latest["spec"].get("nodeName", "") if latest else "",
        exit_code=_exit_code(latest) if latest and state is PilotState.ENDED else None,
    )


def _state(job: Mapping[str, Any], pod: Mapping[str, Any] | None) -> tuple[PilotState, str]:
    """Where a pilot is, and why.  A pod says it; without one the Job does."""
    if pod is not None:
        state, reason = _state_of_pod(pod)
        if state is not PilotState.ENDED or reason:
            return state, reason
    for condition in job.get("status", {}).get("conditions", ()):
        if condition["status"] == "True" and condition["type"] in ("Complete", "Failed"):
            failed = condition["type"] == "Failed"
            has_code = pod is not None and _exit_code(pod) is not None
            return PilotState.ENDED, _words(condition) if failed and not has_code else ""
    return (PilotState.ENDED if pod is not None else PilotState.QUEUED), ""


def _state_of_pod(pod: Mapping[str, Any]) -> tuple[PilotState, str]:
    status = pod.get("status", {})
    match status.get("phase", "Pending"):
        case "Succeeded" | "Failed":
            return PilotState.ENDED, _words(status)  # such as Evicted, DeadlineExceeded
        case "Pending":
            for container in status.get("containerStatuses", ()):
                waiting = container.get("state", {}).get("waiting") or {}
                if waiting.get("reason") in _NEVER_STARTS:
                    return PilotState.HELD, _words(waiting)
            return PilotState.QUEUED, _why_unscheduled(status)
        case _:  # it runs, or its node does not answer: a pilot must not disappear
            return PilotState.RUNNING, ""


def _why_unscheduled(status: Mapping[str, Any]) -> str:
    for condition in status.get("conditions", ()):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return _words(condition)
    return ""


def _words(said: Mapping[str, Any]) -> str:
    both = (str(said.get(name) or "") for name in ("reason", "message"))
    return ": ".join(" ".join(text.split()) for text in both if text)


def _exit_code(pod: Mapping[str, Any]) -> int | None:
    for container in pod.get("status", {}).get("containerStatuses", ()):
        ended = container.get("state", {}).get("terminated")
        if ended:
            return int(ended["exitCode"])
    return None
