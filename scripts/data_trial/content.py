"""Contents of any size, which no two places share by chance."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass

_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True)
class Content:
    """So many bytes from a random block."""

    size: int
    block: bytes

    @classmethod
    def of(cls, size: int) -> Content:
        """A new one."""
        return cls(size, os.urandom(_BLOCK_BYTES))

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[bytes]:
        for number in range(-(-self.size // _BLOCK_BYTES)):
            piece = number.to_bytes(8) + self.block[8:]
            yield piece[: self.size - number * _BLOCK_BYTES]

    @property
    def sha256(self) -> str:
        """Its hash, in hex."""
        digest = hashlib.sha256()
        for piece in self:
            digest.update(piece)
        return digest.hexdigest()
