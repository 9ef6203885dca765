"""The ten worst moments of the first trial: what was said then, and what is said now.

Noor has a server of her own and submits; Vera lends her machine.  In the first trial, in the
autumn of 2026, both were left alone with what stands under `before`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from scripts.benchmarks.harness.installation import CHECKOUT, free_port
from scripts.trials.terminal import Terminal, TrialFailed, Typed, edits, terminal

_SECRET = "abc123"
_TABLE = (
    "import gridbot, pandas, numpy; s = gridbot.connect();"
    " t = pandas.DataFrame({'x': numpy.arange(3)});"
    " print([s.submit('echo {x}', items=i, name='tables').show().jobs_total"
    " for i in (t, [{'x': numpy.int64(5)}], ({'x': b} for b in (True, None)))])"
)
_JOBS, _LEFT_JOBS = 40, 8
_POINT = "import {module}\nprint('ok')\n"
_DOT_FILE = Path("deps/.f2py_f2cmap")  # a dot-file, as many packages have


@dataclass(frozen=True, slots=True)
class Moment:
    """What somebody typed, what came of it in the first trial, and which line says it now."""

    title: str
    before: str
    typed: str  # the line begins with this
    word: str  # in what is said now

    def now(self, typed: Sequence[Typed]) -> str:
        """The line that is said now.  Raises TrialFailed if it was not said."""
        for item in reversed(typed):
            if item.line.startswith(self.typed):
                for line in item.text.splitlines():
                    if self.word in line:
                        return line.strip()
        raise TrialFailed(f"{self.title}: nobody read {self.word!r}")


MOMENTS = (
    Moment("a machine that joined runs nothing", "idle",
           "gridbot client status", "none suits"),
    Moment("a data frame of three rows is submitted", "1 job, args {'i': 'x'}, done",
           "python -c", "[3, 1, 2]"),
    Moment("the client of the only machine dies with jobs",
           "nothing is wrong: 1 host can run it; 4 of 8 jobs, 4 running, 51.2 s left",
           "gridbot bot explain", "silent"),
    Moment("a program fails wherever it runs", "done, after 120 replicas; and `bots` says: done",
           "gridbot submit --name wrong", "is held"),
    Moment("the program is mended", "retry runs the old files with the old limits",
           "gridbot bot retry", "version 2"),
    Moment("a folder of packages is an input", "refused for one dot-file, .f2py_f2cmap",
           "gridbot submit --name folder", "done"),
    Moment("the server is restored from a backup",
           "the server does not accept this client any more; next try in 17692 s",
           "gridbot client status --data second", "idle"),
    Moment("the owner of a machine needs it for an hour", "No such command 'prefs'",
           "gridbot client status --data second #", "suspended"),
    Moment("limits contradict", "413 REQUEST ENTITY TOO LARGE, when it had been computed",
           "gridbot submit --name limits", "is more than disk"),
    Moment("https is written for a plain port", "ReadTimeout after 14 s",
           "gridbot login https", "does not speak TLS"),
)  # fmt: skip


def moments(place: Path) -> Sequence[Typed]:
    """Come to each of the ten moments, and read what helps."""
    home = place / "noor"
    path = {"PATH": f"{home}/gridbot-venv/bin:/usr/local/bin:/usr/bin:/bin"}
    volunteer = terminal(place / "vera", {"GRIDBOT_HOST_ID": "vera", **path})
    with terminal(home) as noor, volunteer as vera:
        url = _begin(noor)
        _sit_idle(noor, vera, url)
        _send_tables(noor)
        bot, invitation = _lose_a_client(noor, vera)
        _ask_too_much(noor)
        _mistype(noor)
        _miss_the_server(noor, url)
        _go_on_with_another(noor, vera, bot, invitation)
        _fail_and_mend(noor, home)
        _bring_a_folder(noor, home)
        _need_the_machine(vera)
        _restore(noor, vera)
        return [*noor.typed, *vera.typed]


def compared(typed: Sequence[Typed]) -> Iterator[str]:
    """Lines of a table of the moments: before, and now."""
    for number, moment in enumerate(MOMENTS, 1):
        yield f"{number:2} {moment.title}"
        yield f"   before  {moment.before}"
        yield f"   now     {moment.now(typed)}"


def _begin(noor: Terminal) -> str:
    noor.type("python3 -m venv ~/gridbot-venv && . ~/gridbot-venv/bin/activate")
    noor.type(f"pip install --quiet '{CHECKOUT}[server,frames]'", seconds=900)
    address = f"127.0.0.1:{free_port()}"
    noor.type(f"gridbot server start --bind {address}", "to start a client")
    return f"http://{address}"


def _sit_idle(noor: Terminal, vera: Terminal, url: str) -> None:
    """A machine that may not run what waits says why, and what to do; a banned one, too."""
    noor.type("gridbot user add vera", "added vera")
    join = noor.type("gridbot token create vera --scope join").split()[0]
    noor.type("gridbot submit --range 0:200 -- echo {}", "200 jobs")
    vera.type(f"gridbot client join {url} --key {join} && gridbot client start", "running as")
    vera.repeat("gridbot client status", "idle: 1 BOT waits, and none suits", "signed")
    noor.type("gridbot host ban 1 --why 'wrong results'", "banned")
    vera.repeat("gridbot client status # banned", "banned: wrong results", "ask who runs the")
    noor.type("gridbot host unban 1")
    noor.type("gridbot bot cancel 1", "cancelled")
    vera.type("gridbot client leave --yes", "left:")


def _send_tables(noor: Terminal) -> None:
    """Rows of a frame are jobs; what cannot be rows is refused by name."""
    noor.type(f'python -c "{_TABLE}"', "[3, 1, 2]")
    strange = "import gridbot; gridbot.connect().submit('echo {}', items=[object()])"
    noor.type(f'python -c "{strange}" 2>&1 | tail -1', "items[0]", "object")
    noor.type("gridbot bot cancel 2-4", "bot 4: cancelled")


def _lose_a_client(noor: Terminal, vera: Terminal) -> tuple[str, str]:
    """The client of the only machine is killed in the midst of work.

    Returns the number of the BOT, and the invitation with which the machine joined.
    """
    pasted = noor.type("gridbot invite --uses 2").splitlines()[0]
    said = vera.type(pasted, "joined", "running as process")
    client = re.search(r"running as process (\d+)", said)
    assert client, "the line said so"
    bot = _number(noor.type(f"gridbot submit --range 0:{_LEFT_JOBS} -- sleep 2", "jobs"))
    vera.repeat("gridbot client status # at work", "running ")
    vera.type(f"kill -9 {client[1]}")
    return bot, pasted.split("'")[1]


def _go_on_with_another(noor: Terminal, vera: Terminal, bot: str, invitation: str) -> None:
    """Its jobs are called silent; another client of the same machine takes them."""
    noor.repeat(f"gridbot bot explain {bot}", "silent")
    noor.type(f"gridbot bot show {bot}", "with silent hosts")
    vera.type(f"gridbot client join '{invitation}' --data second", "joined")
    vera.type("gridbot client start --data second", "running as process")
    done = f"{_LEFT_JOBS} of {_LEFT_JOBS} jobs, done"
    noor.type(f"gridbot bot wait {bot}", done, seconds=300)


def _ask_too_much(noor: Terminal) -> None:
    """Limits that contradict are refused before anything is computed."""
    submit = "gridbot submit --range 0:9"
    limits = "gridbot submit --name limits --range 0:9 --max-output 2GB --disk 1GB"
    noor.type(f"{limits} -- true", "is more than disk", code=2)
    noor.type(f"{submit} --max-output 3GB --disk 4GB -- true", "1024 MB", code=4)
    noor.type(f"{submit} --memory 2XB -- true", "2XB", code=2)
    noor.type(f"{submit} -- ./modl {{}}", "./modl is no file here", code=2)


def _mistype(noor: Terminal) -> None:
    noor.type("gridbot bots show 99", "there is no BOT 99", code=4)
    noor.type("gridbot ls", "bot list", code=2)
    noor.type("gridbot statsu", "status", code=2)
    noor.type("gridbot bot list | head -1", "name")


def _miss_the_server(noor: Terminal, url: str) -> None:
    """What keeps it away is told in words, and not as an exception."""
    https = url.replace("http://", "https://")
    noor.type(f"gridbot login {https} --key {_SECRET}", "http://", code=3)
    noor.type(f"gridbot login {url} --key {_SECRET}", "rejects the key", code=4)
    noor.type(f"gridbot login http://127.0.0.1:9 --key {_SECRET}", "refused", code=3)
    noor.type(f"gridbot login nowhere --key {_SECRET}", "write https://", code=2)


def _fail_and_mend(noor: Terminal, home: Path) -> None:
    """What fails everywhere costs a few replicas; the mended file runs for all that is left."""
    edits(home / "point.py", _POINT.format(module="nothing_of_this_name"))
    run = f"--range 0:{_JOBS} --input point.py --wait -- python3 point.py {{}}"
    bot = _number(noor.type(f"gridbot submit --name wrong {run}", "is held", code=1))
    made = re.search(r"(\d+) made", shown := noor.type(f"gridbot bot show {bot}", "held"))
    if made is None or int(made[1]) > _JOBS:
        raise TrialFailed(f"a BOT that fails everywhere made too many replicas:\n{shown}")
    noor.type(f"gridbot bot logs {bot} --summary", "ModuleNotFoundError", "to run it here")
    edits(home / "point.py", _POINT.format(module="json"))
    noor.type(f"gridbot bot retry {bot} --input point.py --memory 600MB", "version 2")
    noor.type(f"gridbot bot wait {bot}", f"{_JOBS} of {_JOBS} jobs, done", seconds=300)


def _bring_a_folder(noor: Terminal, home: Path) -> None:
    (home / "deps").mkdir(mode=0o755)
    edits(home / _DOT_FILE, "")
    edits(home / "deps/law.py", "print('found')\n")
    what = "--input deps --env PYTHONPATH=deps -- python3 -m law"
    noor.type(f"gridbot submit --name folder --wait {what}", "1 of 1 job, done", seconds=300)


def _need_the_machine(vera: Terminal) -> None:
    """Preferences and a pause suspend at once; the doctor names what is wrong, with the cure."""
    now = time.localtime().tm_hour
    hours = f"{(now + 2) % 24:02}:00-{(now + 4) % 24:02}:00"
    vera.type(f"gridbot client prefs set hours={hours} --data second", f"hours={hours}")
    vera.repeat("gridbot client status --data second # at this hour", "suspended: hours")
    vera.type("gridbot client prefs unset hours --data second")
    vera.type("gridbot client pause 30m --data second", "paused until")
    vera.type("gridbot client resume --data second", "resumed")
    vera.repeat("gridbot client doctor --data second", "ok  client: running as process")


def _restore(noor: Terminal, vera: Terminal) -> None:
    """A server goes back to its backup; clients go on by themselves, and no number comes twice."""
    noor.type("gridbot server backup monday.tar", seconds=300)
    after = _number(noor.type("gridbot submit --range 0:2 --wait -- echo {}", "2 of 2 jobs, done"))
    noor.type("gridbot server stop", "stopped")
    noor.type("gridbot server restore monday.tar", seconds=300)
    noor.type("gridbot server start", "server ready")
    vera.repeat("gridbot client status --data second", "idle: the server has no unsent jobs")
    again = _number(noor.type("gridbot submit --range 0:2 --wait -- echo {}", "2 of 2 jobs, done"))
    if int(again) <= int(after):
        raise TrialFailed(f"after the restore a BOT has the number {again}, as one before it had")


def _number(said: str) -> str:
    found = re.search(r"bot (\d+):", said)
    assert found, "its number stands before its jobs"
    return found[1]
