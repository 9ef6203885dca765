"""HTCondor, by its command line: condor_submit, condor_q, condor_history, condor_rm.

Tested with 23.9; needs 9.0 or newer.  A submission is one cluster of jobs, whose processes are its
pilots.  The script travels with the job: the pool's machines and the submitting one share nothing.

Pilots are never started twice: a second life under the same id would meet a token and a walltime
that the constructor counted already.  HTCondor likes to start evicted jobs again, so ours match no
machine any more once they have been started, and are removed.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gridbot_overlay.decide.model import CheckResult, Grid, PilotOrder, PilotState, Sighting
from gridbot_overlay.submitters import GridError, htcondor_check, rendering
from gridbot_overlay.submitters.logs import TAIL_BYTES, Logs
from gridbot_overlay.submitters.site import OnSite, site

AWAY = re.compile(
    "Failed to (connect|fetch ads)|[Cc]an't (connect|find address)|[Uu]nable to (locate|contact)"
    "|CEDAR:600[0-9]|timed out|Connection refused|Can't send|SECMAN:200[37]"
)
_GONE = re.compile(r"not found|Couldn't find/remove all jobs|marked for removal")
_SUBMITTED = re.compile(r"(\d+)\.0 - (\d+)\.(\d+)")
_REQUIREMENTS = re.compile(r"\s*requirements\s*=(.*)", re.IGNORECASE)

# https://htcondor.readthedocs.io/en/latest/classad-attributes/job-classad-attributes.html#JobStatus
_IDLE, _RUNNING, _COMPLETED, _HELD = 1, 2, 4, 5
STATES = {
    _IDLE: PilotState.QUEUED,
    _RUNNING: PilotState.RUNNING,
    3: PilotState.ENDED,  # removed
    _COMPLETED: PilotState.ENDED,
    _HELD: PilotState.HELD,
    6: PilotState.RUNNING,  # brings its output back
    7: PilotState.RUNNING,  # suspended
}
# NumJobStarts says nearly the same, but the queue learns of it only after a while.
_STARTED = "(MY.NumShadowStarts ?: 0) > 0"
_ATTRIBUTES = (
    "ClusterId,ProcId,JobStatus,GridBotTag,NumShadowStarts,RemoteHost,LastRemoteHost,HoldReason"
    ",HoldReasonCode,RemoveReason,LastRejMatchReason,ExitBySignal,ExitCode,ExitSignal"
)
_HISTORY_SECONDS = 3600
_HISTORY_JOBS = 10_000
# Pilots leave before their walltime; the queue looks at this once a minute.
_WALLTIME_GRACE_SECONDS = 60

Ad = Mapping[str, Any]


class HTCondor(OnSite):
    """Pilots as jobs of one HTCondor queue (schedd)."""

    def __init__(self, grid: Grid, folder: Path) -> None:
        super().__init__(grid, site(grid, folder, {}, AWAY))

    def submit(self, order: PilotOrder) -> list[str]:
        """Submit one cluster."""
        self._site.logs.prepare()
        file = f"{self._site.logs.folder}/{order.tag}.sh"
        self._write_script(file, body(order))
        text = description(order, file, self._site.logs)
        printed = self._site.commands.run("condor_submit", "-terse", "-", stdin=text)
        return elements(printed, order.count)

    def _write_script(self, file: str, text: str) -> None:
        """Keep the script where only we can read it, until its jobs have started.

        HTCondor's own copy, which copy_to_spool makes, could be read by everybody there.
        """
        self._site.logs.drop_old("sh")
        write = f"umask 077; cat > {shlex.quote(file)} && chmod 700 {shlex.quote(file)}"
        self._site.commands.run("sh", "-c", write, stdin=text)

    def pilots(self, prefix: str) -> list[Sighting]:
        """Return what the queue holds, and what left it within the last hour."""
        ours = f"substr(GridBotTag, 0, {len(prefix)}) =?= {quoted(prefix)}"
        wanted = ("-json", "-attributes", _ATTRIBUTES, "-constraint", ours)
        # In this order: a job that leaves the queue meanwhile is in both lists, not in neither.
        queue = ads(self._site.commands.run("condor_q", *wanted))
        since = f"time() - EnteredCurrentStatus > {_HISTORY_SECONDS}"
        bounds = ("-limit", str(_HISTORY_JOBS), "-since", since)
        history = ads(self._site.commands.run("condor_history", *wanted, *bounds))
        seen = {sighting.native_id: sighting for sighting in sightings(queue + history, prefix)}
        return list(seen.values())

    def cancel(self, native_ids: Sequence[str]) -> None:
        """Remove pilots, many with each command."""
        self._site.commands.cancel("condor_rm", native_ids, _GONE)

    def tail(self, native_id: str, tag: str) -> str:
        """Return the end of the pilot's stderr: once it has ended, from its file."""
        if text := super().tail(native_id, tag):
            return text
        _, status, _ = self._site.commands.ended("condor_q", native_id, "-af", "JobStatus")
        if status.strip() != str(_RUNNING):
            return ""  # condor_tail would wait until it runs
        last = ("-no-stdout", "-stderr", "-maxbytes", str(TAIL_BYTES))
        code, printed, _ = self._site.commands.ended("condor_tail", *last, native_id)
        return printed if code == 0 else ""

    def check(self) -> list[CheckResult]:
        """Compare the grid with the pool's slots, and let condor_submit read a test."""
        order = PilotOrder(
            tag="check",
            count=1,
            shape=self._grid.shape,
            script="",
            directives=self._grid.directives,
            owners=(),
        )
        text = description(order, "/bin/sh", self._site.logs)
        return htcondor_check.findings(self._grid.shape, text, self._site)


