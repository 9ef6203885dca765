"""One scheduler RPC: a request of BOINC's becomes one of ours, and what was given its reply.

All decisions are dispatch's: this module only says the same things in other words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from gridbot_client.protocol.cached import LEAST_BYTES, MAX_TOLD, cache_name, mark_of
from gridbot_client.protocol.messages import ReplicaId, Report, WorkRequest
from gridbot_server.boinc.application.description import uploads
from gridbot_server.boinc.application.offers import OfferedBot
from gridbot_server.boinc.application.rotation import KeyTurn, key_turn
from gridbot_server.boinc.protocol import reply
from gridbot_server.boinc.protocol.delivery import StockAssignment
from gridbot_server.boinc.protocol.names import Lease
from gridbot_server.boinc.protocol.preferences import global_preferences
from gridbot_server.boinc.protocol.reply import (
    BoincHost,
    BoincUser,
    Message,
    SchedulerReply,
    SigningKey,
)
from gridbot_server.boinc.protocol.request import SchedulerRequest
from gridbot_server.boinc.session.assigning import assignments
from gridbot_server.boinc.session.host_ad import host_ad
from gridbot_server.boinc.session.hosts import (
    Account,
    KnownCaller,
    KnownClient,
    meet,
    request_number,
)
from gridbot_server.boinc.session.inquiries import Uploads
from gridbot_server.boinc.session.project import Project
from gridbot_server.boinc.session.reports import ReplicaStates
from gridbot_server.dispatch.bans import Banned
from gridbot_server.dispatch.replies import ReplyParts
from gridbot_server.overload.rate_limit import RateLimiter
from gridbot_server.storage import sql
from gridbot_server.storage.db import Connect
from gridbot_server.storage.preferences import of_owners
from gridbot_server.storage.rows import encode, fetch

SQL = sql.load("boinc.sql")

# By which a client may ask too soon: it counts whole seconds, by a clock unlike ours.
_TOLERATED_SECONDS = 2
# A client without work would wait for minutes, then hours, and then a day.
IDLE_SECONDS = 60.0
# A client with work is told at least that often what it need not go on with.
HEARTBEAT_SECONDS = 600.0
# Of a trickle, and of all that a replica has said.
_MOST_HEARD_CHARACTERS, _MOST_KEPT_CHARACTERS = 4000, 16_000


@dataclass(frozen=True, slots=True)
class SchedulerRpc:
    """One request of a client that is known and welcome, and what it says of replicas.

    `connect` is for what few requests need; all others are answered without a connection of
    their own.
    """

    project: Project
    connect: Connect
    request: SchedulerRequest
    account: Account
    client: KnownClient
    said: ReplicaStates
    uploads: Uploads
    turn: KeyTurn  # to the next code signing key

    @property
    def takes_work(self) -> bool:
        """Whether there may be work in the reply."""
        refuses = self.request.client.refuses_work or self.is_too_soon or self.is_too_old
        return self.turn.takes_work and not refuses

    @property
    def is_too_soon(self) -> bool:
        """Whether the client asks for work sooner than it was told to: again, that is."""
        number = request_number(self.request, self.client.id)
        least = self.project.delay_seconds - _TOLERATED_SECONDS
        return number > 0 and self.client.silent_seconds < least

    @property
    def is_too_old(self) -> bool:
        """Whether the client's version is given no work."""
        return self.request.client.version < self.project.least_version


def begin(
    project: Project,
    connect: Connect,
    request: SchedulerRequest,
    said: ReplicaStates,
    found: KnownCaller,
    uploads: Uploads,
    attachments: RateLimiter,
) -> SchedulerRpc | None:
    """Who asks, once all that a request says beside its reports is taken; None: not welcome.

    Raises Banned for a host that an operator shut out.
    """
    account, known = found
    if account is None:
        return None
    client = meet(connect, account, known, request, attachments)
    if client.banned is not None:
        raise Banned(client.banned)
    if not client.is_welcome:
        return None
    turn = _key_turn(connect, project, request.code_sign_key or None, client, said)
    rpc = SchedulerRpc(project, connect, request, account, client, said, uploads, turn)
    _hear(rpc)
    return rpc


