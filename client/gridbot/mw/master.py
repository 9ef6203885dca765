"""The master: its work list on one side, a growing BOT on the other."""

from __future__ import annotations

import json
import sys
import time
import types
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gridbot.api.bot import Bot
from gridbot.api.connection import patiently
from gridbot.api.errors import BadInput, GridbotError
from gridbot.api.results import Result
from gridbot.api.session import Session, connect
from gridbot.executor.bots import JOB_FILES, outcomes_of, policy_of, submit_bot
from gridbot.executor.calls import JobFailed, Outcome, PendingCall, Pickling
from gridbot.executor.executor import BrokenGridbot
from gridbot.mw.work_list import ListedTask, WorkList, json_text

Work = Callable[[Any], Any]

_MOST_JOBS = 5000  # in one append
_REFILL_SHARE = 8  # jobs are appended when such a part of the width is free
_VERSION = "{}.{}".format(*sys.version_info)


@dataclass
class Statistics:
    """What a master has done, also before it was started again."""

    added: int = 0  # tasks
    completed: int = 0
    dropped: int = 0  # not wanted any more
    failed: int = 0  # jobs
    task_seconds: float = 0.0  # that hosts were in the work function
    job_seconds: float = 0.0  # that jobs ran, with the start of Python
    began_at: float = 0.0  # when the first task was sent, seconds since 1970
    ended_at: float = 0.0  # when the last answer came

    @property
    def elapsed(self) -> float:
        """Seconds from the first task to the last answer."""
        return self.ended_at - self.began_at

    @property
    def mean_workers(self) -> float:
        """How many jobs ran at once, on average."""
        return self.job_seconds / self.elapsed if self.elapsed > 0 else 0.0


