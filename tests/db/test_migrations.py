"""Claims about what migrations make of rows that are there already."""

from __future__ import annotations

import hashlib

import psycopg
import pytest
from psycopg.types.json import Jsonb
from tests.factories import make_bot, make_client, make_ended, make_owner

from gridbot_client.protocol.messages import FileRef, Manifest, ReplicaId
from gridbot_server.storage import db, sql
from gridbot_server.storage.db import PostgresConnection


def _before(conn: PostgresConnection, version: int) -> None:
    """Make the database as it was before a migration, empty."""
    conn.execute("DROP SCHEMA public CASCADE")
    conn.execute("CREATE SCHEMA public")
    conn.execute(
        "CREATE TABLE migration (version int PRIMARY KEY, name text NOT NULL,"
        " applied_at timestamptz NOT NULL DEFAULT now())"
    )
    for number, name, text in sql.migrations():
        if number < version:
            conn.execute(text)
            conn.execute("INSERT INTO migration (version, name) VALUES (%s, %s)", [number, name])


def _blob(conn: PostgresConnection, text: str) -> FileRef:
    content = text.encode()
    sha256 = hashlib.sha256(content).digest()
    conn.execute("INSERT INTO blob VALUES (%s, '', %s)", [sha256, len(content)])
    return FileRef(text, sha256.hex(), len(content))


def test_migrations_are_numbered_without_gaps_or_repeats() -> None:
    # Of two with one number, the second would be passed over in silence.
    numbers = [number for number, _, _ in sql.migrations()]
    assert numbers == [*range(1, len(numbers) + 1)]


def test_files_belong_to_the_owners_whose_bots_refer_to_them(conn: PostgresConnection) -> None:
    _before(conn, 12)
    alice, bob = make_owner(conn, "alice"), make_owner(conn, "bob")
    names = ("shared", "own", "job", "output", "command", "nobodys")
    shared, own, of_job, output, in_command, _ = (_blob(conn, name) for name in names)
    lost = FileRef("lost", "0" * 64, 1)
    both = Manifest("x", ("cat", in_command.sha256), inputs=(shared, own, lost)).text()
    bot = make_bot(conn, alice, jobs=2, manifest=both)
    make_bot(conn, bob, manifest=Manifest("x", ("cat",), inputs=(shared,)).text())
    refs = Jsonb([{"name": "a", "sha256": of_job.sha256, "size": 3}])
    conn.execute("UPDATE job SET inputs = %s WHERE (bot, seq) = (%s, 1)", [refs, bot])
    client, _ = make_client(conn, alice)
    make_ended(conn, ReplicaId(bot, 0, 1), client)
    conn.execute(
        "INSERT INTO output VALUES (%s, 0, 1, 'out', %s, %s)",
        [bot, bytes.fromhex(output.sha256), output.size],
    )
    db.migrate(conn)
    found = conn.execute("SELECT encode(sha256, 'hex'), owner FROM blob_owner").fetchall()
    of_alice = {(ref.sha256, alice) for ref in (shared, own, of_job, output)}
    assert set(found) == of_alice | {(shared.sha256, bob)}


# Ends the connection that notes a migration, which has done all else by then.
_KILLER = """
CREATE FUNCTION kill() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_terminate_backend(pg_backend_pid());
    PERFORM pg_sleep(0);
    RETURN NEW;
END $$;
CREATE TRIGGER killer BEFORE INSERT ON migration FOR EACH ROW EXECUTE FUNCTION kill()
"""
_COLUMNS = """
SELECT table_name, column_name, data_type, is_nullable, column_default
  FROM information_schema.columns WHERE table_schema = 'public' ORDER BY 1, 2
"""


def _schema(conn: PostgresConnection) -> object:
    indexes = "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY 1"
    return conn.execute(_COLUMNS).fetchall(), conn.execute(indexes).fetchall()


@pytest.mark.parametrize("back", [1, 2, 3])
def test_a_migration_that_was_killed_half_way_is_made_by_the_next_start(
    conn: PostgresConnection, dsn: str, back: int
) -> None:
    whole = _schema(conn)
    version = sql.migrations()[-back][0]
    _before(conn, version)
    before = _schema(conn)
    conn.execute(_KILLER)
    with db.connect(dsn, "killed", autocommit=True) as other, pytest.raises(psycopg.Error):
        db.migrate(other)
    assert _schema(conn) == before
    conn.execute("DROP FUNCTION kill CASCADE")
    assert len(db.migrate(conn)) == back
    assert _schema(conn) == whole


def test_a_bot_that_was_signed_without_its_row_for_windows_is_to_be_signed_anew(
    conn: PostgresConnection,
) -> None:
    _before(conn, 69)
    alice = make_owner(conn, "alice")
    row = '{"where": "%s"}'
    signed = {
        place: make_bot(conn, alice, manifest=row % place, boinc='{"scripts": ["#!/bin/sh"]}')
        for place in ("windows-x86_64", "linux-x86_64")
    }
    db.migrate(conn)
    query = "SELECT boinc IS NULL, boinc_unsuitable IS NULL, policy_version FROM bot WHERE id = %s"
    found = [conn.execute(query, [bot]).fetchone() for bot in signed.values()]
    assert found == [(True, False, 2), (False, True, 1)]
