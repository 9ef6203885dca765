"""Results: finished jobs as they end, and their output files."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import requests

from gridbot import reliable
from gridbot.api.connection import Connection
from gridbot.api.documents import ResultLine, ResultOutput
from gridbot.api.errors import ServerAway
from gridbot_client.protocol.messages import Scalar

BLOCK_BYTES = 1024 * 1024


class Real(float):
    """A float whose `str()` is exactly the text that the job was given."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __str__(self) -> str:
        return self._text


@dataclass(frozen=True)
class OutputFile:
    """One output file of a job; its content is downloaded when it is read.

    One that `came_inline`, in its result, may be no file at the server.  `place` is where it is in
    a storage of this user, once it is published there; `is_lost` says that it is there no more.
    """

    name: str
    sha256: str
    size: int
    _path: str = field(repr=False)
    _connection: Connection = field(repr=False, compare=False)
    _content: bytes | None = field(default=None, repr=False)
    came_inline: bool = field(default=False, repr=False, compare=False)
    place: str = ""
    is_lost: bool = False

    @property
    def is_here(self) -> bool:
        """True if the content came with the result, as small files do."""
        return self._content is not None

    def read(self) -> bytes:
        """Whole content, checked against its hash.  May raise ServerAway."""
        return b"".join(self._blocks())

    def named(self, name: str) -> OutputFile:
        """The same file under another name, as an input of other jobs."""
        return replace(self, name=name)

    def save(self, path: str | Path) -> Path:
        """Write the content to `path`; the file appears only when complete and verified."""
        path = Path(path)
        partial = path.with_name(f"{path.name}.part")
        try:
            with partial.open("wb") as file:
                file.writelines(self._blocks())
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
        return path

    def _blocks(self) -> Iterator[bytes]:
        digest = hashlib.sha256()
        for block in self._raw_blocks():
            digest.update(block)
            yield block
        if digest.hexdigest() != self.sha256:
            raise ServerAway(f"{self.name}: the content does not match its hash; download it again")

    def _raw_blocks(self) -> Iterator[bytes]:
        if self._content is not None:
            yield self._content
            return
        with self._connection.request("GET", self._path, stream=True) as answer:
            try:
                for block in answer.iter_content(BLOCK_BYTES):
                    reliable.check()
                    yield block
            except requests.RequestException as error:
                reliable.check()
                raise ServerAway(f"{self.name}: the connection broke during download") from error


@dataclass(frozen=True)
class Result:
    """One finished job.  `state` is "done" or "failed"; `reason` is why it failed."""

    n: int  # place in the order of finishing, used as cursor
    seq: int
    args: Mapping[str, Scalar]
    state: str
    replica: int | None
    exit_code: int | None  # also of a job that failed, by its last replica
    reason: str
    host: str
    cpu_seconds: float
    wall_seconds: float
    outputs: Mapping[str, OutputFile]
    signal: int | None = None  # that ended the program
    bot: int = 0  # of which it is a job
    version: int = 1  # of the manifest that it ran

    @property
    def stdout(self) -> str:
        """Standard output of the job; empty unless "stdout" is among the BOT's outputs."""
        output = self.outputs.get("stdout")
        return output.read().decode("utf-8", "replace") if output else ""


def result_of(
    row: ResultLine, bot: int, types: Mapping[str, str], connection: Connection
) -> Result:
    """Result from one line of the results stream."""
    return Result(
        n=row["n"],
        seq=row["seq"],
        bot=bot,
        args={name: _typed(value, types.get(name)) for name, value in row["args"].items()},
        state=row["state"],
        replica=row.get("replica"),
        exit_code=row.get("exit_code"),
        signal=row.get("signal"),
        version=row.get("version") or 1,
        reason=row.get("reason") or "",
        host=str(row.get("host") or ""),
        cpu_seconds=row.get("cpu_seconds") or 0.0,
        wall_seconds=row.get("wall_seconds") or 0.0,
        outputs={
            name: OutputFile(
                name,
                output["sha256"],
                output["size"],
                f"/bots/{bot}/outputs/{row['seq']}/{quote(name)}",
                connection,
                _content(output),
                place=output.get("place", ""),
                is_lost=output.get("lost", False),
            )
            for name, output in (row.get("outputs") or {}).items()
        },
    )


def json_lines(connection: Connection, path: str, **params: Any) -> Iterator[Any]:
    """Yield each document of a JSON lines stream.  Raises ServerAway if the connection breaks."""
    with connection.request("GET", path, params=params, stream=True) as answer:
        try:
            for line in answer.iter_lines(BLOCK_BYTES):
                reliable.check()
                if line:
                    yield json.loads(line)
        except (requests.RequestException, ValueError) as error:
            reliable.check()
            # A truncated document is not valid JSON, so it is never taken for a whole one.
            raise ServerAway(f"{connection.url}: the connection broke during download") from error


def _typed(value: Scalar, kind: str | None) -> Scalar:
    return Real(value) if kind == "real" and isinstance(value, str) else value


def _content(output: ResultOutput) -> bytes | None:
    content = output.get("content")
    return None if content is None else base64.b64decode(content)
