import json
from typing import Any

import pytest
from tests.factories import HOST, make_bot, make_client, make_lease
from tests.http.conftest import Person, Site

from gridbot_client.protocol.messages import ReplicaId
from gridbot_server.storage import sql

CYCLES = sql.load("cycles.sql")
JOIN = {"host": HOST, "mac": "aa:bb:cc:dd:ee:ff", "pilot": "gb1.7.0"}
TOKEN = {"grid": "ice", "owners": ["alice"], "seconds": 3600.0, "tag": "gb1.7", "count": 2}


def _token(operator: Person, **changes: Any) -> dict[str, Any]:
    answer = operator("POST", "/api/v1/overlay/tokens", json={**TOKEN, **changes})
    assert answer.status_code == 201
    return dict(answer.json)


def _pilot(site: Site, token: dict[str, Any], **changes: Any) -> Person:
    joiner = Person(site.app, token["token"], token["id"], "pilot")
    answer = joiner("POST", "/api/v1/clients", json={**JOIN, **changes})
    assert answer.status_code == 201
    return Person(site.app, answer.json["token"], answer.json["client"], "pilot")


def test_a_pilots_key_only_joins_pilots_of_its_grid_that_serve_its_owners_until_it_expires(
    site: Site, alice: Person, bob: Person, operator: Person
) -> None:
    token = _token(operator, owners=["bob", "alice"])
    pilot = _pilot(site, token)
    row = site.conn.execute(
        "SELECT c.grid, c.accepts, c.pilot, c.expires_at = t.expires_at, h.grid, h.identity"
        "  FROM client c JOIN token t ON t.id = c.token JOIN host h ON h.id = c.host"
    ).fetchone()
    serves = sorted([alice.id, bob.id])
    assert row == ("ice", serves, "gb1.7.0", True, "ice", "grid ice:aa:bb:cc:dd:ee:ff")
    assert pilot("PUT", "/api/v1/clients/self", json={}).status_code == 200
    joiner = Person(site.app, token["token"], 0, "pilot")
    for path in ("/api/v1/bots", "/api/v1/hosts", "/api/v1/tokens", "/api/v1/overlay/demand"):
        assert joiner("GET", path).status_code == 403
    site.conn.execute("UPDATE client SET expires_at = now() - interval '1 s'")
    assert pilot("PUT", "/api/v1/clients/self", json={}).status_code == 401


def test_a_pilots_key_is_good_for_the_pilots_of_one_submission(
    site: Site, alice: Person, operator: Person
) -> None:
    token = _token(operator)
    joiner = Person(site.app, token["token"], 0, "pilot")
    for name in ("gb1.7.2", "gb1.8.0", "gb1.7", "", "gb1.7.00", "gb1.7.-1"):
        answer = joiner("POST", "/api/v1/clients", json={**JOIN, "pilot": name})
        assert answer.status_code == 403, name
        assert f"not for a pilot {name!r}" in answer.json["detail"]


def test_a_pilot_that_joins_again_takes_the_place_of_its_first_client(
    site: Site, alice: Person, operator: Person
) -> None:
    bot = make_bot(site.conn, alice.id, jobs=1)
    token = _token(operator)
    first, other = _pilot(site, token), _pilot(site, token, pilot="gb1.7.1")
    make_lease(site.conn, ReplicaId(bot, 0, 0), first.id)
    second = _pilot(site, token)
    assert first("PUT", "/api/v1/clients/self", json={}).status_code == 401
    for pilot in (second, other):
        assert pilot("PUT", "/api/v1/clients/self", json={}).status_code == 200
    assert site.conn.execute("SELECT how, reason FROM ended").fetchall() == [
        ("expired", "client_left")
    ]
    listed = operator("GET", "/api/v1/overlay/pilots?grid=ice&seconds=60").json["pilots"]
    assert [(item["pilot"], item["client"]) for item in listed] == [
        ("gb1.7.0", second.id),
        ("gb1.7.1", other.id),
    ]


