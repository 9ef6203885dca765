"""Where files come from: what made them from what, and what depends on them."""

from __future__ import annotations

import orjson
from flask import Blueprint

from gridbot_client.protocol.messages import Manifest
from gridbot_client.protocol.template import fill
from gridbot_server.api.parameters import is_sha256
from gridbot_server.api.schema import answers
from gridbot_server.bots import provenance
from gridbot_server.errors import ObjectNotFound
from gridbot_server.http import auth
from gridbot_server.http.services import connection
from gridbot_server.models.responses.bots import HostCommand
from gridbot_server.models.responses.data import (
    Invalidated,
    JobName,
    MakingJob,
    Provenance,
    UsedFile,
)

blueprint = Blueprint("data", __name__, url_prefix="/api/v1/data")

_MOST_USERS = 100


@blueprint.get("/<sha256>")
@auth.rule("user")
@answers()
def tell_provenance(sha256: str) -> Provenance:
    """Tell which jobs of this key's owner made a content, from what, and which read it."""
    _check(sha256)
    owner = auth.key().owner
    with connection() as conn:
        made = provenance.makers(conn, owner, sha256)
        used = provenance.users(conn, owner, [sha256])
    if not made and not used:
        raise ObjectNotFound(f"no job of yours made or read the content {sha256}")
    return Provenance(
        sha256=sha256,
        made_by=[_job(item) for item in made],
        used_by=[JobName(bot=item.bot, job=item.seq) for item in used[:_MOST_USERS]],
    )


@blueprint.post("/<sha256>/invalidate")
@auth.rule("user")
@answers()
def invalidate_data(sha256: str) -> Invalidated:
    """Let no answer be reused that has this content, or depends on it.

    Submit with `reuse` again: these jobs run, and all others do not.  Idempotent.
    """
    _check(sha256)
    with connection() as conn:
        jobs = provenance.invalidate(conn, auth.key().owner, sha256)
    return Invalidated(jobs=len(jobs), bots=sorted({job.bot for job in jobs}))


def _check(sha256: str) -> None:
    if not is_sha256(sha256):
        raise ObjectNotFound(f"{sha256[:100]!r} is no SHA-256 in hex")


def _job(item: provenance.Maker) -> MakingJob:
    manifest, args = Manifest.from_text(item.manifest), orjson.loads(item.args)
    own = [UsedFile.model_validate(_ref(file)) for file in orjson.loads(item.inputs)]
    shared = [UsedFile(name=ref.name, sha256=ref.sha256, size=ref.size) for ref in manifest.inputs]
    types, environment = manifest.placeholders, manifest.environment
    programs = [
        HostCommand(where=item.where, command=fill(item.command, types, args))
        for item in manifest.programs
    ]
    from_job = None
    if item.from_bot is not None and item.from_seq is not None:
        from_job = JobName(bot=item.from_bot, job=item.from_seq)
    return MakingJob(
        bot=item.bot, job=item.seq, name=item.name, output=item.output, size=item.size,
        ended_at=item.ended_at, host=item.host,
        command=fill(manifest.command, types, args), programs=programs,
        environment=dict(zip(environment, fill([*environment.values()], types, args), strict=True)),
        image=manifest.image, args=args, inputs=[*shared, *own], reused=from_job,
        invalidated=item.is_invalidated,
    )  # fmt: skip


def _ref(file: dict[str, object]) -> dict[str, object]:
    return {name: file[name] for name in ("name", "sha256", "size")}
