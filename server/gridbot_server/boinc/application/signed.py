"""What a holder of the code signing key hands to a server: scripts of a BOT and signatures.

Signing needs the manifest and the key, not the server; the server checks what it is handed.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, BinaryIO

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey

from gridbot_client.protocol import boinc_api
from gridbot_client.protocol.messages import FileRef, Manifest
from gridbot_server.boinc.application import code_signatures, shim
from gridbot_server.boinc.application.shim import windows
from gridbot_server.matching.stock_platforms import is_wrapped_for_windows, stock_manifests
from gridbot_server.signing.stock_clients import Unsuitable

_MANIFEST_LINE = re.compile(rb"^# Manifest [0-9a-f]{64}\r?$", re.MULTILINE)
_MOST_SCRIPT_BYTES = 1 << 20  # a manifest has at most half of that
# What clients read as a key: a number, the rest of its line, and hex digits.
_KEY_START = re.compile(rb"[-+]?\d[^\n\0]*(\n\s*[-+]?[0-9a-fA-F]|\Z)")
_KEY_LINE_BYTES = 4096
_SPACE = b" \t\n\v\f\r"

_BINARY = "base64:"

Md5Of = Callable[[FileRef], str]


class BadApplication(ValueError):
    """What came as signed is not, or is not for this BOT; the message says which part."""


@dataclass(frozen=True, slots=True)
class AppFile:
    """A file of an application as clients download it, by its content."""

    sha256: str
    md5: str
    size: int
    executable: bool
    signature: str


@dataclass(frozen=True, slots=True)
class SignedApplication:
    """Scripts that run a manifest's jobs, and a signature for each file that clients need.

    There is one script for each of the programs that stock clients can run.  Scripts travel with
    their signatures: a server of another version would render others.  The script of a program that
    is made for BOINC's API is empty.
    """

    scripts: tuple[str, ...]
    signatures: Mapping[str, str]  # SHA-256 in hex -> signature
    of_programs: bool = False  # of a table, which may have one row for stock clients

    def document(self) -> dict[str, Any]:
        """What `text` gives, as JSON knows it.

        A server that knows no tables does not find `script` in one's, and offers nothing.
        """
        several = list(self.scripts)
        scripts = {"scripts": several} if self.of_programs else {"script": several[0]}
        return {**scripts, "signatures": dict(self.signatures)}

    def text(self) -> str:
        """The JSON in which it is sent and kept."""
        return json.dumps(self.document())

    @classmethod
    def from_text(cls, text: str) -> SignedApplication:
        """Read what `text` gave; BadApplication for anything else."""
        try:
            raw = json.loads(text)
            scripts, signatures = raw.get("scripts") or [raw["script"]], raw["signatures"]
        except (ValueError, TypeError, KeyError, AttributeError):
            raise BadApplication("is not a signed application in JSON") from None
        if not isinstance(scripts, list) or not all(isinstance(item, str) for item in scripts):
            raise BadApplication("expected script: a string, or scripts: a list of strings")
        if not isinstance(signatures, dict):
            raise BadApplication("expected signatures: an object")
        if not all(isinstance(signature, str) for signature in signatures.values()):
            raise BadApplication("signatures: expected strings")
        return cls(tuple(scripts), signatures, "scripts" in raw)


def sign(manifest: Manifest, md5_of: Md5Of, private: RSAPrivateKey) -> SignedApplication:
    """Sign all that a stock client must have to run this manifest's jobs.

    Raises Unsuitable for a manifest that stock clients cannot run.
    """
    scripts = _rendered(manifest)
    files = dict.fromkeys(chain(*_files(manifest, scripts, md5_of, {})))
    signatures = {file.sha256: code_signatures.sign_md5(private, file.md5) for file in files}
    return SignedApplication(scripts, signatures, bool(manifest.programs))


def check(
    manifest: Manifest, signed: SignedApplication, md5_of: Md5Of, public: RSAPublicKey
) -> tuple[tuple[AppFile, ...], ...]:
    """The files of each of `stock_manifests`, its main program first.

    Raises BadApplication unless the key signed them all.  It says nothing of what a script does:
    see `check_scripts`.
    """
    files = _files(manifest, signed.scripts, md5_of, signed.signatures)
    for file in dict.fromkeys(chain(*files)):
        if not code_signatures.is_signed(public, file.md5, file.signature):
            raise BadApplication(f"file {file.sha256}: not signed by the code signing key")
    return files


def script_of(manifest: Manifest) -> str:
    """The script that runs a manifest's jobs; empty if clients run its program itself.

    For Windows it is a program, in base64.

    Raises Unsuitable for a manifest that stock clients cannot run.
    """
    if manifest.boinc_api:
        return ""
    if is_wrapped_for_windows(manifest):
        return _BINARY + base64.b64encode(windows.render(manifest)).decode("ascii")
    return shim.render(manifest)


def content(script: str) -> bytes:
    """The file that clients download for a script."""
    if not script.startswith(_BINARY):
        return script.encode()
    try:
        return base64.b64decode(script.removeprefix(_BINARY), validate=True)
    except ValueError:
        raise BadApplication("the program for Windows is not in base64") from None


def check_scripts(manifest: Manifest, scripts: Sequence[str]) -> None:
    """Raise BadApplication unless the scripts are what this server writes for the manifest.

    Their signatures cannot tell: data files are signed alike, and their owners write those.
    """
    if tuple(scripts) != _rendered(manifest):
        raise BadApplication(
            "the script is not this BOT's, or another version of GridBot or of the compiler for"
            " Windows made it"
        )


def check_input(ref: FileRef, file: BinaryIO) -> None:
    """Raise Unsuitable for a data file whose signature would be good for something else.

    BOINC signs programs, data and keys in one way, the MD5 alone.
    """
    head = file.read(_MOST_SCRIPT_BYTES + 1)
    if len(head) <= _MOST_SCRIPT_BYTES and _MANIFEST_LINE.search(head):
        raise Unsuitable(f"input {ref.name} holds a line like the scripts that run BOTs")
    if not _KEY_START.match(head[:_KEY_LINE_BYTES]):
        return
    file.seek(-1, os.SEEK_END)
    # Clients strip a key before they check its signature.
    if file.read(1) not in _SPACE:
        raise Unsuitable(f"input {ref.name} reads like a key: let it end in a newline")


def _rendered(manifest: Manifest) -> tuple[str, ...]:
    return tuple(map(script_of, stock_manifests(manifest)))


def _files(
    manifest: Manifest, scripts: Sequence[str], md5_of: Md5Of, signatures: Mapping[str, str]
) -> tuple[tuple[AppFile, ...], ...]:
    run = stock_manifests(manifest)
    if len(scripts) != len(run):
        raise BadApplication(f"{len(scripts)} scripts, expected {len(run)}")
    return tuple(
        _files_of(one, script, md5_of, signatures) for one, script in zip(run, scripts, strict=True)
    )


def _files_of(
    manifest: Manifest, script: str, md5_of: Md5Of, signatures: Mapping[str, str]
) -> tuple[AppFile, ...]:
    if manifest.boinc_api:
        refs = (boinc_api.program(manifest), *boinc_api.others(manifest))
        md5s = [md5_of(ref) for ref in refs]
    else:
        file = content(script)
        main = FileRef("", hashlib.sha256(file).hexdigest(), len(file), executable=True)
        refs = (main, *manifest.inputs)
        md5s = [code_signatures.md5_hex(file), *map(md5_of, manifest.inputs)]
    return tuple(
        AppFile(ref.sha256, md5, ref.size, ref.executable, signatures.get(ref.sha256, ""))
        for ref, md5 in zip(refs, md5s, strict=True)
    )