def test_only_an_operators_word_makes_a_host_dedicated(
    site: Site, alice: Person, operator: Person
) -> None:
    says = {**JOIN, "host": {**HOST, "IsDedicated": True}, "pilot": ""}
    for person in (alice, operator):
        assert person("POST", "/api/v1/clients", json=says).status_code == 201
    _pilot(site, _token(operator), host=says["host"])
    rows = site.conn.execute("SELECT dedicated FROM client ORDER BY id").fetchall()
    assert rows == [(False,), (True,), (True,)]


def test_a_grids_machine_is_one_host_whoever_sends_pilots_there(
    site: Site, alice: Person, operator: Person
) -> None:
    other = site.person("second", scope="operator")
    for person in (operator, other):
        _pilot(site, _token(person))
    _pilot(site, _token(operator, grid="fire"))
    hosts = site.conn.execute("SELECT grid, count(*) FROM host GROUP BY 1 ORDER BY 1").fetchall()
    assert hosts == [("fire", 1), ("ice", 1)]


def test_revoking_a_pilots_key_ends_its_pilots_and_no_others(
    site: Site, alice: Person, operator: Person
) -> None:
    first, second = _token(operator), _token(operator)
    gone, stays = _pilot(site, first), _pilot(site, second)
    assert operator("DELETE", f"/api/v1/tokens/{first['id']}").status_code == 200
    assert gone("PUT", "/api/v1/clients/self", json={}).status_code == 401
    assert stays("PUT", "/api/v1/clients/self", json={}).status_code == 200


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"owners": ["nobody"]}, "owners: there is no owner nobody"),
        ({"owners": []}, "owners"),
        ({"grid": "a b"}, "grid"),
        ({"seconds": 0.0}, "seconds"),
    ],
)
def test_a_bad_wish_for_a_pilots_key_is_refused_by_name(
    site: Site, alice: Person, operator: Person, change: dict[str, Any], words: str
) -> None:
    answer = operator("POST", "/api/v1/overlay/tokens", json={**TOKEN, **change})
    assert answer.status_code == 400
    assert words in answer.json["detail"]
    assert alice("POST", "/api/v1/overlay/tokens", json=TOKEN).status_code == 403


def test_demand_names_what_each_unfinished_bot_could_use(
    site: Site, alice: Person, operator: Person
) -> None:
    running = make_bot(site.conn, alice.id, jobs=10, policy="GridPolicy = Grid.Cpus > 1")
    make_bot(site.conn, alice.id, state="done")
    client, _ = make_client(site.conn, alice.id)
    pilot = _pilot(site, _token(operator))
    for seq, holder in enumerate((client, pilot.id)):
        make_lease(site.conn, ReplicaId(running, seq, 0), holder)
    site.conn.execute("INSERT INTO bot_stat VALUES (%s, 'test', 'sent_first', 2)", [running])
    answer = operator("GET", "/api/v1/overlay/demand")
    assert [bot["bot"] for bot in answer.json["bots"]] == [running]
    found = answer.json["bots"][0]
    assert (found["unsent"], found["dedicated"], found["on_pilots"]) == (8, 0, {"ice": 1})
    assert (found["owner"], found["share"], found["seconds"]) == ("alice", 1.0, None)
    assert found["policy"] == "GridPolicy = Grid.Cpus > 1"
    assert (found["ad"]["JobsTotal"], found["ad"]["JobsUnsent"]) == (10, 8)
    assert "MeanTurnaround" not in found["ad"]
    assert answer.json["queue"] == {"BOTsInQueue": 1, "JobsInQueue": 8}


def test_the_version_of_the_demand_is_another_when_bots_begin_grow_or_end(
    site: Site, alice: Person, operator: Person
) -> None:
    def version() -> str:
        return str(operator("GET", "/api/v1/overlay/demand/version").json["version"])

    seen = [version()]
    bot = make_bot(site.conn, alice.id, jobs=10)
    seen.append(version())
    for change in ("size = size + 1", "held = 'why'", "held = null", "state = 'cancelled'"):
        assert version() == seen[-1]
        site.conn.execute(f"UPDATE bot SET {change} WHERE id = %s", [bot])
        seen.append(version())
    assert seen == [seen[0], seen[1], seen[2], seen[0], seen[2], seen[0]]
    assert len({*seen}) == 3
    assert alice("GET", "/api/v1/overlay/demand/version").status_code == 403


