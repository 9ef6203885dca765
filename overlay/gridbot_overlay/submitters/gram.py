"""GRAM5, the gatekeeper of the Globus Toolkit, by its protocol of two phases.

A job is requested, its contact is written down here, and only then is it committed: a request
whose answer was lost is forgotten by the gatekeeper and never ran, and every job that runs is
known.  Its end is committed, too, so that "done" is never mistaken for "cancelled" or "unknown".
A job manager that was lost is started again by the job's contact (paper "Condor and the Grid",
section 4.1: Condor-G).  GRAM lists nothing and has no arrays: the journal is the list.

What a site's batch system gets to know, its GRAM adaptor decides: the one for Slurm passes CPUs
and memory on and, as of release 3.0, no walltime.  Exit codes are not told.

Tested with the Grid Community Toolkit 6.2.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gridbot_overlay.decide.model import CheckResult, Grid, PilotOrder, PilotState, Sighting
from gridbot_overlay.submitters import GridError, gram_client, gram_rsl, rendering
from gridbot_overlay.submitters.commands import Commands
from gridbot_overlay.submitters.gram_jobs import GramJob, Journal, Phase
from gridbot_overlay.submitters.logs import Logs

OPTIONS = {
    "contact": "",  # gatekeeper.example:2119/jobmanager-slurm
    "environment": {},  # for the client: {X509_USER_PROXY = "/home/operator/proxy"}
    "logs": "",  # a folder of the site that we share; without it no stderr is shown
}
STATES = {
    1: PilotState.QUEUED,  # pending
    2: PilotState.RUNNING,  # active
    4: PilotState.ENDED,  # failed
    8: PilotState.ENDED,  # done
    16: PilotState.RUNNING,  # suspended
    32: PilotState.QUEUED,  # unsubmitted
    64: PilotState.QUEUED,  # stages files in
    128: PilotState.RUNNING,  # stages files out
}
# https://gridcf.org/gct-docs/latest/gram5/developer/gram5-developer-errors.html
_USER_CANCELLED, _DRY_RUN, _NO_ANSWER, _NOT_COMMITTED, _MANAGER_LIVES = 8, 41, 79, 111, 124
_NOT_WAITING, _UNKNOWN = 133, 156
# The way, the gatekeeper or the job manager does not work now.
_AWAY = {3, 10, 12, _NO_ANSWER, 94, 120, _MANAGER_LIVES, 158}
# A job manager that was stopped, or whose proxy expired, calls its job failed while it runs on.
_STILL_RUNS = {130, 131}
# The site has nothing left of a job whose manager is to be started again.
_LOST = {121, 122, 125, _UNKNOWN}
_AT_ONCE = 20  # operations of one client process; requests before the first is committed
_PROXY_SECONDS = 900


@dataclass(frozen=True, slots=True, kw_only=True)
class GramAnswer:
    """What the client library gave back; `error` 0 is success."""

    error: int
    words: str = ""
    contact: str = ""
    state: int = 0
    failure: int = 0
    reason: str = ""
    is_of_job: bool = False  # an error that concerns this job, and no other of its site

    @property
    def tells(self) -> bool:
        """Whether its site could be asked."""
        return self.error in (0, _UNKNOWN) or self.is_of_job

    @property
    def is_without_manager(self) -> bool:
        """Whether nobody looks after the job at its site."""
        return self.error == _NO_ANSWER or self.failure in _STILL_RUNS


class Gram:
    """Pilots as jobs behind one gatekeeper."""

    def __init__(self, grid: Grid, folder: Path) -> None:
        options = rendering.options(grid, OPTIONS)
        if not options["contact"]:
            text = f"grid {grid.name}: option contact must name a gatekeeper, as HOST:PORT/SERVICE"
            raise GridError(text, is_lasting=True)
        self._grid = grid
        self._service: str = options["contact"]
        self._commands = Commands(environment=options["environment"])
        self._logs = Logs(self._commands, options["logs"]) if options["logs"] else None
        self._journal = Journal(folder / "jobs")

    def submit(self, order: PilotOrder) -> list[str]:
        """Request some, write them down, commit them; then the next ones."""
        rendering.job_name(order.tag, 0)  # it becomes the name of a file
        if self._logs:
            self._logs.prepare()
        jobs: list[GramJob] = []
        with self._journal.locked():
            for first, count in rendering.parts(order.count, _AT_ONCE):
                refusal = self._request(order, range(first, first + count), jobs)
                self._journal.write(jobs)
                self._commit([job for job in jobs if job.phase is Phase.REQUESTED])
                self._journal.write(jobs)
                if refusal:
                    is_lasting = not jobs and refusal.error not in _AWAY
                    raise _error(refusal, self._service, is_lasting=is_lasting)
        return [job.native_id for job in jobs]

    def pilots(self, prefix: str) -> list[Sighting]:
        """Ask about all jobs that were written down and have not ended."""
        with self._journal.locked():
            jobs = self._journal.read(prefix)
            self._commit([job for job in jobs if job.phase is Phase.REQUESTED])
            live = [job for job in jobs if job.is_live]
            answers = self._reach(live, jobs, "status")
            if answers and not any(answer.tells for answer in answers):
                raise _error(answers[0], self._service)
            for job, answer in zip(live, answers, strict=True):
                learn(job, answer, time.time())
            self._journal.write(jobs)
            self._release([job for job in jobs if job.phase is Phase.ENDED])
            self._journal.write(jobs)
            self._journal.forget(jobs, time.time())
        return [sighting(job) for job in jobs]

    def cancel(self, native_ids: Sequence[str]) -> None:
        """Cancel jobs; their end is seen by `pilots`."""
        with self._journal.locked():
            jobs = self._journal.read()
            wanted = [job for job in jobs if job.is_live and job.native_id in set(native_ids)]
            for job in wanted:
                job.is_cancelled = True
            self._journal.write(jobs)
            answers = self._reach(wanted, jobs, "cancel")
        for answer in answers:
            if answer.error not in (0, _UNKNOWN):
                raise _error(answer, self._service)

    def tail(self, native_id: str, tag: str) -> str:
        """Return the end of the pilot's stderr, where the site shares a folder with us."""
        return self._logs.tail(tag, native_id) if self._logs else ""

    def check(self) -> list[CheckResult]:
        """Look at our proxy, the gatekeeper, and what it says of a test."""
        found = [self._of_proxy()]
        found.append(self._of("gatekeeper", {"do": "ping", "service": self._service}, good=0))
        if all(finding.is_good for finding in found):
            rsl = gram_rsl.test(_example(self._grid))
            test = {"do": "request", "service": self._service, "rsl": rsl}
            found.append(self._of("dry run", test, good=_DRY_RUN))
        return [*found, self._logs.check()] if self._logs else found

    # ----------------------------------------------------------------------------- protocol

    def _request(self, order: PilotOrder, indices: range, jobs: list[GramJob]) -> GramAnswer | None:
        """Add the jobs that were granted; give the refusal where there was one."""
        operations = []
        for index in indices:
            native_id = f"{order.tag}.{index}"
            stderr = self._logs.path(order.tag, native_id) if self._logs else ""
            rsl = gram_rsl.pilot(order, index, native_id, stderr)
            operations.append({"do": "request", "service": self._service, "rsl": rsl})
        answers = self._client(operations)
        for index, answer in zip(indices, answers, strict=False):
            if not answer.contact:
                return answer
            now = time.time()
            jobs.append(GramJob(tag=order.tag, index=index, contact=answer.contact, changed_at=now))
        return None

    def _commit(self, jobs: Sequence[GramJob]) -> None:
        for job, answer in zip(jobs, self._signal(jobs, "commit"), strict=True):
            if answer.error in (0, _NOT_WAITING):
                job.phase = Phase.COMMITTED

    def _release(self, jobs: Sequence[GramJob]) -> None:
        for job, answer in zip(jobs, self._signal(jobs, "end"), strict=True):
            if answer.error in (0, _UNKNOWN):
                job.phase = Phase.RELEASED

    def _signal(self, jobs: Sequence[GramJob], name: str) -> list[GramAnswer]:
        return self._client(
            [{"do": "signal", "contact": job.contact, "name": name} for job in jobs]
        )

    def _reach(
        self, wanted: Sequence[GramJob], jobs: Sequence[GramJob], do: str
    ) -> list[GramAnswer]:
        """Ask the managers of jobs, once more after starting those again that do not answer."""
        answers = self._client([{"do": do, "contact": job.contact} for job in wanted])
        silent = [number for number, answer in enumerate(answers) if answer.is_without_manager]
        for number in silent:
            answers[number] = self._restarted(wanted[number], jobs)
        again = [number for number in silent if not answers[number].error]
        self._commit([wanted[number] for number in again])
        contacts = [{"do": do, "contact": wanted[number].contact} for number in again]
        for number, answer in zip(again, self._client(contacts), strict=True):
            answers[number] = answer
        return answers

    def _restarted(self, job: GramJob, jobs: Sequence[GramJob]) -> GramAnswer:
        """Start a job's manager again; without error when there is one to be committed now."""
        rsl = gram_rsl.restart(job.contact)
        [answer] = self._client([{"do": "request", "service": self._service, "rsl": rsl}])
        if answer.error in _LOST:
            return GramAnswer(error=_UNKNOWN, words="its site has lost it")
        if answer.error not in (0, gram_client.WAITS_FOR_COMMIT, _MANAGER_LIVES):
            return replace(answer, is_of_job=answer.error not in _AWAY)
        # As with a new job: a manager whose restart is not committed gives its job up.
        job.contact, job.phase = answer.contact or job.contact, Phase.REQUESTED
        self._journal.write(jobs)
        return GramAnswer(error=0)

    def _client(self, operations: Sequence[dict[str, str]]) -> list[GramAnswer]:
        program = (sys.executable, "-I", gram_client.__file__)
        answers: list[GramAnswer] = []
        for first, count in rendering.parts(len(operations), _AT_ONCE):
            some = json.dumps(operations[first : first + count])
            printed = self._commands.run(*program, stdin=some)
            answers += [GramAnswer(**answer) for answer in json.loads(printed)]
        return answers

    # -------------------------------------------------------------------------------- check

    def _of_proxy(self) -> CheckResult:
        try:
            left = int(self._commands.run("grid-proxy-info", "-timeleft"))
        except (GridError, ValueError) as error:
            return CheckResult("proxy", False, str(error))
        text = f"valid for {left} s more; renew it in time with grid-proxy-init"
        return CheckResult("proxy", left >= _PROXY_SECONDS, text)

    def _of(self, what: str, operation: dict[str, str], *, good: int) -> CheckResult:
        try:
            [answer] = self._client([operation])
        except GridError as error:
            return CheckResult(what, False, str(error))
        if answer.error == good:
            return CheckResult(what, True, f"{self._service} agrees")
        return CheckResult(what, False, str(_error(answer, self._service)))


