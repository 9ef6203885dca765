"""OpenPBS and Torque by their command line: qsub, qstat, qdel.

Tested with recorded and written outputs, and with Slurm's wrappers of the same names; no server
of the family was at hand.  What is not in the two systems' manuals is not relied on.
"""

from __future__ import annotations

import functools
import re
import secrets
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gridbot_overlay.decide.model import CheckResult, Grid, PilotOrder, PilotShape, Sighting
from gridbot_overlay.submitters import GridError, pbs_check, pbs_reports, rendering
from gridbot_overlay.submitters.site import OnSite, Site, site

OPTIONS = {
    "flavour": "openpbs",  # or "torque": they ask for CPUs, and name arrays, differently
    "arrays": True,  # off where the server has none: then each pilot is a submission
    "history": False,  # OpenPBS with job_history_enable: ended pilots are listed, with exit codes
    "ssh": ["ssh", "-o", "BatchMode=yes"],  # by which a pilot of several nodes uses the others
}
AWAY = re.compile(
    "[Cc]annot connect to (specified )?(default )?server|[Cc]onnection (refused|timed out)"
    "|Communication failure|Problem loading jobs|[Uu]nable to contact"
    "|cannot contact|No default server|End of File"
)
_GONE = re.compile("Unknown Job|Job has finished|invalid state for job|[Ii]nvalid job id")
_LARGEST_ARRAY = 1000  # max_array_size is 10000 unless somebody changed it
# How a pilot of several nodes finds them, this one first.
_NAMES = """export GRIDBOT_PILOT_NODES="$(awk '!seen[$0]++' "$PBS_NODEFILE" | paste -sd, -)\""""
# How it starts something on one: ssh gives its words to a shell there, hence the quoting.
_ON_NODE = r"""node=$1; shift; line=
for word; do line="$line '$(printf %s "$word" | sed "s/'/'\\\\''/g")'"; done
exec {ssh} "$node" "$line"
"""
_PRINTED = re.compile(r"(\d+)(\[\])?(\.[\w.-]+)?")


class Pbs(OnSite):
    """Pilots as jobs of one PBS server."""

    def __init__(self, grid: Grid, folder: Path) -> None:
        super().__init__(grid, site(grid, folder, OPTIONS, AWAY, has_nodes=True))
        if self._site.options["flavour"] not in RESOURCES:
            text = f"grid {grid.name}: flavour is one of {', '.join(RESOURCES)}"
            raise GridError(text, is_lasting=True)

    def submit(self, order: PilotOrder) -> list[str]:
        """Submit one array, several where there are very many pilots, or each pilot alone."""
        self._site.logs.prepare()
        largest = _LARGEST_ARRAY if self._site.options["arrays"] else 1
        submit = functools.partial(self._submit_part, order)
        return list(rendering.in_parts(order.count, largest, submit))

    def _submit_part(self, order: PilotOrder, first: int, count: int) -> list[str]:
        # A file and not stdin, which not every qsub reads; qsub copies what it is given.
        file = f"{self._site.logs.folder}/{order.tag}.{secrets.token_hex(4)}.sh"
        command = submission(order, first, count, self._site.options)
        write = f"umask 077; cat > {shlex.quote(file)}"
        self._site.commands.run("sh", "-c", write, stdin=body(order, first, self._site))
        try:
            return elements(self._site.commands.run(*command, file), count)
        finally:
            self._site.commands.ended("rm", "-f", file)

    def pilots(self, prefix: str) -> list[Sighting]:
        """Return what qstat shows of our user's jobs; ended ones while the server keeps them."""
        command = ["qstat", "-f"]
        command += ["-t"] if self._site.options["arrays"] else []
        command += ["-x"] if self._site.options["history"] else []
        # Without jobs, Slurm's wrapper ends with 153, and says nothing.
        code, printed, said = self._site.commands.ended(*command)
        if code and (printed.strip() or said.strip() or code != pbs_reports.NO_JOBS):
            raise GridError(
                f"qstat ended with code {code}: {said.strip() or printed[-500:].strip()}",
                is_lasting=not AWAY.search(said + printed),
            )
        return pbs_reports.jobs(printed, prefix, self._user)

    def cancel(self, native_ids: Sequence[str]) -> None:
        """Delete pilots, many with each command."""
        self._site.commands.cancel("qdel", native_ids, _GONE)

    def check(self) -> list[CheckResult]:
        """Compare the grid with its queue's limits."""
        return pbs_check.findings(self._grid, self._site)


