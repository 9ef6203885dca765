"""BOTs: submit, list, look at, change, cancel, retry, sign."""

from __future__ import annotations

import base64
import time
from dataclasses import asdict
from http import HTTPStatus
from typing import Any, NamedTuple, get_args

import orjson
from flask import Blueprint, request

from gridbot_client.protocol.messages import Manifest, manifest_id
from gridbot_client.protocol.traces import HEADER
from gridbot_server.api.access import bot_owner, manifest_of, mine
from gridbot_server.api.content import reader
from gridbot_server.api.matching import MOST_CLIENTS, explanation_of, match_of
from gridbot_server.api.parameters import Parameter, number, one_of
from gridbot_server.api.schema import answers, body_limit, json_body, query
from gridbot_server.api.signing import decode
from gridbot_server.bots import signing
from gridbot_server.bots.outputs import check_sizes
from gridbot_server.bots.retry import NewVersion, retry
from gridbot_server.bots.submission import ProjectSigner, start, submit
from gridbot_server.bots.validation import parse_policy, policy_warnings
from gridbot_server.errors import Conflict, RequestError
from gridbot_server.http import auth
from gridbot_server.http.long_poll import MOST_SECONDS, wait_for_news
from gridbot_server.http.services import connection, current
from gridbot_server.matching.progress import JobsSoFar, progress
from gridbot_server.models.requests import BotChange, Retry, Signature, SubmissionRequest
from gridbot_server.models.responses.bots import (
    BotDetails,
    Bots,
    BotSummary,
    ChangedBot,
    FailureDigest,
    FailureGroup,
    HostCommand,
    ManifestText,
    PolicyVersion,
    PolicyVersions,
    ReplicaLimits,
    Replicas,
    Retried,
    State,
    Submitted,
    WordOfOverlay,
)
from gridbot_server.models.responses.explanation import Explanation, HostExplanation
from gridbot_server.signing import keys
from gridbot_server.storage import growing, rows, sql
from gridbot_server.storage.db import Connection

SQL = sql.load("bots.sql")
BRAKE = sql.load("brake.sql")

blueprint = Blueprint("bots", __name__, url_prefix="/api/v1/bots")


class _Rate(NamedTuple):
    """How fast a BOT gets on; unknown before its first outcome."""

    jobs_per_second: float | None


class _Progress(NamedTuple):
    """What programs of jobs in progress say; nothing if none does."""

    average: float | None
    jobs: float  # that their parts come to
    left_seconds: float | None


_MOST_GROUPS = 100


class _Group(NamedTuple):
    """Failed replicas that are alike, and one of them."""

    reason: str
    exit_code: int | None
    line: str
    replicas: int
    jobs: int
    hosts: int
    seq: int
    replica: int
    args: str | None  # JSON

    def told(self) -> FailureGroup:
        """As it is answered."""
        code = self.exit_code
        return FailureGroup(
            reason=self.reason,
            exit_code=code if code is None or code >= 0 else None,
            signal=-code if code is not None and code < 0 else None,
            line=self.line,
            replicas=self.replicas,
            jobs=self.jobs,
            hosts=self.hosts,
            seq=self.seq,
            replica=self.replica,
            args=orjson.loads(self.args or "{}"),
        )


def _host_name(name: str, text: str) -> str:
    if not text.isprintable():
        raise RequestError(f"{name}: expected a number or a name")
    return text


@blueprint.post("")
@auth.rule("user")
@body_limit(lambda settings: settings.max_jobs_bytes)
@json_body
@answers(HTTPStatus.OK, HTTPStatus.CREATED, errors=(HTTPStatus.CONFLICT,))
def submit_bot(json: SubmissionRequest) -> tuple[Submitted, HTTPStatus]:
    """Submit a BOT; the same submit key always answers with the same BOT.

    It is created (201), or was by an earlier request (200).  With a `traceparent` header it
    belongs to that trace, if this server traces.
    """
    largest = current().settings.max_output_bytes
    check_sizes(json.outputs, json.max_output_bytes, json.resources.disk_mb, largest)
    tracing = current().tracing
    traced = tracing.begin(request.headers.get(HEADER), time.time()) if tracing else None
    with connection() as conn:
        submitted = submit(
            conn, auth.key(), json, current().stock_clients, project_signer(),
            traced.bot if traced else None,
        )  # fmt: skip
    if tracing and traced and submitted.is_new:
        tracing.submitted(submitted.bot, traced, time.time())
    status = HTTPStatus.CREATED if submitted.is_new else HTTPStatus.OK
    return _submitted(submitted.bot), status


