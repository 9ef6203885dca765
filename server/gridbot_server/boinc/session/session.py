"""Serves the scheduler requests of a web process in one thread, many at a time.

All that arrived while the last ones were served share their inquiries; then each is dispatch's,
which batches them again, and comes back for its reply.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from typing import ClassVar

import psycopg

from gridbot_client.protocol.messages import WorkRequest
from gridbot_server.boinc.protocol import reply
from gridbot_server.boinc.protocol.reply import Message, SchedulerReply
from gridbot_server.boinc.protocol.request import SchedulerRequest, parse
from gridbot_server.boinc.protocol.tags import BoincError
from gridbot_server.boinc.session import exchange
from gridbot_server.boinc.session.exchange import Caller
from gridbot_server.boinc.session.hosts import Known, find
from gridbot_server.boinc.session.inquiries import Findings, Inquiry, inquire
from gridbot_server.boinc.session.project import Project
from gridbot_server.boinc.session.reports import Exchanged, read_reports
from gridbot_server.dispatch.bans import Banned
from gridbot_server.errors import GridbotError
from gridbot_server.http.services import Dispatched
from gridbot_server.overload.rate_limit import RateLimiter
from gridbot_server.storage.db import Connection

log = logging.getLogger(__name__)

_MOST_AT_ONCE = 256
_MOST_WAITING = 2048  # as in the engine
_ANSWER_SECONDS = 120.0
DOWN_SECONDS = 60.0
# Reading a longer request, twice what is usual, is work that only an account may ask of us.
UNCHECKED_BYTES = 16 * 1024
_MOST_FAMILIAR = 10_000
_AUTHENTICATOR = re.compile(rb"<authenticator>\s*([^<\s]{1,255})\s*</authenticator>")

Connect = Callable[[], AbstractContextManager[Connection]]
Dispatch = Callable[[bytes, WorkRequest, Callable[[Dispatched], None]], None]


@dataclass(slots=True)
class Visit:
    """One request on its way; `tell` is called once, when there is a reply to it."""

    mimetype: ClassVar[str] = "text/xml"

    body: bytes
    tell: Callable[[Visit], None]
    asked: tuple[SchedulerRequest, Exchanged] | None = None  # what is in the body
    caller: Caller | None = None
    work: WorkRequest | None = None  # what dispatch is asked
    given: Dispatched | None = None
    text: str = ""  # the reply

    @property
    def is_unread(self) -> bool:
        """Whether nobody looked into it yet, nor refused to."""
        return self.asked is None and not self.text

    @property
    def is_long(self) -> bool:
        """Whether it takes an account to have it read."""
        return len(self.body) > UNCHECKED_BYTES

    def result(self) -> Visit:
        """As a request that is answered: its result is a reply in any case."""
        return self

    def render(self) -> bytes:
        """The reply's bytes."""
        return self.text.encode()


