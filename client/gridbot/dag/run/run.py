"""One run of a DAG: a loop that journals what happens, asks the engine, and does what it says."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from gridbot.api.errors import GridbotError
from gridbot.api.session import Session
from gridbot.dag import journal
from gridbot.dag.engine import actions, events
from gridbot.dag.engine.engine import DagEngine
from gridbot.dag.engine.table import NodeState
from gridbot.dag.journal import Happened
from gridbot.dag.language.reader import findings_of
from gridbot.dag.reports import rescue
from gridbot.dag.reports.writing import size_of
from gridbot.dag.run import abandoning, resuming, start
from gridbot.dag.run.inbox import Inbox
from gridbot.dag.run.inner import PAUSED, InnerDags, Say
from gridbot.dag.run.lots import NodeLots
from gridbot.dag.run.processes import LocalPrograms
from gridbot.dag.run.programs import NodePrograms
from gridbot.dag.run.record import RunReports
from gridbot.dag.run.settings import RunOptions
from gridbot.dag.run.submitting import Batch, Submitting, WorkPlaces
from gridbot.dag.run.telling import ToldRun, WorkflowTeller

_NEW_YEAR = 1_767_225_600  # 2026: clusters of later runs have greater numbers

Connect = Callable[[], Session]


class DagRun:
    """A run that may have begun in another process."""

    def __init__(
        self, files: Sequence[str], options: RunOptions, connect: Connect, say: Say,
        base: Path | None = None,
    ) -> None:  # fmt: skip
        self._files, self._options, self._connect, self._say = files, options, connect, say
        self._base = base or Path()
        self._inbox = Inbox()
        self._processes = LocalPrograms()
        self._lots: NodeLots | None = None
        self._teller: WorkflowTeller | None = None

    def remove(self) -> None:
        """Ask for its end; any thread may."""
        self._inbox.put(events.Removed())

    def pause(self) -> None:
        """Ask that it can be gone on with later; any thread may."""
        self._inbox.pause()

    def execute(self) -> int:
        """Run to the end; return DAGMan's exit code.  Raises GridbotError before it begins."""
        path = journal.path_of(self._base / self._files[0])
        if not journal.has_begun(path):
            self._plan = start.plan(self._files, self._options, self._base)
            start.refuse_at_start(self._plan)
            if self._options.dump_rescue:
                return self._dump()
            if self._options.must_resume:
                raise GridbotError(f"{self._files[0]}: no run of it was interrupted")
        self._journal = journal.RunJournal(path)
        if self._options.force and self._journal.documents:
            self._plan = start.plan(self._files, self._options, self._base)
            abandoning.abandon(self._journal.documents, self._connect, self._say)
            self._journal.discard()
            self._journal = journal.RunJournal(path)
        try:
            return self._go_on() if self._journal.documents else self._begin()
        finally:
            self._processes.kill_all()

    # --- beginning, and going on

    def _set_up(self, header: journal.Document) -> None:
        self._header = header
        plan, dag_id = self._plan, int(header["cluster"])
        self.engine = DagEngine(plan.dag, plan.settings.limits)
        self._record = RunReports(plan, self.engine, header["jobstate"], header["last_rescue"])
        environment = {**os.environ, **self._options.variables, **plan.dag.environment}
        self._programs = NodePrograms(
            plan, self.engine, self._processes, environment, header["run"], dag_id,
            self._inbox.put,
        )  # fmt: skip
        self._inner = InnerDags(self._inner_run, self._inbox.put, self._say)
        places = WorkPlaces(self._at_server, self._programs, self._inner)
        self._submitting = Submitting(
            plan, self.engine, places, environment, dag_id, self._inbox.put, self._say
        )

    def _new_header(self, at: float) -> journal.Document:
        log = self._plan.dag.jobstate_log
        return {
            "journal": journal.VERSION,
            "run": secrets.token_hex(8),
            "at": at,
            "files": list(self._files),
            "digest": self._plan.digest,
            "use_dag_dir": self._options.use_dag_dir,
            "config": self._options.config,
            "rescue": self._plan.rescue_file,
            "rescue_number": self._plan.rescue_number,
            "last_rescue": self._plan.last_rescue(),
            "cluster": int(at) - _NEW_YEAR,
            "jobstate": size_of(self._base / log) if log else 0,
        }

    def _begin(self) -> int:
        now = time.time()
        header = self._new_header(now)
        for finding in (*self._plan.dag.warnings, *findings_of(self._plan.dag)):
            self._say(f"warning: {finding}")
        self._set_up(header)
        self._journal.append([header, self._process(now)])
        self._record.begin()
        self._record.internal(now, f"DAGMAN_STARTED {header['cluster']}.0")
        for left in (self._plan.halt_file, self._plan.ready_file):
            left.unlink(missing_ok=True)
        self._record.picture(now, is_end=False)
        return self._loop([Happened(events.Began())])

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
        resumed = resuming.Resumed(self.engine, self._record, self._inbox, self._submitting)
        resumed.replay(self._journal.documents, self._at_server)
        now = time.time()
        self._journal.append([self._process(now)])
        self._record.internal(now, f"DAGMAN_STARTED {header['cluster']}.0")
        self._record.internal(now, "RECOVERY_STARTED")
        self._record.internal(now, "RECOVERY_FINISHED")
        self._record.restore()
        if resumed.has_rescue:  # which may not have been written
            self._write_rescue()
        self._programs.end_leftovers()
        if self.engine.is_over:
            return self._finish()
        outstanding = [*self.engine.outstanding()]
        lost = self._submitting.send_again(self._lots)
        return self._loop(lost, outstanding)

    def _inner_run(self, state: NodeState, anew: bool, say: Say) -> DagRun:
        """The run of a sub-DAG; `anew` if this is no run that has begun, nor a retry."""
        folder = self._submitting.folder(state)
        file = os.path.relpath(folder / state.node.submit, folder)
        given, number = self._options, self._options.rescue_from
        has_rescue = number in rescue.numbers_of(str(folder / file), False)
        # Those that condor_submit_dag hands on ("deep" options, dagman_utils.cpp).
        options = RunOptions(
            force=given.force and anew,
            use_dag_dir=given.use_dag_dir,
            auto_rescue=given.auto_rescue,
            rescue_from=number if has_rescue else None,
            variables=given.variables,
            priority=state.node.priority,
        )
        return DagRun([file], options, self._connect, say, folder)

    # --- the loop

    def _loop(
        self, happened: Sequence[Happened], outstanding: Sequence[actions.Action] = ()
    ) -> int:
        plan = self._plan
        self._carry_out([*outstanding, *self._decide(happened)])
        while not self.engine.is_over:
            ready_file = plan.ready_file if self.engine.awaits_provisioner else None
            told = self._inbox.wait(plan.halt_file, self.engine.is_halted, ready_file)
            if self._inbox.is_paused:
                return self._pause()
            self._carry_out(self._decide([*map(Happened, told)]))
            self._record.flush(time.time())
            if self._teller:
                self._teller.look(bool(told))
        return self._finish()

    def _carry_out(self, to_do: Sequence[actions.Action]) -> None:
        """Act, and let the engine decide about what follows, until nothing is left to do."""
        while to_do:
            batch = self._act(to_do)
            following = self._decide(batch.submitted)
            # What was refused has to be journaled before others get its places.
            to_do = [*following, *self._decide(self._submitting.send(batch))]

    def _decide(self, happened: Sequence[Happened]) -> list[actions.Action]:
        """Journal events; return what follows from them."""
        to_do = list[actions.Action]()
        if not happened:
            return to_do
        at = time.time()
        self._journal.append({**item.event.document(), **item.more, "at": at} for item in happened)
        for item in happened:
            if isinstance(item.event, events.Halted):
                self._say("halted by the .halt file" if item.event.on else "the halt is over")
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
                    self._submitting.prepare(self.engine.table.nodes[node], batch)
                case actions.RunScript(node=node, kind=kind):
                    if why := self._programs.start_script(node, kind):
                        self._inbox.put(events.Broken(why))
                case actions.KillScript(node=node, kind=kind):
                    self._programs.kill_script(node, kind)
                case actions.CancelJobs(node=node, processes=processes):
                    self._cancel(node, processes)
                case actions.Wait(node=node, kind=kind, seconds=seconds):
                    self._inbox.remind(time.time() + seconds, node, kind)
                case actions.Save(node=node):
                    self._record.save_point(node, time.time())
                case actions.WriteRescue():
                    self._write_rescue()
                case _:
                    pass  # for the record, or the end
        return batch

    def _cancel(self, node: str, processes: tuple[int, ...]) -> None:
        if self._inner.remove(node) or (self._lots and self._lots.cancel(node, processes)):
            return
        for process in processes:
            self._programs.kill_job(node, process)

    def _write_rescue(self) -> None:
        name = self._record.rescue(time.time())
        self._say(f"the rescue file is {name}; the next run goes on from it")

    # --- the end

    def _pause(self) -> int:
        """End this process; the jobs go on, and the next process follows them."""
        at = time.time()
        self._journal.append([{"event": "paused", "at": at}])
        self._record.internal(at, f"DAGMAN_FINISHED {PAUSED}")
        self._inner.pause()
        if self._lots:
            self._lots.pause()
        self._record.flush(at, force=True)
        self._journal.close()
        if self._teller:
            self._teller.end("interrupted")
        return PAUSED

    def _finish(self) -> int:
        code = self.engine.exit_code or 0
        self._inner.join()
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
        if self._teller:
            self._teller.end("failed" if code else "done")
        return code

    def _dump(self) -> int:
        """Write a rescue file, and run nothing."""
        now = time.time()
        self._set_up(self._new_header(now))
        self._record.internal(now, "DAGMAN_STARTED 0")
        self._record.rescue(now)
        self.engine.end_unrun()
        self._record.internal(now, "DAGMAN_FINISHED 0")
        self._record.flush(now, force=True)
        self._record.metrics(now, now, self._header["cluster"])
        return 0

    def _at_server(self) -> NodeLots:
        if self._lots is None:
            name = self._options.name or f"DAG {self._files[0]}"
            session = self._connect()
            self._lots = NodeLots(session, self._header["run"], name, self._inbox.put, self._say)
            self._teller = WorkflowTeller(
                ToldRun("dag", name, self._header["at"], self.engine, self._lots),
                session.connection, self._say,
            )  # fmt: skip
        return self._lots