def description(order: PilotOrder, file: str, logs: Logs) -> str:
    """Render what condor_submit reads; the operator's own lines come last and overrule ours."""
    shape, given = order.shape, tuple(_without_requirements(order.directives))
    walltime = shape.walltime_seconds + _WALLTIME_GRACE_SECONDS
    overdue = f"JobStatus == {_RUNNING} && time() - JobCurrentStartDate > {walltime}"
    evicted = f"JobStatus == {_IDLE} && {_STARTED}"
    lines = [
        "universe = vanilla",
        f"executable = {file}",
        'arguments = "$(ClusterId) $(ProcId)"',
        f"initialdir = {logs.folder}",
        "output = /dev/null",
        f"error = {logs.path(order.tag, '$(ClusterId).$(ProcId)')}",
        "should_transfer_files = YES",
        "when_to_transfer_output = ON_EXIT",
        'transfer_output_files = ""',  # what else a pilot leaves behind stays there
        f"request_cpus = {shape.cpus}",
        f"request_memory = {shape.memory_mb}",
        *([f"request_gpus = {shape.gpus}"] if shape.gpus else []),
        f"periodic_remove = ({overdue}) || ({evicted})",
        "leave_in_queue = false",
        "notification = never",
        f"batch_name = {rendering.job_name(order.tag, 0)}",
        f"+GridBotTag = {quoted(order.tag)}",
        f"+GridBotOwners = {quoted(rendering.owners(order))}",
        *given,
        f"requirements = {_requirements(order)}",
        f"queue {order.count}",
    ]
    return "\n".join(lines) + "\n"


def _without_requirements(directives: Sequence[str]) -> Iterator[str]:
    return (line for line in directives if not _REQUIREMENTS.fullmatch(line))


def _requirements(order: PilotOrder) -> str:
    """Say where a pilot may start; what the operator demands is added to ours."""
    found = (_REQUIREMENTS.fullmatch(line) for line in order.directives)
    given = [f"({match[1].strip()})" for match in found if match]
    nodes = rendering.nodes(order.excluded_nodes)
    elsewhere = [f"TARGET.Machine =!= {quoted(node)}" for node in nodes]
    return " && ".join([f"!({_STARTED})", *elsewhere, *given])


def quoted(text: str) -> str:
    """Write a text as a ClassAd does."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def body(order: PilotOrder) -> str:
    """Render the job script."""
    return rendering.script(order, '"$2"', '"$1.$2"')


def elements(printed: str, count: int) -> list[str]:
    """Name the pilots that condor_submit -terse has submitted: "FIRST - LAST" on its last line."""
    found = _SUBMITTED.fullmatch(printed.strip().rpartition("\n")[2])
    if found is None or found[1] != found[2] or int(found[3]) != count - 1:
        raise GridError(f"condor_submit printed no {count} job ids but {printed[-200:]!r}")
    return [f"{found[1]}.{index}" for index in range(count)]


def ads(printed: str) -> list[Ad]:
    """Read what -json printed: a list of ads, or nothing at all for none."""
    try:
        read = json.loads(printed) if printed.strip() else []
    except ValueError as error:
        raise GridError(f"this is no list of jobs: {error}: {printed[:200]!r}") from error
    if not isinstance(read, list) or not all(isinstance(ad, dict) for ad in read):
        raise GridError(f"this is no list of jobs: {printed[:200]!r}")
    return read


def sightings(jobs: Sequence[Ad], prefix: str) -> Iterator[Sighting]:
    """Read jobs' ads; those that are not ours are passed over."""
    for ad in jobs:
        cluster, process = ad.get("ClusterId"), ad.get("ProcId")
        named = rendering.read_name(_text(ad, "GridBotTag"), prefix)
        if named is None or not isinstance(cluster, int) or not isinstance(process, int):
            continue
        state = _state(ad)
        yield Sighting(
            tag=named[0],
            native_id=f"{cluster}.{process}",
            index=process,
            state=state,
            reason=_reason(ad, state),
            node=_node(ad),
            exit_code=_exit_code(ad),
        )


def _state(ad: Ad) -> PilotState:
    if _was_evicted(ad):
        return PilotState.ENDED
    # A number that HTCondor did not have when this was written must not make a pilot disappear.
    return STATES.get(_number(ad, "JobStatus"), PilotState.RUNNING)


def _was_evicted(ad: Ad) -> bool:
    return _number(ad, "JobStatus") == _IDLE and _number(ad, "NumShadowStarts") > 0


def _reason(ad: Ad, state: PilotState) -> str:
    if _was_evicted(ad):
        return "evicted from its machine"
    if state is PilotState.HELD:
        return f"{_text(ad, 'HoldReason')} (code {_number(ad, 'HoldReasonCode')})"
    if state is PilotState.QUEUED:
        return _text(ad, "LastRejMatchReason")
    return _text(ad, "RemoveReason") if state is PilotState.ENDED else ""


def _node(ad: Ad) -> str:
    """Give the machine of a slot: slot1@HOST or slot1_2@HOST."""
    return (_text(ad, "RemoteHost") or _text(ad, "LastRemoteHost")).rpartition("@")[2]


def _exit_code(ad: Ad) -> int | None:
    if _number(ad, "JobStatus") != _COMPLETED:
        return None  # how it died when somebody ended it says nothing of it
    return -_number(ad, "ExitSignal") if ad.get("ExitBySignal") else _number(ad, "ExitCode")


def _number(ad: Ad, name: str) -> int:
    value = ad.get(name)  # null, where an expression has no value
    return value if isinstance(value, int) else 0


def _text(ad: Ad, name: str) -> str:
    value = ad.get(name)
    return value.strip() if isinstance(value, str) else ""
