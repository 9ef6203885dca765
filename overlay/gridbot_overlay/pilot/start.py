"""Starts the client on a node: fetches and checks the artefact, runs it from scratch, cleans up.

The job script gives this file to the node's Python.  So it uses the standard library only, and
nothing that Python 3.6 cannot read, to be able to say that the node's Python is too old.
"""

import contextlib
import fcntl
import hashlib
import importlib
import json
import os
import platform
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
import zipfile
from typing import Any

BEGUN = time.time()
PREFIX = "gridbot-pilot."
DOWNLOADS = 6
# Many pilots begin at once: a busy server is not away, and serves each in its turn.
BUSY_SECONDS, BUSY_PAUSE = 900, 5
# A node that cannot work stays taken for a while: its slot would only get the next pilot.
HOLD_SECONDS = 60
# Exit codes, of the client, too: the node cannot work; the server is away.
NODE_FAULT, SERVER_AWAY = 3, 75
RUN = (
    "import sys; sys.path.insert(0, sys.argv.pop(1));"
    " from gridbot_client.pilot.secrecy import hide; hide();"
    " from gridbot_client.cli import client; client()"
)


class UnfitNode(Exception):
    """This node cannot run pilots; says what is missing."""


class Unreachable(Exception):
    """The server cannot be reached, which may be nobody's fault."""


def main(settings: Any) -> int:
    """Run one pilot; return its exit code."""
    try:
        check_python()
        with Scratch(os.environ["GRIDBOT_SCRATCH"]) as scratch:
            library = os.path.join(scratch, "library")
            unpack(artefact(settings, scratch), library)
            sys.path.insert(0, library)
            importlib.import_module("gridbot_client.pilot.secrecy").hide()
            if settings["is_probe"]:
                return examine(settings, scratch, library)
            code = run_client(settings, scratch, library)
    except UnfitNode as error:
        say(f"this node cannot run pilots: {error}")
        code = NODE_FAULT
    except Unreachable as error:
        say(f"the server is away: {error}")
        return SERVER_AWAY
    if code == NODE_FAULT and not settings["is_probe"]:
        hold(settings)
    return code


def check_python() -> None:
    """Raise UnfitNode when this Python is too old for the client."""
    if sys.version_info < (3, 11):  # noqa: UP036  # this is what finds it out
        raise UnfitNode(
            f"{sys.executable} is Python {platform.python_version()}, and 3.11 or newer is needed:"
            " set `python` or `setup` of this grid"
        )


class Scratch:
    """A private directory on the node, locked while in use, removed at the end."""

    def __init__(self, place: str) -> None:
        self.place = place

    def __enter__(self) -> str:
        try:
            os.makedirs(self.place, exist_ok=True)
            remove_left_overs(self.place)
            while not self.is_made():
                self.lock.close()
        except OSError as error:
            raise UnfitNode(f"cannot write in {self.place}: {error.strerror}") from error
        return self.path

    def is_made(self) -> bool:
        """Make and lock it; False if another pilot removed it before it was locked."""
        self.path = tempfile.mkdtemp(prefix=PREFIX, dir=self.place)
        self.lock = open(os.path.join(self.path, "lock"), "w")  # noqa: SIM115  # until the end
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        return os.path.exists(self.lock.name)

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        self.lock.close()


def remove_left_overs(place: str) -> None:
    """Remove what killed pilots of ours left: their locks are free."""
    for name in os.listdir(place):
        path = os.path.join(place, name)
        if not name.startswith(PREFIX):
            continue
        try:
            if os.lstat(path).st_uid != os.getuid():
                continue
            with open(os.path.join(path, "lock"), "r+") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
        except OSError:
            pass  # in use, just being made, or gone


def artefact(settings: Any, scratch: str) -> str:
    """Return the artefact's path: where the constructor has it, if that is here, else fetched."""
    path: str = settings["artefact_path"]
    if os.access(path, os.R_OK) and sha256(path) == settings["artefact"]:
        return path
    path = os.path.join(scratch, "artefact.zip")
    fetch(settings, path)
    if sha256(path) != settings["artefact"]:
        raise UnfitNode(f"{settings['server']} gave another artefact than was asked for")
    return path


def fetch(settings: Any, path: str) -> None:
    """Download the artefact; raise UnfitNode where it is refused, Unreachable after some tries.

    The rule stands here once more, as this program has nothing but the standard library.
    """
    failures, patient_until = 0, time.monotonic() + min(BUSY_SECONDS, left(settings))
    while True:
        try:
            return download(settings, path)
        except OSError as error:  # which urllib's errors are
            code = getattr(error, "code", 0)
            is_busy = code in (429, 503) and time.monotonic() < patient_until
            text = f"{settings['server']} does not give the artefact: {error}"
            if 400 <= code < 500 and code != 429:
                raise UnfitNode(text) from error
            failures += not is_busy
            if failures == DOWNLOADS:
                raise Unreachable(text) from error
        pause = BUSY_PAUSE if is_busy else 2 ** (failures - 1)
        time.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311  # spreads load