@blueprint.post("/<int:bot>/start")
@auth.rule("user")
@answers(errors=(HTTPStatus.BAD_REQUEST, HTTPStatus.CONFLICT))
def start_bot(bot: int) -> Submitted:
    """Let a BOT whose jobs were streamed run."""
    with connection() as conn:
        bot_owner(conn, bot)
        start(conn, bot)
    return _submitted(bot)


@blueprint.get("")
@auth.rule("user")
@query(
    state=one_of("Only those in this state.", get_args(State)),
    group=Parameter("Only those of this group.", {"type": "string"}),
    limit=number("How many at most.", default=1000, most=10_000),
)
@answers()
def list_bots(state: str | None, group: str | None, limit: int) -> Bots:
    """List BOTs, the latest first."""
    with connection() as conn:
        return Bots(bots=_summaries(conn, mine=mine(), state=state, group=group, limit=limit))


@blueprint.get("/<int:bot>")
@auth.rule("user")
@query(wait=number("Seconds to wait for its end.", default=0, most=MOST_SECONDS))
@answers()
def show_bot(bot: int, wait: int) -> BotDetails:
    """Tell all about one BOT; with `wait`, once it has ended, or so many seconds are over."""
    if wait:
        with connection() as conn:
            bot_owner(conn, bot)
            goes_on = summary_of(conn, bot).state in ("open", "running")
        if goes_on:
            wait_for_news(bot, wait, reader(), until_end=True)
    found = details_of(bot)
    has_ended = found.state in ("done", "cancelled")
    return found if has_ended else found.model_copy(update={"match": match_of(bot)})


def details_of(bot: int) -> BotDetails:
    """Return all about a BOT that this key may touch, but how hosts suit it."""
    with connection() as conn:
        bot_owner(conn, bot)
        summary = summary_of(conn, bot)
        details = _details(conn, bot, summary)
    url = current().stock_clients.url
    return BotDetails(**dict(summary), **details, boinc_url=url, match=None)


@blueprint.get("/<int:bot>/explanation")
@auth.rule("user")
@query(host=Parameter("Only this host: its number or its name.", {"type": "string"}, _host_name))
@answers()
def explain_bot(bot: int, host: str | None) -> Explanation | HostExplanation:
    """Tell which hosts a BOT's policy and needs reject, and what to relax.

    With `host`, a number or a name, the same about that one alone.
    """
    return explained(bot, host)


def explained(
    bot: int, host: str | None = None, most: int = MOST_CLIENTS, policy: str | None = None
) -> Explanation | HostExplanation:
    """Explain a BOT that this key may touch, to the `most` clients that asked for work last.

    With a `policy`, as if it had that one.
    """
    with connection() as conn:
        bot_owner(conn, bot)
        found, details = summary_of(conn, bot), _details_row(conn, bot)
    overlay = {name: details[name] for name in WordOfOverlay.model_fields}
    return explanation_of(
        bot, found.state, host, growing=found.growing, held=found.held, overlay=overlay,
        most=most, policy=policy,
    )  # fmt: skip


@blueprint.post("/<int:bot>/cancel")
@auth.rule("user")
@answers()
def cancel_bot(bot: int) -> BotSummary:
    """Cancel a BOT; one that has ended stays as it is."""
    with connection() as conn:
        bot_owner(conn, bot)
        conn.execute(SQL["cancel"], {"bot": bot})
        return summary_of(conn, bot)


@blueprint.post("/<int:bot>/close")
@auth.rule("user")
@answers(errors=(HTTPStatus.CONFLICT,))
def close_bot(bot: int) -> BotSummary:
    """Let a growing BOT take no more jobs: it ends with those it has.

    One that was closed before, or was never growing, stays as it is.
    """
    with connection() as conn:
        bot_owner(conn, bot)
        growing.close(conn, [bot], growing.BY_OWNER)
        found = summary_of(conn, bot)
    if found.state == "open":
        raise Conflict(f"BOT {bot} is open: its submission is not complete")
    return found


@blueprint.post("/<int:bot>/hold")
@auth.rule("user")
@answers()
def hold_bot(bot: int) -> BotSummary:
    """Hold a BOT: nothing more of it is sent until it is resumed; what hosts have goes on.

    One that does not run, or is held already, stays as it is.
    """
    with connection() as conn:
        bot_owner(conn, bot)
        conn.execute(BRAKE["hold"], {"bot": bot, "why": f"{auth.key().owner_name} held it"})
        return summary_of(conn, bot)


