"""One Chromium for all tests, and sites whose pages it looks at."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from playwright.sync_api import Browser
from psycopg import sql
from psycopg.conninfo import make_conninfo
from tests.console.browser import CHROMIUM, DESK, Visitor, chromium
from tests.console.site import served
from tests.console.stage import Stage

# What strangers put wherever they may write: a script, an event handler, and half of a tag.
HOSTILE = '"><script>document.title="owned"</script><img src=x onerror=alert(1)>'


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if not Path(CHROMIUM).exists():
        if "CI" in os.environ:
            raise AssertionError(f"there is no {CHROMIUM}")
        pytest.skip("needs a browser: apt-get install chromium fonts-dejavu-core")
    with chromium() as running:
        yield running


@pytest.fixture(scope="session")
def site(
    postgres: str, template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Stage]]:
    """A site whose names, arguments and logs are hostile; tests leave it as it is."""
    name = f"gridbot_console_{os.getpid()}"
    with psycopg.connect(postgres, autocommit=True) as admin:
        admin.execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(
                sql.Identifier(name), sql.Identifier(template)
            )
        )
        data = tmp_path_factory.mktemp("console")
        with served(make_conninfo(postgres, dbname=name), data, HOSTILE) as found:
            yield found
        admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture
def own_site(dsn: str, tmp_path: Path) -> Iterator[tuple[str, Stage]]:
    """A site that a test may change."""
    with served(dsn, tmp_path) as found:
        yield found


@pytest.fixture
def visitor(browser: Browser, site: tuple[str, Stage]) -> Iterator[Visitor]:
    """A browser at the site, which must have nothing to complain about in the end."""
    context = browser.new_context(viewport=DESK)
    found = Visitor(site[0], context)
    yield found
    context.close()
    assert (found.complaints, found.elsewhere) == ([], [])


@pytest.fixture
def guest(browser: Browser, own_site: tuple[str, Stage]) -> Iterator[Visitor]:
    """A browser at the site that a test may change."""
    context = browser.new_context(viewport=DESK)
    yield Visitor(own_site[0], context)
    context.close()
