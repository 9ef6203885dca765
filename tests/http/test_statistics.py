from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import psycopg
import pytest
from click.testing import CliRunner
from tests.factories import make_host, make_owner
from tests.http import boinc_site
from tests.http.boinc_site import hostid, opened
from tests.http.conftest import Person, Site
from tests.http.loopback import serve

from gridbot.cli import gridbot
from gridbot_server.credit import export
from gridbot_server.cycles.schedule import schedules
from gridbot_server.settings import Settings
from gridbot_server.storage import db

HOSTILE = "</name><x> & \"' \u2603 \x07\ud7ff"
# As a stock client would have told it, and as an attacker would.
MACHINE: dict[str, Any] = {
    "IsBoinc": True,
    "ClientVersion": "7.20.5",
    "CpuModel": HOSTILE,
    "OpSysName": "Linux Debian",
    "Flops": 1e9,
    "DetectedCpus": 4,
    "Memory": "<script>",
    "Name": "secret.example.org",
}


@pytest.fixture
def secret(conn: db.PostgresConnection) -> str:
    value = "5e" * 32
    conn.execute("INSERT INTO setting VALUES ('boinc_names', %s)", [value])
    return value


def volunteer(
    conn: db.PostgresConnection,
    owner: int,
    total: float,
    ad: dict[str, Any] | None = None,
    **columns: Any,
) -> int:
    """Let an owner have earned something with one host, which is returned."""
    host = make_host(conn, owner, MACHINE if ad is None else ad)
    values = {"team": None, "public": False, **columns, "owner": owner, "total": total}
    conn.execute(
        "INSERT INTO volunteer (owner, total, average, is_public, team)"
        " VALUES (%(owner)s, %(total)s, 2, %(public)s, %(team)s)",
        values,
    )
    conn.execute(
        "INSERT INTO host_credit (host, pace, total, average) VALUES (%s, 1, %s, 2)", [host, total]
    )
    return host


def named(conn: db.PostgresConnection, owner: int, name: str) -> None:
    """Let an owner have called himself something in a BOINC client."""
    conn.execute(
        "INSERT INTO boinc_account (owner, name, email) VALUES (%s, %s, %s)",
        [owner, name, str(owner)],
    )


def table(directory: Path, name: str) -> list[dict[str, str]]:
    """The records of an exported file."""
    content = (directory / name).read_bytes()
    root = ElementTree.fromstring(gzip.decompress(content) if name.endswith("gz") else content)
    return [{item.tag: item.text or "" for item in record} for record in root]


def totals(directory: Path) -> dict[str, str]:
    root = ElementTree.fromstring((directory / "tables.xml").read_bytes())
    assert root.tag == "tables"
    return {item.tag: item.text or "" for item in root}


def test_only_who_agreed_is_named_and_all_are_counted(
    conn: db.PostgresConnection, tmp_path: Path, secret: str
) -> None:
    ann, bob, idle = (make_owner(conn, name) for name in ("ann", "bob", "idle"))
    conn.execute("INSERT INTO team (name, founder, total) VALUES ('owls', %s, 3)", [bob])
    public = volunteer(conn, ann, 30, public=True, team=1)
    private = volunteer(conn, bob, 12.5)
    volunteer(conn, idle, 0, public=True)
    export.write(conn, tmp_path, now=1_700_000_000.5)
    (user,) = table(tmp_path, "user.gz")
    assert (user["id"], user["name"], user["teamid"]) == (str(ann), "ann", "1")
    assert (user["total_credit"], user["expavg_credit"]) == ("30.000000", "2.000000")
    assert len(user["cpid"]) == 32
    hosts = {record["id"]: record for record in table(tmp_path, "host.gz")}
    assert hosts.keys() == {str(public), str(private)}
    assert hosts[str(public)]["userid"] == str(ann)
    assert not {"userid", "host_cpid"} & hosts[str(private)].keys()
    (team,) = table(tmp_path, "team.gz")
    assert team["name"] == "owls"
    assert not {"userid", "founder_name"} & team.keys()
    assert totals(tmp_path) == {
        "update_time": "1700000000",
        "nusers_total": "2",
        "nteams_total": "1",
        "nhosts_total": "2",
        "total_credit": "42.500000",
    }
    everything = b"".join(
        gzip.decompress(path.read_bytes()) for path in sorted(tmp_path.glob("*.gz"))
    )
    assert b"bob" not in everything
    assert b"secret.example.org" not in everything


