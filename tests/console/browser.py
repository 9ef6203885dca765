"""Chromium for tests, and a site whose pages it looks at."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from playwright.sync_api import Browser, BrowserContext, Page, ViewportSize, sync_playwright

CHROMIUM = "/usr/bin/chromium"
_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
]
DESK: ViewportSize = {"width": 1280, "height": 900}
PHONE: ViewportSize = {"width": 390, "height": 844}


@contextmanager
def chromium() -> Iterator[Browser]:
    """Debian's Chromium."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=_FLAGS)
        yield browser
        browser.close()


@dataclass
class Visitor:
    """Somebody's browser window, and what it complained about."""

    url: str
    context: BrowserContext
    page: Page = field(init=False)
    complaints: list[str] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)
    bytes: int = 0

    def __post_init__(self) -> None:
        self.page = self.context.new_page()
        # ms.  On a busy machine a prediction takes half a minute.
        self.page.set_default_timeout(120_000)
        self.page.on("console", lambda said: self.complaints.append(f"{said.type}: {said.text}"))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda asked: self._note(asked.url))

    def _note(self, url: str) -> None:
        if not url.startswith((self.url, "data:")):
            self.elsewhere.append(url)

    def open(self, path: str) -> Page:
        """Open a page of the site."""
        self.page.goto(self.url + path)
        return self.page

    def log_in(self, key: str, path: str = "/") -> Page:
        """Log in with a key, on the way to a page."""
        page = self.open(path)
        page.fill("#key", key)
        page.click("form:has(#key) button")
        page.wait_for_load_state()
        return page
