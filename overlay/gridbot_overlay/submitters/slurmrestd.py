"""Slurm, by its REST interface, slurmrestd, with a JSON Web Token.

Each pilot is a job of its own: of an array's waiting elements a listing shows one entry.  It has no
filter by user, and so holds all jobs of the cluster; of about 4 kB each, 16,000 fit in one answer.

Names and shapes of fields change with the version of the interface, of which each release of Slurm
has the last three or so: after v0.0.38 a number is {"set": …, "infinite": …, "number": …}.  Slurm
22.05 runs in tests, with v0.0.38; of 24.11, v0.0.40 to v0.0.42 were tried by hand.

https://slurm.schedmd.com/rest_api.html, https://slurm.schedmd.com/rest_release_notes.html
"""

from __future__ import annotations

import getpass
import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from gridbot_client.net.bounded_https import bounded_session
from gridbot_client.net.discovery import proxies_for
from gridbot_overlay.decide.model import CheckResult, Grid, PilotOrder, PilotState, Sighting
from gridbot_overlay.submitters import GridError, answers, rendering, slurm_states
from gridbot_overlay.submitters.commands import OUTPUT_BYTES, TIMEOUT_SECONDS, Commands
from gridbot_overlay.submitters.logs import Logs

OPTIONS: dict[str, Any] = {
    "url": "",  # https://slurm.example:6820
    "api": "",  # the version that slurmrestd is asked for: v0.0.42
    "token": "",  # file with what `scontrol token` printed
    "user": "",  # whose token it is; default: who runs the constructor
    "ca": "",  # file of authorities; default: those of Python's certifi
    "logs": "",  # a folder that the nodes share with us; default: in the constructor's own
}
_TIMEOUT_SECONDS = (10.0, 30.0)  # to connect, and between two pieces of an answer
_CHARACTERS = 1000  # of an error's message
_OLD = 38  # the last version with shapes of its own
_PATH = "/usr/local/bin:/usr/bin:/bin"  # a job has the variables that are given, and no others


