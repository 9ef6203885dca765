"""Brings each accepted job to its end: one thread, in rounds, through any crash.

Each step may be repeated.  A job without a BOT gets one under its own id, which the server gives
out once; outputs appear whole; what is known of a job is written when it has happened.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from gridbot.api.errors import GridbotError, ServerAway
from gridbot.api.results import Result
from gridbot.api.session import Session
from gridbot.api.state import BotState
from gridbot.gatekeeper.descriptions import GROUP, JobDescription, streams, submission_fields
from gridbot.gatekeeper.files import JobFiles
from gridbot.gatekeeper.jobs import AcceptedJob, AcceptedJobs
from gridbot.gatekeeper.owners import session_of
from gridbot.gatekeeper.states import ENDED, ArcState, JobEnd, end_of, of_bot

log = logging.getLogger(__name__)

_MOST_LISTED = 10_000
_STREAMS = ("stdout", "stderr")
_GOING_ON = ("open", "running", "held")
FILES_AWAITED_SECONDS = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class RoundSettings:
    """How jobs are brought on; times in seconds."""

    server: str | None
    pause: float = 1.0  # between rounds, unless a request shortens it
    kept: float = 7 * 24 * 3600.0  # how long files are kept after a job's end


class Rounds:
    """The jobs of a gatekeeper on their way."""

    def __init__(
        self,
        jobs: AcceptedJobs,
        files: JobFiles,
        settings: RoundSettings,
        now: Callable[[], float],
    ) -> None:
        self._jobs, self._files, self._settings, self._now = jobs, files, settings, now
        self._sessions = dict[Path, Session]()
        self._news = threading.Event()
        self._said = dict[Path, str]()  # why jobs of a key wait

    def wake(self) -> None:
        """Let the next round begin at once."""
        self._news.set()

    def run(self) -> None:
        """Work until the process ends, at whatever step."""
        while True:
            self._news.clear()
            try:
                self.once()
            except Exception:  # the file of the jobs, above all: the next round tries again
                log.exception("a round failed")
            self._news.wait(self._settings.pause)

    def once(self) -> None:
        """One round: each job that has not ended goes as far as it can."""
        jobs = self._jobs.unended()
        for account in {job.account for job in jobs}:
            self._account([job for job in jobs if job.account == account], account)
        for job in self._jobs.ended_before(self._now() - self._settings.kept):
            self._files.remove(job.id)
            self._jobs.remove(job.id)

    def _account(self, jobs: list[AcceptedJob], account: Path) -> None:
        """The jobs that one key submits; an error of it delays no other's."""
        try:
            session = self._session(account)
            going_on = self._going_on(session)
            for job in jobs:
                self._step(session, job, going_on)
        except GridbotError as error:
            if self._said.get(account) != str(error):
                log.error("%d jobs of %s wait: %s", len(jobs), account, error)
            self._said[account] = str(error)
        else:
            self._said.pop(account, None)

    def _session(self, account: Path) -> Session:
        if account not in self._sessions:
            self._sessions[account] = session_of(self._settings.server, account)
        return self._sessions[account]

    @staticmethod
    def _going_on(session: Session) -> dict[int, BotState]:
        """BOTs of a key that have not ended; a job whose BOT is not among them is asked about."""
        return {
            bot.id: bot
            for state in _GOING_ON
            for bot in session.bots(state, limit=_MOST_LISTED, group=GROUP)
        }

    def _step(self, session: Session, job: AcceptedJob, going_on: Mapping[int, BotState]) -> None:
        """Bring one job on.  What the server says against it ends it."""
        try:
            if job.bot is not None:
                self._follow(session, job, job.bot, going_on)
            elif job.state is ArcState.SUBMITTING or self._is_complete(job):
                self._submit(session, job)
        except ServerAway:
            raise
        except GridbotError as error:
            self._end(job, JobEnd(ArcState.FAILED, str(error)), {})
        except Exception:  # a full disk, or an error of ours: it delays no other job
            log.exception("job %s waits", job.id)

    def _is_complete(self, job: AcceptedJob) -> bool:
        """Whether a job's files are there; one that will never be complete is ended."""
        if job.is_killed:
            self._end(job, JobEnd(ArcState.KILLED, "killed before it was submitted"), {})
            return False
        missing = self._files.missing(job.id, job.description.inputs)
        if missing and self._now() - job.created > FILES_AWAITED_SECONDS:
            reason = f"input file {missing[0]} was not sent within {FILES_AWAITED_SECONDS:.0f} s"
            self._end(job, JobEnd(ArcState.FAILED, reason), {})
        return not missing

    def _submit(self, session: Session, job: AcceptedJob) -> None:
        """Make the job's BOT, or find it if an earlier process made it."""
        self._jobs.move(job.id, ArcState.SUBMITTING)
        fields = submission_fields(job.description, job.id, self._files.inputs(job.id))
        bot = session.submit(**fields)
        self._jobs.submitted(job.id, bot.id)
        log.info("job %s is BOT %d", job.id, bot.id)

    def _follow(
        self, session: Session, job: AcceptedJob, number: int, going_on: Mapping[int, BotState]
    ) -> None:
        bot = session.bot(number)
        state = going_on.get(number) or bot.show()
        if not state.is_final:
            if job.is_killed:
                bot.cancel()
            if (shown := of_bot(state)) is not job.state:
                self._jobs.move(job.id, shown)
            return
        result = next(iter(bot.results()), None)
        if result is None:  # jobs of a cancelled BOT have none
            self._end(job, JobEnd(ArcState.KILLED, f"BOT {number} was cancelled"), {})
            return
        self._jobs.move(job.id, ArcState.FINISHING)
        end = end_of(result, is_killed=job.is_killed)
        self._end(job, end, _saves(result, job.description))

    def _end(
        self, job: AcceptedJob, end: JobEnd, outputs: Mapping[str, Callable[[Path], object]]
    ) -> None:
        assert end.state in ENDED
        self._files.keep(job.id, outputs)
        self._jobs.end(job.id, end)
        log.info("job %s: %s %s", job.id, end.state, end.reason)


def _saves(result: Result, job: JobDescription) -> dict[str, Callable[[Path], object]]:
    """How each output of a job is fetched, by its name; a stream that has none is not."""
    named = streams(job)
    found = dict[str, Callable[[Path], object]]()
    for came_as, output in result.outputs.items():
        if name := named.get(came_as, "") if came_as in _STREAMS else came_as:
            found[name] = output.save
    return found
