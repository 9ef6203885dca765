"""Which of the hosts that were seen lately could run a BOT, and why the others could not."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from gridbot_client.protocol.messages import Manifest
from gridbot_policies import PolicySet, SemanticError
from gridbot_policies.classad import ParseError, Record, record
from gridbot_server.api.access import mine
from gridbot_server.buffer.layout import BotSnapshot
from gridbot_server.errors import ObjectNotFound, RequestError
from gridbot_server.http.services import connection
from gridbot_server.matching.ads import bot_ad, host_attributes
from gridbot_server.matching.explanation import (
    SilentHolder,
    Standing,
    WaitingKind,
    explanation,
    host_explanation,
)
from gridbot_server.matching.hosts import BotRequirements, HostClient, survey
from gridbot_server.matching.idleness import Hindrance, hindrances
from gridbot_server.matching.stock_platforms import stock_platforms
from gridbot_server.models.responses.bots import Match
from gridbot_server.models.responses.explanation import Explanation, HostExplanation
from gridbot_server.storage import rows, sql
from gridbot_server.storage.db import Connection

SQL = sql.load("bots.sql")

# Clients that are looked at, those that asked last.  Two thousand take 0.3 s, unless a policy is
# made to take long: time for one who asks why, not for each submission of a small BOT.
MOST_CLIENTS, MOST_AT_ONCE = 2000, 200
# Of more clients those that asked last are sought among so many, and so many for each one that is
# looked at: what a look costs does not grow with the hosts of a server.
_LEAST_SOUGHT, _SOUGHT_FOR_ONE = 5000, 10
_MOST_SECONDS = 2.0
_ALL = 100.0  # per cent


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedBot:
    """A BOT as the queries of `wants`, `rivals` and the overlay's `demand` give it."""

    id: int
    name: str
    owner: int
    owner_name: str
    signed: bool
    owner_signed: bool
    manifest: str
    policy: str
    policy_version: int
    size: int
    done: int
    failed: int
    tail: bool
    created_at: float  # seconds since 1970
    mean_turnaround: float | None  # seconds
    unsent: int
    running: int

    def ad(self, now: float) -> Record:
        """Return its ad at `now`."""
        state = BotSnapshot(
            bot=self.id,
            version=self.policy_version,
            owner=self.owner,
            size=self.size,
            fresh_unsent=self.unsent,
            copies_unsent=0,  # the ad has the sum of both
            running=self.running,
            done=self.done,
            failed=self.failed,
            tail=self.tail,
            created_at=self.created_at,
            mean_turnaround=self.mean_turnaround,
        )
        return bot_ad(state, self.name, self.owner_name, self.signed, now)


@dataclass(frozen=True, slots=True, kw_only=True)
class _WaitingBot(QueuedBot):
    """One that wants hosts."""

    signed_for_boinc: bool
    boinc_unsuitable: str | None
    suspended: str | None
    has_storage: bool

    def demand(self, queue: Record) -> BotRequirements:
        """Return what it asks of hosts now; raise ParseError or SemanticError."""
        now = time.time()
        manifest = Manifest.from_text(self.manifest)
        return BotRequirements(
            bot=self.id,
            owner=self.owner,
            owner_name=self.owner_name,
            signed=self.signed,
            owner_signed=self.owner_signed,
            manifest=manifest,
            policies=PolicySet.parse(self.policy),
            ad=self.ad(now),
            queue=queue,
            now=now,
            stock_platforms=stock_platforms(manifest) if self.signed_for_boinc else (),
            boinc_unsuitable=self.boinc_unsuitable,
            has_storage=self.has_storage,
        )


@dataclass(frozen=True, slots=True)
class _SeenClient:
    """A client that asked for work lately, and its host."""

    host: int
    ad: dict[str, Any]  # what the host says of itself
    owner_name: str
    owner: int
    accepts: list[int]
    trusts: list[int]
    protocol: int
    grid: str | None
    dedicated: bool
    venue: str
    error_rate: float
    jobs_today: int
    mean_turnaround: float | None  # seconds
    recent_cpu: float  # seconds
    name: str | None
    silent: bool
    running: int
    cached: list[str]

    def candidate(self) -> HostClient:
        """Return it as matching sees it."""
        known = {
            "Owner": self.owner_name,
            "Grid": self.grid,
            "IsPilot": self.grid is not None,
            "IsDedicated": self.dedicated,
            "Venue": self.venue or None,
            "ErrorRate": self.error_rate,
            "JobsToday": self.jobs_today,
            "MeanTurnaround": self.mean_turnaround,
            "RecentCpuTime": self.recent_cpu,
        }
        ad = host_attributes(self.ad, known, running=0)
        return HostClient(
            self.host, ad, self.owner, self.accepts, self.trusts, self.protocol, self.name,
            self.silent, self.running, self.cached,
        )  # fmt: skip


def match_of(bot: int) -> Match:
    """Return how the hosts that asked last suit a BOT. Call it without a connection in hand.

    Policies are evaluated after the connection is returned: that may take a second.
    """
    with connection() as conn:
        queue, candidates = queue_ad(conn), _candidates(conn, most=MOST_AT_ONCE)
        wanted = _waiting_bot(conn, bot)
    found = survey(candidates, wanted.demand(queue), _patience())
    return Match(**asdict(found), is_sample=len(candidates) == MOST_AT_ONCE)


