"""What goes away: deleted BOTs, those kept long enough, and files that nothing refers to."""

import hashlib
import io
import os
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Self

import psycopg
import pytest
from psycopg.types.json import Jsonb
from tests.db.dispatching import Caller, Dispatch, failure, success
from tests.factories import make_bot, make_client, make_ended, make_owner

from gridbot_client.protocol.messages import FileRef, Manifest, ReplicaId
from gridbot_server.cycles import collector, retention, schedule
from gridbot_server.cycles.deadline import sweep_cancelled
from gridbot_server.settings import Settings
from gridbot_server.storage import db, invariants, sql
from gridbot_server.storage.db import PostgresConnection
from gridbot_server.storage.files import Content, FolderStore, Upload

AT_ONCE = timedelta(0)
OLD = collector.GRACE + timedelta(hours=1)
TABLES = (
    "job",
    "ended",
    "outcome",
    "output",
    "lease",
    "requeue",
    "pending",
    "bot_stat",
    "appraisal",
)


def mark_deleted(conn: PostgresConnection, bot: int) -> None:
    conn.execute(retention.SQL["delete"], {"bots": [bot]})


def count(conn: PostgresConnection, table: str, bot: int) -> int:
    row = conn.execute(f"SELECT count(*) FROM {table} WHERE bot = %s".encode(), [bot]).fetchone()
    assert row is not None
    return int(row[0])


def done(dispatch: Dispatch, client: Caller, owner: int, jobs: int) -> int:
    """A BOT that ran to its end, with failures and outputs."""
    bot = make_bot(dispatch.conn, owner, jobs=jobs, max_attempts=1)
    dispatch.feed()
    while given := client.ask().assignments:
        reports = [failure(item) if item.id.seq % 5 == 4 else success(item) for item in given]
        client.ask(want=0, reports=tuple(reports))
        dispatch.settle()
    dispatch.feed()
    assert state(dispatch.conn, bot) == "done"
    return bot


def state(conn: PostgresConnection, bot: int) -> str | None:
    row = conn.execute("SELECT state FROM bot WHERE id = %s", [bot]).fetchone()
    return row[0] if row else None


def test_a_deleted_bot_goes_in_batches_and_what_must_be_true_is_true_after_each(
    dispatch: Dispatch, conn: PostgresConnection, alice: int, client: Caller
) -> None:
    bot, other = done(dispatch, client, alice, 25), done(dispatch, client, alice, 5)
    credit = conn.execute("SELECT total FROM host_credit").fetchall()
    mark_deleted(conn, bot)
    assert invariants.check(conn, idle=True) == []
    sizes = []
    while retention.remove_rows(conn, AT_ONCE, jobs=10):
        sizes.append(count(conn, "job", bot))
        assert invariants.check(conn, idle=True) == []
    assert sizes == [15, 5, 0]
    assert state(conn, bot) is None
    assert {table: count(conn, table, bot) for table in TABLES} == dict.fromkeys(TABLES, 0)
    assert count(conn, "outcome", other) == 5
    assert conn.execute("SELECT total FROM host_credit").fetchall() == credit


def test_a_pass_goes_on_until_its_time_is_over(conn: PostgresConnection, alice: int) -> None:
    bots = [make_bot(conn, alice, jobs=5, state="done") for _ in range(4)]
    conn.execute("UPDATE bot SET deleted_at = now() - interval '1 hour'")
    clock = iter((0.0, 0.2, retention.PASS_SECONDS)).__next__  # begun, after one BOT, after two
    assert retention.run_once(conn, clock) == 2 * (5 + 1)
    assert [bot for bot in bots if state(conn, bot)] == bots[2:]
    assert retention.run_once(conn, lambda: 0.0) == 2 * (5 + 1)


def test_a_batch_that_is_broken_off_changes_nothing(
    dispatch: Dispatch, conn: PostgresConnection, dsn: str, alice: int, client: Caller
) -> None:
    bot = done(dispatch, client, alice, 10)
    mark_deleted(conn, bot)
    before = {table: count(conn, table, bot) for table in TABLES}
    conn.execute(
        "CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql"
        " AS $$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN old; END $$"
    )
    for table in ("ended", "output", "outcome", "job", "bot"):
        conn.execute(
            f"CREATE TRIGGER dying BEFORE DELETE ON {table}"
            " FOR EACH STATEMENT EXECUTE FUNCTION die()".encode()
        )
        with db.connect(dsn, autocommit=True) as victim, pytest.raises(psycopg.OperationalError):
            retention.remove_rows(victim, AT_ONCE)
        conn.execute(f"DROP TRIGGER dying ON {table}".encode())
        assert {table: count(conn, table, bot) for table in TABLES} == before
        assert invariants.check(conn, idle=True) == []
    while retention.remove_rows(conn, AT_ONCE):
        pass
    assert state(conn, bot) is None


