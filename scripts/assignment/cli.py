"""The command line of `scripts/nug`."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from gridbot import GridbotError, connect
from scripts.assignment.master import SearchMaster
from scripts.assignment.problem import BadProblem, Problem, descent, parse
from scripts.benchmarks.harness.installation import BenchFailed, Installation, installation

_DATA = Path(__file__).parent / "data"
_DEADLINE_SLICES, _DEADLINE_SECONDS = 3, 20  # after which a silent host's nodes go elsewhere


@dataclass
class _Hosts:
    """Clients of one slot each, and the time that each has been there."""

    place: Installation
    began: dict[str, float] = field(default_factory=dict)
    ended: dict[str, float] = field(default_factory=dict)

    def start(self, count: int) -> None:
        for number in range(count):
            name = f"host-{number}"
            self.place.start_client(name, "--cpus", "1", "--allow-read", sys.prefix)
            self.began[name] = time.time()

    def kill(self) -> None:
        """Kill one and what it runs; the last one comes back."""
        name = next(name for name in self.began if name not in self.ended)
        self.place.kill_client(name)
        if len(self.ended) + 1 < len(self.began):
            self.ended[name] = time.time()
        else:
            self.place.start_client(name, "--cpus", "1", "--allow-read", sys.prefix)
        click.echo(f"killed {name}", err=True)

    def slot_seconds(self, began: float, ended: float) -> float:
        """Time of all slots between two moments."""
        return sum(
            max(0.0, min(ended, self.ended.get(name, ended)) - max(began, since))
            for name, since in self.began.items()
        )


@click.command(context_settings={"show_default": True})
@click.argument("instance")
@click.option(
    "--clients",
    type=click.IntRange(0),
    default=2,
    help="Clients of one slot each, of a server of its own; 0: your server and its hosts.",
)
@click.option(
    "--slice",
    "seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=10.0,
    help="Seconds after which a task returns its open nodes.",
)
@click.option(
    "--width", type=click.IntRange(1), help="Tasks kept at the server.  [four times the clients]"
)
@click.option(
    "--start", default="heuristic", help="Cost to be better than: a number, heuristic, or none."
)
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    help="State of the search, which the same command continues.  [a temporary one]",
)
@click.option(
    "--kill-clients",
    type=click.IntRange(0),
    default=0,
    help="Kill as many clients on the way; the last one is started again.",
)
@click.option(
    "--kill-master",
    type=click.IntRange(0),
    default=0,
    help="Kill the master with SIGKILL as many times, and start it again.",
)
@click.option(
    "--told-every",
    type=click.FloatRange(0),
    default=1.0,
    show_default=True,
    help="Seconds between lines of progress, at least.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document at the end.")
def nug(
    instance: str, clients: int, seconds: float, width: int | None, start: str, folder: Path | None,
    kill_clients: int, kill_master: int, told_every: float, as_json: bool,
) -> None:  # fmt: skip
    """Solve a quadratic assignment problem by branch and bound on many hosts, with proof.

    INSTANCE is nug12, nug14, nug15, nug20 or nug30, or a file in QAPLIB's format.  The bound is
    Gilmore's and Lawler's.  The work list is that of a gridbot.mw master, whose tasks are bundles
    of open nodes.  Progress goes to standard error.

    With a start that is the optimum, as the heuristic finds it in nug12 to nug20, the tree does
    not depend on the number of clients, nor on what was killed: `nodes` counts its nodes, and
    `digest` is a sum over them, so that two runs can be compared.

    \b
      scripts/nug nug12 --slice 0.1 --clients 4 --kill-clients 2
      scripts/nug nug14 --kill-master 2
    """
    try:
        problem = parse(_path(instance).read_text())
    except (BadProblem, OSError) as error:
        raise click.BadParameter(str(error), param_hint="INSTANCE") from None
    with ExitStack() as stack:
        if folder is None:
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="gridbot-nug-")))
        try:
            if clients:
                options = ["--slice", str(seconds), "--start", start]
                options += ["--width", str(width or 4 * clients)]
                options += ["--folder", str(folder.absolute())]
                # What is killed is chosen by lines of progress: one for each task, then.
                is_told_all = kill_clients or kill_master
                options += ["--told-every", "0" if is_told_all else str(told_every)]
                told = _on_own_hosts(instance, options, clients, kill_clients, kill_master)
            else:
                told = _search(problem, folder, seconds, width or 64, start, told_every)
        except (GridbotError, BenchFailed) as error:
            sys.exit(f"Error: {error}")
    told = {"instance": Path(instance).stem, **told}
    click.echo(json.dumps(told) if as_json else _text(told))


def _path(instance: str) -> Path:
    own = _DATA / f"{instance}.dat"
    return own if own.exists() else Path(instance)


def _search(
    problem: Problem, folder: Path, seconds: float, width: int, start: str, told_every: float
) -> dict[str, Any]:
    """Search with the hosts of the usual server."""
    cost, places = _start(problem, start)
    with connect() as session, SearchMaster(
        problem, folder, session, start=cost, places=places, seconds=seconds, width=width,
        told=_Progress(told_every), name="nug",
        deadline=_DEADLINE_SLICES * seconds + _DEADLINE_SECONDS,
    ) as master:  # fmt: skip
        state = master.run()
        statistics = master.statistics
        return {
            "cost": state["best"],
            "places": state["places"],
            "nodes": state["nodes"],
            "digest": state["digest"],
            "tasks": statistics.completed,
            "dropped": statistics.dropped,
            "failed": statistics.failed,
            "refused": state.get("refused", 0),
            "task_seconds": statistics.task_seconds,
            "job_seconds": statistics.job_seconds,
            "seconds": statistics.elapsed,
            "began_at": statistics.began_at,
            "ended_at": statistics.ended_at,
        }


def _start(problem: Problem, start: str) -> tuple[int, Sequence[int] | None]:
    if start == "heuristic":
        places = descent(problem)
        return problem.cost(places), places
    if start == "none":
        return problem.cost(range(problem.size)) + problem.step, None
    try:
        return int(start), None
    except ValueError:
        raise click.BadParameter(f"expected a number, heuristic or none, got {start!r}",
                                 param_hint="--start") from None  # fmt: skip


class _Progress:
    """Lines on standard error, at least `every` seconds apart."""

    def __init__(self, every: float) -> None:
        self._every, self._next = every, 0.0

    def __call__(self, master: SearchMaster) -> None:
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + self._every
        state, done = master.state, master.statistics.completed
        tasks = f"{master.listed} tasks listed, {master.sent} at the server"
        click.echo(
            f"{state['nodes']} nodes in {done} tasks; {tasks}; best {state['best']}", err=True
        )


def _on_own_hosts(
    instance: str, options: Sequence[str], clients: int, kill_clients: int, kill_master: int
) -> dict[str, Any]:
    """Search with a server and clients of our own; the master is a process that can be killed."""
    with installation() as place:
        hosts = _Hosts(place)
        hosts.start(clients)
        command = [sys.executable, sys.argv[0], instance, "--clients", "0", "--json", *options]
        while True:
            with subprocess.Popen(
                command,
                env=place.environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            ) as master:
                for number, line in enumerate(_lines(master), 1):
                    click.echo(line, err=True, nl=False)
                    if kill_clients and number % 2 == 0:
                        kill_clients -= 1
                        hosts.kill()
                    elif kill_master and number == 2:
                        kill_master -= 1
                        master.send_signal(signal.SIGKILL)
                        click.echo("killed the master", err=True)
                assert master.stdout
                said = master.stdout.read()
            if master.returncode != -signal.SIGKILL:
                break
        if master.returncode:
            raise BenchFailed("the search failed; the lines above say why")
        if kill_clients or kill_master:
            left = f"{kill_clients} clients and {kill_master} times the master"
            click.echo(f"it ended before these were killed: {left}", err=True)
        told: dict[str, Any] = json.loads(said)
        slots = hosts.slot_seconds(told["began_at"], told["ended_at"])
        return {**told, "slot_seconds": slots, "efficiency": told["task_seconds"] / slots}


def _lines(master: subprocess.Popen[str]) -> Iterator[str]:
    assert master.stderr
    yield from master.stderr


def _text(told: dict[str, Any]) -> str:
    lines = [
        f"{told['instance']}: {told['cost']} is the least cost, proven with {told['nodes']} nodes"
    ]
    for name in ("places", "digest", "tasks", "dropped", "failed", "refused"):
        lines.append(f"  {name:12} {told[name]}")
    for name in ("seconds", "task_seconds", "slot_seconds", "efficiency"):
        if name in told:
            lines.append(f"  {name:12} {told[name]:.2f}")
    return "\n".join(lines)
