"""Hosts that are banned, and the clients of keys that are revoked with them."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from tests.factories import HOST, make_bot, make_host, make_lease
from tests.http.conftest import Person, Site
from tests.http.loopback import serve
from tests.http.test_gridbot_command import Run, runner

from gridbot_client.protocol.messages import ReplicaId
from gridbot_server.storage import db, invariants

SHA256 = "0" * 64


def ban(operator: Person, host: int, why: str = "it sends forged answers") -> dict[str, object]:
    answer = operator("PUT", f"/api/v1/hosts/{host}/ban", json={"why": why})
    assert answer.status_code == 200
    return dict(answer.json)


def introduce(client: Person) -> int:
    return client("PUT", "/api/v1/clients/self", json={}).status_code


def token_of(site: Site, person: Person) -> int:
    row = site.conn.execute("SELECT id FROM token WHERE owner = %s", [person.id]).fetchone()
    assert row is not None
    return int(row[0])


def leased(site: Site, bot: int, client: Person, seq: int = 0) -> None:
    """Let a client hold a replica, as dispatch would have counted it."""
    make_lease(site.conn, ReplicaId(bot, seq, 1), client.id)
    site.conn.execute("UPDATE bot SET fed = size WHERE id = %s", [bot])
    site.conn.execute(
        "INSERT INTO bot_stat VALUES (%s, 'web', 'sent_first', 1)"
        " ON CONFLICT (bot, writer, name) DO UPDATE SET value = bot_stat.value + 1",
        [bot],
    )


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", "/api/v1/clients/self"),
        ("POST", "/api/v1/clients/self/leave"),
        ("HEAD", f"/uploads/1/0/1/out?sha256={SHA256}&size=1"),
        ("PUT", f"/uploads/1/0/1/out?sha256={SHA256}&size=1"),
        ("GET", f"/files/{SHA256}"),
    ],
)
def test_a_banned_host_is_refused_everywhere_with_the_reason(
    site: Site, alice: Person, operator: Person, method: str, path: str
) -> None:
    host = make_host(site.conn, alice.id)
    client = site.client_of(alice, host=host)
    ban(operator, host)
    refused = client(method, path, json={} if path.endswith("self") else None)
    assert refused.status_code == 403
    if method != "HEAD":
        detail = "this machine is banned: it sends forged answers"
        assert refused.json == {"error": "Banned", "detail": detail, "retry": False}


def test_what_a_banned_host_holds_goes_to_others_at_once(
    site: Site, alice: Person, operator: Person
) -> None:
    host = make_host(site.conn, alice.id)
    bot = make_bot(site.conn, alice.id, jobs=3)
    for seq, client in enumerate([site.client_of(alice, host=host) for _ in range(2)]):
        leased(site, bot, client, seq)
    other = site.client_of(alice)
    leased(site, bot, other, 2)
    assert ban(operator, host)["replicas"] == 2
    kept = site.conn.execute("SELECT seq, client FROM lease").fetchall()
    assert kept == [(2, other.id)]
    ended = site.conn.execute("SELECT seq, how, reason FROM ended ORDER BY seq").fetchall()
    assert ended == [(0, "expired", "host_banned"), (1, "expired", "host_banned")]
    assert invariants.check(site.conn, idle=False) == []
    assert introduce(other) == 200


def test_what_was_given_while_the_ban_began_is_taken_back_too(
    site: Site, alice: Person, operator: Person
) -> None:
    host = make_host(site.conn, alice.id)
    client, bot = site.client_of(alice, host=host), make_bot(site.conn, alice.id)
    with ThreadPoolExecutor(1) as pool:
        with db.connect(site.settings.dsn_or_embedded) as serving:
            serving.execute("SELECT FROM client WHERE id = %s FOR NO KEY UPDATE", [client.id])
            banned = pool.submit(ban, operator, host)
            while not site.conn.execute(
                "SELECT 1 FROM pg_stat_activity WHERE datname = current_database()"
                " AND wait_event_type = 'Lock'"
            ).fetchone():
                assert not banned.done()
            make_lease(serving, ReplicaId(bot, 0, 1), client.id)
        assert banned.result()["replicas"] == 1
    assert site.conn.execute("SELECT FROM lease").fetchone() is None


def test_only_an_operator_bans_and_only_hosts_that_are_there(
    site: Site, alice: Person, operator: Person
) -> None:
    path = f"/api/v1/hosts/{make_host(site.conn, alice.id)}/ban"
    assert alice("PUT", path, json={}).status_code == 403
    assert alice("DELETE", path).status_code == 403
    for method in ("PUT", "DELETE"):
        assert operator(method, "/api/v1/hosts/999/ban", json={}).status_code == 404
    assert operator("PUT", path, json={"why": "two\nlines"}).status_code == 400


def test_an_unbanned_host_has_the_clients_that_it_had(
    site: Site, alice: Person, operator: Person
) -> None:
    host = make_host(site.conn, alice.id)
    client = site.client_of(alice, host=host)
    gone = site.client_of(alice, host=host, revoked_at="yesterday")
    ban(operator, host)
    ban(operator, host, "another reason")
    assert introduce(client) == 403
    assert operator("DELETE", f"/api/v1/hosts/{host}/ban").status_code == 200
    assert introduce(client) == 200
    assert introduce(gone) == 401


def test_the_end_of_a_ban_brings_no_client_back_whose_key_ended_meanwhile(
    site: Site, alice: Person, operator: Person
) -> None:
    host, token = make_host(site.conn, alice.id), token_of(site, alice)
    joined = site.client_of(alice, host=host, joined_with=token)
    pilot = site.client_of(alice, host=host, joined_with=token, token=token)
    other = site.client_of(alice, host=host)
    ban(operator, host)
    path = f"/api/v1/tokens/{token}"
    assert operator("DELETE", path).status_code == 200
    assert operator("DELETE", f"{path}?with_clients=1").status_code == 200
    assert operator("DELETE", f"/api/v1/hosts/{host}/ban").status_code == 200
    assert [introduce(client) for client in (joined, pilot, other)] == [401, 401, 200]


def test_a_key_is_revoked_with_its_clients_or_says_how_many_go_on(
    site: Site, alice: Person, operator: Person
) -> None:
    token = token_of(site, alice)
    first, second = (site.client_of(alice, joined_with=token) for _ in range(2))
    site.client_of(alice, joined_with=token, revoked_at="yesterday")
    other = site.client_of(alice)
    bot = make_bot(site.conn, alice.id, jobs=1)
    leased(site, bot, first)
    path = f"/api/v1/tokens/{token}"
    plain = operator("DELETE", path)
    assert (plain.json["clients_ended"], plain.json["clients_left"]) == (0, 2)
    assert introduce(first) == 200
    thorough = operator("DELETE", f"{path}?with_clients=1")
    assert (thorough.json["clients_ended"], thorough.json["clients_left"]) == (2, 0)
    assert [introduce(client) for client in (first, second, other)] == [401, 401, 200]
    assert site.conn.execute("SELECT how, reason FROM ended").fetchall() == [
        ("expired", "client_revoked")
    ]
    assert invariants.check(site.conn, idle=False) == []


def test_a_banned_host_does_not_count_as_one_that_could_run_things(
    site: Site, alice: Person, operator: Person
) -> None:
    host = make_host(site.conn, alice.id)
    site.client_of(alice, host=host)
    bot = make_bot(site.conn, alice.id)
    before = alice("GET", f"/api/v1/bots/{bot}").json["match"]
    ban(operator, host)
    after = alice("GET", f"/api/v1/bots/{bot}").json["match"]
    assert before != after
    assert site.app.test_client().get("/health").json["clients_active"] == 0  # type: ignore[index]


def test_a_machine_that_is_banned_does_not_join_anew(
    site: Site, alice: Person, bob: Person, operator: Person
) -> None:
    join = {"host": HOST, "mac": "aa:bb:cc:dd:ee:ff"}
    assert alice("POST", "/api/v1/clients", json=join).status_code == 201
    (host,) = alice("GET", "/api/v1/hosts").json["hosts"]
    ban(operator, host["id"])
    refused = alice("POST", "/api/v1/clients", json=join)
    assert refused.status_code == 403
    assert refused.json["detail"] == "this machine is banned: it sends forged answers"
    assert bob("POST", "/api/v1/clients", json=join).status_code == 201
    assert site.conn.execute("SELECT count(*) FROM client").fetchone() == (2,)


def test_a_client_is_known_by_the_key_that_it_joined_with(site: Site, alice: Person) -> None:
    joined = alice("POST", "/api/v1/clients", json={"host": HOST, "mac": "aa:bb"}).json
    client = replace(alice, token=joined["token"])
    path = f"/api/v1/tokens/{token_of(site, alice)}?with_clients=1"
    assert alice("DELETE", path).json["clients_ended"] == 1
    assert introduce(client) == 401


@pytest.fixture
def run(site: Site, operator: Person, tmp_path: Path) -> Iterator[Run]:
    with serve(site.app) as url:
        yield runner(url, operator, tmp_path)


def test_an_operator_bans_and_unbans_by_two_verbs(run: Run, site: Site, alice: Person) -> None:
    host = make_host(site.conn, alice.id)
    site.client_of(alice, host=host)
    banned = run("host", "ban", host, "--why", "mines coins")
    assert banned.stdout == f"host {host} is banned; 0 replicas rescheduled\n"
    (row,) = json.loads(run("host", "list", "--json").stdout)["hosts"]
    assert (row["banned_why"], row["clients"]) == ("mines coins", 0)
    header, line = run("host", "list").stdout.splitlines()
    assert header.endswith("state")
    assert line.endswith("banned")
    assert "mines coins; to lift it: gridbot host unban" in run("host", "show", host).stdout
    assert run("host", "unban", "box").stdout == f"host {host} is not banned\n"
    assert run("host", "list").stdout.splitlines()[1].endswith("idle")


def test_the_verb_that_revokes_a_key_says_which_clients_go_on(
    run: Run, site: Site, alice: Person
) -> None:
    token = token_of(site, alice)
    site.client_of(alice, joined_with=token)
    plain = run("token", "revoke", token)
    assert plain.stdout == f"key {token} is revoked\n"
    assert plain.stderr == (
        "note: 1 client that joined with it keeps working;"
        f" to revoke them: gridbot token revoke {token} --with-clients\n"
    )
    thorough = run("token", "revoke", token, "--with-clients")
    assert thorough.stdout == f"key {token} is revoked, and 1 client with it\n"
    assert thorough.stderr == ""


def test_what_a_forgotten_host_has_goes_to_others_and_it_may_come_back(
    site: Site, alice: Person, bob: Person
) -> None:
    host = make_host(site.conn, alice.id)
    client = site.client_of(alice, host=host)
    bot = make_bot(site.conn, alice.id, jobs=2)
    leased(site, bot, client, 0)
    leased(site, bot, site.client_of(alice), 1)
    path = f"/api/v1/hosts/{host}/replicas"
    assert bob("DELETE", path).status_code == 404
    assert client("DELETE", path).status_code == 401
    assert alice("DELETE", path).json == {"id": host, "replicas": 1}
    assert alice("DELETE", path).json == {"id": host, "replicas": 0}
    ended = site.conn.execute("SELECT seq, how, reason FROM ended").fetchall()
    assert ended == [(0, "expired", "host_forgotten")]
    assert introduce(client) == 200
    assert invariants.check(site.conn, idle=False) == []


def test_a_lost_host_is_forgotten_by_a_verb(run: Run, site: Site, alice: Person) -> None:
    host = make_host(site.conn, alice.id)
    bot = make_bot(site.conn, alice.id)
    leased(site, bot, site.client_of(alice, host=host))
    said = run("host", "forget", host).stdout
    assert said == f"host {host} is forgotten; 1 replica rescheduled\n"


def test_a_client_returns_what_it_cannot_run_and_nothing_else(site: Site, alice: Person) -> None:
    bot = make_bot(site.conn, alice.id, size=3)
    client, other = site.client_of(alice), site.client_of(alice)
    for seq, holder in enumerate((client, client, other)):
        make_lease(site.conn, ReplicaId(bot, seq, 1), holder.id)
    wanted = {"replicas": [[bot, 0, 1], [bot, 2, 1], [bot, 0, 7]]}
    for returned in (1, 0):  # repeated, it changes nothing
        answer = client("POST", "/api/v1/clients/self/return", json=wanted)
        assert (answer.status_code, answer.json) == (200, {"replicas": returned})
    ended = site.conn.execute("SELECT seq, how, reason FROM ended WHERE bot = %s", [bot]).fetchall()
    assert ended == [(0, "expired", "returned")]
    assert client("POST", "/api/v1/clients/self/return", json={"replicas": []}).status_code == 400
