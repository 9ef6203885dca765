"""The macros in the arguments of scripts."""

from __future__ import annotations

from collections import Counter

from gridbot.dag.engine.table import NodeState, NodeStatus, Table
from gridbot.dag.language.model import Script


class UnknownMacro(ValueError):
    """A macro that there is not, or not for this script."""


def arguments(
    script: Script, state: NodeState, table: Table, dag_status: int, dag_id: int, strict: bool
) -> list[str]:
    """Arguments of a script; a macro is a whole argument.  Raises UnknownMacro if `strict`."""
    known = {
        "NODE": state.name,
        "JOB": state.name,
        "RETRY": state.retries,
        "MAX_RETRIES": state.max_retries,
        "DAGID": dag_id,
        "DAG_STATUS": dag_status,
        "NODE_COUNT": table.total,
        "QUEUED_COUNT": table.counts[NodeStatus.SUBMITTED],
        "DONE_COUNT": table.counts[NodeStatus.DONE],
        "FAILED_COUNT": table.counts[NodeStatus.ERROR],
        "FUTILE_COUNT": table.counts[NodeStatus.FUTILE],
    }
    if script.kind != "PRE":
        known |= _after(state)
    made = []
    for argument in script.arguments:
        if not argument.startswith("$"):
            made.append(argument)
            continue
        value = known.get(argument[1:].upper())
        if value is None and strict and argument[1:2].isalpha():
            raise UnknownMacro(
                f"{script.place}: {argument} is no macro of a {script.kind} script;"
                " with DAGMAN_USE_STRICT = 0 it is passed as it stands"
            )
        made.append(argument if value is None else str(value))
    return made


def _after(state: NodeState) -> dict[str, str | int]:
    """Macros about the jobs, which POST knows."""
    codes = Counter(state.codes.values())
    last = max(state.codes, default=max(0, state.jobs - 1))
    listed = (str(state.codes.get(process, "")) for process in range(state.jobs))
    return {
        "JOBID": f"{state.cluster}.{last}",
        "CLUSTERID": state.cluster,
        "JOB_COUNT": state.jobs,
        "JOB_ABORT_COUNT": state.removed,
        "SUCCESS": str(state.value == 0),
        "RETURN": 0 if state.value is None else state.value,
        "PRE_SCRIPT_RETURN": -1 if state.pre_code is None else state.pre_code,
        "EXIT_CODES": ",".join(map(str, sorted(codes))),
        "EXIT_CODE_COUNTS": ",".join(f"{code}:{codes[code]}" for code in sorted(codes)),
        "EXIT_CODE_LIST": ",".join(listed),
    }
