"""Signs a checked submission and sends it to the server."""

from __future__ import annotations

import base64
import json
import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, TypeVar

from gridbot.api.connection import Connection, log_away, patiently, quiet
from gridbot.api.documents import ManifestText
from gridbot.api.errors import BadInput, GridbotError, Refused, ServerAway
from gridbot.api.inputs import Progress, upload
from gridbot.api.items import RangeItems
from gridbot.api.signing_key import OwnerKey
from gridbot.api.submission import Prepared
from gridbot.api.tracing import submission
from gridbot_client.protocol import job_table
from gridbot_client.protocol.messages import Manifest, manifest_id
from gridbot_client.protocol.signatures import manifest_statement, verify
from gridbot_client.protocol.sources import Sources

T = TypeVar("T")
SignParts = Callable[[Sequence[str], int], Iterator[tuple[Sequence[str], bytes]]]
Append = Callable[[int, bytes], dict[str, Any]]  # offset, lines -> answer
Told = Callable[[ServerAway], None]

VALID_SECONDS = 366 * 86_400  # how long a signature is good
CHUNK_JOBS = 20_000
CHUNK_BYTES = 16 * 1024 * 1024
_ATTEMPTS = 14  # of each step while the server is away: for two minutes or three


@dataclass(frozen=True)
class Signer:
    """A key, and in whose name it signs for which project."""

    key: OwnerKey
    owner: str
    project: str  # fingerprint


def send(
    connection: Connection,
    prepared: Prepared,
    signer: Signer,
    progress: Progress = quiet,
    told: Told = log_away,
) -> dict[str, Any]:
    """Sign the BOT, create it, and return the server's document.

    Idempotent: the idempotency key identifies the BOT, and jobs are sent from the first one that
    the server lacks.  So an interrupted submission continues with the same key.  `told` gets the
    error while the server is away: it is waited for, for two minutes or three.
    """
    with submission(os.environ) as headers:
        return _send(connection, prepared, signer, progress, told, headers)


def _send(
    connection: Connection,
    prepared: Prepared,
    signer: Signer,
    progress: Progress,
    told: Told,
    headers: Mapping[str, str],
) -> dict[str, Any]:
    post = partial(_post, connection, told, headers)
    send_files = partial(upload, connection, prepared.files, progress)
    patiently(send_files, told, times=_ATTEMPTS)
    manifest, envelope = _sealed(prepared, signer)
    body = {**prepared.body, "envelope": envelope}
    if manifest.range is not None:
        assert isinstance(prepared.items, RangeItems)
        numbers = prepared.items.range
        jobs: object = {"range": [numbers.start, numbers.stop, numbers.step]}
        return post("/bots", {**body, "jobs": jobs})
    chunks = _ahead(_chunks(prepared.jobs()))
    first = next(chunks, [])
    is_whole = len(first) == prepared.survey.count
    if is_whole:
        jobs = {"items": [json.loads(text) for text in first]}
        parts = [_base64(item) for _, item in _signed(first, 0, manifest, signer.key)]
        return post("/bots", {**body, "jobs": jobs, "parts": parts})
    document = post("/bots", {**body, "jobs": {"stream": True}})
    if document["state"] != ("running" if prepared.growing else "open"):
        return document
    bot = f"/bots/{document['id']}"
    manifest = _submitted_manifest(connection.get(f"{bot}/manifest"), manifest)
    there, offset = document["jobs_total"], 0
    for chunk in chain([first], chunks):
        sign = partial(_signed, manifest=manifest, key=signer.key)
        there = _send_chunk(partial(_append, connection, told, bot), chunk, offset, there, sign)
        offset += len(chunk)
        progress("uploading jobs", offset, prepared.survey.count)
    if prepared.growing:
        return {**document, "jobs_total": there}
    return {**document, **post(f"{bot}/start", {})}


class Appending:
    """Appends jobs to a growing BOT that this signer signed."""

    def __init__(self, connection: Connection, bot: int, signer: Signer, jobs: int) -> None:
        self._connection, self._bot, self._signer = connection, bot, signer
        self.manifest = self._present_manifest()
        self._there = jobs  # that the server has, as far as is known

    def _present_manifest(self) -> Manifest:
        document = self._connection.get(f"/bots/{self._bot}/manifest")
        return own_manifest(document, self._bot, self._signer)

    def _is_replaced(self) -> bool:
        """Whether a retry has replaced the manifest, for which jobs are signed."""
        before, self.manifest = self.manifest, self._present_manifest()
        return self.manifest != before

    def append(self, jobs: Sequence[str], offset: int | None, told: Told) -> range:
        """Append jobs, in the form that is signed; return their numbers.

        With `offset` they are the jobs from that number on, and to repeat the call changes nothing.
        Without, they go behind those that are there, also if others append beside.  All arrive, or
        none.  Raises Refused for others in their place, or a BOT that takes no more.
        """
        if len(jobs) > CHUNK_JOBS:
            raise BadInput(f"{len(jobs)} jobs at once; at most {CHUNK_JOBS} in one append")
        key = "" if offset is not None else f"&key={secrets.token_hex(16)}"
        at = self._there if offset is None else offset
        while True:
            lines = b"".join(_lines(_signed(jobs, at, self.manifest, self._signer.key)))
            try:
                answer = _append(self._connection, told, f"/bots/{self._bot}", at, lines, key)
            except Refused:
                if not self._is_replaced():
                    raise
                continue
            if "first" in answer:
                self._there = answer["jobs_total"]
                return range(answer["first"], answer["first"] + len(jobs))
            there = answer.get("jobs_total", at)
            if offset is not None or answer.get("error") != "WrongOffset":
                raise Refused(answer.get("detail", f"bot {self._bot} takes no more jobs"))
            at = there  # others appended meanwhile


