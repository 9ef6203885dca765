"""The client's folder: its persistent state, written crash-safely."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

from gridbot_client.backoff import FailedRequests
from gridbot_client.filesystem import sync_directory
from gridbot_client.protocol.fields import is_sha256
from gridbot_client.protocol.messages import (
    ProtocolError,
    WorkRequest,
    decode_request,
    encode_request,
    read_revocations,
    revocation_json,
)
from gridbot_client.protocol.preferences import (
    AccountPreferences,
    account_preferences,
    account_preferences_json,
)
from gridbot_client.protocol.signatures import Revocation, fingerprint


class FolderBusy(Exception):
    """Another client uses the folder; the message says how to run a second one."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Result of joining: server, token, client number, owner, and the keys that are trusted."""

    url: str
    token: str
    client: int
    owner: str
    project_key: str  # fingerprint, pinned at join
    project: str = ""  # fingerprint of the project's first key, by which manifests name it
    trusts: tuple[str, ...] = ()  # fingerprints of owners' keys, pinned by this machine's user
    invitation: str = ""  # the key of the invitation that it joined with, to join again
    receipt: str = ""  # to join again a server that was restored from an older backup
    signs_at_submission: bool = False  # the server said at join that it holds the project's key


def write_atomically(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Replace a file atomically: a reader or a crash sees the old or the new content.

    Without `durable` (no fsync) a power failure may lose it, which suits data that the server
    sends again.  Mode 0600, because the content may hold the client's token.
    """
    fresh = f"{path}.new"
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        while content:
            content = content[os.write(descriptor, content) :]
        if durable:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.rename(fresh, path)
    if durable:
        sync_directory(path.parent)


@contextmanager
def held(path: Path, busy: Callable[[], Exception]) -> Iterator[TextIO]:
    """Hold a lock file, which only its user may open.  Raises `busy()` if another process does."""
    with open(path, "a+", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise busy() from None
        yield file


def read_json(path: Path) -> dict[str, Any] | None:
    """Read a JSON object; None if the file is missing or corrupt."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


class Folder:
    """One client's folder.  Only the holder of its lock may write to it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.slots = path / "slots"
        self.spare = path / "spare"  # folders of slots, for others
        self.cells = path / "cells"  # slots that replicas of a BOT use in turn
        self.cache = path / "cache"
        self.shared = path / "shared"  # folders that many replicas see
        self.containers = path / "containers"  # of Podman or Apptainer
        self.friends = path / "friends"  # a folder for the guest of each
        self.log = path / "client.log"
        self.paused_flag = path / "paused"
        self.hurry_flag = path / "hurry"  # its owner wants the next request made now
        self.policy_path = path / "policy.ad"
        self._preferences = path / "preferences.json"
        self._account = path / "account.json"
        self.transferred = path / "transferred.json"  # the amount of the day
        self._suspended = path / "suspended"
        self._transfer_obstacle = path / "transfer-obstacle"
        self._obstacle = path / "obstacle"
        self._sandbox = path / "sandbox.json"
        self._identity = path / "client.json"
        self._revocations = path / "revocations.json"
        self._backoff = path / "backoff.json"
        self._request = path / "request.json"
        self._answered = path / "answered.json"
        self._lock = path / "lock"

    def make(self) -> None:
        """Create the folder and its subfolders, private to the user because of the token."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.slots.mkdir(mode=0o700, exist_ok=True)
        self.spare.mkdir(mode=0o700, exist_ok=True)
        self.cells.mkdir(mode=0o700, exist_ok=True)
        self.cache.mkdir(mode=0o700, exist_ok=True)
        self.shared.mkdir(mode=0o700, exist_ok=True)

    def contents(self) -> list[Path]:
        """All that a client puts here and that is there; what others put here is not among it."""
        named = [path for path in vars(self).values() if isinstance(path, Path)]
        further = [self._previous, self.path / "start.log", *self.path.glob("client.log.*")]
        return [path for path in (*named, *further) if path != self.path and os.path.lexists(path)]

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Context that holds the folder's lock.  Raises FolderBusy."""
        self.make()

        def busy() -> FolderBusy:
            return FolderBusy(
                f"another client (pid {self.holder()}) uses {self.path};"
                " run a second one with --data DIR"
            )

        with held(self._lock, busy) as file:
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
            yield

    def holder(self) -> int | None:
        """Id of the process that holds the lock, or None."""
        try:
            with self._lock.open() as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return None
        except BlockingIOError:
            return int(self._lock.read_text() or 0)
        return None

    # --- identity

    def identity(self) -> Identity | None:
        """Saved identity; the previous version if the file is corrupt, None before joining."""
        for path in (self._identity, self._previous):
            raw = read_json(path)
            if raw is not None:
                with suppress(TypeError, KeyError, ValueError):
                    return _identity(raw)
        return None

    def save_identity(self, identity: Identity) -> None:
        """Save the identity."""
        if read_json(self._identity) is not None:
            write_atomically(self._previous, self._identity.read_bytes())
        write_atomically(self._identity, json.dumps(asdict(identity), indent=1).encode())

    @property
    def _previous(self) -> Path:
        return self._identity.with_suffix(".old")

    def forget_work(self) -> None:
        """Delete all replicas of the former server; their ids mean other jobs on another server."""
        shutil.rmtree(self.slots, ignore_errors=True)
        for path in (self._request, self._answered, self._backoff):
            path.unlink(missing_ok=True)
        self.make()

    # --- revocations

    def revocations(self) -> tuple[Revocation, ...]:
        """Revocations that this client has heard of; each is by the key that it names."""
        raw = read_json(self._revocations) or {}
        try:
            return read_revocations(raw)
        except ProtocolError:
            return ()

    def save_revocations(self, found: Iterable[Revocation]) -> None:
        """Save them: a server that keeps quiet later does not undo them."""
        document = {"revocations": [revocation_json(item) for item in found]}
        write_atomically(self._revocations, json.dumps(document).encode())

    # --- the owner's policy

    def policy(self) -> str:
        """Owner's policy, or ""."""
        try:
            return self.policy_path.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return ""

    def save_policy(self, text: str) -> None:
        """Save the owner's policy; "" removes it."""
        if not text:
            self.policy_path.unlink(missing_ok=True)
        elif text != self.policy():
            write_atomically(self.policy_path, text.encode())

    def obstacle(self) -> str:
        """Condition of the policy that is not satisfied now, or ""."""
        return _text(self._obstacle)

    def save_obstacle(self, text: str) -> None:
        """Save the condition for other processes to read; "" if the policy is satisfied."""
        _save_text(self._obstacle, text)

    # --- preferences and pauses

    def preferences(self) -> dict[str, str]:
        """The owner's preferences as texts, by name."""
        return {name: str(value) for name, value in (read_json(self._preferences) or {}).items()}

    def save_preferences(self, texts: Mapping[str, str]) -> None:
        """Save them; a running client reads them within seconds."""
        write_atomically(self._preferences, json.dumps(texts, indent=1).encode())

    def account_preferences(self) -> AccountPreferences:
        """What the account prefers on this machine, as the server said last."""
        with suppress(ProtocolError):
            return account_preferences(read_json(self._account))
        return AccountPreferences(0, {})

    def save_account_preferences(self, said: AccountPreferences) -> None:
        """Save them; the server says them again only when they change."""
        write_atomically(self._account, json.dumps(account_preferences_json(said)).encode())

    def pause(self, until: float | None = None) -> None:
        """Start nothing more; until a time in seconds since 1970, suspend what runs as well."""
        write_atomically(self.paused_flag, b"" if until is None else str(until).encode())

    def paused_until(self) -> float | None:
        """End of a pause that suspends; None without one."""
        try:
            return float(self.paused_flag.read_text())
        except (OSError, ValueError):
            return None

    def is_paused(self, now: float) -> bool:
        """Whether its owner paused the client, for ever or until a time after now."""
        until = self.paused_until()
        return self.paused_flag.exists() if until is None else now < until

    def suspended(self) -> str:
        """Why what runs is suspended, or ""."""
        return _text(self._suspended)

    def save_suspended(self, text: str) -> None:
        """Save the reason for other processes to read; "" if nothing is suspended."""
        _save_text(self._suspended, text)

    def transfer_obstacle(self) -> str:
        """Why nothing may be transferred now, or ""."""
        return _text(self._transfer_obstacle)

    def save_transfer_obstacle(self, text: str) -> None:
        """Save the reason for other processes to read; "" if there is none."""
        _save_text(self._transfer_obstacle, text)

    # --- walls

    def sandbox(self) -> dict[str, Any]:
        """Level of the walls that the client proved at its last start, and its text; or empty."""
        return read_json(self._sandbox) or {}

    def save_sandbox(self, found: Mapping[str, int | str]) -> None:
        """Save them for other processes to read."""
        write_atomically(self._sandbox, json.dumps(found).encode(), durable=False)

    # --- backoff

    def backoff(self) -> FailedRequests:
        """Saved failures; none if the file is missing or corrupt."""
        raw = read_json(self._backoff) or {}
        try:
            return FailedRequests(int(raw["failures"]), float(raw["until"]), str(raw["error"]))
        except (KeyError, TypeError, ValueError):
            return FailedRequests()

    def save_backoff(self, backoff: FailedRequests) -> None:
        """Save the failures, so that restarts do not bypass the back-off."""
        if backoff.failures:
            write_atomically(self._backoff, json.dumps(asdict(backoff)).encode(), durable=False)
        else:
            self._backoff.unlink(missing_ok=True)

    # --- the request under way

    def pending_request(self) -> WorkRequest | None:
        """Request that was written but not answered; it is repeated unchanged."""
        return _read_request(self._request)

    def save_request(self, request: WorkRequest) -> bytes:
        """Write a request before it is sent; return its body."""
        body = encode_request(request)
        write_atomically(self._request, body)
        return body

    def request_answered(self) -> None:
        """Delete the saved request, which is answered."""
        with suppress(FileNotFoundError):
            self._request.rename(self._answered)

    def next_seqno(self) -> int:
        """Sequence number above all sent before.

        If the files are lost it starts at the seconds since 1970, which exceed any number of
        requests sent so far.
        """
        sent = [r.seqno for p in (self._request, self._answered) if (r := _read_request(p))]
        return max(sent) + 1 if sent else int(time.time())


def _text(path: Path) -> str:
    """What another process says in a file; "" without one."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""


def _save_text(path: Path, text: str) -> None:
    """Say something to other processes; "" takes it back."""
    if text:
        write_atomically(path, text.encode(), durable=False)
    else:
        path.unlink(missing_ok=True)


def _identity(raw: dict[str, Any]) -> Identity:
    """Read a saved identity, also one of a version that pinned the whole key and owners' names."""
    raw.pop("accepts", None)
    key = raw["project_key"]
    if not is_sha256(key):
        raw["project_key"] = fingerprint(base64.b64decode(key, validate=True))
    return Identity(**{**raw, "trusts": tuple(raw.get("trusts", ()))})


def _read_request(path: Path) -> WorkRequest | None:
    try:
        return decode_request(path.read_bytes())
    except (OSError, ProtocolError):
        return None
