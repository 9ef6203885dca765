"""Lets clients in: TLS with certificates of clients, and bounds for slow and many peers.

Each connection has a thread, and each of its steps a deadline, after which it is closed.
Connections in the TLS handshake are counted apart from those of known clients.
"""

from __future__ import annotations

import io
import ipaddress
import logging
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from gridbot.api.errors import BadInput
from gridbot.gatekeeper.answers import ArcAnswer, ArcRequest, RequestFault, text
from gridbot.gatekeeper.owners import OwnerMap, subject_of

log = logging.getLogger(__name__)

_PREFIX = ("arex", "rest")
_MOST_PASSED_BYTES = 64 << 20
_STEP_BYTES = 64 << 10

Answer = Callable[[ArcRequest], ArcAnswer]


@dataclass(frozen=True, slots=True)
class ServingLimits:
    """Bounds for connections."""

    connections: int = 128
    handshakes: int = 64  # connections that are not through them yet, beside those
    of_address: int = 16  # of both; an IPv6 network of 64 bits counts as one address
    handshake_seconds: float = 5.0
    step_seconds: float = 60.0  # for a request's head, and for each 64 KiB of contents


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Where the gatekeeper's certificate and key are, and the authorities of clients."""

    certificate: Path
    key: Path
    authorities: Path  # a folder as /etc/grid-security/certificates, or a file


