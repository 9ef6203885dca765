"""The master: starts a server's processes in order, restarts those that die, stops them all."""

import json
import logging
import os
import queue
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

from gridbot_server.settings import Settings
from gridbot_server.storage.disk import write_atomically
from gridbot_server.storage.embedded import PostgresError
from gridbot_server.supervision.lock_file import (
    StartError,
    forget,
    health,
    records_path,
    refuse_taken_address,
    sign,
    take_over,
)
from gridbot_server.supervision.log_rotation import rotate_own
from gridbot_server.supervision.log_writer import LogKeeper
from gridbot_server.supervision.postgres import Postgres
from gridbot_server.supervision.processes import (
    Child,
    ProcessRecord,
    kill_group,
    last_lines,
    save_records,
    spawn,
    stop_group,
)

log = logging.getLogger(__name__)

FIRST_DELAY, LONGEST_DELAY = 0.2, 60.0  # seconds before a dead child starts again
STEADY_SECONDS = 60.0  # a child that stayed up so long has no past
START_SECONDS = 60.0  # until the server must answer, once its database does
SETTLE_SECONDS = 1.0  # all must have stayed up before the start counts as one
HOPELESS_DEATHS = 3  # of one child before the server ever answered


class _Quit(BaseException):
    """Somebody asked the supervisor to stop."""


def next_delay(previous: float, up_seconds: float) -> float:
    """Return how long a dead child waits (seconds), given its last wait and how long it lived."""
    if previous == 0 or up_seconds >= STEADY_SECONDS:
        return FIRST_DELAY
    return min(LONGEST_DELAY, 2 * previous)


@dataclass(slots=True)
class _Service:
    """A child and its life so far; times are monotonic seconds."""

    child: Child
    process: subprocess.Popen[bytes] | None = None
    record: ProcessRecord | None = None
    started_at: float = 0.0
    due_at: float = 0.0
    delay: float = 0.0
    deaths: int = 0

    def died(self, now: float) -> None:
        """Note a death and when to start again."""
        self.process = None
        self.deaths += 1
        self.delay = next_delay(self.delay, now - self.started_at)
        self.due_at = now + self.delay


