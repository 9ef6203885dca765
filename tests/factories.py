"""Makes rows for tests, each valid by itself; what a test is about, it says."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from psycopg.types.json import Jsonb

from gridbot_client.protocol.messages import FileRef, Manifest, ReplicaId, manifest_id
from gridbot_client.protocol.signatures import fingerprint, manifest_statement
from gridbot_server.bots.job_parts import sign_parts, unsigned_parts
from gridbot_server.bots.validation import Seal, make_draft
from gridbot_server.models.requests import SubmissionRequest
from gridbot_server.signing import keys
from gridbot_server.storage.db import Connection

_numbers = itertools.count(1)

HOST: dict[str, str | int | float | bool] = {
    "Name": "box",
    "NumCpus": 4,
    "Memory": 8192,
    "Disk": 100_000,
    "OpSys": "LINUX",
    "Arch": "X86_64",
    "Platform": "linux-x86_64",
}


def make_owner(conn: Connection, name: str, **columns: Any) -> int:
    """Add an owner; `columns` are operator, share, max_jobs."""
    return _insert(conn, "owner", "id", name=name, **columns)


def make_key(conn: Connection, owner: int, scope: str = "user", **columns: Any) -> str:
    """Add a key and return it."""
    token, token_hash = keys.new_token(scope)
    _insert(conn, "token", "id", hash=token_hash, owner=owner, scope=scope, **columns)
    return token


def make_host(conn: Connection, owner: int, ad: Mapping[str, Any] = HOST, **columns: Any) -> int:
    """Add a machine."""
    identity = f"{owner}:machine{next(_numbers)}"
    return _insert(conn, "host", "id", identity=identity, owner=owner, ad=Jsonb(ad), **columns)


def make_client(
    conn: Connection, owner: int, host: int | None = None, **columns: Any
) -> tuple[int, str]:
    """Add a client, on a machine of its own unless one is given; return its id and token.

    It speaks today's protocol, and its user trusts the keys of their own account.
    """
    columns = {"protocol": 2, "trusts": [owner], **columns}
    token, token_hash = keys.new_token("client")
    host = make_host(conn, owner) if host is None else host
    client = _insert(conn, "client", "id", hash=token_hash, host=host, owner=owner, **columns)
    return client, token


def make_bot(conn: Connection, owner: int, jobs: int = 1, **columns: Any) -> int:
    """Add a running BOT whose jobs are a range, and which its owner has signed."""
    row = conn.execute("SELECT name FROM owner WHERE id = %s", [owner]).fetchone()
    assert row is not None
    values: dict[str, Any] = {
        "name": "scan",
        "submit_key": f"key{next(_numbers)}",
        "state": "running",
        "manifest": Manifest(row[0], ("echo", "{i}"), {"i": "int"}).text(),
        "version": 2,
        "owner_signature": bytes(64),
        "size": jobs,
        **columns,
    }
    bot = _insert(conn, "bot", "id", owner=owner, **values)
    conn.execute(
        "INSERT INTO job (bot, seq, args)"
        " SELECT %s, n, jsonb_build_object('i', n) FROM generate_series(0, %s - 1) AS n",
        [bot, jobs],
    )
    return bot


def make_lease(conn: Connection, replica: ReplicaId, client: int, **columns: Any) -> None:
    """Let a client hold a replica."""
    _insert(conn, "lease", "bot", **_replica(conn, replica, client), **_lease(columns))


def lease_with_input(conn: Connection, owner: int, client: int, content: bytes) -> ReplicaId:
    """Let a client hold the job of a BOT whose manifest has this content as an input."""
    ref = FileRef("data", hashlib.sha256(content).hexdigest(), len(content))
    bot = make_bot(conn, owner, manifest=Manifest("x", ("cat", "data"), inputs=(ref,)).text())
    make_lease(conn, replica := ReplicaId(bot, 0, 0), client)
    return replica


def make_ended(
    conn: Connection, replica: ReplicaId, client: int, how: str = "success", **columns: Any
) -> None:
    """Let a replica have ended on a client."""
    values = {**_replica(conn, replica, client), "sent_at": "now", "how": how, **columns}
    _insert(conn, "ended", "bot", **values)


def make_outcome(
    conn: Connection, replica: ReplicaId, client: int, outputs: Mapping[str, bytes]
) -> None:
    """Let a replica be the canonical one of its job, with outputs that travelled in its report."""
    make_ended(conn, replica, client, exit_code=0, cpu_seconds=1.5, wall_seconds=2.0, valid=True)
    for name, content in outputs.items():
        make_output(conn, replica, name, content)
    _add_outcome(conn, replica, canonical=replica.replica)


def make_failure(conn: Connection, replica: ReplicaId, client: int, reason: str) -> None:
    """Let a job have failed for good with its last replica."""
    make_ended(conn, replica, client, how="error", reason=reason, exit_code=1, stderr="oh no")
    _add_outcome(conn, replica, reason=reason)


def make_output(conn: Connection, replica: ReplicaId, name: str, content: bytes) -> None:
    """Add an output that travelled in a report."""
    sha256 = hashlib.sha256(content).digest()
    values = {"name": name, "sha256": sha256, "size": len(content), "content": content}
    _insert(conn, "output", "bot", **replica._asdict(), **values)


def submission(**changes: Any) -> dict[str, Any]:
    """Return the body of a `POST /bots` that is in order."""
    return {
        "submit_key": f"submission{next(_numbers)}",
        "name": "scan",
        "command": ["echo", "{i}"],
        "jobs": {"range": [0, 10, 1]},
        **changes,
    }


def json_lines(jobs: Sequence[object]) -> bytes:
    """Return jobs as the lines that are streamed into an open BOT."""
    return b"".join(json.dumps(job).encode() + b"\n" for job in jobs)


def _replica(conn: Connection, replica: ReplicaId, client: int) -> dict[str, Any]:
    row = conn.execute("SELECT host, owner FROM client WHERE id = %s", [client]).fetchone()
    assert row is not None
    held = {"client": client, "host": row[0], "owner": row[1]}
    return {**replica._asdict(), **held, "round": 0, "why": "first"}


def _lease(columns: Mapping[str, Any]) -> dict[str, Any]:
    return {"deadline": "tomorrow", "request_key": "request", **columns}


def _add_outcome(conn: Connection, replica: ReplicaId, **columns: Any) -> None:
    kind = "failed" if "reason" in columns else "done"
    row = conn.execute(
        f"UPDATE bot SET outcomes = outcomes + 1, {kind} = {kind} + 1 WHERE id = %s"
        " RETURNING outcomes",
        [replica.bot],
    ).fetchone()
    assert row is not None
    values = {"bot": replica.bot, "seq": replica.seq, "round": 0, "n": row[0], **columns}
    _insert(conn, "outcome", "bot", **values)


def _insert(conn: Connection, table: str, returning: str, **columns: Any) -> int:
    names, places = ", ".join(columns), ", ".join(f"%({name})s" for name in columns)
    statement = f"INSERT INTO {table} ({names}) VALUES ({places}) RETURNING {returning}"
    row = conn.execute(statement.encode(), columns).fetchone()
    assert row is not None
    return int(row[0])


def signed(conn: Connection, owner: int, body: dict[str, Any], **sealed: Any) -> dict[str, Any]:
    """Sign the body of a `POST /bots` with a key of its owner, which the database then knows.

    `sealed` are fields of the envelope that differ from the usual ones.
    """
    key = Ed25519PrivateKey.generate()
    public = key.public_key().public_bytes_raw()
    _insert(conn, "signing_key", "owner", owner=owner, key=public)
    row = conn.execute("SELECT name FROM owner WHERE id = %s", [owner]).fetchone()
    project = conn.execute("SELECT key FROM project_key WHERE introduced_by IS NULL").fetchone()
    assert row is not None and project is not None
    usual = Seal(fingerprint(project[0]), secrets.token_hex(16), public.hex(), 0, 2**40)
    seal = replace(usual, **sealed)
    draft = make_draft(SubmissionRequest(**body), row[0], seal)
    text = draft.manifest.text()
    jobs = draft.jobs if isinstance(draft.jobs, list) else []
    parts = sign_parts(unsigned_parts(jobs, 0, None), manifest_id(text), key.sign)
    signature = base64.b64encode(key.sign(manifest_statement(text))).decode()
    return {
        **body,
        "envelope": {**asdict(seal), "signature": signature},
        "parts": [base64.b64encode(part.signature or b"").decode() for part in parts],
    }
