"""Claims about who is taken for the sender of a request."""

from __future__ import annotations

import pytest

from gridbot_server.http.addresses import source_of


@pytest.mark.parametrize(
    ("peer", "forwarded", "is_behind_proxy", "found"),
    [
        ("192.0.2.1", "", False, "192.0.2.1"),
        ("192.0.2.1", "203.0.113.9", False, "192.0.2.1"),
        ("127.0.0.1", "203.0.113.9", True, "203.0.113.9"),
        ("127.0.0.1", "made, up, 203.0.113.9", True, "203.0.113.9"),
        ("127.0.0.1", "", True, ""),
        ("127.0.0.1", "unknown", True, ""),
        ("127.0.0.1", "203.0.113.9,", True, ""),
        ("2001:db8:1:2:3:4:5:6", "", False, "2001:db8:1:2::/64"),
        ("127.0.0.1", "2001:db8:1:2::9", True, "2001:db8:1:2::/64"),
        ("::ffff:192.0.2.1", "", False, "192.0.2.1"),
        ("", "", False, ""),
    ],
)
def test_whoever_asks_is_known_by_what_he_cannot_make_up(
    peer: str, forwarded: str, is_behind_proxy: bool, found: str
) -> None:
    assert source_of(peer, forwarded, is_behind_proxy) == found
