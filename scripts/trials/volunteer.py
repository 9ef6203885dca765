"""A volunteer: lends a machine, says when it may work, looks after it, and leaves."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from scripts.benchmarks.harness.installation import CHECKOUT, Installation, installation
from scripts.trials.terminal import Terminal, TrialFailed, Typed, terminal

_JOBS = 4


def volunteer(place: Path) -> Sequence[Typed]:
    """Give another person's machine to the lab's server, for some days, in a few minutes."""
    with installation() as lab, terminal(place / "vera") as person:
        _install(person)
        _join(person, lab)
        _work(person, lab)
        _prefer(person, lab)
        _look_after(person)
        _leave(person)
        return person.typed


def _install(person: Terminal) -> None:
    person.type("python3 -m venv ~/gridbot-venv && . ~/gridbot-venv/bin/activate")
    person.type(f"pip install --quiet {CHECKOUT}", seconds=600)


def _join(person: Terminal, lab: Installation) -> None:
    """One pasted line, and a look at whether it worked."""
    person.type("gridbot client status", "not joined", code=3)
    pasted = lab.gridbot("invite").splitlines()[0]
    person.type(pasted, f"joined {lab.url}", "running as process")
    person.repeat("gridbot client status", "idle: the server has no unsent jobs")


def _work(person: Terminal, lab: Installation) -> None:
    lab.submit("--range", f"0:{_JOBS}", "--", "sh", "-c", "echo {}")
    person.repeat("gridbot client status", f"done today: {_JOBS} jobs")


def _prefer(person: Terminal, lab: Installation) -> None:
    """Hours that forbid work now suspend what runs; what contradicts is refused."""
    bot = lab.submit("--range", "0:1", "--", "sleep", "600")
    person.repeat("gridbot client status", "running 1")
    now = time.localtime().tm_hour
    hours = f"{(now + 2) % 24:02}:00-{(now + 4) % 24:02}:00"
    person.type(f"gridbot client prefs set hours={hours} on-battery=no", f"hours={hours}")
    person.repeat("gridbot client status", "suspended: hours: not at", "1 in memory")
    person.type("gridbot client prefs set cpus=1 cpu-share=50", "contradicts", code=2)
    person.type("gridbot client prefs show", f"hours={hours}", "on-battery=no")
    person.type("gridbot client prefs unset hours")
    person.repeat("gridbot client status", "running 1")
    person.type("gridbot client pause 30m", "paused until")
    person.repeat("gridbot client status", "suspended: paused until")
    person.type("gridbot client resume", "resumed")
    person.repeat("gridbot client status", "running 1")
    lab.gridbot("bot", "cancel", str(bot))


def _look_after(person: Terminal) -> None:
    """Each line of the doctor is ok, or says what to do; so does the attempt to make a service."""
    person.begin("gridbot client doctor")
    for line in person.ended(code=None).splitlines():
        if not (line.startswith("ok ") or (line.startswith("BAD ") and ";" in line)):
            raise TrialFailed(f"the doctor says no cure: {line}")
    person.begin("gridbot client install --user")
    if "runs, from" not in (said := person.ended(code=None)) and "client start" not in said:
        raise TrialFailed(f"without a service, it does not say what to do: {said}")
    person.repeat("gridbot client status", "idle")
    person.type("gridbot client stop", "stopped")
    person.type("gridbot client status", "the client is not running; to start it", code=3)
    person.type("gridbot client start", "running as process")


def _leave(person: Terminal) -> None:
    person.begin("gridbot client leave")
    person.asked("and remove", "y")
    person.ended("left:", "took back")
    person.type("ls ~/.local/share/gridbot/client", "No such file", code=2)