def _example(grid: Grid) -> PilotOrder:
    shape, directives = grid.shape, grid.directives
    return PilotOrder(
        tag="check", count=1, shape=shape, script="", directives=directives, owners=()
    )


def _error(answer: GramAnswer, service: str, *, is_lasting: bool | None = None) -> GridError:
    lasting = answer.error not in _AWAY if is_lasting is None else is_lasting
    return GridError(f"{service}: error {answer.error}: {answer.words}", is_lasting=lasting)


def learn(job: GramJob, answer: GramAnswer, now: float) -> None:
    """Write down what a job manager said of its job."""
    if answer.error == _UNKNOWN:
        job.reason = _forgotten(job, answer)
        job.phase, job.changed_at = Phase.RELEASED, now
    elif answer.error:
        job.reason = answer.words  # and it is as it was when last seen
    else:
        job.state, job.reason = answer.state, _reason(job, answer)
        if STATES.get(answer.state) is PilotState.ENDED:
            job.phase, job.changed_at = Phase.ENDED, now


def _forgotten(job: GramJob, answer: GramAnswer) -> str:
    """Say what is known of a job that its site knows no more."""
    if job.is_cancelled:
        return "cancelled"
    seen = "it was not seen to be committed: " if job.phase is Phase.REQUESTED else ""
    return f"{seen}{answer.words}"


def _reason(job: GramJob, answer: GramAnswer) -> str:
    if answer.failure == _NOT_COMMITTED:
        return "it was never committed, and never ran"
    if job.is_cancelled or answer.failure == _USER_CANCELLED:
        return "cancelled"
    return answer.reason


def sighting(job: GramJob) -> Sighting:
    """Show a job in the overlay's words."""
    return Sighting(
        tag=job.tag,
        native_id=job.native_id,
        index=job.index,
        # A state that GRAM did not have when this was written must not make a pilot disappear.
        state=PilotState.ENDED if not job.is_live else STATES.get(job.state, PilotState.RUNNING),
        reason=job.reason,
    )
