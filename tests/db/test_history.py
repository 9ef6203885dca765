"""The history is what a count of replicas and outcomes gives, minute by minute."""

from collections import Counter
from dataclasses import replace
from datetime import timedelta

import pytest
from tests.db.dispatching import Caller, Dispatch, failure, success
from tests.factories import make_bot, make_client

from gridbot_server.bots.cancelling import cancel_jobs
from gridbot_server.bots.retry import retry
from gridbot_server.cycles import retention
from gridbot_server.history import curves, notable, sums
from gridbot_server.history.steps import DAY, HOUR, MINUTE, Span
from gridbot_server.storage.db import PostgresConnection
from gridbot_server.storage.rows import encode

AT_ONCE = timedelta(0)
Counted = Counter[tuple[int, str, str]]  # minute, grid, what

# What the tables of replicas and outcomes say of what the history counts.
RECOUNT = """
    WITH replica AS (
        SELECT client, sent_at, NULL AS ended_at, NULL AS how FROM lease WHERE bot = %(bot)s
         UNION ALL
        SELECT client, sent_at, ended_at, how FROM ended WHERE bot = %(bot)s AND client <> 0
    ), placed AS (
        SELECT r.*, coalesce(c.grid, '') AS grid
          FROM replica r LEFT JOIN client c ON c.id = r.client
    )
    SELECT extract(epoch FROM date_trunc('minute', at))::bigint, grid, what, count(*)
      FROM (SELECT sent_at AS at, grid, 'sent' AS what FROM placed
             UNION ALL
            SELECT ended_at, grid, CASE how WHEN 'success' THEN 'succeeded'
                                            WHEN 'error' THEN 'errors' ELSE how END
              FROM placed WHERE ended_at IS NOT NULL
             UNION ALL
            SELECT o.made_at, coalesce(c.grid, ''),
                   CASE WHEN o.canonical IS NULL THEN 'failed' ELSE 'done' END
              FROM outcome o
              LEFT JOIN ended e ON (e.bot, e.seq, e.replica) = (o.bot, o.seq, o.canonical)
              LEFT JOIN client c ON c.id = e.client WHERE o.bot = %(bot)s) AS x
     GROUP BY 1, 2, 3
"""


def recount(conn: PostgresConnection, bot: int) -> Counted:
    found = conn.execute(RECOUNT, {"bot": bot}).fetchall()
    return Counter({(at, grid, what): count for at, grid, what, count in found})


def told(conn: PostgresConnection, bot: int, step: int = MINUTE) -> Counted:
    """The history of the last hours; without what is not counted in the tables."""
    sums.collect(conn)
    made = curves.sums(conn)
    last = int(made.now) // step * step + step
    wanted = Span(last - 1000 * step, last, step)
    return Counter(
        {
            (at, grid, what): int(value)
            for grid, of_grid in curves.of_bot(conn, bot, wanted, made).items()
            for what, values in of_grid.items()
            for at, value in zip(wanted.times, values, strict=True)
            if value and what not in ("added", "cpu_seconds")
        }
    )


def total(found: Counted) -> Counter[str]:
    sums_: Counter[str] = Counter()
    for (_, _, what), value in found.items():
        sums_[what] += value
    return sums_


def pilot(dispatch: Dispatch, owner: int, grid: str) -> Caller:
    _, token = make_client(dispatch.conn, owner, grid=grid, pilot="tag.0", accepts=[owner])
    return Caller(dispatch, token)


def shift(conn: PostgresConnection, bot: int, minutes: int) -> None:
    """Let all that happened have happened so long ago."""
    sums.collect(conn)
    by = {"bot": bot, "by": timedelta(minutes=minutes)}
    conn.execute("UPDATE bot_history SET at = at - %(by)s WHERE bot = %(bot)s", by)
    conn.execute("UPDATE failure_history SET at = at - %(by)s WHERE bot = %(bot)s", by)
    conn.execute("UPDATE lease SET sent_at = sent_at - %(by)s WHERE bot = %(bot)s", by)
    conn.execute(
        "UPDATE ended SET sent_at = sent_at - %(by)s, ended_at = ended_at - %(by)s"
        " WHERE bot = %(bot)s",
        by,
    )
    conn.execute("UPDATE outcome SET made_at = made_at - %(by)s WHERE bot = %(bot)s", by)