def test_what_people_and_machines_call_themselves_breaks_no_record(
    conn: db.PostgresConnection, tmp_path: Path, secret: str
) -> None:
    ann = make_owner(conn, "ann")
    named(conn, ann, HOSTILE)
    conn.execute("INSERT INTO team (name, founder, total) VALUES (%s, %s, 3)", [HOSTILE, ann])
    volunteer(conn, ann, 1, public=True, team=1)
    export.write(conn, tmp_path, now=0)
    shown = HOSTILE.replace("\x07", " ").replace("\ud7ff", " ")
    (user,), (team,), (host,) = (table(tmp_path, f"{name}.gz") for name in ("user", "team", "host"))
    assert (user["name"], team["name"], team["founder_name"]) == (shown, shown, shown)
    assert host["p_model"] == shown
    assert "m_nbytes" not in host  # a text is no number
    assert (host["p_fpops"], host["ncpus"], host["boinc_version"]) == (
        "1000000000.0",
        "4",
        "7.20.5",
    )


def test_the_public_names_stay_and_tell_no_private_one(
    conn: db.PostgresConnection, tmp_path: Path, secret: str
) -> None:
    host = volunteer(conn, make_owner(conn, "ann"), 1, public=True)
    names = []
    for _ in range(2):
        export.write(conn, tmp_path, now=0)
        names.append((table(tmp_path, "user.gz")[0]["cpid"], table(tmp_path, "host.gz")[0]))
    assert names[0] == names[1]
    assert names[0][0] != names[0][1]["host_cpid"] != str(host)


def test_many_hosts_are_streamed_in_order(
    conn: db.PostgresConnection, tmp_path: Path, secret: str
) -> None:
    ann = make_owner(conn, "ann")
    conn.execute(
        "INSERT INTO host (identity, owner) SELECT n, %s FROM generate_series(1, 5000) AS n", [ann]
    )
    conn.execute("INSERT INTO host_credit SELECT id, 1, 1, 1 FROM host")
    export.write(conn, tmp_path, now=0)
    ids = [int(record["id"]) for record in table(tmp_path, "host.gz")]
    assert len(ids) == 5000
    assert ids == sorted(ids)


def test_files_are_written_when_they_are_due_and_not_before(
    conn: db.PostgresConnection, tmp_path: Path, secret: str
) -> None:
    directory = tmp_path / "stats"
    steps = [(1000.0, 4), (1059.0, 0), (1060.0, 4), (1061.0, 0), (900.0, 4)]
    for now, written in steps:
        assert export.run_once(conn, directory, 60.0, now) == written
    assert sorted(os.listdir(directory)) == sorted(export.FILES)


def test_the_daemons_export_without_being_asked(
    settings: Settings, conn: db.PostgresConnection, secret: str
) -> None:
    (statistics,) = (item for item in schedules(settings) if item.name == "statistics")
    assert (statistics.cycle(conn), statistics.cycle(conn)) == (4, 0)
    assert totals(settings.statistics)["nhosts_total"] == "0"


