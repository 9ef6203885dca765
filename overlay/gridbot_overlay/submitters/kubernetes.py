"""Kubernetes, by kubectl: each pilot is a Job with one pod.

Tested with a kubectl of our own that keeps objects in a file and runs pods as processes, and with
the arguments that kubectl 1.32 takes; no cluster was at hand.

A Job's name is made of the order's tag and the pilot's index, so that it can be made only once
and is found again.  The script, which holds a key, is a Secret of the order that the pods mount:
who may read Jobs and pods sees no key.  It is deleted when no Job of the order lives.

https://kubernetes.io/docs/concepts/workloads/controllers/job/
https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/
"""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from gridbot_overlay.decide.model import CheckResult, Grid, PilotOrder, PilotState, Sighting
from gridbot_overlay.submitters import GridError, kubernetes_states, rendering
from gridbot_overlay.submitters.commands import Commands
from gridbot_overlay.submitters.logs import TAIL_BYTES

OPTIONS: dict[str, Any] = {
    "image": "",  # of the pods' container, with Python 3.11 or newer: python:3.12-slim
    "context": "",  # of the kubeconfig; default: its current one
    "namespace": "",  # default: the context's
    "gpu": "nvidia.com/gpu",  # the resource that counts GPUs
    "environment": {},  # for kubectl: {KUBECONFIG = "/etc/gridbot/kubeconfig"}
}
AWAY = re.compile(
    "[Cc]onnection refused|was refused - did you specify|Unable to connect to the server"
    "|TLS handshake timeout|i/o timeout|request timed out|context deadline exceeded"
    "|Client.Timeout exceeded|currently unable to handle|Too ?Many ?Requests|no such host"
    "|connection reset|unexpected EOF|ServiceUnavailable|InternalError|no route to host"
)
_OURS = ("-l", "app.kubernetes.io/managed-by=gridbot")
_SCRIPT, _FOLDER = "pilot.sh", "/gridbot"
_AT_ONCE = 100  # Jobs of one command
_KEPT_SECONDS = 24 * 3600  # of a Job that has ended, and then the cluster deletes it
_YOUNG_SECONDS = 600.0  # within which the Jobs of a Secret may still be made
_LAST_LINES, _LAST_BYTES = 200, 1 << 20
# What the grid's user must be allowed to do: verb and resource.
_RIGHTS = (
    "create jobs.batch", "list jobs.batch", "delete jobs.batch", "list pods", "get pods/log",
    "create secrets", "list secrets", "delete secrets",
)  # fmt: skip


class Kubernetes:
    """Pilots as Jobs in one namespace of a Kubernetes cluster."""

    def __init__(self, grid: Grid, folder: Path) -> None:  # noqa: ARG002  # all is in the cluster
        self._options = rendering.options(grid, OPTIONS)
        if not self._options["image"]:
            text = f"grid {grid.name}: option image must name an image with Python 3.11 or newer"
            raise GridError(text, is_lasting=True)
        self._grid = grid
        self._commands = Commands(environment=self._options["environment"], away=AWAY)
        chosen = ((name, self._options[name]) for name in ("context", "namespace"))
        flags = (f"--{name}={value}" for name, value in chosen if value)
        self._kubectl = ("kubectl", "--request-timeout=30s", *flags)

    def submit(self, order: PilotOrder) -> list[str]:
        """Make the Secret, then the Jobs, many with each command."""
        jobs = [job(order, index, self._options) for index in range(order.count)]
        self._run("create", "-f", "-", "-o", "name", stdin=json.dumps(secret(order)))
        return list(
            rendering.in_parts(
                order.count, _AT_ONCE, lambda first, count: self._make(jobs[first : first + count])
            )
        )

    def _make(self, jobs: Sequence[dict[str, Any]]) -> list[str]:
        document = json.dumps({"apiVersion": "v1", "kind": "List", "items": jobs})
        command = (*self._kubectl, "create", "-f", "-", "-o", "name")
        code, printed, said = self._commands.ended(*command, stdin=document)
        made = [line.rpartition("/")[2] for line in printed.split()]
        if code or len(made) < len(jobs):
            words = " ".join(said.split())[:2000] or "no output"
            is_lasting = not made and not AWAY.search(said)
            text = f"kubectl made {len(made)} of {len(jobs)} Jobs: {words}"
            raise GridError(text, is_lasting=is_lasting)
        return made

    def pilots(self, prefix: str) -> list[Sighting]:
        """Look at our Jobs and their pods, and drop what no Job needs any more."""
        listing = self._run("get", "jobs,pods", *_OURS, "-o", "json")
        try:
            found = kubernetes_states.sightings(json.loads(listing)["items"], prefix)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            text = f"kubectl printed no such list as Kubernetes does: {error!r}"
            raise GridError(text, is_lasting=True) from error
        live = {seen.tag for seen in found if seen.state is not PilotState.ENDED}
        self._drop_secrets(prefix, live)
        return found

    def _drop_secrets(self, prefix: str, needed: set[str]) -> None:
        columns = "custom-columns=NAME:.metadata.name,MADE:.metadata.creationTimestamp"
        printed = self._run("get", "secrets", *_OURS, "--no-headers", "-o", columns)
        rows = (line.split() for line in printed.splitlines() if len(line.split()) == 2)
        idle = [
            name
            for name, made in rows
            if name.startswith(prefix) and name not in needed and _age(made) > _YOUNG_SECONDS
        ]
        self._delete("secrets", idle)

    def cancel(self, native_ids: Sequence[str]) -> None:
        """Delete Jobs, whose pods get half a minute to leave."""
        self._delete("jobs", native_ids)

    def tail(self, native_id: str, tag: str) -> str:  # noqa: ARG002  # its id names the pilot
        """Return the end of what the pilot wrote, as long as its pod is there."""
        how = (f"--tail={_LAST_LINES}", f"--limit-bytes={_LAST_BYTES}")
        code, printed, _ = self._commands.ended(*self._kubectl, "logs", f"job/{native_id}", *how)
        return printed.encode()[-TAIL_BYTES:].decode(errors="replace") if code == 0 else ""

    def check(self) -> list[CheckResult]:
        """Ask whether we may do what pilots need, and whether such a Job would be taken."""
        try:
            refused = [right for right in _RIGHTS if not self._may(right)]
        except GridError as error:
            return [CheckResult("kubernetes", False, str(error))]
        if refused:
            text = f"the user of kubectl may not: {', '.join(refused)}"
            return [CheckResult("kubernetes", False, text)]
        found = CheckResult("kubernetes", True, "it answers, and lets us make and delete Jobs")
        return [found, self._try()]

    def _may(self, right: str) -> bool:
        said = self._run("auth", "can-i", *right.split(), good=(0, 1)).strip()
        if said not in ("yes", "no"):
            raise GridError(f"kubectl auth can-i {right} answers {said[:200] or 'nothing'}")
        return said == "yes"

    def _try(self) -> CheckResult:
        """Let the cluster judge a Job without making it."""
        grid = self._grid
        order = PilotOrder(
            tag="gridbot-check", count=1, shape=grid.shape, script="", owners=(),
            directives=grid.directives,
        )  # fmt: skip
        try:
            document = json.dumps(job(order, 0, self._options))
            self._run("create", "--dry-run=server", "-f", "-", "-o", "name", stdin=document)
        except GridError as error:
            return CheckResult("job", False, str(error))
        return CheckResult("job", True, f"it takes such pilots, with the image {self._image}")

    @property
    def _image(self) -> str:
        return str(self._options["image"])

    def _delete(self, what: str, names: Sequence[str]) -> None:
        how = ("--ignore-not-found", "--wait=false")
        for first, count in rendering.parts(len(names), _AT_ONCE):
            self._run("delete", what, *how, "--", *names[first : first + count])

    def _run(self, *words: str, stdin: str = "", good: Sequence[int] = (0,)) -> str:
        return self._commands.run(*self._kubectl, *words, stdin=stdin, good=good)