def finish(rpc: SchedulerRpc, given: ReplyParts) -> str:
    """The reply's text, from what dispatch answered."""
    project, parts = rpc.project, given.assignments
    made = assignments(project, rpc.connect, rpc.request, rpc.client, parts)
    return reply.render(_reply(rpc, given, made), project.places)


def _hear(rpc: SchedulerRpc) -> None:
    """Keep what programs that are made for BOINC say, the latest of it.

    Trickles come again until a reply acknowledges them; of one program they have different times.
    """
    rows, names = [], rpc.project.names
    for trickle in rpc.request.trickles:
        lease = names.read_replica(trickle.name)
        if lease is not None and lease.client == rpc.client.id:
            said = trickle.text[:_MOST_HEARD_CHARACTERS]
            rows.append({**lease.replica._asdict(), "said_at": trickle.sent_at, "said": said})
    if rows:
        with rpc.connect() as conn:
            values = {"trickles": encode(rows), "most": _MOST_KEPT_CHARACTERS}
            conn.execute(SQL["hear"], values)


def _key_turn(
    connect: Connect, project: Project, key: str | None, client: KnownClient, said: ReplicaStates
) -> KeyTurn:
    """What becomes of the key that a client holds; its jobs matter only at a change of keys."""
    if not project.chain.is_behind(key):
        return key_turn(project.chain, key, ())
    held = {lease.replica.bot for lease in said.holding if lease.client == client.id}
    leased = {id.bot for id in _leases(connect, client.id)}
    offers = project.offers.read(connect, leased | held)
    return key_turn(project.chain, key, [offer.application for offer in offers.values()])


# ------------------------------------------------------------------------------ the request


def work_request(rpc: SchedulerRpc) -> WorkRequest:
    """What dispatch is asked on behalf of this RPC."""
    request, client = rpc.request, rpc.client
    number = request_number(request, client.id)
    held = {lease.replica for lease in rpc.said.holding if lease.client == client.id}
    # Only what it should hold and certainly does not can be lost, and sent again.
    if not (request.knows_held and rpc.takes_work):
        held |= _leases(rpc.connect, client.id)
    reports = _reports(rpc)
    return WorkRequest(
        key=f"rpc {number}",
        seqno=number,
        host=host_ad(request),
        want=_want(rpc),
        holding=tuple(sorted(held - {report.id for report in reports})),
        reports=tuple(reports),
        cached=None if (marks := _marks(rpc)) == tuple(client.marks) else marks,
    )


def _marks(rpc: SchedulerRpc) -> tuple[str, ...]:
    """What the client kept of our files, as a native client tells it.

    The largest first, of the first MAX_KEPT_FILES that it lists.
    """
    names = rpc.project.names
    found = sorted(rpc.request.kept_files, key=lambda file: (-file.size, file.name))
    hashes = (names.read_file(file.name) for file in found if file.size >= LEAST_BYTES)
    return tuple(islice((mark_of(cache_name(sha256)) for sha256 in hashes if sha256), MAX_TOLD))


def _leases(connect: Connect, client: int) -> set[ReplicaId]:
    with connect() as conn:
        return set(fetch(conn, ReplicaId, SQL["leases"], {"client": client}))


def _want(rpc: SchedulerRpc) -> int:
    """How many replicas fill the client's queue; one for each core while nobody knows."""
    request, mean = rpc.request, rpc.client.mean_turnaround
    gpus = [kind for kind in request.gpus if kind.wanted.is_any]
    if not rpc.takes_work or not (request.cpu.is_any or gpus):
        return 0
    if mean is None:
        return request.machine.cpus if request.cpu.is_any else sum(kind.count for kind in gpus)
    return max(kind.replicas(mean) for kind in (request.cpu, *(kind.wanted for kind in gpus)))


def _reports(rpc: SchedulerRpc) -> list[Report]:
    """The reports of this client's own replicas, with the outputs that it uploaded."""
    ends = [end for end in rpc.said.ends if end.lease.client == rpc.client.id]
    bots = {end.lease.replica.bot for end in ends}
    offers = rpc.project.offers.read(rpc.connect, bots)
    optional = {bot: _optional(offer) for bot, offer in offers.items()}
    return [
        end.report(optional[id.bot], rpc.uploads.get(id, {}))
        for end in ends
        if (id := end.lease.replica).bot in offers
    ]


