"""Brings each accepted job to its end: one thread, in rounds, through any crash.

Each step may be repeated.  A job without a BOT gets one under its own id, which the server gives
out once; outputs appear whole; what is known of a job is written when it has happened.  Jobs and
keys that fail are left alone for a while, and delay no others; each subject has a share of a round.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from gridbot import reliable
from gridbot.api.connection import Connection
from gridbot.api.errors import (
    BadInput,
    GridbotError,
    InputUnreadable,
    KeyUsed,
    NotFound,
    Refused,
    ServerAway,
)
from gridbot.api.results import Result
from gridbot.api.session import Session
from gridbot.api.state import BotState
from gridbot.gatekeeper.descriptions import JobDescription, streams, submission_fields
from gridbot.gatekeeper.files import ArcOutput, JobFiles, is_full
from gridbot.gatekeeper.jobs import AcceptedJobs, BotOwner, ListedJob
from gridbot.gatekeeper.owners import connection_to, endpoint_of
from gridbot.gatekeeper.states import ENDED, ArcState, JobEnd, end_of, of_bot
from gridbot_client.backoff import BackOff
from gridbot_client.net.discovery import Endpoint
from gridbot_client.protocol.fields import STREAMS

log = logging.getLogger(__name__)

_MOST_LISTED = 10_000
_GOING_ON = ("open", "running", "held")
FILES_AWAITED_SECONDS = 24 * 3600.0
MOST_FAILURES = 10  # to keep a job's outputs, which are then given up
NEW_AT_ONCE = 20  # jobs without a BOT of a subject that are brought on in a round
_MOST_DELETED = 100  # in a round
_JOB_PAUSES = BackOff(least=1.0, most=600.0)
# A server lets nobody in from an address that shows a wrong key more often than each 10 s.
_KEY_PAUSES = BackOff(least=1.0, most=60.0)
# What a server calls a fault of a submission; others are of its owner, or pass.
_OF_SUBMISSION = frozenset(("RequestError", "PolicyError", "TooLarge"))
_NO_BOT = "QuotaExceeded"  # what it says if the submission's key has made none


class FilesAway(Exception):
    """Files of a job cannot be read or fetched now."""


@dataclass(frozen=True, slots=True)
class RoundSettings:
    """How jobs are brought on; times in seconds, while the gatekeeper runs."""

    server: str | None
    pause: float = 1.0  # after a round that has left nothing for the next
    share: float = 300.0  # of a subject in a round; an upload that it cuts off goes on in the next
    kept: float = 7 * 24 * 3600.0  # how long files are kept after a job's end


@dataclass(frozen=True, slots=True)
class _Account:
    """What a round knows of a key: a session, in whose name, and its BOTs that go on."""

    session: Session
    bot_owner: BotOwner
    going_on: Mapping[int, BotState]  # a job whose BOT is not among them is asked about


@dataclass(frozen=True, slots=True)
class _Look:
    """What was found of a job's files, when so many had come."""

    received: int
    missing: str  # the first of them; empty if all are there


class _Pauses:
    """What is left alone for a while, after failures in a row."""

    def __init__(self, back_off: BackOff, now: Callable[[], float]) -> None:
        self._back_off, self._now = back_off, now
        self._failures = Counter[object]()
        self._ends = dict[object, float]()

    def covers(self, what: object) -> bool:
        """Whether it is not to be tried yet."""
        return what in self._ends and self._now() < self._ends[what]

    def begin(self, what: object, error: Exception) -> None:
        """Note that something has failed."""
        self._failures[what] += 1
        self._ends[what] = self._now() + self._back_off.after(error, self._failures[what], 0.0)

    def forget(self, what: object) -> None:
        """Note that something went well, or is no more."""
        self._failures.pop(what, None)
        self._ends.pop(what, None)


