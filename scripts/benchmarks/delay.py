"""Short jobs on one client that is far from its server: no core is to wait for a round trip."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import click

from .harness.command import measurement, quick_option
from .harness.installation import free_port, installation
from .harness.windows import Row
from .peer_systems import PROGRAMS

COLUMNS = {
    "round trip ms": ["round_trip_ms"],
    "work": ["work"],
    "s": ["seconds"],
    "ms each": ["ms_each"],
    "to ideal": ["to_ideal"],
}
_COUNTS = {"true": 1000, "sleep": 300}
_IDEAL_SECONDS = {"sleep": 0.1}  # of one job
_PATIENCE_SECONDS = 600.0
_CPUS = 2


@measurement(COLUMNS)
@click.option("--round-trip", type=click.IntRange(0), multiple=True, default=(0, 100, 200),
              show_default=True, help="Further ms of each request; may be repeated.")  # fmt: skip
@quick_option("A tenth of the work.")
def delay(round_trip: tuple[int, ...], quick: bool) -> list[Row]:
    """1,000 x `true` and 300 x `sleep 0.1` on two slots, with longer and longer round trips."""
    rows = []
    with installation() as place, place.session() as session:
        for milliseconds in round_trip:
            with _far(place.url, milliseconds / 2000) as url:
                name = f"far-{milliseconds}"
                place.start_client(name, "--cpus", str(_CPUS), "--server", url)
                session.submit("true").wait(timeout=_PATIENCE_SECONDS)
                for work, count in _COUNTS.items():
                    jobs = count // 10 if quick else count
                    began = time.perf_counter()
                    session.submit(PROGRAMS[work], range(jobs)).wait(timeout=_PATIENCE_SECONDS)
                    seconds = time.perf_counter() - began
                    rows.append(_row(milliseconds, work, jobs, seconds))
                place.kill_client(name)
    return rows


def _row(milliseconds: int, work: str, jobs: int, seconds: float) -> Row:
    ideal = _IDEAL_SECONDS.get(work)
    return {
        "round_trip_ms": milliseconds,
        "work": f"{jobs} x {work}",
        "seconds": seconds,
        "ms_each": 1000 * seconds / jobs,
        "to_ideal": None if ideal is None else seconds * _CPUS / (jobs * ideal),
    }


@contextmanager
def _far(url: str, seconds: float) -> Iterator[str]:
    """A server's other address, at which all bytes take so many seconds more each way."""
    target, port = urlsplit(url), free_port()
    loop = asyncio.new_event_loop()

    async def meet(near: asyncio.StreamReader, answers: asyncio.StreamWriter) -> None:
        far, asks = await asyncio.open_connection(target.hostname, target.port)
        await asyncio.gather(_carry(near, asks, seconds), _carry(far, answers, seconds))

    loop.run_until_complete(asyncio.start_server(meet, "127.0.0.1", port))
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


async def _carry(
    source: asyncio.StreamReader, target: asyncio.StreamWriter, seconds: float
) -> None:
    """Pass bytes on later, in their order, until there are no more."""
    loop = asyncio.get_running_loop()
    try:
        while data := await source.read(1 << 16):
            loop.call_later(seconds, target.write, data)
    except ConnectionError:
        pass
    loop.call_later(seconds, target.close)
