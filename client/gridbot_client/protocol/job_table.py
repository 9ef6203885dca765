"""Signed job tables: a hash tree over each part of at most 64 jobs, and proofs of single jobs.

The manifest is signed once; what its jobs add, their arguments and their own inputs, is signed in
parts.  A part is a run of jobs: its signature covers the manifest's id, the number of its first
job, how many jobs it has, and the root of a Merkle tree over them.  So a million jobs need 15,625
signatures, a BOT grows by further parts, and the proof that a job belongs to the BOT is a signature
and at most six hashes:

    place (1 byte)  size (1 byte)  signature (64 bytes)  path (0 to 6 hashes of 32 bytes)

Leaves and inner nodes are hashed with different prefixes, as in RFC 6962, so that neither passes
for the other.  A node without a sibling moves up as it is.  `size` is signed, so the shape of the
tree, and with it the length of the path, is no choice of those who present the proof.

The jobs of a range need no proof: the manifest has their rule.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from json.encoder import encode_basestring
from typing import NamedTuple

from gridbot_client.protocol.fields import ProtocolError, Scalar
from gridbot_client.protocol.manifest import FileRef, JobRange

PART_JOBS = 64
SIGNATURE_BYTES = 64
MAX_PROOF_BYTES = 2 + SIGNATURE_BYTES + 6 * 32

_CONTEXT = b"gridbot-jobs-v2\n"
_EXACT_FLOAT = 1e16  # a double from here on is a whole number

_encode = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
).encode


class Proof(NamedTuple):
    """That a job is number `place` of a signed part of `size` jobs."""

    place: int
    size: int
    signature: bytes
    path: tuple[bytes, ...]

    def encode(self) -> bytes:
        """As it is sent."""
        return bytes((self.place, self.size)) + self.signature + b"".join(self.path)

    @classmethod
    def decode(cls, raw: bytes) -> Proof:
        """Read a proof.  Raises ProtocolError for one of a wrong shape."""
        path, rest = divmod(len(raw) - 2 - SIGNATURE_BYTES, 32)
        if rest or not 0 <= path <= 6:
            raise ProtocolError(f"proof: {len(raw)} bytes are no proof")
        place, size = raw[0], raw[1]
        if not place < size <= PART_JOBS:
            raise ProtocolError(f"proof: job {place} of a part of {size}")
        begin = 2 + SIGNATURE_BYTES
        hashes = tuple(raw[at : at + 32] for at in range(begin, len(raw), 32))
        return cls(place, size, raw[2:begin], hashes)


def job_text(args: Mapping[str, Scalar], inputs: Sequence[FileRef]) -> str:
    """Canonical JSON of what a job adds to the manifest: the same on each side of the database."""
    members = [f"{encode_basestring(name)}:{_value(value)}" for name, value in sorted(args.items())]
    files = _encode([asdict(ref) for ref in inputs]) if inputs else "[]"
    return f'{{"args":{{{",".join(members)}}},"inputs":{files}}}'


def leaf(text: str) -> bytes:
    """Hash of a job's canonical text."""
    return hashlib.sha256(b"\x00" + text.encode()).digest()


def levels(leaves: Sequence[bytes]) -> list[list[bytes]]:
    """The tree over a part's leaves, from these to the root."""
    found = [list(leaves)]
    while len(found[-1]) > 1:
        below = found[-1]
        above = [_node(below[n], below[n + 1]) for n in range(0, len(below) - 1, 2)]
        found.append(above + below[len(above) * 2 :])
    return found


def root(leaves: Sequence[bytes]) -> bytes:
    """Root of the tree over a part's leaves."""
    return levels(leaves)[-1][0]


def split(leaves: bytes) -> list[bytes]:
    """Take apart the leaves of a part that are kept as one text of bytes."""
    return [leaves[at : at + 32] for at in range(0, len(leaves), 32)]


def path_of(tree: Sequence[Sequence[bytes]], place: int) -> tuple[bytes, ...]:
    """Siblings on the way from a leaf to the root."""
    found = []
    for level in tree[:-1]:
        if (sibling := place ^ 1) < len(level):
            found.append(level[sibling])
        place //= 2
    return tuple(found)


def proofs(leaves: Sequence[bytes], signature: bytes) -> Iterator[Proof]:
    """Proofs of all jobs of a part."""
    tree = levels(leaves)
    for place in range(len(leaves)):
        yield Proof(place, len(leaves), signature, path_of(tree, place))


def proven_root(of: bytes, proof: Proof) -> bytes:
    """Root of the tree in which `of` is the proof's leaf.  Raises ProtocolError."""
    node, place, size, path = of, proof.place, proof.size, list(reversed(proof.path))
    while size > 1:
        if place ^ 1 < size:
            if not path:
                raise ProtocolError("proof: its path is too short")
            sibling = path.pop()
            node = _node(sibling, node) if place % 2 else _node(node, sibling)
        place, size = place // 2, (size + 1) // 2
    if path:
        raise ProtocolError("proof: its path is too long")
    return node


def statement(manifest: str, first: int, size: int, root: bytes) -> bytes:
    """Bytes that are signed of a part: the manifest with this id has these jobs from `first` on."""
    place = first.to_bytes(8, "big") + size.to_bytes(1, "big")
    return _CONTEXT + bytes.fromhex(manifest) + place + root


def parts(leaves: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Group the leaves of consecutive jobs into parts."""
    part: list[bytes] = []
    for item in leaves:
        part.append(item)
        if len(part) == PART_JOBS:
            yield part
            part = []
    if part:
        yield part


def follows_range(
    rule: JobRange, seq: int, args: Mapping[str, Scalar], inputs: Sequence[FileRef]
) -> bool:
    """True if this is job `seq` of a signed range."""
    value = args.get("i")
    return (
        0 <= seq < rule.size
        and not inputs
        and len(args) == 1
        and type(value) is int
        and value == rule.start + seq * rule.step
    )


def _value(value: Scalar) -> str:
    """JSON of an argument.  Texts and whole numbers are most, and not worth an encoder's start."""
    if type(value) is str:
        return encode_basestring(value)
    return repr(value) if type(value) is int else _encode(_settled(value))


def _settled(value: Scalar) -> Scalar:
    """A value as the database gives it back: it knows neither exponents nor a negative zero."""
    if type(value) is float:
        if value == 0:
            return 0.0
        if abs(value) >= _EXACT_FLOAT:
            return int(value)
    return value


def _node(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\x01" + left + right).digest()
