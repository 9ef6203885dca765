"""The native protocol's message model: dataclasses and their JSON form, version 2.

A client of version 1 cannot check what it runs, so that a server gives it only BOTs that were
submitted before version 2.  The requests are the same.

One model serves every kind of client; the BOINC adapter translates into it, too.
Decoding is bounded and total: any input becomes a message or a `ProtocolError`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple

from gridbot_client.protocol import cached, fields, traces

# Part of the message model for all who use it.
from gridbot_client.protocol.fields import MAX_BIGINT as MAX_BIGINT
from gridbot_client.protocol.fields import MAX_INT as MAX_INT
from gridbot_client.protocol.fields import MAX_NAME_BYTES as MAX_NAME_BYTES
from gridbot_client.protocol.fields import STREAMS
from gridbot_client.protocol.fields import ProtocolError as ProtocolError
from gridbot_client.protocol.fields import Scalar as Scalar
from gridbot_client.protocol.fields import file_name as file_name
from gridbot_client.protocol.job_table import MAX_PROOF_BYTES
from gridbot_client.protocol.manifest import PLACEHOLDER_TYPES as PLACEHOLDER_TYPES
from gridbot_client.protocol.manifest import FileRef as FileRef
from gridbot_client.protocol.manifest import JobInput as JobInput
from gridbot_client.protocol.manifest import JobRange as JobRange
from gridbot_client.protocol.manifest import Manifest as Manifest
from gridbot_client.protocol.manifest import RequestedWalls as RequestedWalls
from gridbot_client.protocol.manifest import Resources as Resources
from gridbot_client.protocol.manifest import file_ref as file_ref
from gridbot_client.protocol.manifest import manifest_id as manifest_id
from gridbot_client.protocol.manifest import resources as resources
from gridbot_client.protocol.preferences import (
    AccountPreferences,
    account_preferences,
    account_preferences_json,
)
from gridbot_client.protocol.signatures import KEY_BYTES, Introduction, Revocation
from gridbot_client.protocol.traces import TracedBot

VERSION = 2
SUPPORTED = (1, 2)  # by a server

# Outputs up to this size travel inside the report; larger ones are uploaded first.
INLINE_OUTPUT_BYTES = 16 * 1024
# Bytes kept of the end of a replica's stdout and stderr, where errors are.
LOG_TAIL_BYTES = 64 * 1024
MAX_KEY_BYTES = 100
MAX_WANT = 10_000
MAX_REPORTS = 256  # per request; a client with more sends them in several requests
MAX_HOLDING = 4096
MAX_MANIFESTS = 1000  # that a client says it has
MAX_AHEAD = 50  # BOTs of which a client says how many replicas it may hold
MAX_OUTPUTS = 256  # per replica
MAX_INTRODUCTIONS = 100  # of the keys that signed one BOT
MAX_REVOCATIONS = 10_000
MAX_SECONDS = 1e9
MAX_FOLLOWED = 100  # streams of one client that are followed
MAX_LIVE_POSITIONS = 100  # of replicas, in a request of who follows
MAX_PIECE_BYTES = 128 << 10  # of one stream in a request
MAX_LIVE_BYTES = 256 << 10  # of all
MAX_HOST_ATTRIBUTES = 100
MAX_ATTRIBUTE_NAME_BYTES = 100
MAX_ATTRIBUTE_BYTES = 1000  # of a host's text
# Of its owner's policy: twice the limit of a policy, so that a policy over its limit is refused
# as a policy and does not make the whole request malformed.
MAX_REQUIREMENTS_BYTES = 8192

How = Literal["success", "error"]

# Reasons for making a replica; the same words in the database, JSON and `bot show`.
WHY = ("first", "quorum", "expired", "error", "tail", "retry", "silent", "gang")

_REASON = re.compile(r"[a-z][a-z0-9_]{0,39}")


class ReplicaId(NamedTuple):
    """Id of one replica of one job, unique on its server."""

    bot: int
    seq: int
    replica: int

    def __str__(self) -> str:
        return f"{self.bot}-{self.seq}-{self.replica}"


@dataclass(frozen=True, slots=True)
class Output:
    """One output file of a replica; `content` is set if it is sent inside the report."""

    name: str
    sha256: str
    size: int
    content: bytes | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """Report of one ended replica."""

    id: ReplicaId
    how: How
    reason: str = ""  # a code such as exit_nonzero, time_limit, missing_output; empty on success
    exit_code: int | None = None
    cpu_seconds: float = 0.0
    wall_seconds: float = 0.0
    outputs: tuple[Output, ...] = ()
    stdout: str = ""  # the last LOG_TAIL_BYTES
    stderr: str = ""


class Ahead(NamedTuple):
    """The most replicas of a BOT that a client holds at once, because it knows them to be short."""

    bot: int
    replicas: int


class ReplicaProgress(NamedTuple):
    """How far a replica's program is, as it says itself: from 0 to 1."""

    bot: int
    seq: int
    replica: int
    part: float