def own_manifest(document: ManifestText, bot: int, signer: Signer) -> Manifest:
    """The manifest of a BOT that this key signed: it signs jobs for no other command."""
    text = document["text"]
    signature = base64.b64decode(document["owner_signature"] or "")
    manifest = Manifest.from_text(text)
    key = signer.key.public
    if manifest.owner_key != key.hex() or not verify(key, manifest_statement(text), signature):
        raise Refused(
            f"bot {bot} was signed with another key, which must sign its jobs and its next versions"
            " too; go to the machine that submitted it"
        )
    return manifest


def check_own_sources(sources: Sources, manifest: Manifest) -> None:
    """Make sure that a BOT knows where files of further jobs are.  Raises BadInput."""
    for name, urls in sources.items():
        if manifest.sources.get(name) != urls:
            raise BadInput(
                f"input {name}: the BOT was not submitted with these sources, {' '.join(urls)}"
            )


def _submitted_manifest(document: ManifestText, ours: Manifest) -> Manifest:
    """The manifest of the BOT that takes our jobs: ours, or that of an interrupted submission.

    It must be what this key signed: a server could otherwise have jobs signed for another command.
    """
    found = Manifest.from_text(document["text"])
    same = replace(found, bot=ours.bot, not_before=ours.not_before, expires=ours.expires)
    signature = base64.b64decode(document["owner_signature"] or "")
    key = bytes.fromhex(ours.owner_key)
    is_signed = verify(key, manifest_statement(document["text"]), signature)
    if same != ours or found.text() != document["text"] or not is_signed:
        raise GridbotError(
            "the server holds another BOT under this idempotency key, or one that another key"
            " signed; submit with a new key"
        )
    return found


def _send_chunk(
    append: Append, chunk: Sequence[str], offset: int, there: int, sign: SignParts
) -> int:
    """Send the jobs of a chunk that the server lacks; return the number of jobs it holds."""
    end = offset + len(chunk)
    while there < end:
        if there < offset:
            raise GridbotError(f"the server lost jobs: it holds {there} of {offset} sent")
        answer = append(there, b"".join(_lines(sign(chunk[there - offset :], there))))
        # 409: either the offset to continue from, or the BOT takes no more jobs.
        if answer.get("jobs_total", there) == there:
            raise Refused(answer.get("detail", "the server accepts no more jobs for this BOT"))
        there = answer["jobs_total"]
    return there


def _post(
    connection: Connection, told: Told, headers: Mapping[str, str], path: str, body: object
) -> dict[str, Any]:
    document: dict[str, Any] = patiently(
        partial(connection.send, "POST", path, body, headers), told, times=_ATTEMPTS
    )
    return document


def _append(
    connection: Connection, told: Told, bot: str, offset: int, lines: bytes, key: str = ""
) -> dict[str, Any]:
    """Send jobs; the answer has the number of jobs that are there, also if it is a refusal."""
    path = f"{bot}/jobs?offset={offset}{key}"
    request = partial(connection.request, "POST", path, data=lines, accept=(409,))
    answer: dict[str, Any] = patiently(request, told, times=_ATTEMPTS).json()
    return answer


def _signed(
    jobs: Sequence[str], first: int, manifest: Manifest, key: OwnerKey
) -> Iterator[tuple[Sequence[str], bytes]]:
    """Yield parts of consecutive jobs, as canonical texts, with the signature over each."""
    id = manifest_id(manifest.text())
    for at in range(0, len(jobs), job_table.PART_JOBS):
        part = jobs[at : at + job_table.PART_JOBS]
        root = job_table.root([job_table.leaf(text) for text in part])
        yield part, key.sign(job_table.statement(id, first + at, len(part), root))


def _lines(parts: Iterable[tuple[Sequence[str], bytes]]) -> Iterator[bytes]:
    for jobs, signature in parts:
        yield "\n".join(jobs).encode()
        yield b'\n{"#signature":"%b"}\n' % base64.b64encode(signature)


def _base64(signature: bytes) -> str:
    return base64.b64encode(signature).decode()


def _ahead(source: Iterator[T]) -> Iterator[T]:
    """Yield the items of a source; a thread makes the next one while the caller uses this one."""
    with ThreadPoolExecutor(1) as maker:
        coming = maker.submit(next, source, None)
        while (item := coming.result()) is not None:
            coming = maker.submit(next, source, None)
            yield item


def _chunks(jobs: Iterable[str]) -> Iterator[list[str]]:
    """Group jobs into requests of at most CHUNK_JOBS jobs and CHUNK_BYTES."""
    chunk: list[str] = []
    size = 0
    for job in jobs:
        bytes_more = len(job) if job.isascii() else len(job.encode())
        if chunk and (len(chunk) == CHUNK_JOBS or size + bytes_more > CHUNK_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(job)
        size += bytes_more + 1
    if chunk:
        yield chunk


def _sealed(prepared: Prepared, signer: Signer) -> tuple[Manifest, dict[str, Any]]:
    """The manifest as this key signs it, for a new BOT, and the envelope of the request."""
    now = int(time.time())
    seal: dict[str, Any] = {
        "project": signer.project,
        "bot": secrets.token_hex(16),
        "owner_key": signer.key.public.hex(),
        "not_before": now,
        "expires": now + VALID_SECONDS,
    }
    manifest = replace(prepared.manifest, owner=signer.owner, **seal)
    signature = signer.key.sign(manifest_statement(manifest.text()))
    return manifest, {**seal, "signature": _base64(signature)}
