"""A client's folder full of canaries, and hostile tasks that run in one of its slots."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import threading
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from tests.sandbox.zoo import Beast

from gridbot_client.protocol.messages import ReplicaId, Resources
from gridbot_client.protocol.output_names import NamedOutput
from gridbot_client.walls.levels import Sandbox
from gridbot_client.work import outputs, trees
from gridbot_client.work.confinement import WallOptions, Walls, hidden_places, raised
from gridbot_client.work.outputs import OutputError
from gridbot_client.work.processes import Census
from gridbot_client.work.runner import ProcessEnd, ReplicaProgram, Runner, Stop
from gridbot_client.work.slots import slot_of

LIMITS = Resources(cpus=1, memory_mb=100, disk_mb=20, seconds=12.0)
ESCAPED, HELD = "ESCAPED", "held:"
PYTHON = shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin") or "/usr/bin/python3"
_PRELUDE = """
import ctypes, errno, glob, json, mmap, os, resource, shutil, signal, socket, struct, sys
import threading, time
c = json.loads(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
def syscall(*a):
    got = libc.syscall(*(ctypes.c_long(x) if isinstance(x, int) else x for x in a))
    if got == -1:
        raise OSError(ctypes.get_errno(), "refused")
    return got
def works(way, *places):
    for place in places:
        try:
            way(place)
            return True
        except OSError:
            pass
    return False
def fill(one):
    one.setblocking(False)
    try:
        while True:
            one.send(bytes(1 << 16))
    except BlockingIOError:
        pass
def attack():
"""
_EPILOGUE = """
try:
    if attack() is not False:
        print("ESCAPED", flush=True)
except (Exception, SystemExit) as error:
    print("held:", repr(error), flush=True)
"""


def highest() -> Sandbox:
    """The best level of this machine."""
    folder = Path(tempfile.mkdtemp(prefix="gridbot-test-"))
    try:
        with raised(folder, WallOptions(hidden=(str(folder),))) as (_, sandbox):
            return sandbox
    finally:
        shutil.rmtree(folder)


@dataclass
class Verdict:
    """What came of a hostile task."""

    end: ProcessEnd
    text: str  # what it printed
    harm: list[str] = field(default_factory=list)  # what it did outside, or got away with

    @property
    def is_confined(self) -> bool:
        """True if nothing happened."""
        return not self.harm


class Cage:
    """One machine of a volunteer, with canaries; `level` is the most that is used."""

    def __init__(self, level: int, *, is_stranger: bool = True) -> None:
        self.is_stranger = is_stranger
        self._stack = ExitStack()
        base = Path(tempfile.mkdtemp(prefix="gridbot-zoo-"))
        self._stack.callback(trees.remove, base)
        self.base, self.folder, self.home = base, base / "client", base / "home"
        for path in ("client/cache", "client/slots/9-9-9/work", "home/.ssh", "outside"):
            (base / path).mkdir(parents=True)
        self._make_files()
        self._make_sockets()
        self._bystander = subprocess.Popen(
            ["sleep", "1000"], env={"TOKEN": "canary"}, stdin=subprocess.DEVNULL
        )
        self._stack.callback(self._end_bystander)
        options = WallOptions(most=level, hidden=hidden_places(self.folder, self.home, ()))
        found, self.sandbox = self._stack.enter_context(raised(self.folder, options))
        assert isinstance(found, Walls)
        self._runner = Runner(found, Census())

    def close(self) -> None:
        """End all of it."""
        self._stack.close()

    def let_in(self, beast: Beast) -> Verdict:
        """Run a hostile task to its end; see what it did."""
        slot = slot_of(self.folder / "slots", ReplicaId(1, 1, 1))
        slot.path.mkdir(exist_ok=True)
        slot.reset()
        before = self._state()
        body = "\n".join(f"    {line}" for line in beast.body.strip().splitlines())
        argv = [PYTHON, "-S", "-c", f"{_PRELUDE}{body}\n{_EPILOGUE}", json.dumps(self._canaries())]
        with _Visitor(self._port, beast.listens) as visitor:
            end = self._runner.run(
                ReplicaProgram(argv),
                slot,
                LIMITS,
                Stop(),
                lambda _: None,
                is_stranger=self.is_stranger,
            )
        text = outputs.tail(slot.stdout) + outputs.tail(slot.stderr)
        verdict = Verdict(end, text)
        if beast.reasons:
            if end.reason not in beast.reasons and HELD not in text:
                verdict.harm.append(f"it ended with {end.reason!r}")
        elif ESCAPED in text:
            verdict.harm.append("it says so")
        if visitor.was_served:
            verdict.harm.append("its port was reached")
        if beast.outputs:
            verdict.harm += self._stolen(slot, beast)
        slot.remove()
        if slot.path.exists():
            verdict.harm.append("its slot cannot be removed")
        verdict.harm += self._changes(before)
        return verdict

    # --- canaries

    def _make_files(self) -> None:
        for name, text in {
            "client/client.json": "token canary",
            "client/cache/abc": "input",
            "client/slots/9-9-9/work/out": "HONEST",
            "home/.ssh/id_rsa": "private key",
            "outside/data": "data",
        }.items():
            (self.base / name).write_text(text)
        self.folder.chmod(0o700)

    def _make_sockets(self) -> None:
        enter = self._stack.enter_context
        self._tcp = enter(socket.create_server(("127.0.0.1", 0)))
        self._udp = enter(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        self._udp.bind(("127.0.0.1", 0))
        self._abstract = enter(socket.socket(socket.AF_UNIX))
        self._abstract.bind(f"\0{self.base.name}")
        self._abstract.listen()
        self._local = enter(socket.socket(socket.AF_UNIX))
        self._local.bind(str(self.base / "outside" / "socket"))
        self._local.listen()
        for one in (self._tcp, self._udp, self._abstract, self._local):
            one.setblocking(False)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]

    def _canaries(self) -> dict[str, str | int]:
        return {
            "folder": str(self.folder), "token": str(self.folder / "client.json"),
            "cached": str(self.folder / "cache" / "abc"),
            "neighbour": str(self.folder / "slots" / "9-9-9" / "work"),
            "home": str(self.home), "outside": str(self.base / "outside"),
            "pid": self._bystander.pid, "name": self.base.name,
            "tcp": self._tcp.getsockname()[1], "udp": self._udp.getsockname()[1],
            "port": self._port, "client": os.getpid(),
        }  # fmt: skip

    def _state(self) -> dict[str, object]:
        """All files outside the slot, and the bystander."""
        found: dict[str, object] = {}
        for path in [self.base, *self.base.rglob("*")]:
            inside = path.is_relative_to(self.folder / "slots" / "1-1-1")
            if not inside and path != self.folder / "slots":
                status = path.lstat()
                content = path.read_bytes() if stat.S_ISREG(status.st_mode) else b""
                times = status.st_mtime_ns if stat.S_ISREG(status.st_mode) else 0
                found[str(path)] = (status.st_mode, status.st_uid, times, status.st_nlink, content)
        process = psutil.Process(self._bystander.pid)
        found["bystander"] = (
            process.status(), process.nice(), process.cpu_affinity(),
            process.rlimit(psutil.RLIMIT_NOFILE),
        )  # fmt: skip
        return found

    def _changes(self, before: dict[str, object]) -> list[str]:
        after = self._state()
        harm = [f"changed: {key}" for key in {*before, *after} if before.get(key) != after.get(key)]
        left = [name for name in os.listdir("/dev/shm") if self.base.name in name]
        harm += [f"left {name}" for name in left]
        for server in (self._tcp, self._abstract, self._local):
            with suppress(BlockingIOError):
                server.accept()[0].close()
                harm.append(f"{server.getsockname()!r} was reached")
        with suppress(BlockingIOError):
            self._udp.recv(100)
            harm.append("reached by UDP")
        if strays := [p.pid for p in psutil.process_iter(["cmdline"]) if self._is_stray(p)]:
            harm.append(f"{len(strays)} processes live on")
            for pid in strays:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        return harm

    def _is_stray(self, process: psutil.Process) -> bool:
        words = " ".join(process.info["cmdline"] or ())
        return f"stray-{self.base.name}" in words

    def _stolen(self, slot: object, beast: Beast) -> list[str]:
        """Contents of outputs that hold a canary."""
        assert beast.outputs
        wanted = [NamedOutput(name, name) for name in beast.outputs]
        try:
            found = outputs.collect(slot, wanted, 1 << 30, ())  # type: ignore[arg-type]
        except (OutputError, OSError):
            return []
        secret = {b"token canary", b"HONEST", b"private key"}
        return [f"output {one.name} was taken" for one in found if one.content in secret]

    def _end_bystander(self) -> None:
        self._bystander.kill()
        self._bystander.wait()


class _Visitor:
    """Somebody outside who tries to reach a port on which a task may listen."""

    def __init__(self, port: int, is_wanted: bool) -> None:
        self.was_served = False
        self._port = port
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._visit) if is_wanted else None

    def __enter__(self) -> _Visitor:
        if self._thread:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread:
            self._thread.join()

    def _visit(self) -> None:
        until = time.monotonic() + 30
        while not self._over.wait(0.02) and time.monotonic() < until:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self._port), 0.2):
                self.was_served = True
