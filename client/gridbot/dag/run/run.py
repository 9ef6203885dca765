"""One run of a DAG: a loop that journals what happens, asks the engine, and does what it says."""

from __future__ import annotations

import math
import os
import queue
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from pathlib import Path
from typing import Any

from gridbot.api.errors import GridbotError, NotFound
from gridbot.api.session import Session
from gridbot.dag import journal
from gridbot.dag.engine import actions, events
from gridbot.dag.engine.engine import DagEngine
from gridbot.dag.engine.table import NodeState
from gridbot.dag.language.model import Kind
from gridbot.dag.language.reader import findings_of
from gridbot.dag.reports import rescue
from gridbot.dag.reports.writing import size_of
from gridbot.dag.run import describing, start
from gridbot.dag.run.lots import NodeLot, NodeLots
from gridbot.dag.run.processes import LocalPrograms
from gridbot.dag.run.record import RunReports
from gridbot.dag.run.scripts import Scripts
from gridbot.dag.run.settings import RunOptions
from gridbot.dag.run.shapes import ShapedJob, Shaper, destination_of
from gridbot.dag.submit.errors import SubmitError
from gridbot.dag.submit.job import SubmitJob

PAUSED = 3  # exit code of a run that is to be gone on with
_HALT_SECONDS = 0.5  # between two looks for the halt file
_NEW_YEAR = 1_767_225_600  # 2026: clusters of later runs have greater numbers
_CANNOT_RUN = 127
_INNER_SECONDS = 60.0  # for a sub-DAG to end

Connect = Callable[[], Session]
Say = Callable[[str], None]


@dataclass(frozen=True)
class AskedOfRun:
    """What the user asks of a run that goes on: "remove" or "pause"."""

    what: str


@dataclass(frozen=True)
class Happened:
    """An event, and what the journal keeps with it."""

    event: events.RunEvent
    more: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class Batch:
    """Nodes that are submitted together."""

    submitted: list[Happened] = field(default_factory=list)
    appends: list[tuple[NodeLot, int, list[ShapedJob]]] = field(default_factory=list)
    local: list[tuple[str, list[SubmitJob]]] = field(default_factory=list)


