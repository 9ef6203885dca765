import base64
from datetime import datetime
from typing import Any

import pytest
from tests.factories import make_bot, make_failure, make_lease, make_outcome, submission
from tests.http.conftest import Person, Site

from gridbot_client.protocol.messages import ReplicaId, manifest_id
from gridbot_server.signing import keys

BOT_ROUTES = [
    ("GET", ""),
    ("GET", "/explanation"),
    ("GET", "/history"),
    ("PATCH", ""),
    ("POST", "/jobs?offset=0"),
    ("POST", "/start"),
    ("DELETE", ""),
    ("POST", "/cancel"),
    ("POST", "/close"),
    ("POST", "/jobs/cancel"),
    ("POST", "/hold"),
    ("POST", "/resume"),
    ("POST", "/retry"),
    ("GET", "/failures"),
    ("GET", "/results"),
    ("GET", "/outputs/0/out"),
    ("GET", "/archive"),
    ("GET", "/logs"),
    ("POST", "/live"),
    ("GET", "/policies"),
    ("GET", "/manifest"),
    ("GET", "/parts"),
    ("GET", "/inputs/<sha256>"),
    ("PUT", "/signature"),
    ("PUT", "/boinc"),
    ("POST", "/what-if"),
]
BODIES: dict[tuple[str, str], Any] = {
    ("PATCH", ""): {"policy": "Rank = 9"},
    ("POST", "/jobs/cancel"): {"jobs": [0]},
    ("PUT", "/signature"): {"signature": base64.b64encode(bytes(64)).decode()},
    ("PUT", "/boinc"): {"script": "", "signatures": {}},
}


def _bot(site: Site, bot: int, columns: str = "*") -> tuple[Any, ...]:
    row = site.conn.execute(f"SELECT {columns} FROM bot WHERE id = %s", [bot]).fetchone()
    assert row is not None
    return row


def test_the_list_of_bot_routes_is_complete(site: Site) -> None:
    known = {(method, path.split("?")[0]) for method, path in BOT_ROUTES}
    found = {
        (method, rule.rule.removeprefix("/api/v1/bots/<int:bot>"))
        for rule in site.app.url_map.iter_rules()
        if rule.rule.startswith("/api/v1/bots/<int:bot>")
        for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}
    }
    assert {(m, p.replace("/0/out", "/<int:seq>/<path:name>")) for m, p in known} == found


@pytest.mark.parametrize(("method", "path"), BOT_ROUTES)
def test_another_owners_bot_does_not_exist(
    site: Site, alice: Person, bob: Person, method: str, path: str
) -> None:
    bot = make_bot(site.conn, alice.id)
    make_outcome(site.conn, ReplicaId(bot, 0, 1), site.client_of(alice).id, {"out": b"secret"})
    before = _bot(site, bot)
    body = BODIES.get((method, path), {})
    foreign = bob(method, f"/api/v1/bots/{bot}{path}", json=body)
    missing = bob(method, f"/api/v1/bots/{bot + 1}{path}", json=body)
    assert (foreign.status_code, missing.status_code) == (404, 404)
    assert foreign.json["detail"] == f"there is no BOT {bot}"
    assert b"secret" not in foreign.data
    assert _bot(site, bot) == before


def test_lists_hold_ones_own_bots_and_an_operators_all(
    site: Site, alice: Person, bob: Person, operator: Person
) -> None:
    bots = [make_bot(site.conn, owner.id) for owner in (alice, bob, alice)]

    def listed(person: Person, query: str = "") -> list[int]:
        return [item["id"] for item in person("GET", f"/api/v1/bots{query}").json["bots"]]

    assert listed(alice) == [bots[2], bots[0]]
    assert listed(bob) == [bots[1]]
    assert listed(operator) == bots[::-1]
    assert listed(alice, "?limit=1") == [bots[2]]
    assert listed(alice, "?state=done") == []
    assert operator("GET", f"/api/v1/bots/{bots[0]}").json["owner"] == "alice"
    wrong = alice("GET", "/api/v1/bots?state=finished")
    assert (
        wrong.json["detail"]
        == "state: expected one of open, running, held, done, cancelled, got 'finished'"
    )


