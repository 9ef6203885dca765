"""A stand-in for the server program: speaks the protocol, with faults on demand."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from gridbot_client.protocol import job_table
from gridbot_client.protocol.messages import (
    Assignment,
    FileRef,
    JobInput,
    Manifest,
    ReplicaId,
    Report,
    SignedManifest,
    WorkReply,
    WorkRequest,
    decode_request,
    encode_reply,
    introduction_json,
    manifest_id,
    revocation_json,
)
from gridbot_client.protocol.signatures import (
    Introduction,
    Revocation,
    fingerprint,
    introduction,
    manifest_statement,
    revocation,
)

TOKEN = "the-client-token"


class ProjectServer:
    """Leases what was queued, acknowledges reports, keeps files; remembers all it saw."""

    def __init__(self) -> None:
        self.key = Ed25519PrivateKey.generate()
        self.project = fingerprint(self.key.public_key().public_bytes_raw())
        self.alice = Ed25519PrivateKey.generate()
        self.protocol = 2
        self.introduced: Introduction | None = None
        self.links: list[dict[str, str]] = []  # from the project's earlier keys to the present one
        self.owner_keys: list[str] = []  # fingerprints, for whoever joins with a key of their own
        self.signs_at_submission = False
        self.revocations: list[dict[str, str | None]] = []
        self.requests: list[WorkRequest] = []
        self.reports: dict[ReplicaId, list[Report]] = defaultdict(list)
        self.uploads: dict[str, bytearray] = {}
        self.puts: list[tuple[str, int, int]] = []  # path, offset, bytes taken
        self.downloads: list[tuple[str, str]] = []  # sha256, Range
        self.joins: list[dict[str, Any]] = []
        self.introductions: list[dict[str, Any]] = []
        # What goes wrong next, by kind: rpc, file, upload, join.
        self.faults: dict[str, deque[str]] = defaultdict(deque)
        self.abort: set[ReplicaId] = set()
        self.reupload: set[ReplicaId] = set()
        self.next_request_seconds = 0.2
        self.is_revoked = False
        self.ban = ""  # why this client's machine is banned
        self.max_upload = 1 << 40
        self._queue: deque[Assignment] = deque()
        self._leases: dict[ReplicaId, tuple[str, Assignment]] = {}
        self._manifests: dict[str, SignedManifest] = {}
        self._files: dict[str, bytes] = {}
        self._lock = threading.Lock()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    # --- arranging

    def file(
        self, name: str, content: bytes, *, executable: bool = False, sha256: str | None = None
    ) -> FileRef:
        sha256 = sha256 or hashlib.sha256(content).hexdigest()
        self._files[sha256] = content
        return FileRef(name, sha256, len(content), executable)

    def add(self, manifest: Manifest, jobs: Iterable[dict[str, Any]] = ({},), *, bot: int = 1,
            signed: bool = True, owner: Ed25519PrivateKey | None = None, deadline: float = 600.0,
            inputs: tuple[FileRef, ...] = ()) -> list[ReplicaId]:  # fmt: skip
        """Queue a BOT, signed by the project, or by its owner's key, or by nobody.

        What is signed of alice's is signed by her, too: it is a client's own if that trusts her.
        """
        if signed and manifest.owner == "alice":
            owner = owner or self.alice
        public = owner.public_key().public_bytes_raw().hex() if owner else ""
        manifest = replace(
            manifest,
            project=self.project,
            bot=f"{bot:032x}",
            owner_key=public,
            job_inputs=manifest.job_inputs or (JobInput("*"), JobInput("*/*")),
        )
        text = manifest.text()
        statement = manifest_statement(text)
        id = manifest_id(text)
        self._manifests[id] = SignedManifest(
            text,
            self.key.sign(statement) if signed else None,
            owner.sign(statement) if owner else None,
            self.key.public_key().public_bytes_raw(),
            (self.introduced,) if self.introduced else (),
        )
        made = [
            Assignment(ReplicaId(bot, seq, 0), id, args, deadline, inputs)
            for seq, args in enumerate(jobs)
        ]
        made = with_proofs(made, owner or self.key)
        with self._lock:
            self._queue.extend(made)
        return [item.id for item in made]

    def change(self, id: ReplicaId, **changes: Any) -> None:
        """Change a queued assignment behind its signature."""
        with self._lock:
            self._queue = deque(
                replace(job, **changes) if job.id == id else job for job in self._queue
            )

    def revoke(self, id: ReplicaId) -> None:
        """Tell that the project has revoked the signature on a queued replica's BOT."""
        (subject,) = {job.manifest for job in self._queue if job.id == id}
        signature = self.key.sign(revocation(subject))
        item = Revocation(subject, self.key.public_key().public_bytes_raw(), signature)
        self.revocations.append(revocation_json(item))

    def rotate(self) -> None:
        """Replace the project's key by one that it introduces."""
        old, self.key = self.key, Ed25519PrivateKey.generate()
        keys = old.public_key().public_bytes_raw(), self.key.public_key().public_bytes_raw()
        self.introduced = Introduction(*keys, old.sign(introduction(*keys)))
        self.links.append(introduction_json(self.introduced))

    @property
    def joined(self) -> dict[str, Any]:
        key = base64.b64encode(self.key.public_key().public_bytes_raw()).decode()
        return {
            "client": 7,
            "owner": "alice",
            "accepts": [],
            "project": self.project,
            "project_key": key,
            "signs_at_submission": self.signs_at_submission,
            "introductions": self.links,
            "protocol": self.protocol,
            "epoch": 1,
        }

    # --- answering

    def work(self, body: bytes) -> bytes:
        request = decode_request(body)
        with self._lock:
            self.requests.append(request)
            for report in request.reports:
                self.reports[report.id].append(report)
                self._leases.pop(report.id, None)
            repeated = [a for key, a in self._leases.values() if key == request.key]
            told = {*request.holding, *(report.id for report in request.reports)}
            lost = [
                a for id, (key, a) in self._leases.items() if id not in told and key != request.key
            ]
            fresh = [] if repeated else self._take(request)
            given = repeated + lost + fresh
        return encode_reply(
            WorkReply(
                epoch=1,
                next_request_seconds=self.next_request_seconds,
                acks=tuple(r.id for r in request.reports if r.id not in self.reupload),
                reupload=tuple(r.id for r in request.reports if r.id in self.reupload),
                abort=tuple(id for id in request.holding if id in self.abort),
                assignments=tuple(given),
                manifests={
                    a.manifest: self._manifests[a.manifest]
                    for a in given
                    if a.manifest not in request.manifests
                },
            )
        )

    def _take(self, request: WorkRequest) -> list[Assignment]:
        taken = [self._queue.popleft() for _ in range(min(request.want, len(self._queue)))]
        self._leases.update((item.id, (request.key, item)) for item in taken)
        return taken


