"""Grid Engine by its command line: qsub, qstat, qdel, qacct.  Tested with Son of Grid Engine 8.1.9.

Its jobs leave qstat when they end, and qacct knows of them seconds later.  So pilots that have
just disappeared are asked after there, a few times; nothing else needs the accounting.
"""

from __future__ import annotations

import functools
import math
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gridbot_overlay.decide.model import (
    CheckResult,
    Grid,
    PilotOrder,
    PilotShape,
    PilotState,
    Sighting,
)
from gridbot_overlay.submitters import (
    GridError,
    grid_engine_check,
    grid_engine_reports,
    rendering,
)
from gridbot_overlay.submitters.logs import Logs
from gridbot_overlay.submitters.site import OnSite, site

OPTIONS = {
    "memory": "h_vmem",  # the resource that limits a pilot's memory, per slot; "" for none
    "gpu": "gpu",  # the consumable resource that counts GPUs
    "parallel_environment": "",  # gives several slots of one node; needed when cpus > 1
}
AWAY = re.compile(
    "unable to (contact|send message to) qmaster|cannot connect|can't (connect|resolve)"
    "|got no response|got (send|read) (error|timeout)|commlib error|qmaster .* not (running|alive)"
)
_GONE = re.compile("does not exist|already in deletion|has (deleted|registered)")
_LARGEST_ARRAY = 1000  # max_aj_tasks is 75000 unless somebody changed it
_ASKED_SECONDS = 60.0  # so long qacct is asked for a pilot that qstat has dropped
_ASKED_AT_ONCE = 5  # jobs
_PRINTED = re.compile(r"(\d+)(?:\.1-(\d+):1)?")


class GridEngine(OnSite):
    """Pilots as jobs of one Grid Engine cell."""

    def __init__(self, grid: Grid, folder: Path) -> None:
        super().__init__(grid, site(grid, folder, OPTIONS, AWAY))
        self._seen: dict[str, Sighting] = {}  # by native id, when qstat was last asked
        self._departed: dict[str, tuple[Sighting, float]] = {}  # and when that was

    def submit(self, order: PilotOrder) -> list[str]:
        """Submit one array, or several where there are very many pilots."""
        self._site.logs.prepare()
        submit = functools.partial(self._submit_part, order)
        return list(rendering.in_parts(order.count, _LARGEST_ARRAY, submit))

    def _submit_part(self, order: PilotOrder, first: int, count: int) -> list[str]:
        command = submission(order, first, count, self._site.logs, self._site.options)
        return elements(self._site.commands.run(*command, stdin=body(order, first, count)), count)

    def pilots(self, prefix: str) -> list[Sighting]:
        """Return what qstat shows, and what qacct says of those that have just left it."""
        # -f shows the queues' states: a job whose node is away stays in state r for ever.
        listing = self._site.commands.run("qstat", "-f", "-ne", "-xml", "-u", self._user)
        found = self._explained(grid_engine_reports.jobs(listing, prefix))
        now = {sighting.native_id: sighting for sighting in found}
        for native_id, sighting in self._seen.items():
            if native_id not in now and sighting.tag.startswith(prefix):
                self._departed.setdefault(native_id, (sighting, time.monotonic()))
        self._seen = now
        return found + self._ended()

    def cancel(self, native_ids: Sequence[str]) -> None:
        """Delete pilots; a job on a node that is away leaves when the node is back."""
        self._site.commands.cancel("qdel", native_ids, _GONE)

    def check(self) -> list[CheckResult]:
        """Compare the grid with queues and environments, and let qsub verify a pilot."""
        try:
            asked = resources(self._grid.shape, (), self._site.options)
            asked += rendering.words(self._grid.directives)
        except GridError as error:
            return [CheckResult("pilots", False, str(error))]
        return grid_engine_check.findings(self._grid, asked, self._site)

    def _explained(self, found: list[Sighting]) -> list[Sighting]:
        """Say of pilots in an error state what brought them there."""
        failed = {_job(s.native_id) for s in found if s.reason == grid_engine_reports.ERROR}
        if not failed:
            return found
        said = self._site.commands.run("qstat", "-j", ",".join(sorted(failed)), good=(0, 1))
        return grid_engine_reports.explained(found, said)

    def _ended(self) -> list[Sighting]:
        """Describe pilots that qstat has dropped, as far as qacct knows already."""
        asked = sorted({_job(native_id) for native_id in self._departed}, key=int)[:_ASKED_AT_ONCE]
        records: dict[str, grid_engine_reports.AccountingRecord] = {}
        for job in asked:
            code, printed, _ = self._site.commands.ended("qacct", "-j", job)
            records |= grid_engine_reports.accounts(printed) if code == 0 else {}
        ended = []
        for native_id, (sighting, departed_at) in list(self._departed.items()):
            record = records.get(native_id)
            ended.append(_at_end(sighting, record))
            if record or time.monotonic() > departed_at + _ASKED_SECONDS:
                del self._departed[native_id]
        return ended