def test_an_export_that_fails_leaves_the_files_of_before(
    conn: db.PostgresConnection, tmp_path: Path, secret: str
) -> None:
    volunteer(conn, make_owner(conn, "ann"), 1, public=True)
    export.write(conn, tmp_path, now=0)
    before = {name: (tmp_path / name).read_bytes() for name in export.FILES}
    conn.execute("DROP TABLE client CASCADE")  # hosts.gz cannot be made
    conn.execute("UPDATE volunteer SET total = 5")
    with pytest.raises(psycopg.errors.UndefinedTable):
        export.write(conn, tmp_path, now=100)
    for name in ("host.gz", "tables.xml"):
        assert (tmp_path / name).read_bytes() == before[name]
    assert table(tmp_path, "user.gz")[0]["total_credit"] == "5.000000"


# -------------------------------------------------------------------------------------------- pages


def test_anybody_may_fetch_the_files_with_their_types(
    site: Site, settings: Settings, secret: str
) -> None:
    client = site.app.test_client()
    assert client.get("/boinc/stats/tables.xml").status_code == 404
    export.write(site.conn, settings.statistics, now=1_700_000_000)
    for name, mimetype in export.FILES.items():
        found = client.get(f"/boinc/stats/{name}", buffered=True)
        assert (found.status_code, found.mimetype) == (200, mimetype)
        assert found.data == (settings.statistics / name).read_bytes()
        assert "Content-Encoding" not in found.headers
        known = {"If-None-Match": found.headers["ETag"]}
        again = client.get(f"/boinc/stats/{name}", headers=known, buffered=True)
        assert again.status_code == 304
        assert f'<a href="{name}">' in client.get("/boinc/stats/").text
    for name in ("settings.json", "..%2Foperator.key", "tables.xml.new", "%00"):
        assert client.get(f"/boinc/stats/{name}").status_code == 404


# ---------------------------------------------------------------------------------------------- api


def test_a_volunteer_founds_joins_and_leaves_teams(alice: Person, bob: Person) -> None:
    assert alice("POST", "/api/v1/teams", json={"name": "Night owls"}).status_code == 201
    again = alice("POST", "/api/v1/teams", json={"name": "Larks"})
    taken = bob("POST", "/api/v1/teams", json={"name": "Night owls"})
    assert (again.status_code, taken.status_code) == (409, 409)
    assert bob("PATCH", "/api/v1/volunteer", json={"team": "Larks"}).status_code == 404
    joined = bob("PATCH", "/api/v1/volunteer", json={"team": "Night owls"})
    assert joined.json["team"] == "Night owls"
    (team,) = bob("GET", "/api/v1/teams").json["teams"]
    assert (team["name"], team["members"], team["credit"]) == ("Night owls", 2, 0)
    assert bob("PATCH", "/api/v1/volunteer", json={"public": True}).json["team"] == "Night owls"
    left = bob("PATCH", "/api/v1/volunteer", json={"team": None}).json
    assert (left["team"], left["public"]) == (None, True)


@pytest.mark.parametrize("name", ["", " owls", "ow\nls", "x" * 101, "ow\u202els"])
def test_a_team_has_a_name_that_can_be_shown(alice: Person, name: str) -> None:
    assert alice("POST", "/api/v1/teams", json={"name": name}).status_code == 400


def test_nobody_is_named_without_having_agreed(site: Site, alice: Person) -> None:
    # Jobs on a volunteer's machine may know the key that it was attached with.
    joiner = site.key_of(alice, "join")
    assert joiner("PATCH", "/api/v1/volunteer", json={"public": True}).status_code == 403
    assert joiner("POST", "/api/v1/teams", json={"name": "Night owls"}).status_code == 403
    assert joiner("GET", "/api/v1/volunteer").json["public"] is False
    assert alice("PATCH", "/api/v1/volunteer", json={"public": True}).json["public"] is True


