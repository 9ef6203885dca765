"""What the holder of the code signing key does, on a machine that need not be the server.

Signs BOTs for stock clients, and the key that comes after it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

from gridbot_client.protocol.messages import FileRef, Manifest
from gridbot_server.boinc.application import code_keys, code_signatures, description, signed

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class CodeSigner:
    """Signs with a code signing key."""

    private: RSAPrivateKey

    @staticmethod
    def check_input(ref: FileRef, file: BinaryIO) -> None:
        """Raise Unsuitable for a data file whose signature would be good for something else."""
        signed.check_input(ref, file)

    def sign(self, manifest: Manifest, md5_of: Callable[[FileRef], str]) -> Document:
        """Sign what stock clients must have of a BOT, as the server takes it; raise Unsuitable."""
        description.check_manifest(manifest)
        return signed.sign(manifest, md5_of, self.private).document()


def create(path: Path) -> str:
    """Make a private key at `path`, which must not exist; return its public half as text."""
    return code_keys.create(path)


def load_signer(path: Path) -> CodeSigner:
    """Return what signs with the private key at `path`; raise KeyFileError for anything else."""
    return CodeSigner(code_keys.load_private(path))


def introduce(old: Path, new: Path) -> tuple[Document, CodeSigner | None]:
    """Sign the next key with the one in use; return that, and what signs with the next key.

    The latter is None where only the public half of the next key is here.
    """
    in_use = code_keys.load_private(old)
    public, private = code_keys.load_pair(new)
    link = code_signatures.introduce(in_use, public)
    return link._asdict(), CodeSigner(private) if private else None
