"""ARC CE, by the REST interface of A-REX, version 1.0, with a proxy certificate or a token.

A job is made by a description in xRSL and waits until its script is sent into its session
directory: the script holds a key, which no description should show.  A job whose script was never
sent, because the answer that told its id was lost, is killed when it is found.

`action=status` may be a minute old, because it comes from the information collector.  What
`diagnose` tells is A-REX's own and new; and a job whose stderr is there has begun.

https://www.nordugrid.org/arc/arc6/tech/rest/rest.html; tested with ARC 6.17.
"""

from __future__ import annotations

import json
import math
import os
import shlex
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from cryptography import x509

from gridbot_client.net.bounded_https import bounded_session
from gridbot_client.storage import write_atomically
from gridbot_overlay.decide.model import CheckResult, Grid, PilotOrder, PilotState, Sighting
from gridbot_overlay.submitters import GridError, answers, rendering
from gridbot_overlay.submitters.commands import OUTPUT_BYTES, TIMEOUT_SECONDS
from gridbot_overlay.submitters.logs import TAIL_BYTES

OPTIONS = {
    "url": "",  # https://ce.example/arex
    "proxy": "",  # file of a proxy certificate; default: X509_USER_PROXY, or /tmp/x509up_uNUMBER
    "token": "",  # file of a bearer token, in place of a proxy
    "ca": "",  # file or folder of authorities; default: X509_CERT_DIR, or grid-security's
}
STATES = {
    "QUEUING": PilotState.QUEUED,
    "HELD": PilotState.HELD,
    "RUNNING": PilotState.RUNNING,
    "EXITINGLRMS": PilotState.RUNNING,
    "EXECUTED": PilotState.RUNNING,
    "FINISHING": PilotState.RUNNING,
    "KILLING": PilotState.RUNNING,
    "FINISHED": PilotState.ENDED,
    "FAILED": PilotState.ENDED,
    "KILLED": PilotState.ENDED,
    "WIPED": PilotState.ENDED,
}
# A-REX's own states before and after a job is in the batch system, with or without "PENDING:".
_EARLY, _OVER = ("ACCEPTED", "PREPARING", "SUBMIT"), ("FINISHED", "DELETED")
_SCRIPT, _STDERR = "pilot.sh", "pilot.err"
_TIMEOUT_SECONDS = (10.0, 30.0)  # to connect, and between two pieces of an answer
_AT_ONCE = 50  # jobs of one request
_KEPT_SECONDS = 24 * 3600.0  # of a job that has ended
_LEAST_LEFT_SECONDS = 900.0


@dataclass(slots=True)
class ArcJob:
    """What is known of one job, for the next looks."""

    name: str
    is_sent: bool = False  # its script
    has_begun: bool = False  # on a node
    ended_at: float | None = None  # when it was first seen to have ended, s since 1970
    reason: str = ""
    node: str = ""
    exit_code: int | None = None


