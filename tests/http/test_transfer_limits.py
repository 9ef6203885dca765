"""A client's transfers over real HTTP keep to what its owner allows, by a clock that is made up."""

from __future__ import annotations

import hashlib
import io
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.factories import lease_with_input, make_bot, make_lease
from tests.http.conftest import Person, Site
from tests.http.loopback import Wsgi, serve
from werkzeug.wsgi import ClosingIterator

from gridbot_client.net.allowance import TransferAllowance, TransferLimits
from gridbot_client.net.transport import ServerUnavailable, Transport
from gridbot_client.protocol.messages import Manifest, Output, ReplicaId

DATA = bytes(range(256)) * 1000
SHA256 = hashlib.sha256(DATA).hexdigest()
RATE = 10_000  # bytes per second


@dataclass
class Counted:
    """An application, and the bytes of content that it had moved at each time of a clock."""

    app: Wsgi
    now: float = 0.0
    moved: list[tuple[float, int]] = field(default_factory=list)

    def __call__(self, environ: dict, start_response: object) -> list[bytes]:  # type: ignore[type-arg]  # WSGI's
        with closing(ClosingIterator(self.app(environ, start_response))) as parts:
            answer = b"".join(parts)
        sent = int(environ.get("CONTENT_LENGTH") or 0)
        self.moved.append((self.now, sent + len(answer) if sent else len(answer)))
        return [answer]

    def wait(self, seconds: float) -> None:
        self.now += seconds

    def is_within(self, rate: float, burst: int) -> bool:
        """Whether at no time more has moved than a rate allows, but for one piece."""
        total = 0
        for at, count in self.moved:
            total += count
            if total > rate * at + burst:
                return False
        return True


def allowance(
    counted: Counted, limits: TransferLimits, kept: Path | None = None
) -> TransferAllowance:
    made = TransferAllowance(kept, lambda: counted.now, lambda: "today", counted.wait)
    made.limits = limits
    return made


@pytest.fixture
def client(site: Site, alice: Person) -> Person:
    return site.client_of(alice)


def store(site: Site, alice: Person, client: Person) -> None:
    """Put the file on the server, and let the client need it."""
    address = f"/api/v1/blobs/{SHA256}?size={len(DATA)}&offset="
    for offset in range(0, len(DATA), 90_000):
        alice("PUT", f"{address}{offset}", data=DATA[offset : offset + 90_000])
    lease_with_input(site.conn, alice.id, client.id, DATA)


def test_a_download_keeps_to_its_rate_and_arrives_whole(
    site: Site, alice: Person, client: Person, tmp_path: Path
) -> None:
    store(site, alice, client)
    counted = Counted(site.app)
    limits = allowance(counted, TransferLimits({"down": RATE, "up": 1}))
    with serve(counted) as url, Transport(url, client.token, allowance=limits) as transport:
        transport.download(SHA256, len(DATA), tmp_path / "part")
    assert (tmp_path / "part").read_bytes() == DATA
    assert len(counted.moved) > 10
    assert counted.is_within(RATE, burst=2 * RATE)


def test_an_upload_keeps_to_its_rate_and_arrives_whole(
    site: Site, alice: Person, client: Person
) -> None:
    manifest = Manifest(alice.name, ("x",), outputs=("*",)).text()
    replica = ReplicaId(make_bot(site.conn, alice.id, manifest=manifest), 0, 0)
    make_lease(site.conn, replica, client.id)
    counted = Counted(site.app)
    limits = allowance(counted, TransferLimits({"up": RATE, "down": 1}))
    with serve(counted) as url, Transport(url, client.token, allowance=limits) as transport:
        transport.upload(replica, Output("out", SHA256, len(DATA)), io.BytesIO(DATA))
    assert site.conn.execute("SELECT size FROM output").fetchall() == [(len(DATA),)]
    assert len(counted.moved) > 10
    assert counted.is_within(RATE * 1.1, burst=3 * RATE)  # answers are counted, too


def test_what_is_left_of_a_days_amount_moves_and_the_rest_another_day(
    site: Site, alice: Person, client: Person, tmp_path: Path
) -> None:
    store(site, alice, client)
    counted, part = Counted(site.app), tmp_path / "part"
    limits = allowance(counted, TransferLimits(daily_bytes=100_000), tmp_path / "kept")
    with serve(counted) as url, Transport(url, client.token, allowance=limits) as transport:
        with pytest.raises(ServerUnavailable, match="the amount of this day is used up"):
            transport.download(SHA256, len(DATA), part)
        assert part.stat().st_size == 100_000
        again = TransferAllowance(tmp_path / "kept", today=lambda: "today")  # after a restart
        again.limits = limits.limits
        assert "used up" in again.obstacle()
        limits = allowance(counted, TransferLimits())
    with serve(counted) as url, Transport(url, client.token, allowance=limits) as transport:
        transport.download(SHA256, len(DATA), part)
    assert part.read_bytes() == DATA


def test_outside_network_hours_nothing_is_asked_of_the_server(tmp_path: Path) -> None:
    limits = TransferAllowance()
    limits.limits = TransferLimits(obstacle="network-hours: not at 12:00")
    with (
        Transport("http://127.0.0.1:1", "", allowance=limits) as transport,
        pytest.raises(ServerUnavailable, match="network-hours: not at 12:00"),
    ):
        transport.download(SHA256, len(DATA), tmp_path / "part")
    assert (tmp_path / "part").stat().st_size == 0


@pytest.mark.parametrize("length", ["0", str(len(DATA) + 1)])
def test_an_upload_that_is_led_to_send_nothing_or_too_much_ends(length: str) -> None:
    def app(environ: dict, start_response: Any) -> list[bytes]:  # type: ignore[type-arg]  # WSGI's
        if environ["REQUEST_METHOD"] == "HEAD":
            told = [("Upload-Offset", "0"), ("Upload-Complete", "?0"), ("Upload-Redirect", "?1")]
            start_response("200 OK", told)
        else:
            told = [("Location", f"http://{environ['HTTP_HOST']}/store"), ("Upload-Length", length)]
            start_response("307 Temporary Redirect", told)
        return []

    output = Output("out", SHA256, len(DATA))
    with (
        serve(app) as url,
        Transport(url, "token") as transport,
        pytest.raises(ServerUnavailable, match=f"a part of {length} bytes"),
    ):
        transport.upload(ReplicaId(1, 0, 0), output, io.BytesIO(DATA))