class Rounds:
    """The jobs of a gatekeeper on their way; `accounts` reads the owner map."""

    def __init__(
        self,
        jobs: AcceptedJobs,
        files: JobFiles,
        accounts: Callable[[], Mapping[str, Path]],
        settings: RoundSettings,
    ) -> None:
        self._jobs, self._files, self._settings = jobs, files, settings
        self._keys_of = accounts
        self._connections = dict[Path, tuple[Endpoint, Connection]]()
        self._accounts = dict[Path, _Account]()  # of the present round
        self._said = dict[object, str]()  # why jobs wait
        self._job_pauses = _Pauses(_JOB_PAUSES, jobs.age)
        self._key_pauses = _Pauses(_KEY_PAUSES, jobs.age)
        self._not_kept = Counter[str]()  # failures to keep outputs, by job
        self._looks = dict[str, _Look]()  # for files of jobs

    def run(self) -> None:
        """Work until the process ends, at whatever step."""
        while True:
            has_more = False
            try:
                has_more = self.once()
            except Exception:  # the file of the jobs, above all: the next round tries again
                log.exception("a round failed")
            if not has_more:
                time.sleep(self._settings.pause)

    def once(self) -> bool:
        """One round: each job that has not ended goes as far as it can.

        Return whether one could go on if it were not the turn of others.
        """
        self._jobs.note_age()
        jobs = self._jobs.unended()
        self._looks = {job.id: self._looks[job.id] for job in jobs if job.id in self._looks}
        self._accounts.clear()
        keys = self._keys()
        shares = defaultdict[tuple[str, Path | None], list[ListedJob]](list)
        for job in jobs:
            key = job.bot_owner.account if job.bot_owner else keys.get(job.subject)
            shares[job.subject, key].append(job)
        have_more = [
            self._share(subject, key, of_both, may_submit=subject in keys)
            for (subject, key), of_both in shares.items()
        ]
        return any([*have_more, self._delete()])

    def _keys(self) -> Mapping[str, Path]:
        """The keys of who may submit now: nobody while the map cannot be read."""
        try:
            found = self._keys_of()
        except BadInput as error:
            self._say("the owner map", "the owner map: no job is submitted", error)
            return {}
        self._said.pop("the owner map", None)
        return found

    def _delete(self) -> bool:
        """Delete jobs that were kept long enough; return whether there are more."""
        old = self._jobs.ended_before(self._jobs.age() - self._settings.kept, _MOST_DELETED)
        for job in old:
            self._files.remove(job.id)
            self._jobs.remove(job.id)
        return len(old) == _MOST_DELETED

    def _share(
        self, subject: str, key: Path | None, jobs: list[ListedJob], *, may_submit: bool
    ) -> bool:
        """The share of one subject in a round; an error of it delays no other's."""
        bring_on = reliable.trying(self._settings.share, times=1)(self._bring_on_all)
        try:
            has_more = bring_on(key, jobs, may_submit=may_submit)
        except Exception as error:
            self._say((subject, key), f"{key}: {len(jobs)} jobs of {subject} wait", error)
            return False
        if key is None or not self._key_pauses.covers(key):
            self._said.pop((subject, key), None)
        return has_more

    def _bring_on_all(self, key: Path | None, jobs: list[ListedJob], *, may_submit: bool) -> bool:
        self._jobs.note_age()
        for job in filter(self._is_over, jobs):  # whatever is with key and server
            self._step(job, partial(self._end_unsubmitted, job))
        if key is None or self._key_pauses.covers(key):
            return False
        account = self._account(key)
        own = [job for job in jobs if job.bot_owner in (None, account.bot_owner)]
        self._follow_all(account, own)
        # Behind those: a submission that is refused, as beyond a quota, stops none that go on.
        new = [job for job in own if may_submit and self._may_be_ready(job)]
        for job in new[:NEW_AT_ONCE]:
            self._step(job, partial(self._submit, account, job))
        _check_bot_owners(jobs, account.bot_owner)
        return len(new) > NEW_AT_ONCE

    def _follow_all(self, account: _Account, jobs: list[ListedJob]) -> None:
        for job in jobs:
            if job.bot is not None:
                self._step(job, partial(self._follow, account, job, job.bot))

    def _account(self, key: Path) -> _Account:
        """What there is of a key; once in a round, as key and server may be others in the next."""
        if (known := self._accounts.get(key)) is not None:
            return known
        try:
            session = Session(self._connection(key))
            signer = session.signer()  # a key that may not sign is no fault of a job
            going_on = {
                bot.id: bot
                for state in _GOING_ON
                for bot in session.bots(state, limit=_MOST_LISTED)
            }
        except Exception as error:
            self._key_pauses.begin(key, error)
            raise
        self._key_pauses.forget(key)
        bot_owner = BotOwner(key, signer.owner, signer.project)
        self._accounts[key] = _Account(session, bot_owner, going_on)
        return self._accounts[key]

    def _connection(self, key: Path) -> Connection:
        """A connection with what the file of a key holds now."""
        endpoint = endpoint_of(self._settings.server, key)
        known, connection = self._connections.get(key, (None, None))
        if connection is not None:
            if known == endpoint:
                return connection
            connection.close()
        self._connections[key] = endpoint, connection_to(endpoint)
        return self._connections[key][1]

    def _say(self, where: object, what: str, error: Exception) -> None:
        """Log an error where it is new."""
        if self._said.get(where) != str(error):
            is_ours = not isinstance(error, GridbotError | reliable.OutOfTime)
            log.error("%s: %s", what, error, exc_info=error if is_ours else None)
        self._said[where] = str(error)

    def _step(self, job: ListedJob, act: Callable[[], None]) -> None:
        """Bring one job on, unless it is left alone.

        Raises GridbotError and OutOfTime for what others of its key meet, too.
        """
        reliable.check()
        if self._job_pauses.covers(job.id):
            return
        try:
            self._bring_on(job, act)
        except (GridbotError, reliable.OutOfTime) as error:
            self._job_pauses.begin(job.id, error)
            raise
        except Exception as error:  # a full disk, or an error of ours: it delays no other job
            log.exception("job %s waits", job.id)
            self._job_pauses.begin(job.id, error)
        else:
            self._job_pauses.forget(job.id)

    def _bring_on(self, job: ListedJob, act: Callable[[], None]) -> None:
        try:
            act()
        except GridbotError as error:
            if (end := _end_by(error, job)) is None:
                raise
            self._end(job, end)

    def _is_over(self, job: ListedJob) -> bool:
        """Whether a job is to end without a BOT, unless its files turn out to be there."""
        if job.state is not ArcState.ACCEPTED:
            return False
        is_late = self._jobs.age() - job.created_age > FILES_AWAITED_SECONDS
        return job.is_killed or (is_late and self._known_missing(job) != "")

    def _end_unsubmitted(self, job: ListedJob) -> None:
        if job.is_killed:
            self._end(job, JobEnd(ArcState.KILLED, "killed before it was submitted"))
        elif missing := self._missing(job):
            reason = f"input file {missing} was not sent within {FILES_AWAITED_SECONDS:.0f} s"
            self._end(job, JobEnd(ArcState.FAILED, reason))

    def _may_be_ready(self, job: ListedJob) -> bool:
        """Whether a job may get its BOT now, as far as is known without a look at its files."""
        if job.bot is not None or self._job_pauses.covers(job.id):
            return False
        is_awaited = not job.is_killed and not self._known_missing(job)
        return job.state is ArcState.SUBMITTING or is_awaited

    def _known_missing(self, job: ListedJob) -> str | None:
        """What the last look found missing; None if files have come since, or none was taken."""
        look = self._looks.get(job.id)
        return look.missing if look and look.received == job.received else None

    def _missing(self, job: ListedJob) -> str:
        """The first of a job's files that has not come; empty if all are there."""
        known = self._known_missing(job)
        if known is None:
            try:
                inputs = self._description(job).inputs
            except BadInput:  # an older version took it: its submission says why
                inputs = ()
            known = next(iter(self._files.missing(job.id, inputs)), "")
            self._looks[job.id] = _Look(job.received, known)
        return known

    def _description(self, job: ListedJob) -> JobDescription:
        found = self._jobs.one(job.subject, job.id)
        assert found  # a job that has not ended is not removed
        return found.description

    def _submit(self, account: _Account, job: ListedJob) -> None:
        """Make the job's BOT if its files are there; or find it if an earlier process made it."""
        if job.state is not ArcState.SUBMITTING:
            if self._missing(job):
                return
            self._jobs.submitting(job.id, account.bot_owner)
        fields = submission_fields(self._description(job), job.id, self._files.inputs(job.id))
        try:
            bot = account.session.submit(**fields).id
        except InputUnreadable as error:
            raise FilesAway(str(error)) from error
        except KeyUsed as error:  # by another version of this program, which wrote it otherwise
            bot = error.bot
        except Refused as error:
            if error.error == _NO_BOT:
                self._jobs.unsubmitted(job.id)
            raise
        self._jobs.submitted(job.id, bot)
        log.info("job %s is BOT %d", job.id, bot)

    def _follow(self, account: _Account, job: ListedJob, number: int) -> None:
        bot = account.session.bot(number)
        state = account.going_on.get(number) or bot.show()
        if not state.is_final:
            if job.is_killed:
                bot.cancel()
            if (shown := of_bot(state)) is not job.state:
                self._jobs.move(job.id, shown)
            return
        result = next(iter(bot.results()), None)
        if result is None:  # jobs of a cancelled BOT have none
            self._end(job, JobEnd(ArcState.KILLED, f"BOT {number} was cancelled"))
            return
        self._jobs.move(job.id, ArcState.FINISHING)
        self._end(job, self._keep(job, result))

    def _keep(self, job: ListedJob, result: Result) -> JobEnd:
        """Keep what a job left, and say how it ended: it failed if that can never be kept."""
        end = end_of(result, is_killed=job.is_killed)
        try:
            self._files.keep(job.id, _outputs(result, self._description(job)))
        except NotFound:
            raise
        except (ServerAway, Refused, reliable.OutOfTime) as error:
            raise FilesAway(str(error)) from error
        except Exception as error:
            self._not_kept[job.id] += 1
            if is_full(error) or self._not_kept[job.id] < MOST_FAILURES:
                raise
            log.exception("job %s: its outputs are given up", job.id)
            return replace(end, state=ArcState.FAILED, reason=f"outputs cannot be kept: {error}")
        return end

    def _end(self, job: ListedJob, end: JobEnd) -> None:
        assert end.state in ENDED
        self._jobs.end(job.id, end)
        self._files.drop_inputs(job.id)  # which a job needs that goes on, as after a crash
        self._not_kept.pop(job.id, None)
        log.info("job %s: %s %s", job.id, end.state, end.reason)


