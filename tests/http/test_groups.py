"""Groups: a label over BOTs with one stream of results, one cancel, one share."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner, Result
from tests.factories import make_bot, make_failure, make_outcome, submission
from tests.http.conftest import Person, Site
from tests.http.loopback import serve

from gridbot.api.connection import Connection
from gridbot.api.errors import BadInput, BotHeld, NotFound, Refused
from gridbot.api.session import Session
from gridbot.cli import gridbot
from gridbot_client.net.discovery import Endpoint
from gridbot_client.protocol.messages import ReplicaId
from gridbot_server.cycles import retention
from gridbot_server.storage import db, invariants


@pytest.fixture
def url(site: Site) -> Iterator[str]:
    with serve(site.app) as url:
        yield url


@pytest.fixture
def session(url: str, alice: Person) -> Iterator[Session]:
    with Session(Connection(Endpoint(url, alice.token))) as session:
        yield session


def submit(person: Person, group: str | None, **changes: Any) -> int:
    body = submission(placeholders={"i": "int"}, **changes)
    answer = person("POST", "/api/v1/bots", json={**body, **({"group": group} if group else {})})
    assert answer.status_code == 201, answer.json
    return int(answer.json["id"])


def finish(site: Site, person: Person, bot: int, *seqs: int) -> None:
    client = site.client_of(person).id
    for seq in seqs:
        make_outcome(site.conn, ReplicaId(bot, seq, 1), client, {"stdout": b"%d\n" % seq})


def lines(person: Person, query: str = "", name: str = "scan") -> list[dict[str, Any]]:
    answer = person("GET", f"/api/v1/groups/{name}/results{query}")
    assert answer.status_code == 200
    return [json.loads(line) for line in answer.data.splitlines()]


def assert_in_order(site: Site) -> None:
    """All that the invariants say of groups holds; nothing was dispatched here."""
    assert [item for item in invariants.check(site.conn, idle=False) if "group" in item.name] == []


def places(found: list[dict[str, Any]]) -> list[tuple[int, int, int]]:
    return [(line["n"], line["bot"], line["seq"]) for line in found]


def test_results_of_all_its_bots_are_one_stream_in_the_order_of_their_end(
    site: Site, alice: Person
) -> None:
    one, other, outside = (submit(alice, group) for group in ("scan", "scan", None))
    finish(site, alice, one, 3)
    finish(site, alice, other, 0, 1)
    finish(site, alice, outside, 0)
    make_failure(site.conn, ReplicaId(one, 4, 1), site.client_of(alice).id, "exit_nonzero")
    found = lines(alice)
    assert places(found) == [(1, one, 3), (2, other, 0), (3, other, 1), (4, one, 4)]
    of_bot = alice("GET", f"/api/v1/bots/{one}/results").data.splitlines()
    assert {**json.loads(of_bot[1]), "n": 4, "bot": one} == found[3]
    assert found[0]["outputs"]["stdout"]["size"] == 2
    assert_in_order(site)


def test_a_cursor_stays_right_when_bots_come_into_the_group_later(
    site: Site, alice: Person
) -> None:
    one = submit(alice, "scan")
    finish(site, alice, one, 0, 1)
    known = lines(alice)
    later = submit(alice, "scan")
    finish(site, alice, later, 5)
    finish(site, alice, one, 2)
    after = known[-1]["n"]
    assert places(lines(alice, f"?after={after}")) == [(3, later, 5), (4, one, 2)]
    assert places(lines(alice, "?after=1&limit=2")) == [(2, one, 1), (3, later, 5)]
    assert places(lines(alice)[:2]) == places(known)
    assert lines(alice, "?after=4") == []


def test_outcomes_that_are_numbered_together_may_begin_in_the_midst_of_a_page(
    site: Site, alice: Person
) -> None:
    one, other = submit(alice, "scan"), submit(alice, "scan")
    with site.conn.transaction():
        finish(site, alice, one, 0, 1)
        finish(site, alice, other, 0)
    with site.conn.transaction():
        finish(site, alice, other, *range(1, 10))
        finish(site, alice, one, *range(2, 10))
    everything = places(lines(alice))
    assert [n for n, _, _ in everything] == [*range(1, 21)]
    for bot in (one, other):
        assert [seq for _, found, seq in everything if found == bot] == [*range(10)]
    for after in range(20):
        assert places(lines(alice, f"?after={after}&limit=1")) == everything[after : after + 1]
    assert_in_order(site)


def test_a_number_is_seen_only_once_all_before_it_are(site: Site, alice: Person) -> None:
    """Two that give outcomes at once to two BOTs of a group wait for each other's commit."""
    one, other = submit(alice, "scan"), submit(alice, "scan")
    with db.connect(site.settings.dsn_or_embedded, "late") as late:
        client = site.client_of(alice).id
        with ThreadPoolExecutor(1) as pool, late.transaction():
            make_outcome(late, ReplicaId(one, 0, 1), client, {})
            late.execute("SET CONSTRAINTS ALL IMMEDIATE")  # it has its number, and no commit yet
            second = pool.submit(finish, site, alice, other, 0)
            while (
                late.execute(
                    "SELECT FROM pg_stat_activity WHERE datname = current_database()"
                    " AND wait_event_type = 'Lock'"
                ).fetchone()
                is None
            ):
                assert not second.done()
            assert lines(alice) == []
        second.result()
    assert places(lines(alice)) == [(1, one, 0), (2, other, 0)]


