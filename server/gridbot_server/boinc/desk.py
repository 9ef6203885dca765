"""Serves the scheduler requests of a web process in one thread, many at a time.

All that arrived while the last ones were served share their inquiries; then each is dispatch's,
which batches them again, and comes back for its reply.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from typing import ClassVar

import psycopg

from gridbot_client.protocol import WorkRequest
from gridbot_server.boinc import exchange, reply
from gridbot_server.boinc.exchange import Caller
from gridbot_server.boinc.guesses import Throttle
from gridbot_server.boinc.hosts import Known
from gridbot_server.boinc.inquiries import Findings, Inquiry, inquire
from gridbot_server.boinc.project import Project
from gridbot_server.boinc.reply import Message, SchedulerReply
from gridbot_server.boinc.reports import Exchanged, read_reports
from gridbot_server.boinc.request import SchedulerRequest, parse
from gridbot_server.boinc.tags import BoincError
from gridbot_server.db import Connection
from gridbot_server.errors import GridbotError
from gridbot_server.services import Dispatched

log = logging.getLogger(__name__)

_MOST_AT_ONCE = 256
_MOST_WAITING = 2048  # as in the engine
_ANSWER_SECONDS = 120.0
DOWN_SECONDS = 60.0


Connect = Callable[[], AbstractContextManager[Connection]]
Dispatch = Callable[[bytes, WorkRequest, Callable[[Dispatched], None]], None]


@dataclass(slots=True)
class Visit:
    """One request on its way; `tell` is called once, when there is a reply to it."""

    mimetype: ClassVar[str] = "text/xml"

    tell: Callable[[Visit], None]
    request: SchedulerRequest
    said: Exchanged
    caller: Caller | None = None
    given: Dispatched | None = None
    text: str = ""  # the reply

    def end(self, text: str) -> None:
        """Answer."""
        self.text = text
        self.tell(self)

    def result(self) -> Visit:
        """As a request that is answered: its result is a reply in any case."""
        return self

    def render(self) -> bytes:
        """The reply's bytes."""
        return self.text.encode()


@dataclass(frozen=True, slots=True)
class Refused:
    """A request that was none."""

    mimetype: ClassVar[str] = "text/xml"

    text: str

    def result(self) -> Refused:
        """As of a visit."""
        return self

    def render(self) -> bytes:
        """The reply's bytes."""
        return self.text.encode()


class Desk:
    """One per web process, made after fork; `project` is as it was at the last request."""

    def __init__(
        self, project: Project, connect: Connect, dispatch: Dispatch, newcomers: Throttle
    ) -> None:
        self.project = project
        self._newcomers = newcomers
        self._connect, self._dispatch = connect, dispatch
        self._queue: SimpleQueue[Visit | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="boinc", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop, when nobody waits for an answer any more."""
        self._queue.put(None)
        self._thread.join()

    def answer(self, body: bytes) -> str:
        """The text of the reply to a request, also if the request is none."""
        answers: SimpleQueue[Visit | Refused] = SimpleQueue()
        self.begin(body, answers.put)
        try:
            return answers.get(timeout=_ANSWER_SECONDS).text
        except Empty:
            return self._down(f"no answer within {_ANSWER_SECONDS:.0f} s")

    def begin(self, body: bytes, tell: Callable[[Visit | Refused], None]) -> None:
        """Queue a request; `tell` is called when it is answered, by another thread or at once."""
        if self._queue.qsize() >= _MOST_WAITING:
            tell(Refused(self._down(f"{_MOST_WAITING} requests are waiting already")))
            return
        try:
            request = parse(body)
        except BoincError as error:
            message = Message(str(error))
            tell(Refused(reply.render(SchedulerReply(self.project.title, messages=(message,)))))
            return
        self._queue.put(Visit(tell, request, read_reports(request, self.project.names)))

    def _down(self, why: str) -> str:
        return reply.render(reply.project_is_down(self.project.title, why, DOWN_SECONDS))

    # ------------------------------------------------------------------------- its thread

    def _run(self) -> None:
        while None not in (visits := self._collect()):
            self._serve([visit for visit in visits if visit])
        self._serve([visit for visit in visits if visit])

    def _collect(self) -> list[Visit | None]:
        visits = [self._queue.get()]
        try:
            while len(visits) < _MOST_AT_ONCE:
                visits.append(self._queue.get_nowait())
        except Empty:
            pass
        return visits

    def _serve(self, visits: Sequence[Visit]) -> None:
        for visit in visits:
            if visit.caller is not None:
                self._guarded([visit], partial(self._finish, visit, visit.caller))
        if new := [visit for visit in visits if visit.caller is None]:
            self._guarded(new, partial(self._ask, new))

    def _guarded(self, visits: Sequence[Visit], act: Callable[[], None]) -> None:
        """Act for visits; if that fails, all of them are told why."""
        try:
            act()
            return
        except GridbotError as error:
            why = error.detail
        except psycopg.OperationalError as error:
            log.warning("database: %r", str(error))
            why = "the database does not answer"
        except Exception:  # the thread must never die: every request would hang
            log.exception("a scheduler request failed")
            why = "the server could not serve this request"
        for visit in visits:
            visit.end(self._down(why))

    def _ask(self, visits: Sequence[Visit]) -> None:
        """Find out who they are, then hand each to dispatch."""
        inquiries = [_inquiry(visit) for visit in visits]
        with self._connect() as conn:
            found = inquire(conn, self.project, inquiries)
        self.project = found.project
        for visit, known in zip(visits, found.callers, strict=True):
            self._guarded([visit], partial(self._begin, visit, found, known))

    def _begin(self, visit: Visit, found: Findings, known: Known) -> None:
        visit.caller = caller = exchange.begin(
            found.project,
            self._connect,
            visit.request,
            visit.said,
            known,
            found.uploads,
            self._newcomers,
        )
        if caller is None:
            visit.end(reply.render(reply.bad_key(found.project.title)))
            return
        work = exchange.work_request(caller)
        self._dispatch(caller.client.hash, work, partial(self._back, visit))

    def _back(self, visit: Visit, given: Dispatched) -> None:
        """Take a visit back, in dispatch's thread."""
        visit.given = given
        self._queue.put(visit)

    def _finish(self, visit: Visit, caller: Caller) -> None:
        assert visit.given is not None, "it comes back with what it was given"
        visit.end(exchange.finish(caller, visit.given.result()))


def _inquiry(visit: Visit) -> Inquiry:
    request = visit.request
    uploaded = [end.lease.replica for end in visit.said.ends if end.files]
    return Inquiry(request.authenticator, request.hostid, uploaded)
