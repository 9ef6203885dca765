"""A program of so many steps, a second each, that saves what it has, and what it cost in all."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

from tests.system.deployment import NO_COPIES, Deployment

from gridbot import checkpoint

# Each step takes the same CPU time and a second.  It notes its process, step and CPU time.
SOURCE = """
import json, os, sys, time
sys.path.insert(0, ".")
import checkpoint

steps, noted = int(sys.argv[1]), sys.argv[2]
state = checkpoint.load({"step": 0})
print("begins at", state["step"], flush=True)
while state["step"] < steps:
    begun = time.monotonic()
    sum(range(20_000_000))
    state["step"] += 1
    with open(noted, "a") as file:
        line = [os.getpid(), time.time(), state["step"], time.process_time()]
        file.write(json.dumps(line) + "\\n")
    print("step", state["step"], flush=True)
    checkpoint.progress(state["step"] / steps)
    time.sleep(max(0.0, begun + 1.0 - time.monotonic()))
    if checkpoint.is_due():
        checkpoint.save(state)
"""


@dataclass(frozen=True)
class Cost:
    """What a run took."""

    steps: int
    parts: int  # processes, one after the other
    again: int  # steps that were done once more
    cpu_seconds: float
    ideal_seconds: float  # one start, and each step once
    seconds: float
    oldest: int  # most steps by which a part began before the one before it had ended

    @property
    def ratio(self) -> float:
        """CPU time by that of a run without interruption."""
        return self.cpu_seconds / self.ideal_seconds

    def document(self) -> dict[str, float]:
        """All of it for JSON."""
        return {**asdict(self), "ratio": round(self.ratio, 3)}


@dataclass(frozen=True)
class Program:
    """The program as the only job of a BOT."""

    server: Deployment
    steps: int
    bot: int
    noted: Path
    begun: float

    def lines(self) -> list[tuple[int, float, int, float]]:
        """What it noted so far: process, time, step, CPU time of the process."""
        whole = self.noted.read_text().rpartition("\n")[0]
        return [tuple(json.loads(line)) for line in whole.splitlines()]

    def cost(self) -> Cost:
        """What it took to its end."""
        parts = list(_parts(self.lines()))
        cpu, again, steps, starts, oldest, done = 0.0, 0, list[float](), list[float](), 0, 0
        for part in parts:
            times = [line[3] for line in part]
            cpu += times[-1]
            starts.append(times[0])
            steps += [later - earlier for earlier, later in pairwise(times)]
            behind = max(0, done + 1 - part[0][2])
            again, oldest = again + behind, max(oldest, behind)
            done = part[-1][2]
        assert done == self.steps, f"it ended after step {done} of {self.steps}"
        ideal = sorted(starts)[len(starts) // 2] + sum(steps) / len(steps) * (self.steps - 1)
        return Cost(
            self.steps, len(parts), again, round(cpu, 2), round(ideal, 2),
            round(time.time() - self.begun), oldest,
        )  # fmt: skip


def submitted(server: Deployment, steps: int, every: str, name: str) -> Program:
    """Submit it; it is to save every so many seconds, and when it is asked to end."""
    noted = server.folder / f"{name}.noted"
    noted.touch()
    noted.chmod(0o666)
    source = server.file("steps.py", SOURCE)
    begun = time.time()
    bot = server.submit(
        "--checkpoint", "state.json", "--checkpoint-every", every, "--name", name, "--time", "2h",
        "--memory", "100MB",
        "--input", f"{source}=steps.py", "--input", f"{checkpoint.__file__}=checkpoint.py",
        "--", "python3", "steps.py", str(steps), str(noted), policy=NO_COPIES,
    )  # fmt: skip
    return Program(server, steps, bot, noted, begun)


def _parts(
    lines: list[tuple[int, float, int, float]],
) -> Iterator[list[tuple[int, float, int, float]]]:
    """The lines of each process; inside of a sandbox many have the same number."""
    part = list[tuple[int, float, int, float]]()
    for line in lines:
        if part and (line[0] != part[-1][0] or line[3] < part[-1][3]):
            yield part
            part = []
        part.append(line)
    if part:
        yield part
