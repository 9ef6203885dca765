"""What may happen to a cluster while a BOT runs; nothing of it is told to the overlay."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from .place import Run

OUTAGE_SECONDS = 60.0
BLACK_HOLE = "n3"
# It breaks what the BOT's jobs need, and nothing that the pilot does.
_BLACK_HOLE_SETUP = f'if [ "$SLURMD_NODENAME" = {BLACK_HOLE} ]; then export PATH=/nowhere; fi'


@dataclass(frozen=True)
class Scenario:
    """One trial: how its grid is configured, and what happens in mid-run."""

    what: str
    happens: Callable[[Run], None] = lambda _: None
    options: tuple[str, ...] = ()  # of `gridbot overlay add`
    faults: tuple[str, ...] = ()  # of sbatch, see tests/fakes/bin/lossy_sbatch
    least_jobs_seconds: float = 0.0  # jobs last so long at least, for the run to outlast it all
    most_burnt: float | None = None  # failed replicas, as a share of the BOT's jobs
    most_twice: int | None = None  # jobs that may be done more than once
    most_hours: float | None = None  # pilot-hours, as a multiple of the jobs' own


def _nodes_fail(run: Run) -> None:
    run.reach(0.2)
    run.say("n2 is set down")
    run.cluster.set_node("n2", "down")
    run.reach(0.4)
    run.say("the slurmd of n3 is killed")
    run.cluster.kill_node("n3")
    run.reach(0.7)
    run.say("both nodes come back")
    run.cluster.set_node("n2", "resume")
    run.cluster.start_node("n3")


def _others_preempt(run: Run) -> None:
    for share in (0.2, 0.5):
        run.reach(share)
        run.say("an urgent job takes two nodes for 10 s")
        urgent = ("--partition=urgent", "--nodes=2", "--ntasks-per-node=2", "--exclusive")
        run.cluster.run("sbatch", *urgent, "--output=/dev/null", "--wrap", "sleep 10")


def _controller_stops(run: Run) -> None:
    run.reach(0.2)
    run.say(f"slurmctld is stopped for {OUTAGE_SECONDS:.0f} s")
    run.cluster.stop_controller()
    time.sleep(OUTAGE_SECONDS)
    run.say(f"slurmctld is started again; {run.finished()} of {run.jobs} jobs are done")
    run.cluster.start_controller()


def _all_is_killed(run: Run) -> None:
    run.reach(0.3)
    run.say("server and constructor are killed")
    run.overlay.end(signal.SIGKILL)
    run.server.crash()
    run.server.start()
    run.overlay.start()
    run.say("both are started again")


def _constructor_dies(run: Run) -> None:
    run.reach(0.3)
    run.say("the constructor is killed, and started when the pilots have left")
    run.overlay.end(signal.SIGKILL)
    run.reach(1.0)
    run.overlay.start()


SCENARIOS: Mapping[str, Scenario] = MappingProxyType({
    "plain": Scenario("nothing goes wrong"),
    "nodes": Scenario("a node is set down, the slurmd of another is killed", _nodes_fail),
    "requeue": Scenario(
        "others' jobs preempt pilots, which Slurm queues again",
        _others_preempt, ("--directive=--requeue",),
    ),
    "cancel": Scenario(
        "others' jobs preempt pilots, which Slurm cancels",
        _others_preempt, ("--directive=--partition=cancel",),
    ),
    "controller": Scenario(
        "slurmctld is away for 60 s", _controller_stops, least_jobs_seconds=2.0
    ),
    "walltime": Scenario(
        "pilots live for one minute, and the BOT for longer",
        options=("--walltime", "60s", "--max-running", "4"),
    ),
    "reply": Scenario(
        "sbatch submits, but its reply is lost in three ways",
        options=("--max-queued", "2"), faults=("error", "away", "silence"),
    ),
    "black-hole": Scenario(
        f"every job fails at once on {BLACK_HOLE}",
        options=("--setup", _BLACK_HOLE_SETUP), most_burnt=0.01,
    ),
    "kill": Scenario(
        "server and constructor are killed with kill -9", _all_is_killed, most_twice=0
    ),
    "constructor": Scenario("the constructor is killed, and started late", _constructor_dies),
})  # fmt: skip
