"""`GET /bots/ID/history` and `/history`."""

import time

from tests.factories import make_bot
from tests.http.conftest import Person, Site

from gridbot_server.cycles import retention
from gridbot_server.history import sums
from gridbot_server.storage.counters import Counters


def happen(site: Site, bot: int, **grids: dict[str, int]) -> None:
    """Let this have happened to a BOT just now."""
    counters = Counters()
    for grid, what in grids.items():
        for name, value in what.items():
            counters.note(bot, "" if grid == "here" else grid, name, value)  # type: ignore[arg-type]
    counters.write(site.conn, "test")
    sums.collect(site.conn)


def test_a_bot_has_curves_by_grid_and_jobs_left(site: Site, alice: Person) -> None:
    bot = make_bot(site.conn, alice.id, jobs=10, done=4, failed=1)
    happen(site, bot, here={"sent": 3, "done": 1, "failed": 1}, ice={"sent": 5, "done": 3})
    found = alice("GET", f"/api/v1/bots/{bot}/history").json
    assert (found["id"], found["name"], found["step_seconds"]) == (bot, "scan", 60)
    assert found["times"][-1] <= time.time() < found["times"][-1] + 120
    here, ice = found["grids"]
    assert (here["grid"], ice["grid"]) == (None, "ice")
    assert (sum(here["sent"]), sum(ice["sent"]), sum(ice["done"])) == (3, 5, 3)
    assert found["left"][-1] == 5
    assert {len(values) for values in (found["left"], ice["done"], here["cpu_seconds"])} == {
        len(found["times"])
    }


def test_a_deleted_bots_history_is_still_its_owners(
    site: Site, alice: Person, bob: Person, operator: Person
) -> None:
    bot = make_bot(site.conn, alice.id, jobs=2, done=2, state="done", ended_at="now")
    happen(site, bot, here={"done": 2})
    site.conn.execute(retention.SQL["delete"], {"bots": [bot]})
    path = f"/api/v1/bots/{bot}/history"
    assert alice("GET", f"/api/v1/bots/{bot}").status_code == 404
    assert sum(alice("GET", path).json["grids"][0]["done"]) == 2
    assert operator("GET", path).status_code == 200
    assert bob("GET", path).status_code == 404


def test_wrong_wishes_are_refused(site: Site, alice: Person) -> None:
    path = f"/api/v1/bots/{make_bot(site.conn, alice.id)}/history"
    for query, why in {
        "step=61": "step: expected one of 60, 300",
        "begin=5&end=5": "end: expected a time after begin",
        "begin=0&step=60": "kept for 7 days",
        "begin=x": "begin: expected a whole number",
    }.items():
        refused = alice("GET", f"{path}?{query}")
        assert refused.status_code == 400
        assert why in refused.json["detail"]


def test_the_servers_history_is_for_operators(site: Site, alice: Person, operator: Person) -> None:
    bots = [make_bot(site.conn, alice.id) for _ in range(2)]
    for bot in bots:
        happen(site, bot, ice={"done": 2})
    sums.run_once(site.conn)
    found = operator("GET", "/api/v1/history?step=60&begin=" + str(int(time.time()) - 600)).json
    (ice,) = (item for item in found["grids"] if item["grid"] == "ice")
    assert sum(ice["done"]) == 4
    figures = {(item["name"], item["label"]): item["values"] for item in found["figures"]}
    assert {("jobs_unsent", None), ("lag_seconds", "transition")} <= figures.keys()
    assert 2.0 in figures["jobs_unsent", None]
    assert alice("GET", "/api/v1/history").status_code == 403


def test_a_hosts_sessions_are_for_its_owner(
    site: Site, alice: Person, bob: Person, operator: Person
) -> None:
    client = site.client_of(alice)
    site.conn.execute("UPDATE client SET session_at = now()")
    (host,) = site.conn.execute("SELECT host FROM client").fetchone() or (0,)
    path = f"/api/v1/hosts/{host}/sessions"
    (found,) = alice("GET", path).json["sessions"]
    assert (found["client"], found["ended_at"], found["why"]) == (client.id, None, None)
    assert operator("GET", path).json["sessions"] == [found]
    assert bob("GET", path).status_code == 404
