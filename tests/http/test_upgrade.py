"""Claims about what a release says of a database before it serves it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.http.conftest import Person, Site

from gridbot_server.commands.server import server
from gridbot_server.storage import sql
from gridbot_server.storage.db import Connection


def run(site: Site, *options: str) -> Result:
    site.settings.save()
    arguments = ["upgrade", "--data", str(site.settings.data), *options]
    return CliRunner().invoke(server, arguments)


def said(site: Site, *options: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(site, "--json", *options).stdout)
    return found


def take_back(conn: Connection, count: int) -> list[str]:
    """Make the database as it was before the last migrations, empty; return their names."""
    conn.execute("DROP SCHEMA public CASCADE")
    conn.execute("CREATE SCHEMA public")
    conn.execute(
        "CREATE TABLE migration (version int PRIMARY KEY, name text NOT NULL,"
        " applied_at timestamptz NOT NULL DEFAULT now())"
    )
    *before, _, _ = sql.migrations()
    assert count == 2
    for number, name, text in before:
        conn.execute(text)
        conn.execute("INSERT INTO migration (version, name) VALUES (%s, %s)", [number, name])
    return [name for _, name, _ in sql.migrations()[-count:]]


def test_what_is_missing_is_named_and_made_only_without_check(site: Site) -> None:
    missing = take_back(site.conn, 2)
    for _ in range(2):
        assert said(site, "--check")["pending"] == missing
    assert said(site)["pending"] == missing
    assert run(site, "--check").stdout.endswith("there is nothing to be done\n")


def test_the_versions_of_clients_are_counted(site: Site, alice: Person) -> None:
    for release in ("0.1.0", "0.1.0", "0.2.0"):
        client = site.client_of(alice)
        site.conn.execute(
            "UPDATE host SET ad = jsonb_build_object('ClientVersion', %s::text)"
            " WHERE id = (SELECT host FROM client WHERE id = %s)",
            [release, client.id],
        )
    site.conn.execute("UPDATE client SET seen_at = now()")
    assert said(site, "--check")["clients"] == [
        {"version": "0.1.0", "clients": 2},
        {"version": "0.2.0", "clients": 1},
    ]


@pytest.mark.parametrize("options", [["--check"], []])
def test_a_database_of_a_newer_release_is_refused(site: Site, options: list[str]) -> None:
    site.conn.execute("INSERT INTO migration (version, name) VALUES (9999, 'of tomorrow')")
    found = run(site, *options)
    assert found.exit_code == 1
    assert "the database has schema 9999" in found.output