def explanation_of(
    bot: int,
    state: str,
    host: str | None,
    *,
    growing: bool,
    held: str | None,
    overlay: Mapping[str, Any],
    most: int,
    policy: str | None,
) -> Explanation:
    """Explain how the known hosts suit a BOT, or one of them alone.

    `host` is its number or its name, `overlay` what pilots and their grids had to say.  `most`
    clients are looked at; a `policy` stands for the BOT's own.  Raises ObjectNotFound for a host
    that is unknown to the asker.
    """
    with connection() as conn:
        queue, candidates = queue_ad(conn), _candidates(conn, host, most)
        wanted = _waiting_bot(conn, bot)
        if policy is not None:
            wanted = replace(wanted, policy=policy)
        kinds = rows.read(conn, WaitingKind, SQL["waiting_kinds"], {"bot": bot})
        silent = rows.read(conn, SilentHolder, SQL["silent_hosts"], {"bot": bot, "mine": mine()})
        others = rows.read(conn, _WaitingBot, SQL["rivals"], {"bot": bot})
    rivals = [found for other in others if (found := _readable(other, queue))]
    standing = Standing(
        bot, state, wanted.unsent, wanted.running, rivals, wanted.suspended, kinds, growing,
        held, silent,
    )  # fmt: skip
    demand = wanted.demand(queue)
    if host is None:
        return Explanation(**explanation(demand, candidates, standing, _patience()), **overlay)
    clients = _clients_of(host, candidates)
    return HostExplanation(**host_explanation(demand, clients, standing, _patience()), **overlay)


def _clients_of(host: str, found: Sequence[HostClient]) -> Sequence[HostClient]:
    """Make sure that the clients that were found for a number or a name are of one host."""
    numbers = sorted({client.host for client in found})
    if not numbers:
        raise ObjectNotFound(f"no host {host[:100]!r} of which you may know has asked for work")
    if len(numbers) > 1:
        listed = ", ".join(map(str, numbers[:10]))
        raise RequestError(f"several hosts are called {host[:100]!r}; give a number: {listed}")
    return found


def _patience() -> Callable[[], bool]:
    """Return what tells when a request has thought long enough about a policy."""
    until = time.monotonic() + _MOST_SECONDS
    return lambda: time.monotonic() > until


def queue_ad(conn: Connection) -> Record:
    """Return the Queue ad."""
    return record(rows.read_one(conn, dict, SQL["queue"]) or {})


def hindrances_of(client: int, owner: int, has_room: bool) -> tuple[int, list[Hindrance]]:
    """Return how many BOTs wait to be sent, and what keeps them from a client of an owner.

    Call it without a connection in hand: policies may take a second.
    """
    with connection() as conn:
        queue = queue_ad(conn)
        found = _seen(conn, owner, [client])
        others = rows.read(conn, _WaitingBot, SQL["rivals"], {"bot": 0})
    if not found:  # it has not asked for work yet
        return len(others), []
    bots = [bot for other in others if (bot := _readable(other, queue))]
    return len(others), hindrances(found[0].candidate(), bots, has_room, _patience())


def _candidates(
    conn: Connection, named: str | None = None, most: int = MOST_CLIENTS
) -> list[HostClient]:
    if named is None:
        clients = clients_seen(conn, most)
    else:
        values = {"mine": mine(), "host": named, "most": most}
        clients = rows.fetch_values(conn, int, SQL["clients_of_host"], values)
    return [client.candidate() for client in _seen(conn, mine(), clients)]


def clients_seen(conn: Connection, most: int) -> list[int]:
    """Return clients that asked for work in the last day, those that asked last first.

    Where there are very many, they are the last ones of a sample, always of the same one.
    """
    known = rows.fetch_only_value(conn, float, SQL["clients_known"])
    percent = percent_sought(known, most)
    found = rows.fetch_values(conn, int, SQL["clients_seen"], {"percent": percent, "most": most})
    if len(found) < most and percent < _ALL:  # few of very many are still there
        all_of_them = {"percent": _ALL, "most": most}
        found = rows.fetch_values(conn, int, SQL["clients_seen"], all_of_them)
    return found


def percent_sought(known: float, most: int) -> float:
    """Return among how much of all clients the last `most` are sought, if so many are known."""
    sought = max(_LEAST_SOUGHT, _SOUGHT_FOR_ONE * most)
    return _ALL if known <= sought else _ALL * sought / known


def _seen(conn: Connection, whose: int | None, clients: Sequence[int]) -> list[_SeenClient]:
    values = {"mine": whose, "clients": clients}
    return rows.read(conn, _SeenClient, SQL["hosts_seen"], values)


def _waiting_bot(conn: Connection, bot: int) -> _WaitingBot:
    found = rows.read_one(conn, _WaitingBot, SQL["wants"], {"bot": bot})
    assert found is not None, "the caller has seen the BOT"
    return found


def _readable(bot: _WaitingBot, queue: Record) -> BotRequirements | None:
    """Return another BOT; None if its policy was stored by a version that read it otherwise."""
    try:
        return bot.demand(queue)
    except (ParseError, SemanticError):
        return None