def test_minutes_equal_a_count_of_the_tables_on_each_grid(
    dispatch: Dispatch, conn: PostgresConnection, alice: int, client: Caller
) -> None:
    bot = make_bot(conn, alice, jobs=12, max_attempts=2)
    on_grid = pilot(dispatch, alice, "ice")
    dispatch.feed()
    here, there = client.ask(want=5).assignments, on_grid.ask(want=7).assignments
    shift(conn, bot, 3)
    client.ask(want=0, reports=(success(here[0]), failure(here[1]), success(here[2])))
    on_grid.ask(want=0, reports=tuple(map(success, there[:2])))
    dispatch.settle()
    shift(conn, bot, 2)
    dispatch.expire(there[2].id)
    dispatch.feed()
    again = client.ask(want=9).assignments
    client.ask(want=0, reports=tuple(map(failure, again)))
    dispatch.settle()
    counted = recount(conn, bot)
    assert len({at for at, _, _ in counted}) >= 3
    assert {grid for _, grid, _ in counted} == {"", "ice"}
    assert told(conn, bot) == counted


def test_a_late_answer_and_a_retry_count_in_their_own_minute(
    dispatch: Dispatch, conn: PostgresConnection, alice: int, client: Caller
) -> None:
    bot = make_bot(conn, alice, jobs=2, max_attempts=1)
    dispatch.feed()
    late, bad = client.ask(want=2).assignments
    dispatch.expire(late.id)
    client.ask(want=0, reports=(failure(bad),))
    dispatch.settle()
    shift(conn, bot, 4)
    client.ask(want=0, reports=(success(late),))
    dispatch.settle()
    retry(conn, bot)
    dispatch.feed()
    found = total(told(conn, bot))
    assert (found["expired"], found["late"], found["succeeded"]) == (1, 1, 1)
    now = {what for (at, _, what) in told(conn, bot) if at > curves.sums(conn).now - 2 * MINUTE}
    assert {"late", "succeeded", "retried", "done"} <= now
    row = conn.execute("SELECT done, failed FROM bot WHERE id = %s", [bot]).fetchone()
    assert row == (found["done"], found["failed"] - found["retried"])


def test_a_job_that_was_cancelled_unsent_was_neither_sent_nor_cancelled_as_a_replica(
    dispatch: Dispatch, conn: PostgresConnection, alice: int, client: Caller
) -> None:
    bot = make_bot(conn, alice, jobs=3)
    dispatch.feed()
    client.ask(want=1)
    cancel_jobs(conn, bot, [0, 1, 2])
    assert told(conn, bot) == recount(conn, bot)
    assert total(told(conn, bot))["cancelled"] == 1


def test_reasons_of_failures_add_up_to_the_errors(
    dispatch: Dispatch, conn: PostgresConnection, alice: int, client: Caller
) -> None:
    bot = make_bot(conn, alice, jobs=4)
    dispatch.feed()
    given = client.ask(want=4).assignments
    reasons = ["exit_nonzero", "time_limit", "exit_nonzero"]
    client.ask(want=0, reports=tuple(map(failure, given, reasons)))
    sums.collect(conn)
    made = curves.sums(conn)
    last = int(made.now) // HOUR * HOUR + HOUR
    found = curves.failures(conn, bot, Span(last - DAY, last, HOUR), made)
    assert {reason: sum(values) for (reason, _), values in found.items()} == {
        "exit_nonzero": 2,
        "time_limit": 1,
    }
    assert total(told(conn, bot))["errors"] == 3