def test_details_tell_what_is_done_and_what_is_left(site: Site, alice: Person) -> None:
    bot = make_bot(site.conn, alice.id, jobs=10, turnaround_sum=30, turnaround_n=3)
    client = site.client_of(alice).id
    for seq in range(3):
        make_outcome(site.conn, ReplicaId(bot, seq, 1), client, {})
    make_failure(site.conn, ReplicaId(bot, 3, 1), client, "exit_nonzero")
    make_lease(site.conn, ReplicaId(bot, 4, 1), client)
    counters = {"sent_first": 5, "sent_error": 2, "back": 6, "queued": 3, "unqueued": 2}
    for name, value in counters.items():
        site.conn.execute("INSERT INTO bot_stat VALUES (%s, 'w', %s, %s)", [bot, name, value])
    found = alice("GET", f"/api/v1/bots/{bot}").json
    assert {name: found[name] for name in found if name.startswith("jobs_")} == {
        "jobs_total": 10,
        "jobs_done": 3,
        "jobs_failed": 1,
        "jobs_cancelled": 0,
        "jobs_reused": 0,
        "jobs_left": 6,
        "jobs_running": 1,
        "jobs_silent": 0,
        "jobs_in_progress": 1,
        "jobs_waiting": 5,
        "jobs_unsent": 6,
        "jobs_per_second": found["jobs_per_second"],
    }
    assert found["jobs_per_second"] > 0
    assert found["eta_seconds"] == pytest.approx(6 / found["jobs_per_second"])
    assert found["replicas"] == {
        "made": 7, "running": 1, "by_reason": {"first": 5, "error": 2}, "progress": None,
    }  # fmt: skip
    assert found["mean_turnaround_seconds"] == 10
    assert datetime.fromisoformat(found["created_at"]).tzinfo is not None
    assert (found["state"], found["ended_at"], found["signed"]) == ("running", None, False)
    assert (found["command"], found["resources"]["cpus"]) == (["echo", "{i}"], 1)
    assert found["match"]["hosts_known"] == 1


def test_nothing_known_is_null(site: Site, alice: Person) -> None:
    found = alice("GET", f"/api/v1/bots/{make_bot(site.conn, alice.id)}").json
    assert [found[name] for name in ("jobs_per_second", "eta_seconds")] == [None, None]
    assert found["mean_turnaround_seconds"] is None
    assert found["replicas"] == {"made": 0, "running": 0, "by_reason": {}, "progress": None}


@pytest.mark.parametrize(
    ("first", "now", "left"), [(0.2, 0.6, 100), (0.6, 0.2, None), (0.2, 0.2, None), (0, 1e-9, None)]
)
def test_a_program_that_gets_on_says_when_it_ends(
    site: Site, alice: Person, first: float, now: float, left: float | None
) -> None:
    bot = make_bot(site.conn, alice.id, jobs=1)
    make_lease(site.conn, ReplicaId(bot, 0, 1), site.client_of(alice).id)
    site.conn.execute("INSERT INTO bot_stat VALUES (%s, 'w', 'sent_first', 1)", [bot])
    site.conn.execute(
        "UPDATE lease SET progress_first = %s, progress = %s,"
        " progress_since = now() - interval '100 s' WHERE bot = %s",
        [first, now, bot],
    )
    found = alice("GET", f"/api/v1/bots/{bot}").json["eta_seconds"]
    assert found == (left and pytest.approx(left, rel=0.3))


def test_cancelling_ends_a_bot_once(site: Site, alice: Person) -> None:
    bot = make_bot(site.conn, alice.id)
    first = alice("POST", f"/api/v1/bots/{bot}/cancel").json
    assert (first["state"], first["jobs_unsent"]) == ("cancelled", 0)
    assert first["ended_at"] is not None
    assert alice("POST", f"/api/v1/bots/{bot}/cancel").json == first
    assert _bot(site, bot, "policy_version") == (2,)
    assert alice("POST", f"/api/v1/bots/{bot}/start").status_code == 409


def test_a_bot_that_is_done_is_not_cancelled(site: Site, alice: Person) -> None:
    bot = make_bot(site.conn, alice.id, state="done")
    assert alice("POST", f"/api/v1/bots/{bot}/cancel").json["state"] == "done"