def test_a_bot_goes_only_when_nobody_speaks_of_it_as_it_was(
    dispatch: Dispatch, conn: PostgresConnection, alice: int, client: Caller
) -> None:
    bot = make_bot(conn, alice, jobs=3)
    dispatch.feed()
    (first, *_) = client.ask(want=1).assignments
    conn.execute("UPDATE bot SET state = 'cancelled', ended_at = now() WHERE id = %s", [bot])
    mark_deleted(conn, bot)
    assert retention.remove_rows(conn) == 0, "it was deleted just now"
    assert retention.remove_rows(conn, AT_ONCE) == 0, "a replica is in progress"
    sweep_cancelled(conn)
    assert client.ask(want=0).abort == (first.id,)
    while retention.remove_rows(conn, AT_ONCE):
        pass
    client.ask(want=0, reports=(success(first),))
    dispatch.feed()
    assert state(conn, bot) is None
    assert invariants.check(conn, idle=True) == []


def test_a_late_answer_for_a_bot_that_goes_leaves_nothing_behind(
    dispatch: Dispatch, conn: PostgresConnection, alice: int, client: Caller
) -> None:
    bot = done(dispatch, client, alice, 10)
    row = conn.execute("SELECT id FROM client").fetchone()
    assert row is not None
    late = ReplicaId(bot, 3, 9)
    make_ended(conn, late, row[0], how="expired", why="first", valid=False)
    mark_deleted(conn, bot)
    retention.remove_rows(conn, AT_ONCE, jobs=3)
    client.ask(want=0, reports=(success(late, "late"),))
    while retention.remove_rows(conn, AT_ONCE, jobs=3):
        pass
    assert {table: count(conn, table, bot) for table in TABLES} == dict.fromkeys(TABLES, 0)


def test_only_bots_that_ended_long_ago_are_not_kept(conn: PostgresConnection, alice: int) -> None:
    def ended(state: str, days: int) -> int:
        bot = make_bot(conn, alice, state=state)
        conn.execute(
            "UPDATE bot SET ended_at = now() - make_interval(days => %s) WHERE id = %s", [days, bot]
        )
        return bot

    running = make_bot(conn, alice)
    old, cancelled, young = ended("done", 31), ended("cancelled", 40), ended("done", 29)
    assert retention.delete_kept_too_long(conn, 30) == 2
    assert retention.delete_kept_too_long(conn, 30) == 0
    found = conn.execute("SELECT id FROM bot WHERE deleted_at IS NOT NULL ORDER BY id").fetchall()
    assert found == [(old,), (cancelled,)]
    assert (state(conn, running), state(conn, young)) == ("running", "done")


# --------------------------------------------------------------------------------------- files


@pytest.fixture
def now() -> datetime:
    return datetime.now(UTC)


def stored(store: FolderStore, text: str, age: timedelta = OLD) -> Content:
    """A file that came so long ago."""
    data = text.encode()
    upload = Upload("test", hashlib.sha256(data).hexdigest(), len(data))
    content = store.receive(upload, 0, io.BytesIO(data).read)
    assert isinstance(content, Content)
    at = (datetime.now(UTC) - age).timestamp()
    os.utime(store.path(content.sha256.hex()), (at, at))
    return content


def known(conn: PostgresConnection, store: FolderStore, text: str, age: timedelta = OLD) -> Content:
    """Such a file with its row."""
    content = stored(store, text, age)
    conn.execute(
        "INSERT INTO blob VALUES (%s, %s, %s, now() - %s)",
        [content.sha256, content.md5, content.size, age],
    )
    return content


def owned(conn: PostgresConnection, owner: int, content: Content, age: timedelta = OLD) -> None:
    """Let a file have been an owner's for so long."""
    conn.execute("INSERT INTO blob_owner VALUES (%s, %s, now() - %s)", [content.sha256, owner, age])


def owners(conn: PostgresConnection, content: Content) -> set[int]:
    query = "SELECT owner FROM blob_owner WHERE sha256 = %s"
    return {owner for (owner,) in conn.execute(query, [content.sha256])}


def collect(conn: PostgresConnection, store: FolderStore, now: datetime) -> int:
    return sum(collector.collect(conn, store, now, prefix) for prefix in range(256))


def there(store: FolderStore, content: Content) -> bool:
    return store.size(content.sha256.hex()) is not None


def ref(content: Content) -> FileRef:
    return FileRef("data", content.sha256.hex(), content.size)


