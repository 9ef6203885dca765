"""Another version of a BOT's manifest, for what is left of it: other files, other limits."""

from __future__ import annotations

import base64
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gridbot.api.connection import Connection
from gridbot.api.documents import SignableParts
from gridbot.api.errors import BadInput, Refused
from gridbot.api.inputs import (
    Input,
    Progress,
    SharedFile,
    archives,
    shared_file,
    sources_of,
    split,
    to_send,
    upload,
)
from gridbot.api.sending import VALID_SECONDS, Signer, own_manifest
from gridbot.api.specs import specs_of
from gridbot.api.submission import checked, limit, time_limit
from gridbot_client.protocol import job_table
from gridbot_client.protocol.messages import Manifest, manifest_id
from gridbot_client.protocol.signatures import manifest_statement, verify


@dataclass(frozen=True, kw_only=True)
class Changes:
    """What differs in the next version; None and no inputs leave what was."""

    inputs: Sequence[Input] = ()
    memory: int | str | None = None
    disk: int | str | None = None
    time: float | str | None = None
    max_output: int | str | None = None
    base: Path = Path()

    def __bool__(self) -> bool:
        limits = (self.memory, self.disk, self.time, self.max_output)
        return bool(self.inputs) or any(item is not None for item in limits)


def next_version(
    connection: Connection, bot: int, signer: Signer, changes: Changes, progress: Progress
) -> dict[str, Any]:
    """Upload new files and sign the next version of a BOT's manifest; return the request's part.

    The key signs only what it has signed before, with these changes: it must have signed the
    manifest and each part of the job table.  Raises BadInput, Refused or ServerAway.
    """
    document = connection.get(f"/bots/{bot}/manifest")
    old = own_manifest(document, bot, signer)
    parts: SignableParts = connection.get(f"/bots/{bot}/parts")
    files = _files(old, changes)
    manifest = _changed(old, files, changes)
    upload(connection, to_send(files), progress)
    text = manifest.text()
    return {
        "text": text,
        "signature": _base64(signer.key.sign(manifest_statement(text))),
        "parts": [
            _base64(signature)
            for signature in _signed(
                parts, manifest_id(document["text"]), manifest_id(text), signer
            )
        ],
    }


def _files(old: Manifest, changes: Changes) -> list[SharedFile]:
    """Files of the next version that the present one does not have so.  Raises BadInput."""
    paths, stored = split(changes.inputs)
    specs = specs_of(paths, changes.base)
    for spec in specs:
        if spec.placeholders:
            raise BadInput(
                f"input {spec.source}: files of single jobs stay as they are; submit a new BOT"
            )
    executable = {ref.name for ref in old.inputs if ref.executable}
    executable |= old.program_names
    files: list[SharedFile] = [
        *(shared_file(spec, changes.base, executable=spec.name in executable) for spec in specs),
        *stored,
    ]
    names = [file.ref.name for file in files]
    for name in names:
        if names.count(name) > 1:
            raise BadInput(f"two inputs are named {name}; rename one: --input FILE=NAME")
    return files


def _changed(old: Manifest, files: Sequence[SharedFile], changes: Changes) -> Manifest:
    """The next version.  Raises BadInput."""
    named = {ref.name: ref for ref in old.inputs} | {file.ref.name: file.ref for file in files}
    replaced = {file.ref.name for file in files}
    limits: dict[str, Any] = {}
    if changes.memory is not None:
        limits["memory_mb"] = limit("memory", changes.memory)
    if changes.disk is not None:
        limits["disk_mb"] = limit("disk", changes.disk)
    if changes.time is not None:
        limits["seconds"] = time_limit(changes.time)
    now = int(time.time())
    manifest = replace(
        old,
        inputs=tuple(named.values()),
        archives={
            **{name: item for name, item in old.archives.items() if name not in replaced},
            **archives(files),
        },
        sources={
            **{name: urls for name, urls in old.sources.items() if name not in replaced},
            **sources_of(files),
        },
        resources=replace(old.resources, **limits),
        not_before=now,
        expires=now + VALID_SECONDS,
    )
    if changes.max_output is not None:
        most = limit("max_output", changes.max_output) * 1024 * 1024
        manifest = replace(manifest, max_output_bytes=most)
    return checked(manifest)


def _signed(parts: SignableParts, old: str, new: str, signer: Signer) -> list[bytes]:
    """Sign parts of the job table for a version, by its id, as this key did for the one before."""
    made, key = [], signer.key
    for part in parts["parts"]:
        about = part["first"], part["size"], bytes.fromhex(part["root"])
        before = base64.b64decode(part["signature"] or "")
        if not verify(key.public, job_table.statement(old, *about), before):
            last = part["first"] + part["size"] - 1
            raise Refused(
                f"jobs {part['first']} to {last} were not signed with this key; retry from the"
                " machine that submitted the BOT"
            )
        made.append(key.sign(job_table.statement(new, *about)))
    return made


def _base64(signature: bytes) -> str:
    return base64.b64encode(signature).decode()
