"""A small account manager for tests: a stock BOINC client asks it which projects to attach to."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import requests
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

from gridbot_server.boinc.application import code_keys
from gridbot_server.boinc.application.code_signatures import md5_hex, sign_md5
from gridbot_server.boinc.protocol.pages import password_hash
from gridbot_server.credit.markup import block, element, flag, lines


@dataclass
class AccountManager:
    """One that manages an account at one project."""

    url: str
    project: str  # its master URL
    key: RSAPrivateKey
    account_key: str = ""
    weak_key: str = ""
    is_detaching: bool = False
    asked: list[str] = field(default_factory=list)  # requests of clients

    def call(self, page: str, **values: str) -> str:
        """What a page of the project answers."""
        return requests.get(f"{self.project}{page}.php", params=values, timeout=30).text

    def register(self, email: str, password: str, name: str) -> None:
        """Make the volunteer's account at the project, and ask for its keys."""
        made = self.call(
            "create_account", email_addr=email, passwd_hash=password_hash(email, password),
            user_name=name,
        )  # fmt: skip
        self.account_key = _value("authenticator", made)
        told = self.call("am_get_info", account_key=self.account_key)
        self.weak_key = _value("weak_auth", told)

    @property
    def host(self) -> str:
        """The number of the client's host at the project, by the client's last word."""
        return _value("hostid", self.asked[-1])

    def answer(self) -> str:
        """What a client is told to do."""
        return block(
            "acct_mgr_reply",
            element("name", "Manager of tests"),
            lines("signing_key", code_keys.public_text(self.key.public_key())),
            element("repeat_sec", 86400),
            block(
                "account",
                element("url", self.project),
                lines("url_signature", sign_md5(self.key, md5_hex(self.project.encode()))),
                element("authenticator", self.weak_key),
                flag("detach", self.is_detaching),
            ),
        )


def _value(name: str, text: str) -> str:
    found = re.search(f"<{name}>([^<]*)</{name}>", text)
    assert found, f"no {name} in {text}"
    return found[1]


@contextmanager
def account_manager(project: str) -> Iterator[AccountManager]:
    """An account manager on the loopback address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            size = int(self.headers["Content-Length"])
            made.asked.append(self.rfile.read(size).decode(errors="replace"))
            body = made.answer().encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        url = f"http://127.0.0.1:{server.server_address[1]}/"
        made = AccountManager(url, project, code_keys.generate())
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield made
        finally:
            server.shutdown()
            thread.join()
