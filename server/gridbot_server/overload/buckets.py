"""Where rate limiters keep their buckets: in one process, or in a file for all of a machine.

A bucket holds one number, the theoretical arrival time of its next event, in seconds of the
monotonic clock, which all processes of a boot share.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import struct
from array import array
from pathlib import Path
from threading import Lock
from typing import Protocol, Self

from gridbot_client.boot import boot_id

# Keys that share a bucket share its limit: rare among this many.
BUCKETS = 1 << 15
_NUMBER = struct.Struct("d")
_HEAD_BYTES = 4096
_SECRET_BYTES = 32


class Buckets(Protocol):
    """A table of buckets, to be used while it is entered."""

    def __enter__(self) -> object: ...

    def __exit__(self, *_: object) -> None: ...

    def __getitem__(self, bucket: int, /) -> float: ...

    def __setitem__(self, bucket: int, seconds: float, /) -> None: ...


class PrivateBuckets:
    """A table in the memory of one process."""

    def __init__(self) -> None:
        self._seconds = array("d", bytes(BUCKETS * _NUMBER.size))
        self._lock = Lock()

    def __enter__(self) -> Self:
        self._lock.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def __getitem__(self, bucket: int) -> float:
        return self._seconds[bucket]

    def __setitem__(self, bucket: int, seconds: float) -> None:
        self._seconds[bucket] = seconds


class BucketFile:
    """Tables in a file that outlive their processes, and the secret of the hash that picks buckets.

    Read and written, not mapped: a full disk would end a process that writes to mapped memory.
    """

    def __init__(self, path: Path) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._descriptor = os.open(path, flags, 0o600)
        self._lock = Lock()
        with self:
            self.secret = self._prepare()

    def table(self, number: int) -> SharedBuckets:
        """The table of this number; each rate limiter uses another one."""
        return SharedBuckets(self, number)

    def close(self) -> None:
        """Close the file; its tables are of no more use."""
        os.close(self._descriptor)

    def __enter__(self) -> Self:
        # flock does not exclude two threads on one descriptor; the kernel frees it when we die.
        self._lock.acquire()
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        return self

    def __exit__(self, *_: object) -> None:
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        self._lock.release()

    def read(self, at: int) -> float:
        """A number; 0 where none was written."""
        data = os.pread(self._descriptor, _NUMBER.size, at)
        return float(_NUMBER.unpack(data)[0]) if len(data) == _NUMBER.size else 0.0

    def write(self, at: int, number: float) -> None:
        """Keep a number."""
        os.pwrite(self._descriptor, _NUMBER.pack(number), at)

    def _prepare(self) -> bytes:
        """The secret of this boot; what was counted before the last one is forgotten."""
        boot = boot_id().encode()
        head = os.pread(self._descriptor, len(boot) + _SECRET_BYTES, 0)
        if head.startswith(boot) and len(head) == len(boot) + _SECRET_BYTES:
            return head[len(boot) :]
        secret = secrets.token_bytes(_SECRET_BYTES)
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, boot + secret, 0)
        return secret


class SharedBuckets:
    """One table of a file."""

    def __init__(self, file: BucketFile, number: int) -> None:
        self._file, self._at = file, _HEAD_BYTES + number * BUCKETS * _NUMBER.size

    def __enter__(self) -> Self:
        self._file.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._file.__exit__()

    def __getitem__(self, bucket: int) -> float:
        return self._file.read(self._at + bucket * _NUMBER.size)

    def __setitem__(self, bucket: int, seconds: float) -> None:
        self._file.write(self._at + bucket * _NUMBER.size, seconds)
