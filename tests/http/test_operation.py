import base64
import time
from typing import Any

import pytest
from psycopg.types.json import Jsonb
from tests.factories import HOST, make_bot, make_key, make_lease
from tests.http.conftest import Person, Site
from tests.prometheus import promtool

from gridbot.show.page import host_page
from gridbot_client.protocol.messages import ReplicaId
from gridbot_server.api.operation import SQL as OPERATION
from gridbot_server.buffer.buffer import SchedulingBuffer
from gridbot_server.cycles import replication
from gridbot_server.history import sums
from gridbot_server.signing import keys
from gridbot_server.storage import db
from gridbot_server.storage.counters import Counters, FailureReason

JOIN = {"host": HOST, "mac": "aa:bb:cc:dd:ee:ff"}


def _as(person: Person, document: dict[str, Any]) -> Person:
    return Person(person.app, document["token"], document["client"], person.name)


@pytest.mark.parametrize("scope", ["join", "user"])
def test_a_joined_client_has_a_token_of_its_own(site: Site, alice: Person, scope: str) -> None:
    answer = site.key_of(alice, scope)("POST", "/api/v1/clients", json=JOIN)
    assert answer.status_code == 201
    public = keys.public_bytes(site.settings.project_key_path)
    assert base64.b64decode(answer.json["project_key"]) == public
    assert (answer.json["owner"], answer.json["epoch"]) == ("alice", 1)
    client = _as(alice, answer.json)
    again = client("PUT", "/api/v1/clients/self", json={})
    assert again.json == {
        name: answer.json[name]
        for name in answer.json
        if name not in ("token", "receipt", "owner_keys")
    }
    stored = site.conn.execute("SELECT hash FROM client").fetchone()
    assert stored == (keys.token_hash(client.token),)


def test_two_clients_on_one_machine_share_its_host(site: Site, alice: Person, bob: Person) -> None:
    for person in (alice, alice, bob):
        assert person("POST", "/api/v1/clients", json=JOIN).status_code == 201
    hosts = site.conn.execute("SELECT identity FROM host ORDER BY id").fetchall()
    assert hosts == [("alice:aa:bb:cc:dd:ee:ff",), ("bob:aa:bb:cc:dd:ee:ff",)]
    assert site.conn.execute("SELECT count(*) FROM client").fetchone() == (3,)


def test_only_an_operator_makes_a_client_accept_other_owners(
    site: Site, alice: Person, bob: Person, operator: Person
) -> None:
    wants_bob = {**JOIN, "accepts": ["alice", "bob"]}
    for person in (alice, site.key_of(alice, "join"), site.key_of(operator, "join")):
        refused = person("POST", "/api/v1/clients", json=wants_bob)
        assert refused.status_code == 403
        assert "only an operator's key can make a client accept" in refused.json["detail"]
    assert alice("POST", "/api/v1/clients", json={**JOIN, "accepts": ["alice"]}).status_code == 201
    assert operator("POST", "/api/v1/clients", json=wants_bob).status_code == 201
    unknown = operator("POST", "/api/v1/clients", json={**JOIN, "accepts": ["nobody"]})
    assert unknown.status_code == 400
    assert unknown.json["detail"] == "accepts: there is no owner nobody"
    accepts = site.conn.execute("SELECT accepts FROM client ORDER BY id").fetchall()
    assert accepts == [([],), ([alice.id, bob.id],)]


def test_a_client_describes_its_machine_anew_and_accepts_no_more_than_it_did(
    site: Site, alice: Person, bob: Person, operator: Person
) -> None:
    joined = operator("POST", "/api/v1/clients", json={**JOIN, "accepts": ["bob"]}).json
    client = _as(operator, joined)
    change = {"host": {"NumCpus": 64}, "accepts": ["bob"]}
    assert client("PUT", "/api/v1/clients/self", json=change).status_code == 200
    assert site.conn.execute("SELECT ad FROM host").fetchone() == ({"NumCpus": 64},)
    wider = client("PUT", "/api/v1/clients/self", json={"accepts": ["alice", "bob"]})
    assert wider.status_code == 403
    assert "was not joined to accept alice" in wider.json["detail"]
    assert site.conn.execute("SELECT accepts FROM client").fetchone() == ([bob.id],)


@pytest.mark.parametrize(
    ("change", "detail"),
    [
        ({"host": {"a": {}}}, "host.a: expected a string of at most 1000 bytes"),
        ({"host": {str(k): k for k in range(101)}}, "host: 101 attributes, at most 100"),
        ({"mac": ""}, "mac: empty"),
        ({"mac": "a\nb"}, "mac: control characters are not allowed"),
        ({"accepts": ["../x"]}, "accepts[0]: '../x' does not match"),
    ],
)
def test_a_wrong_host_does_not_join(
    site: Site, alice: Person, change: dict[str, Any], detail: str
) -> None:
    answer = alice("POST", "/api/v1/clients", json={**JOIN, **change})
    assert answer.status_code == 400
    assert answer.json["detail"].startswith(detail)
    assert site.conn.execute("SELECT count(*) FROM host").fetchone() == (0,)


