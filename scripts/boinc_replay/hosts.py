"""Puts real names into captured requests: of hosts, replicas and uploads that the server made.

Otherwise it would know at the first glance that nothing in them is its own.
"""

from __future__ import annotations

import re
import secrets
import time
from dataclasses import dataclass

from gridbot_server.boinc.protocol.tags import BoincError, Grammar, Section, read

from .captured import SCHEDULER, UPLOAD, Captured
from .wire import Wire

_GRAMMAR = Grammar(
    root="scheduler_reply",
    inside={
        "": frozenset({"scheduler_reply"}),
        "scheduler_reply": frozenset({"file_info", "result", "result_ack"}),
    },
    raw=frozenset({"code_sign_key", "xml_signature"}),
)
_NAME = re.compile(rb"\b[a-z]\w*?_r0(?=_\d|\b)")
_TRIES = 20
_FEED_SECONDS = 0.5  # in which the feeder brings jobs


class NotServed(Exception):
    """The server did not give what a replay needs; the message says what."""


@dataclass(frozen=True, slots=True)
class Host:
    """A host of ours with the replicas that it holds; `upload` certifies the first one's output."""

    id: int
    cpid: str
    names: tuple[str, ...]
    upload: Section
    key: str


@dataclass(frozen=True, slots=True)
class Project:
    """The server, as whoever holds `authenticator` sees it; `first` is a client's first request."""

    path: str
    authenticator: str
    first: bytes

    def host(self, wire: Wire, replicas: int) -> Host:
        """A new host that was given at least so many replicas at once; nobody may ask on."""
        for _ in range(_TRIES):
            cpid = secrets.token_hex(16)
            reply = self._first(wire, cpid, max(replicas, 1))
            found = _given(reply, cpid)
            if len(found.names) >= replicas:
                return found
            time.sleep(_FEED_SECONDS)
        raise NotServed(f"a host got {len(found.names)} replicas, not {replicas}")

    def _first(self, wire: Wire, cpid: str, cpus: int) -> Section:
        values = {"authenticator": self.authenticator, "host_cpid": cpid, "p_ncpus": str(cpus)}
        answer = wire.ask("POST", self.path + SCHEDULER, _with(self.first, values))
        try:
            return read(answer.body.decode(), _GRAMMAR)
        except BoincError as error:
            raise NotServed(f"status {answer.status}: {error}") from None


def acknowledged(body: bytes) -> set[str]:
    """The names that a reply acknowledges; BoincError for what is no whole reply."""
    reply = read(body.decode(errors="replace"), _GRAMMAR)
    return {item.text("name") for item in reply.all("result_ack")}


def reported(body: bytes) -> set[str]:
    """The names that a request reports."""
    return {name.decode() for name in re.findall(rb"<result>\s*<name>([^<]+)", body)}


def replicas(captured: Captured) -> int:
    """How many replicas a request speaks of."""
    return len(set(_NAME.findall(captured.body)))


def ours(captured: Captured, project: Project, host: Host) -> bytes:
    """The body as that host would send it to this server."""
    names = dict.fromkeys(_NAME.findall(captured.body))
    known = dict(zip(names, host.names, strict=False))
    body = _NAME.sub(lambda found: known[found[0]].encode(), captured.body)
    if captured.path == UPLOAD:
        body = _certified(body, host.upload)
    if captured.path != SCHEDULER:
        return body
    values = {"authenticator": project.authenticator, "host_cpid": host.cpid}
    if b"<hostid>0<" not in body:
        values["hostid"] = str(host.id)
    key = f"<code_sign_key>\n{host.key}\n</code_sign_key>".encode()
    return re.sub(rb"<code_sign_key>[^<]*</code_sign_key>", key, _with(body, values))


def _given(reply: Section, cpid: str) -> Host:
    names = tuple(item.text("name") for item in reply.all("result"))
    files, none = reply.all("file_info"), reply.one("file_info")
    upload = next((file for file in files if "xml_signature" in file), none)
    key = reply.raw("code_sign_key").strip()
    return Host(reply.integer("hostid"), cpid, names, upload, key)


def _with(body: bytes, values: dict[str, str]) -> bytes:
    for name, value in values.items():
        element = f"<{name}>{value}</{name}>".encode()
        body = re.sub(rf"<{name}>[^<]*</{name}>".encode(), element, body, count=1)
    return body


def _certified(body: bytes, upload: Section) -> bytes:
    """An upload with our certificate, and the limit that this was made for."""
    head, data, rest = body.partition(b"<data>\n")
    certificate = f"<xml_signature>\n{upload.raw('xml_signature').strip()}\n</xml_signature>"
    head = re.sub(rb"<xml_signature>[^<]*</xml_signature>", certificate.encode(), head)
    return _with(head, {"max_nbytes": upload.text("max_nbytes")}) + data + rest
