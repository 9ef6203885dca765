"""Looks for what keeps a client from work, and says what to do about each thing found."""

from __future__ import annotations

import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.request import getproxies, proxy_bypass

from gridbot_client.installation import release, update_advice
from gridbot_client.net.discovery import NoServer, find_server
from gridbot_client.net.transport import RequestRefused, Transport, TransportError
from gridbot_client.pilot import node_check
from gridbot_client.preferences.look import idle_minutes
from gridbot_client.preferences.watch import clock, preferred
from gridbot_client.protocol.preferences import OwnerPreferences, PreferenceError
from gridbot_client.standing import Prospects, prospects_of
from gridbot_client.storage import Folder, Identity
from gridbot_client.walls.cells import CGROUP, NAMESPACES, NONE
from gridbot_client.work.confinement import WallOptions, raised

LEAST_PYTHON, LEAST_LINUX = (3, 11), (5, 3)
# Signatures are valid for a time; a clock that is further off takes them for early or late.
MOST_CLOCK_ERROR_SECONDS = 60.0

_OTHER_FOLDER = "name a folder that you may write: --data DIR"
_WALLS = {
    NONE: "work of others needs Linux 5.13 with Landlock, or user namespaces; in a container, allow"
    " them (`--security-opt seccomp=unconfined`)",
    1: "allow user namespaces: sysctl kernel.unprivileged_userns_clone=1, and on Ubuntu"
    " kernel.apparmor_restrict_unprivileged_userns=0",
    NAMESPACES: "run the client where it may make cgroups: as root, or as a systemd service with"
    " Delegate=yes",
}


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What one look found."""

    subject: str
    is_ok: bool
    text: str
    cure: str = ""  # what to do, or what would be better still

    def line(self) -> str:
        """A line for people."""
        cure = f"; {self.cure}" if self.cure else ""
        return f"{'ok ' if self.is_ok else 'BAD'} {self.subject}: {self.text}{cure}"

    def json(self) -> dict[str, Any]:
        """Document for --json."""
        return asdict(self)


def examine(
    folder: Folder, walls: WallOptions, key_file: Path | None = None
) -> Iterator[Diagnosis]:
    """Look at one thing after the other.  Changes nothing; tells the server nothing new."""
    yield _python()
    yield _kernel()
    yield from _place(folder, walls)
    identity = folder.identity()
    url = identity.url if identity else _server(key_file)
    if url is None:
        yield Diagnosis(
            "server", False, "none is known", "to join one: gridbot client join URL --key KEY"
        )
    else:
        yield from _network(url, identity)
    yield _release(prospects_of(folder))
    yield from _preferences(folder)
    yield _process(folder)
    if obstacle := folder.obstacle():
        yield Diagnosis(
            "policy", False, f"the machine's own policy keeps it from work: {obstacle.strip()}",
            "to remove it: gridbot client run --requirements ''",
        )  # fmt: skip


def examine_node(folder: Folder, url: str) -> Iterator[Diagnosis]:
    """Look at a cluster's node for pilots of the server at `url`; nothing has joined it."""
    yield _python()
    yield _kernel()
    yield from _place(folder, WallOptions(is_pilot=True))
    yield from _reach(url, None)


def _python() -> Diagnosis:
    found = sys.version_info[:2]
    is_ok = found >= LEAST_PYTHON
    wanted = ".".join(map(str, LEAST_PYTHON))
    return Diagnosis(
        "Python", is_ok, platform.python_version(), "" if is_ok else f"install Python {wanted}"
    )


def _kernel() -> Diagnosis:
    name = f"{platform.system()} {platform.release()}"
    if sys.platform != "linux":
        return Diagnosis("system", False, f"{name}: there are no walls for work of others here",
                       "only your own BOTs run on it; the rest needs Linux")  # fmt: skip
    numbers = platform.release().split("-")[0].split(".")[:2]
    version = tuple(int(number) for number in numbers if number.isdigit())
    wanted = ".".join(map(str, LEAST_LINUX))
    is_ok = version >= LEAST_LINUX
    return Diagnosis("system", is_ok, name, "" if is_ok else f"Linux {wanted} or newer is needed")


def _place(folder: Folder, walls: WallOptions) -> Iterator[Diagnosis]:
    """The client's folder, the machine's memory, a job whose answer is known, and its walls."""
    try:
        folder.make()
    except OSError as error:
        yield Diagnosis("folder", False, f"{folder.path}: {error.strerror}",
                      _OTHER_FOLDER)  # fmt: skip
        return
    looks: dict[str, tuple[Callable[[], str], str, str]] = {
        "disk": (
            lambda: node_check.disk(folder.path), "enough is free",
            "make room, or name another: --data DIR",
        ),
        "memory": (node_check.memory, "enough is free", "end what takes it"),
        "test job": (
            lambda: node_check.known_answer(folder.path), "gives the right answer",
            f"{folder.path} must allow programs to run and files to be written",
        ),
    }  # fmt: skip
    for subject, (look, fine, cure) in looks.items():
        trouble = look()
        yield Diagnosis(subject, not trouble, trouble or fine, cure if trouble else "")
    yield _walls(folder, walls)