def test_a_revoked_client_is_out(site: Site, alice: Person) -> None:
    client = site.client_of(alice, revoked_at="yesterday")
    assert client("PUT", "/api/v1/clients/self", json={}).status_code == 401


def test_health_needs_no_key_and_counts_what_is_to_do(site: Site, alice: Person) -> None:
    bot = make_bot(site.conn, alice.id, jobs=10)
    make_bot(site.conn, alice.id, state="done")
    make_lease(site.conn, ReplicaId(bot, 0, 1), site.client_of(alice).id)
    site.conn.execute("INSERT INTO bot_stat VALUES (%s, 'w', 'sent_first', 1)", [bot])
    answer = site.app.test_client().get("/health")
    assert answer.status_code == 200
    found = answer.json or {}
    public = base64.b64encode(keys.public_bytes(site.settings.project_key_path)).decode()
    assert found.pop("version")
    assert found == {
        "status": "degraded",
        "trouble": "the feeder does not run: no new jobs are sent",
        "epoch": 1,
        "project_key": public,
        "bots_running": 1,
        "jobs_unsent": 9,
        "replicas_running": 1,
        "clients_active": 1,
        "jobs_undecided": 0,
        "jobs_set_aside": 0,
        "inversions": 0,
    }


def test_health_is_good_while_the_feeder_passes(site: Site) -> None:
    path = site.settings.buffer_path
    buffer = SchedulingBuffer.create(path, slots=1, slot_bytes=256, machine="m", database="d")
    buffer.publish([], fed_at=time.monotonic(), clients_active=0)
    found = site.app.test_client().get("/health").json or {}
    buffer.close()
    path.unlink()
    assert (found["status"], found["trouble"]) == ("ok", None)


def test_metrics_are_gauges(site: Site, operator: Person) -> None:
    make_bot(site.conn, operator.id, jobs=3)
    lines = operator("GET", "/metrics").data.decode().splitlines()
    assert "gridbot_jobs_unsent 3" in lines
    assert "# TYPE gridbot_jobs_unsent gauge" in lines


def test_a_key_for_metrics_reads_nothing_else(site: Site, operator: Person) -> None:
    token = make_key(site.conn, operator.id, scope="metrics")
    given = {"Authorization": f"Bearer {token}"}
    ask = site.app.test_client()
    assert ask.get("/metrics", headers=given).status_code == 200
    for method, path in (
        ("GET", "/api/v1/bots"),
        ("GET", "/api/v1/hosts"),
        ("GET", "/files/" + "0" * 64),
        ("POST", "/api/v1/clients"),
        ("GET", "/api/v1/overlay/demand"),
    ):
        assert ask.open(path, method=method, headers=given, json={}).status_code in (401, 403)


def test_metrics_count_what_happened(site: Site, operator: Person) -> None:
    def shown(series: str) -> float:
        lines = operator("GET", "/metrics").data.decode().splitlines()
        return next((float(line.split()[-1]) for line in lines if line.startswith(series)), 0.0)

    sent, api = (
        'gridbot_replicas_dispatched_total{grid="ice"}',
        'gridbot_requests_total{class="api",status="2xx"}',
    )
    failed = 'gridbot_replicas_reported_total{outcome="error",reason="time_limit"}'
    before = {series: shown(series) for series in (sent, api, failed)}
    counters = Counters()
    counters.note(1, "ice", "sent", 3)
    counters.failures[FailureReason(1, "ice", "time_limit")] += 2
    with pytest.raises(RuntimeError), site.conn.transaction():
        counters.write(site.conn, "test")  # and is lost: it counts not
        raise RuntimeError
    counters.write(site.conn, "test")
    while sums.collect(site.conn):
        pass
    operator("GET", "/api/v1/bots")
    assert {series: shown(series) - before[series] for series in before} == {
        sent: 3,
        api: 1,
        failed: 2,
    }


def test_hosts_are_shown_by_grid_and_state(site: Site, operator: Person) -> None:
    client = site.client_of(operator)
    text = operator("GET", "/metrics").data.decode()
    assert 'gridbot_hosts{grid="",state="idle"} 1' in text
    make_lease(site.conn, ReplicaId(make_bot(site.conn, operator.id), 0, 1), client.id)
    text = operator("GET", "/metrics").data.decode()
    assert 'gridbot_hosts{grid="",state="working"} 1' in text
    assert 'gridbot_build_info{version="' in text