@pytest.mark.parametrize("step", [HOUR, DAY])
def test_longer_steps_hold_what_their_minutes_held_also_when_those_are_gone(
    dispatch: Dispatch, conn: PostgresConnection, alice: int, client: Caller, step: int
) -> None:
    bot = make_bot(conn, alice, jobs=9)
    conn.execute("UPDATE history_sum SET until = until - interval '90 days'")
    for days in (25, 9, 0):
        dispatch.feed()
        given = client.ask(want=3).assignments
        client.ask(want=0, reports=tuple(map(success, given)))
        dispatch.settle()
        shift(conn, bot, days * 24 * 60)
    counted = total(recount(conn, bot))
    for _ in range(150):
        sums.run_once(conn, AT_ONCE)
    minutes = "SELECT count(*) FROM bot_history WHERE bot = %s AND step = 60"
    assert conn.execute(minutes + " AND at < now() - interval '7 days'", [bot]).fetchone() == (0,)
    assert total(told(conn, bot, step)) == counted
    before = conn.execute("SELECT * FROM bot_history ORDER BY 1, 2, 3, 4").fetchall()
    sums.run_once(conn, AT_ONCE)
    assert conn.execute("SELECT * FROM bot_history ORDER BY 1, 2, 3, 4").fetchall() == before


def test_no_sum_is_made_before_all_that_belongs_to_it_is_collected(
    conn: PostgresConnection, alice: int
) -> None:
    bot = make_bot(conn, alice)
    conn.execute("UPDATE history_sum SET until = until - interval '3 hours'")
    noted = "INSERT INTO happening VALUES (now() - %s, %s)"
    what = encode([{"bot": bot, "grid": "", "sent": 1}])
    for hours in (2, 1):
        conn.execute(noted, [timedelta(hours=hours), what])
    conn.execute(
        """
        CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
        CREATE TRIGGER keep BEFORE DELETE ON happening FOR EACH ROW EXECUTE FUNCTION keep();
        """
    )  # as when another pass has taken the notes that this one wanted
    sums.run_once(conn, AT_ONCE)
    made = curves.sums(conn)
    assert made.hours <= made.now - 2 * HOUR
    conn.execute("DROP TRIGGER keep ON happening")
    sums.run_once(conn, AT_ONCE)
    assert curves.sums(conn).hours > made.now - HOUR
    assert told(conn, bot, HOUR).total() == 2


def test_a_pass_of_the_sums_ends_while_notes_keep_coming(
    conn: PostgresConnection, alice: int
) -> None:
    """Each time notes are taken another one arrives; at the 50th time the database refuses."""
    conn.execute(
        """
        CREATE SEQUENCE notes;
        CREATE FUNCTION note_more() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            ASSERT nextval('notes') < 50, 'it goes on and on';
            INSERT INTO happening (what) VALUES ('[{"requests": 1}]');
            RETURN NULL;
        END $$;
        CREATE TRIGGER note_more AFTER DELETE ON happening
            FOR EACH ROW EXECUTE FUNCTION note_more();
        INSERT INTO happening (what) VALUES ('[{"requests": 1}]');
        """
    )
    sums.run_once(conn, AT_ONCE)
    query = "SELECT sum(value) FROM server_history WHERE step = 60 AND name = 'requests'"
    assert conn.execute(query).fetchone() == (1.0,)


def test_the_history_of_all_bots_is_the_sum_of_theirs(
    dispatch: Dispatch, conn: PostgresConnection, alice: int, client: Caller
) -> None:
    bots = [make_bot(conn, alice, jobs=2) for _ in range(2)]
    dispatch.feed()
    given = client.ask(want=4).assignments
    client.ask(want=0, reports=tuple(map(success, given)))
    dispatch.settle()
    for _ in range(2):
        sums.run_once(conn)
        assert total(told(conn, curves.ALL)) == sum(
            (total(told(conn, bot)) for bot in bots), Counter()
        )


def test_it_survives_the_deletion_of_its_bot(
    dispatch: Dispatch, conn: PostgresConnection, alice: int, client: Caller
) -> None:
    bot = make_bot(conn, alice, jobs=3)
    dispatch.feed()
    given = client.ask(want=3).assignments
    client.ask(want=0, reports=tuple(map(success, given)))
    dispatch.settle()
    before = told(conn, bot)
    conn.execute(retention.SQL["delete"], {"bots": [bot]})
    while retention.remove_rows(conn, AT_ONCE):
        pass
    assert conn.execute("SELECT FROM bot WHERE id = %s", [bot]).fetchone() is None
    assert told(conn, bot) == before
    kept = curves.subject(conn, bot)
    assert kept is not None
    assert (kept.owner, kept.name, kept.jobs_left) == (alice, "scan", 0)


