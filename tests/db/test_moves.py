"""The table of moves (`storage.states`) against every statement that moves a replica."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from importlib import resources
from pathlib import Path
from typing import Literal

import pytest
from tests.factories import (
    make_bot,
    make_client,
    make_ended,
    make_host,
    make_key,
    make_lease,
    make_outcome,
    make_owner,
)

from gridbot_client.protocol.messages import ReplicaId, Report, WorkRequest
from gridbot_server.bots import reuse
from gridbot_server.cycles import deadline, retention
from gridbot_server.dispatch.batch import ClientRow, Exchange
from gridbot_server.dispatch.leases import NewLease, add_leases
from gridbot_server.dispatch.reports import settle_reports
from gridbot_server.storage import moves, sql
from gridbot_server.storage.counters import Counters
from gridbot_server.storage.db import PostgresConnection
from gridbot_server.storage.rows import encode
from gridbot_server.storage.states import MOVES, RELINQUISHED, Event, State, after

GRID = "cluster"
ROWS = b"""
SELECT 'queued' FROM requeue WHERE (bot, seq, replica) = (%(bot)s, %(seq)s, %(replica)s)
 UNION ALL
SELECT 'leased' FROM lease WHERE (bot, seq, replica) = (%(bot)s, %(seq)s, %(replica)s)
 UNION ALL
