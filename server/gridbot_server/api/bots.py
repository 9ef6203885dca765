"""BOTs: submit, list, look at, change, cancel, retry, sign."""

from __future__ import annotations

import base64
import binascii
from functools import partial
from typing import Any

from flask import Blueprint, request
from psycopg.rows import dict_row

from gridbot_client.protocol.messages import Manifest, manifest_id
from gridbot_client.protocol.signatures import verify_manifest
from gridbot_server.api.access import bot_owner, mine, number_argument
from gridbot_server.api.matching import explanation_of, match_of
from gridbot_server.api.schema import body_limit, json_body
from gridbot_server.bots.submission import Sign, start, submit
from gridbot_server.bots.validation import parse_policy, policy_warnings
from gridbot_server.errors import Conflict, RequestError
from gridbot_server.http import auth
from gridbot_server.http.services import connection, current
from gridbot_server.models.requests import BotChange, Signature, SubmissionRequest
from gridbot_server.signing import keys
from gridbot_server.storage import sql
from gridbot_server.storage.db import Connection
from gridbot_server.storage.moves import SQL as MOVES

SQL = sql.load("bots.sql")

blueprint = Blueprint("bots", __name__, url_prefix="/api/v1/bots")

Document = dict[str, Any]

_STATES = ("open", "running", "done", "cancelled")


@blueprint.post("")
@auth.rule("user")
@body_limit(lambda settings: settings.max_jobs_bytes)
@json_body
def submit_bot(json: SubmissionRequest) -> tuple[Document, int]:
    """Submit a BOT; the same submit key always answers with the same BOT."""
    with connection() as conn:
        submitted = submit(conn, auth.key(), json, current().stock_clients, _signer())
    return _submitted(submitted.bot), 201 if submitted.is_new else 200


@blueprint.post("/<int:bot>/start")
@auth.rule("user")
def start_bot(bot: int) -> Document:
    """Let a BOT whose jobs were streamed run."""
    with connection() as conn:
        bot_owner(conn, bot)
        start(conn, bot)
    return _submitted(bot)


@blueprint.get("")
@auth.rule("user")
def list_bots() -> Document:
    """List BOTs, the latest first."""
    state = request.args.get("state")
    if state is not None and state not in _STATES:
        raise RequestError(f"state: expected one of {', '.join(_STATES)}, got {state[:60]!r}")
    limit = number_argument("limit", default=1000, most=10_000)
    with connection() as conn:
        return {"bots": _summaries(conn, mine=mine(), state=state, limit=limit)}


@blueprint.get("/<int:bot>")
@auth.rule("user")
def show_bot(bot: int) -> Document:
    """Tell all about one BOT."""
    with connection() as conn:
        bot_owner(conn, bot)
        summary = _summary(conn, bot)
        details = _details(conn, bot, summary)
    return {**summary, **details, "boinc_url": current().stock_clients.url, "match": match_of(bot)}


@blueprint.get("/<int:bot>/explanation")
@auth.rule("user")
def explain_bot(bot: int) -> Document:
    """Tell which hosts a BOT's policy and needs reject, and what to relax.

    With `host`, a number or a name, the same about that one alone.
    """
    host = request.args.get("host")
    if host is not None and not host.isprintable():
        raise RequestError("host: expected a number or a name")
    with connection() as conn:
        bot_owner(conn, bot)
        state = _summary(conn, bot)["state"]
    return explanation_of(bot, state, host)


@blueprint.post("/<int:bot>/cancel")
@auth.rule("user")
def cancel_bot(bot: int) -> Document:
    """Cancel a BOT; one that has ended stays as it is."""
    with connection() as conn:
        bot_owner(conn, bot)
        conn.execute(SQL["cancel"], {"bot": bot})
        return _summary(conn, bot)


@blueprint.post("/<int:bot>/retry")
@auth.rule("user")
def retry_bot(bot: int) -> Document:
    """Run the failed jobs again."""
    with connection() as conn:
        bot_owner(conn, bot)
        return {"retried": _retry(conn, bot)}


@blueprint.patch("/<int:bot>")
@auth.rule("user")
@json_body
def change_bot(bot: int, json: BotChange) -> Document:
    """Change a BOT's policy, name or limits, also while it runs."""
    policies = parse_policy(json.policy)
    with connection() as conn:
        bot_owner(conn, bot)
        given = json.model_fields_set
        values = {name: getattr(json, name) if name in given else None for name in _CHANGEABLE}
        changes = {
            **values,
            "bot": bot,
            "set_threshold": "tail_threshold" in given,
            "set_failover": "failover_after" in given,
        }
        if conn.execute(SQL["change"], changes).fetchone() is None:
            raise RequestError(f"max_replicas {json.max_replicas} is less than the BOT's quorum")
        summary = _summary(conn, bot)
    match = match_of(bot) if "policy" in given else None
    return {**summary, "warnings": policy_warnings(policies), "match": match}