def test_owners_are_told_which_grids_refuse_their_bots(
    site: Site, alice: Person, operator: Person
) -> None:
    bot, other = (make_bot(site.conn, alice.id, jobs=10) for _ in range(2))

    def say(constructor: str, refused: dict[int, dict[str, str]]) -> None:
        bots = {str(number): grids for number, grids in refused.items()}
        body = {"constructor": constructor, "bots": bots}
        assert operator("POST", "/api/v1/overlay/refusals", json=body).status_code == 200

    def shown(number: int) -> dict[str, str]:
        explained = alice("GET", f"/api/v1/bots/{number}/explanation").json["refused_by"]
        assert explained == alice("GET", f"/api/v1/bots/{number}").json["refused_by"]
        return dict(explained)

    assert shown(bot) == {}
    say("gb1.", {bot: {"ice": "too small", "fire": "its GridPolicy excludes the grid"}})
    say("gb2.", {bot: {"sea": "drained"}, other: {"sea": "drained"}})
    assert shown(bot) == {
        "ice": "too small", "fire": "its GridPolicy excludes the grid", "sea": "drained"
    }  # fmt: skip
    say("gb1.", {})
    assert (shown(bot), shown(other)) == ({"sea": "drained"}, {"sea": "drained"})
    site.conn.execute("UPDATE refusals SET said_at = now() - interval '16 minutes'")
    assert shown(bot) == {}


@pytest.mark.parametrize(
    "change",
    [
        {"constructor": ""},
        {"bots": {"x": {"ice": "no"}}},
        {"bots": {"1": {"a b": "no"}}},
        {"bots": {"1": {"ice": "x" * 201}}},
        {"bots": {"1": {"ice": "two\nlines"}}},
        {"bots": {str(number): {} for number in range(1, 1002)}},
    ],
)
def test_refusals_of_strange_shape_are_refused(
    operator: Person, alice: Person, change: dict[str, Any]
) -> None:
    body = {"constructor": "gb1.", "bots": {"1": {"ice": "no"}}}
    answer = operator("POST", "/api/v1/overlay/refusals", json={**body, **change})
    assert answer.status_code == 400
    assert alice("POST", "/api/v1/overlay/refusals", json=body).status_code == 403


def _manifest(site: Site, bot: int) -> str:
    [text] = site.conn.execute("SELECT manifest FROM bot WHERE id = %s", [bot]).fetchone() or [""]
    return str(text)


def _demanded(operator: Person) -> tuple[float | None, float | None]:
    found = operator("GET", "/api/v1/overlay/demand").json["bots"][0]
    return found["run_seconds"], found["cut_off_seconds"]


def test_a_bot_demands_the_time_that_its_owner_named_until_replicas_have_ended(
    site: Site, alice: Person, operator: Person
) -> None:
    bot = make_bot(site.conn, alice.id, jobs=10)
    assert _demanded(operator) == (None, None)  # nobody named a limit
    manifest = json.dumps({**json.loads(_manifest(site, bot)), "resources": {"seconds": 300.0}})
    site.conn.execute("UPDATE bot SET manifest = %s WHERE id = %s", [manifest, bot])
    assert _demanded(operator) == (300.0, None)
    sums = [{"bot": bot, "seconds": 9.0, "n": 20, "runs": [*range(1, 20), 200]}]
    site.conn.execute(CYCLES["add_turnarounds"], {"bots": json.dumps(sums)})
    assert _demanded(operator) == (19.0, None)


