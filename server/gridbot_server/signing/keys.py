"""The project's Ed25519 key, which signs manifests, and the tokens of people and clients."""

from __future__ import annotations

import base64
import hashlib
import secrets
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from gridbot_client.protocol.signatures import introduction, manifest_statement
from gridbot_server.storage.disk import write_new


class KeyFileError(ValueError):
    """A key, or the file of one, is not what it should be."""


def create(path: Path) -> None:
    """Make a new project key at `path`, readable by its owner only; never overwrites one."""
    text = Ed25519PrivateKey.generate().private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )
    write_new(path, text)


def load_private(path: Path) -> Ed25519PrivateKey:
    """Read the private key; raise KeyFileError for any other content, OSError for none."""
    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
    except (ValueError, TypeError):
        raise KeyFileError(f"{path} holds no private key in PEM form; restore it") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise KeyFileError(f"{path} holds a key that is not Ed25519; restore the project's own")
    return key


def public_bytes(path: Path) -> bytes:
    """Return the public half of the key at `path`: 32 bytes."""
    return load_private(path).public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)


def public_text(key: Ed25519PrivateKey) -> str:
    """Return the public half of a key in the form that `load_public` reads."""
    form = Encoding.PEM, PublicFormat.SubjectPublicKeyInfo
    return key.public_key().public_bytes(*form).decode()


def load_public(path: Path) -> bytes:
    """Read a public key, 32 bytes; raise KeyFileError for any other content, OSError for none."""
    try:
        key = load_pem_public_key(path.read_bytes())
    except ValueError:
        raise KeyFileError(f"{path} holds no public key in PEM form; restore it") from None
    if not isinstance(key, Ed25519PublicKey):
        raise KeyFileError(f"{path} holds a key that is not Ed25519; restore the project's own")
    return key.public_bytes(Encoding.Raw, PublicFormat.Raw)


def load_pair(path: Path) -> tuple[bytes, Ed25519PrivateKey | None]:
    """Read a key whichever half it is: its public half, and the private one if that is here."""
    if b"PUBLIC" in path.read_bytes():
        return load_public(path), None
    private = load_private(path)
    return private.public_key().public_bytes_raw(), private


def introduce(old: Path, new: Path) -> tuple[dict[str, str], Ed25519PrivateKey | None]:
    """Sign the project's next key with the one in use, as `PUT /signing/project-key` takes it.

    Returns that, and the next private key if it is here.
    """
    in_use = load_private(old)
    public, private = load_pair(new)
    signature = in_use.sign(introduction(in_use.public_key().public_bytes_raw(), public))
    return {"key": public.hex(), "signature": base64.b64encode(signature).decode()}, private


def sign_manifest(private: Ed25519PrivateKey, text: str) -> bytes:
    """Return a key's signature over a manifest's text."""
    return private.sign(manifest_statement(text))


def new_token(scope: str) -> tuple[str, bytes]:
    """Return a new token and what the database keeps of it.

    A token shows its scope, so that a client knows whether its user holds a key of their own
    (`gridbot_client.net.joining`).
    """
    token = f"gb_{scope}_{secrets.token_urlsafe(32)}"
    return token, token_hash(token)


def token_hash(token: str) -> bytes:
    """Return the SHA-256 of a token, by which it is found."""
    return hashlib.sha256(token.encode()).digest()
