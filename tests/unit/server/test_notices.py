"""Which addresses are told, and what a receiver can check."""

import socket
import threading
from pathlib import Path

import pytest

from gridbot_server.cycles.notices.address import (
    Mailbox,
    NotAllowed,
    Webhook,
    check_literal,
    parse,
    resolve,
)
from gridbot_server.cycles.notices.delivery import subject
from gridbot_server.settings import Settings


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("https://example.org/hook?a=1", Webhook(True, "example.org", 443, "/hook?a=1")),
        ("http://example.org", Webhook(False, "example.org", 80, "/")),
        ("https://[2001:db8::1]:8443/", Webhook(True, "2001:db8::1", 8443, "/")),
        ("mailto:ada@example.org", Mailbox("ada@example.org")),
    ],
)
def test_webhooks_and_mailboxes_are_read(url: str, found: Webhook | Mailbox) -> None:
    assert parse(url) == found


@pytest.mark.parametrize(
    "url",
    [
        "", "ftp://example.org/", "file:///etc/passwd", "https://", "https://user:pw@example.org/",
        "https://example.org/#part", "https://example.org:22/", "https://example.org:99999/",
        "https://example.org/a b", "https://example.org/\r\nX: y", "https://[::1/", "mailto:",
        "mailto:a@b", "mailto:a@example.org,b@example.org", "mailto:a@example.org\nBcc: b@c.de",
        "https://example.org/" + "a" * 500,
    ],
)  # fmt: skip
def test_other_addresses_are_refused_and_named(url: str) -> None:
    with pytest.raises(NotAllowed, match="url: "):
        parse(url)


def webhook(url: str) -> Webhook:
    found = parse(url)
    assert isinstance(found, Webhook)
    return found


@pytest.mark.parametrize(
    "host", ["localhost", "a.localhost.", "127.1", "2130706433", "0x7f000001", "[::1]", "10.0.0.1"]
)
def test_an_address_of_its_own_network_is_refused_before_and_after_the_look_up(
    tmp_path: Path, host: str
) -> None:
    settings, found = Settings(data=tmp_path), webhook(f"https://{host}/")
    with pytest.raises(NotAllowed, match="not on the open internet"):
        check_literal(found, settings)
    with pytest.raises((NotAllowed, OSError)):
        resolve(found, settings, seconds=20)


def test_a_name_that_only_ends_like_the_machines_own_is_looked_up(tmp_path: Path) -> None:
    check_literal(webhook("https://mylocalhost/"), Settings(data=tmp_path))


def test_private_webhooks_open_private_networks_and_a_list_opens_what_it_names(
    tmp_path: Path,
) -> None:
    private = Settings(data=tmp_path, private_webhooks=True)
    for host in ("10.0.0.1", "[fd00::1]", "100.64.0.1", "[fec0::1]"):
        check_literal(webhook(f"https://{host}/"), private)
    for host in ("127.0.0.1", "169.254.169.254", "[fe80::1]", "168.63.129.16", "[fd00:ec2::254]"):
        with pytest.raises(NotAllowed):
            check_literal(webhook(f"https://{host}/"), private)
    named = Settings(data=tmp_path, webhook_networks="127.0.0.1/32, fe80::/10")
    check_literal(webhook("https://localhost/"), named)
    check_literal(webhook("https://[fe80::1]/"), named)
    for host in ("127.0.0.2", "10.0.0.1"):
        with pytest.raises(NotAllowed):
            check_literal(webhook(f"https://{host}/"), named)


def test_a_name_is_looked_up_only_where_time_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = webhook("https://nowhere.invalid/")
    check_literal(nowhere, Settings(data=tmp_path))
    is_over = threading.Event()

    def resolver_that_does_not_answer(*_: object, **__: object) -> list[object]:
        is_over.wait()
        return []

    monkeypatch.setattr(socket, "getaddrinfo", resolver_that_does_not_answer)
    try:
        with pytest.raises(TimeoutError, match=r"no address of nowhere\.invalid within"):
            resolve(nowhere, Settings(data=tmp_path), seconds=0.0)
    finally:
        is_over.set()


def test_a_mailbox_with_something_behind_a_plus_is_the_same_persons() -> None:
    assert Mailbox("Ada+x+y@Example.org").person == Mailbox("ada@example.ORG").person


def test_a_subject_is_one_line_whatever_a_bot_is_called() -> None:
    told = {"event": "bot_held", "bot": 7, "name": "a\r\nBcc: x", "why": "it\nbroke"}
    assert subject(told) == "BOT 7 aBcc: x is held: itbroke"
