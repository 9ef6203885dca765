"""Hostile attempts from inside a cell, against harmless canaries outside; they prove its walls."""

from __future__ import annotations

import json
import os
import resource
import socket
from collections.abc import Callable, Mapping
from typing import NoReturn

from gridbot_client.walls import kernel

WRITE = "write outside the slot"
_PTRACE_ATTACH = 16
_KEYCTL_GET_KEYRING = 0
_PRIVATE, _CREATE = 0, 0o1600


def attack(canaries: Mapping[str, str]) -> NoReturn:
    """Try every attack; print a JSON list of those that succeeded, and exit."""
    done = [name for name, attempt in _attempts(canaries).items() if _succeeds(attempt)]
    os.write(1, json.dumps(done).encode())
    os._exit(0)


def _attempts(canaries: Mapping[str, str]) -> dict[str, Callable[[], object]]:
    secret, pid = canaries["secret"], int(canaries["pid"])
    limits = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    return {
        "read the client's folder": lambda: _read(secret),
        "change the client's folder": lambda: os.truncate(secret, 0),
        WRITE: lambda: os.mkdir(canaries["folder"]),
        "signal another process": lambda: os.kill(pid, 0),
        "trace another process": lambda: kernel.syscall("ptrace", _PTRACE_ATTACH, pid, 0, 0),
        "read another process's environment": lambda: _read(f"/proc/{pid}/environ"),
        "limit another process": lambda: resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0)),
        "connect by TCP": lambda: _connect(socket.AF_INET, ("127.0.0.1", int(canaries["tcp"]))),
        "connect to an abstract socket": lambda: _connect(
            socket.AF_UNIX, b"\0" + canaries["abstract"].encode()
        ),
        "make a namespace": lambda: kernel.syscall("unshare", kernel.CLONE_NEWUSER),
        "mount": lambda: kernel.mount("x", "/", "", kernel.MS_REC | kernel.MS_PRIVATE),
        "use the kernel's key rings": lambda: kernel.syscall("keyctl", _KEYCTL_GET_KEYRING, -3, 1),
        "make shared memory": lambda: kernel.syscall("shmget", _PRIVATE, 4096, _CREATE),
        "raise its limits": lambda: resource.setrlimit(resource.RLIMIT_CORE, limits),
    }


def _succeeds(attempt: Callable[[], object]) -> bool:
    try:
        attempt()
    except OSError:
        return False
    except ValueError:  # how Python says that a limit may not be raised
        return False
    return True


def _read(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.read(descriptor, 1)
    finally:
        os.close(descriptor)


def _connect(family: int, address: tuple[str, int] | bytes) -> None:
    with socket.socket(family) as attempt:
        attempt.settimeout(1.0)
        attempt.connect(address)
