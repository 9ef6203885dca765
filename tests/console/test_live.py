"""Pages that keep themselves up to date, and forms that change what they show."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

import pytest
import requests
from playwright.sync_api import expect
from tests.console.browser import Visitor
from tests.console.stage import Stage
from tests.console.test_entry import HTML, logged_in, token_in

from gridbot_server.console.shared import PollAnswer, SharedContents
from gridbot_server.http import sessions
from gridbot_server.signing.keys import token_hash
from gridbot_server.storage import db

Site = tuple[str, Stage]
MISTAKE = "JobRequirements = Host.Memory > ;"


@pytest.fixture
def scientist(guest: Visitor, own_site: Site) -> Iterator[Visitor]:
    guest.log_in(own_site[1].user_key)
    yield guest
    assert (guest.complaints, guest.elsewhere) == ([], [])


def api(site: Site, path: str, bot: int | None = None) -> dict[str, object]:
    key = {"Authorization": f"Bearer {site[1].user_key}"}
    address = f"{site[0]}/api/v1/bots/{bot or site[1].busy}{path}"
    found = requests.get(address, headers=key).json()
    assert isinstance(found, dict)
    return found


def test_a_pages_figures_follow_the_apis_without_a_reload(
    scientist: Visitor, own_site: Site, conn: db.Connection
) -> None:
    bot = own_site[1].busy
    page = scientist.open(f"/bots/{bot}")
    page.evaluate("window.untouched = true")
    conn.execute("UPDATE bot SET done = done + 5 WHERE id = %s", [bot])
    expect(page.locator("[data-part=figures] dd").first).to_have_text("45 of 60", timeout=30_000)
    told = api(own_site, "")
    assert told["jobs_done"] == 45
    assert str(told["progress"]).startswith("75 % done")
    assert page.locator("p.verdict").inner_text().startswith("75 % done")
    assert page.title().startswith("75 % done")
    assert page.evaluate("window.untouched") is True


def test_a_poll_costs_no_bytes_while_nothing_is_new(own_site: Site) -> None:
    url, stage = own_site
    session = logged_in(url, stage.user_key)
    address = f"{url}/bots/{stage.done}?live"
    first = session.get(address)
    again = session.get(address, headers={"If-None-Match": first.headers["ETag"]})
    assert (first.status_code, again.status_code, again.content) == (200, 304, b"")
    assert "<html" not in first.text


def test_a_poll_of_a_session_that_ended_gets_nothing(own_site: Site) -> None:
    url, stage = own_site
    session = logged_in(url, stage.user_key)
    address = f"{url}/bots/{stage.busy}"
    cookies = dict(session.cookies)
    token = token_in(session.get(address).text)
    assert session.get(f"{address}?live").status_code == 200
    session.post(f"{url}/logout", data={"form_token": token})
    after = requests.get(f"{address}?live", cookies=cookies, headers=HTML)
    assert after.status_code == 401


def test_forms_in_shared_pages_are_each_sessions_own(own_site: Site) -> None:
    url, stage = own_site
    pages = [logged_in(url, stage.user_key).get(f"{url}/bots/{stage.busy}").text for _ in range(2)]
    assert token_in(pages[0]) != token_in(pages[1])
    assert not any("form-token-" in page for page in pages)


def polled(
    shared: SharedContents, path: str, cookie: str = "cookie", *, may_wait: bool = True
) -> PollAnswer | None:
    """What the open page of a session gets that shows nothing yet."""
    return shared.poll(path, f"a=b; {sessions.COOKIE}={cookie}", "", may_wait=may_wait)


def test_many_viewers_of_a_page_cost_one_computation_a_second() -> None:
    now, made = [100.0], []
    shared = SharedContents(clock=lambda: now[0])

    def make() -> tuple[str, bytes]:
        made.append(now[0])
        return "title", b"content"

    for _ in range(10):
        now[0] += 0.2
        for _ in range(50):
            shared.get("/bots/7", "ada", 1.0, make)
    assert len(made) == 2
    shared.get("/bots/7", "bob", 1.0, make)
    assert len(made) == 3


def test_a_content_is_known_again_by_another_web_process() -> None:
    def etag(text: str) -> str:
        shared = SharedContents()  # each has a placeholder of its own for the form token
        html = f"{text}<input value={shared.placeholder}>".encode()
        return shared.get("/bots/7", "ada", 1.0, lambda: ("title", html)).etag

    assert etag("47 %") == etag("47 %") != etag("48 %")


def test_contents_are_bounded_in_bytes_and_none_is_kept_that_is_shown_no_more() -> None:
    now = [100.0]
    shared = SharedContents(clock=lambda: now[0], most_bytes=10_000)
    shared.remember("cookie", ["ada"])
    shared.get("/bots/1", "ada", 2.0, lambda: ("old", bytes(100)))
    for bot in range(2, 30):
        shared.get(f"/bots/{bot}", "ada", 60.0, lambda: ("title", bytes(900)))
        now[0] += 0.1
        kept = [polled(shared, f"/bots/{n}") for n in range(1, 30)]
        assert sum(len(found.html or b"") for found in kept if found) <= 10_000
        assert kept[bot - 1] is not None
    assert kept[0] is None


def test_polls_are_answered_from_memory_only_for_sessions_that_were_good_just_now() -> None:
    now = [100.0]
    shared = SharedContents(clock=lambda: now[0])
    shared.get("/bots/7", "ada", 60.0, lambda: ("title", b"content"))
    assert polled(shared, "/bots/7") is None
    shared.remember("cookie", ["everybody", "ada"])
    assert polled(shared, "/bots/7") is not None
    assert polled(shared, "/bots/8") is None
    shared.remember("other", ["bob"])
    assert polled(shared, "/bots/7", "other") is None
    now[0] += 6.0
    assert polled(shared, "/bots/7") is None


def test_whether_sessions_are_good_is_asked_for_all_viewers_together() -> None:
    now, asked, ended = [100.0], [], set[str]()

    def still_good(cookies: Collection[str]) -> Collection[str]:
        asked.append(now[0])
        return cookies - ended if isinstance(cookies, set) else ()

    shared = SharedContents(clock=lambda: now[0], still_good=still_good)
    cookies = [f"cookie-{n}" for n in range(500)]
    for cookie in cookies:
        shared.remember(cookie, ["ada"])
    for _ in range(10):
        shared.get("/bots/7", "ada", 4.0, lambda: ("title", b"content"))
        assert all(polled(shared, "/bots/7", cookie) for cookie in cookies)
        now[0] += 3.0
    assert len(asked) <= 6
    ended.add(cookies[0])
    now[0] += 6.0
    shared.get("/bots/7", "ada", 4.0, lambda: ("title", b"content"))
    assert polled(shared, "/bots/7", cookies[1]) is not None
    assert polled(shared, "/bots/7", cookies[0]) is None


def test_who_may_not_wait_does_not_ask_whether_sessions_are_good() -> None:
    now, asked = [100.0], []

    def still_good(cookies: Collection[str]) -> Collection[str]:
        asked.append(now[0])
        return cookies

    shared = SharedContents(clock=lambda: now[0], still_good=still_good)
    shared.remember("cookie", ["ada"])
    shared.get("/bots/7", "ada", 60.0, lambda: ("title", b"content"))
    assert polled(shared, "/bots/7", may_wait=False) is not None
    now[0] += 6.0
    assert polled(shared, "/bots/7", may_wait=False) is None
    assert not asked
    assert polled(shared, "/bots/7") is not None
    assert polled(shared, "/bots/7", may_wait=False) is not None
    assert len(asked) == 1


def test_polls_get_the_last_content_for_a_moment_while_another_is_made() -> None:
    now, polls = [100.0], []
    shared = SharedContents(clock=lambda: now[0])
    shared.remember("cookie", ["ada"])
    shared.get("/bots/7", "ada", 1.0, lambda: ("title", b"old"))
    now[0] += 1.2
    assert polled(shared, "/bots/7") is None

    def make() -> tuple[str, bytes]:
        polls.append(polled(shared, "/bots/7"))
        now[0] += 0.4
        polls.append(polled(shared, "/bots/7"))
        return "title", b"new"

    shared.get("/bots/7", "ada", 1.0, make)
    late, too_late = polls
    assert late is not None
    assert (late.html, too_late) == (b"old", None)
    after = polled(shared, "/bots/7")
    assert after is not None
    assert after.html == b"new"


def test_a_content_that_cannot_be_made_is_not_waited_for() -> None:
    now = [100.0]
    shared = SharedContents(clock=lambda: now[0])
    shared.remember("cookie", ["ada"])
    shared.get("/bots/7", "ada", 1.0, lambda: ("title", b"old"))
    now[0] += 1.2
    with pytest.raises(ZeroDivisionError):
        shared.get("/bots/7", "ada", 1.0, lambda: (str(1 / 0), b""))
    assert polled(shared, "/bots/7") is None


def test_a_session_is_good_until_it_its_key_or_its_time_ends(
    own_site: Site, conn: db.Connection
) -> None:
    url, stage = own_site
    cookies = [logged_in(url, key).cookies["gridbot_session"] for key in (stage.user_key,) * 3]
    assert sessions.still_good(conn, [*cookies, "another", ""]) == set(cookies)
    conn.execute(
        "UPDATE console_session SET expires_at = now() WHERE hash = %s", [token_hash(cookies[0])]
    )
    assert sessions.still_good(conn, cookies) == set(cookies[1:])
    conn.execute("UPDATE token SET revoked_at = now()")
    assert sessions.still_good(conn, cookies) == set()


def test_a_hidden_page_asks_for_nothing(scientist: Visitor, own_site: Site) -> None:
    page = scientist.open(f"/bots/{own_site[1].busy}")
    page.evaluate("Object.defineProperty(document, 'hidden', {get: () => window.away ?? true})")
    with page.expect_request("**?live", timeout=20_000) as asked:
        page.wait_for_timeout(4000)
        polls = page.evaluate(
            "performance.getEntriesByType('resource').filter((e) => /live$/.test(e.name)).length"
        )
        page.evaluate("window.away = false; document.dispatchEvent(new Event('visibilitychange'))")
    assert (polls, asked.value.method) == (0, "GET")


def _prints(conn: db.Connection, content: str) -> None:
    """What job 46 prints next arrives."""
    conn.execute(
        "UPDATE shown_output SET content = content || %s WHERE seq = 46 AND stream = 'stderr'",
        [content.encode()],
    )


def test_what_a_job_prints_comes_to_its_page_without_a_reload(
    scientist: Visitor, own_site: Site, conn: db.Connection
) -> None:
    page = scientist.open(f"/bots/{own_site[1].busy}/jobs/46")
    page.evaluate("window.untouched = true")
    log = page.locator("[data-part=live] pre")
    for number in range(3):
        _prints(conn, f"step {number}\n")
        expect(log).to_contain_text(f"step {number}", timeout=60_000)
    assert log.inner_text().endswith("step 0\nstep 1\nstep 2\n")
    assert page.evaluate("window.untouched") is True


def test_a_log_that_grows_stays_at_its_end_unless_somebody_reads_further_up(
    scientist: Visitor, own_site: Site, conn: db.Connection
) -> None:
    page = scientist.open(f"/bots/{own_site[1].busy}/jobs/46")
    log = page.locator("[data-part=live] pre")
    left = "e => e.scrollHeight - e.clientHeight - e.scrollTop"
    assert log.evaluate(left) <= 1
    _prints(conn, "one more\n" * 50)
    expect(log).to_contain_text("one more", timeout=60_000)
    assert log.evaluate(left) <= 1
    log.evaluate("e => { e.scrollTop = 40; }")
    _prints(conn, "the last\n" * 50)
    expect(log).to_contain_text("the last", timeout=60_000)
    assert log.evaluate("e => e.scrollTop") == 40


def test_a_page_of_a_job_has_its_client_send_and_once_hidden_no_more(
    scientist: Visitor, own_site: Site, conn: db.Connection
) -> None:
    looked = "SELECT max(shown_until) FROM shown_output WHERE seq = 46"
    page = scientist.open(f"/bots/{own_site[1].busy}/jobs/46")
    page.evaluate("""() => {
        const add = document.addEventListener.bind(document);
        document.addEventListener = (...given) => {
            document.documentElement.dataset.waits = "yes";
            add(...given);
        };
        Object.defineProperty(document, 'hidden', {get: () => window.away ?? true});
    }""")
    page.locator("html[data-waits]").wait_for(state="attached")  # no poll is out
    before = conn.execute(looked).fetchone()
    page.wait_for_timeout(3000)
    assert conn.execute(looked).fetchone() == before
    with page.expect_response("**?live"):
        page.evaluate("window.away = false; document.dispatchEvent(new Event('visibilitychange'))")
    assert before and conn.execute(looked).fetchone() != before


def test_another_owner_follows_nothing_of_a_job(own_site: Site, conn: db.Connection) -> None:
    url, stage = own_site
    conn.execute(
        "UPDATE lease SET bot = %s, seq = 0 WHERE bot = %s AND seq = 46", [stage.others, stage.busy]
    )
    before = conn.execute("SELECT count(*) FROM shown_output").fetchone()
    found = logged_in(url, stage.user_key).get(f"{url}/bots/{stage.others}/jobs/0?live")
    assert found.status_code == 404
    assert conn.execute("SELECT count(*) FROM shown_output").fetchone() == before


def test_what_if_equals_the_explanation_and_applying_changes_the_version(
    scientist: Visitor, own_site: Site
) -> None:
    bot = own_site[1].busy
    page = scientist.open(f"/bots/{bot}/policy")
    before = api(own_site, "/explanation")["hosts_matching"]
    page.fill("#policy", "Rank = Host.Memory;")
    page.click("text=What if?")
    told = page.locator(".compare span").inner_text()
    assert api(own_site, "")["policy"] != "Rank = Host.Memory;"
    page.click("button[value=apply]")
    page.wait_for_url(f"**/bots/{bot}/policy")
    after = api(own_site, "/explanation")["hosts_matching"]
    assert told == f"{before} → {after} hosts"
    assert api(own_site, "")["policy"] == "Rank = Host.Memory;"
    assert page.locator(".chip").first.inner_text() == "version 3"
    assert "Version 3" in page.locator("summary").first.inner_text()


def test_the_end_is_predicted_from_a_bots_page(scientist: Visitor, own_site: Site) -> None:
    page = scientist.open(f"/bots/{own_site[1].busy}")
    page.click("text=Predict the end")
    section = page.locator("section[aria-labelledby=end]")
    section.wait_for()
    said = section.inner_text()
    assert "8 simulations of 17 jobs left" in said
    assert "Time left" in said and "With the policy below" not in said


def test_a_tried_policys_end_is_predicted_beside_its_hosts_and_nothing_is_changed(
    scientist: Visitor, own_site: Site
) -> None:
    page = scientist.open(f"/bots/{own_site[1].busy}/policy")
    before = api(own_site, "")["policy"]
    page.fill("#policy", "Rank = Host.Memory;")
    page.click("button[value=predict]")
    section = page.locator("section[aria-labelledby=end]")
    section.wait_for()
    assert "With the policy below" in section.inner_text()
    assert section.locator(".why").inner_text().startswith("Would end in ")
    assert "hosts" in page.locator(".compare span").inner_text()
    assert page.input_value("#policy") == "Rank = Host.Memory;"
    assert api(own_site, "")["policy"] == before


def test_a_prediction_that_cannot_be_made_says_why_on_the_page(
    scientist: Visitor, own_site: Site, conn: db.Connection
) -> None:
    page = scientist.open(f"/bots/{own_site[1].busy}/policy")
    conn.execute("UPDATE bot SET growing = true")
    page.click("button[value=predict]")
    told = page.locator("[role=alert]").inner_text()
    assert "cannot be predicted: it grows; it ends once it is closed" in told


def test_an_error_in_a_policy_is_shown_in_its_place_and_nothing_is_lost(
    scientist: Visitor, own_site: Site
) -> None:
    page = scientist.open(f"/bots/{own_site[1].busy}/policy")
    before = api(own_site, "")["policy"]
    page.fill("#policy", f"Rank = 1;\n{MISTAKE}")
    page.click("button[value=apply]")
    line = page.locator(".policy li.error")
    assert line.inner_text().startswith(MISTAKE.partition(";")[0].strip())
    assert line.locator(".says").inner_text().startswith("error: ")
    assert page.input_value("#policy") == f"Rank = 1;\n{MISTAKE}"
    assert api(own_site, "")["policy"] == before


def test_a_policy_that_was_changed_meanwhile_is_not_overwritten(
    scientist: Visitor, own_site: Site, conn: db.Connection
) -> None:
    page = scientist.open(f"/bots/{own_site[1].busy}/policy")
    conn.execute("UPDATE bot SET policy = 'Rank = 9;', policy_version = policy_version + 1")
    page.fill("#policy", "Rank = 2;")
    page.click("button[value=apply]")
    assert "changed meanwhile" in page.locator("[role=alert]").inner_text()
    assert api(own_site, "")["policy"] == "Rank = 9;"


def test_a_bot_is_held_resumed_retried_renamed_and_cancelled_on_its_page(
    scientist: Visitor, own_site: Site
) -> None:
    page = scientist.open(f"/bots/{own_site[1].busy}")
    page.click("text=Hold")
    assert page.locator(".chip.held").inner_text() == "held"
    page.click("text=Resume")
    assert api(own_site, "")["state"] == "running"
    page.click("text=Retry failed jobs")
    assert api(own_site, "")["jobs_failed"] == 0
    page.fill("#name", "another name")
    page.click("text=Rename")
    assert page.locator("h1").inner_text() == "another name"
    page.goto(f"{own_site[0]}/bots/{own_site[1].done}")
    assert page.locator("#priority").count() == 0
    page.goto(f"{own_site[0]}/bots/{own_site[1].held}")
    page.fill("#priority", "7")
    page.click("form:has(#priority) button")
    assert page.input_value("#priority") == "7"
    assert str(api(own_site, "", own_site[1].held)["policy"]).startswith("Rank = 7;")
    page.goto(f"{own_site[0]}/bots/{own_site[1].busy}")
    assert "has a Rank of its own" in page.inner_text("[data-part=about]")
    page.click("summary:has-text('Cancel')")
    page.check("[name=confirm]")
    page.click("text=Cancel this BOT")
    assert page.locator(".chip.cancelled").inner_text() == "cancelled"


def test_a_volunteer_sees_what_each_machine_does_and_changes_it(
    scientist: Visitor, own_site: Site, conn: db.Connection
) -> None:
    page = scientist.open("/machines")
    row = page.locator("tr", has_text="attic")
    assert "Silent for" in row.inner_text()
    assert "Runs 3 replicas" in page.locator("tr", has_text="node17").inner_text()
    row.locator("summary").click()
    row.locator("text=Leave").click()
    page.wait_for_url("**/machines")
    assert "Has left" in page.locator("tr", has_text="attic").inner_text()
    page.fill("#preference", "hours=22:00-06:00")
    page.click("form:has(#preference) button")
    assert "22:00-06:00" in page.locator("[data-part=preferences] dl").inner_text()
    page.fill("#share", "12.5")
    page.select_option("#atvenue", "work")
    page.click("form:has(#share) button")
    assert "12.5" in page.locator("[data-part=preferences] dl").last.inner_text()
    page.fill("#teamname", "linkers")
    page.click("text=Found")
    assert "linkers" in page.locator("[data-part=team] strong").inner_text()


def test_what_is_changed_on_a_page_is_noted_and_what_is_only_tried_is_not(
    own_site: Site, conn: db.Connection
) -> None:
    url, stage = own_site
    session = logged_in(url, stage.user_key)
    form = {"form_token": token_in(session.get(f"{url}/").text), "policy": "Rank = 1;"}
    page = f"{url}/bots/{stage.busy}"
    assert session.post(f"{page}/policy", data={**form, "do": "try"}).status_code == 200
    session.post(f"{page}/hold", data=form)
    session.post(f"{page}/name", data={**form, "name": "another"})
    found = conn.execute("SELECT action, given FROM audit ORDER BY id").fetchall()
    assert found == [
        ("hold", {"policy": "Rank = 1;"}),
        ("rename", {"policy": "Rank = 1;", "name": "another"}),
    ]
    session.post(f"{url}/logout", data=form)
    assert conn.execute("SELECT count(*) FROM audit").fetchone() == (2,)


def test_a_grid_is_drained_and_resumed_on_the_overlays_page(
    own_site: Site, conn: db.Connection
) -> None:
    url, stage = own_site
    session = logged_in(url, stage.operator_key)

    def order(grid: str, drained: str, confirm: str = "yes") -> requests.Response:
        form = {
            "form_token": token_in(session.get(f"{url}/overlay").text),
            "constructor": "tag", "grid": grid, "drained": drained, "confirm": confirm,
        }  # fmt: skip
        return session.post(f"{url}/overlay/order", data=form)

    assert order("cluster", "now", confirm="").status_code == 400
    assert conn.execute("SELECT count(*) FROM grid_order").fetchone() == (0,)
    page = order("cluster", "now").text
    assert "drained; what runs may end" in page  # the island's
    assert re.search(r"ordered .* ago: drained\. Its constructor has not heard", page)
    conn.execute(
        "UPDATE told_grids SET heard = (SELECT max(number) FROM grid_order),"
        """ drained = '{"cluster": "now", "island": "finish"}'"""
    )
    assert order("island", "").text.count("has not heard") == 1
    assert order("cluster", "soon").status_code == 400
    assert order("sea", "now").status_code == 404
    other = logged_in(url, stage.user_key)
    form = {"form_token": token_in(other.get(f"{url}/").text), "constructor": "tag"}
    assert other.post(f"{url}/overlay/order", data=form).status_code == 403
    found = conn.execute("SELECT grid, drained FROM grid_order ORDER BY grid").fetchall()
    assert found == [("cluster", "now"), ("island", "")]
