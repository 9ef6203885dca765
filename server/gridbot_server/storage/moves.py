"""Moves replicas: the statements of `sql/moves.sql`, with the states that `states.MOVES` names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from gridbot_client.protocol.messages import ReplicaId
from gridbot_server.storage import sql
from gridbot_server.storage.counters import CYCLES, NO_GRID, Counters, Happening
from gridbot_server.storage.db import Connection
from gridbot_server.storage.rows import array, encode, fetch, fetch_values
from gridbot_server.storage.states import MOVES, REPORTS, Event, State, after

SQL = sql.load("moves.sql")

NOBODY = 0  # the client and host of a first copy that ends before it was sent

# The statements of each event, in the order in which a transaction runs them.
STATEMENTS: Mapping[Event, tuple[str, ...]] = MappingProxyType(
    {
        Event.REUSED: ("copy_answers",),
        Event.COPY_WANTED: ("add_copies", "add_quorum_copies", "requeue_failed"),  # one of them
        Event.SENT: ("take_copies", "add_leases", "withhold", "unlease_ended"),
        Event.SUCCEEDED: ("end_leases", "take_late"),
        Event.FAILED: ("end_leases",),
        Event.DEADLINE_PASSED: ("deadline_passed",),
        Event.PILOT_ENDED: ("pilot_ended",),
        Event.CLIENT_LEFT: ("client_left",),
        Event.RETURNED: ("returned",),
        Event.HOST_BANNED: ("host_banned",),
        Event.HOST_FORGOTTEN: ("host_forgotten",),
        Event.CLIENT_REVOKED: ("client_revoked",),
        Event.JOB_HAS_OUTCOME: ("drop_copies_of_jobs", "job_has_outcome"),
        Event.GATHERING_ENDED: ("gathering_ended",),
        Event.GANG_BROKEN: ("gang_broken", "retire_ended"),
        Event.MANIFEST_REPLACED: ("manifest_replaced", "retire_ended"),
        Event.BOT_CANCELLED: ("bot_cancelled", "sweep_copies"),
        Event.BOT_DELETED: ("remove_ended",),
    }
)

# As what a report may end a lease, and what a late success finds and leaves.
REPORTED = {"ends": [after(State.LEASED, event).value for event in REPORTS.values()]}
LATE = {
    "before": [state.value for state in MOVES[Event.SUCCEEDED] if state is not State.LEASED],
    "after": after(State.LEASED, Event.SUCCEEDED).value,
}


# As what the history counts a lease that ended without an answer.
_ENDS: Mapping[State, Happening] = MappingProxyType(
    {State.EXPIRED: "relinquished", State.CANCELLED: "cancelled"}
)


class _Gone(NamedTuple):
    """Leases of a BOT that ended without an answer."""

    bot: int
    grid: str
    replicas: int


class _Retired(NamedTuple):
    """Answers that count no more."""

    grid: str
    replicas: int


def end_unanswered(
    conn: Connection, event: Event, values: Mapping[str, Any], counters: Counters
) -> int:
    """End the leases that an event takes away from their clients, in the caller's transaction.

    The event's statement is told which by `values`.  Returns how many they were, and counts them.
    """
    state = after(State.LEASED, event)
    ending = {"how": state.value, "reason": event.value}
    what = "expired" if event is Event.DEADLINE_PASSED else _ENDS[state]
    gone = fetch(conn, _Gone, SQL[event], {**values, **ending})
    for item in gone:
        counters.add(item.bot, "back", item.replicas)
        counters.note(item.bot, item.grid, what, item.replicas)
    return sum(item.replicas for item in gone)


def retire(
    conn: Connection, event: Event, bot: int, jobs: Sequence[int], counters: Counters
) -> None:
    """Let no answer that came before an event count for these jobs any more."""
    values = {
        "bot": bot,
        "jobs": list(jobs),
        "before": [state.value for state in MOVES[event] if state is not State.LEASED],
        "how": after(State.LEASED, event).value,
        "reason": event.value,
    }
    for item in fetch(conn, _Retired, SQL["retire_ended"], values):
        counters.note(bot, item.grid, "void", item.replicas)


def withhold(conn: Connection, bot: int, seqs: Sequence[int], counters: Counters) -> None:
    """Lease first copies to nobody, as dispatch does: who comes first, has them.

    Dispatch that wants to send one at this moment waits for us, and finds that it has ended.  What
    is queued of these jobs must be dropped before: dispatch takes copies first, and then leases.
    """
    if not seqs:
        return
    names = [{"bot": bot, "seq": seq, "replica": 1} for seq in seqs]
    values = {"jobs": encode(names), "client": NOBODY, "host": NOBODY}
    made = set(fetch(conn, ReplicaId, SQL["withhold"], values))
    made.difference_update(unlease_ended(conn, sorted(made)))
    counters.add(bot, "sent_first", len(made))
    counters.add(bot, "withheld", len(made))
    counters.note(bot, NO_GRID, "cancelled", -len(made))  # what was never sent


def unlease_ended(conn: Connection, leased: Sequence[ReplicaId]) -> list[ReplicaId]:
    """Take leases back that were just made of replicas that had ended before; return those."""
    if not leased:
        return []
    bots, seqs, replicas = zip(*leased, strict=True)
    values = {"bots": array(bots), "seqs": array(seqs), "replicas": array(replicas)}
    return fetch(conn, ReplicaId, SQL["unlease_ended"], values)


def relinquish(conn: Connection, event: Event, values: Mapping[str, Any]) -> int:
    """As `end_unanswered`, with counters of its own."""
    counters = Counters()
    count = end_unanswered(conn, event, values, counters)
    counters.write(conn, CYCLES)
    return count


def drop_copies(
    conn: Connection, statement: str, values: Mapping[str, Any], counters: Counters
) -> int:
    """Drop the queued copies that a statement takes away; return how many, and count them."""
    gone = fetch_values(conn, int, SQL[statement], values)
    for bot in gone:
        counters.add(bot, "unqueued")
    return len(gone)


def add_copies(conn: Connection, rows: Sequence[Mapping[str, Any]], counters: Counters) -> int:
    """Queue further copies, each a row of `requeue`; return how many were new, and count them."""
    added = fetch_values(conn, int, SQL["add_copies"], {"copies": encode(rows)})
    for bot in added:
        counters.add(bot, "queued")
    return len(added)