def _end_by(error: GridbotError, job: ListedJob) -> JobEnd | None:
    """How a job ends by what the server says; None if that passes, or is not about the job."""
    if job.bot is not None:
        is_of_job = isinstance(error, NotFound)
    elif isinstance(error, Refused):
        is_of_job = error.error in _OF_SUBMISSION
    else:
        is_of_job = isinstance(error, BadInput)
    return JobEnd(ArcState.FAILED, str(error)) if is_of_job else None


def _check_bot_owners(jobs: list[ListedJob], now: BotOwner) -> None:
    """Raise BadInput if BOTs of some jobs are somebody else's than the key now, or elsewhere."""
    others = [job.bot_owner for job in jobs if job.bot_owner not in (None, now)]
    if others and (other := others[0]) is not None:
        raise BadInput(
            f"{now.account} is now {now.owner}'s key for project {now.project}; {len(others)} jobs"
            f" wait for that of {other.owner} for project {other.project}, which made their BOTs"
        )


def _outputs(result: Result, job: JobDescription) -> dict[str, ArcOutput]:
    """Outputs of a job by their names; a stream that has none is not fetched."""
    named = streams(job)
    found = dict[str, ArcOutput]()
    for came_as, output in result.outputs.items():
        if name := named.get(came_as, "") if came_as in STREAMS else came_as:
            found[name] = ArcOutput(output.size, output.save)
    return found
