"""Known answers: jobs whose results a scientist has, by which hosts are judged.

A file has one JSON object a line: which job, by its number or by its arguments, and its outputs:

    {"job": 17, "outputs": {"stdout": "42\\n"}}
    {"args": {"i": 17}, "outputs": {"stdout": "42\\n", "fit.dat": {"file": "known/17.dat"}}}
    {"job": 18, "outputs": {"big.dat": {"sha256": "…"}}}

An output is its text, a file (relative to the file's folder), or its hash, which serves the
validator `exact` only.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gridbot.api.errors import BadInput
from gridbot.api.inputs import LocalFile, local_file
from gridbot.api.items import Items, Survey, carried
from gridbot.api.specs import InputSpec
from gridbot_client.protocol.messages import Scalar

MOST = 10_000
SMALL_BYTES = 16_384  # what travels in the request; larger outputs are uploaded

# By job: the text of its standard output, or its outputs by name: texts, bytes, or files.
Answers = Mapping[int, "str | bytes | Mapping[str, str | bytes | Path]"]


@dataclass(frozen=True)
class KnownAnswers:
    """What is sent of known answers, and the files that are uploaded before."""

    documents: Sequence[Mapping[str, Any]]
    files: Sequence[LocalFile]


@dataclass(frozen=True)
class _Row:
    """One answer: where it stands, which job it is of, and its outputs."""

    where: str
    job: int | None
    args: Mapping[str, object] | None
    outputs: Mapping[str, object]
    base: Path


def read_known(
    source: str | Path | Answers | None, base: Path, items: Items, found: Survey
) -> KnownAnswers:
    """Read and check known answers.  Raises BadInput that names the row."""
    rows = list(_rows(source, base))
    if len(rows) > MOST:
        raise BadInput(f"{len(rows)} known answers: at most {MOST} serve")
    documents: dict[int, Mapping[str, Any]] = {}
    files: list[LocalFile] = []
    for row, jobs in _placed(rows, items, found):
        outputs = [_output(row, name, value, files) for name, value in row.outputs.items()]
        for job in jobs:
            if job in documents:
                raise BadInput(f"{row.where}: job {job} has a known answer already")
            documents[job] = {"job": job, "outputs": outputs}
    return KnownAnswers([documents[job] for job in sorted(documents)], files)


def _rows(source: str | Path | Answers | None, base: Path) -> Iterator[_Row]:
    if isinstance(source, Mapping):
        for job, given in source.items():
            outputs = given if isinstance(given, Mapping) else {"stdout": given}
            yield _Row(f"known_answers[{job!r}]", job, None, outputs, base)
    elif source is not None:
        yield from _lines(base / source)


def _lines(path: Path) -> Iterator[_Row]:
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise BadInput(f"{path}: {reason}") from None
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield _row(f"{path}, line {number}", line, path.parent)


def _row(where: str, line: str, base: Path) -> _Row:
    try:
        document = json.loads(line)
    except ValueError as error:
        raise BadInput(f"{where}: {error}") from None
    if not isinstance(document, dict) or not isinstance(document.get("outputs"), dict):
        raise BadInput(f'{where}: write {{"job": 17, "outputs": {{"stdout": "42\\n"}}}}')
    job, args = document.get("job"), document.get("args")
    if unknown := document.keys() - {"job", "args", "outputs"}:
        raise BadInput(f"{where}: unknown key {min(unknown)!r}")
    if (job is None) == (args is None) or not isinstance(args, dict | None):
        raise BadInput(f"{where}: say which job, by job or by args")
    return _Row(where, job, args, document["outputs"], base)


def _placed(
    rows: Sequence[_Row], items: Items, found: Survey
) -> Iterator[tuple[_Row, Sequence[int]]]:
    """Yield each row with the numbers of its jobs."""
    wanted = {_key(row.args) for row in rows if row.args is not None}
    jobs: dict[str, list[int]] = {key: [] for key in wanted}
    if wanted:
        for job, (_, values) in enumerate(items.rows()):
            key = _key(carried(values, found.types))
            if key in wanted:
                jobs[key].append(job)
    for row in rows:
        if row.args is not None:
            if not jobs[_key(row.args)]:
                raise BadInput(f"{row.where}: no job has the arguments {json.dumps(row.args)}")
            yield row, jobs[_key(row.args)]
        else:
            if type(row.job) is not int or not 0 <= row.job < found.count:
                raise BadInput(
                    f"{row.where}: there is no job {row.job!r}; the {found.count} jobs count from 0"
                )
            yield row, [row.job]


def _key(args: Mapping[str, object] | Mapping[str, Scalar]) -> str:
    """Arguments in a form in which 17 and "17" are the same, as in a table."""
    return json.dumps({name: str(value) for name, value in args.items()}, sort_keys=True)


def _output(row: _Row, name: str, value: object, files: list[LocalFile]) -> dict[str, Any]:
    where = f"{row.where}, output {name}"
    match value:
        case str() as text:
            return _content(where, name, text.encode())
        case bytes() as content:
            return _content(where, name, content)
        case Path() as path:
            return _file(name, str(path), row.base, files)
        case {"file": str(path), **rest} if not rest:
            return _file(name, path, row.base, files)
        case {"sha256": str(sha256), **rest} if not rest:
            return {"name": name, "sha256": sha256}
        case _:
            raise BadInput(f'{where}: write its text, {{"file": "PATH"}} or {{"sha256": "HEX"}}')


def _content(where: str, name: str, content: bytes) -> dict[str, Any]:
    if len(content) > SMALL_BYTES:
        raise BadInput(f"{where}: {len(content)} bytes; write more than {SMALL_BYTES} to a file")
    sha256 = hashlib.sha256(content).hexdigest()
    encoded = base64.b64encode(content).decode()
    return {"name": name, "sha256": sha256, "size": len(content), "content": encoded}


def _file(name: str, path: str, base: Path, files: list[LocalFile]) -> dict[str, Any]:
    found = local_file(InputSpec(path, name), base)
    if found.ref.size <= SMALL_BYTES:
        return _content(path, name, found.path.read_bytes())
    files.append(found)
    return {"name": name, "sha256": found.ref.sha256, "size": found.ref.size}