def test_files_that_nothing_refers_to_go_and_no_others(
    conn: PostgresConnection, alice: int, store: FolderStore, now: datetime
) -> None:
    loose, unlisted = known(conn, store, "loose"), stored(store, "unlisted")
    young, just_stored = known(conn, store, "young", AT_ONCE), stored(store, "just", AT_ONCE)
    of_manifest, of_job = known(conn, store, "manifest"), known(conn, store, "job")
    of_output, of_boinc = known(conn, store, "output"), known(conn, store, "script")
    manifest = Manifest("alice", ("cat", "data"), {}, inputs=(ref(of_manifest),)).text()
    bot = make_bot(conn, alice, manifest=manifest, boinc=f'{{"{of_boinc.sha256.hex()}": ""}}')
    inputs = [{"name": "own", "sha256": of_job.sha256.hex(), "size": of_job.size}]
    conn.execute("UPDATE job SET inputs = %s", [Jsonb(inputs)])
    client, _ = make_client(conn, alice)
    make_ended(conn, ReplicaId(bot, 0, 1), client)
    conn.execute(
        "INSERT INTO output VALUES (%s, 0, 1, 'out', %s, %s)",
        [bot, of_output.sha256, of_output.size],
    )
    assert collect(conn, store, now) == 2
    kept = (young, just_stored, of_manifest, of_job, of_output, of_boinc)
    assert [there(store, item) for item in kept] == [True] * len(kept)
    assert [there(store, item) for item in (loose, unlisted)] == [False, False]
    rows = {sha256 for (sha256,) in conn.execute("SELECT sha256 FROM blob")}
    assert rows == {item.sha256 for item in kept} - {just_stored.sha256}
    assert list(store.uploads.iterdir()) == []


def test_the_files_of_a_bot_go_after_it(
    conn: PostgresConnection, alice: int, store: FolderStore, now: datetime
) -> None:
    mine, shared = known(conn, store, "mine"), known(conn, store, "shared")
    both = Manifest("alice", ("cat", "data"), {}, inputs=(ref(mine), ref(shared))).text()
    gone = make_bot(conn, alice, manifest=both, state="done")
    one = Manifest("alice", ("cat", "data"), {}, inputs=(ref(shared),)).text()
    make_bot(conn, alice, manifest=one)
    conn.execute("UPDATE bot SET ended_at = now() WHERE id = %s", [gone])
    mark_deleted(conn, gone)
    assert collect(conn, store, now) == 0
    while retention.remove_rows(conn, AT_ONCE):
        pass
    assert collect(conn, store, now) == 1
    assert (there(store, mine), there(store, shared)) == (False, True)


def test_a_file_that_somebody_is_about_to_refer_to_stays(
    conn: PostgresConnection, dsn: str, store: FolderStore, now: datetime
) -> None:
    content = known(conn, store, "wanted")
    with db.connect(dsn) as submitting:
        submitting.execute("SELECT FROM blob FOR KEY SHARE")
        assert collect(conn, store, now) == 0
    assert there(store, content)
    assert collect(conn, store, now) == 1


def test_a_file_that_is_being_stored_again_stays(
    conn: PostgresConnection, dsn: str, alice: int, store: FolderStore, now: datetime
) -> None:
    content = known(conn, store, "old")
    values = {"sha256": content.sha256, "md5": content.md5, "size": content.size}
    for name in ("uploads.sql", "boinc.sql"):
        with db.connect(dsn) as uploading:
            uploading.execute(sql.load(name)["add_blob"], values)
            assert collect(conn, store, now) == 0
    with db.connect(dsn) as submitting:
        owned(conn, alice, content)
        query = sql.load("submission.sql")["blobs"]
        wanted = {"owner": alice, "hashes": [content.sha256]}
        assert submitting.execute(query, wanted).fetchone()
        assert collect(conn, store, now) == 0
    assert collect(conn, store, now) == 1


def test_a_file_goes_from_the_owner_whose_bots_do_not_refer_to_it_any_more(
    conn: PostgresConnection, alice: int, store: FolderStore, now: datetime
) -> None:
    bob, shared = make_owner(conn, "bob"), known(conn, store, "shared")
    for owner in (alice, bob):
        owned(conn, owner, shared)
    manifest = Manifest("bob", ("cat", "data"), {}, inputs=(ref(shared),)).text()
    bot = make_bot(conn, bob, manifest=manifest)
    assert collect(conn, store, now) == 0
    assert owners(conn, shared) == {bob}
    conn.execute("DELETE FROM bot WHERE id = %s", [bot])
    assert collect(conn, store, now) == 1
    assert owners(conn, shared) == set()


