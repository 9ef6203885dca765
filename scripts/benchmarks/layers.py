"""Where the CPU time of a host request goes: the engine in this process, on a server's database.

The same calls as a web process makes, without sockets; batches of one size, as if so many
requests had queued while the last transaction was committed.
"""

from __future__ import annotations

import cProfile
import pstats
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import click

from gridbot_server.api.rpc import UNCHECKED_BYTES
from gridbot_server.dispatch.engine import Engine, Queued
from gridbot_server.http import auth
from gridbot_server.web import fast_http

from .harness.command import measurement, quick_option
from .harness.host_requests import JOBS_PER_RPC
from .harness.load.closed_loop import Talk
from .harness.load.generator import Load, Plan
from .harness.stages import HOSTS, Stock, prepared
from .harness.usage import Meter
from .harness.windows import Row

_QUICK_REQUESTS = 500
_WARM_UP = 20  # batches
_SHOWN = 30  # functions


@measurement()
@click.option("--jobs-per-rpc", type=click.IntRange(1), default=JOBS_PER_RPC, show_default=True)
@click.option("--batch", type=click.IntRange(1), default=24, show_default=True,
              help="Requests in one transaction.")  # fmt: skip
@click.option("--requests", type=click.IntRange(100), default=6000, show_default=True)
@quick_option()
def layers(jobs_per_rpc: int, batch: int, requests: int, quick: bool) -> list[Row]:
    """Where the CPU time of a host request goes, by layer and by function."""
    requests = _QUICK_REQUESTS if quick else requests
    jobs = (requests * 2 + 2 * _WARM_UP * batch) * jobs_per_rpc
    with prepared(max(HOSTS, batch)) as (place, known, _), place.session() as session:
        Stock(place, session, 2 * jobs, jobs).fill()
        settings = place.settings
        roots = {name: pid for name, pid in place.servers().items() if name != "supervisor"}
        with closing(Engine(settings.dsn_or_embedded, settings.buffer_path)) as engine:
            plan = Plan(0, batch, jobs_per_rpc, 0.0, requests)
            bench = _Bench(engine, [Load().talk(plan, number) for number in range(batch)])
            bench.run(_WARM_UP)
            # First without the profiler, which takes time itself, mostly for short calls.
            row = _measured(bench, Meter(roots, known), requests // batch)
            row["profile_us"] = _profiled(bench, requests // batch)
    return [{"jobs_per_rpc": jobs_per_rpc, "batch": batch, **row}]


class _Bench:
    """Makes batches of requests; `spent` is the CPU time (s) of each layer so far."""

    def __init__(self, engine: Engine, talks: Sequence[Talk]) -> None:
        self._engine, self._talks = engine, talks
        self.spent: defaultdict[str, float] = defaultdict(float)
        self.profile: cProfile.Profile | None = None  # of the engine's own thread
        self.requests = 0

    def run(self, batches: int) -> None:
        """Make so many batches, one after the other."""
        for _ in range(batches):
            self._batch()

    def _batch(self) -> None:
        found: dict[int, Queued] = {}
        all_here = threading.Event()

        def tell(number: int, item: Queued) -> None:
            self._profile_here()
            found[number] = item
            if len(found) == len(self._talks):
                all_here.set()

        for number, talk in enumerate(self._talks):
            self._begin(talk.ask(), lambda item, number=number: tell(number, item))
        all_here.wait()
        for number, talk in enumerate(self._talks):
            talk.hear(self._reply(found[number]))
        self.requests += len(self._talks)

    def _begin(self, request: bytes, tell: Any) -> None:
        with self._spending("read the HTTP request"):
            plain = fast_http.read(request, UNCHECKED_BYTES)
            assert plain, "it is as plain as those of the load"
            token = auth.token_hash(plain.authorization)
        with self._spending("decode and queue"):
            self._engine.begin(token, request[plain.start : plain.size], tell)

    def _reply(self, item: Queued) -> bytes:
        with self._spending("render the reply"):
            return item.result().render()

    @contextmanager
    def _spending(self, layer: str) -> Iterator[None]:
        began = time.thread_time()
        yield
        self.spent[layer] += time.thread_time() - began

    def _profile_here(self) -> None:
        """Switch the profiler on, in the thread that calls this, if there is one to be used."""
        if self.profile is not None:
            self.profile.enable()
            self.profile = None


def _measured(bench: _Bench, meter: Meter, batches: int) -> Row:
    bench.spent.clear()
    bench.requests = 0
    before, own, here = meter.read(), time.process_time(), time.thread_time()
    bench.run(batches)
    own, here = time.process_time() - own, time.thread_time() - here
    used = meter.read().since(before)
    spent = {**bench.spent, "serve the batch": own - here}
    database = {f"PostgreSQL for {name}": value for name, value in used.backends.items()}
    return {
        "us_per_rpc": _per_rpc({**spent, **database}, bench.requests),
        "others_us_per_rpc": _per_rpc(
            {name: used.groups[name] for name in ("feeder", "daemons")}, bench.requests
        ),
    }


def _profiled(bench: _Bench, batches: int) -> Row:
    profile = bench.profile = cProfile.Profile(time.thread_time)
    bench.requests = 0
    bench.run(batches)
    stats: Any = pstats.Stats(profile)  # `stats.stats`: place -> calls, own time and more
    own = {_place(*place): found[2] for place, found in stats.stats.items()}
    most = dict(sorted(own.items(), key=lambda item: -item[1])[:_SHOWN])
    return _per_rpc(most, bench.requests)


def _place(file: str, line: int, function: str) -> str:
    path = "/".join(Path(file).parts[-2:])
    return f"{path}:{line} {function}" if line else function


def _per_rpc(seconds: dict[str, float], requests: int) -> Row:
    return {name: 1e6 * value / requests for name, value in seconds.items()}
