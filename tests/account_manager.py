"""A small account manager for tests: a stock BOINC client asks it which projects to attach to."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import requests
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from tests.http.loopback import serve
from werkzeug import Request, Response

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

    made = AccountManager("", project, code_keys.generate())

    @Request.application
    def answer(request: Request) -> Response:
        made.asked.append(request.get_data(as_text=True))
        return Response(made.answer())

    with serve(answer) as url:
        made.url = f"{url}/"
        yield made
