"""Moments at which newcomers were lost: what they type then, and what must be said to them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from scripts.benchmarks.harness.installation import CHECKOUT, Installation, installation
from scripts.trials.terminal import Terminal, Typed, terminal

_SECRET = "abc123"
_TABLE = (
    "import gridbot, pandas, numpy; s = gridbot.connect();"
    " t = pandas.DataFrame({'x': numpy.arange(3)});"
    " print([s.submit('echo {x}', items=i).show().jobs_total"
    " for i in (t, [{'x': numpy.int64(5)}], ({'x': b} for b in (True, None)))])"
)


def moments(place: Path) -> Sequence[Typed]:
    """Be told why a machine is idle, what is wrong with a BOT, and what keeps a server away."""
    with installation() as lab, terminal(place / "noor") as person:
        person.type("python3 -m venv ~/gridbot-venv && . ~/gridbot-venv/bin/activate")
        person.type(f"pip install --quiet '{CHECKOUT}[frames]'", seconds=900)
        _sit_idle(person, lab)
        _be_banned(person, lab)
        _send_tables(person, lab)
        _ask_too_much(person)
        _mistype(person)
        _miss_the_server(person, lab)
        return person.typed


def _sit_idle(person: Terminal, lab: Installation) -> None:
    """A machine that may not run what waits says why."""
    lab.gridbot("user", "add", "noor")
    join = lab.gridbot("token", "create", "noor", "--scope", "join").split()[0]
    lab.submit("--range", "0:200", "--", "echo", "{}")
    person.type(f"gridbot client join {lab.url} --key {join}", "joined")
    person.type("gridbot client start", "running as process")
    person.repeat("gridbot client status", "idle: 1 BOT waits, and none suits", "signed")


def _be_banned(person: Terminal, lab: Installation) -> None:
    lab.gridbot("host", "ban", "1", "--why", "wrong results")
    person.repeat("gridbot client status", "banned: wrong results", "ask who runs the server")
    lab.gridbot("host", "unban", "1")


def _send_tables(person: Terminal, lab: Installation) -> None:
    """Rows of a frame are jobs; what cannot be rows is refused by name."""
    key = lab.gridbot("token", "create", "noor").split()[0]
    person.type(f"gridbot login {lab.url} --key {key}", "as noor")
    person.type(f'python -c "{_TABLE}"', "[3, 1, 2]")
    strange = "import gridbot; gridbot.connect().submit('echo {}', items=[object()])"
    person.type(f'python -c "{strange}"', "items[0]", "object", code=1)


def _ask_too_much(person: Terminal) -> None:
    """Limits that contradict are refused before anything is computed."""
    submit = "gridbot submit --range 0:9"
    person.type(f"{submit} --max-output 2GB --disk 1GB -- true", "is more than disk", code=2)
    person.type(f"{submit} --max-output 3GB --disk 4GB -- true", "1024 MB", code=4)
    person.type(f"{submit} --memory 2XB -- true", "2XB", code=2)
    person.type(f"{submit} -- ./modl {{}}", "./modl is no file here", code=2)


def _mistype(person: Terminal) -> None:
    person.type("gridbot bots show 99", "there is no BOT 99", code=4)
    person.type("gridbot ls", "bot list", code=2)
    person.type("gridbot statsu", "status", code=2)
    person.type("gridbot bot list | head -1", "name")


def _miss_the_server(person: Terminal, lab: Installation) -> None:
    """What keeps it away is told in words, and not as an exception."""
    https = lab.url.replace("http://", "https://")
    person.type(f"gridbot login {https} --key {_SECRET}", "http://", code=3)
    person.type(f"gridbot login {lab.url} --key {_SECRET}", "rejects the key", code=4)
    person.type(f"gridbot login http://127.0.0.1:9 --key {_SECRET}", "refused", code=3)
    person.type(f"gridbot login nowhere --key {_SECRET}", "write https://", code=2)
