"""Reads what Grid Engine's qstat and qacct print.  Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from xml.etree import ElementTree

from gridbot_overlay.decide.model import PilotState, Sighting
from gridbot_overlay.submitters import GridError, rendering

ERROR = "in error state"
# A state is several letters; the first of these groups that has one of them decides.  See qstat(1).
STATES = (
    ("E", PilotState.HELD, ERROR),
    ("sST", PilotState.RUNNING, "suspended"),
    ("rt", PilotState.RUNNING, ""),
    ("h", PilotState.HELD, "held"),
    ("qw", PilotState.QUEUED, ""),
    ("z", PilotState.ENDED, ""),
)
_AWAY = "its node does not answer"
_TASKS = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?")
_ERROR_REASON = re.compile(r"^error reason\s+\d+:\s*(.*)$", re.M)
_JOB_NUMBER = re.compile(r"^job_number:\s*(\d+)", re.M)
_RULE = re.compile(r"^=+\s*$", re.M)
_MOST_TASKS = 100_000


@dataclass(frozen=True, slots=True)
class AccountingRecord:
    """What the accounting holds of a pilot."""

    exit_code: int | None
    reason: str


def jobs(listing: str, prefix: str) -> list[Sighting]:
    """Read qstat -f -xml; jobs that are not ours are passed over."""
    try:
        root = ElementTree.fromstring(listing)  # noqa: S314  # of the system that runs our pilots
    except ElementTree.ParseError as error:
        raise GridError(f"qstat printed no XML: {error}") from error
    found: list[Sighting] = []
    for queue in root.iter("Queue-List"):
        host = _text(queue, "name").partition("@")[2]
        is_away = "u" in _text(queue, "state")
        for job in queue.findall("job_list"):
            found += _sightings(job, prefix, host, is_away)
    for job in root.findall("job_info/job_list"):
        found += _sightings(job, prefix, "", False)
    return found


def _sightings(
    job: ElementTree.Element, prefix: str, host: str, is_away: bool
) -> Iterator[Sighting]:
    named = rendering.read_name(_text(job, "JB_name"), prefix)
    if named is None:
        return
    tag, first = named
    state, reason = classify(_text(job, "state"))
    for task in tasks(_text(job, "tasks")) or [0]:
        number = _text(job, "JB_job_number")
        yield Sighting(
            tag=tag,
            native_id=f"{number}.{task}" if task else number,
            index=first + max(0, task - 1),
            state=state,
            reason=_AWAY if is_away else reason,
            node=host,
        )


def classify(word: str) -> tuple[PilotState, str]:
    """Tell the state, and a reason, from letters such as qw, Eqw, dr."""
    for letters, state, reason in STATES:
        if set(letters) & set(word):
            return state, "being deleted" if "d" in word and not reason else reason
    # What Grid Engine did not have when this was written must not make a pilot disappear.
    return PilotState.RUNNING, f"in state {word}"


def tasks(text: str) -> list[int]:
    """Expand the tasks of an array: 1,4,6-9:1."""
    found: list[int] = []
    for part in filter(None, text.split(",")):
        read = _TASKS.fullmatch(part.strip())
        if read is None:
            raise GridError(f"qstat printed no tasks but {text[:80]!r}")
        first, last, step = int(read[1]), int(read[2] or read[1]), int(read[3] or 1)
        found += range(first, min(last, first + _MOST_TASKS) + 1, max(1, step))
    return found


def explained(found: list[Sighting], said: str) -> list[Sighting]:
    """Put what qstat -j says of jobs in place of the bare error state."""
    reasons = {}
    for part in _RULE.split(said):
        number, reason = _JOB_NUMBER.search(part), _ERROR_REASON.search(part)
        if number and reason:
            reasons[number[1]] = reason[1].strip()
    return [
        replace(sighting, reason=reasons.get(sighting.native_id.partition(".")[0], ERROR))
        if sighting.reason == ERROR
        else sighting
        for sighting in found
    ]


def accounts(printed: str) -> dict[str, AccountingRecord]:
    """Read qacct -j, by native id."""
    records = {}
    for part in _RULE.split(printed):
        pairs = (line.partition(" ") for line in part.splitlines())
        values = {name: value.strip() for name, _, value in pairs}
        if "jobnumber" in values:
            task = values.get("taskid", "undefined")
            number = values["jobnumber"]
            records[f"{number}.{task}" if task.isdecimal() else number] = _record(values)
    return records


def _record(values: dict[str, str]) -> AccountingRecord:
    failed, code = values.get("failed", "0"), values.get("exit_status", "").split(" ")[0]
    reason = "" if failed.split(":")[0].strip() == "0" else f"failed {failed}"
    return AccountingRecord(int(code) if code.isdecimal() else None, reason)


def _text(element: ElementTree.Element, name: str) -> str:
    return (element.findtext(name) or "").strip()
