"""Compares a grid with what its HTCondor pool offers, and submits nothing."""

from __future__ import annotations

from gridbot.printing import counted
from gridbot_overlay.decide.model import CheckResult, PilotShape
from gridbot_overlay.submitters import GridError
from gridbot_overlay.submitters.commands import Commands
from gridbot_overlay.submitters.logs import Logs
from gridbot_overlay.submitters.site import Site

_CPUS = "(TotalSlotCpus ?: Cpus)"  # of a partitionable slot, what it had before it was divided
_MEMORY = "(TotalSlotMemory ?: Memory)"
_GPUS = "(TotalSlotGPUs ?: (TotalGPUs ?: 0))"


def findings(shape: PilotShape, description: str, site: Site) -> list[CheckResult]:
    """Look at all of it, up to the first thing that the rest depends on."""
    commands = site.commands
    try:
        version = commands.run("condor_version").strip().partition("\n")[0].strip("$ ")
        commands.run("condor_q", "-totals")
    except GridError as error:
        return [CheckResult("htcondor", False, str(error))]
    return [
        CheckResult("htcondor", True, f"{version}, and its queue answers"),
        _of_slots(shape, commands),
        _of_logs(site.logs),
        _of_test(description, commands),
    ]


def _of_slots(shape: PilotShape, commands: Commands) -> CheckResult:
    """Count the slots that are large enough, busy or not."""
    wanted = f"{_CPUS} >= {shape.cpus} && {_MEMORY} >= {shape.memory_mb}"
    wanted += f" && {_GPUS} >= {shape.gpus}" if shape.gpus else ""
    try:
        every = _slots(commands, "DynamicSlot =!= true")
        fitting = _slots(commands, f"DynamicSlot =!= true && {wanted}")
    except GridError as error:
        return CheckResult("slots", False, str(error))
    asked = f"{shape.cpus} CPUs and {shape.memory_mb} MB"
    asked += f" and {counted(shape.gpus, 'GPU')}" if shape.gpus else ""
    if not fitting:
        return CheckResult("slots", False, f"none of {every} slots has {asked}")
    return CheckResult("slots", True, f"{fitting} of {every} slots have {asked}")


def _slots(commands: Commands, constraint: str) -> int:
    printed = commands.run("condor_status", "-constraint", constraint, "-autoformat", "Name")
    return len(printed.split())


def _of_logs(logs: Logs) -> CheckResult:
    try:
        logs.prepare()
    except GridError as error:
        return CheckResult("logs", False, str(error))
    return CheckResult("logs", True, f"{logs.folder}, to which HTCondor brings them")


def _of_test(description: str, commands: Commands) -> CheckResult:
    """Let condor_submit read the real description."""
    what = "condor_submit -dry-run"
    try:
        commands.run("condor_submit", "-dry-run", "-", "-", stdin=description)
    except GridError as error:
        return CheckResult(what, False, str(error))
    return CheckResult(what, True, "the description is a right one")