def submission(order: PilotOrder, first: int, count: int, options: Mapping[str, Any]) -> list[str]:
    """Render qsub's arguments for one part of an order; the operator's own come last.

    The systems' own ways to name files by job differ, so the script opens its own stderr.
    """
    is_torque = options["flavour"] == "torque"
    directives = rendering.words(order.directives)
    # Accounting shows an account; where a site charges to accounts, its operator gives the right.
    account = () if "-A" in directives else ("-A", f"gridbot.{rendering.owners(order)}")
    return [
        "qsub",
        *("-N", rendering.job_name(order.tag, first)),
        *account,
        *("-r", "n"),  # a pilot's second life would meet a token and a walltime of its first
        *("-o", "/dev/null", "-e", "/dev/null"),
        *(("-t" if is_torque else "-J", f"0-{count - 1}") if count > 1 else ()),
        *RESOURCES[options["flavour"]](order.shape),
        *directives,
    ]


def _openpbs(shape: PilotShape) -> list[str]:
    select = f"select={shape.nodes}:ncpus={shape.cpus}:mem={shape.memory_mb}mb"
    select += f":ngpus={shape.gpus}" if shape.gpus else ""
    apart = ("-l", "place=scatter") if shape.nodes > 1 else ()
    return ["-l", select, *apart, "-l", f"walltime={rendering.clock(shape.walltime_seconds)}"]


def _torque(shape: PilotShape) -> list[str]:
    walltime = rendering.clock(shape.walltime_seconds)
    nodes = f"nodes={shape.nodes}:ppn={shape.cpus}" + (f":gpus={shape.gpus}" if shape.gpus else "")
    memory = f"mem={shape.nodes * shape.memory_mb}mb"  # of the whole job
    return ["-l", f"{nodes},{memory},walltime={walltime}"]


RESOURCES = {"openpbs": _openpbs, "torque": _torque}


def body(order: PilotOrder, first: int, on: Site) -> str:
    """Render the job script of one part of an order."""
    # PBS_JOBID names the element of an array; Slurm's wrappers do not set it.
    index = f"$(({first} + ${{PBS_ARRAY_INDEX:-${{PBS_ARRAYID:-0}}}}))"
    log = f'{shlex.quote(on.logs.folder)}/{order.tag}."$GRIDBOT_NATIVE_ID".err'
    opens = f"(: >> {log}) 2> /dev/null && exec 2>> {log}"
    nodes = _nodes(on.options["ssh"]) if order.shape.nodes > 1 else ()
    return rendering.script(order, index, '"${PBS_JOBID:-$SLURM_JOB_ID}"', opens, *nodes)


def _nodes(ssh: Sequence[str]) -> tuple[str, str]:
    on_node = shlex.join(["sh", "-c", _ON_NODE.format(ssh=shlex.join(ssh)), "on-node"])
    return _NAMES, f"export GRIDBOT_PILOT_LAUNCH={shlex.quote(f'{on_node} ')}"


def elements(printed: str, count: int) -> list[str]:
    """Name the pilots that qsub has submitted: JOB, JOB.SERVER or JOB[].SERVER on its last line."""
    found = _PRINTED.fullmatch(printed.strip().rpartition("\n")[2])
    if found is None or bool(found[2]) != (count > 1):
        raise GridError(f"qsub printed no such job id but {printed[-200:]!r}")
    server = found[3] or ""
    if count == 1:
        return [f"{found[1]}{server}"]
    return [f"{found[1]}[{index}]{server}" for index in range(count)]
