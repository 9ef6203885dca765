"""One measurement: the load runs, and the CPU time of all who serve it is read around it."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import IO, Any

from .installation import CHECKOUT, BenchFailed
from .load import generator as closed_loop
from .load.generator import Plan
from .usage import Meter, Usage

LOAD = "load"
# The CPU time of a request, as the targets count it: the load and the cycles stand apart.
OF_A_REQUEST = ("gunicorn", "postgresql", "feeder")
# What is told with its least and its greatest value beside the median.
SPREAD = ("rpc_per_s", "p99_ms", "server_us_per_rpc")

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Window:
    """What was seen in one measurement."""

    plan: Plan
    began_at: float  # s since 1970
    requests: int
    jobs: int
    empty: int  # requests that brought no job
    seconds: float
    p50_ms: float
    p99_ms: float
    cpu_seconds: float  # of the load generator
    used: Usage

    def row(self, cores: int = os.cpu_count() or 1) -> Row:
        """The figures as they are told."""
        cpu = {**self.used.groups, LOAD: self.cpu_seconds}
        per_rpc, ours = self._per_rpc(cpu), sum(cpu.values())
        return {
            "jobs_per_rpc": self.plan.jobs_per_rpc,
            "concurrency": self.plan.connections,
            "rpc_per_s": self.requests / self.seconds,
            "jobs_per_s": self.jobs / self.seconds,
            "p50_ms": self.p50_ms,
            "p99_ms": self.p99_ms,
            "cpu_us_per_rpc": per_rpc,
            "server_us_per_rpc": sum(per_rpc.get(name, 0.0) for name in OF_A_REQUEST),
            "postgresql_us_per_rpc": self._per_rpc(self.used.backends),
            "load_share": self.cpu_seconds / ours,
            "machine_share": ours / (cores * self.seconds),
            "others_share": max(0.0, self.used.busy - ours) / (cores * self.used.at),
            "empty_share": self.empty / self.requests,
        }

    def _per_rpc(self, seconds: Mapping[str, float]) -> dict[str, float]:
        return {name: 1e6 * value / self.requests for name, value in seconds.items()}


def median_row(rows: Sequence[Row]) -> Row:
    """The median of each figure, with the spread of those that are compared."""
    columns = {name: [row[name] for row in rows] for name in SPREAD}
    spread = {name: [min(column), max(column)] for name, column in columns.items()}
    return {**_medians(rows), "rounds": len(rows), "spread": spread}


def _medians(rows: Sequence[Mapping[str, Any]]) -> Row:
    return {name: _median([row[name] for row in rows]) for name in rows[0]}


def _median(values: Sequence[Any]) -> Any:
    if isinstance(values[0], Mapping):
        return _medians(values)
    # What tells the rows apart is the same in each round, and stays as it is.
    return values[0] if len(set(values)) == 1 else statistics.median(values)


def ratios(rows: Sequence[Row], to: Sequence[Row], name: str) -> Row:
    """A figure over that of what was measured just before or after, round by round."""
    found = [row[name] / other[name] for row, other in zip(rows, to, strict=True)]
    return {"median": statistics.median(found), "least": min(found), "most": max(found)}


class Generator:
    """A load generator's process, as `load/generator.py` and `load/open_loop.py` describe it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin
        assert process.stdout
        self._in: IO[str] = process.stdin
        self._out: IO[str] = process.stdout

    def measure(self, plan: Plan, meter: Meter) -> Window:
        """Carry a plan out; what its warm-up used is not counted."""
        self.tell(json.dumps(asdict(plan)))
        self.hear()
        before, began_at = meter.read(), time.time()
        self.tell("go")
        found = self.hear()
        return Window(plan, began_at, used=meter.read().since(before), **found)

    def tell(self, line: str) -> None:
        """Give it a line."""
        self._in.write(line + "\n")
        self._in.flush()

    def hear(self) -> dict[str, Any]:
        """Wait for its next answer; BenchFailed if that is an error."""
        line = self._out.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"error": "it ended"}
        if "error" in answer:
            raise BenchFailed(f"the load generator: {answer['error']}")
        return answer


@contextmanager
def generator(program: str = closed_loop.__name__) -> Iterator[Generator]:
    """Start a load generator; it ends with the block, whatever happens."""
    command = [sys.executable, "-m", program]
    process = subprocess.Popen(
        command, cwd=CHECKOUT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        yield Generator(process)
    finally:
        process.kill()
        process.communicate()
