"""Addresses are told when a BOT ends or is held, and operators' when the server is degraded."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from tests.factories import make_bot
from tests.http.conftest import Person, Site

from gridbot_server.cycles.notices.cycle import ServerWatch, run_once
from gridbot_server.cycles.notices.delivery import signature
from gridbot_server.settings import Settings

ADDRESSES = "/api/v1/account/notices"


@dataclass
class Receiver:
    """Somebody's web server, which answers as it is told."""

    url: str = ""
    status: int = 204
    got: list[tuple[dict[str, str], bytes]] = field(default_factory=list)


@contextmanager
def serving(server: socketserver.TCPServer) -> Iterator[int]:
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    found = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            found.got.append((dict(self.headers.items()), body))
            self.send_response(found.status)
            self.send_header("Location", f"{found.url}/elsewhere")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as port:
        found.url = f"http://127.0.0.1:{port}"
        yield found


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return replace(settings, private_webhooks=True, mail_relay="127.0.0.1:9")


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
    run_once(site.conn, replace(site.settings, private_webhooks=False))
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


def test_a_mailbox_gets_a_message_in_words(site: Site, alice: Person) -> None:
    lines: list[str] = []

    class Relay(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.wfile.write(b"220 here\r\n")
            in_data = False
            for line in self.rfile:
                lines.append(line.decode().rstrip("\r\n"))
                if in_data and lines[-1] != ".":
                    continue
                in_data = lines[-1].upper() == "DATA"
                code = 354 if in_data else 221 if lines[-1].upper() == "QUIT" else 250
                self.wfile.write(f"{code} fine\r\n".encode())

    add(alice, "mailto:ada@example.org")
    bot = make_bot(site.conn, alice.id, jobs=4, name="scan")
    alice("POST", f"/api/v1/bots/{bot}/cancel")
    with serving(socketserver.ThreadingTCPServer(("127.0.0.1", 0), Relay)) as port:
        run_once(site.conn, replace(site.settings, mail_relay=f"127.0.0.1:{port}"))
    assert "To: ada@example.org" in lines
    assert f"Subject: BOT {bot} scan is cancelled: 0 of 4 jobs done" in lines
    assert f"{site.settings.url}/bots/{bot}" in lines
    assert listed(alice)[0]["error"] is None
