"""Answers that a BOT's owner knows beforehand: checked at submission, kept, read by nobody else.

Hosts are judged by them (`cycles/transition.py`).  No route gives them away, and no assignment
depends on them.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gridbot_client.protocol.messages import (
    FileRef,
    Manifest,
    Output,
    ProtocolError,
    Scalar,
    file_name,
)
from gridbot_client.protocol.output_names import has_templates, is_pattern, output_names
from gridbot_client.protocol.template import TemplateError
from gridbot_server.bots.outputs import is_wanted
from gridbot_server.errors import RequestError
from gridbot_server.models.requests import KnownAnswer, KnownOutput
from gridbot_server.storage import sql
from gridbot_server.storage.db import PostgresConnection
from gridbot_server.storage.rows import encode, fetch_value
from gridbot_server.validators.digests import digest
from gridbot_server.validators.spec import Validator

SQL = sql.load("known_answers.sql")

# Gives the arguments of a job, by its number; None while they are not here.
Arguments = Callable[[int], Mapping[str, Scalar] | None]


@dataclass(frozen=True, slots=True)
class CheckedOutput:
    """An output of a known answer: at hand, an uploaded file, or (without a size) a mere hash."""

    name: str
    sha256: str
    size: int | None
    content: bytes | None


CheckedAnswers = Mapping[int, Sequence[CheckedOutput]]  # by job


def check(
    answers: Sequence[KnownAnswer], manifest: Manifest, validator: Validator, jobs: int | None,
    arguments: Arguments,
) -> CheckedAnswers:  # fmt: skip
    """Make sense of known answers; `jobs` are None if they come later.

    Raises RequestError naming the first that fails.
    """
    checked: dict[int, Sequence[CheckedOutput]] = {}
    for answer in answers:
        where = f"known_answers: job {answer.job}"
        if jobs is not None and answer.job >= jobs:
            raise RequestError(f"{where}: the BOT has {jobs} jobs, counted from 0")
        if answer.job in checked:
            raise RequestError(f"{where}: given twice")
        args = arguments(answer.job)
        checked[answer.job] = _outputs(where, answer.outputs, manifest, validator, args)
    return checked


def _outputs(
    where: str, outputs: Sequence[KnownOutput], manifest: Manifest, validator: Validator,
    args: Mapping[str, Scalar] | None,
) -> list[CheckedOutput]:  # fmt: skip
    if args is None and has_templates(manifest):
        raise RequestError(
            f"{where}: its outputs are named by its arguments, which come later; give known answers"
            " of jobs that come with the submission"
        )
    try:
        wanted = output_names(manifest, args or {})
    except TemplateError as error:
        raise RequestError(f"{where}: {error}") from None
    checked = [_output(f"{where}: {item.name[:200]}", item, validator) for item in outputs]
    names = [item.name for item in checked]
    for name in names:
        if names.count(name) > 1:
            raise RequestError(f"{where}: {name} is given twice")
        if not is_wanted(name, manifest, args or {}):
            raise RequestError(f"{where}: {name} is none of the BOT's outputs")
    for output in wanted:
        if output.name not in names and not is_pattern(output.name):
            raise RequestError(f"{where}: {output.name} is missing, which each answer has")
    return checked


def _output(where: str, output: KnownOutput, validator: Validator) -> CheckedOutput:
    try:
        file_name(output.name, "output")
        content = (
            None if output.content is None else base64.b64decode(output.content, validate=True)
        )
    except (ProtocolError, binascii.Error) as error:
        raise RequestError(f"{where}: {error}") from None
    size = output.size if content is None else len(content)
    if content is not None and hashlib.sha256(content).hexdigest() != output.sha256:
        raise RequestError(f"{where}: the content has another hash")
    if size != output.size:
        raise RequestError(f"{where}: the content has {size} bytes, not {output.size}")
    if size is None and validator.reads_contents:
        raise RequestError(f"{where}: a hash alone serves the validator exact only")
    return CheckedOutput(output.name, output.sha256, size, content)


def files(answers: CheckedAnswers) -> list[FileRef]:
    """Return those outputs that must have been uploaded."""
    return [
        FileRef(item.name, item.sha256, item.size)
        for outputs in answers.values()
        for item in outputs
        if item.content is None and item.size is not None
    ]


def insert(conn: PostgresConnection, bot: int, answers: CheckedAnswers) -> None:
    """Keep the known answers of a new BOT."""
    if not answers:
        return
    rows = [
        {"seq": seq, "digest": digest(map(_as_reported, outputs))}
        for seq, outputs in answers.items()
    ]
    conn.execute(SQL["insert_answers"], {"bot": bot, "answers": encode(rows)})
    with conn.cursor() as cursor, cursor.copy(SQL["copy_outputs"]) as copy:
        copy.set_types(["int8", "int8", "text", "bytea", "int8", "bytea"])
        for row in _rows(bot, answers):
            copy.write_row(row)


def beyond(conn: PostgresConnection, bot: int, jobs: int) -> int | None:
    """Return the least known answer of a job that the BOT has not, if there is one."""
    return fetch_value(conn, int, SQL["beyond"], {"bot": bot, "jobs": jobs})


def _as_reported(output: CheckedOutput) -> Output:
    return Output(output.name, output.sha256, output.size or 0)


def _rows(
    bot: int, answers: CheckedAnswers
) -> Iterator[tuple[int, int, str, bytes, int | None, bytes | None]]:
    for seq, outputs in answers.items():
        for item in outputs:
            yield bot, seq, item.name, bytes.fromhex(item.sha256), item.size, item.content
