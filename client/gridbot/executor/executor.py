"""The executor: futures on one side, one growing BOT on the other, and two threads between them."""

from __future__ import annotations

import logging
import sys
import tempfile
import threading
import time
import types
import uuid
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Future
from concurrent.futures import Executor as BaseExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from gridbot.api.bot import Bot
from gridbot.api.connection import patiently
from gridbot.api.errors import GridbotError
from gridbot.api.results import Result, json_lines, result_of
from gridbot.api.session import Session, connect
from gridbot.api.state import why_held
from gridbot.executor import chunks
from gridbot.executor.bots import outcomes_of, policy_of, submit_bot
from gridbot.executor.calls import Form, PendingCall, Pickling, taken, values
from gridbot.executor.progress import Progress

T = TypeVar("T")
_Added = tuple[Future[Any], Callable[..., Any], tuple[Any, ...], dict[str, Any]]

log = logging.getLogger(__name__)

_SHARERS = 8  # among which work for less than a second in each chunk is shared
_GATHER_SECONDS = 0.002  # for which further calls are waited for, once one came
_PROBE_SECONDS = 0.5  # between two looks at whether further calls may be sent untried
_RESULTS_WAIT = 20  # seconds for which the server may hold back an empty answer
# Between two looks at results, where a server answers at once all the same.
_LEAST_LOOK, _MOST_LOOK, _LOOK_SHARE = 0.005, 1.0, 0.1
_CLOSE_SECONDS = 10.0  # for which a server that is away is waited for at the end
_MOST_JOBS = 5000  # in one append
_is_ending = threading.Event()  # the interpreter is
_running: weakref.WeakSet[Executor] = weakref.WeakSet()