class Followed(NamedTuple):
    """A stream of a running replica that somebody follows, and how much of it the server has."""

    bot: int
    seq: int
    replica: int
    stream: str
    at: int


@dataclass(frozen=True, slots=True)
class LiveOutput:
    """What a running replica has printed, from a place in its stream on."""

    id: ReplicaId
    stream: str
    at: int
    content: bytes


@dataclass(frozen=True, slots=True)
class WorkRequest:
    """One request for work: reports, replicas held, and up to `want` replicas asked for.

    `key` is its idempotency key: a repeated request gets the same leases.  `seqno` rises by one
    per new request, so that the server notices copies of a client.
    """

    key: str
    seqno: int
    host: Mapping[str, Scalar]
    want: int
    holding: tuple[ReplicaId, ...] = ()
    reports: tuple[Report, ...] = ()
    manifests: tuple[str, ...] = ()  # ids that the client has already
    wait: float = 0.0  # seconds for which the reply may wait for work
    ahead: tuple[Ahead, ...] = ()
    preferences: int | None = None  # version of the account's that it follows; None: it does not
    unstarted: int = 0  # the last of `holding`: not begun, and perhaps long; may be called back
    progress: tuple[ReplicaProgress, ...] = ()
    live: tuple[LiveOutput, ...] = ()  # of what the last reply's `follow` named
    cached: tuple[str, ...] | None = None  # marks of its cache's files; None: as told before
    protocol: int = VERSION


@dataclass(frozen=True, slots=True)
class Assignment:
    """One replica to run: its arguments, and the seconds until its deadline.

    `proof` shows that the job belongs to the signed BOT (`job_table.Proof`); the job of a range has
    none.
    """

    id: ReplicaId
    manifest: str
    args: Mapping[str, Scalar]
    deadline_seconds: float
    inputs: tuple[FileRef, ...] = ()  # the job's own, beside the manifest's
    proof: bytes = b""


@dataclass(frozen=True, slots=True)
class SignedManifest:
    """A manifest's text with the signatures on it.

    `signature` is by the project key `project_key`, `owner_signature` by the manifest's own
    `owner_key`; None where that key has not signed.  `introductions` lead to these keys from older
    ones.
    """

    text: str
    signature: bytes | None = None
    owner_signature: bytes | None = None
    project_key: bytes = b""
    introductions: tuple[Introduction, ...] = ()
    traced: TracedBot | None = None  # said by the server, signed by nobody


@dataclass(frozen=True, slots=True)
class WorkReply:
    """Reply to a request for work.  The client drops `acks` and ends `abort`."""

    epoch: int
    next_request_seconds: float
    acks: tuple[ReplicaId, ...] = ()
    reupload: tuple[ReplicaId, ...] = ()  # their outputs never arrived; upload and report again
    abort: tuple[ReplicaId, ...] = ()
    assignments: tuple[Assignment, ...] = ()
    manifests: Mapping[str, SignedManifest] = field(default_factory=dict)
    message: str = ""  # why there is no work, for a human
    preferences: AccountPreferences | None = None  # if the client has another version of them
    call_back: tuple[ReplicaId, ...] = ()  # to be returned unless begun: others are more urgent
    follow: tuple[Followed, ...] = ()  # whose output the next request is to bring


# --- encoding -------------------------------------------------------------------------------


