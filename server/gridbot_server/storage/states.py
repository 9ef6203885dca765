"""The life of a replica: its states, the events that move it, and the one table of moves.

Theory of operation
===================

A replica is a copy of a job, named by (BOT, job, number).  Its state is no column: it is the table
in which the replica has a row, and for what has ended the column `ended.how`.  Rows are inserted
and deleted, never moved through an indexed state column, so that updates stay cheap (HOT) and the
tables of what is in progress stay small.

    state       row                       meaning
    UNSENT      none but that of `job`    a first copy that was never sent
    ABSENT      none                      a further copy not made yet, or dropped; deleted
    QUEUED      requeue                   a further copy that waits for a host
    LEASED      lease                     a client has it until its deadline
    SUCCESS     ended, how = success      its client reported outputs
    ERROR       ended, how = error        its client reported a failure
    EXPIRED     ended, how = expired      it was not answered, or was relinquished
    LOST        ended, how = lost         of an earlier release; counts as an error
    CANCELLED   ended, how = cancelled    nobody wants its answer any more

A first copy has no row before it is sent: a million unsent jobs are a million rows of `job` and
nothing else.  `bot.fed` and `feed_range` say which of them some feeder holds in its buffer.

What moves a replica is an event: a host's request, a deadline, an operator, the outcome of its
job.  `MOVES` says for each event from which states it moves a replica, and to which.  An event
finds a replica in another state whenever it comes twice, late, or is forged; then nothing happens.
That is all that makes requests idempotent, and a crash at any line harmless: there is no flag of
what was done already, only a row that is no longer where the event looks for it.

Each statement of `sql/moves.sql` is such a compare-and-swap: it locks or deletes the row of the old
state and inserts that of the new one, so that of two transactions only one finds it.  What a row
ends as, and as what it must have ended before, is not written in those statements: `moves.py` hands
them the states of this table.  A success is the one event that also moves what has ended: a late
answer is an answer, because volunteers' laptops sleep.

The wake-up of a job's decision (a row of `pending`) is written by the statement that moves its
replica, the verdict (`ended.valid`) later by the transitioner.  Neither changes the state, and a
late success takes the verdict back, for another one.

`moves.STATEMENTS` lists the statements of each event.  A test runs each event on a replica in each
state, against a real database, and another one finds every statement that writes to these tables
in that list.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType


class State(StrEnum):
    """Where a replica is; the values of those that have ended are those of `ended.how`."""

    UNSENT = "unsent"
    ABSENT = "absent"
    QUEUED = "queued"
    LEASED = "leased"
    SUCCESS = "success"
    ERROR = "error"
    EXPIRED = "expired"
    LOST = "lost"
    CANCELLED = "cancelled"


class Event(StrEnum):
    """What moves a replica; one that ends it without an answer is the value of `ended.reason`."""

    REUSED = "reused"  # its job has the outcome of another with the same derivation
    COPY_WANTED = "copy_wanted"  # by the transitioner, the tail phase, a quorum or a retry
    SENT = "sent"
    SUCCEEDED = "succeeded"  # its client reported a success
    FAILED = "failed"  # its client reported a failure
    DEADLINE_PASSED = "deadline_passed"
    PILOT_ENDED = "pilot_ended"  # the grid says so
    CLIENT_LEFT = "client_left"
    RETURNED = "returned"  # its client cannot run the BOT, or was asked for it
    HOST_BANNED = "host_banned"
    HOST_FORGOTTEN = "host_forgotten"  # its owner, or an operator, does not wait for it
    CLIENT_REVOKED = "client_revoked"  # with the key that it joined with
    JOB_HAS_OUTCOME = "job_has_outcome"
    GATHERING_ENDED = "gathering_ended"  # too few of its gang came within the time for that
    GANG_BROKEN = "gang_broken"  # another of its gang did not succeed: all begin anew
    MANIFEST_REPLACED = "manifest_replaced"  # what ran, or answered, is of an earlier version
    BOT_CANCELLED = "bot_cancelled"
    BOT_DELETED = "bot_deleted"  # long after it was cancelled


# What an event does to a replica in a state; to one in any other state it does nothing.
MOVES: Mapping[Event, Mapping[State, State]] = MappingProxyType(
    {
        Event.REUSED: {State.UNSENT: State.SUCCESS},
        Event.COPY_WANTED: {State.ABSENT: State.QUEUED},
        Event.SENT: {State.UNSENT: State.LEASED, State.QUEUED: State.LEASED},
        Event.SUCCEEDED: {State.LEASED: State.SUCCESS, State.EXPIRED: State.SUCCESS},
        Event.FAILED: {State.LEASED: State.ERROR},
        Event.DEADLINE_PASSED: {State.LEASED: State.EXPIRED},
        Event.PILOT_ENDED: {State.LEASED: State.EXPIRED},
        Event.CLIENT_LEFT: {State.LEASED: State.EXPIRED},
        Event.RETURNED: {State.LEASED: State.EXPIRED},
        Event.HOST_BANNED: {State.LEASED: State.EXPIRED},
        Event.HOST_FORGOTTEN: {State.LEASED: State.EXPIRED},
        Event.CLIENT_REVOKED: {State.LEASED: State.EXPIRED},
        Event.JOB_HAS_OUTCOME: {State.LEASED: State.CANCELLED, State.QUEUED: State.ABSENT},
        Event.GATHERING_ENDED: {State.LEASED: State.CANCELLED},
        Event.GANG_BROKEN: {
            State.LEASED: State.CANCELLED,
            State.SUCCESS: State.CANCELLED,  # nobody has judged it
        },
        Event.MANIFEST_REPLACED: {
            State.LEASED: State.CANCELLED,
            State.SUCCESS: State.CANCELLED,  # nobody has judged it
            State.EXPIRED: State.CANCELLED,  # it might still answer
        },
        Event.BOT_CANCELLED: {State.LEASED: State.CANCELLED, State.QUEUED: State.ABSENT},
        Event.BOT_DELETED: {
            State.UNSENT: State.ABSENT,  # with its job
            State.SUCCESS: State.ABSENT,
            State.ERROR: State.ABSENT,
            State.EXPIRED: State.ABSENT,
            State.LOST: State.ABSENT,
            State.CANCELLED: State.ABSENT,
        },
    }
)

# The event of a report, by its `how`.
REPORTS: Mapping[str, Event] = MappingProxyType({"success": Event.SUCCEEDED, "error": Event.FAILED})

# Why a job failed for good that its owner cancelled: `outcome.reason`.
JOB_CANCELLED = "cancelled"

# Ends that are no answer; what its client reported as a failure, and what was never answered.
ERRORS = frozenset((State.ERROR, State.LOST))
FAILURES = ERRORS | {State.EXPIRED}

# Relinquished replicas: they expired before their deadline, which says nothing of their job.
RELINQUISHED = (
    Event.PILOT_ENDED, Event.CLIENT_LEFT, Event.RETURNED, Event.HOST_BANNED,
    Event.HOST_FORGOTTEN,
    Event.CLIENT_REVOKED,
)  # fmt: skip


def after(state: State, event: Event) -> State:
    """Return the state in which an event leaves a replica."""
    return MOVES[event].get(state, state)
