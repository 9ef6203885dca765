"""A batch of host requests as one transaction, apart from the thread that collects them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from gridbot_client.protocol.messages import WorkRequest
from gridbot_server.buffer.interface import Buffer
from gridbot_server.dispatch import bans, batch
from gridbot_server.dispatch.batch import Exchange
from gridbot_server.dispatch.dispatcher import Dispatcher
from gridbot_server.dispatch.replies import MAX_IDLE_SECONDS, ReplyParts, contact_seconds
from gridbot_server.dispatch.reservation import Reservation
from gridbot_server.errors import ClientTooOld, ServerError, Unauthorized
from gridbot_server.storage.db import Connection


class Served(NamedTuple):
    """What came of a batch, which is committed."""

    answers: Mapping[bytes, ReplyParts | ServerError]  # by the hashes of tokens
    feeder_wanted: bool
    leaves_some: bool  # of the replicas in the buffer


def transact(
    conn: Connection,
    buffer: Buffer | None,
    dispatcher: Dispatcher,
    requests: Mapping[bytes, WorkRequest],
    parked: Collection[bytes],
) -> Served:
    """Serve requests, by the hashes of their tokens, in one transaction; settle slots they took.

    Those of `parked` were served before, and found no work.
    """
    reservation = Reservation()
    try:
        with conn.transaction():
            answers = _answers(conn, buffer, dispatcher, requests, parked, reservation)
    except BaseException:
        # Whether or not the commit arrived, the leases decide: a slot of a replica that was
        # leased after all is refused when somebody takes it again.
        dispatcher.forget()
        if buffer is not None:
            buffer.restore(reservation.numbers)
        raise
    if buffer is not None and reservation.numbers:
        buffer.free(reservation.numbers)
    return Served(answers, reservation.feeder_wanted, reservation.leaves_some)


def _answers(
    conn: Connection,
    buffer: Buffer | None,
    dispatcher: Dispatcher,
    requests: Mapping[bytes, WorkRequest],
    parked: Collection[bytes],
    reservation: Reservation,
) -> dict[bytes, ReplyParts | ServerError]:
    """Do all that a batch asks for; return what each of its tokens is answered."""
    contact = contact_seconds(buffer.pulse()[1]) if buffer is not None else MAX_IDLE_SECONDS
    clients = batch.find_clients(conn, requests, contact)
    refused = requests.keys() - clients.keys()
    banned = bans.of_tokens(conn, sorted(refused))
    answers: dict[bytes, ReplyParts | ServerError] = {
        token: banned.get(token) or _unknown() for token in refused
    }
    known = [(token, clients[token]) for token in requests if token in clients]  # as they came
    if known:
        exchanges = [
            Exchange(client, requests[token], was_parked=token in parked) for token, client in known
        ]
        replies = dispatcher.serve(conn, buffer, exchanges, reservation)
        answers |= {token: _told(requests[token], replies[client.id]) for token, client in known}
    return answers


def _told(request: WorkRequest, reply: ReplyParts) -> ReplyParts | ServerError:
    """Tell a client that is too old why it gets nothing: of replies it shows errors alone.

    Such an error acknowledges nothing, and the client asks more seldom: so it is for those without
    reports and replicas.
    """
    if reply.is_outdated and reply.may_wait and not (request.reports or request.holding):
        return ClientTooOld(reply.message)
    return reply


def _unknown() -> Unauthorized:
    return Unauthorized("this client's token is unknown, expired or revoked")