SELECT how FROM ended WHERE (bot, seq, replica) = (%(bot)s, %(seq)s, %(replica)s)
"""


@dataclass(frozen=True)
class Site:
    """One replica of one job, and a client that may have it."""

    conn: PostgresConnection
    name: ReplicaId
    client: int
    token: int
    host: int
    owner: int

    @property
    def possible(self) -> list[State]:
        """The states that the replica may be in."""
        never = {State.ABSENT, State.QUEUED} if self.name.replica == 1 else {State.UNSENT}
        return [state for state in State if state not in never]

    def put(self, state: State) -> None:
        """Bring the replica into a state."""
        match state:
            case State.UNSENT | State.ABSENT:
                pass
            case State.QUEUED:
                columns = b"(bot, seq, replica, round, why) VALUES (%s, %s, %s, 0, 'tail')"
                self.conn.execute(b"INSERT INTO requeue " + columns, self.name)
            case State.LEASED:
                make_lease(self.conn, self.name, self.client, deadline="yesterday")
            case _:
                make_ended(self.conn, self.name, self.client, state.value)

    def states(self) -> list[State]:
        """Say where the replica has rows: one state, unless something is wrong."""
        found = self.conn.execute(ROWS, self.name._asdict()).fetchall()
        if found:
            return [State(place) for (place,) in found]
        has_job = self.conn.execute("SELECT FROM job").fetchone() is not None
        return [State.UNSENT if has_job and self.name.replica == 1 else State.ABSENT]

    def exchange(self, *reports: Report) -> Exchange:
        """Return a request of the client."""
        client = ClientRow(
            hash=b"",
            id=self.client, host=self.host, owner=self.owner, owner_name="alice", accepts=(),
            trusts=(self.owner,),
            grid=GRID, dedicated=False, venue="", seqno=0, last_key="", error_rate=0.1,
            mean_turnaround=None, jobs_today=0, recent_cpu=0.0,
        )  # fmt: skip
        return Exchange(client, WorkRequest("key", 1, {}, 1, (), reports))


def make_site(conn: PostgresConnection, replica: int) -> Site:
    owner = make_owner(conn, "alice")
    bot = make_bot(conn, owner, quorum=2)
    make_key(conn, owner, "join")
    (token,) = conn.execute("SELECT id FROM token").fetchone() or ()
    host = make_host(conn, owner)
    client, _ = make_client(conn, owner, host, grid=GRID, pilot="tag.0", joined_with=token)
    return Site(conn, ReplicaId(bot, 0, replica), client, token, host, owner)


@pytest.fixture(params=[1, 2], ids=["first copy", "further copy"])
def site(request: pytest.FixtureRequest, conn: PostgresConnection) -> Site:
    return make_site(conn, request.param)


def give_outcome(site: Site) -> None:
    source = make_bot(site.conn, site.owner, quorum=2)
    make_outcome(site.conn, ReplicaId(source, 0, 1), site.client, {})
    site.conn.execute("UPDATE bot SET derivation = 'same', reuse = true")
    reuse.reuse(site.conn, site.name.bot, 0, Counters())


def want_copy(site: Site) -> None:
    row = {**site.name._asdict(), "round": 0, "why": "tail", "prio": 0, "pool": None}
    moves.add_copies(site.conn, [row], Counters())


def send(site: Site) -> None:
    why = "first" if site.name.replica == 1 else "tail"
    lease = NewLease(site.name, 0, why, site.exchange(), 60.0, False)
    add_leases(site.conn, [lease], Counters())


def report(how: Literal["success", "error"]) -> Callable[[Site], None]:
    def apply(site: Site) -> None:
        settle_reports(site.conn, [site.exchange(Report(site.name, how))], Counters())

    return apply


def relinquish(event: Event) -> Callable[[Site], None]:
    def apply(site: Site) -> None:
        values = {
            "client": site.client, "host": site.host, "token": site.token, "grid": GRID,
            "bots": [site.name.bot], "seqs": [site.name.seq], "replicas": [site.name.replica],
            "pilots": ["tag.0"],
        }  # fmt: skip
        moves.relinquish(site.conn, event, values)

    return apply


def finish_job(site: Site) -> None:
    jobs = {"jobs": encode([site.name._asdict()])}
    moves.drop_copies(site.conn, "drop_copies_of_jobs", jobs, Counters())
    moves.end_unanswered(site.conn, Event.JOB_HAS_OUTCOME, jobs, Counters())


def replace_manifest(site: Site) -> None:
    listed = {"replicas": encode([site.name._asdict()])}
    moves.end_unanswered(site.conn, Event.MANIFEST_REPLACED, listed, Counters())
    moves.retire(site.conn, Event.MANIFEST_REPLACED, site.name.bot, [site.name.seq], Counters())


def end_gathering(site: Site) -> None:
    gang = {"gangs": encode([{"bot": site.name.bot, "number": 0}])}
    site.conn.execute("INSERT INTO gang (bot, number, size) VALUES (%s, 0, 1)", [site.name.bot])
    moves.end_unanswered(site.conn, Event.GATHERING_ENDED, gang, Counters())


def break_gang(site: Site) -> None:
    jobs = {"jobs": encode([site.name._asdict()])}
    moves.end_unanswered(site.conn, Event.GANG_BROKEN, jobs, Counters())
    moves.retire(site.conn, Event.GANG_BROKEN, site.name.bot, [site.name.seq], Counters())


def cancel(site: Site) -> None:
    site.conn.execute("UPDATE bot SET state = 'cancelled', ended_at = now()")
    deadline.sweep_cancelled(site.conn)


def delete(site: Site) -> None:
    site.conn.execute("UPDATE bot SET state = 'cancelled', ended_at = now(), deleted_at = now()")
    retention.remove_rows(site.conn, settled=timedelta(seconds=-1))


# How production brings each event about.
EVENTS: dict[Event, Callable[[Site], object]] = {
    Event.REUSED: give_outcome,
    Event.COPY_WANTED: want_copy,
    Event.SENT: send,
    Event.SUCCEEDED: report("success"),
    Event.FAILED: report("error"),
    Event.DEADLINE_PASSED: lambda site: deadline.run_once(site.conn),
    **{event: relinquish(event) for event in RELINQUISHED},
    Event.JOB_HAS_OUTCOME: finish_job,
    Event.GATHERING_ENDED: end_gathering,
    Event.GANG_BROKEN: break_gang,
    Event.MANIFEST_REPLACED: replace_manifest,
    Event.BOT_CANCELLED: cancel,
    Event.BOT_DELETED: delete,
}


@pytest.mark.parametrize("event", Event)
def test_an_event_moves_a_replica_as_the_table_says_or_not_at_all(site: Site, event: Event) -> None:
    for state in site.possible:
        with site.conn.transaction(force_rollback=True):
            site.put(state)
            EVENTS[event](site)
            assert site.states() == [after(state, event)], f"{event} of what was {state}"


def test_a_copy_for_a_quorum_is_queued_only_where_there_is_none(conn: PostgresConnection) -> None:
    site = make_site(conn, 2)
    for state in site.possible:
        with conn.transaction(force_rollback=True):
            site.put(state)
            listed = {"leases": encode([{"bot": site.name.bot, "seq": 0, "round": 0, "more": 1}])}
            conn.execute(moves.SQL["add_quorum_copies"], listed)
            assert site.states() == [after(state, Event.COPY_WANTED)]


def test_a_retry_numbers_its_copy_after_all_others(conn: PostgresConnection) -> None:
    site = make_site(conn, 2)
    for state in site.possible:
        with conn.transaction(force_rollback=True):
            site.put(State.ERROR if state is State.ABSENT else state)
            bot = site.name.bot
            conn.execute(
                "INSERT INTO outcome (bot, seq, round, reason, n) VALUES (%s, 0, 0, 'failed', 1)",
                [bot],
            )
            conn.execute(moves.SQL["requeue_failed"], {"bot": bot, "jobs": None})
            copies = conn.execute("SELECT replica FROM requeue ORDER BY replica").fetchall()
            assert copies[-1] == (3,)
            assert conn.execute("SELECT FROM outcome").fetchone() is None


# Statements that write to rows of replicas and leave them in their state: claims of queued copies
# by feeders, and verdicts.
CLAIMS = {
    "release_copies",
    "claim_copies",
    "claim_these",
    "unclaim_copies",
    "unclaim_all",
    "renew_copies",
}
VERDICTS = {"judge"}
WRITES = re.compile(r"\b(INSERT INTO|DELETE FROM|UPDATE)\s+(lease|ended|requeue)\b")
FILES = [file for file in resources.files(sql).iterdir() if file.name.endswith(".sql")]


def test_each_statement_that_writes_to_a_replica_is_in_the_list_of_an_event() -> None:
    writers = {
        (file.name, name)
        for file in FILES
        for name, text in sql.load(file.name).items()
        if WRITES.search(text.decode())
    }
    listed = {name for names in moves.STATEMENTS.values() for name in names}
    others = {name for file, name in writers if file != "moves.sql"}
    assert listed == set(moves.SQL) == {name for file, name in writers if file == "moves.sql"}
    assert others == CLAIMS | VERDICTS | {
        "extend_leases",
        "note_progress",
        "start",
    }  # which give time or say how far a program is, and move nothing


def test_a_claim_or_a_verdict_changes_no_state() -> None:
    for file in FILES:
        for name, text in sql.load(file.name).items():
            if name in CLAIMS | VERDICTS:
                assert {verb for verb, _ in WRITES.findall(text.decode())} == {"UPDATE"}
                assert not re.search(r"\bhow\s*=", text.decode())


def test_no_code_writes_to_a_replica_by_a_statement_of_its_own() -> None:
    server = Path(str(resources.files(sql))).parents[1]
    assert not [file for file in server.rglob("*.py") if WRITES.search(file.read_text("utf-8"))]


def test_the_table_and_the_list_of_statements_name_every_event() -> None:
    assert set(MOVES) == set(moves.STATEMENTS) == set(EVENTS) == set(Event)


def test_every_state_but_that_of_an_earlier_release_is_reached() -> None:
    reached = {state for changes in MOVES.values() for state in changes.values()}
    assert reached == set(State) - {State.UNSENT, State.LOST}


def test_of_what_has_ended_only_an_expiry_can_be_mended() -> None:
    ended = {State.SUCCESS, State.ERROR, State.LOST, State.EXPIRED, State.CANCELLED}
    mended = {
        (state, changes[state])
        for event, changes in MOVES.items()
        for state in ended & changes.keys()
        if event is not Event.BOT_DELETED and changes[state] is not State.CANCELLED
    }
    assert mended == {(State.EXPIRED, State.SUCCESS)}
