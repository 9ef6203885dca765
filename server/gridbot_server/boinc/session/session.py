"""The scheduler session: serves all scheduler requests of a web process, in batches, in one thread.

Theory of operation
===================

A scheduler request makes two passes through the thread, with dispatch between them:

    decode -> inquire -> ask dispatch   ...   describe what was given -> render

In the first pass it is decoded, the database is asked who sent it and which of its uploads are
here, and it becomes a `WorkRequest`.  Dispatch, the same engine that serves native clients, puts
this into its own next transaction.  When that is committed, the engine's thread puts the request
back into the session's queue, and the second pass renders what dispatch gave as a scheduler reply.
A long request comes through a route, whose own thread decodes it: nobody else waits for that one.
`scheduler_rpc.py` has the steps of one request; this module has only the order of the steps.

Why one thread.  Nearly all of the work is Python, which more threads of one process would not do
faster.  A single thread needs no locks on what it remembers from request to request: the project
with its chain of keys, the BOTs on offer, and the account keys that were good when they came last.
Above all, whatever arrives while one batch is served waits together, and so becomes the next batch.

How inquiries are batched.  The requests of a batch share at most three statements (`inquiries.py`):
the chain of keys, the accounts and clients of all senders, the uploads of all replicas reported.
Another statement runs only for what is rare: a first contact, a change of the key, a message of a
running program, leases that a client did not list, a BOT that is new to this process.  All that
goes to dispatch goes there at the end of a pass, so that the engine, woken by the first request,
finds the others in its queue.  Nothing waits on purpose: a lone request is a batch of one, and
under load batches grow and the cost per request falls.

What is promised.  The session keeps no state that matters.  A reply is rendered only after dispatch
has committed.  A crash at any line, or a reply that is lost, leaves a client without a reply; it
then asks again, with every report that was not acknowledged and a list of what it holds.  A report
that was committed before is acknowledged and changes nothing.  A replica that was given in the lost
reply is leased but not on the list, so dispatch sends it again.  Whatever fails on the server
becomes `project_is_down`, upon which a client keeps its reports and comes back.  If the shared
inquiry fails, all requests of the batch are told so; any other failure is told to the request that
it happened to.  The thread itself never ends before `close`.

What bounds it:

| what                                   | bound                      | beyond it                  |
|----------------------------------------|----------------------------|----------------------------|
| requests in the queue                  | `_MOST_WAITING`            | `project_is_down` at once  |
| requests in a batch                    | `_MOST_AT_ONCE`            | they wait for the next one |
| bytes decoded for an unknown account   | `peek.UNCHECKED_BYTES`     | the account is checked     |
| bytes of a request                     | `MAX_REQUEST_BYTES`        | the route refuses it       |
| account keys remembered                | `_MOST_FAMILIAR`           | all are forgotten          |
| seconds that a thread waits in `answer`| `_ANSWER_SECONDS`          | `project_is_down`          |

Admission control (`overload/admission.py`) stands before all that, so that the queue stays short.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from queue import Empty, SimpleQueue
from typing import ClassVar

import psycopg

from gridbot_client.protocol.messages import WorkRequest
from gridbot_server.boinc.protocol import peek, reply
from gridbot_server.boinc.protocol.reply import Message, SchedulerReply
from gridbot_server.boinc.protocol.request import SchedulerRequest, parse
from gridbot_server.boinc.protocol.tags import BoincError
from gridbot_server.boinc.session import scheduler_rpc
from gridbot_server.boinc.session.hosts import KnownCaller, find
from gridbot_server.boinc.session.inquiries import Findings, Inquiry, inquire
from gridbot_server.boinc.session.project import Project
from gridbot_server.boinc.session.reports import ReplicaStates, read_reports
from gridbot_server.boinc.session.scheduler_rpc import SchedulerRpc
from gridbot_server.dispatch.bans import Banned
from gridbot_server.errors import ServerError
from gridbot_server.http.services import Dispatched
from gridbot_server.overload.rate_limit import RateLimiter
from gridbot_server.storage.db import Connect

log = logging.getLogger(__name__)

_MOST_AT_ONCE = 256
_MOST_WAITING = 2048  # as in the engine
_ANSWER_SECONDS = 120.0
DOWN_SECONDS = 60.0
_MOST_FAMILIAR = 10_000

Dispatch = Callable[[bytes, WorkRequest, Callable[[Dispatched], None]], None]


@dataclass(slots=True)
class PendingRequest:
    """One request on its way; `tell` is called once, when there is a reply to it."""

    mimetype: ClassVar[str] = "text/xml"

    body: bytes
    tell: Callable[[PendingRequest], None]
    decoded: tuple[SchedulerRequest, ReplicaStates] | None = None
    rpc: SchedulerRpc | None = None
    work: WorkRequest | None = None  # what dispatch is asked
    given: Dispatched | None = None
    text: str = ""  # the reply

    @property
    def is_undecoded(self) -> bool:
        """Whether it is neither decoded nor refused yet."""
        return self.decoded is None and not self.text

    @property
    def is_long(self) -> bool:
        """Whether it takes an account to have it decoded."""
        return len(self.body) > peek.UNCHECKED_BYTES

    def result(self) -> PendingRequest:
        """As a request that is answered: its result is a reply in any case."""
        return self

    def render(self) -> bytes:
        """The reply's bytes."""
        return self.text.encode()


