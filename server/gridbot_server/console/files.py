"""What a BOT gave, to download or to look at.

Outputs come from machines of strangers.  A page shows only raster pictures, told by their first
bytes and served in a sandbox, and plain text; anything else is downloaded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import quote

from flask import Response

from gridbot_client.protocol.messages import MAX_BIGINT
from gridbot_server.api.access import bot_owner
from gridbot_server.api.results import (
    fetch_archive,
    fetch_output,
    output_bytes,
    stream_logs,
    stream_results,
)
from gridbot_server.api.schema import call
from gridbot_server.console.blueprint import blueprint
from gridbot_server.errors import ObjectNotFound
from gridbot_server.http import auth
from gridbot_server.http.services import connection

# A format's first bytes, and its media type.
_PICTURES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"), (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"), (b"GIF89a", "image/gif"),
)  # fmt: skip
_MOST_PICTURE, _MOST_TEXT = 2_000_000, 32_000  # bytes of what a page shows
_MOST_LOOKED_AT = 20  # outputs of a job that a page looks into
_SANDBOX = "default-src 'none'; sandbox"


class ReturnedFile(NamedTuple):
    """An output of a job's canonical replica."""

    name: str
    size: int
    sha256: bytes


@dataclass(frozen=True, slots=True)
class ShownOutput:
    """An output as a page shows it."""

    name: str
    size: int
    address: str
    picture: str | None  # its address
    text: str | None


def media_type(content: bytes) -> str | None:
    """Return the media type of a raster picture; None for anything else."""
    for magic, found in _PICTURES:
        if content.startswith(magic):
            return found
    is_webp = content[:4] == b"RIFF" and content[8:12] == b"WEBP"
    return "image/webp" if is_webp else None


def plain_text(content: bytes) -> str | None:
    """Return the beginning of a text; None for what is none."""
    piece = content[:_MOST_TEXT]
    if b"\0" in piece:
        return None
    try:
        text = piece.decode("utf-8", "strict" if len(content) <= _MOST_TEXT else "ignore")
    except UnicodeDecodeError:
        return None
    return text if len(content) <= _MOST_TEXT else f"{text}…"


def shown_outputs(bot: int, seq: int, files: list[ReturnedFile]) -> list[ShownOutput]:
    """Return a job's outputs, with what a page may show of each."""
    return [
        _shown(bot, seq, file, is_looked_at=number < _MOST_LOOKED_AT)
        for number, file in enumerate(files)
    ]


def _shown(bot: int, seq: int, file: ReturnedFile, is_looked_at: bool) -> ShownOutput:
    place = f"{seq}/{quote(file.name)}"
    address, picture = f"/bots/{bot}/outputs/{place}", f"/bots/{bot}/pictures/{place}"
    content = output_bytes(bot, seq, file.name, _MOST_PICTURE) if is_looked_at else None
    if content is None:
        return ShownOutput(file.name, file.size, address, None, None)
    if media_type(content):
        is_whole = file.size <= _MOST_PICTURE
        return ShownOutput(file.name, file.size, address, picture if is_whole else None, None)
    return ShownOutput(file.name, file.size, address, None, plain_text(content))


@blueprint.get("/bots/<int:bot>/pictures/<int:seq>/<path:name>")
@auth.rule("console user")
def show_picture(bot: int, seq: int, name: str) -> Response:
    """Send an output that is a raster picture."""
    with connection() as conn:
        bot_owner(conn, bot)
    content = output_bytes(bot, seq, name, _MOST_PICTURE + 1)
    found = media_type(content or b"")
    if content is None or found is None or len(content) > _MOST_PICTURE:
        raise ObjectNotFound(f"job {seq} of BOT {bot} has no picture {name[:200]!r}")
    return Response(content, mimetype=found, headers={"Content-Security-Policy": _SANDBOX})


@blueprint.get("/bots/<int:bot>/outputs/<int:seq>/<path:name>")
@auth.rule("console user")
def download_output(bot: int, seq: int, name: str) -> Response:
    """Send an output as a file."""
    response: Response = call(fetch_output, bot=bot, seq=seq, name=name)
    return _download(response, name.rpartition("/")[2])


@blueprint.get("/bots/<int:bot>/results.jsonl")
@auth.rule("console user")
def download_results(bot: int) -> Response:
    """Send the finished jobs as JSON lines."""
    found = call(stream_results, bot=bot, after=0, limit=MAX_BIGINT, events=None, wait=0)
    return _download(found, f"bot-{bot}-results.jsonl")


@blueprint.get("/bots/<int:bot>/logs.jsonl")
@auth.rule("console user")
def download_logs(bot: int) -> Response:
    """Send the replicas that ended as JSON lines."""
    found = call(stream_logs, bot=bot, how=None, seq=None, after=None, limit=MAX_BIGINT)
    return _download(found, f"bot-{bot}-logs.jsonl")


@blueprint.get("/bots/<int:bot>/archive.tar")
@auth.rule("console user")
def download_archive(bot: int) -> Response:
    """Send all outputs as a tar archive."""
    return _download(call(fetch_archive, bot=bot, after=0), f"bot-{bot}.tar")


def _download(response: Response, name: str) -> Response:
    response.headers["Content-Disposition"] = f"attachment; filename*=UTF-8''{quote(name)}"
    response.headers["Content-Security-Policy"] = _SANDBOX
    return response
