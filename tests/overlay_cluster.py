"""A cluster and a server for the constructor to work between: programs on PATH, and HTTP.

`python -m tests.overlay_cluster FOLDER URL NOW` does one round, to be killed in it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from gridbot.api.connection import Connection
from gridbot_client.net.discovery import Endpoint
from gridbot_overlay.act.acts import DryActs, RealActs
from gridbot_overlay.act.constructor import Constructor
from gridbot_overlay.act.dependencies import Dependencies
from gridbot_overlay.act.server import Server
from gridbot_overlay.act.store import PilotStore
from gridbot_overlay.act.workers import GridWorkers
from gridbot_overlay.decide.construct import Plan
from gridbot_overlay.decide.model import Grid, GridLimits, Pilot
from gridbot_overlay.pilot.artefact import Artefact
from gridbot_overlay.pilot.pins import PilotPins
from gridbot_overlay.submitters import KINDS

FAKE = Path(__file__).parent / "fakes/bin/slurm"
COMMANDS = ("sbatch", "squeue", "scancel", "scontrol")


def bot(**changes: Any) -> dict[str, Any]:
    """A BOT's line of the server's answer."""
    return {
        "bot": 1,
        "name": "b",
        "owner": "ann",
        "is_operator": True,
        "share": 1.0,
        "unsent": 5,
        "dedicated": 0,
        "on_pilots": {},
        "seconds": None,
        "run_seconds": None,
        "cut_off_seconds": None,
        "cpus": 1,
        "memory_mb": 100,
        "gpus": 0,
        "policy": "",
        "ad": {"Id": 1},
        **changes,
    }


class Api(ThreadingHTTPServer):
    """The server's answers; `kill_at` counts requests down to the one whose sender dies."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.bots: list[dict[str, Any]] = [bot()]
        self.pilots: list[dict[str, Any]] = []
        self.keys: dict[int, dict[str, Any]] = {}
        self.revoked: set[int] = set()
        self.ended: list[str] = []
        self.offered: list[str] = []
        self.refusals: dict[str, dict[str, str]] = {}
        self.grids: dict[str, dict[str, Any]] = {}
        self.drained: dict[str, str] = {}
        self.orders: list[dict[str, Any]] = []
        self.heard = 0
        self.logs: dict[str, dict[str, Any]] = {}
        self.kill_at: int | None = None
        self.victim: int | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def answer(self, method: str, path: str, body: Any) -> dict[str, Any]:
        match method, path.partition("?")[0].split("/")[3:]:
            case "GET", ["overlay", "demand"]:
                return {"bots": self.bots, "queue": {"BOTsInQueue": len(self.bots)}}
            case "GET", ["overlay", "pilots"]:
                return {"pilots": self.pilots}
            case "POST", ["overlay", "tokens"]:
                number = len(self.keys) + 1
                self.keys[number] = body
                return {"id": number, "token": f"key {number}"}
            case "POST", ["overlay", "tags"]:
                good = {key["tag"]: number for number, key in self._good_keys()}
                return {"keys": {tag: good[tag] for tag in body["tags"] if tag in good}}
            case "GET", ["overlay", "demand", "version"]:
                return {"version": str(len(self.bots))}
            case "POST", ["overlay", "logs"]:
                self.logs |= {log["pilot"]: log for log in body["logs"]}
                return {"logs": len(body["logs"])}
            case "POST", ["overlay", "refusals"]:
                self.refusals = body["bots"]
                return {"bots": len(body["bots"])}
            case "POST", ["overlay", "grids"]:
                self.grids, self.drained = body["grids"], body["drained"]
                self.heard = body["heard"]
                return {"grids": len(body["grids"])}
            case "GET", ["grids", "orders"]:
                after = int(parse_qs(urlsplit(path).query)["after"][0])
                return {"orders": [item for item in self.orders if item["number"] > after]}
            case "GET", ["signing"]:
                return {"owner": "ops", "project": "0" * 64, "project_key": "0" * 64, "keys": []}
            case "POST", ["signing", "keys"]:
                return {"owner": "ops", "project": "0" * 64, "project_key": "0" * 64, "keys": []}
            case "DELETE", ["tokens", number]:
                self.revoked.add(int(number))
                return {}
            case "POST", ["overlay", "pilots", "ended"]:
                self.ended += body["pilots"]
                return {"replicas": 0}
            case _:
                raise AssertionError(f"{method} {path} is not of this API")

    def _good_keys(self) -> Iterator[tuple[int, dict[str, Any]]]:
        return ((number, key) for number, key in self.keys.items() if number not in self.revoked)

    def strike(self) -> None:
        """Kill the sender of the request that was chosen."""
        if self.kill_at is not None and self.victim is not None:
            self.kill_at -= 1
            if self.kill_at == 0:
                os.kill(self.victim, signal.SIGKILL)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Api

    def _answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length) or "null")
        answer = json.dumps(self.server.answer(self.command, self.path, body)).encode()
        self.server.strike()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def do_HEAD(self) -> None:
        """Claim to have what is offered, so that nobody sends it."""
        self.server.offered.append(self.path.partition("?")[0].rpartition("/")[2])
        self.send_response(200)
        self.send_header("Upload-Complete", "?1")
        self.end_headers()

    do_GET = do_POST = do_DELETE = _answer

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def serving() -> Iterator[Api]:
    """Run the stand-in for the server."""
    api = Api()
    thread = threading.Thread(target=api.serve_forever, daemon=True)
    thread.start()
    try:
        yield api
    finally:
        api.shutdown()
        thread.join()
        api.server_close()