class Slurmrestd:
    """Pilots as jobs of one Slurm cluster."""

    def __init__(self, grid: Grid, folder: Path) -> None:
        self._options: dict[str, str] = rendering.options(grid, OPTIONS)
        self._given = given(grid.directives)
        self._version = version(self._options["api"])
        url = self._options["url"].rstrip("/")
        if not answers.keeps_secrets(url):
            text = f"grid {grid.name}: option url must be that of a slurmrestd, https://HOST:PORT"
            raise GridError(f"{text}, not {url!r}", is_lasting=True)
        if not self._options["token"]:
            text = f"grid {grid.name}: option token must name a file of what scontrol token printed"
            raise GridError(text, is_lasting=True)
        self._url = f"{url}/slurm/{self._options['api']}"
        self._user = self._options["user"] or getpass.getuser()
        self._logs = Logs(Commands(), self._options["logs"] or str(folder / "logs"))
        self._session = bounded_session(TIMEOUT_SECONDS, OUTPUT_BYTES)

    def submit(self, order: PilotOrder) -> list[str]:
        """Submit one job after the other."""
        self._logs.prepare()
        return list(
            rendering.in_parts(order.count, 1, lambda index, _: [self._start(order, index)])
        )

    def _start(self, order: PilotOrder, index: int) -> str:
        own = job(order, index, self._logs.path(order.tag, "%j"), self._version)
        script = rendering.script(order, str(index), '"$SLURM_JOB_ID"')
        document = self._call("POST", "/job/submit", {"job": own | self._given, "script": script})
        if not (native_id := _number(document.get("job_id"))):
            raise GridError(f"{self._url} names no job that it took")
        return str(native_id)

    def pilots(self, prefix: str) -> list[Sighting]:
        """Return what the controller knows: all that live, and those that ended lately."""
        try:
            rows = [dict(row) for row in self._call("GET", "/jobs")["jobs"]]
        except (KeyError, TypeError, ValueError):
            raise GridError(f"{self._url}/jobs gives no list of jobs") from None
        # A user whose name this slurmrestd does not know has none; ours are found by their tags.
        ours = (row for row in rows if row.get("user_name") in (self._user, "", None))
        return [seen for row in ours if (seen := sighting(row, prefix))]

    def cancel(self, native_ids: Sequence[str]) -> None:
        """Cancel one pilot after the other."""
        for native_id in native_ids:
            try:
                self._call("DELETE", f"/job/{quote(native_id, safe='')}")
            except GridError as error:
                if not slurm_states.GONE.search(str(error)):
                    raise

    def tail(self, native_id: str, tag: str) -> str:
        """Return the end of the pilot's stderr."""
        return self._logs.tail(tag, native_id)

    def check(self) -> list[CheckResult]:
        """See whether we are let in, and whether pilots' words can be kept."""
        try:
            release = _release(self._call("GET", "/ping"))
            live = [seen for seen in self.pilots("gb") if seen.state is not PilotState.ENDED]
        except GridError as error:
            return [CheckResult("slurmrestd", False, str(error)), self._logs.check()]
        text = f"Slurm {release} lets {self._user} in; pilots there: {len(live)}"
        return [CheckResult("slurmrestd", True, text), self._logs.check()]

    def _call(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        """Make one request.  Raises GridError with what Slurm said, also if that came with 200."""
        headers = {"X-SLURM-USER-NAME": self._user, "X-SLURM-USER-TOKEN": self._token()}
        try:
            with self._session.request(
                method, f"{self._url}{path}", json=body, headers=headers, stream=True,
                timeout=_TIMEOUT_SECONDS, verify=self._options["ca"] or True,
                allow_redirects=False, proxies=proxies_for(self._url),
            ) as answer:  # fmt: skip
                status, content = answer.status_code, answers.content(answer)
        except OSError as error:  # which requests' errors are
            raise GridError(f"{self._url}: {error}") from error
        try:
            document = dict(json.loads(content))
        except (ValueError, TypeError):
            shown = content[:200].decode(errors="replace")
            text = f"{self._url}{path} answers {status}: {shown!r}"
            raise GridError(text, is_lasting=400 <= status < 500) from None
        if status != 200 or document.get("errors"):
            words = said(document)
            is_lasting = not slurm_states.AWAY.search(words) if words else 400 <= status < 500
            text = f"{self._url}{path}: {words or f'status {status}'}"
            raise GridError(text, is_lasting=is_lasting)
        return document

    def _token(self) -> str:
        """Read it each time: it is good for some time only, and then written anew."""
        try:
            text = Path(self._options["token"]).expanduser().read_text().strip()
        except (OSError, ValueError) as error:
            text = f"the token in {self._options['token']} cannot be read: {error}"
            raise GridError(text, is_lasting=True) from None
        found = text.removeprefix("SLURM_JWT=")
        if not re.fullmatch(r"[A-Za-z0-9_.-]{1,8192}", found):
            text = f"{self._options['token']} holds no token as scontrol token prints it"
            raise GridError(text, is_lasting=True)
        return found


def version(api: str) -> int:
    """Read the version of the interface: v0.0.NUMBER."""
    found = re.fullmatch(r"v0\.0\.([0-9]{1,3})", api)
    if found is None:
        raise GridError(f"option api is no version such as v0.0.40: {api!r}", is_lasting=True)
    return int(found[1])


def job(order: PilotOrder, index: int, stderr: str, api: int) -> dict[str, Any]:
    """Describe the job of one pilot."""
    shape = order.shape
    made = {
        "name": rendering.job_name(order.tag, index),
        "comment": f"gridbot for {rendering.owners(order)}",
        "current_working_directory": "/tmp",  # noqa: S108  # another folder may be missing on a node
        "standard_output": "/dev/null",
        "standard_error": stderr,
        "tasks": 1,
        "cpus_per_task": shape.cpus,
    }
    minutes = math.ceil(shape.walltime_seconds / 60)
    if api <= _OLD:
        made |= {"memory_per_node": shape.memory_mb, "time_limit": minutes, "no_requeue": True}
        made |= {"environment": {"PATH": _PATH}}
        return made | ({"gres": f"gpu:{shape.gpus}"} if shape.gpus else {})
    made |= {"memory_per_node": _set(shape.memory_mb), "time_limit": _set(minutes)}
    made |= {"environment": [f"PATH={_PATH}"], "requeue": False}
    return made | ({"tres_per_node": f"gres/gpu:{shape.gpus}"} if shape.gpus else {})


def _set(number: int) -> dict[str, Any]:
    return {"set": True, "infinite": False, "number": number}


def given(directives: Sequence[str]) -> dict[str, Any]:
    """Read the operator's own fields of a job: NAME=VALUE each, the value JSON or a string."""
    found = dict[str, Any]()
    for directive in directives:
        name, is_given, value = directive.partition("=")
        if not is_given or not re.fullmatch("[a-z][a-z_]{0,63}", name):
            text = f"directive {directive!r} is no field of a job, such as partition=long"
            raise GridError(text, is_lasting=True)
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found


def sighting(row: Mapping[str, Any], prefix: str) -> Sighting | None:
    """Read what Slurm shows of a job; None of one that is not ours."""
    named = rendering.read_name(str(row.get("name")), prefix)
    native_id = _number(row.get("job_id"))
    if named is None or not native_id:
        return None
    word, reason = _state_word(row.get("job_state")), str(row.get("state_reason") or "")
    return Sighting(
        tag=named[0], native_id=str(native_id), index=named[1],
        state=slurm_states.state_of(word, reason), reason=slurm_states.words_of(word, reason),
        node=str(row.get("nodes") or ""),
        exit_code=_exit_code(row.get("exit_code")) if word in slurm_states.ENDED_ITSELF else None,
    )  # fmt: skip


def _state_word(shown: Any) -> str:
    """Read a state; later versions add flags to it that say more: ["COMPLETED", "COMPLETING"]."""
    words = [str(word) for word in shown] if isinstance(shown, list) else [str(shown)]
    known = [word for word in words if word in slurm_states.STATES]
    return (known or words or [""])[-1]


def _number(value: Any) -> int | None:
    """Read a number, which later versions show with whether it is set."""
    if isinstance(value, dict):
        value = value.get("number") if value.get("set") else None
    return value if isinstance(value, int) else None


def _exit_code(value: Any) -> int | None:
    """Read what wait(2) gave as one number, or later versions' return code and signal."""
    if not isinstance(value, dict):
        return _of_wait(value) if isinstance(value, int) else None
    signal = value.get("signal")
    number = _number(signal.get("id")) if isinstance(signal, dict) else None
    return -number if number else _number(value.get("return_code"))


def _of_wait(status: int) -> int | None:
    try:
        return os.waitstatus_to_exitcode(status)
    except ValueError:  # of a stopped process, which none is
        return None


def said(document: Mapping[str, Any]) -> str:
    """Join the errors of an answer."""
    errors = document.get("errors")
    found = errors if isinstance(errors, list) else []
    texts = (_words(error) for error in found if isinstance(error, dict))
    return "; ".join(text for text in texts if text)[:_CHARACTERS]


def _words(error: Mapping[str, Any]) -> str:
    """Join what was done and why it failed, unless one says both."""
    what, why = (" ".join(str(error.get(name, "")).split()) for name in ("description", "error"))
    return what if why in what else ": ".join(text for text in (what, why) if text)


def _release(document: Mapping[str, Any]) -> str:
    """Name the release that answers; "?" where it does not say."""
    meta = document.get("meta")
    slurm = (meta.get("Slurm") or meta.get("slurm")) if isinstance(meta, dict) else None
    return str(slurm.get("release", "?")) if isinstance(slurm, dict) else "?"
