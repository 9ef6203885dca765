"""HTCondor's event log of the node jobs, written from our journal; its tools read it."""

from __future__ import annotations

import time

from gridbot.dag.engine import events
from gridbot.dag.engine.table import NodeState


def record_of(event: events.RunEvent, state: NodeState, at: float) -> str:
    """The records that tell of an event; an empty text for one that the log does not have."""
    match event:
        case events.NodeSubmitted(jobs=jobs, cluster=cluster):
            body = f"Job submitted from host: <127.0.0.1:0>\n    DAG Node: {state.name}"
            return "".join(_record(0, cluster, process, at, body) for process in range(jobs))
        case events.JobStarted(process=process):
            return _record(1, state.cluster, process, at, "Job executing on host: <127.0.0.1:0>")
        case events.JobEnded(process=process, code=code):
            return _record(5, state.cluster, process, at, f"Job terminated.\n{_how(code)}{_USAGE}")
        case events.JobRemoved(process=process, reason=reason):
            said = (reason or "removed").replace("\n", " ")
            return _record(9, state.cluster, process, at, f"Job was aborted.\n\t{said}")
        case events.JobHeld(process=process, reason=reason):
            said = reason.replace("\n", " ") or "its BOT is held"
            body = f"Job was held.\n\t{said}\n\tCode 0 Subcode 0"
            return _record(12, state.cluster, process, at, body)
        case events.JobReleased(process=process):
            body = "Job was released.\n\tits BOT goes on"
            return _record(13, state.cluster, process, at, body)
        case events.ScriptEnded(kind="POST", code=code):
            body = f"POST Script terminated.\n{_how(code)}    DAG Node: {state.name}"
            return _record(16, state.cluster, 0, at, body)
        case events.ScriptEnded(kind="PRE", code=code) if code and code == state.node.pre_skip:
            body = f"PRE script return value is PRE_SKIP value\n    DAG Node: {state.name}"
            return _record(34, 0, 0, at, body)
    return ""


_USAGE = (
    "\t\tUsr 0 00:00:00, Sys 0 00:00:00  -  Run Remote Usage\n"
    "\t\tUsr 0 00:00:00, Sys 0 00:00:00  -  Run Local Usage\n"
    "\t\tUsr 0 00:00:00, Sys 0 00:00:00  -  Total Remote Usage\n"
    "\t\tUsr 0 00:00:00, Sys 0 00:00:00  -  Total Local Usage\n"
    "\t0  -  Run Bytes Sent By Job\n"
    "\t0  -  Run Bytes Received By Job\n"
    "\t0  -  Total Bytes Sent By Job\n"
    "\t0  -  Total Bytes Received By Job"
)


def _how(code: int) -> str:
    if code < 0:
        return f"\t(0) Abnormal termination (signal {-code})\n\t(0) No core file\n"
    return f"\t(1) Normal termination (return value {code})\n"


def _record(number: int, cluster: int, process: int, at: float, body: str) -> str:
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
    return f"{number:03d} ({cluster:03d}.{process:03d}.000) {when} {body}\n...\n"