@blueprint.get("/<int:bot>/manifest")
@auth.rule("user")
def show_manifest(bot: int) -> Document:
    """Give what the project key signs."""
    with connection() as conn:
        bot_owner(conn, bot)
        text, signature = _manifest(conn, bot)
    signed = base64.b64encode(signature).decode() if signature else None
    return {"text": text, "id": manifest_id(text), "signature": signed}


@blueprint.put("/<int:bot>/signature")
@auth.rule("user")
@json_body
def sign_bot(bot: int, json: Signature) -> Document:
    """Attach a signature that was made where the project key is."""
    with connection() as conn:
        bot_owner(conn, bot)
        signature = _decode(json.signature)
        if not verify_manifest(_project_key(conn), _manifest(conn, bot)[0], signature):
            raise RequestError("signature: it is not the project key's over this BOT's manifest")
        conn.execute(SQL["sign"], {"bot": bot, "signature": signature})
        return _summary(conn, bot)


_CHANGEABLE = (
    "policy", "name", "tail_threshold", "tail_sticky", "max_attempts", "max_replicas",
    "failover_after",
)  # fmt: skip


def _signer() -> Sign | None:
    """Return what signs this submission: the project's key, for an operator if so configured."""
    settings = current().settings
    if not (settings.sign_on_submit and auth.key().is_operator):
        return None
    return partial(keys.sign_manifest, keys.load_private(settings.project_key_path))


def _submitted(bot: int) -> Document:
    """Tell what became of a submission; the policy is looked at without a connection in hand."""
    with connection() as conn:
        found = _summary(conn, bot)
        details = _details_row(conn, bot)
    return {
        "id": bot,
        "state": found["state"],
        "jobs_total": found["jobs_total"],
        "signed_for_boinc": details["signed_for_boinc"],
        "boinc_unsuitable": details["boinc_unsuitable"],
        "boinc_url": current().stock_clients.url,
        "warnings": policy_warnings(parse_policy(details["policy"])),
        "match": match_of(bot),
    }


def _summaries(conn: Connection, **wanted: Any) -> list[Document]:
    values = {"mine": None, "state": None, "bot": None, "limit": 1, **wanted}
    with conn.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(SQL["summaries"], values).fetchall()


def _summary(conn: Connection, bot: int) -> Document:
    return _summaries(conn, bot=bot)[0]


def _details_row(conn: Connection, bot: int) -> Document:
    with conn.cursor(row_factory=dict_row) as cursor:
        row = cursor.execute(SQL["details"], {"bot": bot}).fetchone()
    assert row is not None, "the caller has seen the BOT"
    return row


def _details(conn: Connection, bot: int, summary: Document) -> Document:
    row = _details_row(conn, bot)
    manifest = Manifest.from_text(row.pop("manifest"))
    rate = _rate(conn, bot)
    sent: dict[str, int] = dict(conn.execute(SQL["sent"], {"bot": bot}).fetchall())
    return {
        **row,
        "command": manifest.command,
        "resources": manifest.resources,
        "jobs_per_second": rate,
        "eta_seconds": _eta(summary, rate),
        "replicas": {
            "made": sum(sent.values()),
            "running": summary["jobs_running"],
            "by_reason": sent,
        },
    }


def _rate(conn: Connection, bot: int) -> float | None:
    row = conn.execute(SQL["rate"], {"bot": bot}).fetchone()
    return float(row[0]) if row and row[0] is not None else None


def _eta(summary: Document, rate: float | None) -> float | None:
    if summary["state"] != "running" or not rate:
        return None
    return float(summary["jobs_left"] / rate)


def _retry(conn: Connection, bot: int) -> int:
    """Turn the failed jobs into unsent replicas of the next round; return how many."""
    with conn.transaction():
        row = conn.execute(SQL["lock"], {"bot": bot}).fetchone()
        if row is None or row[0] in ("open", "cancelled"):
            raise Conflict(f"BOT {bot} is {row[0] if row else 'gone'}, there is nothing to retry")
        retried = conn.execute(MOVES["requeue_failed"], {"bot": bot}).rowcount
        if retried:
            conn.execute(SQL["count_queued"], {"bot": bot, "more": retried})
            conn.execute(SQL["next_round"], {"bot": bot, "retried": retried})
        return retried


def _manifest(conn: Connection, bot: int) -> tuple[str, bytes | None]:
    row = conn.execute(SQL["manifest"], {"bot": bot}).fetchone()
    assert row is not None, "the caller has seen the BOT"
    return row[0], row[1]


def _project_key(conn: Connection) -> bytes:
    row = conn.execute(SQL["project_key"]).fetchone()
    return bytes.fromhex(row[0]) if row else b""


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise RequestError("signature: expected base64") from None