def test_what_a_retry_takes_away_leaves_a_gap_and_comes_again_behind(
    site: Site, alice: Person
) -> None:
    bot = submit(alice, "scan", jobs={"range": [0, 2, 1]})
    make_failure(site.conn, ReplicaId(bot, 0, 1), site.client_of(alice).id, "exit_nonzero")
    finish(site, alice, bot, 1)
    site.conn.execute("UPDATE bot SET state = 'done', ended_at = now() WHERE id = %s", [bot])
    assert alice("POST", f"/api/v1/bots/{bot}/retry", json={}).json["retried"] == 1
    assert places(lines(alice)) == [(2, bot, 1)]
    make_outcome(site.conn, ReplicaId(bot, 0, 2), site.client_of(alice).id, {})
    assert places(lines(alice, "?after=2")) == [(3, bot, 0)]


def test_a_group_of_which_a_retry_took_a_whole_page_away_goes_on_behind_it(
    site: Site, alice: Person
) -> None:
    client = site.client_of(alice).id
    failed = [submit(alice, "scan", jobs={"range": [0, 1, 1]}) for _ in range(60)]
    for bot in failed:
        make_failure(site.conn, ReplicaId(bot, 0, 1), client, "exit_nonzero")
        alice("POST", f"/api/v1/bots/{bot}/retry", json={})
    last = submit(alice, "scan")
    finish(site, alice, last, 0)
    assert places(lines(alice)) == [(61, last, 0)]


def test_a_group_says_what_its_bots_have_done(alice: Person, site: Site) -> None:
    one, other = submit(alice, "scan"), submit(alice, "scan")
    finish(site, alice, one, 0)
    make_failure(site.conn, ReplicaId(other, 0, 1), site.client_of(alice).id, "exit_nonzero")
    submit(alice, "last")
    found = alice("GET", "/api/v1/groups/scan").json
    assert {name: found[name] for name in found if name != "created_at"} == {
        "name": "scan", "owner": "alice", "share": None, "results": 2, "bots": 2,
        "bots_unfinished": 2, "bots_held": 0, "jobs_total": 20, "jobs_done": 1, "jobs_failed": 1,
        "jobs_cancelled": 0, "jobs_left": 18,
    }  # fmt: skip
    listed = alice("GET", "/api/v1/groups").json["groups"]
    assert [group["name"] for group in listed] == ["last", "scan"]
    bots = alice("GET", "/api/v1/bots?group=scan").json["bots"]
    assert [(bot["id"], bot["group"]) for bot in bots] == [(other, "scan"), (one, "scan")]
    assert alice("GET", f"/api/v1/bots/{one}").json["group"] == "scan"


def test_cancelling_a_group_ends_what_is_in_it_and_nothing_else(site: Site, alice: Person) -> None:
    bots = [submit(alice, group) for group in ("scan", "scan", "last", None)]
    finish(site, alice, bots[0], 0)
    assert alice("POST", "/api/v1/groups/scan/cancel").json["bots_unfinished"] == 0
    states = [alice("GET", f"/api/v1/bots/{bot}").json["state"] for bot in bots]
    assert states == ["cancelled", "cancelled", "running", "running"]
    assert places(lines(alice)) == [(1, bots[0], 0)]
    again = submit(alice, "scan")
    assert alice("GET", f"/api/v1/bots/{again}").json["state"] == "running"
    assert_in_order(site)


@pytest.mark.parametrize(
    ("method", "path"), [("GET", ""), ("GET", "/results"), ("POST", "/cancel"), ("PATCH", "")]
)
def test_anothers_group_does_not_exist_and_equal_names_are_two(
    alice: Person, bob: Person, operator: Person, method: str, path: str
) -> None:
    submit(alice, "scan")
    for query in ("", "?owner=alice"):
        answer = bob(method, f"/api/v1/groups/scan{path}{query}", json={})
        assert (answer.status_code, answer.json["detail"]) == (404, "there is no group 'scan'")
    submit(bob, "scan")
    assert bob(method, f"/api/v1/groups/scan{path}", json={}).status_code == 200
    assert alice("GET", "/api/v1/groups/scan").json["bots_unfinished"] == 1
    assert operator(method, f"/api/v1/groups/scan{path}?owner=alice", json={}).status_code == 200
    assert len(operator("GET", "/api/v1/groups").json["groups"]) == 2
    assert len(bob("GET", "/api/v1/groups").json["groups"]) == 1


