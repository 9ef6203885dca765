"""Claims about long requests of people who have no account here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from queue import SimpleQueue

import pytest
from tests.http.boinc_site import FIRST, Site, opened

from gridbot_server.api.boinc.session import SESSION
from gridbot_server.boinc.protocol.peek import UNCHECKED_BYTES
from gridbot_server.boinc.session.session import PendingRequest, SchedulerSession
from gridbot_server.settings import Settings
from gridbot_server.storage import db

NO_KEY, NO_END = "Invalid or missing account key", "the text ends before"


@pytest.fixture
def site(settings: Settings, conn: db.Connection) -> Iterator[Site]:
    yield from opened(settings, conn)


def unreadable(key: str, size: int) -> bytes:
    """A request of so many bytes that nobody can read: it does not end."""
    return f"<scheduler_request>\n<authenticator>{key}</authenticator>\n".ljust(size, "x").encode()


def in_the_session(site: Site, *bodies: bytes) -> list[str]:
    """What is answered to requests that a web process hands to its session together."""
    site.ask()  # the first one makes the session
    session = site.app.extensions[SESSION]
    assert isinstance(session, SchedulerSession)
    told: SimpleQueue[PendingRequest] = SimpleQueue()
    for body in bodies:
        session.begin(body, told.put)
    answers = {item.body: item.text for item in (told.get(timeout=60) for _ in bodies)}
    return [answers[body] for body in bodies]


def in_a_thread(site: Site, *bodies: bytes) -> list[str]:
    return [site.post("scheduler", body).text for body in bodies]


Asked = Callable[..., list[str]]


@pytest.mark.parametrize("asked", [in_the_session, in_a_thread])
@pytest.mark.parametrize("key", ["unknown", "", "\xff", "x" * 300, " " * UNCHECKED_BYTES])
def test_a_long_request_of_a_stranger_is_not_read(site: Site, asked: Asked, key: str) -> None:
    long, short = unreadable(key, 2 * UNCHECKED_BYTES), unreadable(key[:300], 500)
    refused, read = asked(site, long, short)
    assert (NO_KEY in refused, NO_END in refused) == (True, False)
    assert (NO_KEY in read, NO_END in read) == (False, True)


@pytest.mark.parametrize("asked", [in_the_session, in_a_thread])
def test_a_long_request_of_somebody_known_is_read(site: Site, asked: Asked) -> None:
    stranger, known = (unreadable(key, 2 * UNCHECKED_BYTES) for key in ("unknown", site.key))
    answers = asked(site, stranger, known, stranger + b"y")
    assert [NO_END in answer for answer in answers] == [False, True, False]
    usual = site.request(FIRST)
    padded = usual.replace(
        b"</scheduler_request>", b" " * UNCHECKED_BYTES + b"</scheduler_request>"
    )
    assert len(padded) > UNCHECKED_BYTES
    assert all("<hostid>" in answer for answer in asked(site, usual, padded))


@pytest.mark.parametrize("asked", [in_the_session, in_a_thread])
def test_a_key_far_into_a_long_request_is_not_looked_for(site: Site, asked: Asked) -> None:
    body = b"x" * UNCHECKED_BYTES + unreadable(site.key, 500)
    (answer,) = asked(site, body)
    assert NO_KEY in answer
