"""Reads what qstat -f of OpenPBS and Torque prints.  Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from gridbot_overlay.decide.model import PilotState, Sighting
from gridbot_overlay.submitters import rendering

NO_JOBS = 153  # Unknown Job Id: what qstat ends with when there are none, in some releases

# OpenPBS: qstat(1B); Torque: qstat(1B).  C and F are the two systems' words for the same.
STATES = {
    "Q": PilotState.QUEUED,
    "T": PilotState.QUEUED,  # moves to another place
    "W": PilotState.QUEUED,  # for its time
    "M": PilotState.QUEUED,  # was moved to another server
    "H": PilotState.HELD,
    "R": PilotState.RUNNING,
    "B": PilotState.RUNNING,
    "E": PilotState.RUNNING,  # it still occupies its node
    "S": PilotState.RUNNING,
    "U": PilotState.RUNNING,  # suspended while somebody uses the machine
    "X": PilotState.ENDED,
    "F": PilotState.ENDED,
    "C": PilotState.ENDED,
}
_JOB = re.compile(r"^Job Id:\s*(\S+)\s*$")
_ATTRIBUTE = re.compile(r"^\s+([A-Za-z_][\w.]*) = (.*)$")
_ELEMENT = re.compile(r"\[(\d*)\]")
_NEVER = re.compile("can never run", re.I)


def jobs(listing: str, prefix: str, user: str) -> list[Sighting]:
    """Read all jobs; those that are not ours, and arrays as such, are passed over.

    Anybody may call a job as ours are called, so only those of `user` count.
    """
    shown = dict(records(listing))
    owned = (native_id for native_id in shown if _owner(native_id, shown) == user)
    found = (_sighting(native_id, shown[native_id], prefix) for native_id in owned)
    return [sighting for sighting in found if sighting]


def _owner(native_id: str, shown: Mapping[str, Mapping[str, str]]) -> str:
    """Name a job's owner, of USER@HOST; an element's is that of its array where it has none."""
    whole = shown.get(_ELEMENT.sub("[]", native_id), {})
    return (shown[native_id].get("Job_Owner") or whole.get("Job_Owner", "")).partition("@")[0]


def records(listing: str, heading: re.Pattern[str] = _JOB) -> Iterator[tuple[str, dict[str, str]]]:
    """Split into things with their attributes; what goes on after a tab is put together again."""
    name, values, last = "", dict[str, str](), ""
    for line in listing.splitlines():
        if begins := heading.match(line):
            if name:
                yield name, values
            name, values, last = begins[1], {}, ""
        elif attribute := _ATTRIBUTE.match(line):
            last = attribute[1]
            values[last] = attribute[2]
        elif line.startswith("\t") and last:
            values[last] += line[1:]  # lines are broken anywhere, also after a space
    if name:
        yield name, values


def _sighting(native_id: str, values: dict[str, str], prefix: str) -> Sighting | None:
    element = _ELEMENT.search(native_id)
    if element and not element[1]:
        return None  # the array as such
    name = values.get("Job_Name", "")
    if element:  # Torque appends the element to the name
        name = name.removesuffix(f"-{element[1]}")
    named = rendering.read_name(name, prefix)
    if named is None:
        return None
    state, reason = classify(values.get("job_state", ""), values.get("comment", ""))
    code = values.get("Exit_status", values.get("exit_status", ""))
    return Sighting(
        tag=named[0],
        native_id=native_id,
        index=named[1] + (int(element[1]) if element else 0),
        state=state,
        reason=reason,
        node=re.split(r"[/:+.]", values.get("exec_host", "").lstrip("("))[0].strip("-"),
        exit_code=int(code) if state is PilotState.ENDED and _is_number(code) else None,
    )


def classify(word: str, comment: str) -> tuple[PilotState, str]:
    """Tell the state, and a reason, from the system's letter and comment."""
    # A letter that neither system has must not make a pilot disappear.
    state = STATES.get(word, PilotState.RUNNING)
    if state is PilotState.QUEUED and _NEVER.search(comment):
        return PilotState.HELD, comment
    if word in "SU":
        return state, "suspended"
    if word not in STATES:
        return state, f"in state {word}"
    return state, "" if state is PilotState.RUNNING else comment


def _is_number(text: str) -> bool:
    return text.removeprefix("-").isdecimal()
