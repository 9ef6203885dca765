"""Addresses are told when a BOT ends or is held, and operators' when the server is degraded."""

from __future__ import annotations

import itertools
import json
import socketserver
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psycopg
import pytest
from tests.certificates import certified
from tests.factories import make_bot
from tests.http.conftest import Person, Site
from tests.http.relay import Relay, relaying, serving
from tests.system.deployment import eventually

from gridbot_server.cycles.notices.cycle import ServerWatch, run_once
from gridbot_server.cycles.notices.delivery import NotDelivered, Notice, send, signature
from gridbot_server.settings import Settings

ADDRESSES = "/api/v1/account/notices"


@dataclass
class Receiver:
    """Somebody's web server, which answers as it is told."""

    url: str = ""
    status: int = 204
    got: list[tuple[dict[str, str], bytes]] = field(default_factory=list)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    found = Receiver()

    with receiving(found) as port:
        found.url = f"http://127.0.0.1:{port}"
        yield found


@contextmanager
def receiving(found: Receiver, tls: ssl.SSLContext | None = None) -> Iterator[int]:
    """Receive at a port."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            found.got.append((dict(self.headers.items()), body))
            self.send_response(found.status)
            self.send_header("Location", f"{found.url}/elsewhere")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    with serving(server) as port:
        yield port


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return replace(settings, webhook_networks="127.0.0.0/8", mail_relay="127.0.0.1:9")


def add(person: Person, url: str) -> str:
    made = person("POST", ADDRESSES, json={"url": url})
    assert made.status_code == 201, made.json
    secret: str = made.json["secret"]
    return secret


def listed(person: Person) -> list[dict[str, object]]:
    found: list[dict[str, object]] = person("GET", ADDRESSES).json["addresses"]
    return found


def due_now(site: Site) -> None:
    site.conn.execute("UPDATE notice SET due_at = now()")


def test_an_end_and_a_hold_arrive_signed_and_once(
    site: Site, alice: Person, bob: Person, receiver: Receiver
) -> None:
    secret = add(alice, f"{receiver.url}/hook?to=ada")
    bot, held = make_bot(site.conn, alice.id), make_bot(site.conn, alice.id)
    make_bot(site.conn, bob.id, state="running")
    for path in (f"{bot}/cancel", f"{held}/hold"):
        for _ in range(2):  # to repeat it is nothing new
            assert alice("POST", f"/api/v1/bots/{path}").status_code == 200
    while run_once(site.conn, site.settings):
        pass
    told = [json.loads(body) for _, body in receiver.got]
    assert [(item["event"], item["bot"]) for item in told] == [
        ("bot_cancelled", bot), ("bot_held", held),
    ]  # fmt: skip
    assert told[1]["why"] == "alice held it"
    for headers, body in receiver.got:
        assert headers["GridBot-Signature"] == signature(secret, body)
        assert headers["GridBot-Notice"] == str(json.loads(body)["id"])
    (address,) = listed(alice)
    assert (address["waiting"], address["error"]) == (0, None)
    assert address["told_at"] is not None


def test_what_does_not_arrive_comes_again_as_it_was_and_later(
    site: Site, alice: Person, receiver: Receiver
) -> None:
    add(alice, receiver.url)
    receiver.status = 500
    alice("POST", f"/api/v1/bots/{make_bot(site.conn, alice.id)}/cancel")
    assert run_once(site.conn, site.settings) == 1
    assert run_once(site.conn, site.settings) == 0  # it is not due
    assert (listed(alice)[0]["error"], listed(alice)[0]["waiting"]) == ("it answered 500", 1)
    due_now(site)
    receiver.status = 200
    assert run_once(site.conn, site.settings) == 1
    assert receiver.got[0][1] == receiver.got[1][1]
    assert (listed(alice)[0]["error"], listed(alice)[0]["waiting"]) == (None, 0)


def test_an_answer_that_is_no_http_and_no_text_is_an_error_in_words(
    site: Site, alice: Person
) -> None:
    class Garbage(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.rfile.readline()
            self.wfile.write(b"\0never\x1bmind\r\n")

    with serving(socketserver.ThreadingTCPServer(("127.0.0.1", 0), Garbage)) as port:
        add(alice, f"http://127.0.0.1:{port}")
        alice("POST", f"/api/v1/bots/{make_bot(site.conn, alice.id)}/cancel")
        assert run_once(site.conn, site.settings) == 1
    (address,) = listed(alice)
    assert "nevermind" in str(address["error"])
    assert str(address["error"]).isprintable()


def test_no_redirection_is_followed(site: Site, alice: Person, receiver: Receiver) -> None:
    add(alice, receiver.url)
    receiver.status = 307
    alice("POST", f"/api/v1/bots/{make_bot(site.conn, alice.id)}/cancel")
    run_once(site.conn, site.settings)
    assert len(receiver.got) == 1
    assert listed(alice)[0]["error"] == "it answered 307"


def test_after_a_day_nothing_is_tried_any_more(
    site: Site, alice: Person, receiver: Receiver
) -> None:
    add(alice, receiver.url)
    receiver.status = 404
    alice("POST", f"/api/v1/bots/{make_bot(site.conn, alice.id)}/cancel")
    for _ in range(40):
        due_now(site)
        run_once(site.conn, site.settings)
    assert len(receiver.got) == 32
    assert listed(alice)[0]["waiting"] == 0


def test_a_private_network_is_not_reached_however_the_address_came_there(
    site: Site, alice: Person, receiver: Receiver
) -> None:
    add(alice, receiver.url)
    alice("POST", f"/api/v1/bots/{make_bot(site.conn, alice.id)}/cancel")
    run_once(site.conn, replace(site.settings, webhook_networks="", private_webhooks=True))
    assert receiver.got == []
    assert "not on the open internet" in str(listed(alice)[0]["error"])


def test_addresses_are_each_owners_own_and_few(site: Site, alice: Person, bob: Person) -> None:
    for number in range(10):
        add(alice, f"http://127.0.0.1:8000/{number}")
    assert alice("POST", ADDRESSES, json={"url": "http://127.0.0.1:8000/x"}).status_code == 409
    assert alice("POST", ADDRESSES, json={"url": "gopher://x/"}).status_code == 400
    address = listed(alice)[0]["id"]
    assert listed(bob) == []
    assert bob("DELETE", f"{ADDRESSES}/{address}").status_code == 404
    assert alice("DELETE", f"{ADDRESSES}/{address}").json == {"id": address}
    assert "secret" not in listed(alice)[0]


def test_operators_are_told_when_the_server_is_degraded_and_well_again(
    site: Site, alice: Person, operator: Person, receiver: Receiver
) -> None:
    add(operator, receiver.url)
    add(alice, f"{receiver.url}/alice")
    said = [""]
    watch = ServerWatch(lambda: said[0])
    for trouble in (
        "",
        "the disk is full",
        "",
        "the disk is full",
        "the disk is full",
        "x",
        "",
        "",
    ):
        said[0] = trouble
        watch.run_once(site.conn)
        run_once(site.conn, site.settings)
    told = [json.loads(body) for _, body in receiver.got]
    assert [(item["event"], item["why"]) for item in told] == [
        ("server_degraded", "the disk is full"), ("server_well", ""),
    ]  # fmt: skip


@pytest.fixture
def relay() -> Iterator[Relay]:
    with relaying() as found:
        yield found


def mailed(site: Site, relay: Relay) -> list[str]:
    """Send what is due; the subjects of what was mailed."""
    relay.lines.clear()
    while run_once(site.conn, replace(site.settings, mail_relay=relay.address)):
        pass
    return [line.removeprefix("Subject: ") for line in relay.lines if line.startswith("Subject:")]


def test_a_mailbox_is_mailed_a_code_and_nothing_else_until_it_is_shown(
    site: Site, alice: Person, bob: Person, relay: Relay
) -> None:
    assert add(alice, "mailto:ada@example.org") == ""
    alice("POST", f"/api/v1/bots/{make_bot(site.conn, alice.id)}/cancel")
    assert mailed(site, relay) == ["Confirm that notices may be sent here"]
    assert "To: ada@example.org" in relay.lines
    assert not listed(alice)[0]["confirmed"]
    address, code = relay.code
    path = f"{ADDRESSES}/{address}/confirm"
    assert alice("POST", path, json={"code": "A" * 10}).status_code == 400
    assert bob("POST", path, json={"code": code}).status_code == 404
    for _ in range(2):  # to repeat it is nothing new
        assert alice("POST", path, json={"code": code.lower()}).json["confirmed"]
    bot = make_bot(site.conn, alice.id, jobs=4, name="scan")
    alice("POST", f"/api/v1/bots/{bot}/cancel")
    assert mailed(site, relay) == [f"BOT {bot} scan is cancelled: 0 of 4 jobs done"]
    assert f"{site.settings.url}/bots/{bot}" in relay.lines
    assert listed(alice)[0]["error"] is None


def test_a_code_is_good_for_a_day_and_five_tries_and_a_new_one_takes_its_place(
    site: Site, alice: Person, relay: Relay
) -> None:
    add(alice, "mailto:ada@example.org")
    mailed(site, relay)
    address, first = relay.code
    path = f"{ADDRESSES}/{address}/confirm"
    for _ in range(5):
        assert alice("POST", path, json={"code": "WRONG"}).status_code == 400
    assert alice("POST", path, json={"code": first}).status_code == 409
    add(alice, "mailto:ada@example.org")
    mailed(site, relay)
    _, second = relay.code
    assert alice("POST", path, json={"code": first}).status_code == 400
    site.conn.execute("UPDATE notice_address SET code_ends_at = now()")
    assert alice("POST", path, json={"code": second}).status_code == 409
    assert not listed(alice)[0]["confirmed"]


def test_few_codes_are_mailed_to_a_mailbox_and_for_an_owner(
    site: Site, alice: Person, bob: Person
) -> None:
    def ask(person: Person, mailbox: str) -> int:
        found = person("POST", ADDRESSES, json={"url": f"mailto:{mailbox}"})
        if found.status_code == 201:
            person("DELETE", f"{ADDRESSES}/{found.json['id']}")  # which wins nothing
        return found.status_code

    assert [ask(alice, f"ada+{n}@example.org") for n in range(2)] == [201, 201]
    assert [ask(bob, "Ada@example.org") for _ in range(2)] == [201, 409]
    assert [ask(alice, f"ada{n}@example.org") for n in range(9)] == [201] * 8 + [409]
    site.conn.execute("UPDATE mailed_code SET at = at - interval '1 day'")
    assert ask(bob, "ada@example.org") == ask(alice, "ada@example.org") == 201


def test_who_shows_that_a_mailbox_is_theirs_keeps_nobody_else_from_it(
    site: Site, alice: Person, bob: Person
) -> None:
    for more in ("", "+1", "+2"):
        add(alice, f"mailto:ada{more}@example.org")
    first = listed(alice)[0]["id"]
    asked = {"url": "mailto:Ada@example.org"}
    refused = bob("POST", ADDRESSES, json=asked)
    assert refused.status_code == 409
    assert "3" not in refused.json["detail"]
    assert "mailed there now" in refused.json["detail"]
    [(code,)] = site.conn.execute("SELECT code FROM notice_address WHERE id = %s", [first])
    assert alice("POST", f"{ADDRESSES}/{first}/confirm", json={"code": code}).status_code == 200
    assert [bob("POST", ADDRESSES, json=asked).status_code for _ in range(4)] == [201] * 3 + [409]


def test_a_hundred_notices_wait_at_most_and_older_ones_give_way_and_are_counted(
    site: Site, alice: Person, receiver: Receiver
) -> None:
    add(alice, receiver.url)
    bots = [make_bot(site.conn, alice.id) for _ in range(103)]
    for bot in bots:
        alice("POST", f"/api/v1/bots/{bot}/cancel")
    (address,) = listed(alice)
    assert (address["waiting"], address["dropped"]) == (100, 3)
    while run_once(site.conn, site.settings):
        pass
    told = [json.loads(body) for _, body in receiver.got]
    assert [item["bot"] for item in told] == bots[3:]
    assert [item["dropped"] for item in told if "dropped" in item] == [1, 1, 1]


def test_the_audit_tells_of_a_webhook_its_scheme_and_host_alone(
    alice: Person, receiver: Receiver
) -> None:
    add(alice, f"{receiver.url}/services/T0/very-secret?token=x")
    add(alice, "mailto:ada@example.org")
    found = alice("GET", "/api/v1/audit").json["entries"]
    assert [item["given"] for item in found] == [
        {"url": "mailto:…"}, {"url": f"{receiver.url}…"},
    ]  # fmt: skip


def test_who_ends_a_bot_waits_for_nobody_who_removes_an_address(
    site: Site, dsn: str, alice: Person, receiver: Receiver
) -> None:
    add(alice, receiver.url)
    bot = make_bot(site.conn, alice.id)
    with psycopg.connect(dsn) as removing, psycopg.connect(dsn, autocommit=True) as ending:
        removing.execute("DELETE FROM notice_address")
        ending.execute("SET lock_timeout = '10s'")
        ending.execute("UPDATE bot SET state = 'cancelled', ended_at = now() WHERE id = %s", [bot])
    assert listed(alice) == []


def test_a_notice_that_arrives_while_its_address_is_removed_blocks_neither(
    site: Site, dsn: str, alice: Person, receiver: Receiver
) -> None:
    add(alice, receiver.url)
    alice("POST", f"/api/v1/bots/{make_bot(site.conn, alice.id)}/cancel")
    with psycopg.connect(dsn) as removing:
        removing.execute("SELECT FROM notice_address FOR UPDATE")  # as DELETE does first
        with ThreadPoolExecutor(1) as pool:
            telling = pool.submit(run_once, site.conn, site.settings)
            eventually(lambda: has_blocked(removing))
            removing.execute("DELETE FROM notice_address")
            removing.commit()
            assert telling.result() == 1
    assert listed(alice) == []


def has_blocked(conn: psycopg.Connection) -> bool:
    """Whether somebody waits for a lock of this connection."""
    blocked = "SELECT FROM pg_stat_activity WHERE pg_backend_pid() = ANY (pg_blocking_pids(pid))"
    return conn.execute(blocked).rowcount > 0


def test_a_webhook_by_tls_is_told_only_where_its_certificate_is_good(
    site: Site, alice: Person, receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def told(certificate: Path, trusted: Path) -> str:
        """What the address says when a notice was sent to a server with a certificate."""
        monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        with receiving(receiver, context) as port:
            add(alice, f"https://localhost:{port}/")
            alice("POST", f"/api/v1/bots/{make_bot(site.conn, alice.id)}/cancel")
            due_now(site)
            run_once(site.conn, site.settings)
        (address,) = listed(alice)
        alice("DELETE", f"{ADDRESSES}/{address['id']}")
        return str(address["error"])

    good, other = certified(tmp_path, "localhost"), certified(tmp_path, "example.org")
    assert told(good, trusted=good) == "None"
    assert len(receiver.got) == 1
    assert "self-signed certificate" in told(good, trusted=other)
    assert "not valid for 'localhost'" in told(other, trusted=other)
    assert len(receiver.got) == 1


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_receiver_that_never_comes_to_an_end_is_left_in_time(
    site: Site, alice: Person, scheme: str
) -> None:
    is_left = threading.Event()

    class Dripping(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            try:
                for byte in itertools.cycle(
                    b"HTTP/1.1 " if scheme == "http" else b"\x16\x03\x03\x40"
                ):
                    self.wfile.write(bytes([byte]))
                    if is_left.wait(0.05):
                        return
            except OSError:
                is_left.set()

    with serving(socketserver.ThreadingTCPServer(("127.0.0.1", 0), Dripping)) as port:
        notice = Notice(
            id=1, address=1, what='{"event": "server_well"}', at=datetime.now(UTC), dropped=0,
            url=f"{scheme}://127.0.0.1:{port}/", secret="x",
        )  # fmt: skip
        with pytest.raises(NotDelivered):
            send(notice, site.settings, seconds=0.5)
        is_left.set()
