"""A lab of three machines: one person invites them, and one of them dies in the midst of work."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from scripts.benchmarks.harness.installation import CHECKOUT, Installation, installation
from scripts.trials.terminal import Terminal, Typed, terminal

_JOBS, _JOB_SECONDS = 200, 3
_MACHINES = ("desk", "bench", "corner")


def lab(place: Path) -> Sequence[Typed]:
    """Let three machines work, lose one, and get all results."""
    with installation() as server, _machines(place) as machines:
        desk, *others = machines
        _install(desk)
        _log_in(desk, server)
        _invite(desk, others)
        _lose_one(desk, others[-1])
        typed = [item for machine in machines for item in machine.typed]
        return typed


@contextmanager
def _machines(place: Path) -> Iterator[list[Terminal]]:
    """A terminal at each; they share the lab's software folder, which is at the desk."""
    software = place / _MACHINES[0] / "gridbot-venv/bin"
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                terminal(
                    place / name,
                    {"GRIDBOT_HOST_ID": name, "PATH": f"{software}:/usr/local/bin:/usr/bin:/bin"},
                )
            )
            for name in _MACHINES
        ]


def _install(desk: Terminal) -> None:
    desk.type("python3 -m venv ~/gridbot-venv && . ~/gridbot-venv/bin/activate")
    desk.type(f"pip install --quiet {CHECKOUT}", seconds=600)


def _log_in(desk: Terminal, server: Installation) -> None:
    server.gridbot("user", "add", "ada")
    key = server.gridbot("token", "create", "ada").split()[0]
    desk.type(f"gridbot login {server.url} --key {key}", "as ada")


def _invite(desk: Terminal, others: Sequence[Terminal]) -> None:
    """One line, pasted on each machine."""
    pasted = desk.type(f"gridbot invite --uses {len(_MACHINES)}").splitlines()[0]
    for machine in (desk, *others):
        machine.type(pasted, "joined", "as ada", "running as process")
    desk.repeat("gridbot host list | grep -c idle", str(len(_MACHINES)))


def _lose_one(desk: Terminal, lost: Terminal) -> None:
    """Its jobs are not called running for long, and run elsewhere."""
    said = desk.type(f"gridbot submit --range 0:{_JOBS} -- sleep {_JOB_SECONDS}", "jobs")
    found = re.search(r"bot (\d+):", said)
    assert found, "its number stands before its jobs"
    bot = found[1]
    lost.repeat("gridbot client status", "running 2")
    client = re.search(r"running as process (\d+)", "\n".join(item.text for item in lost.typed))
    assert client, "the invitation's line said so"
    lost.type(f"kill -9 {client[1]}")
    number = desk.repeat("gridbot host list | grep silent", "silent", seconds=200).split()[0]
    desk.repeat(f"gridbot bot show {bot}", ", silent ")  # copies, made for this reason
    desk.type(f"gridbot host forget {number}", f"host {number} is forgotten")
    desk.type(f"gridbot bot wait {bot}", f"{_JOBS} of {_JOBS} jobs, done", seconds=600)
    lost.type("gridbot client start", "running as process")
    desk.repeat("gridbot host list | grep -c idle", str(len(_MACHINES)))
