"""Load, and a killer of the server's processes: whatever dies, no acknowledged report is lost."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Any

import psutil
import psycopg
import requests
from tests.system.bare_client import BareClient
from tests.system.deployment import Deployment, eventually

from gridbot import Session
from gridbot.api.errors import ServerAway
from gridbot_client.protocol.messages import (
    Assignment,
    Output,
    ReplicaId,
    Report,
    WorkReply,
    WorkRequest,
    decode_reply,
    encode_request,
)
from gridbot_server.storage import invariants
from gridbot_server.storage.invariants import Violation
from gridbot_server.supervision.lock_file import child_records

RECOVERY_SECONDS = 120.0
JOBS = 400  # of one BOT
BACKLOG = 600  # unfinished jobs that there are at least, while the load lasts

# Of every kind of BOT there is always one at work.
KINDS: dict[str, dict[str, Any]] = {
    "plain": {"policy": "Concurrency = 16; Deadline = 4"},
    "quorum": {"policy": "Concurrency = 16; Deadline = 4", "quorum": 2},
    "copies": {
        "policy": "Concurrency = 16; Deadline = 4;"
        " ReplicationRequirements = Tail && NumberOfReplicas < 3",
    },
}


class Stopped(Exception):
    """The load is over."""


class Forgotten(Exception):
    """The server does not know the key of a request."""


@dataclass
class Load:
    """Clients of nothing but requests, and a scientist who keeps them busy; threads of one process.

    The clients take a job, "run" it at once, and now and then break a job or sit on one until its
    deadline has passed.  What was acknowledged is remembered, to be looked for in the end.  Each
    answer names the BOT that it is for, whatever number that has.
    """

    server: Deployment
    seed: int
    clients: int = 4
    job_seconds: tuple[float, float] = (0.01, 0.05)  # at least and at most
    acknowledged: dict[ReplicaId, int] = field(default_factory=dict)  # success -> server's epoch
    submitted: dict[int, str] = field(default_factory=dict)  # BOT -> its mark
    refusals: list[int] = field(default_factory=list)  # statuses; 0: no answer at all
    submitting: threading.Lock = field(default_factory=threading.Lock)  # held for each submission
    errors: list[BaseException] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _drain: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)
    _submitter: threading.Thread | None = None

    def start(self) -> None:
        """Let them begin."""
        with self.server.session() as scientist:
            self._submit(scientist)
        self.join(range(self.clients))
        self._submitter = self._run(self._keep_busy)

    def join(self, numbers: Iterable[int]) -> None:
        """Let clients of these numbers join."""
        for number in numbers:
            client = BareClient.join(self.server.url, self.server.operator_key, f"load{number}")
            player = _Player(self, client, random.Random(f"{self.seed}:{number}"))
            self._run(player.play)

    def drain(self) -> None:
        """Submit no more, and wait until every BOT is done."""
        self._drain.set()
        assert self._submitter is not None, "it was started"
        self._submitter.join()  # it may be about to submit a BOT, when all others are done
        left = "SELECT count(*) FROM bot WHERE state <> 'done'"
        eventually(lambda: self.server.rows(left) == [(0,)], 60, "the end of all BOTs")

    def stop(self) -> None:
        """End the threads; raise what went wrong in one of them."""
        self._stop.set()
        for thread in self._threads:
            thread.join()
        if self.errors:
            raise self.errors[0]

    def call(
        self, session: requests.Session, method: str, path: str, key: str, **body: object
    ) -> requests.Response:
        """Make a request again and again until the server answers it.  Raises Forgotten."""
        while not self._stop.is_set():
            status = 0
            with suppress(requests.RequestException):
                answer = session.request(
                    method,
                    self.server.url + path,
                    headers={"Authorization": f"Bearer {key}"},
                    timeout=20,
                    **body,  # type: ignore[arg-type]
                )
                if answer.ok:
                    return answer
                if answer.status_code == HTTPStatus.UNAUTHORIZED:
                    raise Forgotten
                assert answer.status_code >= 500, answer.text
                status = answer.status_code
            self.refusals.append(status)
            self._stop.wait(2 * self.job_seconds[1])  # slow clients make no storm
        raise Stopped

    def wait(self, seconds: float) -> None:
        """Sleep, unless the load is over."""
        self._stop.wait(seconds)

    def _run(self, play: Callable[[], None]) -> threading.Thread:
        def run() -> None:
            try:
                play()
            except Stopped:
                pass
            except BaseException as error:  # told to whoever waits for the threads
                self.errors.append(error)

        thread = threading.Thread(target=run, daemon=True)
        self._threads.append(thread)
        thread.start()
        return thread

    def _keep_busy(self) -> None:
        with requests.Session() as session, self.server.session() as scientist:
            while not (self._drain.is_set() or self._stop.is_set()):
                if self._backlog(session) < BACKLOG:
                    self._submit(scientist)
                self.wait(0.2)

    def _backlog(self, session: requests.Session) -> int:
        answer = self.call(session, "GET", "/api/v1/bots?state=running", self.server.operator_key)
        return sum(bot["jobs_left"] for bot in answer.json()["bots"])

    def _submit(self, scientist: Session) -> None:
        """Submit a BOT of each kind."""
        for name, options in KINDS.items():
            with self.submitting:
                self._submit_one(scientist, name, options)

    def _submit_one(self, scientist: Session, name: str, options: Mapping[str, Any]) -> None:
        """Submit a BOT; repeated for a lost reply, it is one BOT."""
        mark = uuid.uuid4().hex
        items = [answer(mark, seq) for seq in range(JOBS)]
        while not self._stop.is_set():
            try:
                bot = scientist.submit(
                    ["/bin/echo", "{}"],
                    items,
                    name=name,
                    idempotency_key=mark,
                    attempts=20,  # of replicas one in fifty fails or is late
                    max_replicas=40,
                    **options,
                )
            except ServerAway:
                self.wait(0.1)
            else:
                self.submitted[bot.id] = mark
                break


@dataclass
class _Player:
    """One client of the load."""

    load: Load
    client: BareClient
    random: random.Random
    holding: dict[ReplicaId, Assignment] = field(default_factory=dict)
    due: dict[ReplicaId, float] = field(default_factory=dict)  # monotonic seconds

    def play(self) -> None:
        """Ask, run, report, for ever."""
        with requests.Session() as session:
            while True:
                try:
                    reply = self._exchange(session)
                except Forgotten:
                    self._join_again(session)
                    continue
                self.load.wait(self._pause(reply))

    def _pause(self, reply: WorkReply) -> float:
        """Seconds until a job is done, or until there may be work again."""
        if self.due:
            pause = max(0.02, min(self.due.values()) - time.monotonic())
        else:
            pause = reply.next_request_seconds
        return min(pause, 4 * self.load.job_seconds[1])

    def _join_again(self, session: requests.Session) -> None:
        """Do as a client of a server that was restored: come with the receipt, not with a key."""
        path, body = self.client.again()
        joined = self.load.call(session, "POST", path, self.client.token, json=body)
        self.client.take_in(joined.json())

    def _exchange(self, session: requests.Session) -> WorkReply:
        reports = self._reports()
        request = self._request(reports)
        body = encode_request(request)
        answer = self.load.call(session, "POST", "/rpc", self.client.token, data=body)
        reply = decode_reply(answer.content)
        self._take(reply, reports)
        return reply

    def _reports(self) -> dict[ReplicaId, Report]:
        now = time.monotonic()
        ready = [name for name, due in self.due.items() if due <= now]
        return {name: self._report(self.holding[name]) for name in ready[:64]}

    def _report(self, item: Assignment) -> Report:
        if self.random.random() < 0.01:
            return Report(item.id, "error", "exit_nonzero", exit_code=1)
        return echo(item)

    def _request(self, reports: Mapping[ReplicaId, Report]) -> WorkRequest:
        holding = tuple(name for name in self.holding if name not in reports)
        return replace(self.client.request(8, tuple(reports.values())), holding=holding)

    def _take(self, reply: WorkReply, reports: Mapping[ReplicaId, Report]) -> None:
        acknowledged = [name for name in reply.acks if reports[name].how == "success"]
        self.load.acknowledged |= dict.fromkeys(acknowledged, reply.epoch)
        for name in (*reply.acks, *reply.abort):
            self.holding.pop(name, None)
            self.due.pop(name, None)
        for item in reply.assignments:
            self.holding[item.id] = item
            # One in a hundred is a laptop that is shut, and opened after the deadline.
            is_shut = self.random.random() < 0.01
            seconds = 6.0 if is_shut else self.random.uniform(*self.load.job_seconds)
            self.due[item.id] = time.monotonic() + seconds


def answer(mark: str, seq: int) -> str:
    """What a job of the BOT with this mark prints."""
    return f"{mark}.{seq}"


def echo(item: Assignment) -> Report:
    """What /bin/echo would have reported."""
    text = f"{item.args['i']}\n".encode()
    output = Output("stdout", hashlib.sha256(text).hexdigest(), len(text), text)
    return Report(item.id, "success", exit_code=0, wall_seconds=0.02, outputs=(output,))


@contextmanager
def loaded(
    server: Deployment, seed: int, clients: int = 4,
    job_seconds: tuple[float, float] = Load.job_seconds,
) -> Iterator[Load]:  # fmt: skip
    """Put a server under load."""
    load = Load(server, seed, clients, job_seconds)
    load.start()
    try:
        yield load
    finally:
        load.stop()


# ---------------------------------------------------------------------------- the killer


@dataclass(frozen=True)
class Recovery:
    """What was killed, and what came of it."""

    victim: str
    seconds: float  # until jobs were finished again
    violations: list[Violation]


def kill(server: Deployment, victim: str, chance: random.Random) -> Recovery:
    """Kill one of `VICTIMS`; wait until it is back and jobs are finished, and check."""
    began = time.monotonic()
    VICTIMS[victim](server, chance)
    finished = eventually(lambda: _finished(server), RECOVERY_SECONDS, "the database")
    eventually(lambda: _finished(server) > finished, RECOVERY_SECONDS, f"work after {victim}")
    return Recovery(victim, time.monotonic() - began, violations(server, idle=False))


def violations(server: Deployment, *, idle: bool) -> list[Violation]:
    """Which invariants do not hold."""
    with server.database() as conn:
        return invariants.check(conn, idle=idle)


def pids(server: Deployment) -> dict[str, int]:
    """The server's processes."""
    return {record.name: record.pid for record in child_records(server.settings)}