class Master(ABC):
    """One computation of tasks that make further tasks.  See the package for how it works.

    `work` is called on hosts with a task, and returns an answer; both are JSON values.  It is sent
    once, by cloudpickle; functions of `__main__` and of `modules` are carried along, others are
    imported there.  `folder` keeps the state: a master with the same folder goes on where the last
    one ended, however it did.  `width` tasks are kept at the server: twice the slots of all hosts
    let none of them wait.

    `requirements` is a condition on hosts, in ClassAds.  A task whose host was not heard of for
    `deadline` seconds is given to another one; by default the server's rule holds, an hour or more.
    `options` are fields of `Submission`, such as `name`, `memory` and `attempts`.
    """

    def __init__(
        self, work: Work, folder: str | Path, session: Session | None = None, *,
        width: int = 64, requirements: str = "", deadline: float | None = None,
        modules: Iterable[types.ModuleType] = (), **options: Any,
    ) -> None:  # fmt: skip
        if width < 1:
            raise ValueError(f"width must be greater than 0, not {width}")
        self.width = width
        self._folder = Path(folder)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._pickling = Pickling(self._folder, modules)
        self._function = self._pickling.function(work)
        self._session = session or connect()
        policy = policy_of("json", (), requirements)
        if deadline is not None:
            policy += f" Deadline = {float(deadline)};"
        self._options = {"name": self._folder.name, **options, "policy": policy}
        self._bot: Bot | None = None
        self._list = WorkList(self._folder / "state.db")
        self._has_begun = False
        self._remember()

    # --- to be said by the computation

    @abstractmethod
    def begin(self) -> None:
        """Add the first tasks.  Called once in the life of a computation."""

    @abstractmethod
    def completed(self, task: Any, answer: Any) -> None:
        """Take the answer to a task: change `state`, `add` what follows, `delete_worse_than`.

        Called exactly once for each task that was not dropped.  All that it does is kept, or
        nothing if it raises; then `run` ends with that error, and the answer comes again when it
        is run next.  What comes from strangers' hosts may be anything that JSON holds.
        """

    def failed(self, task: Any, error: GridbotError) -> None:  # noqa: ARG002
        """Take notice that the job of a task failed for good, or that `work` raised.

        If this raises, as it does by default, the task is listed again, and `run` ends with the
        error; when it is run next it tries again, perhaps with a better `work`.  If this returns,
        the task is over.
        """
        raise error

    def pack(self, task: Any) -> Any:
        """What `work` is called with: the task, and what is known now, such as the incumbent.

        Called when a task is sent.
        """
        return task

    # --- what it may use

    def add(self, task: Any, key: float = 0.0) -> None:
        """List a task.  Those with the least keys are sent first.  Raises BadInput."""
        self._list.add(task, key)
        self.statistics.added += 1

    def delete_worse_than(self, key: float) -> None:
        """Drop all tasks with a greater key that no host has yet.

        What is being worked on goes on, and its answer counts.
        """
        self.statistics.dropped += self._list.remove_worse(key)

    @property
    def listed(self) -> int:
        """How many tasks wait in the list; it does not count those at the server."""
        return self._list.counts()[0]

    @property
    def sent(self) -> int:
        """How many tasks are at the server, or with hosts."""
        return self._list.counts()[1]

    @property
    def least_key(self) -> float | None:
        """Key of the best task in the list; None if it is empty."""
        return self._list.least_key()

    @property
    def bot(self) -> Bot | None:
        """The BOT, once `run` was called."""
        return self._bot

    def run(self) -> dict[str, Any]:
        """Work until no task is left; return the state.

        Survives restarts of the server.  May be interrupted at any time and called again, also by
        another process.  Raises BrokenGridbot if somebody cancelled the BOT, or what `failed` and
        `completed` raise.
        """
        if not self._has_begun:
            with self._transaction():
                self.begin()
                self._has_begun = True
        self._bot = self._ensured()
        self._refill()
        if self.sent:
            for result in self._bot.results(follow=True, after=self._seen):
                self._take(result)
                self._refill()
                if not self.sent:
                    break
            else:
                raise BrokenGridbot(f"BOT {self._bot.id} ended, and tasks are left")
        patiently(self._bot.close)
        return self.state

    def close(self) -> None:
        """Close the state's file; another master may open it then."""
        self._list.close()

    def __enter__(self) -> Master:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # --- what is kept

    def _remember(self) -> None:
        facts = self._list.facts()
        self.state: dict[str, Any] = facts.get("state", {})
        self.statistics = Statistics(**facts.get("statistics", {}))
        self._has_begun = bool(facts.get("has_begun"))
        self._key: str = facts.get("idempotency_key", str(uuid.uuid4()))
        self._number: int | None = facts.get("bot")
        self._appended: int = facts.get("appended", 0)  # jobs that the server is known to have
        self._seen: int = facts.get("seen", 0)  # results that were taken
        version = facts.get("python", _VERSION)
        if version != _VERSION:
            raise BadInput(f"{self._folder} belongs to Python {version}, and this is {_VERSION}")

    def _facts(self) -> dict[str, Any]:
        return {
            "state": self.state,
            "statistics": asdict(self.statistics),
            "has_begun": self._has_begun,
            "idempotency_key": self._key,
            "bot": self._number,
            "appended": self._appended,
            "seen": self._seen,
            "python": _VERSION,
        }

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Let the file and the attributes change together, or not at all."""
        try:
            with self._list.transaction():
                yield
                self._list.keep(self._facts())
        except BaseException:
            self._remember()
            raise

    # --- the BOT

    def _ensured(self) -> Bot:
        """The BOT, submitted by the first master; to repeat that makes no second one."""
        if self._number is not None:
            return self._session.bot(self._number)
        options = {**self._options, "idempotency_key": self._key}
        bot = patiently(lambda: submit_bot(self._session, self._folder, "json", (), options))
        with self._transaction():
            self._number = bot.id
        return bot

    def _refill(self) -> None:
        self._cancel_unwanted()
        self._append()  # what a master that was killed had written down
        listed, sent = self._list.counts()
        room = self.width - sent
        if not listed or (sent and room * _REFILL_SHARE < self.width):
            return
        while room > 0 and self.listed:
            with self._transaction():
                for job, task in enumerate(self._list.best(min(room, _MOST_JOBS)), self._appended):
                    self._list.send(task.id, job, self._item(task.content, job))
                    room -= 1
                self.statistics.began_at = self.statistics.began_at or time.time()
            self._append()

    def _item(self, task: Any, job: int) -> dict[str, str]:
        packed = json.loads(json_text(self.pack(task)))
        content = self._pickling.arguments((packed,), {})
        return self._pickling.job([PendingCall(self._function, content, Future())], job)

    def _append(self) -> None:
        """Append the jobs that the server is not known to have."""
        items = self._list.items_from(self._appended)
        if not items:
            return
        bot, first = self._bot, self._appended
        assert bot
        patiently(lambda: bot.append(items, JOB_FILES, offset=first, base=self._folder))
        with self._transaction():
            self._appended += len(items)
        for item in items:
            self._pickling.forget(item)

    def _cancel_unwanted(self) -> None:
        """Cancel jobs that no host has; that they were shows in the results."""
        jobs = self._list.unwanted()
        if not jobs:
            return
        bot = self._bot
        assert bot
        patiently(lambda: bot.cancel(jobs, unsent=True))
        with self._transaction():
            self._list.asked()

    def _take(self, result: Result) -> None:
        """Let one result count, once."""
        found = self._found(result)
        error: Exception | None = None
        with self._transaction():
            self._seen = result.n
            self.statistics.job_seconds += result.wall_seconds
            self.statistics.ended_at = time.time()
            task = self._list.of_job(result.seq)
            if task is not None:
                error = self._settle(task, found)
        if error is not None:
            raise error

    def _found(self, result: Result) -> Outcome | None:
        """What became of a job; None if it was cancelled."""
        assert self._bot
        if result.reason == "cancelled":
            return None
        try:
            (found,) = outcomes_of(self._bot, result, "json", 1)
        except (JobFailed, BadInput) as error:
            return Outcome(0.0, error=error)
        return found

    def _settle(self, task: ListedTask, found: Outcome | None) -> Exception | None:
        """Let a task be over, or be listed again and return the error."""
        if found is None:
            self.statistics.dropped += 1
        elif isinstance(found.error, GridbotError):
            self.statistics.failed += 1
            try:
                self.failed(task.content, found.error)
            except Exception as error:
                self._list.list_again(task.id)
                return error
        else:
            self.statistics.completed += 1
            self.statistics.task_seconds += found.seconds
            self.completed(task.content, found.value)
        self._list.remove(task.id)
        return None
