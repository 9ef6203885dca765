"""The executor: jobs of Snakemake are jobs of growing BOTs, one for each set of limits.

A job runs Snakemake again on a host, in a folder with the workflow's own files and the job's
inputs.  What it leaves behind comes back to the working directory; no file system is shared.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from glob import glob
from pathlib import Path
from typing import Any

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor

from gridbot.api.connection import patiently
from gridbot.api.errors import BadInput, GridbotError
from gridbot.api.results import Result
from gridbot.api.session import connect
from gridbot.dag.engine.events import JobEnded, JobRemoved, RunEvent
from gridbot.dag.run.lot import JobAtServer, NodeLot
from gridbot.dag.run.lots import Append, NodeLots
from gridbot.dag.run.shapes import JOB_INPUTS, Shape
from snakemake_executor_plugin_gridbot.jobs import (
    OUTPUTS,
    LeftFiles,
    SnakemakeJob,
    brought_by,
    left_by,
    limits_of,
    name_of,
)

_LOOK_SECONDS = 0.2  # between two looks at which jobs have ended; nobody is asked
_MOST_SAID = 60  # lines of what a job that failed printed


class GridbotExecutor(RemoteExecutor):  # type: ignore[misc]  # of a package without types
    """Runs jobs of Snakemake at a server of GridBot."""

    def __post_init__(self) -> None:
        settings = self.workflow.executor_settings
        self._settings, self._base = settings, Path.cwd()
        self._names = map(str, itertools.count(1))
        self._ended: dict[str, JobEnded | JobRemoved] = {}
        self._is_cancelled = False
        self._sources: list[str] | None = None
        try:
            session = connect(settings.server or None, settings.key_file or None)
        except GridbotError as error:
            raise WorkflowError(str(error)) from None
        name = f"Snakemake {self._base.name}"
        self._lots = NodeLots(
            session, secrets.token_hex(8), name, self._told, self.logger.warning, keep_outputs
        )
        self.next_seconds_between_status_checks = _LOOK_SECONDS

    def get_python_executable(self) -> str:
        """Return the Python on the hosts, as the shell there understands it."""
        if self._settings.python:
            return str(self._settings.python)
        return "python3" if self._settings.image else '"$GRIDBOT_PYTHON"'

    # --- jobs begin

    def run_job(self, job: Any) -> None:
        """Submit one job."""
        self._submit([job])

    def run_jobs(self, jobs: Sequence[Any]) -> None:
        """Submit jobs together: those of one BOT in one request."""
        for job in jobs:
            self.run_job_pre(job)
        self._submit(jobs)

    def _submit(self, jobs: Sequence[Any]) -> None:
        appends = []
        for job in jobs:
            node = next(self._names)
            try:
                lot, sent = self._prepared(job)
            except GridbotError as error:
                self.report_job_error(SubmittedJobInfo(job), msg=f"{error}\n")
                continue
            first = self._lots.reserve(lot, node, [sent])
            appends.append(Append(lot, first, [sent]))
            self.report_job_submission(
                SubmittedJobInfo(job, external_jobid=f"{lot.bot.id}.{first}", aux={"node": node})
            )
        for refused in self._lots.send(appends):
            self._told(refused)

    def _prepared(self, job: Any) -> tuple[NodeLot, SnakemakeJob]:
        """The BOT of a job, and what is appended.  Raises GridbotError."""
        left = left_by(job, self._base)
        values = {"script": left.script(self.format_job_exec(job))}
        if self._sources is None:
            self._sources = self._own_files()
        sent = SnakemakeJob(values, brought_by(job, self._base, self._sources), left)
        shape = Shape({**self._fields(), **limits_of(job)})
        return self._lots.lot(shape.key, lambda: shape.fields), sent

    def _fields(self) -> Mapping[str, Any]:
        """What the BOTs have in common."""
        settings = self._settings
        return {
            "command": ["sh", "-c", "{script}"],
            "inputs": self._sources,
            "job_inputs": JOB_INPUTS,
            "outputs": [f"{OUTPUTS}/*"],
            "exit_codes": "any",
            "growing": True,
            "max_failures": "100%",
            "policy": _policy(settings.policy),
            "image": settings.image,
            "network": settings.network,
            "reuse": settings.reuse,
        }

    def _own_files(self) -> list[str]:
        """Files of the workflow: Snakefile, scripts and what else is not read by single jobs.

        Raises BadInput.
        """
        of_jobs = {
            name_of(file)
            for job in self.dag.jobs
            for file in (*job.input, *job.output, *job.log)
            if not getattr(file, "is_storage", False)
        }
        known = {name_of(file) for file in (self.snakefile, *self.dag.get_sources())}
        asked = {name_of(file) for one in self._settings.files.split() for file in glob(one)}
        return sorted(name for name in known - of_jobs | asked if (self._base / name).is_file())

    # --- jobs end

    def _told(self, event: RunEvent) -> None:
        """A job has ended; called by threads."""
        if isinstance(event, JobEnded | JobRemoved):
            self._ended[event.node] = event

    async def check_active_jobs(
        self, active_jobs: list[SubmittedJobInfo]
    ) -> AsyncIterator[SubmittedJobInfo]:
        """Report jobs that have ended, and yield the others."""
        for info in active_jobs:
            ended = self._ended.pop((info.aux or {})["node"], None)
            if ended is None:
                yield info
            elif why := _why(ended):
                self.report_job_error(info, msg="\n".join([*why, ""]))
            else:
                self.report_job_success(info)

    def cancel_jobs(self, active_jobs: list[SubmittedJobInfo]) -> None:
        """Cancel all that is left; `shutdown` follows."""
        del active_jobs
        self._is_cancelled = True

    def shutdown(self) -> None:
        """End it: BOTs are closed, or cancelled."""
        super().shutdown()
        self._lots.stop(cancel=self._is_cancelled)


def keep_outputs(lot: NodeLot, result: Result, job: JobAtServer) -> Mapping[str, Any]:
    """Write what a job left behind; of one that failed, return why, in lines."""
    left = job.destination
    assert isinstance(left, LeftFiles)
    try:
        for output in result.outputs.values():
            patiently(partial(left.save, output))
    except BadInput as error:
        return {"why": [str(error)]}
    if result.state == "done" and not result.exit_code:
        return {}
    lines = [*lot.bot.logs(result.seq)]
    said = str(lines[-1].get("stderr") or "") if lines else ""
    how = result.reason if result.exit_code is None else f"exit code {result.exit_code}"
    return {"why": [how, *said.splitlines()[-_MOST_SAID:]]}


def _why(ended: JobEnded | JobRemoved) -> Sequence[str]:
    """Why a job has failed, in lines; empty if it has not."""
    if isinstance(ended, JobRemoved):
        return [ended.reason or "cancelled"]
    why: Sequence[str] = ended.outputs.get("why", ())
    return why


def _policy(given: str) -> str | Path:
    """A policy as it is submitted: a text, or a file."""
    if given.endswith(".ad"):
        return Path(given).resolve()
    return given
