"""The page of a workflow's run: how far it is, what failed and runs and waits, its graph."""

from __future__ import annotations

import re

import requests
from playwright.sync_api import expect
from tests.console.browser import Visitor
from tests.console.conftest import HOSTILE
from tests.console.stage import Stage
from tests.console.test_entry import logged_in

from gridbot_server.storage import db

Site = tuple[str, Stage]


def section(page: requests.Response, part: str) -> str:
    """The source of a part of a page."""
    return page.text.partition(f'data-part="{part}"')[2].partition("</section>")[0]


def test_home_lists_runs_with_what_failed_and_leads_to_them(visitor: Visitor, site: Site) -> None:
    visitor.log_in(site[1].user_key)
    page = visitor.open("/")
    row = page.locator("[data-part=workflows] tr", has_text="linkage.dag")
    assert "15 min" in row.inner_text().replace("\N{NARROW NO-BREAK SPACE}", " ")
    row.locator("a").click()
    page.wait_for_url(f"**/workflows/{site[1].workflow}")
    assert page.locator("h1").inner_text() == f"DAG linkage.dag{HOSTILE}"
    verdict = page.locator("p.verdict").inner_text()
    assert verdict == "25 % of 4 nodes done, 1 failed, about 15 min left"


def test_a_failed_node_leads_to_its_log_and_a_running_one_to_its_job(
    visitor: Visitor, site: Site
) -> None:
    visitor.log_in(site[1].user_key)
    page = visitor.open(f"/workflows/{site[1].workflow}")
    row = page.locator("[data-part=failed] tr", has_text="fit-left")
    assert f"Job failed with status 3{HOSTILE}" in row.inner_text()
    row.locator("a").click()
    assert "theta is negative" in page.locator("#replica-0 pre").inner_text()
    page = visitor.open(f"/workflows/{site[1].workflow}")
    page.locator("[data-part=running] tr", has_text="fit-right").locator("a").click()
    page.wait_for_url(f"**/bots/{site[1].busy}/jobs/46")


def test_a_graph_is_drawn_in_layers_without_scripts_and_says_what_nodes_wait_for(
    site: Site,
) -> None:
    page = logged_in(site[0], site[1].user_key).get(f"{site[0]}/workflows/{site[1].workflow}")
    graph = section(page, "graph")
    assert (graph.count("<rect"), graph.count("<path"), "<script" in graph) == (4, 4, False)
    assert "waits for fit-left" in section(page, "waiting")


def test_of_a_large_run_layers_are_summed_and_what_is_left_out_is_said(site: Site) -> None:
    page = logged_in(site[0], site[1].user_key).get(f"{site[0]}/workflows/{site[1].large}")
    text = page.text.replace("\N{NARROW NO-BREAK SPACE}", " ")
    assert "200 of 10 000 nodes: those that failed or run, then others" in text
    assert section(page, "graph").count("<tr>") == 1 + 3
    assert re.search(r"Not heard of for \d+ min", text)
    assert len(page.content) < 150_000


def test_a_run_that_goes_on_is_shown_without_a_reload(
    guest: Visitor, own_site: Site, conn: db.Connection
) -> None:
    guest.log_in(own_site[1].user_key)
    page = guest.open(f"/workflows/{own_site[1].workflow}")
    page.evaluate("window.untouched = true")
    conn.execute(
        "UPDATE workflow SET state = 'done', done = 4, waiting = 0, running = 0, failed = 0"
        " WHERE bot_group = %s",
        [own_site[1].workflow],
    )
    expect(page.locator("p.verdict")).to_have_text("Done: 4 nodes in 5.0 min", timeout=30_000)
    assert page.evaluate("window.untouched") is True


def test_the_run_of_another_does_not_exist(own_site: Site, conn: db.Connection) -> None:
    conn.execute("UPDATE bot_group SET owner = (SELECT id FROM owner WHERE name = 'root')")
    session = logged_in(own_site[0], own_site[1].user_key)
    assert session.get(f"{own_site[0]}/workflows/{own_site[1].workflow}").status_code == 404
    assert "linkage.dag" not in session.get(f"{own_site[0]}/").text
    operator = logged_in(own_site[0], own_site[1].operator_key)
    assert operator.get(f"{own_site[0]}/workflows/{own_site[1].workflow}").status_code == 200
