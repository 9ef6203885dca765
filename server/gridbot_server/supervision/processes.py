"""Child processes: how they are started, recognised after a crash of their parent, and stopped."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, Self

import psutil

from gridbot_client.boot import boot_id
from gridbot_server.storage.disk import write_atomically

# A child waits for one line before it becomes its program.  If the parent dies before it has
# recorded the child, the line never comes and the child ends: nothing unrecorded ever serves.
GATE = 'read -r go && exec "$@" </dev/null'


@dataclass(frozen=True, slots=True)
class SystemAccount:
    """The user as whom a child runs."""

    name: str
    uid: int
    gid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    """What to run, and how to end it: signals to its leader, each with seconds to wait for it."""

    name: str
    argv: Sequence[str]
    env: Mapping[str, str]  # all of it
    directory: Path  # where it runs
    account: SystemAccount | None = None  # None: that of the parent
    stop_signals: Sequence[tuple[int, float]] = ((signal.SIGTERM, 10.0),)
    before: Callable[[], None] | None = None  # called before each start


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRecord:
    """A process on disk.  Pids are used again, so its kernel start time and the boot count too."""

    name: str
    pid: int  # also the number of its process group
    ticks: int  # kernel start time, clock ticks since boot; unlike a date it never shifts
    boot: str
    started_at: str
    restarts: int = 0
    stop_signals: Sequence[tuple[int, float]] = ()

    @classmethod
    def of(cls, child: Child, pid: int, now: datetime, restarts: int) -> Self:
        """Record a process that was just started."""
        return cls(
            name=child.name,
            pid=pid,
            ticks=_ticks(pid) or 0,
            boot=boot_id(),
            started_at=now.isoformat(timespec="seconds"),
            restarts=restarts,
            stop_signals=child.stop_signals,
        )

    def is_alive(self) -> bool:
        """Whether that very process still runs (a zombie does not)."""
        return self.boot == boot_id() and _ticks(self.pid) == self.ticks and not _gone(self.pid)


def own_record(name: str, now: datetime) -> ProcessRecord:
    """Record the process that asks."""
    pid, ticks = os.getpid(), _ticks(os.getpid()) or 0
    started_at = now.isoformat(timespec="seconds")
    return ProcessRecord(name=name, pid=pid, ticks=ticks, boot=boot_id(), started_at=started_at)


def save_records(path: Path, records: Iterable[ProcessRecord]) -> None:
    """Write the records, at once or not at all."""
    write_atomically(path, json.dumps([asdict(record) for record in records]))


def load_records(path: Path) -> list[ProcessRecord]:
    """Read the records; none if there are none."""
    if not path.exists():
        return []
    return [ProcessRecord(**record) for record in json.loads(path.read_text())]


def spawn(
    child: Child, output: int | BinaryIO, record: Callable[[int], object]
) -> subprocess.Popen[bytes]:
    """Start a child in its own process group, after `record` has been given its pid.

    What it says goes to `output`.
    """
    if child.before:
        child.before()
    process = subprocess.Popen(
        ["/bin/sh", "-c", GATE, "sh", *child.argv],
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=subprocess.STDOUT,
        env=child.env,
        cwd=child.directory,
        process_group=0,
        **as_account(child.account),
    )
    assert process.stdin
    try:
        with process.stdin as gate:
            record(process.pid)
            gate.write(b"go\n")
    except BrokenPipeError:
        pass  # it is dead already, as whoever waits for it will find
    except BaseException:
        process.wait()  # the gate is closed, so it ends
        raise
    return process


def as_account(account: SystemAccount | None) -> dict[str, Any]:
    """Return the arguments of `subprocess` that run a program as `account`."""
    if account is None:
        return {}
    return {"user": account.uid, "group": account.gid, "extra_groups": [], "umask": 0o077}


def stop_group(leader: int, stop_signals: Sequence[tuple[int, float]]) -> None:
    """End a process group: ask its leader politely, then end by force whatever is left."""
    for number, seconds in stop_signals:
        found = members(leader)
        with suppress(ProcessLookupError):
            (os.killpg if _gone(leader) else os.kill)(leader, number)
        wait_gone([p for p in found if p.pid == leader] or found, seconds)
    kill_group(leader)


def kill_group(leader: int) -> None:
    """End what is left of a process group by force, and wait until it has gone."""
    found = members(leader)
    if found:
        with suppress(ProcessLookupError):
            os.killpg(leader, signal.SIGKILL)
        wait_gone(found, 5)


def stop_leftover(record: ProcessRecord, mark: tuple[str, str]) -> bool:
    """Stop what a killed parent left of a recorded child; return whether anything was left.

    `mark` is a variable, and its value, that only our children have in their environment.
    """
    found = _leftover(record, mark)
    if found:
        stop_group(record.pid, record.stop_signals)
    return bool(found)


def wait_gone(processes: Sequence[psutil.Process], seconds: float) -> None:
    """Wait until all have ended; a zombie has, though a container's init may never reap it."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not all(_gone(process.pid) for process in processes):
        time.sleep(0.02)


def members(group: int) -> list[psutil.Process]:
    """List the living processes of a process group."""
    found = []
    for process in psutil.process_iter():
        with suppress(ProcessLookupError, psutil.NoSuchProcess):
            if os.getpgid(process.pid) == group and not _gone(process.pid):
                found.append(process)
    return found


def last_lines(path: Path, count: int, start: int = 0) -> list[str]:
    """Return the last lines that a log got after byte `start`."""
    if not path.exists():
        return []
    with path.open("rb") as log:
        end = log.seek(0, os.SEEK_END)
        log.seek(max(start if start <= end else 0, end - 16384))
        return log.read().decode(errors="replace").splitlines()[-count:]


def _leftover(record: ProcessRecord, mark: tuple[str, str]) -> list[psutil.Process]:
    if record.boot != boot_id() or _ticks(record.pid) not in (record.ticks, None):
        return []  # another boot, or another process with the same pid
    if record.is_alive():
        return members(record.pid)
    # The leader is gone, so only what its children say tells them from a later group.
    return [process for process in members(record.pid) if _has(process, mark)]


def _has(process: psutil.Process, mark: tuple[str, str]) -> bool:
    try:
        return mark in process.environ().items()
    except psutil.Error:
        return False


def _ticks(pid: int) -> int | None:
    """Return field 22 of proc(5)'s stat, or None when there is no such process."""
    fields = _stat(pid)
    return int(fields[19]) if fields else None


def _gone(pid: int) -> bool:
    """Whether a process has ended, reaped or not."""
    fields = _stat(pid)
    return not fields or fields[0] in "ZX"


def _stat(pid: int) -> list[str]:
    """Return proc(5)'s stat from field 3 on; the name before it may hold anything."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []
