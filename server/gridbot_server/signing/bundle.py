"""A folder that carries BOTs to the machine with the keys, and signatures back to the server.

It holds what a BOT runs (`bot-7.json`) and the files that its jobs share (`files/SHA256`), and
after signing `bot-7.signed.json`; a change of keys is `boinc-key.signed.json` or
`project-key.signed.json`.  `parcel.json` lists what was fetched.  Everything in it came from
somewhere else: list and hashes are checked before anything is signed, and somebody has to look at
it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from gridbot_client.protocol import job_table
from gridbot_client.protocol.fields import MAX_BIGINT, is_sha256
from gridbot_client.protocol.messages import FileRef, Manifest, manifest_id
from gridbot_server.signing import keys
from gridbot_server.signing.stock_clients import StockSigner, Unsuitable
from gridbot_server.storage.disk import write_atomically

_NUMBER = r"[1-9][0-9]{0,18}"
_NAME = re.compile(rf"bot-({_NUMBER})(?:\.signed)?\.json")
_CHUNK_BYTES = 1 << 20

Document = dict[str, Any]
KeyKind = Literal["project", "boinc"]


class BundleError(ValueError):
    """The folder does not hold what it should; the message names the file."""


@dataclass(frozen=True, slots=True)
class SigningKeys:
    """The private keys at hand: of the project, for stock clients, of a BOT's owner."""

    project: Ed25519PrivateKey | None = None
    stock: StockSigner | None = None
    owner: Ed25519PrivateKey | None = None


