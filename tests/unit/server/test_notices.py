"""Which addresses are told, and what a receiver can check."""

import pytest

from gridbot_server.cycles.notices.address import (
    Mailbox,
    NotAllowed,
    Webhook,
    is_public,
    parse,
    resolve,
)
from gridbot_server.cycles.notices.delivery import subject


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


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1",
        "0.0.0.0", "224.0.0.1", "255.255.255.255", "::", "::1", "fe80::1%eth0", "fd00::1",
        "ff02::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::",
        "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    ],
)  # fmt: skip
def test_addresses_of_private_networks_are_told_apart(address: str) -> None:
    assert not is_public(address)


def test_addresses_of_the_open_internet_are_public() -> None:
    assert is_public("93.184.216.34")
    assert is_public("2606:2800:220:1:248:1893:25c8:1946")


@pytest.mark.parametrize("host", ["localhost", "127.1", "2130706433", "0x7f000001", "::1"])
def test_a_name_is_judged_by_what_it_leads_to(host: str) -> None:
    with pytest.raises((NotAllowed, OSError)):
        resolve(host, 443, may_be_private=False)


def test_a_subject_is_one_line_whatever_a_bot_is_called() -> None:
    told = {"event": "bot_held", "bot": 7, "name": "a\r\nBcc: x", "why": "it\nbroke"}
    assert subject(told) == "BOT 7 aBcc: x is held: itbroke"