def test_retry_gives_failed_jobs_another_round(site: Site, alice: Person) -> None:
    bot = make_bot(site.conn, alice.id, jobs=3)
    client = site.client_of(alice).id
    make_outcome(site.conn, ReplicaId(bot, 0, 1), client, {})
    make_failure(site.conn, ReplicaId(bot, 1, 3), client, "exit_nonzero")
    make_failure(site.conn, ReplicaId(bot, 2, 1), client, "exit_nonzero")
    make_lease(site.conn, ReplicaId(bot, 2, 4), client)
    site.conn.execute("UPDATE bot SET state = 'done', ended_at = now()")
    assert alice("POST", f"/api/v1/bots/{bot}/retry", json={}).json == {
        "retried": 2,
        "version": 1,
    }
    copies = site.conn.execute("SELECT seq, replica, round, why FROM requeue ORDER BY seq")
    assert copies.fetchall() == [(1, 4, 1, "retry"), (2, 5, 1, "retry")]
    assert site.conn.execute("SELECT seq FROM outcome").fetchall() == [(0,)]
    columns = "state, ended_at, round, done, failed, outcomes, policy_version"
    assert _bot(site, bot, columns) == ("running", None, 1, 1, 0, 3, 2)
    stat = site.conn.execute("SELECT bot, writer, name, value FROM bot_stat").fetchall()
    assert stat == [(bot, "api", "queued", 2)]


def test_a_retry_needs_no_body(site: Site, alice: Person) -> None:
    bot = make_bot(site.conn, alice.id)
    assert alice("POST", f"/api/v1/bots/{bot}/retry").json == {"retried": 0, "version": 1}


def test_retry_without_failed_jobs_changes_nothing(site: Site, alice: Person) -> None:
    bot = make_bot(site.conn, alice.id, state="done")
    before = _bot(site, bot)
    assert alice("POST", f"/api/v1/bots/{bot}/retry", json={}).json == {
        "retried": 0,
        "version": 1,
    }
    assert _bot(site, bot) == before


@pytest.mark.parametrize("state", ["open", "cancelled"])
def test_what_does_not_run_is_not_retried(site: Site, alice: Person, state: str) -> None:
    bot = make_bot(site.conn, alice.id, state=state)
    answer = alice("POST", f"/api/v1/bots/{bot}/retry", json={})
    assert answer.status_code == 409
    assert answer.json["detail"] == f"BOT {bot} is {state}, there is nothing to retry"


def test_only_what_is_given_changes(site: Site, alice: Person) -> None:
    bot = make_bot(site.conn, alice.id, tail_threshold=5, max_attempts=4)
    path = f"/api/v1/bots/{bot}"
    answer = alice("PATCH", path, json={"policy": "Rank = Host.Speed"})
    assert answer.json["warnings"]
    columns = "policy, name, tail_threshold, tail_sticky, max_attempts, max_replicas"
    unchanged = ("scan", 5, True, 4, 5)
    assert _bot(site, bot, columns) == ("Rank = Host.Speed", *unchanged)
    changes = {"name": "new", "tail_threshold": None, "tail_sticky": False, "max_replicas": 9}
    assert alice("PATCH", path, json=changes).json["name"] == "new"
    assert _bot(site, bot, columns) == ("Rank = Host.Speed", "new", None, False, 4, 9)
    assert _bot(site, bot, "policy_version") == (3,)
    assert alice("PATCH", path, json={"policy": ""}).status_code == 200
    assert _bot(site, bot, "policy") == ("",)


def test_when_jobs_go_to_dedicated_hosts_is_changed_only_where_it_is_given(
    site: Site, alice: Person
) -> None:
    bot = make_bot(site.conn, alice.id)
    for change, expected in (
        ({"failover_after": 2}, 2),
        ({"tail_sticky": True}, 2),
        ({"failover_after": None}, None),
    ):
        assert alice("PATCH", f"/api/v1/bots/{bot}", json=change).status_code == 200
        assert _bot(site, bot, "failover_after") == (expected,)


@pytest.mark.parametrize(
    ("change", "detail"),
    [
        ({"policy": "Rank ="}, "line 1, column 7: expected "),
        ({"max_attempts": 0}, "max_attempts: 0 is less than 1"),
        ({"max_replicas": 1}, "max_replicas 1 is less than the BOT's quorum"),
        ({"quorum": 2}, "quorum: unknown field"),
        ({"name": None}, "name: expected a string, got None"),
    ],
)
def test_a_wrong_change_changes_nothing(
    site: Site, alice: Person, change: dict[str, Any], detail: str
) -> None:
    bot = make_bot(site.conn, alice.id, quorum=2)
    before = _bot(site, bot)
    answer = alice("PATCH", f"/api/v1/bots/{bot}", json=change)
    assert answer.status_code == 400
    assert answer.json["detail"].startswith(detail)
    assert _bot(site, bot) == before


