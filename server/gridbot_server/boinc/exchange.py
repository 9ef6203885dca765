"""One scheduler RPC: a request of BOINC's becomes one of ours, and what was given its reply.

All decisions are dispatch's: this module only says the same things in other words.
"""

from __future__ import annotations

import hmac
import logging
import math
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from gridbot_client import protocol
from gridbot_client.protocol import Output, ReplicaId, Report, WorkRequest
from gridbot_server import sql
from gridbot_server.boinc import application, reply, signing
from gridbot_server.boinc.application import Order
from gridbot_server.boinc.host_ad import host_ad
from gridbot_server.boinc.hosts import (
    Account,
    KnownClient,
    find_account,
    find_or_add,
    request_number,
)
from gridbot_server.boinc.names import Lease
from gridbot_server.boinc.offers import Offer, content_md5s
from gridbot_server.boinc.project import Project
from gridbot_server.boinc.reply import (
    Assignment,
    Host,
    Message,
    SchedulerReply,
    SigningKey,
    Volunteer,
)
from gridbot_server.boinc.reports import Exchanged, Stored, read_reports
from gridbot_server.boinc.request import SchedulerRequest
from gridbot_server.boinc.shim import may_lack_output
from gridbot_server.db import Connection
from gridbot_server.dispatch.batch import encode
from gridbot_server.dispatch.render import ReplyParts

log = logging.getLogger(__name__)

SQL = sql.load("boinc.sql")

Connect = Callable[[], AbstractContextManager[Connection]]
Ask = Callable[[bytes, WorkRequest], ReplyParts]

# Clients ask no sooner than five seconds after the last request anyway.
MIN_DELAY_SECONDS = 6.0
# A client without work would wait for minutes, then hours, and then a day.
IDLE_SECONDS = 60.0
# A client with work is told at least that often what it need not go on with.
HEARTBEAT_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Office:
    """What is needed to answer: the project, the database, and dispatch."""

    project: Project
    connect: Connect
    ask: Ask


@dataclass(frozen=True, slots=True)
class _Caller:
    """Who asks, and what it says of replicas."""

    request: SchedulerRequest
    account: Account
    client: KnownClient
    said: Exchanged
    offer: SigningKey | None  # the key that the client is to take
    takes_work: bool


def answer(office: Office, request: SchedulerRequest) -> SchedulerReply:
    """Serve one request; raises the errors of the engine and the database."""
    project = office.project
    with office.connect() as conn:
        account = find_account(conn, request.authenticator)
        if account is None:
            return reply.bad_key(project.title)
        client = find_or_add(conn, account, request)
        if not client.is_welcome:
            return reply.bad_key(project.title)
        caller = _caller(project, request, account, client)
        work = _work_request(conn, project, caller)
    given = office.ask(client.hash, work)
    assignments = _assignments(office, caller, given)
    return _reply(project, caller, given, assignments)


def _caller(
    project: Project, request: SchedulerRequest, account: Account, client: KnownClient
) -> _Caller:
    chain = project.chain
    held = request.code_sign_key or None
    link = chain.offer(held)
    return _Caller(
        request,
        account,
        client,
        read_reports(request, project.names),
        SigningKey(*link) if link else None,
        chain.is_current(held) and not request.client.refuses_work,
    )


# ------------------------------------------------------------------------------ the request


def _work_request(conn: Connection, project: Project, caller: _Caller) -> WorkRequest:
    request, client = caller.request, caller.client
    number = request_number(request)
    held = {lease.replica for lease in caller.said.holding if lease.client == client.id}
    # Only what it should hold and certainly does not can be lost, and sent again.
    if not (request.knows_held and caller.takes_work):
        rows = conn.execute(SQL["leases"], {"client": client.id})
        held |= {ReplicaId(*row) for row in rows}
    reports = _reports(conn, project, caller)
    return WorkRequest(
        key=f"rpc {number}",
        seqno=number,
        host=host_ad(request),
        want=_want(caller),
        holding=tuple(sorted(held - {report.id for report in reports})),
        reports=tuple(reports),
    )


def _want(caller: _Caller) -> int:
    """How many replicas fill the client's queue; one for each core while nobody knows."""
    request, mean = caller.request, caller.client.mean_turnaround
    kinds = (request.cpu, *(gpus.wanted for gpus in request.gpus))
    wanted = sum(kind.instances + kind.seconds for kind in kinds)
    if not caller.takes_work or not wanted:
        return 0
    if mean is None:
        return request.machine.cpus
    return max(kind.replicas(mean) for kind in kinds)


def _reports(conn: Connection, project: Project, caller: _Caller) -> list[Report]:
    """The reports of this client's own replicas, with the outputs that it uploaded."""
    ends = [end for end in caller.said.ends if end.lease.client == caller.client.id]
    offers = project.offers.read(conn, {end.lease.replica.bot for end in ends})
    stored = _stored(conn, [end.lease.replica for end in ends])
    return [
        end.report(_optional(offers[id.bot]), stored.get(id, {}))
        for end in ends
        if (id := end.lease.replica).bot in offers
    ]