def encode_request(request: WorkRequest) -> bytes:
    """JSON body of `POST /rpc`."""
    return _dump(
        {
            "protocol": request.protocol,
            "key": request.key,
            "seqno": request.seqno,
            "host": dict(request.host),
            "want": request.want,
            "holding": request.holding,
            "reports": [_report_json(report) for report in request.reports],
            "manifests": request.manifests,
            **({"wait": request.wait} if request.wait else {}),
            **({"ahead": request.ahead} if request.ahead else {}),
            **({} if request.preferences is None else {"preferences": request.preferences}),
            **({"unstarted": request.unstarted} if request.unstarted else {}),
            **({"progress": request.progress} if request.progress else {}),
            **({"live": [_live_json(piece) for piece in request.live]} if request.live else {}),
            **({} if request.cached is None else {"cached": request.cached}),
        }
    )


def encode_reply(reply: WorkReply) -> bytes:
    """JSON body of the reply to `POST /rpc`."""
    told = reply.preferences
    return _dump(
        {
            "protocol": VERSION,
            "epoch": reply.epoch,
            "next_request_seconds": reply.next_request_seconds,
            "acks": reply.acks,
            "reupload": reply.reupload,
            "abort": reply.abort,
            "assignments": [assignment_json(item) for item in reply.assignments],
            "manifests": {name: manifest_json(item) for name, item in reply.manifests.items()},
            "message": reply.message,
            **({} if told is None else {"preferences": account_preferences_json(told)}),
            **({"call_back": reply.call_back} if reply.call_back else {}),
            **({"follow": reply.follow} if reply.follow else {}),
        }
    )


def assignment_json(item: Assignment) -> dict[str, Any]:
    """JSON form of one assignment."""
    return {
        "id": item.id,
        "manifest": item.manifest,
        "args": dict(item.args),
        "deadline_seconds": item.deadline_seconds,
        "inputs": [asdict(ref) for ref in item.inputs],
        "proof": _base64(item.proof or None),
    }


def manifest_json(item: SignedManifest) -> dict[str, Any]:
    """JSON form of a signed manifest."""
    return {
        "text": item.text,
        "signature": _base64(item.signature),
        "owner_signature": _base64(item.owner_signature),
        "project_key": _base64(item.project_key or None),
        "introductions": [introduction_json(made) for made in item.introductions],
        **({"traced": _traced_json(item.traced)} if item.traced else {}),
    }


def _traced_json(item: TracedBot) -> dict[str, Any]:
    return {traces.HEADER: item.trace.header(), "jobs": item.jobs}


def introduction_json(item: Introduction) -> dict[str, str]:
    """JSON form of an introduction."""
    named = {"old": item.old, "new": item.new, "signature": item.signature}
    return {name: base64.b64encode(value).decode() for name, value in named.items()}


def _report_json(report: Report) -> dict[str, Any]:
    return {
        "id": report.id,
        "how": report.how,
        "reason": report.reason,
        "exit_code": report.exit_code,
        "cpu_seconds": report.cpu_seconds,
        "wall_seconds": report.wall_seconds,
        "outputs": [
            {
                "name": output.name,
                "sha256": output.sha256,
                "size": output.size,
                "content": _base64(output.content),
            }
            for output in report.outputs
        ],
        "stdout": report.stdout,
        "stderr": report.stderr,
    }