def submission(
    order: PilotOrder, first: int, count: int, logs: Logs, options: Mapping[str, Any]
) -> list[str]:
    """Render qsub's arguments for one part of an order; the operator's own come last."""
    return [
        *("qsub", "-terse"),
        *("-N", rendering.job_name(order.tag, first)),
        *("-A", f"gridbot.{rendering.owners(order)}"),  # qacct shows it
        *("-S", "/bin/sh"),
        *("-wd", "/tmp"),  # noqa: S108  # the folder of submission may be missing on a node
        *("-r", "n"),  # a pilot's second life would meet a token and a walltime of its first
        *("-o", "/dev/null"),
        *("-e", logs.path(order.tag, "$JOB_ID.$TASK_ID" if count > 1 else "$JOB_ID")),
        *("-w", "e"),  # refuse what could never start: no listing would tell it later
        *(("-t", f"1-{count}") if count > 1 else ()),
        *resources(order.shape, order.excluded_nodes, options),
        *rendering.words(order.directives),
    ]


def resources(
    shape: PilotShape, excluded_nodes: Sequence[str], options: Mapping[str, Any]
) -> list[str]:
    """Render what a pilot asks for.  GridError if it wants CPUs that nothing can give."""
    asked = ["-l", f"h_rt={shape.walltime_seconds}"]
    if options["memory"]:  # counted for each slot
        asked += ["-l", f"{options['memory']}={math.ceil(shape.memory_mb / shape.cpus)}M"]
    if shape.gpus:
        asked += ["-l", f"{options['gpu']}={shape.gpus}"]
    if excluded := rendering.nodes(excluded_nodes):
        asked += ["-l", f"hostname=!({'|'.join(excluded)})"]
    if shape.cpus > 1:
        if not options["parallel_environment"]:
            text = "pilots of several CPUs need the option parallel_environment; see qconf -spl"
            raise GridError(text, is_lasting=True)
        asked += ["-pe", str(options["parallel_environment"]), str(shape.cpus)]
    return asked


def body(order: PilotOrder, first: int, count: int) -> str:
    """Render the job script of one part of an order."""
    if count > 1:
        return rendering.script(order, f"$(({first - 1} + SGE_TASK_ID))", "$JOB_ID.$SGE_TASK_ID")
    return rendering.script(order, str(first), "$JOB_ID")


def elements(printed: str, count: int) -> list[str]:
    """Name the pilots that qsub -terse has submitted: JOB or JOB.1-COUNT:1 on its last line."""
    found = _PRINTED.fullmatch(printed.strip().rpartition("\n")[2])
    if found is None or int(found[2] or 1) != count:
        raise GridError(f"qsub printed no such job id but {printed[-200:]!r}")
    return [f"{found[1]}.{task}" for task in range(1, count + 1)] if count > 1 else [found[1]]


def _at_end(last: Sighting, record: grid_engine_reports.AccountingRecord | None) -> Sighting:
    reason = record.reason if record else ""
    exit_code = record.exit_code if record else None
    return replace(last, state=PilotState.ENDED, reason=reason, exit_code=exit_code)


def _job(native_id: str) -> str:
    return native_id.partition(".")[0]
