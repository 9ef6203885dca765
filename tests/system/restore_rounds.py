"""The command behind scripts/restore: an old backup is restored under clients that work on."""

from __future__ import annotations

import json
import os
import secrets
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import click
from tests.system import crashes
from tests.system.crashes import JOBS, Load
from tests.system.deployment import Deployment, deployment, eventually

PATIENCE_SECONDS = 300.0  # a real client may wait so long after an outage
_JOB_SECONDS = (2.0, 3.5)  # of clients that are nothing but requests


@click.command()
@click.option("--clients", type=click.IntRange(1), default=50, show_default=True,
              help="Clients that are nothing but requests.")  # fmt: skip
@click.option("--processes", type=click.IntRange(0), default=4, show_default=True,
              help="Clients beside them that are processes and run the jobs.")  # fmt: skip
@click.option("--minutes", type=click.FloatRange(0), default=60.0, show_default=True,
              help="Age of the backup when it is restored.")  # fmt: skip
@click.option("--seed", type=int, help="Repeat an earlier run's choices.")
@click.option("--json", "as_json", is_flag=True, help="Print one document.")
def command(clients: int, processes: int, minutes: float, seed: int | None, as_json: bool) -> None:
    """Exit code 1 if a client stays away, a job ends wrongly, or an invariant breaks.

    A server is backed up under load, works on, and is restored, while its clients go on.  Half of
    the clients join after the backup.
    """
    seed = secrets.randbelow(10**6) if seed is None else seed
    with deployment() as server:
        server.configure(buffer_slots=1024)
        server.start()
        crowd = Crowd(server, clients, processes)
        document = restore_under_load(crowd, seed, _JOB_SECONDS, lambda _: time.sleep(60 * minutes))
    print(json.dumps(document, default=str) if as_json else _sentence(document))
    sys.exit(1 if document["broken"] else 0)


@dataclass(frozen=True)
class Crowd:
    """How many clients a server gets; of each kind, half join after the backup."""

    server: Deployment
    bare: int  # nothing but requests
    processes: int

    @property
    def size(self) -> int:
        return self.bare + self.processes

    def join(self, load: Load, share: Callable[[int], range]) -> None:
        """Let a share of all clients join, with a key that is nowhere afterwards."""
        load.join(share(self.bare))
        self._start(share(self.processes))

    def _start(self, numbers: Iterable[int]) -> None:
        homeless = {"HOME": str(self.server.folder / "home"), "PATH": os.environ["PATH"]}
        key = self.server.file("own.key", self.server.operator_key)
        for number in numbers:
            data = str(self.server.folder / f"real{number}")
            self.server.run(
                "client", "join", self.server.url, "--key-file", str(key), "--data", data
            )
            self.server.client(f"real{number}", "--cpus", "1", env=homeless)
        key.unlink()

    def joined(self) -> int:
        """How many clients the server knows."""
        return int(self.server.rows("SELECT count(*) FROM client")[0][0])

    def have_come(self, since: float) -> bool:
        """Whether all made a request since then."""
        query = "SELECT count(*) FROM client WHERE seen_at > to_timestamp(%s)"
        return bool(self.server.rows(query, since) == [(self.size,)])


def early(count: int) -> range:
    """Of so many clients, those that join before the backup."""
    return range(count // 2)


def late(count: int) -> range:
    """Those that join after it."""
    return range(count // 2, count)


def restore_under_load(
    crowd: Crowd, seed: int, job_seconds: tuple[float, float], grow_old: Callable[[Load], object]
) -> dict[str, Any]:
    """Back up, let the backup grow old, restore it, let the load end, and say what was found.

    No submission crosses backup or restore.
    """
    server = crowd.server
    with crashes.loaded(server, seed, 0, job_seconds) as load:
        crowd.join(load, early)
        eventually(lambda: load.acknowledged, what="a first report")
        archive = str(server.folder / "backup.tar")
        with load.submitting:
            kept = set(load.submitted)
            server.run("server", "backup", archive, "--data", str(server.data))
        backed_up_at = time.time()
        crowd.join(load, late)
        eventually(lambda: crowd.have_come(backed_up_at), PATIENCE_SECONDS, "all clients")
        grow_old(load)
        with load.submitting:
            epoch, lost = _epoch(server), set(load.submitted) - kept
            server.run("server", "stop", "--data", str(server.data))
            stopped_at = time.time()
            server.run("server", "restore", archive, "--data", str(server.data))
            server.start()
        healthy_at = time.time()
        eventually(lambda: crowd.have_come(stopped_at), PATIENCE_SECONDS, "all clients")
        back_at = time.time()
        load.drain()
    return _judged({
        "seed": seed,
        "clients": crowd.size,
        "joined": crowd.joined(),
        "backup_age_seconds": stopped_at - backed_up_at,
        "restore_seconds": healthy_at - stopped_at,
        "back_seconds": back_at - healthy_at,
        "bots_kept": len(kept),
        "bots_lost": len(lost),
        **_left(server, load, kept, lost, _epoch(server)),
        "is_new_epoch": _epoch(server) != epoch,
        "violations": crashes.violations(server, idle=False),
    })  # fmt: skip


def _left(
    server: Deployment, load: Load, kept: set[int], lost: set[int], epoch: int
) -> dict[str, Any]:
    """What is there of a load whose server was restored: BOTs that were lost are not."""
    there = {bot for (bot,) in server.rows("SELECT id FROM bot")}
    wrong = [job for job in crashes.wrong_outcomes(server, load) if job[0] in there]
    since = {name for name, told in load.acknowledged.items() if told == epoch and name[0] in there}
    missing = since.intersection(crashes.lost_reports(server, load))
    return {
        "bots_missing": sorted(kept - there),
        "numbers_used_again": sorted(lost & there),
        "jobs": len(there) * JOBS,
        "jobs_without_one_right_outcome": wrong,
        "reports_acknowledged_before": len(load.acknowledged) - len(since),
        "reports_acknowledged": len(since),
        "reports_lost": sorted(missing),
    }


def _judged(found: dict[str, Any]) -> dict[str, Any]:
    """Add whether anything is not as it must be."""
    bad = ("bots_missing", "numbers_used_again", "violations")
    is_good = found["joined"] == found["clients"] and found["is_new_epoch"]
    is_broken = not is_good or not crashes.is_whole(found) or any(found[name] for name in bad)
    return {**found, "broken": is_broken}


def _sentence(found: dict[str, Any]) -> str:
    return (
        f"seed {found['seed']}; backup {found['backup_age_seconds']:.0f} s old, restored in"
        f" {found['restore_seconds']:.0f} s, {found['clients']} clients back after"
        f" {found['back_seconds']:.0f} s more, {found['joined']} joined;"
        f" {found['bots_kept']} BOTs kept, {len(found['bots_missing'])} missing,"
        f" {found['bots_lost']} lost, {len(found['numbers_used_again'])} of their numbers used"
        f" again; since then {crashes.sentence_of(found)};"
        f" {len(found['violations'])} invariants broken"
    )


def _epoch(server: Deployment) -> int:
    """What the server tells everybody."""
    said = json.loads(server.run("server", "status", "--json", "--data", str(server.data)))
    return int(said["health"]["epoch"])
