from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from tests.boinc_captures import NAMES, captures
from tests.http.boinc_site import FIRST, SECOND, Site, acks, hostid, lend, opened

from gridbot_server.boinc.protocol.names import Lease
from gridbot_server.boinc.protocol.tags import Section
from gridbot_server.settings import Settings
from gridbot_server.storage import db


@pytest.fixture
def site(settings: Settings, conn: db.Connection) -> Iterator[Site]:
    yield from opened(settings, conn)


def next_request(site: Site, host: int, seqno: int) -> Section:
    """What a client asks that has a number and holds nothing."""
    nothing = b"<other_results>\n</other_results>"
    body = re.sub(
        rb"<other_results>.*</other_results>", nothing, captures()[SECOND], count=1, flags=re.S
    )
    return site.ask(body=body, hostid=host, rpc_seqno=seqno)


def hosts(site: Site) -> int:
    return int(site.rows("SELECT count(*) FROM client")[0][0])


def test_a_copied_client_stays_the_host_that_it_became(site: Site) -> None:
    original = hostid(site.ask())
    for seqno in range(8):
        assert "hostid" not in next_request(site, original, seqno)
    copy = hostid(next_request(site, original, 4))
    # With its new number it counts from 0 again.
    for seqno in range(6):
        assert "hostid" not in next_request(site, copy, seqno)
    assert "hostid" not in next_request(site, original, 8)
    assert hosts(site) == 2


def test_a_host_whose_owner_changed_counts_from_0_again(site: Site) -> None:
    original = hostid(site.ask())
    for seqno in range(8):
        next_request(site, original, seqno)
    site.conn.execute("UPDATE boinc_client SET owner = (SELECT min(id) FROM owner)")
    given = hostid(next_request(site, original, 8))
    assert given != original
    assert "hostid" not in next_request(site, given, 0)
    assert hosts(site) == 2


def test_what_a_copy_reports_of_the_original_is_acknowledged_and_does_not_count(
    site: Site,
) -> None:
    lease = lend(site)
    for seqno in range(6):
        next_request(site, lease.client, seqno)
    name = NAMES.replica(lease)
    told = f"<result>\n<name>{name}</name>\n<state>3</state>\n<exit_status>1</exit_status>\n"
    body = captures()[SECOND].replace(
        b"<other_results>", f"{told}</result><other_results>".encode()
    )
    copied = site.ask(body=body, hostid=lease.client, rpc_seqno=3)
    assert hostid(copied) not in (0, lease.client)
    assert acks(copied) == [name]
    assert site.rows("SELECT client FROM lease") == [(lease.client,)]


def test_machines_that_give_themselves_no_name_are_told_apart(site: Site) -> None:
    given = hostid(site.ask(host_cpid=""))
    assert hostid(site.ask(host_cpid="", domain_name="elsewhere")) != given


# ------------------------------------------------------------------------------------ what they say


def told(lease: Lease, text: str, at: int = 100) -> bytes:
    name = NAMES.replica(lease)
    return (
        f"<msg_from_host>\n<result_name>{name}</result_name>\n<time>{at}</time>\n{text}\n"
        "</msg_from_host>\n"
    ).encode()


def tell(site: Site, *messages: bytes) -> Section:
    body = captures()[FIRST].replace(b"<other_results>", b"".join(messages) + b"<other_results>")
    return site.ask(body=body)


def said(site: Site) -> list[tuple[int, str]]:
    return site.rows("SELECT said_at, said FROM boinc_trickle")


def test_what_a_program_said_is_kept_in_order_once_and_acknowledged(site: Site) -> None:
    lease = lend(site)
    second = told(lease, "<text>2</text>", 200)
    reply = tell(site, second, told(lease, "<text>1</text>", 100))
    assert "message_ack" in reply
    assert said(site) == [(200, "<text>1</text>\n<text>2</text>")]
    tell(site, told(lease, "<text>late</text>", 150))
    assert said(site) == [(200, "<text>1</text>\n<text>2</text>")]
    tell(site, second, told(lease, "<text>3</text>", 300))
    assert said(site) == [(300, "<text>1</text>\n<text>2</text>\n<text>3</text>")]


def test_a_long_speech_is_cut(site: Site) -> None:
    tell(site, told(lend(site), "x" * 10_000))
    assert said(site) == [(100, "x" * 4000)]


def test_of_many_speeches_the_latest_are_kept(site: Site) -> None:
    lease = lend(site)
    tell(site, *(told(lease, f"{n}" * 4000, n) for n in range(1, 4)))
    tell(site, *(told(lease, f"{n}" * 4000, n) for n in range(4, 7)))
    [(at, text)] = said(site)
    assert at == 6
    assert len(text) == 16_000
    assert text.endswith("4" * 4000 + "\n" + "5" * 4000 + "\n" + "6" * 4000)


def test_what_is_said_of_anothers_replica_is_acknowledged_and_dropped(site: Site) -> None:
    lease = lend(site)
    stranger = Lease(lease.replica, lease.client + 1)
    nobody = told(lease, "b").replace(b"<result_name>gb_", b"<result_name>")
    assert "message_ack" in tell(site, told(stranger, "a"), nobody)
    assert said(site) == []
