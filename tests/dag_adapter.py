"""Our DAGMan behind the interface of the conformance cases: submit descriptions, and whole DAGs.

The first DAG starts a server with a client, which serve the others too.
"""

from __future__ import annotations

import atexit
import functools
import re
import signal
import subprocess
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.system.deployment import GRIDBOT, Deployment, deployment

from gridbot.dag.submit.description import SubmitSetting, read_jobs
from gridbot.dag.submit.job import SubmitJob

PATIENCE = 300.0
SLOTS = 16
_STARTING = threading.Lock()


def submit(text: str, directory: str, environment: dict[str, str]) -> list[dict[str, Any]]:
    """The jobs of a submit description; raises if it is refused."""
    return [_fields(job) for job in read_jobs(text, SubmitSetting(Path(directory), environment))]


def _fields(job: SubmitJob) -> dict[str, Any]:
    return {
        "arguments": list(job.arguments),
        "environment": dict(job.environment),
        "input": job.input,
        "output": job.output,
        "error": job.error,
        "iwd": job.iwd,
        "cmd": job.executable,
        "transfer_input": ",".join(job.transfer_input) or None,
        "transfer_output": None if job.transfer_output is None else ",".join(job.transfer_output),
        "remaps": job.remaps or None,
        "request_memory": job.memory_mb,
        "request_disk": job.disk_kib,
        "request_cpus": job.cpus,
        "priority": job.priority,
        "max_retries": job.max_retries,
        "universe": job.universe,
        "status": 5 if job.hold else 1,
        "should_transfer": job.should_transfer,
        "when_transfer": job.when_transfer,
        **job.attributes,
    }


def pool() -> Deployment:
    """The same server for all threads."""
    with _STARTING:
        return _pool()


@functools.cache
def _pool() -> Deployment:
    """A server and a client of many slots, until this process ends."""
    stack = ExitStack()
    atexit.register(stack.close)
    made = stack.enter_context(deployment())
    made.start()
    made.client("dags", "--cpus", str(SLOTS))
    return made


def run(directory: str, options: dict[str, Any]) -> dict[str, Any]:
    """Run a DAG to its end in a folder; see the cases' own page for `options` and the answer."""
    return DagRun(Path(directory), options, pool()).to_end()


class DagRun:
    """One `gridbot dag run`, and what is done to it meanwhile."""

    def __init__(self, directory: Path, options: dict[str, Any], where: Deployment) -> None:
        self._directory, self._options, self._where = directory, options, where
        self._text = ""
        self._process = self._start()

    def _start(self) -> subprocess.Popen[str]:
        options = self._options
        return subprocess.Popen(
            [*GRIDBOT, "dag", "run", *options["options"], *options["dag"]],
            cwd=self._directory,
            env={**self._where.env, **(options.get("env") or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def to_end(self) -> dict[str, Any]:
        """Carry out the actions; exit code and what was printed."""
        for action in self._options.get("actions", ()):
            while self._process.poll() is None and not _happened(
                self._directory, action.get("after")
            ):
                time.sleep(0.05)
            time.sleep(action.get("delay", 0))
            self._do(action)
        self._text += self._process.communicate(timeout=PATIENCE)[0]
        return {"exit": self._process.returncode, "message": self._text}

    def _do(self, action: dict[str, Any]) -> None:
        match action["do"]:
            case "touch":
                (self._directory / action["path"]).touch()
            case "unlink":
                (self._directory / action["path"]).unlink()
            case "remove":
                self._process.send_signal(signal.SIGUSR1)
            case "hold":
                self._process.send_signal(signal.SIGTERM)
                self._text += self._process.communicate(timeout=PATIENCE)[0]
            case "release":
                self._process = self._start()
            case "kill":
                self._process.kill()
                self._text += self._process.communicate()[0]
                self._process = self._start()
            case "remove-job":
                self._remove_job(action["node"])
            case other:
                raise ValueError(f"{other} is no action that we know")

    def _remove_job(self, node: str) -> None:
        """Cancel the job of a node as its owner would, at the server."""
        file = self._directory / self._options["dag"][0]
        found = re.findall(rf'.*"submitted","node":"{node}".*', Path(f"{file}.journal").read_text())
        bot = re.search(r'"first":(\d+).*"number":(\d+)', found[-1])
        assert bot is not None
        with self._where.session() as session:
            session.bot(int(bot[2])).cancel([int(bot[1])])


def _happened(directory: Path, after: dict[str, Any] | None) -> bool:
    """Whether the condition of an action holds."""
    if not after:
        return True
    if "file" in after:
        return Path(directory, after["file"]).exists()
    nodes, seen = dict[str, str](), 0
    log = directory / after["log"]
    for record in (log.read_text() if log.exists() else "").split("\n...\n"):
        head = re.match(r"\s*(\d{3}) \((\d+)\.", record)
        if head is None:
            continue
        if named := re.search(r"DAG Node: (\S+)", record):
            nodes[head[2]] = named[1]
        seen += head[1] == after["event"] and nodes.get(head[2]) == after["node"]
    return bool(seen >= after.get("count", 1))
