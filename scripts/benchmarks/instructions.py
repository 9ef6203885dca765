"""Two commits beside each other: what a host request makes the web process and PostgreSQL do.

Whatever else the machine does, a process executes the same instructions.  So they are counted, by
valgrind's callgrind, and not timed: an engine of each commit (`harness/counted.py`) serves whole
batches on a database and a scheduling buffer that a server of its commit has filled, and that
nobody else uses any more.  What PostgreSQL does for such batches, it counts itself; both engines
take turns, so that its times may be compared, too.
"""

from __future__ import annotations

import pickle
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

import click

from gridbot_server.supervision.lock_file import forget

from .compare import base_python, join_hosts
from .harness import counted
from .harness.command import measurement, several
from .harness.installation import CHECKOUT, BenchFailed, Installation, installation
from .harness.load import native_hosts
from .harness.load.native_hosts import Host
from .harness.stages import Stock
from .harness.statements import Cost, CountingPostgres, counting_postgres
from .harness.windows import Row

COLUMNS = {
    "base": ["base"],
    "jobs": ["jobs_per_rpc"],
    "batch": ["batch"],
    "figure": ["figure"],
    "base, per request": ["base_per_rpc"],
    "new": ["new_per_rpc"],
    "change %": ["change_percent"],
}

_WARM_UP = 10  # batches: statements are prepared, and caches filled
_FILL_SECONDS = 120.0
_LOOK_SECONDS = 0.25
_COUNTED = re.compile(rb"^totals: (\d+)", re.MULTILINE)
# Threads of `counted.py`, by callgrind's numbers.
_THREADS = {1: "decode and render", 2: "engine"}

Cell = tuple[int, int]  # jobs per request, requests in a transaction


@measurement(COLUMNS)
@click.argument("base")
@several("--jobs-per-rpc", (1, 5, 20), "Jobs that a request asks for")
@several("--batch", (24,), "Requests in one transaction")
@click.option("--batches", type=click.IntRange(1), default=10, show_default=True,
              help="Of each size, in a round.")  # fmt: skip
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True,
              help="Of what PostgreSQL counts; instructions are the same in each.")  # fmt: skip
def instructions(
    base: str, jobs_per_rpc: Sequence[int], batch: Sequence[int], batches: int, rounds: int
) -> list[Row]:
    """Instructions of a host request, and what PostgreSQL does for it, beside the commit BASE."""
    if shutil.which("valgrind") is None:
        raise BenchFailed("valgrind is not installed: apt-get install valgrind")
    cells = [(jobs, size) for jobs in jobs_per_rpc for size in batch]
    jobs = (rounds + 2) * sum(want * size * (batches + _WARM_UP) for want, size in cells)
    pythons = {"base": base_python(CHECKOUT, base), "new": sys.executable}
    with counting_postgres() as database, ExitStack() as stack:
        sides = [
            stack.enter_context(_side(database, name, python, jobs, max(batch)))
            for name, python in pythons.items()
        ]
        found = _of_postgresql(sides, database, cells, batches, rounds)
        for side in sides:
            side.count(cells, batches, found)
    return [
        {"base": base, "jobs_per_rpc": want, "batch": size, "figure": figure, **row(values)}
        for (want, size, figure), values in sorted(found.items())
    ]


@dataclass(slots=True)
class Figures:
    """What was found of both sides, round by round, for one request."""

    base: list[float] = field(default_factory=list)
    new: list[float] = field(default_factory=list)


Found = dict[tuple[int, int, str], Figures]


def row(found: Figures) -> Row:
    """The medians of both sides, and by how much the new one is higher."""
    base, new = statistics.median(found.base), statistics.median(found.new)
    return {
        "base_per_rpc": base,
        "new_per_rpc": new,
        "change_percent": 100 * (new / base - 1) if base else None,
    }


def counted_in(profile: bytes) -> int:
    """The instructions of a file that callgrind wrote; raises BenchFailed if it says none."""
    found = _COUNTED.search(profile)
    if found is None:
        raise BenchFailed("callgrind wrote a file without a sum")
    return int(found[1])


