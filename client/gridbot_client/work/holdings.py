"""What the processes of a task hold that no directory and no resident size shows.

Files can be deleted and still be open.  And the kernel keeps memory for whoever asks for it: for
descriptors, for what waits in pipes and sockets, for watches (epoll), locks on files, and mappings.
Only a cgroup counts it; so it is estimated from /proc.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from itertools import islice
from pathlib import Path

import psutil

# What the kernel keeps for one of each, at most about.
_DESCRIPTOR_BYTES = 1 << 10  # with a file that only this one holds
_ENTRY_BYTES = 1 << 8  # a mapping, a watch or a lock
_PIPE_BYTES, _SOCKET_BYTES = 64 << 10, 208 << 10
_LEAST_BYTES = 52 << 20  # which every task may have of it
# A user's pipes have 16,384 pages in all, and a pipe 16; then all further ones are short.
_MOST_PIPES, _MOST_PIPES_PER_CPU = 512, 16
# So that a look does not take long.
_MOST_DESCRIPTORS_PER_CPU, _MOST_ENTRIES_PER_CPU = 16 << 10, 256 << 10
_MOST_SENT = 16
_ENTRIES = (b"tfd:", b"lock:")  # in /proc/PID/fdinfo
_SHARED_MEMORY = (b"00:01", b"/dev/zero (deleted)\n")  # in /proc/PID/maps
_ENDED = (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)


class Holdings:
    """What some processes hold; of a task that may use so many bytes of memory, and processors.

    Looking ends once it is found to be too much.
    """

    def __init__(self, pids: Collection[int], memory_bytes: int, cpus: int) -> None:
        self.is_hidden = False  # a process hides what it has open, or sends it around
        self._most_bytes = max(_LEAST_BYTES, memory_bytes)
        self._most_pipes = max(_MOST_PIPES, _MOST_PIPES_PER_CPU * cpus)
        self._most_descriptors = _MOST_DESCRIPTORS_PER_CPU * cpus
        self._most_entries = _MOST_ENTRIES_PER_CPU * cpus
        self._deleted: dict[tuple[int, int], int] = {}
        self._sockets, self._pipes = set[int](), set[int]()
        self._others_sockets = 0  # of its network, whether somebody has them open or not
        self._descriptors = self._entries = 0
        self._sent = 0  # descriptors that are on their way through sockets
        # The numbers first: to look at each of very many takes long.
        for look in (self._count, self._look_at):
            for pid in pids:
                self._try(look, pid)
                if self.is_too_much:
                    return
        self.is_hidden |= self._sent > _MOST_SENT

    @property
    def deleted_bytes(self) -> int:
        """Space of deleted files, among them those in memory (memfd).

        A file that is mapped and closed counts by the size of its mapping.
        """
        return sum(self._deleted.values())

    @property
    def kernel_bytes(self) -> int:
        """Memory that the kernel keeps for them, roughly."""
        sockets = max(len(self._sockets), self._others_sockets)
        return (
            sockets * _SOCKET_BYTES + len(self._pipes) * _PIPE_BYTES
            + self._descriptors * _DESCRIPTOR_BYTES + self._entries * _ENTRY_BYTES
        )  # fmt: skip

    @property
    def is_too_much(self) -> bool:
        """True if the kernel keeps more for them than it may."""
        return (
            self.kernel_bytes > self._most_bytes
            or len(self._pipes) > self._most_pipes
            or self._descriptors > self._most_descriptors
            or self._entries > self._most_entries
        )

    def _try(self, look: Callable[[int], None], pid: int) -> None:
        try:
            look(pid)
        except (FileNotFoundError, ProcessLookupError):
            pass
        except PermissionError:
            with suppress(psutil.Error):
                self.is_hidden |= psutil.Process(pid).status() not in _ENDED

    def _count(self, pid: int) -> None:
        if not self._others_sockets:
            self._others_sockets = _sockets_of_network(pid)
        self._descriptors += len(os.listdir(f"/proc/{pid}/fd"))

    def _look_at(self, pid: int) -> None:
        for name in os.listdir(f"/proc/{pid}/fd"):
            if self.is_too_much:
                return
            with suppress(FileNotFoundError, ProcessLookupError):
                status = os.stat(f"/proc/{pid}/fd/{name}")
                sent, entries = _information(f"/proc/{pid}/fdinfo/{name}", self._most_entries)
                self._entries += entries
                if status.st_nlink == 0 and stat.S_ISREG(status.st_mode):
                    self._deleted[status.st_dev, status.st_ino] = status.st_blocks * 512
                elif stat.S_ISFIFO(status.st_mode):
                    self._pipes.add(status.st_ino)
                elif stat.S_ISSOCK(status.st_mode) and status.st_ino not in self._sockets:
                    self._sockets.add(status.st_ino)
                    self._sent += sent
        with open(f"/proc/{pid}/maps", "rb") as maps:
            self._entries += _add_mapped(islice(maps, self._most_entries + 1), self._deleted)


def _information(path: str, most_entries: int) -> tuple[int, int]:
    """Descriptors in the queue of a socket, and watches and locks (proc_pid_fdinfo(5)).

    The former are told since Linux 5.11.  Reading ends at more than `most_entries` of the latter.
    """
    sent = entries = 0
    with open(path, "rb") as information:
        for line in information:
            if line.startswith(b"scm_fds:"):
                sent = int(line.split()[1])
            entries += line.startswith(_ENTRIES)
            if entries > most_entries:
                break
    return sent, entries


def _sockets_of_network(pid: int) -> int:
    """Sockets in the network of a process, if that is not ours: also those that wait for accept."""
    with suppress(OSError, ValueError, IndexError):
        if os.stat(f"/proc/{pid}/ns/net").st_ino != os.stat("/proc/self/ns/net").st_ino:
            text = Path(f"/proc/{pid}/net/sockstat").read_text()
            return int(text.partition("sockets: used ")[2].split()[0])
    return 0


def _add_mapped(maps: Iterable[bytes], found: dict[tuple[int, int], int]) -> int:
    """Add deleted files of /proc/PID/maps that are not open, by what is mapped of them.

    Memory that processes share is kept as a file of the kernel's own, and counts as memory.
    Returns the number of mappings.
    """
    count = 0
    for line in maps:
        count += 1
        if not line.endswith(b" (deleted)\n"):
            continue
        addresses, _, _, device, inode, path = line.split(None, 5)
        if (device, path) == _SHARED_MEMORY:
            continue
        first, last = (int(address, 16) for address in addresses.split(b"-"))
        major, minor = (int(part, 16) for part in device.split(b":"))
        found.setdefault((os.makedev(major, minor), int(inode)), last - first)
    return count