def test_a_file_stays_its_owners_while_a_bot_refers_to_it_or_it_was_sent_lately(
    conn: PostgresConnection, alice: int, store: FolderStore, now: datetime
) -> None:
    of_manifest, of_job, of_output, young = (
        known(conn, store, name) for name in ("manifest", "job", "output", "young")
    )
    manifest = Manifest("alice", ("cat", "data"), {}, inputs=(ref(of_manifest),)).text()
    bot = make_bot(conn, alice, manifest=manifest)
    inputs = [{"name": "own", "sha256": of_job.sha256.hex(), "size": of_job.size}]
    conn.execute("UPDATE job SET inputs = %s", [Jsonb(inputs)])
    client, _ = make_client(conn, alice)
    make_ended(conn, ReplicaId(bot, 0, 1), client)
    conn.execute(
        "INSERT INTO output VALUES (%s, 0, 1, 'out', %s, %s)",
        [bot, of_output.sha256, of_output.size],
    )
    for content in (of_manifest, of_job, of_output):
        owned(conn, alice, content)
    owned(conn, alice, young, AT_ONCE)
    assert collect(conn, store, now) == 0
    kept = [owners(conn, content) for content in (of_manifest, of_job, of_output, young)]
    assert kept == 4 * [{alice}]


def test_many_files_of_many_owners_go_page_by_page(
    conn: PostgresConnection, alice: int, store: FolderStore
) -> None:
    bob = make_owner(conn, "bob")
    for number in range(5):
        content = known(conn, store, f"{number}")
        for owner in (alice, bob):
            owned(conn, owner, content)
    gone = sum(collector.forget_owners(conn, prefix, limit=1) for prefix in range(256))
    assert gone == 10


def test_a_bot_is_not_deleted_while_an_output_is_added_to_it(
    conn: PostgresConnection, dsn: str, alice: int
) -> None:
    bot = make_bot(conn, alice, state="cancelled", ended_at="now")
    lock = sql.load("uploads.sql")["lock_bot"]
    conn.execute("SET lock_timeout = '1ms'")
    with db.connect(dsn) as uploading:
        assert uploading.execute(lock, {"bot": bot}).fetchone()
        with pytest.raises(psycopg.errors.LockNotAvailable):
            mark_deleted(conn, bot)
    mark_deleted(conn, bot)
    assert conn.execute(lock, {"bot": bot}).fetchone() is None


def test_the_daemons_remove_what_was_kept_long_enough(
    conn: PostgresConnection, alice: int, tmp_path: Path
) -> None:
    bots = [make_bot(conn, alice, state="done", ended_at="yesterday") for _ in range(2)]
    for days, left in ((None, 2), (2, 2), (1, 0)):
        settings = Settings(data=tmp_path, keep_ended_days=days)
        settings.make_directories()
        cycles = {item.name: item.cycle for item in schedule.schedules(settings)}
        cycles["retention"](conn)
        conn.execute("UPDATE bot SET deleted_at = deleted_at - interval '1 hour'")
        while cycles["deletion"](conn):
            pass
        assert len([bot for bot in bots if state(conn, bot)]) == left


@pytest.mark.parametrize(("age", "went"), [(OLD, True), (AT_ONCE, False)])
def test_a_killed_pass_is_ended_by_the_next(
    conn: PostgresConnection, store: FolderStore, now: datetime, age: timedelta, went: bool
) -> None:
    content = stored(store, "moved aside", age)
    sha256 = content.sha256.hex()
    store.path(sha256).rename(store.uploads / f"going-{sha256}")
    collector.collect(conn, store, now, 0)
    assert there(store, content) is not went
    assert list(store.uploads.iterdir()) == []


def test_each_minute_another_part_of_the_store_is_looked_at(
    conn: PostgresConnection, store: FolderStore, now: datetime
) -> None:
    for number in range(20):
        stored(store, f"file {number}")
    step = timedelta(seconds=collector.PASS_SECONDS)
    assert sum(collector.run_once(conn, store, now + step * k) for k in range(256)) == 20


class Ahead(datetime):
    """The clock of a machine beside which that of its file store is late."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Self:
        return super().now(tz) + collector.GRACE + timedelta(days=1)


def test_the_clock_that_dates_files_says_how_old_they_are_and_not_the_machines(
    conn: PostgresConnection, store: FolderStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for first in range(256):
        (path := store.path(f"{first:02x}".ljust(64, "0"))).parent.mkdir()
        path.touch()
    (part := store.uploads / "part").touch()
    monkeypatch.setattr(schedule, "datetime", Ahead)
    settings = Settings(data=tmp_path)
    assert settings.open_store() == store
    assert (schedule.retain(settings, conn), schedule.purge(settings, conn)) == (0, 0)
    assert len(list(store.root.glob("*/*"))) == 256
    assert part.exists()