class DagRun:
    """A run that may have begun in another process.  `ask` may be called by any thread."""

    def __init__(
        self, files: Sequence[str], options: RunOptions, connect: Connect, say: Say,
        base: Path | None = None,
    ) -> None:  # fmt: skip
        self._files, self._options, self._connect, self._say = files, options, connect, say
        self._base = base or Path()
        self._inbox: queue.SimpleQueue[events.RunEvent | AskedOfRun] = queue.SimpleQueue()
        self._processes = LocalPrograms()
        self._shaper = Shaper()
        self._inner: dict[str, DagRun] = {}
        self._inner_threads: list[threading.Thread] = []
        self._removed_inner: set[str] = set()
        self._timers: list[tuple[float, str, str]] = []
        self._lots: NodeLots | None = None
        self._halt_at = 0.0
        self._paused = False

    def ask(self, what: str) -> None:
        """Ask for removal ("remove"), or that it can be gone on with later ("pause")."""
        self._inbox.put(AskedOfRun(what))

    def execute(self) -> int:
        """Run to the end; return DAGMan's exit code.  Raises GridbotError before it begins."""
        primary = self._base / self._files[0]
        path = journal.path_of(primary)
        if not journal.has_begun(path):
            self._plan = start.plan(self._files, self._options, self._base)
            start.refuse_at_start(self._plan)
            if self._options.dump_rescue:
                return self._dump()
        self._journal = journal.RunJournal(path)
        try:
            if self._options.force and self._journal.documents:
                self._journal.discard()
                self._plan = start.plan(self._files, self._options, self._base)
                self._journal = journal.RunJournal(path)
            return self._go_on() if self._journal.documents else self._begin()
        finally:
            self._processes.kill_all()

    # --- beginning, and going on

    def _set_up(self, header: journal.Document) -> None:
        self._header = header
        self.engine = DagEngine(self._plan.dag, self._plan.settings.limits)
        self._record = RunReports(
            self._plan, self.engine, header["jobstate"], header["last_rescue"]
        )
        self._environment = {**os.environ, **self._plan.dag.environment}
        self._cluster = int(header["cluster"])
        self._scripts = Scripts(
            self._plan, self.engine, self._processes, self._environment, header["cluster"]
        )

    def _begin(self) -> int:
        log = self._plan.dag.jobstate_log
        now = time.time()
        header = {
            "journal": journal.VERSION,
            "run": secrets.token_hex(8),
            "at": now,
            "files": list(self._files),
            "digest": self._plan.digest,
            "use_dag_dir": self._options.use_dag_dir,
            "config": self._options.config,
            "rescue": self._plan.rescue_file,
            "rescue_number": self._plan.rescue_number,
            "last_rescue": self._last_rescue(),
            "cluster": int(now) - _NEW_YEAR,
            "jobstate": size_of(self._base / log) if log else 0,
        }
        for warning in self._plan.dag.warnings:
            self._say(f"warning: {warning}")
        for finding in findings_of(self._plan.dag):
            self._say(f"warning: {finding}")
        self._set_up(header)
        self._journal.append([header, self._process(now)])
        self._record.begin()
        self._record.internal(now, f"DAGMAN_STARTED {header['cluster']}.0")
        Path(f"{self._plan.primary}.halt").unlink(missing_ok=True)
        self._record.picture(now, is_end=False)
        self._take([Happened(events.Began())])
        return self._loop()

    def _last_rescue(self) -> int:
        numbers = rescue.numbers_of(str(self._plan.primary), len(self._plan.files) > 1)
        return numbers[-1] if numbers else 0

    @staticmethod
    def _process(at: float) -> journal.Document:
        return {"event": "process", "pid": os.getpid(), "at": at}

    def _go_on(self) -> int:
        header = self._journal.documents[0]
        began_with = (header["rescue"], header["rescue_number"])
        self._plan = start.plan(self._files, self._options, self._base, began_with)
        if self._plan.digest != header["digest"]:
            raise GridbotError(
                f"{self._files[0]} has changed since its run began, which is not over; put it back,"
                " or begin anew with --force"
            )
        self._set_up(header)
        self._say(f"{self._files[0]}: going on with the run that was interrupted")
        has_rescue = self._replay()
        now = time.time()
        self._journal.append([self._process(now)])
        for text in (f"DAGMAN_STARTED {header['cluster']}.0", "RECOVERY_STARTED"):
            self._record.internal(now, text)
        self._record.internal(now, "RECOVERY_FINISHED")
        self._record.restore()
        if has_rescue:  # which may not have been written
            self._write_rescue()
        if self.engine.exit_code is not None:
            return self._finish()
        self._begin_again()
        return self._loop()

    def _replay(self) -> bool:
        """Let the engine take what happened; return whether there is to be a rescue file."""
        starts, has_rescue = 0, False
        for document in self._journal.documents[1:]:
            at = document["at"]
            if document["event"] == "process":
                self._record.internal(at, f"DAGMAN_STARTED {self._header['cluster']}.0")
                if starts:
                    self._record.internal(at, "RECOVERY_STARTED")
                    self._record.internal(at, "RECOVERY_FINISHED")
                starts += 1
                continue
            if document["event"] == "paused":
                self._record.internal(at, f"DAGMAN_FINISHED {PAUSED}")
                continue
            event = events.event_of(document)
            self._know_of(event, document)
            done = self.engine.apply(event)
            self._record.tell(event, done, at)
            has_rescue |= actions.WriteRescue() in done
        return has_rescue

    def _know_of(self, event: events.RunEvent, document: journal.Document) -> None:
        """Restore what is known of jobs at the server."""
        if isinstance(event, events.NodeSubmitted):
            self._cluster = max(self._cluster, event.cluster)
            if event.bot:
                lots = self._at_server()
                lot = lots.remember(event.bot, document["number"])
                to = [destination_of(item) for item in document["to"]]
                lots.expect(lot, event.node, event.first, to)
        elif isinstance(event, events.JobEnded | events.JobRemoved):
            for lot in self._lots.known() if self._lots else ():
                for seq, job in list(lot.jobs.items()):
                    if job.node == event.node and job.process == event.process:
                        del lot.jobs[seq]
                        lot.seen = max(lot.seen, event.seen)

    def _begin_again(self) -> None:
        """Begin again what was going on when the last process ended."""
        outstanding = list(self.engine.outstanding())
        lots = self._lots.known() if self._lots else []
        at_server = {job.node for lot in lots for job in lot.jobs.values()}
        here = [
            state
            for state in self.engine.table.nodes.values()
            if state.queued and state.name not in at_server
        ]
        lost = list[Happened]()
        for lot in lots:
            lost += map(Happened, self._append_missing(lot))
            if lot.jobs:
                self._at_server().follow(lot)
        for state in here:
            self._start_here(state, self._described_again(state))
        self._carry_out([*outstanding, *self._decide(lost)])

    def _append_missing(self, lot: NodeLot) -> list[events.JobRemoved]:
        """Append the jobs again that were journaled, and did not reach the server.

        Returns the ends of those that cannot reach it any more.
        """
        lots = self._at_server()
        try:
            absent = lots.missing(lot)
        except NotFound as error:
            return self._refused(lot, 0, error)
        missing: dict[str, list[int]] = {}
        for seq in absent:
            missing.setdefault(lot.jobs[seq].node, []).append(seq)
        for node, numbers in missing.items():
            state = self.engine.table.nodes[node]
            jobs = self._described_again(state)
            shaped = [self._shaper.shaped(job, self._folder(state)) for job in jobs]
            if len(shaped) != state.jobs or any(job.shape.key != lot.key for job in shaped):
                raise GridbotError(
                    f"node {node}: its submit description has changed since its jobs were"
                    " journaled; put it back"
                )
            chosen = shaped[-len(numbers) :]
            try:
                lots.append(lot, numbers[0], chosen)
            except GridbotError as error:
                return self._refused(lot, numbers[0], error)
        return []

    def _refused(self, lot: NodeLot, first: int, error: GridbotError) -> list[events.JobRemoved]:
        self._say(f"BOT {lot.bot.id}: {error}")
        return self._at_server().lose_from(lot, first, str(error))

    def _described_again(self, state: NodeState) -> list[SubmitJob]:
        if state.node.noop or state.node.kind is Kind.SUBDAG:
            return []
        return self._described(state, state.cluster)

    def _described(self, state: NodeState, cluster: int) -> list[SubmitJob]:
        return describing.jobs_of(
            state, self.engine, self._folder(state), self._environment, cluster,
            self._header["cluster"],
        )  # fmt: skip

    # --- the loop

    def _loop(self) -> int:
        while not self.engine.is_over:
            happened = self._wait()
            if self._paused:
                return self._pause()
            self._take([Happened(event) for event in happened])
            self._record.flush(time.time())
        return self._finish()

    def _wait(self) -> list[events.RunEvent]:
        """What has happened; waits for it, and for the times that are due."""
        happened = list[events.RunEvent]()
        now = time.time()
        until = min(self._halt_at, *(timer[0] for timer in self._timers[:1]), math.inf)
        try:
            items = [self._inbox.get(timeout=max(0.0, until - now))]
            while not self._inbox.empty():
                items.append(self._inbox.get())
        except queue.Empty:
            items = []
        for item in items:
            if isinstance(item, events.RunEvent):
                happened.append(item)
            elif item.what == "pause":
                self._paused = True
            else:
                happened.append(events.Removed())
        now = time.time()
        while self._timers and self._timers[0][0] <= now:
            _, node, kind = heappop(self._timers)
            happened.append(events.Due(node, kind))
        if now >= self._halt_at:
            self._halt_at = now + _HALT_SECONDS
            is_there = Path(f"{self._plan.primary}.halt").exists()
            if is_there != self.engine.is_halted:
                self._say("halted by the .halt file" if is_there else "the halt is over")
                happened.append(events.Halted(is_there))
        return happened

    def _take(self, happened: Sequence[Happened]) -> None:
        """Let the engine decide about what happened, and act, until nothing is left to do."""
        self._carry_out(self._decide(happened))

    def _carry_out(self, to_do: Sequence[actions.Action]) -> None:
        while to_do:
            batch = self._act(to_do)
            following = self._decide(batch.submitted)
            # What was refused has to be journaled before others get its places.
            to_do = [*following, *self._decide(self._send(batch))]

    def _decide(self, happened: Sequence[Happened]) -> list[actions.Action]:
        """Journal events; return what follows from them."""
        to_do = list[actions.Action]()
        if not happened:
            return to_do
        at = time.time()
        self._journal.append({**item.event.document(), **item.more, "at": at} for item in happened)
        for item in happened:
            decided = self.engine.apply(item.event)
            self._record.tell(item.event, decided, at)
            to_do += decided
        return to_do

    def _act(self, to_do: Sequence[actions.Action]) -> Batch:
        """Do what was decided; return what is to be submitted, once that is journaled."""
        batch = Batch()
        for action in to_do:
            match action:
                case actions.SubmitNode(node=node):
                    self._submit(self.engine.table.nodes[node], batch)
                case actions.RunScript(node=node, kind=kind):
                    if why := self._scripts.start(node, kind, self._inbox.put):
                        self._inbox.put(events.Broken(why))
                case actions.KillScript(node=node, kind=kind):
                    self._processes.kill((node, kind))
                case actions.CancelJobs(node=node, processes=processes):
                    self._cancel(node, processes)
                case actions.Wait(node=node, kind=kind, seconds=seconds):
                    heappush(self._timers, (time.time() + seconds, node, kind))
                case actions.Save(node=node):
                    self._record.save_point(node, time.time())
                case actions.WriteRescue():
                    self._write_rescue()
                case _:
                    pass  # for the record, or the end
        return batch

    def _write_rescue(self) -> None:
        name = self._record.rescue(time.time())
        self._say(f"the rescue file is {name}; the next run goes on from it")

    # --- submitting

    def _submit(self, state: NodeState, batch: Batch) -> None:
        node = state.node
        self._cluster += 1
        try:
            if node.noop or node.kind is Kind.SUBDAG:
                self._submit_here(state, [], batch)
                return
            jobs = self._described(state, self._cluster)
            if len(jobs) > 1 and self._plan.settings.prohibit_multi_jobs:
                raise SubmitError(f"{len(jobs)} jobs, which DAGMAN_PROHIBIT_MULTI_JOBS forbids")
            if not jobs or all(job.is_local or job.noop for job in jobs):
                self._submit_here(state, jobs, batch)
            else:
                self._submit_there(state, jobs, batch)
        except GridbotError as error:
            self._say(f"node {state.name}: {error}")
            self._inbox.put(events.SubmitFailed(state.name, str(error)))

    def _submit_here(self, state: NodeState, jobs: list[SubmitJob], batch: Batch) -> None:
        if state.node.kind is Kind.SUBDAG and not state.node.noop:
            file = self._folder(state) / state.node.submit
            if not file.is_file():
                raise SubmitError(f"the DAG file {state.node.submit} does not exist")
        count = 1 if state.node.noop or state.node.kind is Kind.SUBDAG else len(jobs)
        batch.local.append((state.name, jobs))
        batch.submitted.append(Happened(events.NodeSubmitted(state.name, self._cluster, count)))

    def _submit_there(self, state: NodeState, jobs: list[SubmitJob], batch: Batch) -> None:
        shaped = [self._shaper.shaped(job, self._folder(state)) for job in jobs]
        shapes = {job.shape.key: job.shape for job in shaped}
        if len(shapes) > 1:
            raise SubmitError("the jobs of one node differ in more than values")
        lots = self._at_server()
        lot = lots.lot(shaped[0].shape)
        first = lots.reserve(lot, state.name, shaped)
        batch.appends.append((lot, first, shaped))
        event = events.NodeSubmitted(state.name, self._cluster, len(jobs), lot.key, first)
        to = [job.destination.document() for job in shaped]
        batch.submitted.append(Happened(event, {"number": lot.bot.id, "to": to}))

    def _send(self, batch: Batch) -> list[Happened]:
        """Let jobs begin that are journaled: of one BOT in one request.

        Returns the ends of those that the server refused.
        """
        refused = list[Happened]()
        together: dict[str, tuple[NodeLot, int, list[ShapedJob]]] = {}
        for lot, first, jobs in batch.appends:
            together.setdefault(lot.key, (lot, first, []))[2].extend(jobs)
        for lot, first, jobs in together.values():
            try:
                self._at_server().append(lot, first, jobs)
            except GridbotError as error:
                refused += map(Happened, self._refused(lot, first, error))
        for node, jobs_here in batch.local:
            self._start_here(self.engine.table.nodes[node], jobs_here)
        return refused

    def _start_here(self, state: NodeState, jobs: list[SubmitJob]) -> None:
        """Begin what runs on this machine."""
        if state.node.noop:
            self._inbox.put(events.JobEnded(state.name, 0, 0))
        elif state.node.kind is Kind.SUBDAG:
            self._inbox.put(events.JobStarted(state.name, 0))
            thread = threading.Thread(target=self._run_inner, args=(state,), daemon=True)
            self._inner_threads.append(thread)
            thread.start()
        else:
            for process, job in enumerate(jobs):
                if process in state.queued:
                    self._start_job(state, process, job)

    def _start_job(self, state: NodeState, process: int, job: SubmitJob) -> None:
        if job.noop:
            self._inbox.put(events.JobEnded(state.name, process, 0))
            return
        self._inbox.put(events.JobStarted(state.name, process))
        self._scripts.start_job(state, process, job, self._inbox.put, _CANNOT_RUN)

    def _run_inner(self, state: NodeState) -> None:
        folder = self._folder(state)
        file = folder / state.node.submit
        options = RunOptions(use_dag_dir=False, priority=state.node.priority)
        inner = DagRun(
            [os.path.relpath(file, folder)], options, self._connect,
            lambda text: self._say(f"{state.name}: {text}"), folder,
        )  # fmt: skip
        self._inner[state.name] = inner
        try:
            code = inner.execute()
        except GridbotError as error:
            self._say(f"{state.name}: {error}")
            code = 1
        if state.name in self._removed_inner:
            self._inbox.put(events.JobRemoved(state.name, 0))
        elif code != PAUSED or not self._paused:
            self._inbox.put(events.JobEnded(state.name, 0, code))

    def _cancel(self, node: str, processes: tuple[int, ...]) -> None:
        if inner := self._inner.get(node):
            self._removed_inner.add(node)
            inner.ask("remove")
            return
        if self._lots and self._lots.cancel(node, processes):
            return
        for process in processes:
            self._processes.kill((node, process))  # if its end is not told already

    # --- the end

    def _pause(self) -> int:
        """End this process; the jobs go on, and the next process follows them."""
        at = time.time()
        self._journal.append([{"event": "paused", "at": at}])
        self._record.internal(at, f"DAGMAN_FINISHED {PAUSED}")
        for inner in self._inner.values():
            inner.ask("pause")
        self._await_inner()
        if self._lots:
            self._lots.pause()
        self._record.flush(at, force=True)
        self._journal.close()
        return PAUSED

    def _finish(self) -> int:
        code = self.engine.exit_code or 0
        self._await_inner()
        if self._lots:
            self._lots.stop(cancel=code != 0)
        at = time.time()
        if self.engine.why and code:
            self._say(f"{self._files[0]}: {self.engine.why}")
        self._record.internal(at, f"DAGMAN_FINISHED {code}")
        self._record.flush(at, force=True)
        self._record.picture(at, is_end=True)
        self._record.metrics(self._header["at"], at, self._header["cluster"])
        self._journal.keep(journal.kept_path_of(self._plan.primary))
        return code

    def _await_inner(self) -> None:
        """Sub-DAGs that were asked to end write their own reports."""
        for thread in self._inner_threads:
            thread.join(_INNER_SECONDS)

    def _dump(self) -> int:
        """Write a rescue file, and run nothing."""
        now = time.time()
        log = self._plan.dag.jobstate_log
        size = size_of(self._base / log) if log else 0
        self._set_up(
            {
                "cluster": int(now) - _NEW_YEAR,
                "jobstate": size,
                "last_rescue": self._last_rescue(),
            }
        )
        self._record.internal(now, "DAGMAN_STARTED 0")
        self._record.rescue(now)
        self.engine.exit_code = 0
        self._record.internal(now, "DAGMAN_FINISHED 0")
        self._record.flush(now, force=True)
        self._record.metrics(now, now, self._header["cluster"])
        return 0

    def _folder(self, state: NodeState) -> Path:
        return self._base / state.node.directory

    def _at_server(self) -> NodeLots:
        if self._lots is None:
            name = self._options.name or f"DAG {self._files[0]}"
            self._lots = NodeLots(
                self._connect(), self._header["run"], name, self._inbox.put, self._say
            )
        return self._lots