@blueprint.post("/<int:bot>/resume")
@auth.rule("user")
@answers()
def resume_bot(bot: int) -> BotSummary:
    """Let a held BOT go on; it is not held again for its failures, and `max_failures` is lifted.

    One that is not held stays as it is.
    """
    with connection() as conn:
        bot_owner(conn, bot)
        conn.execute(BRAKE["resume"], {"bot": bot})
        return summary_of(conn, bot)


@blueprint.get("/<int:bot>/failures")
@auth.rule("user")
@answers()
def digest_failures(bot: int) -> FailureDigest:
    """Group failed replicas by reason, exit code and last line, numbers masked."""
    with connection() as conn:
        bot_owner(conn, bot)
        found = rows.read(conn, _Group, BRAKE["digest"], {"bot": bot, "limit": _MOST_GROUPS})
    return FailureDigest(groups=[group.told() for group in found])


@blueprint.post("/<int:bot>/retry")
@auth.rule("user")
@body_limit(lambda settings: settings.max_jobs_bytes)
@json_body
@answers(errors=(HTTPStatus.CONFLICT,))
def retry_bot(bot: int, json: Retry) -> Retried:
    """Run failed jobs again, all or some.

    With a new version of the manifest, all that is left runs that.  To repeat such a request
    changes nothing.
    """
    new = None
    if json.version:
        given = json.version
        asked = Manifest.from_text(given.text)
        most, disk = asked.max_output_bytes, asked.resources.disk_mb
        check_sizes(asked.outputs, most, disk, current().settings.max_output_bytes)
        new = NewVersion(
            given.text, decode(given.signature), [decode(part) for part in given.parts]
        )
    with connection() as conn:
        bot_owner(conn, bot)
        receipt = retry(conn, bot, json.jobs, new, project_signer())
    return Retried(retried=receipt.retried, version=receipt.version)


@blueprint.patch("/<int:bot>")
@auth.rule("user")
@json_body
@answers()
def change_bot(bot: int, json: BotChange) -> ChangedBot:
    """Change a BOT's policy, name or limits, also while it runs."""
    policies = parse_policy(json.policy)
    with connection() as conn, conn.transaction():
        bot_owner(conn, bot)
        given = json.model_fields_set
        if "policy" in given:
            conn.execute(SQL["keep_policy"], {"bot": bot})
        values = {name: getattr(json, name) if name in given else None for name in _CHANGEABLE}
        changes = {
            **values,
            "bot": bot,
            "assurance": policies.assurance,
            "set_threshold": "tail_threshold" in given,
            "set_failover": "failover_after" in given,
            "set_max_failures": "max_failures" in given,
        }
        if rows.fetch_value(conn, int, SQL["change"], changes) is None:
            raise RequestError(f"max_replicas {json.max_replicas} is less than the BOT's quorum")
        if "policy" in given:
            conn.execute(SQL["unbind"], {"bot": bot})
            conn.execute(SQL["note_policy"], {"bot": bot, "by": auth.key().owner})
        summary = summary_of(conn, bot)
    match = match_of(bot) if "policy" in given else None
    return ChangedBot(**dict(summary), warnings=policy_warnings(policies), match=match)


@blueprint.get("/<int:bot>/policies")
@auth.rule("user")
@answers()
def list_policies(bot: int) -> PolicyVersions:
    """List the policies that a BOT has had, the latest first, with who set them and when."""
    with connection() as conn:
        bot_owner(conn, bot)
        return PolicyVersions(
            policies=rows.read(conn, PolicyVersion, SQL["policies"], {"bot": bot})
        )


@blueprint.get("/<int:bot>/manifest")
@auth.rule("user")
@answers()
def show_manifest(bot: int) -> ManifestText:
    """Give what the keys of owner and project sign."""
    with connection() as conn:
        bot_owner(conn, bot)
        found = manifest_of(conn, bot)
    text = found.manifest
    return ManifestText(
        text=text,
        id=manifest_id(text),
        signature=_encode(found.signature),
        owner_signature=_encode(found.owner_signature),
    )