def secret(order: PilotOrder) -> dict[str, Any]:
    """Render the Secret with the script of an order's pilots."""
    name = order.tag
    text = rendering.script(order, "$GRIDBOT_POD_INDEX", f'"{name}-$GRIDBOT_POD_INDEX"')
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "labels": kubernetes_states.labels(order.tag)},
        "immutable": True,
        "data": {_SCRIPT: base64.b64encode(text.encode()).decode()},
    }


def job(order: PilotOrder, index: int, options: dict[str, Any]) -> dict[str, Any]:
    """Render the Job of one pilot; the operator's directives come last, over the pod's own."""
    labels = kubernetes_states.labels(order.tag, index)
    pod = _pod(order, index, options)
    for directive in order.directives:
        pod = merged(pod, _object(directive))
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": kubernetes_states.name_of(order.tag, index),
            "labels": labels,
            "annotations": {"gridbot/owners": rendering.owners(order)},
        },
        "spec": {
            # A pilot's second life would meet a token and a walltime of its first.
            "backoffLimit": 0,
            "ttlSecondsAfterFinished": _KEPT_SECONDS,
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def _pod(order: PilotOrder, index: int, options: dict[str, Any]) -> dict[str, Any]:
    shape = order.shape
    room: dict[str, str] = {"cpu": str(shape.cpus), "memory": f"{shape.memory_mb}Mi"}
    if shape.gpus:
        room[options["gpu"]] = str(shape.gpus)
    container = {
        "name": "pilot",
        "image": options["image"],
        # Its log is what it writes to stderr.
        "command": ["/bin/sh", "-c", f"exec /bin/sh {_FOLDER}/{_SCRIPT} > /dev/null"],
        "env": [{"name": "GRIDBOT_POD_INDEX", "value": str(index)}],
        # Equal ones: the node evicts such pods last.
        "resources": {"requests": room, "limits": room},
        "volumeMounts": [{"name": "pilot", "mountPath": _FOLDER, "readOnly": True}],
    }
    pod: dict[str, Any] = {
        "restartPolicy": "Never",
        "activeDeadlineSeconds": shape.walltime_seconds,
        # Jobs shall see nothing of the cluster.
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "containers": [container],
        "volumes": [{"name": "pilot", "secret": {"secretName": order.tag}}],
    }
    if excluded := rendering.nodes(order.excluded_nodes):
        terms = [{"key": "metadata.name", "operator": "NotIn", "values": [one]} for one in excluded]
        required = {"nodeSelectorTerms": [{"matchFields": terms}]}
        node = {"requiredDuringSchedulingIgnoredDuringExecution": required}
        pod["affinity"] = {"nodeAffinity": node}
    return pod


def merged(base: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Lay one object over another, within objects key by key."""
    found = dict(base)
    for key, value in other.items():
        before = found.get(key)
        both = isinstance(before, dict) and isinstance(value, dict)
        found[key] = merged(before, value) if both else value  # type: ignore[arg-type]
    return found


def _object(directive: str) -> dict[str, Any]:
    try:
        found = json.loads(directive)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        text = f"directive {directive!r} is no JSON object, such as"
        text += ' {"nodeSelector": {"disk": "ssd"}}'
        raise GridError(text, is_lasting=True)
    return found


def _age(made: str) -> float:
    """Seconds since a time of Kubernetes'; none of what is no such time."""
    try:
        return time.time() - datetime.fromisoformat(made).timestamp()
    except ValueError:
        return 0.0
