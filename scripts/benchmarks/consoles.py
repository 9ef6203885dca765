"""What open pages of the console cost a server, and those who ask it for work or for a page."""

from __future__ import annotations

import http.client
import json
import statistics
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus

import click

from gridbot_server.console.shared import POLL_SECONDS

from .harness.command import measurement, quick_option
from .harness.host_requests import QUICK, Size
from .harness.installation import BenchFailed, Installation
from .harness.load.closed_loop import percentile
from .harness.stages import COMMAND, POLICY, Server, prepared
from .harness.windows import OF_A_REQUEST, Row

_SIZE = Size(rounds=1, seconds=5.0, requests=10**9)
_PAGES = ("/health", "/login")  # those of who asks beside the consoles
_ASK_SECONDS = 0.05
_LAUNCH_SECONDS = 2 * POLL_SECONDS  # until all have asked, and been answered from memory
_FEW, _FEW_JOBS, _JOBS = 20, 20_000, 400_000


@measurement()
@click.option("--consoles", type=click.IntRange(1), default=500, show_default=True,
              help="Browsers, each with a session of its own.")  # fmt: skip
@click.option("--bots", type=click.IntRange(1), default=5, show_default=True,
              help="BOTs at whose pages they look.")  # fmt: skip
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True)
@click.option("--seconds", type=click.FloatRange(1), default=15.0, show_default=True,
              help="Of each measurement of pages.")  # fmt: skip
@quick_option()
def consoles(consoles: int, bots: int, rounds: int, seconds: float, quick: bool) -> list[Row]:
    """Pages and host requests beside 500 open consoles, and beside none, in turn."""
    if quick:
        consoles, bots, rounds, seconds = _FEW, 1, 1, 1.0
    size = QUICK if quick else _SIZE
    with prepared() as (place, known, load):
        policy = place.folder / "load.ad"
        policy.write_text(POLICY)
        jobs = ("--range", f"0:{(_FEW_JOBS if quick else _JOBS) // bots}", "--policy", str(policy))
        numbers = [place.submit(*jobs, "--", *COMMAND) for _ in range(bots)]
        stage = Server(place, load, known=known)
        stage.calm_down()
        crowd = _Crowd(place, [f"/bots/{numbers[n % bots]}" for n in range(consoles)])
        rows = [
            {**_measured(stage, crowd, size, seconds, is_open), "consoles": consoles * is_open}
            for _ in range(rounds)
            for is_open in (False, True)
        ]
    return [_compared(rows[::2], rows[1::2])]


def _measured(
    stage: Server, crowd: _Crowd, size: Size, seconds: float, is_open: bool
) -> dict[str, float]:
    if not is_open:
        return _figures(stage, crowd, size, seconds)
    with crowd.looking():
        return _figures(stage, crowd, size, seconds)


def _figures(stage: Server, crowd: _Crowd, size: Size, seconds: float) -> dict[str, float]:
    """Pages while no host asks, and then host requests."""
    stage.calm_down()
    before, polls = stage.meter.read(), crowd.polls
    times = _page_times(crowd.address, seconds)
    used = stage.meter.read().since(before)
    found = {
        "page_p50_ms": 1000 * percentile(times, 0.5),
        "page_p99_ms": 1000 * percentile(times, 0.99),
        "cores": sum(used.groups[name] for name in OF_A_REQUEST) / used.at,
        "polls_per_s": (crowd.polls - polls) / used.at,
    }
    asked = stage.measure(size.plan(stage.port)).row()
    return {**found, "server_us_per_rpc": asked["server_us_per_rpc"]}