class Cluster:
    """The fake Slurm of one folder."""

    def __init__(self, folder: Path) -> None:
        self.bin = folder / "bin"
        self.bin.mkdir()
        for command in COMMANDS:
            (self.bin / command).symlink_to(FAKE)

    def fail(self, command: str, moment: str) -> None:
        (self.bin / "fault").write_text(f"{command} {moment}")

    def work(self) -> None:
        """Take no more faults."""
        (self.bin / "fault").unlink(missing_ok=True)

    @property
    def jobs(self) -> list[dict[str, str]]:
        path = self.bin / "jobs.json"
        return list(json.loads(path.read_text())) if path.exists() else []

    def put(self, jobs: list[dict[str, str]]) -> None:
        (self.bin / "jobs.json").write_text(json.dumps(jobs))

    def set_all(self, state: str) -> None:
        self.put([{**job, "state": state} for job in self.jobs])

    @property
    def live(self) -> list[str]:
        return [job["id"] for job in self.jobs if job["state"] in ("PENDING", "RUNNING")]


GRID = Grid(name="ice", kind="slurm", limits=GridLimits(max_queued=100, submits_per_minute=1000))


@dataclass
class Round:
    """One round that was done, and what was said in it."""

    plan: Plan
    pilots: list[Pilot]
    said: list[str]


def a_round(folder: Path, url: str, now: float, *grids: Grid, dry: bool = False) -> Round:
    """Do one round on what the folder remembers."""
    with rounds(folder, url, *grids, dry=dry) as one:
        return one(now)


@contextmanager
def rounds(
    folder: Path, url: str, *grids: Grid, dry: bool = False, patience_seconds: float = 10.0
) -> Iterator[Callable[[float], Round]]:
    """Give what does one round of a constructor that goes on living."""
    store, said = PilotStore.open(folder), list[str]()
    used = store.copy() if dry else store
    named = {grid.name: grid for grid in grids or (GRID,)}
    connection = Connection(Endpoint(url, "operator's key"))
    deps = Dependencies(
        grids=named,
        submitters={
            name: KINDS[grid.kind](grid, folder / "grids" / name) for name, grid in named.items()
        },
        server=Server(connection),
        pins=PilotPins("0" * 64, ("1" * 64,)),
        store=used,
        say=said.append,
        workers=GridWorkers(patience_seconds),
    )
    artefact = Artefact(folder / "pilot.zip", "0" * 64, 0)
    constructor = Constructor(deps, DryActs(deps.say) if dry else RealActs(deps, artefact))

    def one(now: float) -> Round:
        said.clear()
        planned = constructor.run_once(now)
        pilots = [pilot for name in named for pilot in used.pilots(name, 0)]
        return Round(planned, pilots, list(said))

    try:
        yield one
    finally:
        connection.close()
        store.close()


if __name__ == "__main__":
    a_round(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]))