def test_prometheus_itself_finds_no_fault_in_the_metrics(site: Site, operator: Person) -> None:
    make_bot(site.conn, operator.id)
    text = operator("GET", "/metrics").data.decode()
    assert promtool("check", "metrics", text=text) == ""


def test_metrics_tell_how_late_each_cycle_is(site: Site, operator: Person) -> None:
    assert _lags(operator) == {"transition": 0, "deadline": 0, "replication": 0}
    bot, client = make_bot(site.conn, operator.id, jobs=2), site.client_of(operator).id
    for seq, late in enumerate(("10 s", "70 s")):
        make_lease(site.conn, ReplicaId(bot, seq, 1), client)
        due = "SELECT now() - %s::interval"
        site.conn.execute(f"UPDATE lease SET deadline = ({due}) WHERE seq = %s", [late, seq])
        site.conn.execute(f"INSERT INTO pending VALUES (%s, %s, ({due}))", [bot, seq, late])
    site.conn.execute("UPDATE bot SET tail = true")
    lags = _lags(operator)
    assert 70 <= lags["transition"] < 100 > lags["deadline"] >= 70
    assert lags["replication"] == float("inf")  # nobody runs the cycles here


def test_the_replication_cycle_is_as_late_as_its_last_pass(site: Site, operator: Person) -> None:
    make_bot(site.conn, operator.id, tail=True)
    with db.connect(site.settings.dsn_or_embedded, "gridbot-replication", autocommit=True) as conn:
        replication.run_once(conn, time.time())
        assert 0 <= _lags(operator)["replication"] < 30


def _lags(operator: Person) -> dict[str, float]:
    lines = operator("GET", "/metrics").data.decode().splitlines()
    found = [line.split('"') for line in lines if line.startswith("gridbot_lag_seconds{")]
    return {cycle: float(rest.removeprefix("} ")) for _, cycle, rest in found}


def test_hosts_are_ones_own_or_for_operators_all(
    site: Site, alice: Person, bob: Person, operator: Person
) -> None:
    client = site.client_of(alice)
    site.client_of(bob)
    make_lease(site.conn, ReplicaId(make_bot(site.conn, alice.id), 0, 1), client.id)
    (host,) = alice("GET", "/api/v1/hosts").json["hosts"]
    assert (host["name"], host["owner"], host["clients"]) == ("box", "alice", 1)
    assert (host["replicas_running"], host["attributes"]) == (1, HOST)
    assert host["seen_at"] is not None
    assert len(operator("GET", "/api/v1/hosts").json["hosts"]) == 2


def test_of_a_host_that_changes_its_owner_meanwhile_nothing_is_told(
    site: Site, alice: Person, bob: Person
) -> None:
    site.client_of(bob)
    hosts = site.conn.execute("SELECT array_agg(id) FROM host").fetchone()
    assert hosts is not None
    found = [
        len(site.conn.execute(OPERATION["hosts"], {"hosts": hosts[0], "mine": mine}).fetchall())
        for mine in (alice.id, bob.id, None)
    ]
    assert found == [0, 1, 1]


@pytest.mark.parametrize(
    ("protocol", "is_boinc", "too_old"), [(1, False, True), (2, False, False), (1, True, False)]
)
def test_a_host_whose_client_cannot_check_signatures_is_told_apart(
    site: Site, alice: Person, protocol: int, is_boinc: bool, too_old: bool
) -> None:
    client = site.client_of(alice)
    site.conn.execute("UPDATE client SET protocol = %s WHERE id = %s", [protocol, client.id])
    ad = Jsonb({**HOST, "IsBoinc": is_boinc})
    site.conn.execute("UPDATE host SET ad = %s", [ad])
    (host,) = alice("GET", "/api/v1/hosts").json["hosts"]
    assert host["too_old"] is too_old
    assert ("cannot check signatures" in host_page(host)) is too_old