def _finished(server: Deployment) -> int:
    """One more than the jobs that have an outcome; 0 while the database is away."""
    with suppress(psycopg.OperationalError):
        return int(server.rows("SELECT 1 + sum(outcomes) FROM bot")[0][0])
    return 0


def _kill_child(name: str) -> Callable[[Deployment, random.Random], None]:
    def run(server: Deployment, _: random.Random) -> None:
        pid = pids(server)[name]
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: pids(server).get(name, pid) != pid, RECOVERY_SECONDS, f"a new {name}")

    return run


def _kill_worker(server: Deployment, chance: random.Random) -> None:
    master = psutil.Process(pids(server)["gunicorn"])
    workers = eventually(master.children, 30, "a web process")
    chance.choice(workers).kill()


def _kill_supervisor(server: Deployment, _: random.Random) -> None:
    """Its children go on serving; the next start takes over."""
    supervisor = server.supervisor
    assert supervisor is not None
    os.kill(supervisor, signal.SIGKILL)
    before = _finished(server)
    eventually(lambda: _finished(server) > before, 30, "work without a supervisor")
    server.start()


def _crash(server: Deployment, _: random.Random) -> None:
    """All at once, as in a power failure, and a new start."""
    server.crash()
    server.start()


# By name: how to kill it, and to start again what only a person starts.
VICTIMS: dict[str, Callable[[Deployment, random.Random], None]] = {
    "web process": _kill_worker,
    "gunicorn": _kill_child("gunicorn"),
    "feeder": _kill_child("feeder"),
    "daemons": _kill_child("daemons"),
    "postgresql": _kill_child("postgresql"),
    "supervisor": _kill_supervisor,
    "everything": _crash,
}
UNATTENDED = ("web process", "gunicorn", "feeder", "daemons", "postgresql")


