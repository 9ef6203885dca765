"""The key of this server under which the database keeps the secrets of owners' storages.

Who reads the database or a dump of it does not read them: the key is in a file beside.
"""

from __future__ import annotations

import re
import secrets
from contextlib import suppress
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from gridbot_client.filesystem import sync_directory
from gridbot_server.storage.disk import write_new

_KEY_BYTES, _NONCE_BYTES = 32, 12
_FORM = re.compile(rf"[0-9a-f]{{{2 * _KEY_BYTES}}}\n")


class StorageKeyError(ValueError):
    """The file of the key is not what it should be, or a secret was sealed with another key."""


def load(path: Path) -> bytes:
    """Read the key.  Raises StorageKeyError, also for a file that is empty, cut off or not here."""
    try:
        text = path.read_text()
    except FileNotFoundError:
        raise StorageKeyError(
            f"{path} is not here: copy it from another machine of this server, or from a backup"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise StorageKeyError(f"{path} cannot be read: {error}") from None
    if not _FORM.fullmatch(text):
        raise StorageKeyError(f"{path} holds no whole key; restore it from a backup")
    return bytes.fromhex(text)


def create(path: Path) -> bytes:
    """Make a key where no file is, whole and on the disk; else read the one that is there."""
    fresh = path.with_name(f"{path.name}.{secrets.token_hex(8)}.new")
    write_new(fresh, f"{secrets.token_hex(_KEY_BYTES)}\n".encode())
    try:
        with suppress(FileExistsError):
            path.hardlink_to(fresh)
    finally:
        fresh.unlink()
    sync_directory(path.parent)
    return load(path)


def seal(key: bytes, secret: str, about: str) -> bytes:
    """Encrypt a secret; it opens only beside the same words `about` what it is for."""
    nonce = secrets.token_bytes(_NONCE_BYTES)
    return nonce + ChaCha20Poly1305(key).encrypt(nonce, secret.encode(), about.encode())


def unseal(key: bytes, sealed: bytes, about: str) -> str:
    """Decrypt a secret.  Raises StorageKeyError."""
    nonce, text = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
    try:
        return ChaCha20Poly1305(key).decrypt(nonce, text, about.encode()).decode()
    except (InvalidTag, ValueError):
        raise StorageKeyError("a secret in the database was sealed with another key") from None