def test_repeating_a_submission_puts_one_bot_into_the_group(alice: Person) -> None:
    body = {**submission(placeholders={"i": "int"}), "group": "scan"}
    first = alice("POST", "/api/v1/bots", json=body)
    assert alice("POST", "/api/v1/bots", json=body).json["id"] == first.json["id"]
    assert alice("GET", "/api/v1/groups/scan").json["bots"] == 1


@pytest.mark.parametrize("name", ["", "a b", "-x", "a/b", "x" * 65, "ä"])
def test_a_group_has_a_plain_name(alice: Person, name: str) -> None:
    answer = alice("POST", "/api/v1/bots", json={**submission(), "group": name})
    assert answer.status_code == 400
    assert "group" in answer.json["detail"]


def test_a_share_is_told_to_dispatch_and_bad_ones_are_refused(site: Site, alice: Person) -> None:
    bot = submit(alice, "scan")
    version = "SELECT policy_version FROM bot WHERE id = %s"
    before = site.conn.execute(version, [bot]).fetchone()
    assert alice("PATCH", "/api/v1/groups/scan", json={"share": 2.5}).json["share"] == 2.5
    assert site.conn.execute(version, [bot]).fetchone() != before
    for share in (0, -1, "2", 1e7):
        wrong = alice("PATCH", "/api/v1/groups/scan", json={"share": share})
        assert (wrong.status_code, "share" in wrong.json["detail"]) == (400, True)
    assert alice("PATCH", "/api/v1/groups/scan", json={}).json["share"] == 2.5
    assert alice("PATCH", "/api/v1/groups/scan", json={"share": None}).json["share"] is None


def test_as_long_as_a_group_is_in_use_none_of_its_bots_is_deleted_by_age(
    site: Site, alice: Person
) -> None:
    old, young = submit(alice, "scan"), submit(alice, "scan")
    finish(site, alice, old, 0)
    end = "UPDATE bot SET state = 'done', ended_at = now() - interval '9 days' WHERE id = %s"
    site.conn.execute(end, [old])
    assert retention.delete_kept_too_long(site.conn, days=7) == 0
    site.conn.execute(end, [young])
    assert retention.delete_kept_too_long(site.conn, days=7) == 2
    assert lines(alice) == []
    while retention.remove_rows(site.conn, timedelta(0)):
        pass
    assert site.conn.execute("SELECT FROM group_run").fetchone() is None
    finish(site, alice, later := submit(alice, "scan"), 7)
    assert places(lines(alice)) == [(2, later, 7)]


def test_news_of_a_bot_are_news_of_its_group(site: Site, alice: Person) -> None:
    bot = submit(alice, "scan")
    with psycopg.connect(site.settings.dsn_or_embedded, autocommit=True) as listener:
        listener.execute("LISTEN gridbot_news")
        finish(site, alice, bot, 0)
        site.conn.execute("UPDATE bot SET state = 'done', ended_at = now() WHERE id = %s", [bot])
        # One is for whoever plans pilots.
        told = [news.payload for news in listener.notifies(timeout=60, stop_after=5)]
    group = site.conn.execute("SELECT bot_group FROM bot WHERE id = %s", [bot]).fetchone()
    assert group is not None
    told.remove("0 false")
    assert told == [f"{bot} false", f"-{group[0]} false", f"{bot} true", f"-{group[0]} false"]


# --- the Python API


def test_a_session_follows_a_group_until_its_bots_have_ended(
    site: Site, alice: Person, session: Session
) -> None:
    group = session.group("scan")
    with pytest.raises(NotFound, match="there is no group 'scan'"):
        group.show()
    one = group.submit(["echo", "{x}"], items=[{"x": 0.5}])
    other = session.submit(["echo", "{i}"], items=["a"], group="scan")
    assert {bot.id for bot in group.bots()} == {one.id, other.id}
    found = group.results(follow=True)
    finish(site, alice, one.id, 0)
    first = next(found)
    assert (first.n, first.bot, first.seq, str(first.args["x"])) == (1, one.id, 0, "0.5")
    assert first.stdout == "0\n"
    finish(site, alice, other.id, 0)
    site.conn.execute("UPDATE bot SET state = 'done', ended_at = now()")
    assert [(result.n, result.bot) for result in found] == [(2, other.id)]
    assert [result.n for result in group.results(after=1)] == [2]
    assert group.wait(timeout=60)["bots_unfinished"] == 0
    assert [document["name"] for document in session.groups()] == ["scan"]


