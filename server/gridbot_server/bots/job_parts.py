"""Parts of a BOT's job table: their hashes, and the signatures over them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple

import orjson

from gridbot_client.protocol import job_table
from gridbot_client.protocol.signatures import verify
from gridbot_server.bots.validation import JobSpec
from gridbot_server.errors import RequestError
from gridbot_server.storage import sql
from gridbot_server.storage.db import Connection
from gridbot_server.storage.rows import fetch

SQL = sql.load("submission.sql")

Sign = Callable[[bytes], bytes]  # makes the signature over a statement


class JobPart(NamedTuple):
    """A row of `job_part`; without a signature nobody runs its jobs yet."""

    first: int
    size: int
    leaves: bytes
    signature: bytes | None

    def statement(self, manifest: str) -> bytes:
        """What is signed of it, for the BOT whose manifest has this id."""
        return job_table.statement(manifest, self.first, self.size, self.root)

    @property
    def root(self) -> bytes:
        """Root of the hash tree over its jobs."""
        return job_table.root(job_table.split(self.leaves))


@dataclass(frozen=True, slots=True)
class SignedBy:
    """The key that signs a BOT's job table, and the BOT's manifest, by its id."""

    manifest: str
    key: bytes


def unsigned_parts(
    jobs: Sequence[JobSpec], first: int, sizes: Sequence[int] | None
) -> list[JobPart]:
    """Hash jobs in parts of the given sizes, else in parts as large as may be."""
    leaves = [job_table.leaf(_text(job)) for job in jobs]
    made, at = [], 0
    for size in sizes or _sizes(len(leaves)):
        part = leaves[at : at + size]
        made.append(JobPart(first + at, len(part), b"".join(part), None))
        at += size
    return made


def signed(parts: Sequence[JobPart], signatures: Sequence[bytes], by: SignedBy) -> list[JobPart]:
    """Put signatures to parts, in order.  Raises RequestError if one does not verify."""
    if len(signatures) != len(parts):
        raise RequestError(f"parts: {len(signatures)} signatures for {len(parts)} parts of jobs")
    for part, signature in zip(parts, signatures, strict=True):
        if not verify(by.key, part.statement(by.manifest), signature):
            raise RequestError(
                f"parts: the signature over jobs {part.first} to {part.first + part.size - 1} is"
                " not valid"
            )
    return [
        part._replace(signature=signature)
        for part, signature in zip(parts, signatures, strict=True)
    ]


def sign_parts(parts: Sequence[JobPart], manifest: str, sign: Sign) -> list[JobPart]:
    """Sign parts with a key that is here."""
    return [part._replace(signature=sign(part.statement(manifest))) for part in parts]


def are_there(conn: Connection, bot: int, made: Sequence[JobPart]) -> bool:
    """Whether a BOT has the jobs of these parts in their places, whatever parts those are in."""
    wanted = _leaves((part.first, part.leaves) for part in made)
    place = {"bot": bot, "first": min(wanted), "end": max(wanted) + 1}
    there = _leaves(fetch(conn, _Leaves, SQL["parts_between"], place))
    return all(there.get(seq) == leaf for seq, leaf in wanted.items())


class _Leaves(NamedTuple):
    """Hashes of consecutive jobs."""

    first: int
    leaves: bytes


def _leaves(parts: Iterable[tuple[int, bytes]]) -> dict[int, bytes]:
    return {
        seq: leaf
        for first, leaves in parts
        for seq, leaf in enumerate(job_table.split(leaves), first)
    }


def _sizes(jobs: int) -> Iterator[int]:
    whole, rest = divmod(jobs, job_table.PART_JOBS)
    yield from (job_table.PART_JOBS for _ in range(whole))
    if rest:
        yield rest


def _text(job: JobSpec) -> str:
    """As `job_table.job_text`; a job without floats is written alike by a faster encoder."""
    if float in map(type, job.args.values()):
        return job_table.job_text(job.args, job.inputs)
    inputs = [asdict(ref) for ref in job.inputs] if job.inputs else []
    return orjson.dumps({"args": job.args, "inputs": inputs}, option=orjson.OPT_SORT_KEYS).decode()