def test_what_pilots_cut_off_twice_needs_more_than_they_had(
    site: Site, alice: Person, operator: Person
) -> None:
    bot = make_bot(site.conn, alice.id, jobs=10)
    for index, seconds in enumerate((100.0, 90.0)):
        assert _demanded(operator) == (None, None)  # once may have been an accident
        pilot = _pilot(site, _token(operator, tag=f"gb1.{index}"), pilot=f"gb1.{index}.0")
        make_lease(site.conn, ReplicaId(bot, index, 0), pilot.id)
        body = {"cut_off": [{"bot": bot, "seconds": seconds}]}
        for _ in range(2):  # the answer may have been lost
            pilot("POST", "/api/v1/clients/self/leave", json=body)
    needed, longest = _demanded(operator)
    assert needed == pytest.approx(140.0)
    assert longest == 100.0
    shown = alice("GET", f"/api/v1/bots/{bot}").json
    assert (shown["cut_off"], shown["cut_off_seconds"], shown["cut_off_grid"]) == (2, 100.0, "ice")


def test_only_a_pilot_that_holds_a_bots_replica_teaches_of_its_time(
    site: Site, alice: Person, operator: Person
) -> None:
    bot = make_bot(site.conn, alice.id, jobs=10)
    stranger, pilot = site.client_of(alice), _pilot(site, _token(operator))
    make_lease(site.conn, ReplicaId(bot, 0, 0), stranger.id)
    for client in (stranger, pilot):
        body = {"cut_off": [{"bot": bot, "seconds": 5.0}]}
        assert client("POST", "/api/v1/clients/self/leave", json=body).status_code == 200
    assert alice("GET", f"/api/v1/bots/{bot}").json["cut_off"] == 0
    for wrong in ({"bot": bot, "seconds": -1}, {"bot": bot, "seconds": 1e12}, {"bot": "x"}):
        answer = pilot("POST", "/api/v1/clients/self/leave", json={"cut_off": [wrong]})
        assert answer.status_code == 400


def test_what_ended_pilots_ran_goes_back_at_once_and_once(
    site: Site, alice: Person, operator: Person
) -> None:
    bot = make_bot(site.conn, alice.id, jobs=4)
    token = _token(operator)
    gone, stays = _pilot(site, token), _pilot(site, token, pilot="gb1.7.1")
    for seq, pilot in enumerate((gone, gone, stays)):
        make_lease(site.conn, ReplicaId(bot, seq, 0), pilot.id)
    listed = operator("GET", "/api/v1/overlay/pilots?grid=ice").json["pilots"]
    assert {item["pilot"]: item["running"] for item in listed} == {"gb1.7.0": 2, "gb1.7.1": 1}
    assert {item["ad"]["Name"] for item in listed} == {HOST["Name"]}
    ended = {"grid": "ice", "pilots": ["gb1.7.0", "gb9.9.9"]}
    for count in (2, 0):
        answer = operator("POST", "/api/v1/overlay/pilots/ended", json=ended)
        assert answer.json == {"replicas": count}
    how = site.conn.execute("SELECT seq, how, reason FROM ended ORDER BY seq").fetchall()
    assert how == [(0, "expired", "pilot_ended"), (1, "expired", "pilot_ended")]
    assert site.conn.execute("SELECT seq FROM pending ORDER BY seq").fetchall() == [(0,), (1,)]
    other = {"grid": "fire", "pilots": ["gb1.7.1"]}
    assert operator("POST", "/api/v1/overlay/pilots/ended", json=other).json == {"replicas": 0}


def test_a_submission_is_known_while_its_key_is_neither_revoked_nor_expired(
    site: Site, alice: Person, operator: Person
) -> None:
    tags = ["gb1.7", "gb1.8", "gb1.9", "gb1.10"]
    keys = {tag: _token(operator, tag=tag)["id"] for tag in tags[:3]}
    again = _token(operator)["id"]

    def known() -> dict[str, int]:
        answer = operator("POST", "/api/v1/overlay/tags", json={"tags": tags})
        return dict(answer.json["keys"])

    assert known() == {**keys, "gb1.7": again}
    operator("DELETE", f"/api/v1/tokens/{keys['gb1.8']}")
    operator("DELETE", f"/api/v1/tokens/{again}")
    site.conn.execute(
        "UPDATE token SET expires_at = now() - interval '1 s' WHERE id = %s", [keys["gb1.9"]]
    )
    assert known() == {"gb1.7": keys["gb1.7"]}


