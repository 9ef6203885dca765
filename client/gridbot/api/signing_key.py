"""The key pair that signs a person's BOTs: made, kept and used on this person's machines only."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from gridbot.api.errors import BadInput
from gridbot_client.net.discovery import SIGNING_KEY_VARIABLE, remember_keys
from gridbot_client.protocol.signatures import Introduction, fingerprint, introduction


@dataclass(frozen=True, slots=True)
class OwnerKey:
    """A private key, and its public half as others see it."""

    private: Ed25519PrivateKey

    @property
    def public(self) -> bytes:
        """The public key: 32 bytes."""
        return self.private.public_key().public_bytes_raw()

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the public key, in hex."""
        return fingerprint(self.public)

    def sign(self, statement: bytes) -> bytes:
        """Sign a statement of `gridbot_client.protocol`: 64 bytes."""
        return self.private.sign(statement)

    def introduce(self, newer: bytes) -> Introduction:
        """Give this key's word for a newer one."""
        return Introduction(self.public, newer, self.sign(introduction(self.public, newer)))

    def pem(self) -> bytes:
        """The private key as a file holds it."""
        return self.private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def load(path: Path) -> OwnerKey:
    """Read a key.  Raises BadInput."""
    try:
        found = load_pem_private_key(path.read_bytes(), password=None)
    except OSError as error:
        raise BadInput(f"signing key {path}: {error.strerror}") from None
    except (ValueError, TypeError):
        raise BadInput(f"signing key {path}: holds no private key in PEM form") from None
    if not isinstance(found, Ed25519PrivateKey):
        raise BadInput(f"signing key {path}: holds a key that is not Ed25519")
    return OwnerKey(found)


def ensure(path: Path) -> OwnerKey:
    """Read the key at `path`, or make one there.  Raises BadInput."""
    if not path.exists():
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            save(OwnerKey(Ed25519PrivateKey.generate()), path)
        except OSError as error:
            raise BadInput(f"cannot make the signing key {path}: {error.strerror}") from None
    return load(path)


def save(key: OwnerKey, path: Path) -> None:
    """Write a key to a new file, for this user only, whole or not at all; keeps one found there."""
    descriptor, partial = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(key.pem())
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(partial, path)
        except FileExistsError:
            return  # another process was first
    finally:
        os.unlink(partial)


def usual_path(kept: Path) -> Path:
    """The file that the environment names, else the one beside the user's login."""
    chosen = os.environ.get(SIGNING_KEY_VARIABLE)
    if chosen:
        remember_keys(Path(chosen))
    return Path(chosen) if chosen else kept