def context_of(files: TlsFiles) -> ssl.SSLContext:
    """TLS that asks for a certificate of a known authority, or a proxy of one.  Raises BadInput."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VerifyFlags.VERIFY_ALLOW_PROXY_CERTS
    place = files.authorities
    try:
        context.load_cert_chain(files.certificate, files.key)
        context.load_verify_locations(
            None if place.is_dir() else place, place if place.is_dir() else None
        )
    except OSError as error:  # which ssl's errors are
        names = f"{files.certificate}, {files.key}, {place}"
        raise BadInput(f"one of {names} cannot be used: {error}") from None
    return context


class GatekeeperServer(ThreadingHTTPServer):
    """Serves clients at an address until it is shut down."""

    daemon_threads = True
    request_queue_size = 128
    allow_reuse_address = True

    def __init__(
        self,
        address: tuple[str, int],
        context: ssl.SSLContext,
        owners: OwnerMap,
        answer: Answer,
        limits: ServingLimits = ServingLimits(),
    ) -> None:
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, _ConnectionHandler)
        self.owners, self.answer, self.limits = owners, answer, limits
        self._context = context
        self._places = threading.BoundedSemaphore(limits.connections)
        self._handshakes = threading.BoundedSemaphore(limits.handshakes)
        self._of_source, self._lock = Counter[str](), threading.Lock()
        self._deadlines = dict[socket.socket, float]()

    def allow(self, connection: socket.socket, seconds: float) -> None:
        """Close a connection this many seconds from now, unless this is called again."""
        self._deadlines[connection] = time.monotonic() + seconds

    def allow_step(self, connection: socket.socket) -> None:
        """Give a connection the time of one more step."""
        self.allow(connection, self.limits.step_seconds)

    def service_actions(self) -> None:
        """Close what is over its deadline; called about twice a second."""
        now = time.monotonic()
        for connection, deadline in list(self._deadlines.items()):
            if now > deadline:
                try:
                    # Not SSLSocket's own, which would let its thread go on in the clear.
                    socket.socket.shutdown(connection, socket.SHUT_RDWR)
                except OSError:
                    self._deadlines.pop(connection, None)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Give a connection a thread, if there is one left for its address."""
        source = _source(client_address[0])
        if not self._enter(source):
            log.warning("%s: no place for a connection", client_address[0])
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # there is no thread
            self._handshakes.release()
            self._leave(source)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection to its end."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._leave(_source(client_address[0]))

    def _enter(self, source: str) -> bool:
        with self._lock:
            if self._of_source[source] >= self.limits.of_address:
                return False
            if not self._handshakes.acquire(blocking=False):
                return False
            self._of_source[source] += 1
            return True

    def _leave(self, source: str) -> None:
        with self._lock:
            self._of_source[source] -= 1
            if not self._of_source[source]:
                del self._of_source[source]

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Shake hands, and answer what is asked."""
        request.settimeout(self.limits.handshake_seconds)
        try:
            connection = self._context.wrap_socket(
                request, server_side=True, do_handshake_on_connect=False
            )
        except BaseException:
            self._handshakes.release()
            raise
        with connection:
            try:
                self._shake_hands(connection)
                self._serve(connection, client_address)
            except OSError as error:  # of TLS, too
                log.info("%s: %s", client_address[0], error)
            finally:
                self._deadlines.pop(connection, None)

    def _shake_hands(self, connection: ssl.SSLSocket) -> None:
        try:
            self.allow(connection, self.limits.handshake_seconds)
            connection.do_handshake()
        finally:
            self._handshakes.release()

    def _serve(self, connection: ssl.SSLSocket, client_address: Any) -> None:
        if not self._places.acquire(blocking=False):
            log.warning("%s: more than %d clients", client_address[0], self.limits.connections)
            return
        try:
            _ConnectionHandler(connection, client_address, self)
        finally:
            self._places.release()


def _source(address: str) -> str:
    """What counts as one peer: an IPv4 address, or an IPv6 network that one machine may have."""
    found = ipaddress.ip_address(address.partition("%")[0])
    if found.version == 4:
        return address
    if found.ipv4_mapped:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found, 64), strict=False))


class _ConnectionHandler(BaseHTTPRequestHandler):
    """The requests of one connection, one after the other."""

    protocol_version = "HTTP/1.1"
    server_version = "GridBot"
    sys_version = ""
    server: GatekeeperServer
    connection: ssl.SSLSocket

    def setup(self) -> None:
        super().setup()
        self.connection.settimeout(self.server.limits.step_seconds)
        self._left, self._is_asked_for = 0, True  # bytes of the content that were not read

    def handle_one_request(self) -> None:
        self._left = 0
        self.server.allow_step(self.connection)
        super().handle_one_request()

    def _serve(self) -> None:
        try:
            answer = self.server.answer(self._request())
        except RequestFault as fault:
            answer = text(fault.status, f"{fault}\n")
        except Exception:
            log.exception("%s %s", self.command, self.path[:200])
            answer = text(HTTPStatus.INTERNAL_SERVER_ERROR, "an error of the gatekeeper\n")
        self._send(answer)

    do_GET = do_HEAD = do_POST = do_PUT = do_PROPFIND = do_DELETE = _serve

    def handle_expect_100(self) -> bool:
        """The content is asked for when it is read; what is refused is not sent."""
        return True

    def _request(self) -> ArcRequest:
        length = self._content_length()
        try:
            url = urlsplit(self.path)  # clients of ARC send a whole URL
            query = dict(parse_qsl(url.query, max_num_fields=20))
        except ValueError as error:
            raise RequestFault(HTTPStatus.BAD_REQUEST, f"the URL: {error}") from None
        parts = [unquote(part) for part in url.path.split("/") if part]
        if tuple(parts[:2]) != _PREFIX:
            raise RequestFault(HTTPStatus.NOT_FOUND, f"there is only /{'/'.join(_PREFIX)}")
        return ArcRequest(
            method=self.command,
            path=parts[2:],
            query=query,
            base=f"https://{self.headers.get('Host', '')}/{_PREFIX[0]}",
            subject=self._client(),
            accept=self.headers.get("Accept", ""),
            kind=self.headers.get_content_type() if "Content-Type" in self.headers else "",
            length=length,
            depth=self.headers.get("Depth", "1"),
            read=self._read,
        )

    def _content_length(self) -> int:
        given = self.headers.get("Content-Length", "0")
        if "Transfer-Encoding" in self.headers or not (given.isascii() and given.isdigit()):
            self.close_connection = True
            raise RequestFault(
                HTTPStatus.LENGTH_REQUIRED, "a request must tell the length of its content"
            )
        self._left = int(given[:18])
        self._is_asked_for = self.headers.get("Expect", "").lower() != "100-continue"
        return self._left

    def _client(self) -> str:
        """Who asks.  Raises RequestFault for somebody who may not."""
        certificate = self.connection.getpeercert(binary_form=True)
        assert certificate
        try:
            subject = subject_of(certificate)
        except BadInput as error:
            log.error("%s", error)
            raise RequestFault(
                HTTPStatus.FORBIDDEN, "this certificate cannot be used here"
            ) from None
        try:
            accounts = self.server.owners.accounts()
        except BadInput as error:
            log.error("%s", error)
            raise RequestFault(
                HTTPStatus.SERVICE_UNAVAILABLE, "the owner map cannot be read now: try later"
            ) from None
        if subject not in accounts:
            raise RequestFault(HTTPStatus.FORBIDDEN, f"{subject} has no account here")
        return subject

    def _read(self, most: int) -> bytes:
        if not self._is_asked_for:
            self.send_response_only(HTTPStatus.CONTINUE)
            self.end_headers()
            self._is_asked_for = True
        content, step = bytearray(), b"begin"
        while step and self._left and len(content) < most:
            self.server.allow_step(self.connection)
            step = self._step(most - len(content))
            content += step
        self.server.allow_step(self.connection)
        return bytes(content)

    def _step(self, most: int) -> bytes:
        """The next bytes of the content; none if the client has gone."""
        size = min(most, self._left, _STEP_BYTES)
        try:
            found = self.rfile.read(size)
        except OSError:
            found = b""
        if not found:
            self.close_connection = True
        self._left -= len(found)
        return found

    def _send(self, answer: ArcAnswer) -> None:
        self._pass_rest()
        size = answer.file.stat().st_size if answer.file else len(answer.content)
        self.server.allow_step(self.connection)
        self.send_response(answer.status, self._reason(answer))
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Type", answer.kind)
        self.send_header("Content-Length", str(size))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command == "HEAD":
            return
        with answer.file.open("rb") if answer.file else io.BytesIO(answer.content) as content:
            while step := content.read(_STEP_BYTES):
                self.server.allow_step(self.connection)
                self.wfile.write(step)

    def _pass_rest(self) -> None:
        """Read what nobody wanted: a client that is cut off while it sends hears no answer."""
        self.server.allow_step(self.connection)  # for it all
        if self._is_asked_for and self._left <= _MOST_PASSED_BYTES:
            while self._left and self._step(_STEP_BYTES):
                pass
        if self._left:  # would be taken for the next request
            self.close_connection = True

    @staticmethod
    def _reason(answer: ArcAnswer) -> str:
        """What a client of ARC shows of an error: it prints the reason phrase, not the content."""
        if answer.status < HTTPStatus.BAD_REQUEST:
            return answer.status.phrase
        line = answer.content.decode().strip().replace("\n", " ")[:300]
        return "".join(char if " " <= char <= "~" else "?" for char in line)

    def log_message(self, format: str, *args: object) -> None:
        """Note a request."""
        log.debug("%s: %s", self.client_address[0], format % args)
