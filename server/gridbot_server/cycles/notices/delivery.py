"""Sends a notice: by HTTP, signed, to a receiver that is bounded in time and words; or by mail."""

from __future__ import annotations

import hmac
import http.client
import json
import smtplib
import socket
import ssl
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from email.message import EmailMessage
from http import HTTPStatus
from typing import Any

from gridbot_server.cycles.notices.address import Mailbox, NotAllowed, Webhook, parse, resolve
from gridbot_server.settings import Settings, split_bind

ID_HEADER, SIGNATURE_HEADER = "GridBot-Notice", "GridBot-Signature"
_SECONDS = 10.0  # for all of an attempt
_STEP_SECONDS = 5.0  # for each wait within it
_MOST_WORDS = 200  # characters of why an attempt failed


@dataclass(frozen=True, slots=True)
class Notice:
    """What is to be told, and to whom."""

    id: int
    address: int
    what: str  # JSON
    at: datetime
    url: str
    secret: str

    def body(self, server: str) -> bytes:
        """What is sent: the same bytes at each attempt."""
        told = {"id": self.id, "at": self.at.isoformat(), "server": server}
        return json.dumps({**told, **json.loads(self.what)}).encode()


class NotDelivered(Exception):
    """An attempt failed; the message says why, for the address' owner."""


def signature(secret: str, body: bytes) -> str:
    """What a receiver compares with the header `GridBot-Signature`."""
    return f"sha256={hmac.digest(secret.encode(), body, 'sha256').hex()}"


def send(notice: Notice, settings: Settings) -> None:
    """Send a notice once.  Raises NotDelivered."""
    body = notice.body(settings.url)
    try:
        match parse(notice.url):
            case Mailbox() as mailbox:
                _mail(mailbox, json.loads(body), settings)
            case Webhook() as webhook:
                headers = {
                    "Content-Type": "application/json",
                    "User-Agent": "GridBot",
                    ID_HEADER: str(notice.id),
                    SIGNATURE_HEADER: signature(notice.secret, body),
                }
                _post(webhook, body, headers, settings.private_webhooks)
    except (NotAllowed, NotDelivered) as error:
        raise NotDelivered(_printable(str(error), _MOST_WORDS)) from None
    except (OSError, ValueError, http.client.HTTPException, smtplib.SMTPException) as error:
        said = f"{type(error).__name__}: {error}"  # it may quote any bytes of the receiver
        raise NotDelivered(_printable(said, _MOST_WORDS)) from None


def _printable(text: str, most: int) -> str:
    """The printable characters of a text, `most` at most."""
    return "".join(char for char in text if char.isprintable())[:most]


class _Connection(http.client.HTTPConnection):
    """A connection to an IP address that was looked at, by the name under which it was found."""

    def __init__(self, webhook: Webhook, address: str) -> None:
        super().__init__(webhook.host, webhook.port, timeout=_STEP_SECONDS)
        self._address, self._is_tls = address, webhook.is_tls
        self.default_port = 443 if webhook.is_tls else 80  # which the header Host leaves out

    def connect(self) -> None:
        self.sock = socket.create_connection((self._address, self.port), _STEP_SECONDS)
        if self._is_tls:
            context = ssl.create_default_context()
            self.sock = context.wrap_socket(
                self.sock, server_hostname=self.host, do_handshake_on_connect=False
            )  # so that `break_off` has it while hands are shaken
            self.sock.do_handshake()

    def break_off(self) -> None:
        """End it, whatever another thread waits for."""
        if self.sock is not None:
            with suppress(OSError):
                self.sock.shutdown(socket.SHUT_RDWR)


def _post(webhook: Webhook, body: bytes, headers: Mapping[str, str], is_private_fine: bool) -> None:
    """Post a body.  The answer counts by its status alone, and redirections lead nowhere."""
    connection = _Connection(webhook, resolve(webhook.host, webhook.port, is_private_fine))
    ending = threading.Timer(_SECONDS, connection.break_off)  # one may answer a byte a second
    ending.daemon = True
    ending.start()
    try:
        connection.request("POST", webhook.path, body, dict(headers))
        status = connection.getresponse().status
    finally:
        ending.cancel()
        connection.close()
    if not HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
        raise NotDelivered(f"it answered {status}")


def _mail(mailbox: Mailbox, told: Mapping[str, Any], settings: Settings) -> None:
    if settings.mail_relay is None:
        raise NotDelivered("this server has no mail relay")
    host, port = split_bind(settings.mail_relay)
    message = EmailMessage()
    message["From"], message["To"] = settings.mail_from, mailbox.address
    message["Subject"] = subject(told)
    message["Message-ID"] = f"<gridbot-{told['id']}@{settings.mail_from.rpartition('@')[2]}>"
    message["Date"] = datetime.fromisoformat(told["at"])
    place = f"/bots/{told['bot']}" if "bot" in told else "/operations"
    message.set_content(f"{subject(told)}.\n\n{settings.url}{place}\n")
    with smtplib.SMTP(host, port, timeout=_STEP_SECONDS) as relay:
        relay.send_message(message)


def subject(told: Mapping[str, Any]) -> str:
    """Say what happened, in a line."""
    name = _printable(str(told.get("name", "")), 100)
    match told["event"]:
        case "bot_held":
            return f"BOT {told['bot']} {name} is held: {_printable(str(told['why']), 200)}"
        case "bot_done" | "bot_cancelled" as event:
            failed = f", {told['jobs_failed']} failed" if told["jobs_failed"] else ""
            done = f"{told['jobs_done']} of {told['jobs_total']} jobs done{failed}"
            return f"BOT {told['bot']} {name} is {event.removeprefix('bot_')}: {done}"
        case "server_degraded":
            return f"The server needs attention: {told['why']}"
        case _:
            return "The server is well again"