@blueprint.put("/<int:bot>/signature")
@auth.rule("user")
@json_body
@answers(errors=(HTTPStatus.CONFLICT,))
def sign_bot(bot: int, json: Signature) -> BotSummary:
    """Attach a signature that was made where the project's or the owner's key is."""
    with connection() as conn:
        bot_owner(conn, bot)
        parts = [decode(part) for part in json.parts]
        signing.sign_bot(conn, bot, decode(json.signature), parts)
        return summary_of(conn, bot)


_CHANGEABLE = (
    "policy", "name", "tail_threshold", "tail_sticky", "max_attempts", "max_replicas",
    "failover_after", "max_failures",
)  # fmt: skip


def project_signer() -> ProjectSigner | None:
    """Return what signs this submission: the project's key, for an operator if so configured."""
    settings = current().settings
    if not (settings.sign_on_submit and auth.key().is_operator):
        return None
    private = keys.load_private(settings.project_key_path)
    return ProjectSigner(private.public_key().public_bytes_raw(), private.sign)


def _submitted(bot: int) -> Submitted:
    """Tell what became of a submission; the policy is looked at without a connection in hand."""
    with connection() as conn:
        found = summary_of(conn, bot)
        details = _details_row(conn, bot)
    return Submitted(
        id=bot,
        state=found.state,
        jobs_total=found.jobs_total,
        jobs_reused=found.jobs_reused,
        signed_for_boinc=details["signed_for_boinc"],
        boinc_unsuitable=details["boinc_unsuitable"],
        boinc_url=current().stock_clients.url,
        warnings=policy_warnings(parse_policy(details["policy"])),
        match=match_of(bot),
    )


def _summaries(conn: Connection, **wanted: Any) -> list[BotSummary]:
    values = {"mine": None, "state": None, "bot": None, "group": None, "limit": 1, **wanted}
    return rows.read(conn, BotSummary, SQL["summaries"], values)


def summary_of(conn: Connection, bot: int) -> BotSummary:
    """Return a BOT as in a list; the caller has seen it."""
    return _summaries(conn, bot=bot)[0]


def _details_row(conn: Connection, bot: int) -> dict[str, Any]:
    row = rows.read_one(conn, dict, SQL["details"], {"bot": bot})
    assert row is not None, "the caller has seen the BOT"
    return row


def _details(conn: Connection, bot: int, summary: BotSummary) -> dict[str, Any]:
    row = _details_row(conn, bot)
    manifest = Manifest.from_text(row.pop("manifest"))
    rate = _rate(conn, bot)
    told = rows.fetch_only(conn, _Progress, SQL["progress"], {"bot": bot})
    eta = _eta(summary, rate, told)
    sent: dict[str, int] = rows.fetch_mapping(conn, SQL["sent"], {"bot": bot})
    running = summary.jobs_running
    return {
        **row,
        "command": manifest.command,
        "programs": [
            HostCommand(where=item.where, command=list(item.command)) for item in manifest.programs
        ],
        "resources": ReplicaLimits(**asdict(manifest.resources)),
        "jobs_per_second": rate,
        "eta_seconds": eta,
        "progress": progress_of(summary, rate, eta),
        "replicas": Replicas(
            made=sum(sent.values()), running=running, by_reason=sent, progress=told.average
        ),
    }


def _rate(conn: Connection, bot: int) -> float | None:
    return rows.fetch_only(conn, _Rate, SQL["rate"], {"bot": bot}).jobs_per_second


def progress_of(summary: BotSummary, rate: float | None, eta: float | None) -> str:
    """Return in a sentence how far a BOT is."""
    return progress(
        JobsSoFar(
            state=summary.state,
            total=summary.jobs_total,
            done=summary.jobs_done,
            failed=summary.jobs_failed,
            seconds=(summary.ended_at - summary.created_at).total_seconds()
            if summary.ended_at
            else None,
            jobs_per_second=rate,
            eta_seconds=eta,
        )
    )


def _eta(summary: BotSummary, rate: float | None, told: _Progress) -> float | None:
    """Seconds until the end: by the pace of jobs that ended, and how far others are.

    Of the last jobs, what their programs say counts.
    """
    is_stuck = summary.jobs_silent and not summary.jobs_running
    if summary.state != "running" or is_stuck:
        return None
    if told.left_seconds is not None and not summary.jobs_unsent:
        return told.left_seconds
    return max(0.0, summary.jobs_left - told.jobs) / rate if rate else None


def _encode(signature: bytes | None) -> str | None:
    return base64.b64encode(signature).decode() if signature else None
