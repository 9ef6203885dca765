"""What dispatch needs to know of a BOT beyond its counters, read once per version of it."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gridbot_client.protocol.messages import Manifest, SignedManifest, manifest_id, manifest_json
from gridbot_client.protocol.signatures import Introduction
from gridbot_policies import PolicySet
from gridbot_server.buffer.layout import BotSnapshot
from gridbot_server.matching.assurance import AssuranceTerms, terms_of
from gridbot_server.matching.cached import SharedInputs, shared_inputs
from gridbot_server.matching.policies import bot_policies
from gridbot_server.matching.stock_platforms import stock_platforms
from gridbot_server.metrics.traces import traced_bot
from gridbot_server.storage import sql
from gridbot_server.storage.db import Connection
from gridbot_server.storage.rows import fetch

SQL = sql.load("dispatch.sql")


class GroupShare(NamedTuple):
    """A group of BOTs that has a share of its owner's hosts."""

    id: int
    share: float


@dataclass(frozen=True, slots=True)
class Entry:
    """One version of a BOT: policies parsed, manifest rendered."""

    version: int
    name: str
    owner: str
    share: float
    policies: PolicySet
    manifest: Manifest
    manifest_id: str
    rendered: bytes  # the manifest's member of a reply: "id":{"text":…,"signature":…,…}
    signed: bool
    owner_signed: bool
    quorum: int
    stock_platforms: tuple[str, ...]  # where stock BOINC clients can run it
    needs: str  # equal for BOTs that need the same of a host, and of whom it trusts
    is_suspended: bool  # its policy exceeded its evaluation budget repeatedly
    terms: AssuranceTerms | None  # of answers from strangers
    program: bytes  # what hosts prove themselves with
    known: Collection[int]  # jobs whose answers its owner knows
    rounds: range  # of replicas that run this version of the manifest, as far as it is known
    group: GroupShare | None  # in which it competes with the rest of its owner's
    has_storage: bool  # of its owner's, to which its outputs go
    shared_inputs: SharedInputs | None  # if its policies ask whether hosts hold them

    @property
    def among_strangers(self) -> bool:
        """Whether anybody's machine runs it: unsigned BOTs only go where their owner is trusted."""
        return self.signed or bool(self.stock_platforms)


class _Row(NamedTuple):
    """One version of a BOT as the database has it."""

    id: int
    version: int
    name: str
    owner: str
    owner_id: int
    share: float
    policy: str
    manifest: str
    signature: bytes | None
    owner_signature: bytes | None
    signed_with: bytes | None
    quorum: int
    is_for_stock: bool
    is_suspended: bool
    assurance: float | None
    program: bytes
    round: int
    first_round: int
    known: list[int] | None
    group_id: int | None
    group_share: float | None
    has_storage: bool
    trace: bytes | None
    traced_jobs: int


class _Link(NamedTuple):
    """A key's word for a newer one, of an owner or of the project."""

    owner: int | None
    old: bytes
    new: bytes
    signature: bytes


class Catalog:
    """The BOTs that one web process has met."""

    def __init__(self) -> None:
        self._entries: dict[int, Entry] = {}

    def refresh(self, conn: Connection, states: Sequence[BotSnapshot]) -> Mapping[int, Entry]:
        """Read those of `states` whose version changed; return the entries of all BOTs."""
        stale = [state.bot for state in states if not self._is_fresh(state)]
        self._entries.update(self.read(conn, stale))
        return self._entries

    def keep(self, bots: Collection[int]) -> None:
        """Forget all BOTs but these."""
        for bot in self._entries.keys() - bots:
            del self._entries[bot]

    @staticmethod
    def read(conn: Connection, bots: Collection[int]) -> dict[int, Entry]:
        """Return the entries of any BOTs, straight from the database."""
        if not bots:
            return {}
        found = fetch(conn, _Row, SQL["bots"], {"bots": list(bots)})
        owners = list({row.owner_id for row in found})
        links = fetch(conn, _Link, SQL["introductions"], {"owners": owners})
        return {row.id: _entry(row, links) for row in found}

    def _is_fresh(self, state: BotSnapshot) -> bool:
        entry = self._entries.get(state.bot)
        return entry is not None and entry.version >= state.version


def _entry(row: _Row, links: Sequence[_Link]) -> Entry:
    identity = manifest_id(row.manifest)
    manifest = Manifest.from_text(row.manifest)
    signed = SignedManifest(
        row.manifest,
        row.signature,
        row.owner_signature,
        row.signed_with or b"",
        tuple(Introduction(*link[1:]) for link in links if link.owner in (None, row.owner_id)),
        None if row.trace is None else traced_bot(row.trace, row.traced_jobs),
    )
    member = json.dumps(identity) + ":" + json.dumps(manifest_json(signed))
    stock = stock_platforms(manifest) if row.is_for_stock else ()
    signers = (manifest.version, row.signature is None, row.owner_signature is None)
    wanted = (manifest.resources, manifest.platforms, manifest.programs, manifest.walls.level)
    made_there = identity if manifest.has_environment else ""
    is_gang = manifest.together > 1
    needs = repr(
        (
            row.owner,
            signers,
            wanted,
            stock,
            made_there,
            is_gang,
            manifest.boinc_api,
            row.has_storage,
        )
    )
    policies = bot_policies(row.name, row.policy)
    return Entry(
        version=row.version,
        name=row.name,
        owner=row.owner,
        share=row.share,
        policies=policies,
        manifest=manifest,
        manifest_id=identity,
        rendered=member.encode(),
        signed=row.signature is not None,
        owner_signed=row.owner_signature is not None,
        quorum=row.quorum,
        stock_platforms=stock,
        needs=sys.intern(needs),
        is_suspended=row.is_suspended,
        terms=terms_of(row.assurance, row.quorum, row.signature is not None or bool(stock)),
        program=row.program,
        known=frozenset(row.known or ()),
        rounds=range(row.first_round, row.round + 1),
        group=GroupShare(row.group_id, row.group_share)
        if row.group_id is not None and row.group_share is not None
        else None,
        has_storage=row.has_storage,
        shared_inputs=shared_inputs(manifest, policies),
    )
