"""The scan as a BOT: submitted, followed while two clients fall silent, and collected."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gridbot

from .processes import DemoFailed, Processes
from .story import progress, say
from .study import Study

POLICY = Path(__file__).with_name("linkage.ad")

_RUN_SECONDS = 900.0
_POLL_SECONDS = 0.5
_REASONS = {
    "first": "first copies",
    "quorum": "to compare answers",
    "expired": "after 20 s of silence",
    "error": "after an error",
    "tail": "extra copies in the tail",
    "retry": "for jobs tried again",
}


class Silencing(NamedTuple):
    """Which client falls silent when this part of the jobs is done, and by which signal."""

    part: float
    client: str
    number: signal.Signals
    means: str


SILENCINGS = (
    Silencing(0.20, "client1", signal.SIGKILL, "killed"),
    Silencing(0.35, "client2", signal.SIGSTOP, "frozen"),
)


def command(*arguments: str) -> list[str]:
    """Return a command line of the `gridbot` that is installed beside our Python."""
    return [str(Path(sys.executable).with_name("gridbot")), *arguments]


def link(number: int) -> str:
    """Return where a browser sees the BOT, logged in."""
    url: str = _json("open", str(number), "--print", "--json")["url"]
    return url


def submit(study: Study, items: Path) -> int:
    """Submit one job per row of `items` and return the number of the BOT."""
    files = [part for path in (study.program, *study.inputs) for part in ("--input", str(path))]
    options = ["--name", "linkage", "--items", str(items), "--policy", str(POLICY), *files]
    bot: int = _json("submit", *options, "--json", "--", *study.command)["id"]
    return bot


def follow(bot: int, processes: Processes) -> Mapping[str, Any]:
    """Wait for the BOT's end, silencing clients on the way; return its last state."""
    ahead = list(SILENCINGS)
    for shown in _states(bot, processes):
        total = shown["jobs_total"]
        done = total - shown["jobs_left"]
        progress(done, total)
        if done == total:
            break
        while ahead and done >= ahead[0].part * total:
            _silence(ahead.pop(0), done, processes)
    if ahead:
        raise DemoFailed(f"the BOT was done before {ahead[0].client} could be {ahead[0].means}")
    say("done", f"{shown['jobs_done']} of {total} jobs, {shown['jobs_failed']} failed")
    return shown


def replicas(shown: Mapping[str, Any]) -> str:
    """Say how many replicas were made, and why."""
    by_reason = shown["replicas"]["by_reason"]
    parts = [f"{n} {_REASONS.get(reason, reason)}" for reason, n in by_reason.items() if n]
    return f"{shown['replicas']['made']} made: {', '.join(parts)}"


def lines(bot: int, server: str, expected: int) -> list[str]:
    """Return each job's line; raise DemoFailed unless every job has exactly one good outcome."""
    seen: dict[int, str] = {}
    for outcome in gridbot.connect(server=server).bot(bot).results():
        if outcome.state != "done":
            raise DemoFailed(f"job {outcome.seq} failed; see `gridbot bot logs {bot}`")
        if outcome.seq in seen:
            raise DemoFailed(f"job {outcome.seq} has two outcomes")
        seen[outcome.seq] = _line(outcome.seq, outcome.args, outcome.stdout)
    if len(seen) != expected:
        raise DemoFailed(f"{len(seen)} of {expected} jobs have an outcome")
    return list(seen.values())


def _line(seq: int, args: Mapping[str, Any], stdout: str) -> str:
    """Return a job's line after checking that it answers for its own arguments."""
    line = stdout.strip()
    wanted = [f"{float(args[name]):.3f}" for name in ("theta1", "theta2")]
    if line.split()[:2] != wanted:
        raise DemoFailed(f"job {seq} was asked for {' '.join(wanted)} and printed {line!r}")
    return line


def _states(bot: int, processes: Processes) -> Iterator[Mapping[str, Any]]:
    """Yield what `bot show` says, again and again, while everything runs that should."""
    give_up_at = time.monotonic() + _RUN_SECONDS
    while time.monotonic() < give_up_at:
        processes.check()
        yield _json("bot", "show", str(bot), "--json")
        time.sleep(_POLL_SECONDS)
    raise DemoFailed(f"the BOT was not done after {_RUN_SECONDS:g} s", processes.log("server"))


def _silence(silencing: Silencing, done: int, processes: Processes) -> None:
    processes.silence(silencing.client, silencing.number)
    name = silencing.number.name
    say(silencing.means, f"{silencing.client} by {name} while it ran a job, after {done} jobs")


def _json(*arguments: str) -> Any:
    """Run a `gridbot` command that prints JSON and return that."""
    ended = subprocess.run(command(*arguments), capture_output=True, text=True)
    if ended.returncode != 0:
        raise DemoFailed(f"`{_shown(arguments)}` failed: {ended.stderr.strip()}")
    try:
        return json.loads(ended.stdout)
    except ValueError:
        raise DemoFailed(f"`{_shown(arguments)}` printed no JSON: {ended.stdout!r}") from None


def _shown(arguments: Sequence[str]) -> str:
    return f"gridbot {' '.join(arguments[:2])} …"