class Arc:
    """Pilots as jobs behind one A-REX."""

    def __init__(self, grid: Grid, folder: Path) -> None:
        self._options: dict[str, str] = rendering.options(grid, OPTIONS)
        url = urlsplit(self._options["url"])
        if url.scheme != "https" or not url.hostname:
            text = f"grid {grid.name}: option url must be that of an A-REX, https://HOST/arex"
            raise GridError(f"{text}, not {self._options['url']!r}", is_lasting=True)
        self._rest = self._options["url"].rstrip("/") + "/rest/1.0"
        self._known = folder / "arc.json"
        self._session = bounded_session(TIMEOUT_SECONDS, OUTPUT_BYTES)

    def submit(self, order: PilotOrder) -> list[str]:
        """Make some jobs, write their ids down and send their scripts; then the next ones."""
        return list(
            rendering.in_parts(order.count, _AT_ONCE, lambda *part: self._make(order, *part))
        )

    def _make(self, order: PilotOrder, first: int, count: int) -> list[str]:
        indices = range(first, first + count)
        before = self._read()
        text = descriptions(order, indices)
        answers = self._json("POST", "/jobs?action=new", text, "application/rsl")
        made = {
            item["id"]: index
            for item, index in zip(answers, indices, strict=False)
            if item.get("status-code") == "201"
        }
        known = before | {id: ArcJob(_name(order, index)) for id, index in made.items()}
        self._write(known)
        for id, index in made.items():
            script = rendering.script(order, str(index), shlex.quote(id))
            self._call("PUT", f"/jobs/{quote(id)}/session/{_SCRIPT}", script)
            known[id].is_sent = True
        self._write(known)
        if len(made) < count:
            words = "; ".join({item.get("reason", "no reason") for item in answers} - {"Created"})
            text = f"A-REX made {len(made)} of {count} jobs: {words or 'its answer is short'}"
            raise GridError(text, is_lasting=not made)
        return list(made)

    def pilots(self, prefix: str) -> list[Sighting]:
        """Ask which jobs there are, and of ours that are not over what they do."""
        ids = [item["id"] for item in self._json("GET", "/jobs")]
        before = self._read()
        known = {id: before.get(id) or ArcJob(self._fact(id, "local", "jobname")) for id in ids}
        self._write(known)
        ours = {id: job for id, job in known.items() if rendering.read_name(job.name, prefix)}
        told = {item["id"]: item.get("state", "") for item in self._on(self._live(ours), "status")}
        states = {id: self._state(id, job, told.get(id, "")) for id, job in ours.items()}
        self.cancel([id for id, job in ours.items() if _is_stuck(job, states[id])])
        self._write(known)
        self._clean(id for id, job in ours.items() if _is_old(job, time.time()))
        return [sighting(id, job, states[id], prefix) for id, job in ours.items()]

    def cancel(self, native_ids: Sequence[str]) -> None:
        """Kill jobs, many with each request."""
        refused = [
            f"{item['id']}: {item.get('reason')}"
            for item in self._on(native_ids, "kill")
            # 404: it has gone; 505: it has ended
            if item.get("status-code") not in ("202", "200", "404", "505")
        ]
        if refused:
            raise GridError("; ".join(refused))

    def tail(self, native_id: str, tag: str) -> str:  # noqa: ARG002  # its id names the pilot
        """Return the end of the pilot's stderr."""
        return self._stderr(native_id)[1][-TAIL_BYTES:].decode(errors="replace")

    def check(self) -> list[CheckResult]:
        """Look at the credentials, and whether A-REX takes them.  Submits nothing."""
        found = [self._check_credentials()]
        try:
            count = len(self._json("GET", "/jobs"))
        except GridError as error:
            return [*found, CheckResult("A-REX", False, str(error))]
        return [
            *found,
            CheckResult("A-REX", True, f"{self._rest} lets us in; {count} jobs of ours"),
        ]

    def _check_credentials(self) -> CheckResult:
        if self._options["token"]:
            return CheckResult("token", True, self._options["token"])
        try:
            left = seconds_left(Path(self._proxy).read_bytes(), datetime.now(UTC))
        except (OSError, ValueError) as error:
            text = f"{self._proxy} cannot be read: {error}; make a proxy certificate: arcproxy"
            return CheckResult("proxy", False, text)
        text = f"{self._proxy} is good for {left / 3600:.1f} h"
        return CheckResult("proxy", left >= _LEAST_LEFT_SECONDS, text)

    # --- what is known of jobs

    def _live(self, ours: dict[str, ArcJob]) -> list[str]:
        return [id for id, job in ours.items() if job.ended_at is None]

    def _state(self, id: str, job: ArcJob, told: str) -> PilotState:
        """Where a job is; once it has ended, why is noted."""
        if job.ended_at is not None:
            return PilotState.ENDED
        own = self._diagnosis(id, "status").strip().removeprefix("PENDING:")
        state = state_of(own, told)
        if state is PilotState.ENDED:
            self._note_end(id, job)
        elif own not in _EARLY and state is not PilotState.HELD:
            job.has_begun = job.has_begun or bool(self._stderr(id)[0])
            return PilotState.RUNNING if job.has_begun else state
        return state

    def _note_end(self, id: str, job: ArcJob) -> None:
        diag = facts(self._diagnosis(id, "diag"))
        code = diag.get("exitcode", "")
        job.ended_at = time.time()
        job.reason = " ".join(self._diagnosis(id, "failed").split())[:500]
        job.node = diag.get("nodename", "")
        job.exit_code = int(code) if code.isdecimal() else None

    def _fact(self, id: str, kind: str, name: str) -> str:
        return facts(self._diagnosis(id, kind)).get(name, "")

    def _diagnosis(self, id: str, kind: str) -> str:
        """A file of A-REX about a job; empty if there is none."""
        path = f"/jobs/{quote(id)}/diagnose/{kind}"
        return self._call("GET", path, good=(200, 404))[1].decode(errors="replace")

    def _stderr(self, id: str) -> tuple[bool, bytes]:
        """Whether a job has begun to write, and what."""
        status, content = self._call("GET", f"/jobs/{quote(id)}/session/{_STDERR}", good=(200, 404))
        return status == 200, content

    def _clean(self, ids: Iterable[str]) -> None:
        if some := list(ids):
            list(self._on(some, "clean"))

    def _read(self) -> dict[str, ArcJob]:
        try:
            stored = json.loads(self._known.read_bytes())
            return {id: ArcJob(**fields) for id, fields in stored.items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, TypeError, AttributeError) as error:
            text = f"{self._known} cannot be read: {error}; put it back from a copy, or remove it:"
            text += " then jobs are found by their names, and those that wait are cancelled"
            raise GridError(text, is_lasting=True) from error

    def _write(self, known: dict[str, ArcJob]) -> None:
        self._known.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fields = {id: asdict(job) for id, job in known.items()}
        write_atomically(self._known, json.dumps(fields).encode())

    # --- requests

    def _on(self, ids: Sequence[str], action: str) -> Iterator[dict[str, Any]]:
        for first in range(0, len(ids), _AT_ONCE):
            some = [{"id": id} for id in ids[first : first + _AT_ONCE]]
            yield from self._json("POST", f"/jobs?action={action}", json.dumps({"job": some}))

    def _json(
        self, method: str, path: str, body: str = "", kind: str = "application/json"
    ) -> list[dict[str, Any]]:
        """Ask, and return what is said of each job."""
        _, content = self._call(method, path, body, kind)
        try:
            found = json.loads(content)["job"] if content.strip() else []
            items = [found] if isinstance(found, dict) else [dict(item) for item in found]
        except (ValueError, TypeError, KeyError):
            text = f"{self._rest}{path} gives no such answer as A-REX does: {content[:200]!r}"
            raise GridError(text, is_lasting=True) from None
        return items

    def _call(
        self, method: str, path: str, body: str = "", kind: str = "application/json",
        good: Sequence[int] = (200, 201, 202),
    ) -> tuple[int, bytes]:  # fmt: skip
        """Make one request; GridError with what was said unless its status is `good`."""
        headers = {"Accept": "application/json", "Content-Type": kind}
        try:
            if self._options["token"]:
                token = Path(self._options["token"]).read_text().strip()
                headers["Authorization"] = f"Bearer {token}"
            with self._session.request(
                method, self._rest + path, data=body.encode(), headers=headers, stream=True,
                timeout=_TIMEOUT_SECONDS, verify=self._authorities, allow_redirects=False,
                cert=None if self._options["token"] else self._proxy,
            ) as answer:  # fmt: skip
                content = answers.content(answer)
        except OSError as error:  # which requests' errors are
            raise GridError(f"{self._rest}: {error}") from error
        if answer.status_code not in good:
            words = content[:500].decode(errors="replace") or answer.reason
            text = f"{self._rest}{path} answers {answer.status_code}: {words}"
            raise GridError(text, is_lasting=400 <= answer.status_code < 500)
        return answer.status_code, b"" if answer.status_code == 404 else content

    @property
    def _proxy(self) -> str:
        default = os.environ.get("X509_USER_PROXY") or f"/tmp/x509up_u{os.getuid()}"  # noqa: S108
        return self._options["proxy"] or default

    @property
    def _authorities(self) -> str:
        default = os.environ.get("X509_CERT_DIR") or "/etc/grid-security/certificates"
        return self._options["ca"] or default


