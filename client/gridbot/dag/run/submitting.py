"""From a node's turn to its jobs: at the server, on this machine, or a sub-DAG."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gridbot.api.errors import GridbotError
from gridbot.dag.engine import events
from gridbot.dag.engine.engine import DagEngine
from gridbot.dag.engine.table import NodeState
from gridbot.dag.journal import Happened
from gridbot.dag.language.model import Kind
from gridbot.dag.run import describing
from gridbot.dag.run.inner import InnerDags
from gridbot.dag.run.lot import NodeLot
from gridbot.dag.run.lots import Append, NodeLots
from gridbot.dag.run.programs import NodePrograms
from gridbot.dag.run.shapes import ShapedJob, Shaper, submission_of
from gridbot.dag.run.start import RunPlan
from gridbot.dag.submit.errors import SubmitError
from gridbot.dag.submit.job import SubmitJob

PROVISIONING_COMPLETE = 2  # of the attribute ProvisionerState

Told = Callable[[events.RunEvent], None]
Say = Callable[[str], None]


@dataclass
class Batch:
    """Nodes that are submitted together, once that is journaled."""

    submitted: list[Happened] = field(default_factory=list)
    appends: list[Append] = field(default_factory=list)
    local: list[tuple[str, list[SubmitJob]]] = field(default_factory=list)


@dataclass(frozen=True)
class WorkPlaces:
    """Where jobs run; the server is asked for when it is needed first."""

    lots: Callable[[], NodeLots]
    programs: NodePrograms
    inner: InnerDags


class Submitting:
    """Makes the jobs of nodes, and lets them begin."""

    def __init__(
        self, plan: RunPlan, engine: DagEngine, places: WorkPlaces, environment: Mapping[str, str],
        dag_id: int, told: Told, say: Say,
    ) -> None:  # fmt: skip
        self._plan, self._engine, self._places = plan, engine, places
        self._environment, self._dag_id = environment, dag_id
        self._told, self._say = told, say
        self._shaper = Shaper()
        self._cluster = dag_id

    def knows_cluster(self, cluster: int) -> None:
        """A number that the journal names is not given again."""
        self._cluster = max(self._cluster, cluster)

    # --- before it is journaled

    def prepare(self, state: NodeState, batch: Batch) -> None:
        """Make a node's jobs; what is wrong with them is told as a failed submission."""
        self._cluster += 1
        try:
            if not _is_described(state):
                self._prepare_here(state, [], batch)
                return
            jobs = self._described(state, self._cluster)
            self._refuse_many(state, jobs)
            if not jobs or all(job.is_local or job.noop for job in jobs):
                self._prepare_here(state, jobs, batch)
            else:
                self._prepare_there(state, jobs, batch)
        except GridbotError as error:
            self._say(f"node {state.name}: {error}")
            self._told(events.SubmitFailed(state.name, str(error)))

    def _refuse_many(self, state: NodeState, jobs: Sequence[SubmitJob]) -> None:
        if len(jobs) > 1 and state.node.kind is Kind.PROVISIONER:
            raise SubmitError(f"{len(jobs)} jobs, but a PROVISIONER has one")
        if len(jobs) > 1 and self._plan.settings.prohibit_multi_jobs:
            raise SubmitError(f"{len(jobs)} jobs, which DAGMAN_PROHIBIT_MULTI_JOBS forbids")

    def _prepare_here(self, state: NodeState, jobs: list[SubmitJob], batch: Batch) -> None:
        if state.node.kind is Kind.SUBDAG and not state.node.noop:
            file = self.folder(state) / state.node.submit
            if not file.is_file():
                raise SubmitError(f"the DAG file {state.node.submit} does not exist")
        count = len(jobs) if _is_described(state) else 1
        batch.local.append((state.name, jobs))
        event = events.NodeSubmitted(
            state.name, self._cluster, count, is_ready=_is_provisioned(state, jobs)
        )
        batch.submitted.append(Happened(event))

    def _prepare_there(self, state: NodeState, jobs: list[SubmitJob], batch: Batch) -> None:
        shaped = [self._shaper.shaped(job, self.folder(state)) for job in jobs]
        shapes = {job.shape.key: job.shape for job in shaped}
        if len(shapes) > 1:
            raise SubmitError("the jobs of one node differ in more than values")
        lots = self._places.lots()
        shape = shaped[0].shape
        lot = lots.lot(shape.key, lambda: submission_of(shape))
        first = lots.reserve(lot, state.name, shaped)
        batch.appends.append(Append(lot, first, shaped))
        event = events.NodeSubmitted(
            state.name, self._cluster, len(jobs), lot.key, first,
            is_ready=_is_provisioned(state, jobs),
        )  # fmt: skip
        to = [job.destination.document() for job in shaped]
        batch.submitted.append(Happened(event, {"number": lot.bot.id, "to": to}))

    # --- after it is journaled

    def send(self, batch: Batch) -> list[Happened]:
        """Let jobs begin that are journaled; return the ends of those that the server refused."""
        refused = self._places.lots().send(batch.appends) if batch.appends else []
        for node, jobs_here in batch.local:
            state = self._engine.table.nodes[node]
            self._start_here(state, jobs_here, anew=not state.retries)
        return [*map(Happened, refused)]

    def _start_here(self, state: NodeState, jobs: list[SubmitJob], anew: bool) -> None:
        """Begin what runs on this machine."""
        if state.node.noop:
            self._told(events.JobEnded(state.name, 0, 0))
        elif state.node.kind is Kind.SUBDAG:
            self._places.inner.start(state, anew)
        else:
            for process, job in enumerate(jobs):
                if process in state.queued:
                    self._places.programs.start_job(state, process, job)

    # --- again, after a crash

    def send_again(self, lots: NodeLots | None) -> list[Happened]:
        """Begin the jobs of nodes again that were journaled, and did not begin or were lost.

        Returns the ends of those that cannot reach the server any more.
        """
        known = lots.known() if lots else []
        at_server = {job.node for lot in known for job in lot.jobs.values()}
        lost = lots.resume(self._made_again) if lots else []
        for state in self._engine.table.nodes.values():
            if state.has_jobs and state.name not in at_server:
                jobs = self._described(state, state.cluster) if _is_described(state) else []
                self._start_here(state, jobs, anew=False)
        return [*map(Happened, lost)]

    def _made_again(self, lot: NodeLot, node: str, processes: Sequence[int]) -> list[ShapedJob]:
        """Jobs of a node that did not reach the server."""
        state = self._engine.table.nodes[node]
        jobs = self._described(state, state.cluster)
        shaped = [self._shaper.shaped(job, self.folder(state)) for job in jobs]
        if len(shaped) != state.jobs or any(job.shape.key != lot.key for job in shaped):
            raise GridbotError(
                f"node {node}: its submit description has changed since its jobs were"
                " journaled; put it back"
            )
        return [shaped[process] for process in processes]

    # --- both

    def _described(self, state: NodeState, cluster: int) -> list[SubmitJob]:
        return describing.jobs_of(
            state, self._engine, self.folder(state), self._environment, cluster, self._dag_id
        )

    def folder(self, state: NodeState) -> Path:
        """Where the paths of a node count from."""
        return self._plan.base / state.node.directory


def _is_provisioned(state: NodeState, jobs: Sequence[SubmitJob]) -> bool:
    """Whether a PROVISIONER's description says at once that it is ready."""
    if state.node.kind is not Kind.PROVISIONER:
        return False
    said = {name.casefold(): value for job in jobs for name, value in job.attributes.items()}
    return said.get("provisionerstate") == PROVISIONING_COMPLETE


def _is_described(state: NodeState) -> bool:
    """Whether a submit description says what its jobs are."""
    return not state.node.noop and state.node.kind is not Kind.SUBDAG