def test_a_group_whose_last_bots_are_held_is_not_waited_for(site: Site, session: Session) -> None:
    session.submit("true", group="scan")
    site.conn.execute("UPDATE bot SET held = 'because'")
    with pytest.raises(BotHeld, match="group scan"):
        list(session.group("scan").results(follow=True))
    assert session.group("scan").wait(timeout=60)["bots_held"] == 1


def test_a_wait_that_takes_too_long_says_what_is_done(session: Session) -> None:
    session.submit("true", group="scan")
    with pytest.raises(TimeoutError, match=r"group scan has 0 of 1 job finished after 0 s"):
        session.group("scan").wait(timeout=0)


def test_a_group_is_cancelled_and_shared_from_python(session: Session) -> None:
    bot = session.submit("true", group="scan")
    group = session.group("scan")
    assert group.set_share(3)["share"] == 3
    assert group.set_share(None)["share"] is None
    with pytest.raises((BadInput, Refused), match="share"):
        group.set_share(-1)
    assert group.cancel()["bots_unfinished"] == 0
    assert bot.show().state == "cancelled"
    assert bot.show().group == "scan"


# --- the command


@pytest.fixture
def run(url: str, alice: Person, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    environment = {"GRIDBOT_SERVER": url, "GRIDBOT_KEY": alice.token,
                   "XDG_CONFIG_HOME": str(tmp_path)}  # fmt: skip

    def call(*arguments: str) -> Result:
        return CliRunner(env=environment).invoke(gridbot, [*arguments])

    return call


def test_the_command_submits_into_groups_and_lists_them(run: Any, tmp_path: Path) -> None:
    assert "no groups; to begin one: gridbot submit --group NAME" in run("group", "list").stdout
    assert run("submit", "--group", "scan", "--", "true").exit_code == 0
    (tmp_path / "BOT.toml").write_text('command = ["true"]\ngroup = "scan"\n')
    assert run("submit", "BOT.toml").exit_code == 0
    assert json.loads(run("group", "list", "--json").stdout)["groups"][0]["bots"] == 2
    assert "scan" in run("groups").stdout
    shown = run("group", "show", "scan").stdout
    assert "group scan of alice: 2 BOTs, 2 unfinished; 2 jobs, 0 done, 0 failed" in shown
    assert shown.count("running") == 2
    assert len(json.loads(run("bot", "list", "--group", "scan", "--json").stdout)["bots"]) == 2
    assert "group      scan" in run("bot", "show", "1").stdout
    assert "share 2" in run("group", "set", "scan", "--share", "2").stdout
    assert "write a number such as 2, or none" in run("group", "set", "scan", "--share", "x").stderr
    assert "share" not in run("group", "set", "scan", "--share", "none").stdout
    assert "2 BOTs, 0 unfinished" in run("group", "cancel", "scan").stdout
    missing = run("group", "show", "scam")
    assert (missing.exit_code, missing.stderr) == (4, "gridbot: there is no group 'scam'\n")


def test_the_command_prints_results_of_a_group_and_goes_on_behind_a_number(
    site: Site, alice: Person, run: Any
) -> None:
    one, other = submit(alice, "scan"), submit(alice, "scan")
    finish(site, alice, one, 0)
    finish(site, alice, other, 4)
    assert run("group", "results", "scan").stdout.splitlines() == [
        f"1\t{one}\t0\ti=0\tdone\t0", f"2\t{other}\t4\ti=4\tdone\t4",
    ]  # fmt: skip
    (line,) = run("group", "results", "scan", "--after", "1", "--json").stdout.splitlines()
    assert (json.loads(line)["bot"], json.loads(line)["stdout"]) == (other, "4")


def test_waiting_for_a_group_tells_failures_apart(site: Site, alice: Person, run: Any) -> None:
    bot = make_bot(site.conn, alice.id, state="done", ended_at="now")
    made = submit(alice, "scan")
    site.conn.execute(
        "UPDATE bot SET bot_group = (SELECT bot_group FROM bot WHERE id = %s) WHERE id = %s",
        [made, bot],
    )
    alice("POST", f"/api/v1/bots/{made}/cancel")
    assert run("group", "wait", "scan").exit_code == 0
    make_failure(site.conn, ReplicaId(bot, 0, 1), site.client_of(alice).id, "exit_nonzero")
    failed = run("group", "wait", "scan")
    assert (failed.exit_code, failed.stderr) == (1, "gridbot: 1 of 11 jobs failed\n")