def test_an_operator_adds_owners_and_their_keys(operator: Person) -> None:
    added = operator("POST", "/api/v1/owners", json={"name": "carol", "max_jobs": 5})
    assert added.status_code == 201
    assert (added.json["name"], added.json["max_jobs"], added.json["share"]) == ("carol", 5, 1)
    body = {"owner": "carol", "scope": "user", "label": "laptop", "expires_seconds": 60}
    made = operator("POST", "/api/v1/tokens", json=body)
    assert made.status_code == 201
    carol = Person(operator.app, made.json["token"], 0, "carol")
    assert carol("GET", "/api/v1/bots").json == {"bots": []}
    (token,) = carol("GET", "/api/v1/tokens").json["tokens"]
    assert (token["id"], token["label"], token["owner"]) == (made.json["id"], "laptop", "carol")
    assert token["expires_at"] is not None
    assert made.json["token"] not in str(operator("GET", "/api/v1/tokens").json)
    names = [owner["name"] for owner in operator("GET", "/api/v1/owners").json["owners"]]
    assert names == ["carol", "root"]
    assert operator("POST", "/api/v1/owners", json={"name": "carol"}).status_code == 409


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        (
            {"owner": "nobody", "scope": "user"},
            "owner: there is no user nobody; add it: gridbot user add nobody",
        ),
        ({"owner": "alice", "scope": "operator"}, "scope: alice is not an operator"),
        ({"owner": "alice", "scope": "root"}, "scope: "),
        ({"owner": "alice"}, "scope: missing"),
        ({"owner": "alice", "scope": "user", "expires_seconds": 0}, "expires_seconds: 0 is not"),
    ],
)
def test_a_wrong_key_is_not_made(
    alice: Person, operator: Person, body: dict[str, Any], detail: str
) -> None:
    answer = operator("POST", "/api/v1/tokens", json=body)
    assert answer.status_code == 400
    assert answer.json["detail"].startswith(detail)
    assert len(alice("GET", "/api/v1/tokens").json["tokens"]) == 1


def test_a_user_makes_no_keys_but_revokes_ones_own(
    site: Site, alice: Person, bob: Person, operator: Person
) -> None:
    body = {"owner": "alice", "scope": "user"}
    assert alice("POST", "/api/v1/tokens", json=body).status_code == 403
    (token,) = alice("GET", "/api/v1/tokens").json["tokens"]
    assert bob("DELETE", f"/api/v1/tokens/{token['id']}").status_code == 404
    assert alice("DELETE", f"/api/v1/tokens/{token['id']}").status_code == 200
    assert alice("GET", "/api/v1/bots").status_code == 401
    assert operator("DELETE", f"/api/v1/tokens/{token['id']}").status_code == 200


def test_an_owner_says_where_a_machine_stands_and_nobody_else_does(
    site: Site, alice: Person, bob: Person, operator: Person
) -> None:
    joined = alice("POST", "/api/v1/clients", json=JOIN)
    path = f"/api/v1/hosts/{alice('GET', '/api/v1/hosts').json['hosts'][0]['id']}"
    assert joined.status_code == 201
    assert bob("PATCH", path, json={"venue": "work"}).status_code == 404
    assert alice("PATCH", path, json={"venue": "moon"}).status_code == 400
    assert site.key_of(alice, "join")("PATCH", path, json={"venue": "home"}).status_code == 403
    for person, venue in ((alice, "home"), (operator, "school"), (alice, "")):
        assert person("PATCH", path, json={"venue": venue}).status_code == 200
        assert alice("GET", "/api/v1/hosts").json["hosts"][0]["venue"] == venue


def _key_number(site: Site) -> int:
    row = site.conn.execute("SELECT max(id) FROM token").fetchone()
    assert row is not None
    return int(row[0])


def test_the_last_operators_key_is_not_revoked_also_not_by_itself(
    site: Site, operator: Person
) -> None:
    first = _key_number(site)
    expired = site.key_of(operator, "operator", expires_at="yesterday")
    refused = operator("DELETE", f"/api/v1/tokens/{first}")
    assert (refused.status_code, refused.json["error"]) == (409, "Conflict")
    assert "is the last operator's key" in refused.json["detail"]
    assert operator("DELETE", f"/api/v1/tokens/{_key_number(site)}").status_code == 200
    other = site.key_of(operator, "operator")
    assert expired("GET", "/api/v1/owners").status_code == 401
    assert operator("DELETE", f"/api/v1/tokens/{first}").status_code == 200
    assert other("DELETE", f"/api/v1/tokens/{_key_number(site)}").status_code == 409
    assert other("GET", "/api/v1/owners").status_code == 200


@pytest.mark.parametrize("number", [1e308, -1e300, 1e19, 2.0**63])
def test_a_machine_with_enormous_figures_is_listed_like_others(
    site: Site, alice: Person, number: float
) -> None:
    body = {"host": {**HOST, "Fuel": number}, "mac": "aa:bb:cc:dd:ee:ff"}
    assert alice("POST", "/api/v1/clients", json=body).status_code == 201
    (listed,) = alice("GET", "/api/v1/hosts").json["hosts"]
    assert listed["attributes"]["Fuel"] == number


def test_a_nul_in_the_query_string_is_named_and_refused(operator: Person) -> None:
    answer = operator("GET", "/api/v1/volunteer?name=%00")
    assert (answer.status_code, answer.json["detail"]) == (
        400, "name: expected a text without NUL, got '\\x00'",
    )  # fmt: skip