def test_a_signature_by_the_project_key_is_attached(site: Site, alice: Person) -> None:
    bot = alice("POST", "/api/v1/bots", json=submission()).json["id"]
    path = f"/api/v1/bots/{bot}"
    shown = alice("GET", f"{path}/manifest").json
    assert (shown["id"], shown["signature"]) == (manifest_id(shown["text"]), None)
    private = keys.load_private(site.settings.project_key_path)
    signature = base64.b64encode(keys.sign_manifest(private, shown["text"])).decode()
    answer = alice("PUT", f"{path}/signature", json={"signature": signature})
    assert answer.status_code == 200
    assert alice("GET", f"{path}/manifest").json["signature"] == signature
    assert alice("GET", path).json["signed"] is True
    assert _bot(site, bot, "policy_version") == (2,)


@pytest.mark.parametrize("signature", ["", "????", base64.b64encode(bytes(64)).decode()])
def test_another_signature_is_refused(site: Site, alice: Person, signature: str) -> None:
    bot = make_bot(site.conn, alice.id)
    answer = alice("PUT", f"/api/v1/bots/{bot}/signature", json={"signature": signature})
    assert answer.status_code == 400
    assert answer.json["detail"].startswith("signature: ")
    assert _bot(site, bot, "signature") == (None,)


def test_a_suspended_bot_says_why_and_a_changed_policy_lifts_it(site: Site, alice: Person) -> None:
    bot = make_bot(site.conn, alice.id)
    why = "its policy took too long"
    site.conn.execute("UPDATE bot SET suspended = %s WHERE id = %s", [why, bot])
    path = f"/api/v1/bots/{bot}"
    assert alice("GET", path).json["suspended"] == why
    explained = alice("GET", f"{path}/explanation").json
    assert explained["suspended"] == why
    assert explained["verdict"] == "the BOT is suspended until its policy is changed"
    alice("PATCH", path, json={"name": "other"})
    assert alice("GET", path).json["suspended"] == why
    alice("PATCH", path, json={"policy": "Rank = 1"})
    assert alice("GET", path).json["suspended"] is None
    assert alice("GET", f"{path}/explanation").json["suspended"] is None


def test_a_bot_is_held_by_hand_until_it_is_resumed(site: Site, alice: Person) -> None:
    bot = make_bot(site.conn, alice.id)
    held = alice("POST", f"/api/v1/bots/{bot}/hold", json={}).json
    assert (held["state"], held["held"]) == ("held", "alice held it")
    assert alice("GET", f"/api/v1/bots/{bot}").json["progress"] == "held with 0 % done"
    assert alice("POST", f"/api/v1/bots/{bot}/resume", json={}).json["state"] == "running"


def test_the_policies_of_a_bot_are_kept_with_who_set_them(
    site: Site, alice: Person, operator: Person
) -> None:
    bot = make_bot(site.conn, alice.id, policy="Rank = 1;")
    path = f"/api/v1/bots/{bot}"
    for person, policy in ((alice, "Rank = 2;"), (alice, "Rank = 2;"), (operator, "Rank = 3;")):
        assert person("PATCH", path, json={"policy": policy}).status_code == 200
    found = alice("GET", f"{path}/policies").json["policies"]
    assert [(item["n"], item["policy"], item["changed_by"]) for item in found] == [
        (3, "Rank = 3;", "root"), (2, "Rank = 2;", "alice"), (1, "Rank = 1;", "alice"),
    ]  # fmt: skip


def test_a_bot_that_kept_its_policy_has_one(site: Site, alice: Person) -> None:
    bot = make_bot(site.conn, alice.id, policy="Rank = 1;")
    (found,) = alice("GET", f"/api/v1/bots/{bot}/policies").json["policies"]
    assert (found["n"], found["policy"]) == (1, "Rank = 1;")


@pytest.mark.parametrize("path", ["groups/%00/cancel", "groups/a%00b/cancel"])
def test_no_name_in_a_path_holds_a_nul(alice: Person, path: str) -> None:
    assert alice("POST", f"/api/v1/{path}?owner=alice").status_code == 404


def test_a_history_ends_within_the_times_that_databases_know(site: Site, alice: Person) -> None:
    bot = make_bot(site.conn, alice.id, 1)
    path = f"/api/v1/bots/{bot}/history?end="
    assert alice("GET", f"{path}{2**63 - 1}").status_code == 400
    assert alice("GET", f"{path}{10**11}").status_code == 200
