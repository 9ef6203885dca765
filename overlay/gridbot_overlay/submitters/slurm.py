"""Slurm, by its command line: sbatch, squeue, scancel.  Tested with 22.05; needs 20.11 or newer.

Listings are read in columns of fixed width (squeue --Format), which every release prints alike.
The JSON of squeue changed its shape in almost every one, cannot be restricted to one user's jobs,
and shows the waiting elements of an array as one entry.

Pilots are never requeued (--no-requeue): a second life under the same id would meet a token and
a walltime that the constructor counted already; it rather submits a fresh one.  Where a site's
operator requeues one all the same, it is queued again here, too.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from pathlib import Path

from gridbot_overlay.decide.model import CheckResult, Grid, PilotOrder, Sighting
from gridbot_overlay.submitters import GridError, rendering, slurm_check, slurm_states
from gridbot_overlay.submitters.logs import Logs
from gridbot_overlay.submitters.site import OnSite, site

# Width of each column; names come last, because others' may hold letters of several bytes.
_COLUMNS = {"JobArrayID": 40, "State": 20, "Reason": 80, "exit_code": 12, "NodeList": 80}
_COLUMNS |= {"Name": 80}
# How a pilot of several nodes finds them, this one first, and starts something on one.
_NODES = """\
nodes=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | grep -vxF "$SLURMD_NODENAME" | paste -sd, -)
export GRIDBOT_PILOT_NODES="$SLURMD_NODENAME,$nodes"
step="--overlap --nodes=1 --ntasks=1 --cpus-per-task={cpus} --mem=0 --cpu-bind=none --quiet"
srun="${{SLURM_CONF:+env SLURM_CONF=$SLURM_CONF }}srun --jobid=$SLURM_JOB_ID"
export GRIDBOT_PILOT_LAUNCH="$srun $step --nodelist="
"""


class Slurm(OnSite):
    """Pilots as jobs of one Slurm cluster."""

    def __init__(self, grid: Grid, folder: Path) -> None:
        super().__init__(grid, site(grid, folder, {}, slurm_states.AWAY, has_nodes=True))

    def submit(self, order: PilotOrder) -> list[str]:
        """Submit one array, or several where the cluster's arrays are short."""
        self._site.logs.prepare()
        submit = functools.partial(self._submit_part, order)
        return list(rendering.in_parts(order.count, self._largest_array, submit))

    def _submit_part(self, order: PilotOrder, first: int, count: int) -> list[str]:
        command = submission(order, first, count, self._site.logs)
        return elements(self._site.commands.run(*command, stdin=body(order, first)), count)

    def pilots(self, prefix: str) -> list[Sighting]:
        """Return what squeue knows: all that live, and those that ended within MinJobAge."""
        columns = ",".join(f"{name}:{width}" for name, width in _COLUMNS.items())
        listing = ("--me", "--noheader", "--all", "--array", "--states=all")
        return parse(self._site.commands.run("squeue", *listing, f"--Format={columns}"), prefix)

    def cancel(self, native_ids: Sequence[str]) -> None:
        """Cancel pilots, many with each command."""
        self._site.commands.cancel("scancel", native_ids, slurm_states.GONE)

    def check(self) -> list[CheckResult]:
        """Compare the grid with partitions, limits and what sbatch says of a test."""
        return slurm_check.findings(self._grid, self._site)

    @functools.cached_property
    def _largest_array(self) -> int:
        """How many elements an array may have; 1 where there are no arrays."""
        config = slurm_check.configuration(self._site.commands.run("scontrol", "show", "config"))
        return max(1, int(config.get("MaxArraySize", "1")))


def submission(order: PilotOrder, first: int, count: int, logs: Logs) -> list[str]:
    """Render sbatch's arguments for one part of an order.

    They are arguments and not lines of the script, so that nothing in a name can become one;
    the operator's own come last and overrule ours.
    """
    shape, is_array = order.shape, count > 1
    excluded = rendering.nodes(order.excluded_nodes)
    return [
        "sbatch",
        "--parsable",
        f"--job-name={rendering.job_name(order.tag, first)}",
        f"--comment=gridbot for {rendering.owners(order)}",
        *slurm_check.asked(shape),
        "--no-requeue",
        "--chdir=/tmp",  # the folder of submission may be missing on a node
        "--output=/dev/null",
        f"--error={logs.path(order.tag, '%A_%a' if is_array else '%j')}",
        *([f"--array=0-{count - 1}"] if is_array else []),
        *([f"--exclude={','.join(excluded)}"] if excluded else []),
        *rendering.words(order.directives),
    ]


def body(order: PilotOrder, first: int) -> str:
    """Render the job script of one part of an order."""
    native_id = '"${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_}'
    native_id += '${SLURM_ARRAY_TASK_ID:-$SLURM_JOB_ID}"'
    index = f"$(({first} + ${{SLURM_ARRAY_TASK_ID:-0}}))"
    nodes = _NODES.format(cpus=order.shape.cpus) if order.shape.nodes > 1 else ""
    return rendering.script(order, index, native_id, *nodes.splitlines())


def elements(printed: str, count: int) -> list[str]:
    """Name the pilots that sbatch --parsable has submitted: ID or ID;CLUSTER on its last line."""
    job = printed.strip().rpartition("\n")[2].partition(";")[0]
    if not job.isdecimal():
        raise GridError(f"sbatch printed no job id but {printed[-200:]!r}")
    return [f"{job}_{index}" for index in range(count)] if count > 1 else [job]


def parse(listing: str, prefix: str) -> list[Sighting]:
    """Read squeue's columns; jobs that are not ours are passed over."""
    rows = (_cells(line) for line in listing.splitlines() if line.strip())
    return [sighting for row in rows if (sighting := _sighting(row, prefix))]


def _cells(line: str) -> dict[str, str]:
    cells, begin = {}, 0
    for name, width in _COLUMNS.items():
        cells[name] = line[begin : begin + width].strip()
        begin += width
    return cells


def _sighting(cells: dict[str, str], prefix: str) -> Sighting | None:
    named = rendering.read_name(cells["Name"], prefix)
    if named is None:
        return None
    tag, first = named
    element = cells["JobArrayID"].partition("_")[2]
    has_ended_itself = cells["State"] in slurm_states.ENDED_ITSELF
    if not element and cells["State"] == "CANCELLED" and not cells["NodeList"]:
        # What is left of an array after its waiting elements were cancelled looks like this; a
        # pilot that was cancelled alone before it started may be missing as well.
        return None
    return Sighting(
        tag=tag,
        native_id=cells["JobArrayID"],
        index=first + (int(element) if element.isdecimal() else 0),
        state=slurm_states.state_of(cells["State"], cells["Reason"]),
        reason=slurm_states.words_of(cells["State"], cells["Reason"]),
        node=cells["NodeList"],
        exit_code=_exit_code(cells["exit_code"]) if has_ended_itself else None,
    )


def _exit_code(text: str) -> int | None:
    """Read what wait(2) gave as one number, or code:signal."""
    code, colon, number = text.partition(":")
    if not code.isdecimal():
        return None
    if not colon:
        return os.waitstatus_to_exitcode(int(code))
    return -int(number) if number.isdecimal() and int(number) else int(code)
