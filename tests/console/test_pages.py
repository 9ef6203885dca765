"""What every page keeps, on a desk and a phone, in the light and in the dark, with and without
scripts."""

from __future__ import annotations

import importlib.resources
import json
from collections.abc import Iterator
from pathlib import Path

import axe_playwright_python
import pytest
from playwright.sync_api import Browser, Page, expect
from tests.console.browser import DESK, PHONE, Visitor
from tests.console.conftest import HOSTILE
from tests.console.pages import pages
from tests.console.stage import Stage

AXE = Path(str(importlib.resources.files(axe_playwright_python))) / "axe.min.js"
Site = tuple[str, Stage]
NAMES = list(pages(Stage("", "", 0, 0, 0, 0)))
MOST_BYTES = 150_000


@pytest.fixture(scope="module", params=["light", "dark"])
def looker(request: pytest.FixtureRequest, browser: Browser, site: Site) -> Iterator[Visitor]:
    """An operator's window in each theme; axe is a guest that the pages' own policy keeps out."""
    context = browser.new_context(viewport=DESK, color_scheme=request.param, bypass_csp=True)
    found = Visitor(site[0], context)
    found.log_in(site[1].operator_key)
    yield found
    context.close()


def audit(page: Page) -> None:
    """Hold a page against axe-core's rules; most of them must have had something to look at."""
    page.add_script_tag(path=AXE)
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    told = [
        (item["id"], [node["html"][:120] for node in item["nodes"]]) for item in found["violations"]
    ]
    assert told == []
    assert len(found["passes"]) > 15


@pytest.mark.parametrize("name", NAMES)
def test_a_page_is_accessible_in_both_themes(looker: Visitor, site: Site, name: str) -> None:
    looker.page.set_viewport_size(DESK)
    audit(looker.open(pages(site[1])[name]))


@pytest.mark.parametrize("path", ["/login", "/login/forgotten"])
def test_the_login_is_accessible_in_both_themes(looker: Visitor, path: str) -> None:
    audit(looker.open(path))


def test_a_prediction_is_accessible_and_fits_a_phone(looker: Visitor, site: Site) -> None:
    looker.page.set_viewport_size(DESK)
    page = looker.open(f"/bots/{site[1].busy}/policy")
    page.fill("#policy", "Rank = Host.Memory;")
    page.click("button[value=predict]")
    page.locator("section[aria-labelledby=end]").wait_for()
    page.locator("summary", has_text="What it rests on").click()
    audit(page)
    page.set_viewport_size(PHONE)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


@pytest.mark.parametrize("name", NAMES)
def test_nothing_overflows_or_overlaps_on_a_phone(looker: Visitor, site: Site, name: str) -> None:
    looker.page.set_viewport_size(PHONE)
    page = looker.open(pages(site[1])[name])
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    overlapping = page.evaluate("""() => {
        const boxes = [...document.querySelectorAll("main > *, header.bar")]
            .map((e) => e.getBoundingClientRect()).filter((r) => r.height);
        return boxes.slice(1).filter((r, n) => r.top < boxes[n].bottom - 1).length;
    }""")
    assert overlapping == 0


@pytest.fixture(scope="module")
def plain(browser: Browser, site: Site) -> Iterator[Visitor]:
    """A window in which no script runs."""
    context = browser.new_context(viewport=DESK, java_script_enabled=False)
    found = Visitor(site[0], context)
    found.log_in(site[1].operator_key)
    yield found
    context.close()


def test_all_figures_are_there_without_scripts(plain: Visitor, site: Site) -> None:
    text = plain.open(f"/bots/{site[1].busy}").locator("main").inner_text()
    for figure in ("67 % done, 3 failed", "7 in progress", "2 at silent hosts", "Job 46"):
        assert figure in text
    assert "theta is negative" in plain.open(f"/bots/{site[1].busy}/jobs/41").inner_text("main")


def test_live_output_is_read_without_scripts_by_a_link(plain: Visitor, site: Site) -> None:
    page = plain.open(f"/bots/{site[1].busy}/jobs/46")
    page.click("text=Show what has come since")
    text = page.locator("[data-part=live]").inner_text()
    assert "step 1 of 9" + HOSTILE in text
    assert "70\N{NARROW NO-BREAK SPACE}009 bytes before this are not shown" in text
    assert "cut line" not in text and "31m" not in text and "\ufffd" in text