def remembered(conn: PostgresConnection, query: str, bot: int) -> list[tuple[object, ...]]:
    return conn.execute(notable.SQL[query], {"bot": bot}).fetchall()


def test_one_example_of_each_reason_is_kept_beyond_the_bot(
    dispatch: Dispatch, conn: PostgresConnection, alice: int, client: Caller
) -> None:
    bot = make_bot(conn, alice, jobs=3, max_attempts=1)
    dispatch.feed()
    given = client.ask(want=3).assignments
    reasons = ["time_limit", "exit_nonzero", "exit_nonzero"]
    client.ask(want=0, reports=tuple(map(failure, given, reasons)))
    dispatch.settle()
    conn.execute(retention.SQL["delete"], {"bots": [bot]})
    while retention.remove_rows(conn, AT_ONCE):
        pass
    found = remembered(conn, "examples", bot)
    assert [(row[0], row[6], row[7]) for row in found] == [
        ("exit_nonzero", 1, "it broke"),
        ("time_limit", 1, "it broke"),
    ]
    notable.forget(conn)
    assert len(remembered(conn, "examples", bot)) == 2
    conn.execute("UPDATE deleted_bot SET ended_at = now() - interval '367 days'")
    notable.forget(conn)
    assert remembered(conn, "examples", bot) == []


def test_the_ten_slowest_jobs_are_kept(
    dispatch: Dispatch, conn: PostgresConnection, alice: int, client: Caller
) -> None:
    bot = make_bot(conn, alice, jobs=24)
    seconds = dict(enumerate([5, 90, 3, 80, 2, 70, 1, 60, 9, 50, 8, 40, *range(100, 112)]))
    while given := (dispatch.feed(), client.ask(want=4).assignments)[1]:
        reports = [
            replace(success(item), wall_seconds=float(seconds[item.id.seq])) for item in given
        ]
        client.ask(want=0, reports=tuple(reports))
        dispatch.settle()
    slow = sorted(seconds, key=lambda seq: -seconds[seq])[: notable.SLOWEST]
    found = remembered(conn, "slowest", bot)
    assert [(row[0], row[4]) for row in found] == [(seq, seconds[seq]) for seq in slow]


def sessions(conn: PostgresConnection) -> list[tuple[str | None, bool]]:
    (host,) = conn.execute("SELECT max(id) FROM host").fetchone() or (0,)
    found = conn.execute(notable.SQL["sessions"], {"host": host, "limit": 9}).fetchall()
    return [(row[4], row[3] is not None) for row in found]


def test_a_host_has_a_session_from_its_first_request_until_it_is_not_heard_of(
    conn: PostgresConnection, client: Caller
) -> None:
    client.ask()
    client.ask()
    notable.end_sessions(conn)
    assert sessions(conn) == [(None, False)]
    conn.execute(
        "UPDATE client SET seen_at = now() - interval '11 minutes',"
        " session_at = now() - interval '1 h'"
    )
    notable.end_sessions(conn)
    notable.end_sessions(conn)
    assert sessions(conn) == [("gone", True)]
    client.ask()
    assert sessions(conn) == [(None, False), ("gone", True)]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("UPDATE client SET silent_since = now()", "silent"),
        ("UPDATE client SET revoked_at = now()", "revoked"),
        ("UPDATE client SET left_at = now()", "left"),
        ("UPDATE client SET expires_at = now() - interval '1 s'", "expired"),
        (
            "UPDATE host SET banned_at = now(); UPDATE client SET revoked_at = banned_at FROM host",
            "banned",
        ),
    ],
)
def test_a_session_says_why_it_ended(
    conn: PostgresConnection, client: Caller, change: str, why: str
) -> None:
    client.ask()
    for statement in change.split(";"):
        conn.execute(statement.encode())
    notable.end_sessions(conn)
    assert sessions(conn) == [(why, True)]
