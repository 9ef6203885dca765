"""Pages of a server while peers begin requests whose bodies never come to an end."""

from __future__ import annotations

import http.client
import socket
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from urllib.parse import urlsplit

import click

from .harness.command import measurement, quick_option
from .harness.installation import Installation, installation
from .harness.windows import Row

PAGES = (
    "/health",
    "/boinc/",
    "/boinc/get_project_config.php",
    "/boinc/account",
    "/boinc/stats/",
)
# What is dripped: path, and the length that is announced.
TARGETS = (
    ("/boinc/scheduler", 4_000),
    ("/boinc/scheduler", 900_000),
    ("/boinc/file_upload_handler", 900_000),
    ("/boinc/account", 2_000),
    ("/rpc", 4_000),
    ("/rpc", 900_000),
    ("/api/v1/bots", 900_000),
    ("/api/v1/teams", 2_000),
)
_DRIP_SECONDS = 1.0


@measurement()
@click.option("--connections", type=click.IntRange(1), default=300, show_default=True)
@click.option("--seconds", type=click.FloatRange(1), default=30.0, show_default=True,
              help="Of the attack.")  # fmt: skip
@quick_option()
def drips(connections: int, seconds: float, quick: bool) -> list[Row]:
    """Times of pages while 300 connections drip a POST, a byte a second each."""
    with installation("--boinc-accounts") as place:
        rows = [_row("idle", connections=0, seconds=2.0, place=place)]
        seconds = 2.0 if quick else seconds
        for named, token in (
            ("strangers", ""),
            ("a user", place.settings.operator_key_path.read_text().strip()),
        ):
            with _dripping(place, connections, token):
                rows.append(_row(named, connections, seconds, place))
        return rows


def _row(named: str, connections: int, seconds: float, place: Installation) -> Row:
    until, times = time.monotonic() + seconds, {page: list[float]() for page in PAGES}
    while time.monotonic() < until:
        for page in PAGES:
            times[page].append(_seconds(place, page))
        time.sleep(0.1)
    found: Row = {"drips": named, "connections": connections}
    for page, seen in times.items():
        found[f"{page} p50 ms"] = round(1e3 * statistics.median(seen), 1)
        found[f"{page} most ms"] = round(1e3 * max(seen), 1)
    return found


def _seconds(place: Installation, page: str) -> float:
    """How long a page takes on a connection of its own; 99 if it fails."""
    address, began = urlsplit(place.url), time.monotonic()
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=30)
    try:
        connection.request("GET", page)
        answer = connection.getresponse()
        answer.read()
        is_good = answer.status == http.HTTPStatus.OK
    except OSError:
        is_good = False
    finally:
        connection.close()
    return time.monotonic() - began if is_good else 99.0


@contextmanager
def _dripping(place: Installation, connections: int, token: str) -> Iterator[None]:
    """Keep so many connections open that send a byte a second; one that is closed is replaced."""
    over = threading.Event()
    with ExitStack() as stack:
        thread = threading.Thread(target=_drip, args=(place, connections, token, over))
        thread.start()
        stack.callback(thread.join)
        stack.callback(over.set)
        time.sleep(1)
        yield


def _drip(place: Installation, connections: int, token: str, over: threading.Event) -> None:
    address = urlsplit(place.url)
    socks: list[socket.socket | None] = [None] * connections
    while not over.wait(_DRIP_SECONDS):
        for number, sock in enumerate(socks):
            try:
                if sock is None:
                    path, length = TARGETS[number % len(TARGETS)]
                    sock = socket.create_connection((address.hostname, address.port), timeout=5)
                    sock.sendall(_head(path, length, token))
                    socks[number] = sock
                sock.sendall(b"x")
            except OSError:
                if sock is not None:
                    sock.close()
                socks[number] = None
    for sock in filter(None, socks):
        sock.close()


def _head(path: str, length: int, token: str) -> bytes:
    lines = [
        f"POST {path} HTTP/1.1", "Host: here", f"Content-Length: {length}",
        "Content-Type: application/x-www-form-urlencoded",
    ]  # fmt: skip
    if token:
        lines.append(f"Authorization: Bearer {token}")
    return "\r\n".join([*lines, "", ""]).encode()
