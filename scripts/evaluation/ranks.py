"""The paper's Figure 7(a) on a real server, scaled 1:5: BOTs end in order of Rank."""

from __future__ import annotations

import csv
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import psutil
from rich.console import Console
from rich.table import Table

from gridbot import Bot, Session
from gridbot_server.buffer.buffer import SchedulingBuffer
from gridbot_server.settings import Settings
from scripts.benchmarks.harness.installation import (
    CHECKOUT,
    BenchFailed,
    Installation,
    installation,
)
from scripts.benchmarks.harness.table import commit, text
from scripts.benchmarks.harness.usage import cpu_seconds

from . import ranks_picture
from .ranking import Course, Order, levels, order

CONCURRENCY = 2  # replicas that one client holds: one runs, one waits behind it
_POLL_SECONDS = 1.0
_ROWS = 11  # of the table; the file has them all


@dataclass(frozen=True, slots=True)
class Plan:
    """What is run."""

    bots: int
    jobs: int
    clients: int
    job: str
    limit_seconds: float

    @property
    def in_flight(self) -> int:
        """The most jobs that all clients hold together."""
        return self.clients * CONCURRENCY


@dataclass(frozen=True, slots=True)
class Run:
    """What came of it."""

    plan: Plan
    courses: Sequence[Course]
    replicas: int
    inversions: int  # a BOT was passed over because its part of the buffer was dry
    cpu_ms_per_job: Mapping[str, float]

    @property
    def seconds(self) -> float:
        """From the start of the clients to the end of the last job."""
        return max(course.ended[-1] for course in self.courses)

    @property
    def orders(self) -> list[Order]:
        """The verdict at each level."""
        plan = self.plan
        return [order(self.courses, left, plan.in_flight) for left in levels(plan.jobs)]

    @property
    def figures(self) -> dict[str, Any]:
        """The run in numbers."""
        jobs = self.plan.bots * self.plan.jobs
        return {
            **asdict(self.plan),
            "concurrency": CONCURRENCY,
            "in_flight": self.plan.in_flight,
            "replicas": self.replicas,
            "makespan_seconds": self.seconds,
            "jobs_per_s": jobs / self.seconds,
            "inversions": self.inversions,
            "cpu_ms_per_job": self.cpu_ms_per_job,
        }


def run(plan: Plan) -> Run:
    """Queue all BOTs, then start the clients, and wait until all is done."""
    with installation() as place, place.session() as session:
        ranks = {_submit(place, plan, rank): rank for rank in range(1, plan.bots + 1)}
        servers = place.servers()
        used = cpu_seconds(servers)
        began = datetime.now(UTC)
        clients = [place.start_client(f"client{n}", "--cpus", "1") for n in range(plan.clients)]
        for left in _counting_down(place, session, plan):
            _progress(left, plan)
        jobs = plan.bots * plan.jobs
        spent = {name: now - used[name] for name, now in cpu_seconds(servers).items()}
        spent |= _clients_cpu(clients)
        bots = [session.bot(number) for number in ranks]
        courses = [_course(bot, ranks[bot.id], plan.jobs, began) for bot in bots]
        made = sum(bot.show().document["replicas"]["made"] for bot in bots)
        inversions = _inversions(place)
    per_job = {name: 1000 * seconds / jobs for name, seconds in spent.items()}
    return Run(plan, courses, made, inversions, per_job)


def _submit(place: Installation, plan: Plan, rank: int) -> int:
    policy = place.folder / f"rank{rank}.ad"
    policy.write_text(f"Rank = {rank};\nConcurrency = {CONCURRENCY};\n")
    jobs = ("--range", f"0:{plan.jobs}", "--", *plan.job.split())
    return place.submit("--name", f"rank {rank}", "--policy", str(policy), *jobs)


def _counting_down(place: Installation, session: Session, plan: Plan) -> Iterator[int]:
    """Yield how many jobs are left, until none is."""
    gives_up_at = time.monotonic() + plan.limit_seconds
    left = plan.bots * plan.jobs
    while left:
        yield left
        time.sleep(_POLL_SECONDS)
        place.check_clients()
        if time.monotonic() > gives_up_at:
            raise BenchFailed(f"{left} jobs are left after {plan.limit_seconds:g} s")
        left = sum(bot.jobs_total - bot.jobs_finished for bot in session.bots(limit=plan.bots))
    yield 0


def _progress(left: int, plan: Plan) -> None:
    if sys.stderr.isatty():
        total = plan.bots * plan.jobs
        click.echo(f"\r{total - left:,} of {total:,} jobs ", err=True, nl=left == 0)