def _optional(offer: OfferedBot) -> Sequence[bool]:
    """For each file to upload, whether it may be missing."""
    return [upload.optional for upload in uploads(offer.manifest)]


# -------------------------------------------------------------------------------- the reply


def _reply(
    rpc: SchedulerRpc, given: ReplyParts, assignments: tuple[StockAssignment, ...]
) -> SchedulerReply:
    project, request, client = rpc.project, rpc.request, rpc.client
    is_idle = not (assignments or rpc.said.holding)
    delay = max(float(rpc.project.delay_seconds), given.next_request_seconds)
    if rpc.is_too_old and is_idle:  # one that has jobs brings them in time
        delay = reply.DAY_SECONDS
    return SchedulerReply(
        project.title,
        master_url=project.master_url,
        messages=_messages(rpc, given),
        request_delay_seconds=delay,
        next_rpc_seconds=max(IDLE_SECONDS, delay) if is_idle else HEARTBEAT_SECONDS,
        volunteer=_volunteer(project, rpc.account),
        host=BoincHost(
            client.id,
            client.created_at,
            is_new=request.hostid != client.id,
            total_credit=client.total_credit,
            recent_credit=client.recent_credit,
            venue=client.venue,
        ),
        acks=_acks(rpc, given),
        aborts=_aborts(rpc, given),
        has_messages_acked=bool(request.trickles),
        key=SigningKey(*rpc.turn.offer) if rpc.turn.offer else None,
        signed_anew=rpc.turn.files,
        assignments=assignments,
        preferences=_preferences(rpc),
        shares=rpc.account.shares,
        gui_urls=project.gui_urls,
        news=project.news,
    )


def _preferences(rpc: SchedulerRpc) -> str:
    """The account's preferences, if they are newer than those of the client.

    It may have another project's, for a client follows one set for all of them.
    """
    version, owner = rpc.account.preferences_version, rpc.account.owner
    if version <= rpc.request.preferences.version:
        return ""
    with rpc.connect() as conn:
        return global_preferences(version, of_owners(conn, [owner])[owner])


def _messages(rpc: SchedulerRpc, given: ReplyParts) -> tuple[Message, ...]:
    said = [Message(given.message)] if given.message else []
    if rpc.is_too_soon:
        said.append(Message(f"no work: asked again within {rpc.project.delay_seconds} s"))
    if rpc.is_too_old:
        said.append(Message(_too_old(rpc.project.least_version), is_notice=True))
    if rpc.project.chain.is_foreign(rpc.request.code_sign_key):
        text = "This client trusts another project's key. To fix, remove and add this project."
        said.append(Message(text, is_notice=True))
    return tuple(said)


def _too_old(least: tuple[int, int, int]) -> str:
    """The sentence of BOINC's own scheduler, and the version that would do."""
    return (
        "Your BOINC client software is too old.  Please install the current version."
        f"  This project gives work to version {'.'.join(map(str, least))} and later."
    )


def _acks(rpc: SchedulerRpc, given: ReplyParts) -> tuple[str, ...]:
    """Every name that was reported, save those that must be reported again."""
    names = rpc.project.names
    again = {names.replica(Lease(id, rpc.client.id)) for id in given.reupload}
    return tuple(name for name in rpc.said.acks if name not in again)


def _aborts(rpc: SchedulerRpc, given: ReplyParts) -> tuple[str, ...]:
    """What is not wanted any more, what we never gave, and what belongs to another client."""
    client, names = rpc.client.id, rpc.project.names
    unwanted = [Lease(id, client) for id in given.abort]
    foreign = [lease for lease in rpc.said.holding if lease.client != client]
    return (*map(names.replica, [*unwanted, *foreign]), *rpc.said.unknown)


def _volunteer(project: Project, account: Account) -> BoincUser:
    """The account; what stands for an e-mail address and a person tells neither."""
    digest = project.names.person(account.owner)
    return BoincUser(
        account.owner,
        account.name,
        account.created_at,
        email_hash=digest[:32],
        cross_project_id=digest[32:],
        total_credit=account.total_credit,
        recent_credit=account.recent_credit,
        team=account.team,
    )