@dataclass(frozen=True, slots=True)
class SigningBundle:
    """The folder; made when something is put into it."""

    folder: Path

    # ------------------------------------------------------------------------ to be signed

    def put(self, bot: int, text: str, parts: Sequence[Mapping[str, Any]] = ()) -> Manifest:
        """Add what a BOT runs, and the parts of its job table; files are put beside it one by one.

        A part has its `first` job, its `size` and the `root` of its hash tree.
        """
        (self.folder / "files").mkdir(parents=True, exist_ok=True)
        manifest = Manifest.from_text(text)
        _write(self._path(bot), {"manifest": text, "parts": list(parts)})
        _write(self._list_path, {**self._list(), str(bot): manifest_id(text)})
        return manifest

    def put_file(self, ref: FileRef, chunks: Iterable[bytes]) -> None:
        """Add a file that a BOT's jobs share, unless it is there whole."""
        path = self._file(ref)
        if path.exists() and _is_whole(ref, path):
            return
        partial = path.with_name(f"{path.name}.part")
        with partial.open("wb") as file:
            file.writelines(chunks)
        partial.replace(path)

    def bots(self) -> list[int]:
        """The BOTs that were fetched; BundleError names the files that nobody fetched."""
        listed = self._list()
        found = (_NAME.fullmatch(path.name) for path in self.folder.iterdir())
        if strange := sorted(name[0] for name in found if name and name[1] not in listed):
            names = ", ".join(strange)
            raise BundleError(
                f"{self.folder}: not fetched with it: {names}: fetch those BOTs or remove the files"
            )
        return sorted(map(int, listed))

    def manifest(self, bot: int) -> Manifest:
        """What a BOT runs, signed or not."""
        return Manifest.from_text(self._text(bot))

    # ------------------------------------------------------------------------------ signed

    def sign(self, bot: int, at_hand: SigningKeys) -> str:
        """Sign a BOT with the keys at hand; return why that for stock clients cannot be, or "".

        Raises BundleError for a file that is not the one which the manifest names.
        """
        text, why = self._text(bot), ""
        made = self.signed(bot)
        owner_key = Manifest.from_text(text).owner_key
        if at_hand.project:
            made["native"] = self._signatures(bot, text, at_hand.project, signs_jobs=not owner_key)
        if at_hand.owner:
            if at_hand.owner.public_key().public_bytes_raw().hex() != owner_key:
                raise BundleError(
                    f"bot {bot}: names {owner_key or 'no key'} as its owner's, not the one at hand"
                )
            made["owner"] = self._signatures(bot, text, at_hand.owner, signs_jobs=True)
        if at_hand.stock:
            md5_of = partial(self._md5, at_hand.stock)
            try:
                made["boinc"] = at_hand.stock.sign(Manifest.from_text(text), md5_of)
            except Unsuitable as error:
                why = str(error)
        if made != self.signed(bot):
            _write(self._path(bot, ".signed"), made)
        return why

    def _signatures(
        self, bot: int, text: str, key: Ed25519PrivateKey, signs_jobs: bool
    ) -> Document:
        parts = self._parts(bot) if signs_jobs else []
        statements = [
            job_table.statement(manifest_id(text), part["first"], part["size"], root)
            for part in parts
            for root in [bytes.fromhex(part["root"])]
        ]
        return {
            "signature": _base64(keys.sign_manifest(key, text)),
            "parts": [_base64(key.sign(statement)) for statement in statements],
        }

    def _parts(self, bot: int) -> list[Any]:
        path = self._path(bot)
        found = _read(path).get("parts", [])
        if not isinstance(found, list) or not all(map(_is_part, found)):
            raise BundleError(f"{path}: holds no parts of a job table")
        return found

    def signed(self, bot: int) -> Document:
        """Signatures of a BOT, as the server takes them: of `native`, `owner` and `boinc`."""
        path = self._path(bot, ".signed")
        return _read(path) if path.exists() else {}

    def put_key(self, kind: KeyKind, key: Mapping[str, Any]) -> None:
        """Add the next key of the project, or for stock clients, with its signature."""
        self.folder.mkdir(parents=True, exist_ok=True)
        _write(self._key_path(kind), key)

    def key(self, kind: KeyKind) -> Document | None:
        """The next key of this kind and its signature, if one is here."""
        path = self._key_path(kind)
        return _read(path) if path.exists() else None

    def _key_path(self, kind: KeyKind) -> Path:
        return self.folder / f"{kind}-key.signed.json"

    @property
    def _list_path(self) -> Path:
        return self.folder / "parcel.json"

    def _list(self) -> Document:
        """What was fetched: BOTs, and the hashes of what they run."""
        listed = _read(self._list_path) if self._list_path.exists() else {}
        if not all(re.fullmatch(_NUMBER, bot) for bot in listed):
            raise BundleError(f"{self._list_path}: is no list of BOTs")
        return listed

    def _md5(self, signer: StockSigner, ref: FileRef) -> str:
        """The MD5 of a file that may be signed."""
        path = self._file(ref)
        if not path.exists():
            raise BundleError(f"{path} is not here: fetch the BOT again")
        with path.open("rb") as file:
            signer.check_input(ref, file)
        return _content_md5(ref, path)

    def _text(self, bot: int) -> str:
        path = self._path(bot)
        text = _read(path).get("manifest")
        if not isinstance(text, str):
            raise BundleError(f"{path}: holds no manifest")
        if manifest_id(text) != self._list().get(str(bot)):
            raise BundleError(f"{path}: is not what was fetched")
        return text

    def _path(self, bot: int, kind: str = "") -> Path:
        return self.folder / f"bot-{bot}{kind}.json"

    def _file(self, ref: FileRef) -> Path:
        return self.folder / "files" / ref.sha256


def _is_part(raw: object) -> bool:
    return (
        isinstance(raw, dict)
        and type(raw.get("first")) is int
        and 0 <= raw["first"] <= MAX_BIGINT
        and type(raw.get("size")) is int
        and 1 <= raw["size"] <= job_table.PART_JOBS
        and is_sha256(str(raw.get("root")))
    )


def _base64(signature: bytes) -> str:
    return base64.b64encode(signature).decode()


def _is_whole(ref: FileRef, path: Path) -> bool:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == ref.sha256


def _content_md5(ref: FileRef, path: Path) -> str:
    """The MD5 of a file; BundleError when it is another one, found in the same pass."""
    sha256, md5 = hashlib.sha256(), hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            sha256.update(chunk)
            md5.update(chunk)
    if sha256.hexdigest() != ref.sha256:
        raise BundleError(f"{ref.name}: what came does not hash to {ref.sha256}")
    return md5.hexdigest()


def _write(path: Path, document: Mapping[str, Any]) -> None:
    write_atomically(path, json.dumps(document) + "\n", mode=0o644)


def _read(path: Path) -> Document:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BundleError(f"{path}: cannot be read: {error}") from None
    if not isinstance(found, dict):
        raise BundleError(f"{path}: holds no JSON object")
    return found