class BrokenGridbot(BrokenExecutor, GridbotError):
    """The BOT of an executor takes or runs no more jobs; the message says why."""


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Calls of one function that are one job."""

    calls: list[PendingCall]
    sent_at: float


class Executor(BaseExecutor):
    """Runs calls on GridBot's hosts.  Threads may share it; see the package for how it works.

    `session` is a server, by default that of `gridbot.connect()`.  `max_workers` bounds the chunks
    that are with hosts at once.  Functions and arguments are pickled by cloudpickle; functions of
    `__main__`, and of `modules`, are carried along, all others are imported on the host.

    Results are pickled, too.  So jobs run only on hosts of this user, on pilots, and on hosts of
    the owners in `trusts`.  `results="json"` lets anybody's hosts run them, and returns only what
    JSON holds, and numpy's arrays.  `requirements` is a further condition on hosts, in ClassAds.
    `progress` shows a bar; by default in notebooks.  `options` are fields of `Submission`, such as
    `name`, `time`, `memory` and `inputs`.  The BOT is submitted with the first call.
    """

    def __init__(
        self, session: Session | None = None, max_workers: int | None = None, *,
        results: Form = "pickle", trusts: Iterable[str] = (), requirements: str = "",
        modules: Iterable[types.ModuleType] = (), progress: bool | None = None, **options: Any,
    ) -> None:  # fmt: skip
        if max_workers is not None and max_workers < 1:
            raise ValueError(f"max_workers must be greater than 0, not {max_workers}")
        if results not in ("pickle", "json"):
            raise ValueError(f"results must be 'pickle' or 'json', not {results!r}")
        self._folder = tempfile.TemporaryDirectory(prefix="gridbot-executor-")
        self._pickling = Pickling(Path(self._folder.name), modules)
        self._session = session or connect()
        self._max_workers, self._form = max_workers, results
        policy = policy_of(self._form, trusts, requirements)
        self._inputs = [str(Path(path).absolute()) for path in options.pop("inputs", ())]
        key = str(uuid.uuid4())  # a repeated submission makes no second BOT
        self._options = {"name": "executor", "idempotency_key": key, **options, "policy": policy}
        self._progress = Progress(progress)
        self._changed = threading.Condition()
        self._waiting: dict[str, deque[PendingCall]] = {}  # calls by function
        self._seconds: dict[str, float] = {}  # that a call takes, by function
        self._chunks: dict[int, _Chunk] = {}  # by number of the job
        self._bot: Bot | None = None
        self._types: Mapping[str, str] = {}
        self._jobs = self._seen = 0  # appended; results that were taken
        self._again: list[PendingCall] = []  # to be sent again, each alone
        self._eventful_at = time.monotonic()
        self._is_closed = False
        self._broken: BaseException | None = None
        self._thread: threading.Thread | None = None  # that sends; it starts the one that takes

    @property
    def bot(self) -> Bot | None:
        """The BOT, once there was a call."""
        return self._bot

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Run a call on some host; the future gets its value, or the exception that it raised.

        What cannot be pickled becomes the future's exception.
        """
        future: Future[T] = Future()
        self._add([(future, fn, args, kwargs)])
        return future

    def map(
        self, fn: Callable[..., T], *iterables: Iterable[Any], timeout: float | None = None,
        chunksize: int = 1,  # noqa: ARG002 - an argument of the interface
    ) -> Iterator[T]:  # fmt: skip
        """Yield the values of calls in order, as `concurrent.futures.Executor.map` does.

        The sizes of chunks adapt by themselves; `chunksize` is ignored.
        """
        ends_at = None if timeout is None else time.monotonic() + timeout
        futures: list[Future[T]] = []
        added: list[_Added] = []
        for args in zip(*iterables, strict=False):
            futures.append(Future())
            added.append((futures[-1], fn, args, {}))
        self._add(added)
        return values(futures, ends_at)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls; the BOT is closed once those that it has ended.

        With `cancel_futures`, calls that were not sent yet are cancelled.
        """
        with self._changed:
            self._is_closed = True
            cancelled = [call for queue in self._waiting.values() for call in queue]
            if cancel_futures:
                self._waiting.clear()
            self._changed.notify_all()
            thread = self._thread
        if cancel_futures:
            for call in cancelled:
                call.future.cancel()
        if thread is None:
            self._folder.cleanup()
        elif wait:
            thread.join()

    # --- taking calls

    def _add(self, added: Iterable[_Added]) -> None:
        made, known = list[PendingCall](), dict[int, str]()
        with self._changed:
            self._check_open()
        for future, fn, args, kwargs in added:
            try:
                name = known.get(id(fn)) or self._pickling.function(fn)
                made.append(PendingCall(name, self._pickling.arguments(args, kwargs), future))
                known[id(fn)] = name
            except Exception as error:  # whatever its __reduce__ raises
                future.set_exception(error)
        with self._changed:
            self._check_open()
            for call in made:
                self._waiting.setdefault(call.function, deque()).append(call)
            if made and self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="gridbot", daemon=True)
                self._thread.start()
                _running.add(self)
            self._eventful_at = time.monotonic()
            self._changed.notify_all()
        self._progress.expects([call.future for call in made])

    def _check_open(self) -> None:
        if self._broken is not None:
            raise BrokenGridbot(str(self._broken)) from self._broken
        if self._is_closed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        if _is_ending.is_set():
            raise RuntimeError("cannot schedule new futures after interpreter shutdown")

    # --- the thread that sends

    def _serve(self) -> None:
        taker = threading.Thread(target=self._take_results, name="gridbot-results", daemon=True)
        taker.start()
        try:
            while self._is_needed():
                self._send()
            taker.join()
            if self._bot and self._broken is None:
                patiently(self._bot.close, for_=_CLOSE_SECONDS)
        except BaseException as error:  # the futures are to hear of it, whatever it is
            self._break(error)
        finally:
            self._progress.close()
            self._folder.cleanup()
            _running.discard(self)

    def _is_needed(self) -> bool:
        """Wait until there may be something to send; False at the end."""
        with self._changed:
            while not (self._waiting or self._again):
                if self._broken is not None or (self._is_closed and not self._chunks):
                    return False
                self._changed.wait()
            if self._waiting and not self._chunks:
                self._changed.wait(_GATHER_SECONDS)
            return True

    def _send(self) -> None:
        """Append what is due of the calls that wait; if nothing is, wait for a change."""
        with self._changed:
            due = [*([call] for call in self._again), *self._cut()]
            self._again.clear()
            if not due and self._waiting:
                self._changed.wait(_PROBE_SECONDS)
            first, now = self._jobs, time.monotonic()
            # Before anything may fail, so that no future is forgotten.
            sent = [_Chunk(cut, now) for cut in due]
            self._chunks.update(enumerate(sent, first))
            self._jobs += len(sent)
            if self._broken is not None:
                raise self._broken
        for at in range(0, len(sent), _MOST_JOBS):
            self._append(first + at, sent[at : at + _MOST_JOBS])

    def _cut(self) -> Iterator[list[PendingCall]]:
        """Take chunks out of what waits."""
        room = sys.maxsize
        if self._max_workers is not None:
            room = max(0, self._max_workers - len(self._chunks))
        for function in list(self._waiting):
            queue = self._waiting[function]
            out = [chunk for chunk in self._chunks.values() if chunk.calls[0].function == function]
            waited = max((time.monotonic() - chunk.sent_at for chunk in out), default=0.0)
            seconds, probes = self._seconds.get(function), chunks.probes(waited) - len(out)
            sharers = self._max_workers or _SHARERS
            for size in chunks.sizes(len(queue), seconds, sharers, probes):
                if not room:
                    break
                if cut := list(taken(queue, size)):
                    room -= 1
                    yield cut
            if not queue:
                del self._waiting[function]

    def _append(self, first: int, sent: Sequence[_Chunk]) -> None:
        """Append jobs; to repeat it, when a reply was lost, changes nothing."""
        items = [self._pickling.job(chunk.calls, first + at) for at, chunk in enumerate(sent)]
        patiently(lambda: self._ensured().append(items, offset=first))
        for item in items:
            self._pickling.forget(item)
        with self._changed:
            self._eventful_at = time.monotonic()
            self._changed.notify_all()

    def _ensured(self) -> Bot:
        """Submit the BOT, once."""
        if self._bot is not None:
            return self._bot
        folder = Path(self._folder.name)
        bot = submit_bot(self._session, folder, self._form, self._inputs, self._options)
        self._types = dict.fromkeys(bot.columns(), "text")
        self._bot = bot
        return bot

    # --- the thread that takes results

    def _take_results(self) -> None:
        try:
            while self._is_awaited():
                began = time.monotonic()
                found = patiently(self._results)
                for result in found:
                    self._seen = result.n
                    self._take(result)
                with self._changed:
                    if found:
                        self._eventful_at = time.monotonic()
                    self._changed.notify_all()
                if not found:
                    self._check_bot()
                    self._pause(time.monotonic() - began)
        except BaseException as error:
            self._break(error)

    def _is_awaited(self) -> bool:
        """Wait until there are jobs whose results may come; False at the end."""
        with self._changed:
            while not self._chunks or self._bot is None:
                is_over = self._is_closed and not (self._waiting or self._again or self._chunks)
                if is_over or self._broken is not None:
                    return False
                self._changed.wait()
            return True

    def _pause(self, waited: float) -> None:
        """Look less often at a server that did not hold back an empty answer."""
        with self._changed:
            quiet = time.monotonic() - self._eventful_at
            look = min(_MOST_LOOK, max(_LEAST_LOOK, quiet * _LOOK_SHARE))
            if waited < look:
                self._changed.wait(look - waited)

    def _results(self) -> list[Result]:
        """Results that are new, once there are any, or the server waits no longer."""
        assert self._bot
        path = f"/bots/{self._bot.id}/results"
        rows = json_lines(self._bot.connection, path, after=self._seen, wait=_RESULTS_WAIT)
        return [result_of(row, self._bot.id, self._types, self._bot.connection) for row in rows]

    def _take(self, result: Result) -> None:
        chunk = self._chunks.get(result.seq)
        if chunk is None:
            return
        if result.reason == "cancelled":
            self._check_bot()
        try:
            assert self._bot
            found = outcomes_of(self._bot, result, self._form, len(chunk.calls))
        except GridbotError as error:
            self._failed(result.seq, error)
            return
        with self._changed:
            if self._chunks.pop(result.seq, None) is None:  # all calls have failed meanwhile
                return
        function = chunk.calls[0].function
        self._seconds[function] = chunks.estimate(
            self._seconds.get(function), [outcome.seconds for outcome in found]
        )
        for call, outcome in zip(chunk.calls, found, strict=True):
            call.settle(outcome)

    def _failed(self, job: int, error: GridbotError) -> None:
        """Send each call again alone, to tell the one at fault; that is the one that is alone."""
        with self._changed:
            chunk = self._chunks.pop(job, None)
            if chunk is None:
                return
            if len(chunk.calls) > 1:
                self._again += chunk.calls
                return
        chunk.calls[0].future.set_exception(error)

    def _check_bot(self) -> None:
        """Raise BrokenGridbot if no more results can come."""
        assert self._bot
        state = patiently(self._bot.show)
        if state.state == "cancelled":
            raise BrokenGridbot(f"BOT {self._bot.id} was cancelled")
        if state.is_held and not state.jobs_in_progress:
            raise BrokenGridbot(why_held(state))

    def _break(self, error: BaseException) -> None:
        """Let all calls fail, and take no more."""
        log.debug("executor", exc_info=error)
        with self._changed:
            self._broken = error
            left = [call for chunk in self._chunks.values() for call in chunk.calls] + self._again
            waiting = [call for queue in self._waiting.values() for call in queue]
            self._chunks.clear()
            self._waiting.clear()
            self._again.clear()
            self._changed.notify_all()
        for call in waiting:
            if call.future.set_running_or_notify_cancel():
                left.append(call)
        for call in left:
            broken = BrokenGridbot(str(error))
            broken.__cause__ = error
            call.future.set_exception(broken)


def _finish_all() -> None:
    """Let what was submitted come to its end before the interpreter does."""
    _is_ending.set()
    for executor in list(_running):
        executor.shutdown()


# As CPython's own executors do: what is registered with `atexit` comes too late, when pools of
# threads take nothing more, and appending needs one.
threading._register_atexit(_finish_all)  # type: ignore[attr-defined]