def _course(bot: Bot, rank: int, jobs: int, began: datetime) -> Course:
    """When each job's first good replica ended, by the server's clock, which is ours."""
    ended: dict[int, float] = {}
    for replica in bot.logs():
        if replica["how"] == "success":
            moment = (datetime.fromisoformat(replica["ended_at"]) - began).total_seconds()
            ended[replica["seq"]] = min(moment, ended.get(replica["seq"], moment))
    if len(ended) != jobs:
        raise BenchFailed(f"bot {bot.id}: {len(ended)} of {jobs} jobs succeeded")
    return Course(rank, sorted(ended.values()))


def _clients_cpu(pids: Sequence[int]) -> dict[str, float]:
    """What the clients used themselves, and what the jobs used that they ran."""
    times = [psutil.Process(pid).cpu_times() for pid in pids]
    return {
        "clients": sum(item.user + item.system for item in times),
        "jobs": sum(item.children_user + item.children_system for item in times),
    }


def _inversions(place: Installation) -> int:
    buffer = SchedulingBuffer(Settings.load(place.data).buffer_path)
    try:
        return buffer.pulse()[2]
    finally:
        buffer.close()


# ------------------------------------------------------------------------------- presentation


def _rows(found: Run) -> list[dict[str, float]]:
    return [
        {
            "rank": course.rank,
            **{f"left_{left}": course.when_left(left) for left in levels(found.plan.jobs)},
        }
        for course in sorted(found.courses, key=lambda course: course.rank)
    ]


def _write(found: Run, out: Path) -> tuple[Path, Path]:
    out.mkdir(parents=True, exist_ok=True)
    rows, numbers, png = _rows(found), out / "figure7a.csv", out / "figure7a.png"
    with numbers.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: f"{value:.3f}".removesuffix(".000") for name, value in row.items()}
                         for row in rows)  # fmt: skip
    plan = found.plan
    title = f"{plan.bots} BOTs of {plan.jobs} jobs with Rank 1…{plan.bots}, {plan.clients} clients"
    time = "seconds since the clients started"
    ranks_picture.draw(png, found.courses, levels(plan.jobs), title, time)
    return numbers, png


def _print(found: Run, files: Sequence[Path]) -> None:
    console, rows = Console(), _rows(found)
    times = Table(title="seconds until so many jobs were left", title_justify="left")
    for name in rows[0]:
        times.add_column(name.replace("_", " "), justify="right")
    for row in rows[:: max(1, len(rows) // (_ROWS - 1))]:
        times.add_row(*map(text, row.values()))
    check = Table(title="does Rank decide?", title_justify="left")
    for name in ("jobs left", "Spearman", "pairs", "swapped", "beyond jobs in flight"):
        check.add_column(name, justify="right")
    pairs = len(rows) * (len(rows) - 1) // 2
    for item in found.orders:
        check.add_row(str(item.left), f"{item.spearman:.4f}", text(pairs), text(item.swapped),
                      text(item.unexplained))  # fmt: skip
    console.print(times, check)
    for name, value in found.figures.items():
        parts = value.items() if isinstance(value, Mapping) else [("", value)]
        for part, number in parts:
            console.print(f"{name.replace('_', ' ')} {part}".strip() + f": {text(number)}")
    console.print(*files, sep="\n", soft_wrap=True)


@click.command(context_settings={"show_default": True})
@click.option("--bots", type=click.IntRange(3), default=50)
@click.option("--jobs", type=click.IntRange(12), default=240, help="Jobs of each BOT.")
@click.option("--clients", type=click.IntRange(1, 64), default=8)
@click.option("--job", default="sleep 0.05", help="What each job runs.")
@click.option("--limit-seconds", type=click.FloatRange(1), default=1200.0)
@click.option("--out", type=click.Path(path_type=Path), default=CHECKOUT / "demo-out")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def ranks(
    bots: int, jobs: int, clients: int, job: str, limit_seconds: float, out: Path, as_json: bool
) -> None:
    """Run Figure 7(a) on a real server, scaled 1:5; fail when Rank did not decide."""
    try:
        found = run(Plan(bots, jobs, clients, job, limit_seconds))
    except BenchFailed as error:
        sys.exit(str(error))
    files = _write(found, out)
    if as_json:
        orders = [asdict(item) for item in found.orders]
        document = {"bench": "figure7a", "commit": commit(), "rows": _rows(found)}
        click.echo(json.dumps({**document, "orders": orders, **found.figures}))
    else:
        _print(found, files)
    sys.exit(any(item.unexplained for item in found.orders))
