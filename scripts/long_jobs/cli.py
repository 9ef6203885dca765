"""The command line of `scripts/long-jobs`."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from threading import Timer
from typing import Any

import click
from tests.system.batch_systems import open_folder, slurm
from tests.system.deployment import NO_COPIES, Deployment, deployment, eventually
from tests.system.overlays import overlay
from tests.system.relay import Relay, relay

from gridbot_server.storage import invariants

from .program import Program, submitted

_HOUR = 3600.0
_PREEMPT_SECONDS = 100.0  # between two jobs that preempt a pilot
_CUT_SECONDS, _BACK_OFF_SECONDS = 60.0, 60.0


def on_slurm(server: Deployment, steps: int) -> dict[str, Any]:
    """Pilots of a minute on a Slurm cluster of one node, which urgent jobs preempt at times."""
    with (
        open_folder("slurm") as folder,
        slurm(folder, nodes=1, cpus=1) as cluster,
        overlay(server) as pilots,
    ):
        pilots.add_slurm("minute", cluster, "--walltime", "1m", "--max-running", "1")
        program = submitted(server, steps, "10s", "slurm")
        pilots.start()
        preempted, next_at = 0, time.monotonic() + _PREEMPT_SECONDS
        while not server.outcomes(program.bot):
            time.sleep(1.0)
            if time.monotonic() >= next_at:
                cluster.run("sbatch", "-p", "urgent", "-n", "1", "--wrap", "sleep 5")
                preempted += 1
                next_at = time.monotonic() + _PREEMPT_SECONDS
        return {**program.cost().document(), "urgent_jobs": preempted,
                "pilots": len(pilots.pilots("minute"))}  # fmt: skip


def on_laptop(server: Deployment, steps: int) -> dict[str, Any]:
    """A client that is stopped every 40 s, and started again at once."""
    program, stops = submitted(server, steps, "10s", "laptop"), 0
    while not server.outcomes(program.bot):
        server.client("laptop", "--cpus", "1")
        until = time.monotonic() + 40.0
        while time.monotonic() < until and not server.outcomes(program.bot):
            time.sleep(0.5)
        if not server.outcomes(program.bot):
            server.client_ends("laptop", signal.SIGTERM)
            server.kill_client("laptop")
            stops += 1
    return {**program.cost().document(), "stops": stops}


def on_three_hosts(server: Deployment, steps: int) -> dict[str, Any]:
    """Three hosts one after the other; the first leaves, the second dies."""
    program = submitted(server, steps, "10s", "hosts")
    server.client("first", "--cpus", "1")
    _reaches(program, steps // 3)
    server.run("client", "leave", "--yes", "--data", str(server.folder / "first"))
    server.kill_client("first")
    server.client("second", "--cpus", "1")
    _reaches(program, 2 * steps // 3)
    before = _acknowledged(program)
    server.kill_client("second")
    server.run("client", "leave", "--yes", "--data", str(server.folder / "second"))
    noted = program.lines()
    server.client("third", "--cpus", "1")
    server.wait(program.bot, _HOUR)
    return {**program.cost().document(), "checkpoints_at_death": before,
            "died_after": noted[-1][2], "third_began_with": program.lines()[len(noted)][2],
            }  # fmt: skip


def followed(server: Deployment, steps: int) -> dict[str, Any]:
    """Seconds by which who follows is late, and what a cut of the network for 60 s does."""
    key = str(server.settings.operator_key_path)
    script = "import time\nfor n in range({}): print(n, time.time(), flush=True); time.sleep(.1)"
    numbers, late, text = list[int](), list[float](), ""
    with relay(server.port) as network, server.session() as session:
        server.client("far", "--cpus", "1", "--server", network.url, "--key-file", key)
        program = script.format(steps * 10)
        bot = server.submit("--", "python3", "-c", program, policy=NO_COPIES)
        cut = _Cut(network)
        for printed in session.bot(bot).follow_output(0):
            now = time.time()
            if printed.stream != "stdout":
                continue
            whole, _, text = (text + printed.content.decode()).rpartition("\n")
            for line in whole.splitlines():
                number, at = line.split()
                numbers.append(int(number))
                # Not of what was printed before somebody followed, and in the cut.
                if number != "0" and not cut.concerns(float(at)):
                    late.append(now - float(at))
            if len(numbers) > steps * 3:
                cut.begin()
    late = sorted(late[20:])
    return {
        "lines": len(numbers), "complete_and_in_order": numbers == list(range(steps * 10)),
        "cut_seconds": round(cut.ended - cut.began), "late_median": round(late[len(late) // 2], 2),
        "late_95%": round(late[int(len(late) * 0.95)], 2), "late_most": round(late[-1], 2),
    }  # fmt: skip


class _Cut:
    """A minute without network, once."""

    def __init__(self, network: Relay) -> None:
        self._network = network
        self.began = self.ended = 0.0

    def begin(self) -> None:
        """Cut it, unless it was."""
        if not self.began:
            self.began, self._network.is_open = time.time(), False
            Timer(_CUT_SECONDS, self._end).start()

    def concerns(self, at: float) -> bool:
        """Whether it keeps what was printed then; afterwards the client backs off for a while."""
        return self.began > 0 and self.began - 5 < at < (self.ended or at + 1) + _BACK_OFF_SECONDS

    def _end(self) -> None:
        self._network.is_open, self.ended = True, time.time()


def _reaches(program: Program, step: int) -> None:
    eventually(lambda: any(line[2] >= step for line in program.lines()), _HOUR, f"step {step}")


def _acknowledged(program: Program) -> int:
    """The number of the newest checkpoint at the server."""
    query = "SELECT coalesce(max(number), 0) FROM checkpoint WHERE bot = %s"
    [(number,)] = program.server.rows(query, program.bot)
    return int(number)


_MEASUREMENTS: Mapping[str, Callable[[Deployment, int], dict[str, Any]]] = {
    "slurm": on_slurm,
    "laptop": on_laptop,
    "hosts": on_three_hosts,
    "follow": followed,
}
_SHOWN = "\n".join(f"{name:<8} {call.__doc__}" for name, call in _MEASUREMENTS.items())


@click.command(epilog=f"\b\n{_SHOWN}")
@click.argument("names", metavar="[NAME]...", type=click.Choice([*_MEASUREMENTS]), nargs=-1)
@click.option("--steps", type=click.IntRange(20), default=300, show_default=True,
              help="Steps of the program, of a second each.")  # fmt: skip
def command(names: Sequence[str], steps: int) -> None:
    """Run a long program on machines that do not stay, or follow one, and print a line of JSON.

    ratio: CPU time of all parts of the program by that of a run without interruption; again: steps
    that were done once more; oldest: the most of them after one interruption. `slurm` needs Slurm's
    programs and root or Slurm's own user; all but `follow` take some minutes more than the program.
    """
    for name in names or _MEASUREMENTS:
        with deployment() as server:
            server.start()
            found = _MEASUREMENTS[name](server, steps)
            with server.database() as conn:
                found["invariants"] = invariants.check(conn, idle=False)
        click.echo(json.dumps({"measured": name, **found}))