def test_the_end_is_predicted_without_scripts(plain: Visitor, site: Site) -> None:
    page = plain.open(f"/bots/{site[1].busy}")
    page.click("text=Predict the end")
    assert "Likely end" in page.locator("main").inner_text()


def test_an_operator_sees_backup_budgets_and_failures_by_grid(plain: Visitor) -> None:
    text = plain.open("/operations").locator("main").inner_text()
    assert "/backups/monday.tar" in text
    assert "Replicas by grid" in text
    text = plain.open("/overlay").locator("[data-part=budgets]").inner_text()
    assert all(figure in text for figure in ("1\N{NARROW NO-BREAK SPACE}20", "41.2", "796"))


def test_hostile_texts_stay_texts_and_nothing_is_asked_of_others(
    visitor: Visitor, site: Site
) -> None:
    visitor.log_in(site[1].operator_key)
    for path in pages(site[1]).values():
        page = visitor.open(path)
        page.wait_for_load_state("networkidle")
        assert page.title() != "owned"
        assert page.locator("main script, main [onerror]").count() == 0, path


def test_hostile_texts_are_shown_as_they_are(visitor: Visitor, site: Site) -> None:
    visitor.log_in(site[1].user_key)
    page = visitor.open(f"/bots/{site[1].busy}")
    assert page.locator("h1").inner_text() == f"linkage-scan{HOSTILE}"
    assert f"attic{HOSTILE}"[:30] in page.locator("#running + .wide").inner_text()
    page = visitor.open(f"/bots/{site[1].busy}/jobs/41")
    assert f"ValueError: theta is negative{HOSTILE}" in page.locator("pre.log").first.inner_text()


def test_a_failure_opens_the_log_of_one_of_its_group(visitor: Visitor, site: Site) -> None:
    visitor.log_in(site[1].user_key)
    page = visitor.open(f"/bots/{site[1].busy}")
    row = page.locator("tr", has_text="theta is negative")
    assert row.locator("td").first.inner_text() == "3"
    row.locator("a").click()
    page.wait_for_url("**/jobs/40#replica-0")
    assert "theta is negative" in page.locator("#replica-0 pre").inner_text()


def test_outputs_are_shown_only_as_pictures_and_texts(visitor: Visitor, site: Site) -> None:
    visitor.log_in(site[1].user_key)
    page = visitor.open(f"/bots/{site[1].busy}/jobs/3")
    picture = page.locator(".outputs img")
    picture.scroll_into_view_if_needed()
    expect(picture).to_have_js_property("naturalWidth", 1)
    address = picture.get_attribute("src")
    assert address is not None
    answer = page.request.get(visitor.url + address)
    assert answer.headers["content-type"] == "image/png"
    assert "sandbox" in answer.headers["content-security-policy"]
    html = page.locator("a", has_text=".html").get_attribute("href")
    assert html is not None
    answer = page.request.get(visitor.url + html)
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"].startswith("attachment")
    assert page.request.get(visitor.url + html.replace("outputs", "pictures")).status == 404


def test_a_page_is_light(visitor: Visitor, site: Site) -> None:
    visitor.log_in(site[1].user_key)
    visitor.page.wait_for_load_state("networkidle")
    sizes: dict[str, int] = {}
    visitor.page.on("response", lambda answer: sizes.update({answer.url: len(answer.body())}))
    visitor.open(f"/bots/{site[1].busy}")
    visitor.page.wait_for_load_state("networkidle")
    assert len(sizes) >= 5
    assert sum(sizes.values()) <= MOST_BYTES


def test_the_keyboard_alone_reaches_what_a_page_offers(visitor: Visitor, site: Site) -> None:
    page = visitor.open("/login")
    page.keyboard.type(site[1].user_key)  # its field has the focus
    page.keyboard.press("Enter")
    page.wait_for_selector("nav")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert (page.evaluate("document.activeElement.tagName"), outline) == ("A", "solid")
    page.keyboard.press("Enter")
    page.wait_for_url("**/bots/*")


def test_vendored_files_are_those_that_their_record_names() -> None:
    import hashlib

    folder = importlib.resources.files("gridbot_server.console")
    record = json.loads((folder / "licences" / "vendored.json").read_text())
    for name, said in record["files"].items():
        content = (folder / "static" / name).read_bytes()
        assert hashlib.sha256(content).hexdigest() == said["sha256"]
    assert "MIT" in (folder / "licences" / "uplot.txt").read_text()