class Desk:
    """One per web process, made after fork; `project` is as it was at the last request."""

    def __init__(
        self, project: Project, connect: Connect, dispatch: Dispatch, attachments: RateLimiter
    ) -> None:
        self.project = project
        self._attachments = attachments
        self._connect, self._dispatch = connect, dispatch
        self._queue: SimpleQueue[Visit | None] = SimpleQueue()
        self._familiar: set[str] = set()  # keys that were good when they came last
        self._thread = threading.Thread(target=self._run, name="boinc", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop, when nobody waits for an answer any more."""
        self._queue.put(None)
        self._thread.join()

    def answer(self, body: bytes) -> str:
        """The text of the reply to a request, also if the request is none."""
        answers: SimpleQueue[Visit] = SimpleQueue()
        visit = Visit(body, answers.put)
        # Here, since it may be long: nobody else waits for this thread.
        self._guarded([visit], partial(self._read, visit))
        self._queue_up(visit)
        try:
            return answers.get(timeout=_ANSWER_SECONDS).text
        except Empty:
            return self._down(f"no answer within {_ANSWER_SECONDS:.0f} s")

    def begin(self, body: bytes, tell: Callable[[Visit], None]) -> None:
        """Queue a request; `tell` is called when it is answered, by another thread or at once."""
        self._queue_up(Visit(body, tell))

    def _queue_up(self, visit: Visit) -> None:
        if self._queue.qsize() >= _MOST_WAITING:
            visit.text = self._down(f"{_MOST_WAITING} requests are waiting already")
        if visit.text:
            visit.tell(visit)
        else:
            self._queue.put(visit)

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
        if strange := [visit for visit in visits if visit.is_unread and self._is_strange(visit)]:
            self._guarded(strange, partial(self._turn_away_strangers, strange))
        for visit in visits:
            if visit.given is not None:
                self._guarded([visit], partial(self._finish, visit))
            elif visit.is_unread:
                self._guarded([visit], partial(self._read, visit))
        if new := [visit for visit in visits if visit.given is None and not visit.text]:
            self._guarded(new, partial(self._ask, new))
        # All at the end: whoever is woken by the first takes the others along.
        for visit in visits:
            if not visit.text:
                self._guarded([visit], partial(self._pass_on, visit))
            if visit.text:
                visit.tell(visit)

    def _guarded(self, visits: Sequence[Visit], act: Callable[[], None]) -> None:
        """Act for visits; if that fails, all of them are told why."""
        try:
            act()
            return
        except Banned as error:
            for visit in visits:
                visit.text = reply.render(reply.refused(self.project.title, error.detail))
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
            visit.text = self._down(why)

    def _is_strange(self, visit: Visit) -> bool:
        """Whether it is not to be read before it is known to come from an account."""
        return visit.is_long and authenticator(visit.body) not in self._familiar

    def _turn_away_strangers(self, visits: Sequence[Visit]) -> None:
        with self._connect() as conn:
            found = find(conn, [(authenticator(visit.body), 0) for visit in visits])
        for visit, known in zip(visits, found, strict=True):
            if known.account is None:
                visit.text = reply.render(reply.bad_key(self.project.title))

    def _read(self, visit: Visit) -> None:
        try:
            request = parse(visit.body)
        except BoincError as error:
            message = Message(str(error))
            visit.text = reply.render(SchedulerReply(self.project.title, messages=(message,)))
        else:
            visit.asked = request, read_reports(request, self.project.names)

    def _ask(self, visits: Sequence[Visit]) -> None:
        """Find out who they are, and what to ask dispatch for each."""
        inquiries = [_inquiry(visit) for visit in visits]
        with self._connect() as conn:
            found = inquire(conn, self.project, inquiries)
        self.project = found.project
        for visit, known in zip(visits, found.callers, strict=True):
            self._guarded([visit], partial(self._begin, visit, found, known))

    def _begin(self, visit: Visit, found: Findings, known: Known) -> None:
        assert visit.asked is not None, "only what could be read begins"
        request, said = visit.asked
        visit.caller = caller = exchange.begin(
            found.project, self._connect, request, said, known, found.uploads, self._attachments
        )
        if caller is None:
            visit.text = reply.render(reply.bad_key(found.project.title))
        else:
            visit.work = exchange.work_request(caller)
            self._remember(request.authenticator)

    def _remember(self, key: str) -> None:
        if len(self._familiar) >= _MOST_FAMILIAR:
            self._familiar.clear()
        self._familiar.add(key)

    def _pass_on(self, visit: Visit) -> None:
        assert visit.caller is not None
        assert visit.work is not None, "who asks is known, and so is what for"
        self._dispatch(visit.caller.client.hash, visit.work, partial(self._back, visit))

    def _back(self, visit: Visit, given: Dispatched) -> None:
        """Take a visit back, in dispatch's thread."""
        visit.given = given
        self._queue.put(visit)

    def _finish(self, visit: Visit) -> None:
        assert visit.caller is not None
        assert visit.given is not None, "it comes back with what it was given"
        visit.text = exchange.finish(visit.caller, visit.given.result())


def authenticator(body: bytes) -> str:
    """The key at a request's beginning, as far as a look tells; empty when there is none."""
    found = _AUTHENTICATOR.search(body, 0, UNCHECKED_BYTES)
    return found[1].decode("ascii", "replace") if found else ""


def _inquiry(visit: Visit) -> Inquiry:
    assert visit.asked is not None, "only what could be read is asked about"
    request, said = visit.asked
    uploaded = [end.lease.replica for end in said.ends if end.files]
    return Inquiry(request.authenticator, request.hostid, uploaded)