def test_ones_credit_is_for_oneself_and_operators(
    site: Site, alice: Person, bob: Person, operator: Person
) -> None:
    volunteer(site.conn, alice.id, 7)
    path = "/api/v1/volunteer?name=alice"
    assert alice("GET", "/api/v1/volunteer").json["credit"] == 7
    assert operator("GET", path).json["recent_credit"] == pytest.approx(2, rel=1e-3)
    assert bob("GET", path).status_code == 404
    assert operator("GET", "/api/v1/volunteer?name=none").status_code == 404
    (host,) = alice("GET", "/api/v1/hosts").json["hosts"]
    assert (host["credit"], host["recent_credit"]) == (7, pytest.approx(2, rel=1e-3))
    credits = {
        owner["name"]: owner["credit"] for owner in operator("GET", "/api/v1/owners").json["owners"]
    }
    assert credits == {"alice": 7, "bob": 0, "root": 0}


# ---------------------------------------------------------------------------------- stock clients


@pytest.fixture
def boinc(settings: Settings, conn: db.PostgresConnection) -> Iterator[boinc_site.Site]:
    yield from opened(settings, conn)


def test_a_stock_client_is_told_its_credit_and_team(boinc: boinc_site.Site) -> None:
    fresh = boinc.ask()
    for name in ("user_total_credit", "host_total_credit", "user_expavg_credit"):
        assert fresh.text(name) == "0.000000"
    assert fresh.text("team_name") == ""
    owner, host = boinc.rows("SELECT owner, host FROM client WHERE id = %s", hostid(fresh))[0]
    boinc.conn.execute("INSERT INTO team (name, founder) VALUES ('<Owls>', %s)", [owner])
    boinc.conn.execute(
        "INSERT INTO volunteer (owner, team, total, average, averaged_at)"
        " VALUES (%s, 1, 12345678.5, 8, now() - interval '7 days')",
        [owner],
    )
    boinc.conn.execute("INSERT INTO host_credit VALUES (%s, 1, 0.000001, 0.5)", [host])
    reply = boinc.ask(boinc_site.SECOND, hostid=hostid(fresh), rpc_seqno=1)
    assert reply.text("user_total_credit") == "12345678.500000"
    assert reply.number("user_expavg_credit") == pytest.approx(4, rel=1e-3)
    assert reply.text("host_total_credit") == "0.000001"
    assert reply.number("host_expavg_credit") == pytest.approx(0.5, rel=1e-3)
    assert reply.text("team_name") == "<Owls>"
    assert reply.integer("user_create_time") > 1_700_000_000
    assert reply.integer("host_create_time") > 1_700_000_000


# -------------------------------------------------------------------------------------------- verbs


def test_the_command_shows_credit_and_manages_teams(
    site: Site, alice: Person, tmp_path: Path
) -> None:
    volunteer(site.conn, alice.id, 1234.5)

    def run(*arguments: str) -> str:
        found = CliRunner(env=environment).invoke(gridbot, arguments)
        assert found.exit_code == 0, found.output
        return found.stdout

    with serve(site.app) as url:
        environment = {
            "GRIDBOT_SERVER": url,
            "GRIDBOT_KEY": alice.token,
            "XDG_CONFIG_HOME": str(tmp_path),
        }
        assert json.loads(run("team", "create", "Owls", "--json"))["team"] == "Owls"
        assert "Owls" in run("team", "list")
        assert "1,234.50" in run("user", "show")
        assert json.loads(run("user", "set", "--public", "--json"))["public"] is True
        assert json.loads(run("team", "leave", "--json"))["team"] is None
        assert json.loads(run("team", "join", "Owls", "--json"))["team"] == "Owls"
        (host,) = json.loads(run("host", "list", "--json"))["hosts"]
        assert host["credit"] == 1234.5
        assert "1,234.50" in run("host", "list")


def test_a_stock_client_is_told_its_venue(boinc: boinc_site.Site) -> None:
    fresh = boinc.ask()
    assert fresh.text("host_venue") == ""
    boinc.conn.execute("UPDATE host SET venue = 'work'")
    again = boinc.ask(boinc_site.SECOND, hostid=hostid(fresh), rpc_seqno=1)
    assert again.text("host_venue") == "work"