class _Counted:
    """A process of `counted.py`."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin
        assert process.stdout
        self._in: IO[bytes] = process.stdin
        self._out: IO[bytes] = process.stdout

    def ready(self) -> int:
        """How many first copies are in the buffer."""
        ready: int = self._ask(None)
        return ready

    def serve(self, requests: Sequence[bytes], *, mark: bool) -> list[bytes]:
        """Answer requests in one transaction; with `mark`, callgrind writes its counts then."""
        replies: list[bytes] = self._ask(tuple(requests) if mark else list(requests))
        return replies

    def _ask(self, message: object) -> Any:
        pickle.dump(message, self._in)
        self._in.flush()
        try:
            return pickle.load(self._out)
        except EOFError:
            raise BenchFailed("the engine ended; what it said is above") from None


@dataclass(frozen=True, slots=True)
class _Side:
    """One of the two commits: its database and buffer, and hosts that know each other."""

    name: str
    python: str
    dsn: str
    buffer: Path
    hosts: Sequence[Host]

    @contextmanager
    def process(self, *prefix: str) -> Iterator[_Counted]:
        """Run an engine, below another program."""
        command = [*prefix, self.python, counted.__file__, self.dsn, str(self.buffer)]
        with subprocess.Popen(
            command, env={"PYTHONHASHSEED": "0"}, cwd="/", start_new_session=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        ) as process:  # fmt: skip
            try:
                yield _Counted(process)
            except BaseException:
                process.kill()
                raise

    def serve(self, engine: _Counted, cell: Cell, batches: int) -> None:
        """Let hosts report what they got last and ask for more; mark the end."""
        want, size = cell
        hosts = self.hosts[:size]
        for left in reversed(range(batches)):
            replies = engine.serve([host.ask(want) for host in hosts], mark=not left)
            for host, reply in zip(hosts, replies, strict=True):
                if host.hear(reply) != want:
                    raise BenchFailed(f"a host was not given {want} jobs: {reply[:300]!r}")

    def count(self, cells: Sequence[Cell], batches: int, found: Found) -> None:
        """Count instructions of batches of each cell, a thread apart from the other."""
        with tempfile.TemporaryDirectory(prefix="gridbot-bench-") as name:
            folder = Path(name)
            with self.process(
                "valgrind", "--quiet", "--tool=callgrind", "--separate-threads=yes",
                "--dump-before=getloadavg", f"--callgrind-out-file={folder}/counted",
            ) as engine:  # fmt: skip
                for cell in cells:
                    self.serve(engine, cell, _WARM_UP)
                    before = set(folder.iterdir())
                    self.serve(engine, cell, batches)
                    self._note(set(folder.iterdir()) - before, cell, batches, found)

    def _note(self, files: set[Path], cell: Cell, batches: int, found: Found) -> None:
        want, size = cell
        for number, thread in _THREADS.items():
            (file,) = (path for path in files if path.name.endswith(f"-{number:02}"))
            figures = found.setdefault((want, size, f"instructions: {thread}"), Figures())
            getattr(figures, self.name).append(counted_in(file.read_bytes()) / (batches * size))


@contextmanager
def _side(
    database: CountingPostgres, name: str, python: str, jobs: int, hosts: int
) -> Iterator[_Side]:
    """Let a server of a commit fill a database and a buffer; both stay when it is killed."""
    dsn = database.create(name)
    settings = {"buffer_slots": jobs + jobs // 4}
    with installation("--dsn", dsn, python=python, settings=settings) as place:
        try:
            tokens, protocol = join_hosts(place, hosts)
            manifests: set[bytes] = set()
            known = [native_hosts.host(token, manifests, protocol) for token in tokens]
            side = _Side(name, python, dsn, place.settings.buffer_path, known)
            _fill(place, side, jobs)
            place.kill_server()
            yield side
        finally:
            forget(place.settings)


def _fill(place: Installation, side: _Side, jobs: int) -> None:
    with place.session() as session:
        Stock(place, session, 2 * jobs, jobs).fill()
    gives_up_at = time.monotonic() + _FILL_SECONDS
    with side.process() as engine:
        while (ready := engine.ready()) < jobs:
            if time.monotonic() > gives_up_at:
                raise BenchFailed(f"the buffer holds {ready} jobs of {jobs}")
            time.sleep(_LOOK_SECONDS)


def _of_postgresql(
    sides: Sequence[_Side], database: CountingPostgres, cells: Sequence[Cell], batches: int,
    rounds: int,
) -> Found:  # fmt: skip
    """What PostgreSQL counts for requests of each cell, in turn."""
    found: Found = {}
    with ExitStack() as stack:
        engines = [stack.enter_context(side.process()) for side in sides]
        pairs = list(zip(sides, engines, strict=True))
        for number in range(rounds):
            for cell in cells:
                for side, engine in pairs if number % 2 else pairs[::-1]:
                    side.serve(engine, cell, _WARM_UP)
                    before = database.cost(side.name)
                    side.serve(engine, cell, batches)
                    cost = database.cost(side.name).since(before)
                    _note_cost(side.name, cost, cell, batches, found)
    return found


def _note_cost(name: str, cost: Cost, cell: Cell, batches: int, found: Found) -> None:
    want, size = cell
    figures: Mapping[str, float] = asdict(cost)
    for figure, value in figures.items():
        both = found.setdefault((want, size, f"PostgreSQL: {figure}"), Figures())
        getattr(both, name).append(value / (batches * size))