def _dump(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _base64(content: bytes | None) -> str | None:
    return None if content is None else base64.b64encode(content).decode()


# --- decoding -------------------------------------------------------------------------------


def decode_request(body: bytes, loads: Callable[[bytes], Any] = json.loads) -> WorkRequest:
    """Decode the body of `POST /rpc`; times are clamped, sizes bounded.  Raises ProtocolError."""
    raw = _versioned(body, loads, SUPPORTED)
    holding = _replica_ids(raw, "holding", MAX_HOLDING)
    return WorkRequest(
        protocol=raw["protocol"],
        key=fields.string(raw, "key", MAX_KEY_BYTES),
        seqno=fields.integer(raw, "seqno", 0, MAX_BIGINT),
        host=host_attributes(raw.get("host", {})),
        want=fields.integer(raw, "want", 0, MAX_WANT),
        holding=holding,
        reports=tuple(_report(item) for item in fields.listing(raw, "reports", MAX_REPORTS)),
        manifests=tuple(
            fields.sha256(item, "manifests")
            for item in fields.listing(raw, "manifests", MAX_MANIFESTS)
        ),
        wait=fields.number(raw, "wait", 0.0, MAX_SECONDS),
        ahead=tuple(_ahead(item) for item in fields.listing(raw, "ahead", MAX_AHEAD)),
        preferences=None
        if raw.get("preferences") is None
        else fields.integer(raw, "preferences", 0, MAX_BIGINT),
        unstarted=fields.integer(raw, "unstarted", 0, len(holding), default=0),
        progress=tuple(map(_progress, fields.listing(raw, "progress", MAX_HOLDING))),
        live=tuple(map(_live, fields.listing(raw, "live", MAX_FOLLOWED))),
        cached=None
        if raw.get("cached") is None
        else tuple(map(_cached, fields.listing(raw, "cached", cached.MAX_TOLD))),
    )


def decode_reply(body: bytes) -> WorkReply:
    """Decode the reply to `POST /rpc`.  Raises ProtocolError."""
    raw = _versioned(body, json.loads, (VERSION,))
    return WorkReply(
        epoch=fields.integer(raw, "epoch", 0, MAX_BIGINT),
        next_request_seconds=fields.number(raw, "next_request_seconds", 0.0, 86_400.0),
        acks=_replica_ids(raw, "acks", MAX_HOLDING),
        reupload=_replica_ids(raw, "reupload", MAX_HOLDING),
        abort=_replica_ids(raw, "abort", MAX_HOLDING),
        assignments=tuple(_assignment(item) for item in fields.listing(raw, "assignments", 10_000)),
        manifests={
            fields.sha256(name, "manifests"): _signed_manifest(item)
            for name, item in fields.mapping(raw.get("manifests", {}), "manifests").items()
        },
        message=fields.string(raw, "message", 4000, default=""),
        preferences=None
        if raw.get("preferences") is None
        else account_preferences(raw["preferences"]),
        call_back=_replica_ids(raw, "call_back", MAX_HOLDING),
        follow=tuple(map(_followed, fields.listing(raw, "follow", MAX_FOLLOWED))),
    )


def _ahead(raw: object) -> Ahead:
    if isinstance(raw, list) and list(map(type, raw)) == [int] * 2 and is_ahead(raw):
        return Ahead(*raw)
    raise ProtocolError(f"ahead: expected [bot, replicas], got {fields.kind(raw)}")


def _progress(raw: object) -> ReplicaProgress:
    if isinstance(raw, list) and len(raw) == 4 and type(raw[3]) in (int, float):
        id = _replica_id(raw[:3], "progress")
        if is_part(raw[3]):
            return ReplicaProgress(*id, float(raw[3]))
    raise ProtocolError(
        f"progress: expected [bot, seq, replica, part from 0 to 1], got {fields.kind(raw)}"
    )


def _followed(raw: object) -> Followed:
    if isinstance(raw, list) and len(raw) == 5 and type(raw[4]) is int and raw[4] >= 0:
        id = _replica_id(raw[:3], "follow")
        return Followed(*id, fields.one_of(raw[3], "follow", STREAMS), min(raw[4], MAX_BIGINT))
    raise ProtocolError(
        f"follow: expected [bot, seq, replica, stream, offset], got {fields.kind(raw)}"
    )


def _live_json(piece: LiveOutput) -> dict[str, Any]:
    named = {"id": piece.id, "stream": piece.stream, "at": piece.at}
    return {**named, "content": _base64(piece.content)}


def _live(raw: object) -> LiveOutput:
    item = fields.mapping(raw, "live")
    piece = LiveOutput(
        _replica_id(item.get("id"), "live.id"),
        fields.one_of(item.get("stream"), "live.stream", STREAMS),
        fields.integer(item, "at", 0, MAX_BIGINT),
        fields.content(item.get("content"), "live.content") or b"",
    )
    if not is_piece(piece):
        raise ProtocolError(f"live.content: expected 1 to {MAX_PIECE_BYTES} bytes")
    return piece


def is_piece(piece: LiveOutput) -> bool:
    """True for a piece of a stream within its bounds."""
    is_placed = is_replica_id(piece.id) and piece.stream in STREAMS and 0 <= piece.at <= MAX_BIGINT
    return is_placed and 0 < len(piece.content) <= MAX_PIECE_BYTES


def _cached(raw: object) -> str:
    if isinstance(raw, str) and cached.is_mark(raw):
        return raw
    raise ProtocolError(f"cached: expected 16 lower-case hex digits, got {fields.kind(raw)}")


def is_part(number: float) -> bool:
    """True for a number from 0 to 1."""
    return 0.0 <= number <= 1.0


def is_ahead(numbers: Sequence[int]) -> bool:
    """True for a BOT and a number of replicas within their bounds."""
    bot, replicas = numbers
    return 0 <= bot <= MAX_BIGINT and 0 <= replicas <= MAX_WANT


def _report(raw: object) -> Report:
    item = fields.mapping(raw, "report")
    reason = fields.string(item, "reason", 40, default="")
    if not is_reason(reason):
        raise ProtocolError(f"report.reason: {reason!r} is not a reason code")
    exit_code = item.get("exit_code")
    how = fields.one_of(item.get("how"), "report.how", ("success", "error"))
    return Report(
        id=_replica_id(item.get("id"), "report.id"),
        how="success" if how == "success" else "error",
        reason=reason,
        exit_code=None
        if exit_code is None
        else fields.integer(item, "exit_code", -MAX_INT - 1, MAX_INT),
        cpu_seconds=fields.number(item, "cpu_seconds", 0.0, MAX_SECONDS),
        wall_seconds=fields.number(item, "wall_seconds", 0.0, MAX_SECONDS),
        outputs=_outputs(fields.listing(item, "outputs", MAX_OUTPUTS)),
        stdout=_log_text(item, "stdout"),
        stderr=_log_text(item, "stderr"),
    )


def _outputs(raw: Sequence[object]) -> tuple[Output, ...]:
    outputs = tuple([_output(output) for output in raw])
    if len(outputs) > 1 and len({output.name for output in outputs}) < len(outputs):
        raise ProtocolError("report.outputs: two outputs have the same name")
    return outputs


def _output(raw: object) -> Output:
    item = fields.mapping(raw, "output")
    sha256 = fields.sha256(item.get("sha256"), "output.sha256")
    size = fields.integer(item, "size", 0, MAX_BIGINT)
    content = fields.content(item.get("content"), "output.content")
    if content is not None:
        if len(content) > INLINE_OUTPUT_BYTES:
            raise ProtocolError(
                f"output.content: {len(content)} bytes, at most {INLINE_OUTPUT_BYTES}"
            )
        if len(content) != size or hashlib.sha256(content).hexdigest() != sha256:
            raise ProtocolError(f"output.content: does not match the hash {sha256}")
    return Output(file_name(item.get("name"), "output.name"), sha256, size, content)


def _assignment(raw: object) -> Assignment:
    item = fields.mapping(raw, "assignment")
    return Assignment(
        id=_replica_id(item.get("id"), "assignment.id"),
        manifest=fields.sha256(item.get("manifest"), "assignment.manifest"),
        args=job_args(item.get("args")),
        deadline_seconds=fields.number(item, "deadline_seconds", 0.0, MAX_SECONDS),
        inputs=tuple(file_ref(ref) for ref in fields.listing(item, "inputs", 10_000)),
        proof=_bounded(item, "proof", MAX_PROOF_BYTES),
    )


def _signed_manifest(raw: object) -> SignedManifest:
    item = fields.mapping(raw, "manifest")
    return SignedManifest(
        fields.string(item, "text", 1 << 22),
        fields.content(item.get("signature"), "manifest.signature"),
        fields.content(item.get("owner_signature"), "manifest.owner_signature"),
        _bounded(item, "project_key", KEY_BYTES),
        introductions(item),
        _traced(item.get("traced")),
    )


def _traced(raw: object) -> TracedBot | None:
    """Read the trace of a BOT; one that cannot be read is ignored, as the W3C says."""
    if raw is None:
        return None
    item = fields.mapping(raw, "traced")
    trace = traces.read_traceparent(fields.string(item, traces.HEADER, 512))
    jobs = fields.integer(item, "jobs", 0, traces.MOST_TRACED_JOBS)
    return TracedBot(trace, jobs) if trace else None


def introductions(raw: Mapping[str, Any]) -> tuple[Introduction, ...]:
    """Validate a list of introductions; whether their keys made them is for `is_valid`."""
    return tuple(
        Introduction(
            _bounded(item, "old", KEY_BYTES),
            _bounded(item, "new", KEY_BYTES),
            _bounded(item, "signature", 64),
        )
        for found in fields.listing(raw, "introductions", MAX_INTRODUCTIONS)
        for item in [fields.mapping(found, "introduction")]
    )


def read_revocations(raw: object) -> tuple[Revocation, ...]:
    """Validate a list of revocations; whether their keys made them is for `is_valid`."""
    found = [
        fields.mapping(item, "revocation")
        for item in fields.listing(fields.mapping(raw, "the list"), "revocations", MAX_REVOCATIONS)
    ]
    return tuple(
        Revocation(
            fields.sha256(item.get("subject"), "revocation.subject"),
            bytes.fromhex(fields.sha256(item.get("signer"), "revocation.signer")),
            _bounded(item, "signature", 64),
        )
        for item in found
    )


def revocation_json(item: Revocation) -> dict[str, str | None]:
    """JSON form of a revocation."""
    signer, signature = item.signer.hex(), _base64(item.signature)
    return {"subject": item.subject, "signer": signer, "signature": signature}


def _bounded(raw: Mapping[str, Any], name: str, most: int) -> bytes:
    found = fields.content(raw.get(name), name) or b""
    if len(found) > most:
        raise ProtocolError(f"{name}: {len(found)} bytes, at most {most}")
    return found


def job_args(raw: object) -> dict[str, Scalar]:
    """Validate the arguments of one job: placeholder name to a string or a finite number."""
    return {
        fields.text(name, "args", 100): fields.scalar(value, f"args.{name}", 100_000)
        for name, value in fields.mapping(raw, "args").items()
    }


def host_attributes(raw: object) -> dict[str, Scalar]:
    """Validate a host's attributes: scalars only, strings bounded, numbers finite."""
    attributes = fields.mapping(raw, "host")
    if len(attributes) > MAX_HOST_ATTRIBUTES:
        raise ProtocolError(f"host: {len(attributes)} attributes, at most {MAX_HOST_ATTRIBUTES}")
    return {
        fields.text(name, "host", MAX_ATTRIBUTE_NAME_BYTES): fields.scalar(
            value, f"host.{name}", max_attribute_bytes(name)
        )
        for name, value in attributes.items()
    }


def max_attribute_bytes(name: str) -> int:
    """Limit of the text of a host's attribute."""
    return MAX_REQUIREMENTS_BYTES if name.lower() == "requirements" else MAX_ATTRIBUTE_BYTES


def _versioned(
    body: bytes, loads: Callable[[bytes], Any], supported: Sequence[int]
) -> Mapping[str, Any]:
    raw = fields.mapping(fields.parse(body, loads), "message")
    found = raw.get("protocol")
    if type(found) is not int or found not in supported:
        listed = " and ".join(map(str, supported))
        raise ProtocolError(f"unsupported protocol version {found!r}; supported: {listed}")
    return raw


def _replica_id(raw: object, where: str) -> ReplicaId:
    if isinstance(raw, list) and list(map(type, raw)) == [int] * 3 and is_replica_id(raw):
        return ReplicaId(*raw)
    raise ProtocolError(f"{where}: expected [bot, seq, replica], got {fields.kind(raw)}")


def is_replica_id(numbers: Sequence[int]) -> bool:
    """True for numbers within the bounds of a replica's id."""
    bot, seq, replica = numbers
    return 0 <= bot <= MAX_BIGINT and 0 <= seq <= MAX_BIGINT and 0 <= replica <= MAX_INT


def is_reason(text: str) -> bool:
    """True for the code of a reason, or nothing."""
    return not text or _REASON.fullmatch(text) is not None


def _replica_ids(raw: Mapping[str, Any], name: str, most: int) -> tuple[ReplicaId, ...]:
    return tuple(_replica_id(item, name) for item in fields.listing(raw, name, most))


def _log_text(raw: Mapping[str, Any], name: str) -> str:
    """End of a log; truncated, not refused, because a program may print anything."""
    value = raw.get(name, "")
    if not isinstance(value, str):
        raise ProtocolError(f"{name}: expected a string, got {fields.kind(value)}")
    if fields.is_clean(value, LOG_TAIL_BYTES):
        return value
    clean = value.encode("utf-8", "replace")[-LOG_TAIL_BYTES:].decode("utf-8", "replace")
    return clean.replace("\x00", "\N{REPLACEMENT CHARACTER}")