def _compared(idle: Sequence[Row], beside: Sequence[Row]) -> Row:
    def ratio(name: str) -> object:
        return statistics.median(b[name] / a[name] for a, b in zip(idle, beside, strict=True))

    def median(rows: Sequence[Row], name: str) -> object:
        return statistics.median(row[name] for row in rows)

    return {
        "consoles": beside[0]["consoles"],
        "polls_per_s": median(beside, "polls_per_s"),
        "page_p50_ms": median(beside, "page_p50_ms"),
        "page_p99_ms": median(beside, "page_p99_ms"),
        "page_p99_to_idle": ratio("page_p99_ms"),
        "cpu_us_per_rpc_to_idle": ratio("server_us_per_rpc"),
        "cores": statistics.median(
            b["cores"] - a["cores"] for a, b in zip(idle, beside, strict=True)
        ),
        "rounds": len(beside),
    }


def _page_times(address: str, seconds: float) -> list[float]:
    """How long pages take that somebody asks for, one after the other."""
    until, times = time.monotonic() + seconds, list[float]()
    while time.monotonic() < until:
        for page in _PAGES:
            connection = http.client.HTTPConnection(address, timeout=30)
            began = time.perf_counter()
            connection.request("GET", page)
            answer = connection.getresponse()
            answer.read()
            times.append(time.perf_counter() - began)
            connection.close()
            if answer.status != HTTPStatus.OK:
                raise BenchFailed(f"{page} answers {answer.status}")
            time.sleep(_ASK_SECONDS)
    return sorted(times)


class _Crowd:
    """Browsers that are logged in, of which each keeps a page up to date."""

    def __init__(self, place: Installation, paths: Sequence[str]) -> None:
        self.address = place.url.removeprefix("http://")
        key = place.key_path.read_text().strip()
        self._browsers = [_Browser(self.address, key, path) for path in paths]
        self.polls = 0

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Open all pages, and let them ask as their script does."""
        over = threading.Event()
        thread = threading.Thread(target=self._look, args=(over,), daemon=True)
        thread.start()
        time.sleep(_LAUNCH_SECONDS)
        try:
            yield
        finally:
            over.set()
            thread.join()
            if not self.polls:
                raise BenchFailed("no page was answered")

    def _look(self, over: threading.Event) -> None:
        step, now = POLL_SECONDS / len(self._browsers), time.monotonic()
        agenda = deque((now + n * step, browser) for n, browser in enumerate(self._browsers))
        while True:
            due, browser = agenda.popleft()
            if over.wait(max(0.0, due - time.monotonic())):
                return
            browser.poll()
            self.polls += 1
            agenda.append((time.monotonic() + POLL_SECONDS, browser))


class _Browser:
    """A session, and the page that it shows."""

    def __init__(self, address: str, key: str, path: str) -> None:
        self._path = path
        self._connection = http.client.HTTPConnection(address, timeout=30)
        headers = {"Authorization": f"Bearer {key}"}
        link = json.loads(self._ask("POST", "/api/v1/console/links", headers)[1])["url"]
        entered, _ = self._ask(
            "GET", f"/enter/{link.partition('/enter/')[2]}", {"Sec-Fetch-Site": "none"}
        )
        cookie = (entered["Set-Cookie"] or "").partition(";")[0]
        self._headers = {"Cookie": cookie, "Accept": "text/html", "If-None-Match": ""}

    def poll(self) -> None:
        """Ask for what is new."""
        headers, _ = self._ask("GET", f"{self._path}?live", self._headers)
        self._headers["If-None-Match"] = headers["ETag"] or ""

    def _ask(
        self, method: str, path: str, headers: dict[str, str]
    ) -> tuple[http.client.HTTPMessage, bytes]:
        try:
            self._connection.request(method, path, headers=headers)
            answer = self._connection.getresponse()
        except (OSError, http.client.HTTPException):  # it was closed meanwhile, as browsers know
            self._connection.close()
            self._connection.request(method, path, headers=headers)
            answer = self._connection.getresponse()
        if answer.status >= HTTPStatus.BAD_REQUEST:
            raise BenchFailed(f"{path} answers {answer.status}")
        return answer.headers, answer.read()
