"""The demo on one stage: a server, three clients, one BOT, two clients lost, one answer."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import tempfile
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from . import bot, grid, report
from .processes import DemoFailed, Processes
from .settings import Settings
from .story import say
from .study import Study, of_cross, of_families

_CLIENTS = ("client1", "client2", "client3")
_START_SECONDS = 60.0


@dataclass(frozen=True)
class Stage:
    """Where the data and the server are, and what is scanned."""

    data: Path
    url: str
    study: Study
    points: int

    @property
    def jobs(self) -> int:
        return self.points**2


def main(settings: Settings, checkout: Path) -> int:
    """Run the demo; return the exit code.  A failure keeps the data directory, for its logs."""
    began = time.monotonic()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    data = _data_directory()
    keep = settings.keep
    try:
        _perform(_stage(settings, data), checkout / "demo-out")
        install = settings.install_seconds or 0.0
        say("time", f"install {install:.1f} s, run {time.monotonic() - began:.1f} s")
        return 0
    except DemoFailed as failure:
        keep = True
        say("failed", str(failure))
        say("", f"read {failure.log or data / 'logs'}")
        return 1
    except KeyboardInterrupt:
        say("stopped", "and so is everything that was started")
        return 130
    finally:
        if keep:
            say("kept", str(data))
        else:
            shutil.rmtree(data, ignore_errors=True)


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


def _data_directory() -> Path:
    """Make the private folder; PostgreSQL, another user when we are root, passes through it."""
    data = Path(tempfile.mkdtemp(prefix="gridbot-demo-", dir="/tmp"))
    data.chmod(0o711)
    (data / "logs").mkdir(0o700)
    return data


def _stage(settings: Settings, data: Path) -> Stage:
    study = of_families(settings.fastlink) if settings.fastlink else of_cross()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return Stage(data, f"http://127.0.0.1:{port}", study, settings.points)


def _perform(stage: Stage, output: Path) -> None:
    """Scan on GridBot, stop everything, scan directly, compare, report."""
    _point_to(stage)
    with Processes(stage.data / "logs") as processes:
        _start(stage, processes)
        number = _submit(stage)
        say("console", f"{bot.link(number)} opens the BOT's page, once")
        shown = bot.follow(number, processes)
        say("replicas", bot.replicas(shown))
        lines = bot.lines(number, stage.url, stage.jobs)
    values = _compared(stage, lines)
    _present(stage, values, output)


def _point_to(stage: Stage) -> None:
    """Let everything we run see the demo's server in place of any that the user works with."""
    for name in [name for name in os.environ if name.startswith("GRIDBOT_")]:
        del os.environ[name]
    os.environ["GRIDBOT_SERVER"] = stage.url
    os.environ["GRIDBOT_DATA"] = str(stage.data / "server")


def _start(stage: Stage, processes: Processes) -> None:
    server = ["--data", str(stage.data / "server"), "--bind", stage.url.removeprefix("http://")]
    processes.start("server", bot.command("server", "start", "--foreground", *server))
    _wait_for_health(stage, processes)
    say("server", f"{stage.url}, its data in {stage.data}")
    for name in _CLIENTS:
        options = ["--data", str(stage.data / name), "--server", stage.url, "--cpus", "1"]
        # Each stands for a machine of its own: copies of a job never share a host.
        processes.start(name, bot.command("client", "run", *options), GRIDBOT_HOST_ID=name)
    say("clients", f"{len(_CLIENTS)} on this machine, one CPU each")


def _wait_for_health(stage: Stage, processes: Processes) -> None:
    give_up_at = time.monotonic() + _START_SECONDS
    while time.monotonic() < give_up_at:
        processes.check()
        with (
            contextlib.suppress(urllib.error.URLError, OSError),
            urllib.request.urlopen(f"{stage.url}/health", timeout=5),
        ):
            return
        time.sleep(0.2)
    raise DemoFailed(f"the server gave no answer for {_START_SECONDS:g} s", processes.log("server"))


def _submit(stage: Stage) -> int:
    items = stage.data / "grid.csv"
    grid.write_csv(items, stage.points)
    number = bot.submit(stage.study, items)
    template = " ".join(stage.study.command)
    say(
        "submit", f"BOT {number}: {stage.jobs} jobs `{template}`, Deadline = 20 ({bot.POLICY.name})"
    )
    return number


def _compared(stage: Stage, lines: list[str]) -> dict[grid.Pair, str]:
    """Return the likelihoods after comparing them with a run that knows nothing of GridBot."""
    try:
        values = report.likelihoods(lines)
    except ValueError as error:
        raise DemoFailed(str(error)) from None
    direct = report.likelihoods(stage.study.direct_lines(grid.pairs(stage.points)))
    different = report.differences(values, direct)
    if different:
        raise DemoFailed(f"{len(different)} values differ from the direct run; {different[0]}")
    say("check", f"all {len(values)} values equal the direct run, to the last printed digit")
    return values


def _present(stage: Stage, values: dict[grid.Pair, str], output: Path) -> None:
    scores = report.lod_scores(values)
    output.mkdir(exist_ok=True)
    table, picture = output / "lod.csv", output / "lod-surface.png"
    report.write_table(table, scores)
    report.draw(picture, scores, stage.study.title, stage.study.labels)
    (theta1, theta2), score = report.maximum(scores)
    say("answer", f"maximum LOD {score} at θ1 = {theta1}, θ2 = {theta2}")
    say("picture", f"{picture} (numbers: {table})")