def with_proofs(jobs: Sequence[Assignment], key: Ed25519PrivateKey) -> list[Assignment]:
    """Jobs of one BOT, from its first on, with the proofs of parts that this key signs."""
    made: list[Assignment] = []
    for at in range(0, len(jobs), job_table.PART_JOBS):
        part = jobs[at : at + job_table.PART_JOBS]
        leaves = [job_table.leaf(job_table.job_text(job.args, job.inputs)) for job in part]
        root = job_table.levels(leaves)[-1][0]
        signature = key.sign(job_table.statement(part[0].manifest, at, len(part), root))
        found = job_table.proofs(leaves, signature)
        made += (replace(job, proof=proof.encode()) for job, proof in zip(part, found, strict=True))
    return made


class _Cut(Exception):
    """Close the connection here."""


def _handler(server: ProjectServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        wbufsize = -1

        def log_message(self, format: str, *args: object) -> None:
            pass

        def _serve(self) -> None:
            url = urlsplit(self.path)
            kind = {"rpc": "rpc", "files": "file", "uploads": "upload"}.get(
                url.path.split("/")[1], "join"
            )
            fault = server.faults[kind].popleft() if server.faults[kind] else ""
            try:
                self._fail_early(fault)
                route: Callable[..., None] = getattr(self, f"_{kind}")
                route(url.path, {k: v[0] for k, v in parse_qs(url.query).items()}, fault)
            except _Cut:
                self.close_connection = True

        do_GET = do_PUT = do_POST = do_HEAD = _serve

        def _read(self) -> bytes:
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))

        def _answer(self, code: int, body: bytes, **headers: str) -> None:
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def _json(self, code: int, **document: Any) -> None:
            self._answer(code, json.dumps(document).encode(), Content_Type="application/json")

        def _fail_early(self, fault: str) -> None:
            if fault in ("busy", "away"):
                self._read()
                self._answer(503, b"", Retry_After="2" if fault == "busy" else "600")
                raise _Cut
            if fault == "portal":
                self._read()
                self._answer(200, b"<html>Welcome to the hotel. Sign in.</html>")
                raise _Cut
            if fault == "garbage":
                self._read()
                self._answer(200, b'{"protocol": 2, "assignments": [{"id": 5}]}')
                raise _Cut
            if fault == "redirect":
                self._read()
                self._answer(302, b"", Location="http://127.0.0.1:1/login")
                raise _Cut

        def _rpc(self, path: str, query: dict[str, str], fault: str) -> None:
            body = self._read()
            if server.ban:
                detail = f"this machine is banned: {server.ban}"
                self._json(403, error="Banned", detail=detail, retry=False)
                return
            if server.is_revoked or self.headers["Authorization"] != f"Bearer {TOKEN}":
                self._json(401, error="Unauthorized", detail="unknown token", retry=False)
                return
            answer = server.work(body)
            if fault == "lose_reply":
                raise _Cut
            self._answer(200, answer)

        def _join(self, path: str, query: dict[str, str], fault: str) -> None:
            if path == "/api/v1/clients/self/revocations":
                self._json(200, revocations=server.revocations)
                return
            document = json.loads(self._read())
            if path == "/api/v1/clients/self":
                if server.is_revoked:
                    self._json(401, error="Unauthorized", detail="unknown token", retry=False)
                    return
                server.introductions.append(document)
                self._json(200, **server.joined)
            elif self.headers["Authorization"] in ("Bearer good-key", "Bearer gb_user_key"):
                server.joins.append(document)
                self._json(201, token=TOKEN, owner_keys=server.owner_keys, **server.joined)
            else:
                self._json(401, error="Unauthorized", detail="unknown key", retry=False)

        def _file(self, path: str, query: dict[str, str], fault: str) -> None:
            sha256 = path.rpartition("/")[2]
            content = server._files.get(sha256)
            asked = self.headers.get("Range", "")
            server.downloads.append((sha256, asked))
            if content is None:
                self._json(404, error="NotFound", detail=f"no file {sha256}", retry=False)
                return
            if fault == "corrupt":
                content = b"X" + content[1:]
            start = int(re.findall(r"\d+", asked)[0]) if asked else 0
            body = content[start:]
            self.send_response(206 if asked else 200)
            self.send_header("Content-Length", str(len(body)))
            if asked:
                self.send_header(
                    "Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}"
                )
            self.end_headers()
            if fault == "truncate":
                self.wfile.write(body[: len(body) // 2])
                raise _Cut
            self.wfile.write(body)

        def _upload(self, path: str, query: dict[str, str], fault: str) -> None:
            got = server.uploads.setdefault(path, bytearray())
            size = int(query["size"])
            if size > server.max_upload:
                self._read()
                self._json(413, error="TooBig", detail=f"{size} bytes are too many", retry=False)
                raise _Cut
            if self.command == "HEAD":
                complete = {"Upload_Complete": "?1"} if len(got) == size else {}
                self._answer(200, b"", Upload_Offset=str(len(got)), **complete)
                return
            offset, length = int(query["offset"]), int(self.headers["Content-Length"])
            if offset != len(got):
                self._read()
                self._json(409, offset=len(got))
                return
            if fault == "stall":
                got += self.rfile.read(length // 2)
                server.puts.append((path, offset, length // 2))
                with suppress(ConnectionError):
                    self.rfile.read()  # until the client has gone
                raise _Cut
            taken = length // 2 if fault == "cut" else length
            got += self.rfile.read(taken)
            server.puts.append((path, offset, taken))
            if fault == "cut":
                raise _Cut
            self._json(200, offset=len(got), complete=len(got) == size)

    return Handler
