"""Sends a notice: by HTTP, signed, to a receiver that is bounded in time and words; or by mail."""

from __future__ import annotations

import hmac
import http.client
import json
import smtplib
import socket
import ssl
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from email.message import EmailMessage
from http import HTTPStatus
from typing import Any

from gridbot_server.cycles.notices.address import Mailbox, NotAllowed, Webhook, parse, resolve
from gridbot_server.overload.slow_answers import broken_off
from gridbot_server.settings import Settings, split_bind

ID_HEADER, SIGNATURE_HEADER = "GridBot-Notice", "GridBot-Signature"
SECONDS = 10.0  # for all of an attempt
_STEP_SECONDS = 5.0  # for each wait within it
_MOST_WORDS = 200  # characters of why an attempt failed


@dataclass(frozen=True, slots=True)
class Notice:
    """What is to be told, and to whom."""

    id: int
    address: int
    what: str  # JSON
    at: datetime
    dropped: int  # older ones that gave way to it
    url: str
    secret: str

    def body(self, server: str) -> bytes:
        """What is sent: the same bytes at each attempt."""
        told = {"id": self.id, "at": self.at.isoformat(), "server": server}
        if self.dropped:
            told["dropped"] = self.dropped
        return json.dumps({**told, **json.loads(self.what)}).encode()


class NotDelivered(Exception):
    """An attempt failed; the message says why, for the address' owner."""


def signature(secret: str, body: bytes) -> str:
    """What a receiver compares with the header `GridBot-Signature`."""
    return f"sha256={hmac.digest(secret.encode(), body, 'sha256').hex()}"


def send(notice: Notice, settings: Settings, seconds: float = SECONDS) -> None:
    """Send a notice once, in so many seconds at most.  Raises NotDelivered."""
    body = notice.body(settings.url)
    try:
        match parse(notice.url):
            case Mailbox() as mailbox:
                _mail(mailbox, json.loads(body), settings).send(settings)
            case Webhook() as webhook:
                headers = {
                    "Content-Type": "application/json",
                    "User-Agent": "GridBot",
                    ID_HEADER: str(notice.id),
                    SIGNATURE_HEADER: signature(notice.secret, body),
                }
                ends_at = time.monotonic() + seconds
                address = resolve(webhook, settings, min(seconds, _STEP_SECONDS))
                _post(webhook, address, body, headers, ends_at)
    except (NotAllowed, NotDelivered) as error:
        raise NotDelivered(_printable(str(error), _MOST_WORDS)) from None
    except (OSError, ValueError, http.client.HTTPException, smtplib.SMTPException) as error:
        said = f"{type(error).__name__}: {error}"  # it may quote any bytes of the receiver
        raise NotDelivered(_printable(said, _MOST_WORDS)) from None


def _printable(text: str, most: int) -> str:
    """The printable characters of a text, `most` at most."""
    return "".join(char for char in text if char.isprintable())[:most]


class _Connection(http.client.HTTPConnection):
    """HTTP over a connection that is open, to a host that is called by its name."""

    def __init__(self, webhook: Webhook, link: socket.socket) -> None:
        super().__init__(webhook.host, webhook.port)
        self._link, self._is_tls = link, webhook.is_tls
        self.default_port = 443 if webhook.is_tls else 80  # which the header Host leaves out

    def connect(self) -> None:
        self.sock = self._link
        if self._is_tls:
            context = ssl.create_default_context()
            self.sock = context.wrap_socket(self._link, server_hostname=self.host)


def _post(
    webhook: Webhook, address: str, body: bytes, headers: Mapping[str, str], ends_at: float
) -> None:
    """Post a body.  The answer counts by its status alone, and redirections lead nowhere."""
    link = socket.create_connection((address, webhook.port), _STEP_SECONDS)
    with closing(_Connection(webhook, link)) as connection, link, broken_off(link, ends_at):
        connection.request("POST", webhook.path, body, dict(headers))
        status = connection.getresponse().status
    if not HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
        raise NotDelivered(f"it answered {status}")


MAIL_REFUSED = smtplib.SMTPRecipientsRefused, smtplib.SMTPDataError
"""What `Mail.send` raises where the relay is there, and does not take this mail."""


@dataclass(frozen=True, slots=True)
class Mail:
    """What is mailed; who gets it twice with one id may drop the second."""

    to: Mailbox
    id: str
    at: datetime
    subject: str
    text: str

    def send(self, settings: Settings) -> None:
        """Hand it to the relay.  Raises NotDelivered, OSError or SMTPException."""
        if settings.mail_relay is None:
            raise NotDelivered("this server has no mail relay")
        host, port = split_bind(settings.mail_relay)
        message = EmailMessage()
        message["From"], message["To"] = settings.mail_from, self.to.address
        message["Subject"] = self.subject
        message["Message-ID"] = f"<gridbot-{self.id}@{settings.mail_from.rpartition('@')[2]}>"
        message["Date"] = self.at
        message.set_content(self.text)
        with smtplib.SMTP(host, port, timeout=_STEP_SECONDS) as relay:
            relay.send_message(message)


def _mail(mailbox: Mailbox, told: Mapping[str, Any], settings: Settings) -> Mail:
    text = f"{subject(told)}.\n\n{_explained(told, settings)}\n"
    at = datetime.fromisoformat(told["at"])
    return Mail(mailbox, str(told["id"]), at, subject(told), text)


def _explained(told: Mapping[str, Any], settings: Settings) -> str:
    """Say where more is told, or what to do."""
    if told["event"] == "confirm_address":
        address, code = told["address"], told["code"]
        return (
            f"A user of {settings.url} wants to be mailed here when work there ends. If that is"
            f" you, run within a day\n\n    gridbot account notices confirm {address} {code}\n\n"
            f"or enter the code {code} at {settings.url}/notices . If it is not, do nothing:\n"
            "nothing else will be sent to you."
        )
    dropped = f"\n{told['dropped']} older notices were dropped." if "dropped" in told else ""
    place = f"/bots/{told['bot']}" if "bot" in told else "/operations"
    return f"{settings.url}{place}{dropped}"


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
        case "confirm_address":
            return "Confirm that notices may be sent here"
        case "server_degraded":
            return f"The server needs attention: {told['why']}"
        case _:
            return "The server is well again"