@pytest.mark.parametrize("tags", [["t"] * 1001, ["a b"], ["t" * 101], [7], "t", None])
def test_a_bad_list_of_tags_is_refused(site: Site, operator: Person, tags: Any) -> None:
    answer = operator("POST", "/api/v1/overlay/tags", json={"tags": tags})
    assert answer.status_code == 400
    assert "tags" in answer.json["detail"]


def test_only_operators_ask_for_tags(site: Site, alice: Person) -> None:
    answer = alice("POST", "/api/v1/overlay/tags", json={"tags": ["gb1.7"]})
    assert answer.status_code == 403


def _words(index: int, **changes: Any) -> dict[str, Any]:
    known = {"native_id": "12_3", "node": "n7", "how": "FAILED", "exit_code": 3, "words": "no disk"}
    return {"pilot": f"gb1.7.{index}", **known, **changes}


def _keep(person: Person, *logs: dict[str, Any], grid: str = "ice") -> Any:
    return person("POST", "/api/v1/overlay/logs", json={"grid": grid, "logs": logs})


def test_last_words_of_pilots_are_kept_for_operators(
    site: Site, alice: Person, operator: Person
) -> None:
    other = site.person("second", scope="operator")
    for _ in range(2):  # the answer may have been lost
        assert _keep(operator, _words(0), _words(1)).json == {"logs": 2}
    assert _keep(operator, _words(2), grid="fire").status_code == 200
    assert _keep(alice, _words(3)).status_code == 403
    listed = other("GET", "/api/v1/overlay/logs?grid=ice").json["logs"]
    assert [item["pilot"] for item in listed] == ["gb1.7.0", "gb1.7.1"]
    shown = other("GET", "/api/v1/overlay/logs/gb1.7.1").json
    assert shown.pop("told_seconds_ago") >= 0
    assert shown == {**_words(1), "grid": "ice"}
    assert alice("GET", "/api/v1/overlay/logs/gb1.7.1").status_code == 403
    assert alice("GET", "/api/v1/overlay/logs").status_code == 403
    missing = operator("GET", "/api/v1/overlay/logs/gb9")
    assert (missing.status_code, missing.json["detail"]) == (404, "nothing is kept of a pilot gb9")


def test_one_grids_constructor_does_not_overwrite_what_another_told(
    site: Site, operator: Person
) -> None:
    _keep(operator, _words(0))
    _keep(operator, _words(0, words="other"), grid="fire")
    shown = operator("GET", "/api/v1/overlay/logs/gb1.7.0").json
    assert (shown["grid"], shown["words"]) == ("ice", "no disk")


def test_old_words_go_when_others_come(site: Site, operator: Person) -> None:
    _keep(operator, _words(0))
    site.conn.execute("UPDATE pilot_log SET told_at = now() - interval '15 days'")
    _keep(operator, _words(1))
    listed = operator("GET", "/api/v1/overlay/logs").json["logs"]
    assert [item["pilot"] for item in listed] == ["gb1.7.1"]


def test_the_oldest_words_go_beyond_the_most_that_are_kept(site: Site, operator: Person) -> None:
    site.conn.execute(
        "INSERT INTO pilot_log (pilot, grid, native_id, node, how, words, told_at)"
        " SELECT 'x' || n, 'ice', '', '', '', '', now() - n * interval '1 second'"
        "   FROM generate_series(1, 10000) AS n"
    )
    _keep(operator, _words(0))
    kept = {pilot for (pilot,) in site.conn.execute("SELECT pilot FROM pilot_log").fetchall()}
    assert len(kept) == 10_000
    assert "x10000" not in kept
    assert "gb1.7.0" in kept


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"pilot": ""}, "pilot"),
        ({"pilot": "a/b"}, "pilot"),
        ({"words": "x" * 4097}, "words"),
        ({"words": "\0"}, "words"),
        ({"exit_code": 10**6}, "exit_code"),
    ],
)
def test_words_that_cannot_be_kept_are_refused_by_name(
    operator: Person, changes: dict[str, Any], words: str
) -> None:
    answer = _keep(operator, _words(0, **changes))
    assert answer.status_code == 400
    assert words in answer.json["detail"]
