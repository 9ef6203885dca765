"""One BOT on the server: append jobs, follow it, take its results, change it."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gridbot.api.command_line import shell_line
from gridbot.api.connection import Connection, log_away, patiently, quiet
from gridbot.api.documents import (
    BotDetails,
    BotSummary,
    ChangedBot,
    Explanation,
    FailureDigest,
    FailureGroup,
    JobsCancelled,
    LiveReplicas,
    LogLine,
    ManifestText,
    Prediction,
    ResultLine,
    Retried,
)
from gridbot.api.errors import BotHeld, GridbotError, ServerAway
from gridbot.api.following import follow_results, follow_state
from gridbot.api.frames import frame_of
from gridbot.api.inputs import Input, InputFile, JobInputs, Progress, split, upload
from gridbot.api.items import Items, items_of
from gridbot.api.live import Printed, follow_output
from gridbot.api.policy import read_policy, with_priority
from gridbot.api.results import Result, json_lines, result_of
from gridbot.api.retrying import Changes, next_version
from gridbot.api.sending import CHUNK_JOBS, Appending, Signer, Told, check_own_sources
from gridbot.api.specs import specs_of
from gridbot.api.state import BotState, bot_state, why_held
from gridbot.api.submission import growing_jobs
from gridbot.api.units import most_failures, seconds
from gridbot.printing import counted
from gridbot_client.protocol import job_table
from gridbot_client.protocol.messages import Manifest, Scalar

if TYPE_CHECKING:
    import pandas


class Bot:
    """A BOT on the server.  `submitted` is the response to its submission, else empty.

    Threads may share it.
    """

    def __init__(
        self,
        connection: Connection,
        number: int,
        submitted: Mapping[str, Any] | None = None,
        signer: Callable[[], Signer] | None = None,
        job_inputs: JobInputs | None = None,
    ) -> None:
        self.connection = connection
        self.id = number
        self.submitted: Mapping[str, Any] = submitted or {}
        self._path = f"/bots/{number}"
        self._signer, self._job_inputs = signer, job_inputs
        self._appending: Appending | None = None
        self._lock = threading.Lock()  # one append at a time

    def __repr__(self) -> str:
        return f"<Bot {self.id} at {self.connection.url}>"

    @property
    def warnings(self) -> Sequence[str]:
        """Warnings about the submission."""
        return tuple(self.submitted.get("warnings", ()))

    def append(
        self,
        items: Items | range | Path | Iterable[object],
        inputs: Sequence[Input] = (),
        offset: int | None = None,
        base: Path = Path(),
        told: Told = log_away,
    ) -> range:
        """Append jobs to a growing BOT, all or none; return their numbers (`Result.seq`).

        They may run at once.  `items` are as in a submission, with values for the columns that the
        BOT began with.  `inputs` with placeholders are files of single jobs, by default those of
        the submission; an output of another job's result is a file of each of these jobs.
        With `offset` the jobs are those from that number on: to repeat the call changes nothing.
        Without, they go behind all others, also if others append beside.  At most 20,000 jobs at
        once.  Raises BadInput, Refused (also when the BOT is closed) or ServerAway.
        """
        table = items_of(items)
        with self._lock:
            if self._appending is None:
                self._appending = self._begin_appending()
            found = self._job_inputs
            if inputs:
                paths, stored = split(inputs)
                found = JobInputs(specs_of(paths, base), base, stored)
                check_own_sources(found.sources, self._appending.manifest)
            columns = self._appending.manifest.placeholders
            jobs = list(growing_jobs(table, columns, found))
            if found:
                upload(self.connection, [*found.files.values(), *found.stored], quiet)
                found.files.clear()  # they may change until the next jobs
            return self._appending.append(jobs, offset, told)

    def append_each(
        self,
        jobs: Sequence[tuple[Mapping[str, Scalar], Sequence[InputFile]]],
        offset: int | None = None,
        told: Told = log_away,
    ) -> range:
        """Append jobs to a growing BOT, each with input files of its own; else as `append`.

        A job has a value for each placeholder; the names of its files are among the `job_inputs`
        of the submission.
        """
        with self._lock:
            if self._appending is None:
                self._appending = self._begin_appending()
            upload(self.connection, [file for _, files in jobs for file in files], quiet)
            texts = [job_table.job_text(args, [file.ref for file in files]) for args, files in jobs]
            return self._appending.append(texts, offset, told)

    def _begin_appending(self) -> Appending:
        if self._signer is None:
            raise GridbotError(f"bot {self.id}: jobs are appended through a Session")
        known = self.submitted.get("jobs_total")
        jobs = self.show().jobs_total if known is None else known
        return Appending(self.connection, self.id, self._signer(), jobs)

    def close(self) -> BotState:
        """Let a growing BOT take no more jobs, so that it ends with those it has.  Idempotent."""
        document: BotSummary = self.connection.send("POST", f"{self._path}/close", {})
        return bot_state(document)

    def show(self) -> BotState:
        """Current state.  Raises NotFound."""
        return self._show(0)

    def _show(self, wait: int) -> BotState:
        """State once it has ended, or so many seconds are over."""
        document: BotDetails = self.connection.get(self._path, **({"wait": wait} if wait else {}))
        return bot_state(document)

    def wait(self, timeout: float | str | None = None) -> BotState:
        """Wait until the BOT has ended, or is held, and return its state.

        Survives restarts of the server.  Raises TimeoutError after `timeout`, in seconds or as
        "10m"; the BOT keeps running.
        """
        return deque(self.watch(timeout), maxlen=1)[0]

    def watch(
        self,
        timeout: float | str | None = None,
        told: Told = log_away,
    ) -> Iterator[BotState]:
        """Poll the BOT and yield each state until it has ended or is held; errors as in `wait`."""
        if isinstance(timeout, str):
            timeout = seconds(timeout)
        return follow_state(
            self._show,
            lambda state: state.has_stopped,
            lambda state: (
                f"bot {self.id} has {state.jobs_finished} of {counted(state.jobs_total, 'job')}"
            ),
            timeout=timeout,
            told=told,
        )

    def results(
        self,
        follow: bool = False,
        after: int = 0,
        told: Told = log_away,
    ) -> Iterator[Result]:
        """Yield finished jobs in the order of their end.

        `after` is the `n` of the last result already received.  With `follow`, wait for further
        results until the BOT has ended, and raise BotHeld once it is held; `told` gets errors
        while the server is away.
        """
        types = patiently(self.types, told, for_=math.inf if follow else 30.0)

        def read(after: int, wait: int) -> Iterator[Result]:
            asked = {"wait": wait} if wait else {}
            rows: Iterator[ResultLine] = json_lines(
                self.connection, f"{self._path}/results", after=after, **asked
            )
            return (result_of(row, self.id, types, self.connection) for row in rows)

        has_ended = partial(self._has_ended, told)
        yield from follow_results(read, has_ended, after=after, follow=follow, told=told)

    def _has_ended(self, told: Told) -> bool:
        """Whether there will be no more results.  Raises BotHeld."""
        state = patiently(self.show, told)
        if state.is_held and not state.jobs_in_progress:
            raise BotHeld(why_held(state))
        return state.is_final

    def frame(self, output: str | None = None) -> pandas.DataFrame:
        """Results so far as a data frame of pandas, in the order of the jobs.

        A row has the job's arguments, `job` (its number), `state`, `seconds`, `host`, `exit_code`,
        `reason` and, if jobs return it, `stdout`.  With `output`, the name of an output that holds
        JSON or, if it ends with .csv, CSV, each record in it is a row with columns of its own: an
        object, or each of a list of objects.  Another value of JSON is a column with the output's
        name.  A job without a readable output has one row, whose `reason` says what is wrong.
        Arguments keep their names; another column of the same name gets _ behind it.
        Raises GridbotError without pandas.
        """
        return frame_of(sorted(self.results(), key=_seq), self.columns(), output)

    def _repr_html_(self) -> str:
        return self.show()._repr_html_()

    def columns(self) -> Sequence[str]:
        """Names of the placeholders of its jobs."""
        return tuple(self.types())

    def logs(self, seq: int | None = None, failed: bool = False) -> Iterator[LogLine]:
        """Yield ended replicas with the last part of their stdout and stderr, as documents."""
        how = "error" if failed else None
        lines: Iterator[LogLine] = json_lines(
            self.connection, f"{self._path}/logs", seq=seq, how=how
        )
        return lines

    def follow_output(
        self, job: int | None = None, told: Callable[[ServerAway], None] = log_away
    ) -> Iterator[Printed]:
        """Yield what its jobs print, or one of them, while they run and until they have ended.

        A second or so later than they do, in order and without gaps, of 20 replicas at most at the
        same time; of what ended meanwhile, the last 64 KB.  `told` hears when the server is away.
        """
        wanted = {} if job is None else {"job": job}

        def look(positions: Sequence[Mapping[str, int]]) -> LiveReplicas:
            body = {**wanted, "positions": list(positions)}
            found: LiveReplicas = self.connection.send("POST", f"{self._path}/live", body)
            return found

        return follow_output(look, lambda seq: self.logs(job if seq is None else seq), told)

    def explain(self, host: str | int | None = None) -> Explanation:
        """Conditions that reject hosts, or one host, and suggested changes, as a document."""
        document: Explanation = self.connection.get(f"{self._path}/explanation", host=host)
        return document

    def what_if(self, policy: str | Path | None = None, seeds: int = 8) -> Prediction:
        """When it is likely to end, and when under another `policy` (text or Path), as a document.

        The server simulates it, which takes up to 45 seconds, and changes nothing.
        Raises BadInput, PolicyError, or Refused if its end cannot be predicted.
        """
        text = None if policy is None else read_policy(policy)
        body = {"policy": text, "seeds": seeds}
        document: Prediction = self.connection.send("POST", f"{self._path}/what-if", body)
        return document

    def cancel(self, jobs: Iterable[int] | None = None, unsent: bool = False) -> BotState:
        """Cancel it, or only the jobs with these numbers; results of finished jobs are kept.

        With `unsent`, only those of them that no host was given yet.

        Idempotent.  Of single jobs, those without an answer fail with the reason `cancelled`; the
        state's `document["cancelled"]` lists them, so the others have ended already.  A retry
        leaves them cancelled.
        """
        if jobs is None:
            document: BotSummary = self.connection.send("POST", f"{self._path}/cancel", {})
            return bot_state(document)
        wanted, cancelled = list(jobs), list[int]()
        for at in range(0, max(1, len(wanted)), CHUNK_JOBS):
            some: dict[str, Any] = {"jobs": wanted[at : at + CHUNK_JOBS]}
            if unsent:  # servers before this refuse the field
                some["unsent"] = True
            path = f"{self._path}/jobs/cancel"
            answer: JobsCancelled = self.connection.send("POST", path, some)
            cancelled += answer["cancelled"]
        answer["cancelled"] = cancelled
        return bot_state(answer)

    def delete(self) -> None:
        """Delete an ended BOT with its jobs and results.  Raises Refused or NotFound."""
        self.connection.send("DELETE", self._path)

    def hold(self) -> BotState:
        """Send nothing more of it until it is resumed; what hosts have goes on.  Idempotent."""
        document: BotSummary = self.connection.send("POST", f"{self._path}/hold", {})
        return bot_state(document)

    def resume(self) -> BotState:
        """Let a held BOT go on; its failures do not hold it again.  Idempotent."""
        document: BotSummary = self.connection.send("POST", f"{self._path}/resume", {})
        return bot_state(document)

    def failures(self) -> list[FailureGroup]:
        """Failed replicas in groups that are alike, the largest first, as documents."""
        document: FailureDigest = self.connection.get(f"{self._path}/failures")
        return document["groups"]

    def command(self, args: Mapping[str, str | int | float | bool]) -> str:
        """What a job with these arguments runs, as a line for a shell."""
        return shell_line(self._manifest(), args)

    def retry(
        self,
        jobs: Iterable[int] | None = None,
        *,
        inputs: Sequence[Input] = (),
        memory: int | str | None = None,
        disk: int | str | None = None,
        time: float | str | None = None,
        max_output: int | str | None = None,
        base: Path = Path(),
        progress: Progress = quiet,
    ) -> int:
        """Retry failed jobs, all or those with these numbers; return how many.

        With inputs or limits, all that is left runs a new version of the manifest: jobs that are
        retried or unsent.  Inputs, relative to `base`, replace those of the same names or come
        beside.  Results that are there stay, and say which version they ran.  A held BOT goes on.
        Raises BadInput, Refused (also for jobs that have not failed) or ServerAway.
        """
        changes = Changes(
            inputs=inputs, memory=memory, disk=disk, time=time, max_output=max_output, base=base
        )
        body: dict[str, Any] = {}
        if jobs is not None:
            body["jobs"] = list(jobs)
        with self._lock:
            if changes:
                if self._signer is None:
                    raise GridbotError(f"bot {self.id}: a version is signed through a Session")
                body["version"] = next_version(
                    self.connection, self.id, self._signer(), changes, progress
                )
            document: Retried = self.connection.send("POST", f"{self._path}/retry", body)
            self._appending = None  # its jobs are signed for the new version
        return document["retried"]

    def set(self, **changes: Any) -> BotState:
        """Change `policy` (text or Path), `priority`, `name`, `attempts`, `max_replicas`,
        `tail_threshold`, `tail_sticky`, `failover_after` or `max_failures`; and `memory`, `disk`,
        `time` or `max_output` of jobs that are left, by a new version as in `retry`.
        Raises BadInput, PolicyError or Refused.
        """
        if limits := {name: changes.pop(name) for name in _LIMITS if name in changes}:
            self.retry((), **limits)
            if not changes:
                return self.show()
        if "policy" in changes:
            changes["policy"] = read_policy(changes["policy"])
        if "priority" in changes:
            policy = changes["policy"] if "policy" in changes else self.show().document["policy"]
            changes["policy"] = with_priority(policy, changes.pop("priority"))
        if "max_failures" in changes:
            changes["max_failures"] = most_failures(changes["max_failures"])
        if "attempts" in changes:
            changes["max_attempts"] = changes.pop("attempts")
        document: ChangedBot = self.connection.send("PATCH", self._path, changes)
        return bot_state(document)

    def types(self) -> Mapping[str, str]:
        """Types of its placeholders, by name."""
        return self._manifest().placeholders

    def _manifest(self) -> Manifest:
        document: ManifestText = self.connection.get(f"{self._path}/manifest")
        return Manifest.from_text(document["text"])


_LIMITS = ("memory", "disk", "time", "max_output")  # that the manifest holds


def _seq(result: Result) -> int:
    return result.seq