class Supervisor:
    """Runs one server until it is told to stop; `lock` is what `take_lock` gave."""

    def __init__(
        self, settings: Settings, lock: int, children: Sequence[Child], database: Postgres | None
    ) -> None:
        self._settings = settings
        self._lock = lock
        self._children = children
        self._database = database
        self._services: list[_Service] = []
        self._logs = LogKeeper(settings.log)
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()

    def run(self, prepare: Callable[[Settings], None], on_healthy: Callable[[], None]) -> None:
        """Start everything, call `on_healthy`, keep it running until SIGTERM or SIGINT.

        `prepare` is called when the database answers and before anything uses it.  Raises
        StartError or PostgresError, with all stopped again, when the server never gets healthy.
        """
        self._listen_to_signals()
        sign(self._lock)
        try:
            take_over(self._settings)
            refuse_taken_address(self._settings)
            self._start_database()
            prepare(self._settings)
            self._start(self._children)
            self._await_health()
            self._announce()
            on_healthy()
            while True:
                delay = self._tend()
                if not self._keep_logs():
                    delay = 1.0 if delay is None else min(1.0, delay)
                self._sleep(delay)
        except _Quit:
            log.info("told to stop")
        finally:
            self._stop()

    def _listen_to_signals(self) -> None:
        def quit_once(_number: int, _frame: FrameType | None) -> None:
            _ignore_signals()
            raise _Quit

        signal.signal(signal.SIGTERM, quit_once)
        signal.signal(signal.SIGINT, quit_once)
        # A simple queue is the one that a signal handler may put into.
        signal.signal(signal.SIGCHLD, lambda _number, _frame: self._wake.put(None))

    def _start_database(self) -> None:
        if not self._database:
            return
        self._start([self._database.prepare()])
        process = self._services[0].process
        assert process
        try:
            self._database.wait_ready(process)
        except PostgresError as error:
            raise StartError(f"{error}; {self._log_ends('postgresql')}") from None

    def _start(self, children: Sequence[Child]) -> None:
        for child in children:
            service = _Service(child)
            self._services.append(service)
            self._spawn(service)

    def _spawn(self, service: _Service) -> None:
        def record(pid: int) -> None:
            now = datetime.now(UTC)
            service.record = ProcessRecord.of(service.child, pid, now, service.deaths)
            records = [known.record for known in self._services if known.record]
            save_records(records_path(self._settings), records)

        log.info("starting %s", service.child.name)
        service.started_at = time.monotonic()
        output = self._logs.pipe(service.child.name)
        try:
            service.process = spawn(service.child, output, record)
        finally:
            os.close(output)

    def _keep_logs(self) -> bool:
        """Whether somebody writes the logs; if not, that is tried again soon."""
        try:
            rotate_own(self._log("supervisor"))
            return self._logs.tend()
        except OSError as error:  # such as no memory: it may pass
            log.error("cannot keep the logs: %s", error)
            return False

    def _tend(self) -> float | None:
        """Reap the dead and start those that are due; return seconds until the next is."""
        for service in self._services:
            now = time.monotonic()
            if service.process:
                self._reap(service, now)
            elif now >= service.due_at:
                self._restart(service, now)
        waiting = [service.due_at for service in self._services if not service.process]
        return max(0.0, min(waiting) - time.monotonic()) if waiting else None

    def _reap(self, service: _Service, now: float) -> None:
        assert service.process
        if (code := service.process.poll()) is None:
            return
        kill_group(service.process.pid)  # what it left would hold its port, or its work
        service.died(now)
        log.warning(
            "%s ended with code %d; starts again in %.1f s", service.child.name, code, service.delay
        )

    def _restart(self, service: _Service, now: float) -> None:
        try:
            self._spawn(service)
        except OSError as error:  # such as a full disk: it may pass
            service.died(now)
            log.error("cannot start %s: %s", service.child.name, error)

    def _sleep(self, seconds: float | None) -> None:
        """Sleep until a child dies, at most `seconds`."""
        with suppress(queue.Empty):
            self._wake.get(timeout=seconds)

    def _await_health(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not self._has_settled() or health(self._settings) is None:
            self._tend()
            for service in self._services:
                if service.deaths >= HOPELESS_DEATHS:
                    name = service.child.name
                    raise StartError(f"{name} keeps ending; {self._log_ends(name)}")
            if time.monotonic() > deadline:
                raise StartError(
                    f"{self._settings.local_url}/health does not answer after {START_SECONDS:g} s;"
                    f" {self._log_ends(self._children[0].name)}"
                )
            self._sleep(0.1)

    def _has_settled(self) -> bool:
        now = time.monotonic()
        return all(
            service.process and now - service.started_at >= SETTLE_SECONDS
            for service in self._services
        )

    def _announce(self) -> None:
        settings = self._settings
        endpoint = {
            "url": settings.url,
            "local_url": settings.local_url,
            "pid": os.getpid(),
            "data": str(settings.data),
        }
        write_atomically(settings.endpoint_path, json.dumps(endpoint) + "\n")
        log.info("serving at %s", settings.url)

    def _stop(self) -> None:
        """Stop all in reverse order; a second signal does not cut it short."""
        _ignore_signals()
        self._settings.endpoint_path.unlink(missing_ok=True)
        for service in reversed(self._services):
            if service.process:
                log.info("stopping %s", service.child.name)
                stop_group(service.process.pid, service.child.stop_signals)
                service.process.poll()
        if self._database:
            self._database.release()
        self._logs.close()
        forget(self._settings)

    def _log(self, name: str) -> Path:
        return self._settings.log / f"{name}.log"

    def _log_ends(self, name: str) -> str:
        path = self._log(name)
        self._logs.settle()
        return "\n  ".join([f"{path} ends:", *last_lines(path, 10)])


def _ignore_signals() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