def _optional(offer: Offer) -> Sequence[bool]:
    """For each file to upload, whether it may be missing: there is one, or none."""
    return [may_lack_output(offer.manifest)] if offer.manifest.outputs else []


def _stored(conn: Connection, replicas: Iterable[ReplicaId]) -> dict[ReplicaId, dict[int, Stored]]:
    listed = {"replicas": encode([id._asdict() for id in replicas])}
    outputs: dict[ReplicaId, list[Output]] = {}
    for bot, seq, replica, name, sha256, size in conn.execute(SQL["outputs"], listed):
        outputs.setdefault(ReplicaId(bot, seq, replica), []).append(Output(name, sha256, size))
    stored: dict[ReplicaId, dict[int, Stored]] = {}
    for bot, seq, replica, number, md5, size in conn.execute(SQL["uploads"], listed):
        id = ReplicaId(bot, seq, replica)
        stored.setdefault(id, {})[number] = Stored(md5, size, tuple(outputs.get(id, ())))
    return stored


# -------------------------------------------------------------------------------- the reply


def _assignments(office: Office, caller: _Caller, given: ReplyParts) -> tuple[Assignment, ...]:
    items = protocol.decode_reply(given.render()).assignments
    if not items:
        return ()
    with office.connect() as conn:
        offers = office.project.offers.read(conn, {item.id.bot for item in items})
        md5s = content_md5s(conn, [ref for item in items for ref in item.inputs])
    now = time.time()
    made = (_assignment(office.project, caller, offers, item, md5s, now) for item in items)
    return tuple(item for item in made if item)


def _assignment(
    project: Project,
    caller: _Caller,
    offers: dict[int, Offer],
    item: protocol.Assignment,
    md5s: dict[str, str],
    now: float,
) -> Assignment | None:
    offer, request = offers[item.id.bot], caller.request
    gpus = offer.manifest.resources.gpus
    kinds = {found.type for found in request.gpus if found.count >= gpus}
    made = offer.application
    version = made.version_for(request.client.platforms, kinds) if made else None
    if made is None or version is None:
        log.error("replica %s was given to a BOINC client that cannot run it", item.id)
        return None
    order = Order(
        item.id,
        project.names.replica(Lease(item.id, caller.client.id)),
        item.args,
        item.inputs,
        md5s,
        caller.client.mean_turnaround,
    )
    work = application.work(offer.manifest, order, project.names.file)
    certificates = tuple(
        signing.certificate(project.upload_key, file.name, file.max_nbytes) for file in work.outputs
    )
    deadline = math.ceil(now + item.deadline_seconds)
    return Assignment(made, version, work, deadline, certificates)


def _reply(
    project: Project, caller: _Caller, given: ReplyParts, assignments: tuple[Assignment, ...]
) -> SchedulerReply:
    request, client = caller.request, caller.client
    is_idle = not (assignments or caller.said.holding)
    delay = max(MIN_DELAY_SECONDS, given.next_request_seconds)
    return SchedulerReply(
        project.title,
        master_url=project.master_url,
        messages=(Message(given.message),) if given.message else (),
        request_delay_seconds=delay,
        next_rpc_seconds=max(IDLE_SECONDS, delay) if is_idle else HEARTBEAT_SECONDS,
        volunteer=_volunteer(project, caller.account),
        host=Host(client.id, client.created_at, is_new=request.hostid != client.id),
        acks=_acks(project, caller, given),
        aborts=_aborts(project, caller, given),
        has_messages_acked=bool(request.trickles),
        key=caller.offer,
        assignments=assignments,
    )


def _acks(project: Project, caller: _Caller, given: ReplyParts) -> tuple[str, ...]:
    """Every name that was reported, save those that must be reported again."""
    again = {project.names.replica(Lease(id, caller.client.id)) for id in given.reupload}
    return tuple(name for name in caller.said.acks if name not in again)


def _aborts(project: Project, caller: _Caller, given: ReplyParts) -> tuple[str, ...]:
    """What is not wanted any more, what we never gave, and what belongs to another client."""
    client = caller.client.id
    unwanted = [Lease(id, client) for id in given.abort]
    foreign = [lease for lease in caller.said.holding if lease.client != client]
    return (*map(project.names.replica, [*unwanted, *foreign]), *caller.said.unknown)


def _volunteer(project: Project, account: Account) -> Volunteer:
    """The account; what stands for an e-mail address and a person tells neither."""
    digest = hmac.digest(project.names.secret, f"account {account.owner}".encode(), "sha256").hex()
    return Volunteer(account.owner, account.name, account.created_at, digest[:32], digest[32:])