# ------------------------------------------------------------------------------ the end


def lost_reports(server: Deployment, load: Load) -> list[ReplicaId]:
    """Return acknowledged successes that are not in the database.

    A replica that was called back because its job had an outcome may answer nevertheless.
    """
    kept = {
        ReplicaId(*row)
        for row in server.rows(
            "SELECT bot, seq, replica FROM ended WHERE how IN ('success', 'cancelled')"
        )
    }
    return sorted(load.acknowledged.keys() - kept)


def wrong_outcomes(server: Deployment, load: Load) -> list[tuple[int, int]]:
    """Return jobs of submitted BOTs without exactly the one right outcome."""
    right = {
        (bot, seq)
        for bot, seq, text in server.rows(
            "SELECT o.bot, o.seq, convert_from(p.content, 'UTF8') FROM outcome o"
            " JOIN output p ON (p.bot, p.seq, p.replica) = (o.bot, o.seq, o.canonical)"
        )
        if text == answer(load.submitted.get(bot, ""), seq) + "\n"
    }
    return sorted({(bot, seq) for bot in load.submitted for seq in range(JOBS)} - right)


def found_of(server: Deployment, load: Load) -> dict[str, Any]:
    """Return what is there of a load that has ended, and what is lost of it."""
    return {
        "jobs": len(load.submitted) * JOBS,
        "jobs_without_one_right_outcome": wrong_outcomes(server, load),
        "reports_acknowledged": len(load.acknowledged),
        "reports_lost": lost_reports(server, load),
    }


def is_whole(found: Mapping[str, Any]) -> bool:
    """Tell whether nothing is lost."""
    return not found["reports_lost"] and not found["jobs_without_one_right_outcome"]


def sentence_of(found: Mapping[str, Any]) -> str:
    """Say it in a line."""
    return (
        f"{found['jobs']} jobs, {len(found['jobs_without_one_right_outcome'])} without"
        f" their one right outcome; {found['reports_acknowledged']} reports acknowledged,"
        f" {len(found['reports_lost'])} lost"
    )