def download(settings: Any, path: str) -> None:
    """Fetch the artefact from the server, with the pilots' key."""
    url = f"{settings['server']}/files/{settings['artefact']}"
    header = {"Authorization": "Bearer " + settings["token"]}
    request = urllib.request.Request(url, headers=header)  # noqa: S310  # our server's URL
    answer = urllib.request.urlopen(request, timeout=60)  # noqa: S310
    with answer, open(path, "wb") as file:
        shutil.copyfileobj(answer, file)


def sha256(path: str) -> str:
    """Return the hash of a file."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def unpack(path: str, library: str) -> None:
    """Lay out this Python's wheels: what is compiled cannot be imported from an archive."""
    try:
        with zipfile.ZipFile(path) as archive:
            for name in wheels(json.loads(archive.read("pilot.json").decode())):
                with archive.open(name) as file, zipfile.ZipFile(file) as wheel:
                    wheel.extractall(library)
    except OSError as error:
        raise UnfitNode(f"cannot unpack into {library}: {error.strerror}") from error


def wheels(artefact: Any) -> Any:
    """Return the names of the wheels for this node; UnfitNode when there are none."""
    python = ".".join(map(str, sys.version_info[:2])) + sys.abiflags
    if sys.implementation.name != "cpython":
        python = f"{python} ({platform.python_implementation()})"
    system = f"{platform.system()}-{platform.machine()}".lower()
    library, version = platform.libc_ver()
    is_new_enough = library == "glibc" and list(numbers(version)) >= artefact["glibc"]
    if python in artefact["pythons"] and system == artefact["system"] and is_new_enough:
        return artefact["pythons"][python]
    raise UnfitNode(
        f"pilots are built for {artefact['words']}; this is Python {python} on {system}"
        f" with {library or 'an unknown C library'} {version}".rstrip()
        + ": set `python` or `setup` of this grid"
    )


def numbers(version: str) -> Any:
    """Read a version such as 2.36."""
    return map(int, version.split("."))


def run_client(settings: Any, scratch: str, library: str) -> int:
    """Run the client until it leaves; what ends the job asks the client to leave first."""
    name = os.environ["GRIDBOT_PILOT_TAG"] + "." + os.environ["GRIDBOT_PILOT_INDEX"]
    command = [sys.executable, "-c", RUN, library, "run", "--pilot", name]
    command += ["--data", os.path.join(scratch, "client"), "--key-file", "/dev/stdin"]
    command += ["--server", settings["server"], "--walltime", str(left(settings))]
    command += ["--queued", str(max(0, int(BEGUN - settings["submitted_at"])))]
    if "GRIDBOT_PILOT_NODES" in os.environ:
        command += ["--nodes", os.environ["GRIDBOT_PILOT_NODES"]]
        command += ["--launch", os.environ["GRIDBOT_PILOT_LAUNCH"]]
    client = subprocess.Popen(command + settings["arguments"], stdin=subprocess.PIPE)
    assert client.stdin
    with contextlib.suppress(BrokenPipeError), client.stdin as pipe:
        pipe.write(settings["token"].encode())  # in no file, where the client's jobs could read it
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: client.terminate())
    code = client.wait()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if code:
        say(f"the client ended with exit code {code}")
    return code


def examine(settings: Any, scratch: str, library: str) -> int:
    """Tell the operator about this node."""
    command = [sys.executable, "-c", RUN, library, "doctor", "--pilot", settings["server"]]
    command += ["--data", os.path.join(scratch, "client")]
    return subprocess.call(command, stdin=subprocess.DEVNULL, stdout=sys.stderr)


def left(settings: Any) -> int:
    """Return the seconds until the grid ends this pilot."""
    return max(1, int(settings["walltime"] - (time.time() - BEGUN)))


def hold(settings: Any) -> None:
    """Keep further pilots away from this node for a while."""
    seconds = min(HOLD_SECONDS, left(settings) - 1)
    say(f"waiting {seconds} s, to keep further pilots away")
    time.sleep(seconds)


def say(text: str) -> None:
    """Tell the operator, who is shown the end of stderr."""
    sys.stderr.write(f"gridbot pilot: {text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main(json.loads(globals()["SETTINGS"])))  # the job script's line before this file
