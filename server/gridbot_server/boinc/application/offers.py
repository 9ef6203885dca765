"""The BOTs that stock clients are offered: signed at submission, described once per process."""

from __future__ import annotations

import io
import logging
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from gridbot_client.protocol.messages import FileRef, Manifest
from gridbot_server.boinc.application import code_keys, description, signed
from gridbot_server.boinc.application.code_keys import Chain
from gridbot_server.boinc.application.description import Application
from gridbot_server.boinc.application.signed import BadApplication, SignedApplication
from gridbot_server.boinc.protocol.names import Names
from gridbot_server.settings import Settings
from gridbot_server.signing.stock_clients import Unsuitable
from gridbot_server.storage import sql
from gridbot_server.storage.db import Connect, Connection
from gridbot_server.storage.files import Store
from gridbot_server.storage.rows import fetch, fetch_mapping, fetch_only_value

log = logging.getLogger(__name__)

SQL = sql.load("boinc.sql")

_MOST_OFFERS = 1000  # kept in memory


@dataclass(frozen=True, slots=True)
class OfferedBot:
    """A BOT as stock clients see it; without an application it is not for them."""

    manifest: Manifest
    application: Application | None


class _BotTexts(NamedTuple):
    bot: int
    manifest: str
    application: str | None  # None: not signed for stock clients


@dataclass(slots=True)
class Offers:
    """Reads BOTs' applications, whose signatures are checked against the key in use."""

    names: Names
    chain: Chain
    _known: dict[int, OfferedBot] = field(default_factory=dict)

    def read(self, connect: Connect, bots: Collection[int]) -> dict[int, OfferedBot]:
        """Return the offers of these BOTs; of those that are gone there is none."""
        found = {bot: offer for bot in set(bots) if (offer := self._known.get(bot))}
        if unknown := sorted(set(bots) - found.keys()):
            with connect() as conn:
                for row in fetch(conn, _BotTexts, SQL["bots"], {"bots": unknown}):
                    manifest = Manifest.from_text(row.manifest)
                    found[row.bot] = self._offer(conn, row.bot, manifest, row.application)
            self._keep(found)
        return found

    def _keep(self, found: dict[int, OfferedBot]) -> None:
        # What is not signed yet may be, later.
        if len(self._known) + len(found) > _MOST_OFFERS:
            self._known = {}
        self._known |= {bot: offer for bot, offer in found.items() if offer.application}

    def _offer(
        self, conn: Connection, bot: int, manifest: Manifest, text: str | None
    ) -> OfferedBot:
        if text is None:
            return OfferedBot(manifest, None)
        md5s = content_md5s(conn, manifest.inputs)
        public = code_keys.parse_public(self.chain.newest)
        try:
            files = signed.check(
                manifest, SignedApplication.from_text(text), lambda ref: md5s[ref.sha256], public
            )
        except BadApplication as error:
            log.error("BOT %d is not for BOINC clients any more: %s", bot, error)
            return OfferedBot(manifest, None)
        return OfferedBot(manifest, description.describe(manifest, bot, files, self.names.file))


def sign(
    conn: Connection, settings: Settings, store: Store, manifest: Manifest
) -> SignedApplication:
    """Sign a manifest for stock clients and keep its script; raise Unsuitable if it cannot be."""
    path = settings.boinc_key_path
    if not path.exists():
        raise Unsuitable("the code signing key for BOINC clients is not on this server")
    private = code_keys.load_private(path)
    if code_keys.public_text(private.public_key()) != read_chain(conn, SQL["share_chain"]).newest:
        raise Unsuitable(f"{path.name} on this server is not the code signing key in use any more")
    description.check_manifest(manifest)
    md5s = content_md5s(conn, manifest.inputs)
    for ref in manifest.inputs:
        with store.open(ref.sha256) as file:
            signed.check_input(ref, file)
    made = signed.sign(manifest, lambda ref: md5s[ref.sha256], private)
    keep_scripts(conn, store, made)
    return made


def keep_scripts(conn: Connection, store: Store, application: SignedApplication) -> None:
    """Make files of an application's scripts, which clients download like others."""
    for script in filter(None, application.scripts):
        file = signed.content(script)
        kept = store.put(len(file), io.BytesIO(file).read)
        values = {"sha256": kept.sha256, "md5": kept.md5, "size": kept.size}
        conn.execute(SQL["add_blob"], values)


def content_md5s(conn: Connection, files: Iterable[FileRef]) -> dict[str, str]:
    """Return the MD5 of each file that is here, by its SHA-256."""
    hashes = [bytes.fromhex(sha256) for sha256 in {ref.sha256 for ref in files}]
    return fetch_mapping(conn, SQL["md5s"], {"hashes": hashes}) if hashes else {}


def read_chain(conn: Connection, query: bytes) -> Chain:
    """Return the chain of code signing keys; `query` is the one that reads it, and locks it."""
    return Chain.from_text(fetch_only_value(conn, str, query))
