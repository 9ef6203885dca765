"""A scientist: own program with modules of its own, a table, failures, a correction, a frame."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from scripts.benchmarks.harness.installation import CHECKOUT, free_port
from scripts.trials.terminal import Terminal, TrialFailed, Typed, edits, terminal

_ROWS, _WRONG = 100, 5  # of the table, and those at which the first program fails
_MODEL = """\
import json, sys
from laws import energy

theta = float(sys.argv[1])
json.dump({{"y": {value}}}, open("fit.json", "w"))
"""
_FIRST = "energy(theta) / (theta % 20)"
_MENDED = "energy(theta) / (theta % 20 or 20)"
_LAWS = "def energy(theta):\n    return theta * theta\n"
_FRAME = (
    "import gridbot; frame = gridbot.connect().bot({bot}).frame('fit.json');"
    " print(len(frame), 'rows', sorted(frame.columns))"
)


def scientist(place: Path) -> Sequence[Typed]:
    """Run a table of parameters on the own machine, mend what fails, and take the results."""
    with terminal(place / "sam") as person:
        home = place / "sam"
        _install(person)
        _begin(person, home)
        bot = _fail(person)
        _mend(person, home, bot)
        _take(person, bot)
        _mistype(person)
        _end(person)
        return person.typed


def _install(person: Terminal) -> None:
    person.type("python3 -m venv ~/gridbot-venv && . ~/gridbot-venv/bin/activate")
    person.type(f"pip install --quiet '{CHECKOUT}[server,frames]'", seconds=900)


def _begin(person: Terminal, home: Path) -> None:
    """A server and a client; the files are there already."""
    person.type(f"gridbot server start --bind 127.0.0.1:{free_port()}", "to start a client")
    person.type("gridbot client start", "running as process")
    edits(home / "model.py", _MODEL.format(value=_FIRST))
    (home / "lib").mkdir(mode=0o755)
    edits(home / "lib/laws.py", _LAWS)
    edits(home / "lib/.cache", "")  # such as many packages have
    rows = "".join(f"{number}\n" for number in range(_ROWS))
    edits(home / "runs.csv", f"theta\n{rows}")


def _fail(person: Terminal) -> str:
    """A few rows fail for good; what they have in common is told, and repeated here."""
    person.type("gridbot submit --range 0:9 -- ./modl {}", "./modl is no file here", code=2)
    said = person.type(
        "gridbot submit --items runs.csv --input model.py --input lib --env PYTHONPATH=lib"
        " --output fit.json --attempts 1 --wait -- python3 model.py {theta}",
        f"{_ROWS} jobs", f"{_WRONG} of {_ROWS} jobs failed", "--summary",
        code=1, seconds=600,
    )  # fmt: skip
    found = re.search(r"bot (\d+):", said)
    assert found, "its number stands before its jobs"
    bot = found[1]
    said = person.type(f"gridbot bot logs {bot} --summary", "ZeroDivisionError", "to run it here")
    (line,) = [item for item in said.splitlines() if "to run it here: " in item]
    repeated = line.partition("to run it here: ")[2]
    person.type(repeated, "ZeroDivisionError", code=1)
    return bot


def _mend(person: Terminal, home: Path, bot: str) -> None:
    """The failed rows run the mended program; the others stay as they are."""
    edits(home / "model.py", _MODEL.format(value=_MENDED))
    person.type(
        f"gridbot bot retry {bot} --input model.py",
        f"retrying {_WRONG} failed jobs with version 2",
    )
    person.type(f"gridbot bot wait {bot}", f"{_ROWS} of {_ROWS} jobs, done", seconds=300)


def _take(person: Terminal, bot: str) -> None:
    person.type(f"gridbot bot results {bot} --to out", f"{_ROWS} new results")
    person.type("head -1 out/results.csv && ls out | wc -l", str(_ROWS + 1))
    person.type(f'python -c "{_FRAME.format(bot=bot)}"', f"{_ROWS} rows", "'theta'", "'y'")


def _mistype(person: Terminal) -> None:
    """A program that can run nowhere burns a few replicas, not thousands."""
    said = person.type(
        "gridbot submit --range 0:5000 --wait -- python3 absent.py {}",
        "absent.py is neither a file here nor an input", "is held", code=1,
    )  # fmt: skip
    found = re.search(r"bot (\d+) is held", said)
    assert found, "it says which"
    failed = person.type(f"gridbot bot show {found[1]}", "held")
    made = re.search(r"(\d+) made", failed)
    if made is None or int(made[1]) > 100:
        raise TrialFailed(f"a BOT that cannot run made too many replicas:\n{failed}")
    person.type(f"gridbot bot cancel {found[1]}", "cancelled")


def _end(person: Terminal) -> None:
    person.type("gridbot status", "version", "client  idle", "none is running")
    person.type("gridbot client stop && gridbot server stop", "stopped")