class SchedulerSession:
    """One per web process, made after fork; `project` is as it was at the last request.

    `attachments` limits the hosts of accounts that anybody can make.
    """

    def __init__(
        self, project: Project, connect: Connect, dispatch: Dispatch, attachments: RateLimiter
    ) -> None:
        self.project = project
        self._attachments = attachments
        self._connect, self._dispatch = connect, dispatch
        self._queue: SimpleQueue[PendingRequest | None] = SimpleQueue()
        self._familiar: set[str] = set()  # keys that were good when they came last
        self._thread = threading.Thread(target=self._run, name="boinc", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop, when nobody waits for an answer any more."""
        self._queue.put(None)
        self._thread.join()

    def answer(self, body: bytes) -> str:
        """The text of the reply to a request, also if the request is none."""
        answers: SimpleQueue[PendingRequest] = SimpleQueue()
        pending = PendingRequest(body, answers.put)
        # Decoded here, since it may be long: nobody else waits for this thread.
        self._guarded([pending], partial(self._decode, pending))
        self._queue_up(pending)
        try:
            return answers.get(timeout=_ANSWER_SECONDS).text
        except Empty:
            return self._down(f"no answer within {_ANSWER_SECONDS:.0f} s")

    def begin(self, body: bytes, tell: Callable[[PendingRequest], None]) -> None:
        """Queue a request; `tell` is called when it is answered, by another thread or at once."""
        self._queue_up(PendingRequest(body, tell))

    def refusal(self, why: str, delay_seconds: float) -> str:
        """The reply to a request that is not served now: clients read the delay nowhere else."""
        return _refusal(self.project.title, why, delay_seconds)

    def _queue_up(self, pending: PendingRequest) -> None:
        if self._queue.qsize() >= _MOST_WAITING:
            pending.text = self._down(f"{_MOST_WAITING} requests are waiting already")
        if pending.text:
            pending.tell(pending)
        else:
            self._queue.put(pending)

    def _down(self, why: str) -> str:
        return reply.render(reply.project_is_down(self.project.title, why, DOWN_SECONDS))

    # ------------------------------------------------------------------------- its thread

    def _run(self) -> None:
        while None not in (batch := self._collect()):
            self._serve([pending for pending in batch if pending])
        self._serve([pending for pending in batch if pending])

    def _collect(self) -> list[PendingRequest | None]:
        batch = [self._queue.get()]
        try:
            while len(batch) < _MOST_AT_ONCE:
                batch.append(self._queue.get_nowait())
        except Empty:
            pass
        return batch

    def _serve(self, batch: Sequence[PendingRequest]) -> None:
        """Make one pass with each request of a batch: its first, or its second."""
        if strange := [pending for pending in batch if self._is_strange(pending)]:
            self._guarded(strange, partial(self._refuse_strangers, strange))
        for pending in batch:
            if pending.given is not None:
                self._guarded([pending], partial(self._finish, pending))
            elif pending.is_undecoded:
                self._guarded([pending], partial(self._decode, pending))
        if new := [pending for pending in batch if pending.given is None and not pending.text]:
            self._guarded(new, partial(self._inquire, new))
        # All at the end: the engine, woken by the first, finds the others in its queue.
        for pending in batch:
            if not pending.text:
                self._guarded([pending], partial(self._ask_dispatch, pending))
            if pending.text:
                pending.tell(pending)

    def _guarded(self, batch: Sequence[PendingRequest], act: Callable[[], None]) -> None:
        """Act for some requests; if that fails, all of them are told why."""
        try:
            act()
            return
        except Banned as error:
            for pending in batch:
                pending.text = reply.render(reply.refused(self.project.title, error.detail))
            return
        except ServerError as error:
            why = error.detail
        except psycopg.OperationalError as error:
            log.warning("database: %r", str(error))
            why = "the database does not answer"
        except Exception:  # the thread must never die: every request would hang
            log.exception("a scheduler request failed")
            why = "the server could not serve this request"
        for pending in batch:
            pending.text = self._down(why)

    def _is_strange(self, pending: PendingRequest) -> bool:
        """Whether it is not to be decoded before it is known to come from an account."""
        return (
            pending.is_undecoded
            and pending.is_long
            and peek.authenticator(pending.body) not in self._familiar
        )

    def _refuse_strangers(self, batch: Sequence[PendingRequest]) -> None:
        with self._connect() as conn:
            found = find(conn, [(peek.authenticator(pending.body), 0) for pending in batch])
        for pending, known in zip(batch, found, strict=True):
            if known.account is None:
                pending.text = reply.render(reply.bad_key(self.project.title))

    def _decode(self, pending: PendingRequest) -> None:
        try:
            request = parse(pending.body)
        except BoincError as error:
            message = Message(str(error))
            pending.text = reply.render(SchedulerReply(self.project.title, messages=(message,)))
        else:
            pending.decoded = request, read_reports(request, self.project.names)

    def _inquire(self, batch: Sequence[PendingRequest]) -> None:
        """Find out who they are, and what to ask dispatch for each."""
        with self._connect() as conn:
            found = inquire(conn, self.project, [_inquiry(pending) for pending in batch])
        self.project = found.project
        for pending, known in zip(batch, found.callers, strict=True):
            self._guarded([pending], partial(self._begin, pending, found, known))

    def _begin(self, pending: PendingRequest, found: Findings, known: KnownCaller) -> None:
        assert pending.decoded is not None, "only what could be decoded begins"
        request, said = pending.decoded
        pending.rpc = rpc = scheduler_rpc.begin(
            found.project, self._connect, request, said, known, found.uploads, self._attachments
        )
        if rpc is None:
            pending.text = reply.render(reply.bad_key(found.project.title))
        else:
            pending.work = scheduler_rpc.work_request(rpc)
            self._remember(request.authenticator)

    def _remember(self, key: str) -> None:
        if len(self._familiar) >= _MOST_FAMILIAR:
            self._familiar.clear()
        self._familiar.add(key)

    def _ask_dispatch(self, pending: PendingRequest) -> None:
        assert pending.rpc is not None
        assert pending.work is not None, "who asks is known, and so is what for"
        self._dispatch(pending.rpc.client.hash, pending.work, partial(self._take_back, pending))

    def _take_back(self, pending: PendingRequest, given: Dispatched) -> None:
        """Queue a request for its second pass, in the engine's thread."""
        pending.given = given
        self._queue.put(pending)

    def _finish(self, pending: PendingRequest) -> None:
        assert pending.rpc is not None
        assert pending.given is not None, "it comes back with what it was given"
        pending.text = scheduler_rpc.finish(pending.rpc, pending.given.result())


@lru_cache(maxsize=256)  # clients that are refused within a second are told few different times
def _refusal(title: str, why: str, delay_seconds: float) -> str:
    return reply.render(reply.project_is_down(title, why, delay_seconds, is_notice=False))


def _inquiry(pending: PendingRequest) -> Inquiry:
    assert pending.decoded is not None, "only what could be decoded is asked about"
    request, said = pending.decoded
    uploaded = [end.lease.replica for end in said.ends if end.files]
    return Inquiry(request.authenticator, request.hostid, uploaded)