def _walls(folder: Folder, options: WallOptions) -> Diagnosis:
    """What tasks are held by here, proven anew in a place of its own."""
    try:
        with (
            tempfile.TemporaryDirectory(dir=folder.path, prefix="check.") as place,
            raised(Path(place), options) as (_, sandbox),
        ):
            level, text, obstacle = sandbox.level, sandbox.text, sandbox.obstacle
    except OSError as error:
        return Diagnosis("sandbox", False, error.strerror or str(error), _OTHER_FOLDER)
    lacks = obstacle.removeprefix(f"level {level + 1}: ")
    cure = "" if level >= CGROUP else f"for level {level + 1} ({lacks}): {_WALLS[level]}"
    # A pilot runs the BOTs of those whom its operator named: walls are good to have there.
    is_ok = options.is_pilot or level >= NAMESPACES
    return Diagnosis("sandbox", is_ok, f"level {level}, {text}", cure)


def _server(key_file: Path | None) -> str | None:
    try:
        return find_server(None, key_file).url
    except NoServer:
        return None


def _network(url: str, identity: Identity | None) -> Iterator[Diagnosis]:
    """The way to the server, and whether a client has joined it."""
    yield from _reach(url, identity)
    if identity is None:
        yield Diagnosis("joined", False, "not yet", f"gridbot client join {url} --key KEY")


def _reach(url: str, identity: Identity | None) -> Iterator[Diagnosis]:
    """The way to the server, its clock, and whether it still knows the client."""
    if proxy := _proxy(url):
        yield Diagnosis("proxy", True, f"requests go through {proxy}",
                      "the environment says so (https_proxy, no_proxy)")  # fmt: skip
    try:
        with Transport(url, identity.token if identity else "") as transport:
            clock = transport.clock()
            yield Diagnosis("server", True, url)
            yield _clock(clock)
            if identity:
                yield _key(transport, identity)
    except TransportError as error:
        yield Diagnosis("server", False, str(error), _network_cure(str(error)))


def _network_cure(text: str) -> str:
    if "certificate" in text:
        return (
            "if your site's proxy opens TLS, name its certificate authority:"
            " REQUESTS_CA_BUNDLE=/path/to/ca.pem"
        )
    if "not a GridBot server" in text:
        return "compare the URL with the one that you were given; log in to the network first"
    return "is the machine online, and the URL right? The client tries again by itself"


def _proxy(url: str) -> str:
    scheme, _, rest = url.partition("://")
    host = rest.partition("/")[0]
    return "" if proxy_bypass(host) else getproxies().get(scheme, "")


def _clock(server: float | None) -> Diagnosis:
    if server is None:
        return Diagnosis("clock", True, "the server does not tell its time")
    error = time.time() - server
    if abs(error) <= MOST_CLOCK_ERROR_SECONDS:
        return Diagnosis("clock", True, "as the server's")
    side = "ahead of" if error > 0 else "behind"
    return Diagnosis("clock", False, f"{abs(error):.0f} s {side} the server's",
                   "set it: timedatectl set-ntp true")  # fmt: skip


def _key(transport: Transport, identity: Identity) -> Diagnosis:
    name = f"client {identity.client} of {identity.owner}"
    try:
        transport.get_json("/api/v1/clients/self/standing")
    except RequestRefused as error:
        if not error.shuts_out:
            return Diagnosis("joined", True, name)  # by an older server
        return Diagnosis("joined", False, f"{name}: {error.detail}",
                       f"to join again: gridbot client join {identity.url} --key KEY")  # fmt: skip
    return Diagnosis("joined", True, name)


def _release(told: Prospects | None) -> Diagnosis:
    """Which GridBot this is, and that the server's is newer: whether to update is its owner's."""
    return Diagnosis("GridBot", True, release(), update_advice(told.release) if told else "")


def _preferences(folder: Folder) -> Iterator[Diagnosis]:
    """Whether they can be read, and what they need be known."""
    texts = preferred(folder).texts
    try:
        wanted = OwnerPreferences.parse(texts)
    except PreferenceError as error:
        yield Diagnosis("preferences", False, str(error), "gridbot client prefs unset NAME")
        return
    if wanted.idle_minutes > 0 and idle_minutes(time.time()) is None:
        yield Diagnosis(
            "preferences", False, "nothing tells when this machine was used last, so that"
            " idle-minutes keeps it from work: neither logind nor a terminal does",
            "gridbot client prefs unset idle-minutes",
        )  # fmt: skip
    elif texts:
        yield Diagnosis("preferences", True, ", ".join(f"{n}={v}" for n, v in texts.items()))


def _process(folder: Folder) -> Diagnosis:
    if (process := folder.holder()) is None:
        return Diagnosis("client", False, "not running", "gridbot client start")
    if (until := folder.paused_until()) and time.time() < until:
        return Diagnosis("client", False, f"paused until {clock(until)}", "gridbot client resume")
    if folder.is_paused(time.time()):
        return Diagnosis("client", False, "paused", "gridbot client resume")
    if suspended := folder.suspended():
        return Diagnosis("client", True, f"suspended: {suspended}", "gridbot client prefs show")
    return Diagnosis("client", True, f"running as process {process}")