def descriptions(order: PilotOrder, indices: Sequence[int]) -> str:
    """Describe pilots of an order in xRSL; the operator's relations come last."""
    each = ["&" + _description(order, index) for index in indices]
    return each[0] if len(each) == 1 else "+" + "".join(f"({text})" for text in each)


def _description(order: PilotOrder, index: int) -> str:
    shape = order.shape
    wanted = {
        "executable": "/bin/sh",
        "arguments": _SCRIPT,
        "stderr": _STDERR,
        "jobname": _name(order, index),
        "count": str(shape.cpus),
        "countPerNode": str(shape.cpus),
        "memory": str(math.ceil(shape.memory_mb / shape.cpus)),  # of each of `count`
        "wallTime": str(math.ceil(shape.walltime_seconds / 60)),
    }
    relations = [f"({name}={_quoted(value)})" for name, value in wanted.items()]
    files = f'(inputFiles=("{_SCRIPT}" ""))(outputFiles=("{_STDERR}" ""))'
    return "".join(relations) + files + "".join(order.directives)


def _name(order: PilotOrder, index: int) -> str:
    return rendering.job_name(order.tag, index)


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def facts(text: str) -> dict[str, str]:
    """Read lines of NAME=VALUE; of one name the last."""
    pairs = (line.partition("=") for line in text.splitlines())
    return {name: value.strip() for name, is_given, value in pairs if is_given}


def state_of(own: str, told: str) -> PilotState:
    """Where a job is, by A-REX's own word and by that of the information collector."""
    if own in _OVER:
        return PilotState.ENDED
    if own in _EARLY:
        return PilotState.QUEUED
    # In the batch system, or unknown: a job that is there must not disappear.
    return STATES.get(told, PilotState.QUEUED)


def sighting(id: str, job: ArcJob, state: PilotState, prefix: str) -> Sighting:
    """What the constructor is told of a job."""
    named = rendering.read_name(job.name, prefix)
    assert named
    return Sighting(
        tag=named[0], native_id=id, index=named[1], state=state, reason=job.reason, node=job.node,
        exit_code=job.exit_code,
    )  # fmt: skip


def _is_stuck(job: ArcJob, state: PilotState) -> bool:
    return not job.is_sent and state is PilotState.QUEUED


def _is_old(job: ArcJob, now: float) -> bool:
    return job.ended_at is not None and now - job.ended_at > _KEPT_SECONDS


def seconds_left(pem: bytes, now: datetime) -> float:
    """For how long a proxy certificate is good: the first of the chain.  Raises ValueError."""
    return (x509.load_pem_x509_certificate(pem).not_valid_after_utc - now).total_seconds()
