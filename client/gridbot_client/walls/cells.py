"""Cell: the walls of a task, as the client orders them from its warden.  Plain data.

A cell that stays serves further tasks of the same BOT, one at a time.

Named tuples, not dataclasses: every import of the warden's is memory that each fork of it copies.
"""

from __future__ import annotations

import marshal
from typing import NamedTuple

NONE, PROCESS, NAMESPACES, CGROUP = 0, 1, 2, 3  # levels


class KernelLimits(NamedTuple):
    """Limits that the kernel holds, beside those that the client watches."""

    processes: int  # threads count
    data_bytes: int  # of one process
    file_bytes: int  # size of one file
    open_files: int
    shared_bytes: int  # of /dev/shm


class NextTask(NamedTuple):
    """What a further task of a cell runs."""

    argv: tuple[str, ...]
    env: dict[str, str]
    stdin: str

    def encode(self) -> bytes:
        """Bytes for the first process, which runs under the same interpreter."""
        return marshal.dumps(tuple(self))

    @classmethod
    def decode(cls, text: bytes) -> NextTask:
        """The task of such bytes."""
        return cls(*marshal.loads(text))  # noqa: S302 - from the client, which made the process


class Cell(NamedTuple):
    """One task: its program, and what it may see, reach and use.  Paths are absolute and real."""

    argv: tuple[str, ...]
    env: dict[str, str]
    folder: str  # the slot's directory, in which a new root may be mounted
    work: str  # below it: current directory, writable
    level: int
    limits: KernelLimits
    is_stranger: bool = True  # sees the system's programs only, not the whole file system
    network: bool = False
    reads: tuple[str, ...] = ()  # visible beside
    writes: tuple[str, ...] = ()  # visible and writable beside
    hidden: tuple[str, ...] = ()  # never visible
    shown: tuple[tuple[str, str, bool], ...] = ()  # folder, where it is seen, if it is writable
    stdin: str = "/dev/null"
    canaries: dict[str, str] | None = None  # attack these instead of running a program
    stays: bool = False  # for further tasks, from level 2 on
    has_channel: bool = False  # its standard input is a socket of the client's

    @property
    def tmp(self) -> str:
        """The task's own /tmp."""
        return f"{self.work}/tmp"  # noqa: S108

    def encode(self) -> bytes:
        """Bytes for the warden, which runs under the same interpreter."""
        return marshal.dumps({**self._asdict(), "limits": tuple(self.limits)})

    @classmethod
    def decode(cls, text: bytes) -> Cell:
        """Cell of such bytes."""
        raw = marshal.loads(text)  # noqa: S302 - from the client, whose child the warden is
        return cls(**{**raw, "limits": KernelLimits(*raw["limits"])})
