"""The beginning of a run: which rescue file counts, the DAG, what can be refused at once."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gridbot.api.errors import BadInput, GridbotError
from gridbot.dag.language.model import Dag, DagError, DagFinding, DagNode, Kind, Script
from gridbot.dag.language.reader import Reading, findings_of
from gridbot.dag.reports import rescue
from gridbot.dag.run.settings import DagmanSettings, RunOptions, read_settings
from gridbot.dag.submit.description import SubmitSetting, read_jobs


@dataclass(frozen=True)
class RunPlan:
    """A DAG that can be run."""

    files: tuple[str, ...]
    base: Path
    dag: Dag
    settings: DagmanSettings
    options: RunOptions
    rescue_file: str = ""
    rescue_number: int = 0

    @property
    def primary(self) -> Path:
        """The first DAG file, beside which the run's own files are."""
        return self.base / self.files[0]

    @property
    def halt_file(self) -> Path:
        """While it is there, nothing new begins."""
        return Path(f"{self.primary}.halt")

    @property
    def ready_file(self) -> Path:
        """By which the PROVISIONER says that it is ready."""
        return Path(f"{self.primary}.ready")

    def last_rescue(self) -> int:
        """Number of its newest rescue file, or 0."""
        numbers = rescue.numbers_of(str(self.primary), len(self.files) > 1)
        return numbers[-1] if numbers else 0

    @property
    def digest(self) -> str:
        """Tells whether it is still the same DAG."""
        return hashlib.sha256(repr(self.dag).encode()).hexdigest()


def plan(
    files: Sequence[str],
    options: RunOptions,
    base: Path,
    rescue_from: tuple[str, int] | None = None,
) -> RunPlan:
    """Read a DAG for a run.  Raises BadInput.

    `rescue_from` are file and number of the rescue file that an interrupted run began with; None
    lets the options choose.
    """
    settings = read_settings(options.config, base, options)
    chosen, number = rescue_from or _rescue(files, options, settings, base)
    dag = _read(files, options, settings, base, chosen)
    if dag.config and options.config and dag.config != options.config:
        raise BadInput(f"config: {options.config} and {dag.config}; a DAG has one config file")
    if dag.config:
        settings = read_settings(dag.config, base, options)
        dag = _read(files, options, settings, base, chosen)
    if settings.strict > 1 and dag.warnings:
        raise DagError(dag.warnings)
    if settings.cycle_detect and (found := [*findings_of(dag)]):
        raise DagError(found)
    return RunPlan(tuple(files), base, dag, settings, options, chosen, number)


def _read(
    files: Sequence[str],
    options: RunOptions,
    settings: DagmanSettings,
    base: Path,
    rescue_file: str,
) -> Dag:
    reading = Reading(
        base=base,
        use_dag_dir=options.use_dag_dir,
        munge=settings.munge,
        join_nodes=settings.join_nodes,
        append_variables=settings.append_variables,
        any_names=settings.any_names,
    )
    return reading.read(files, rescue_file or None)


def _rescue(
    files: Sequence[str], options: RunOptions, settings: DagmanSettings, base: Path
) -> tuple[str, int]:
    """The rescue file that counts, and its number."""
    primary, is_multi = str(base / files[0]), len(files) > 1
    if options.load_save:
        name = options.load_save
        path = name if "/" in name else f"save_files/{name}"
        folder = os.path.dirname(files[0]) if options.use_dag_dir else ""
        return _there(os.path.join(folder, path), base), 0
    if options.rescue_file:
        return _there(options.rescue_file, base), 0
    numbers = rescue.numbers_of(primary, is_multi)
    if options.rescue_from is not None:
        number = options.rescue_from
        name = rescue.name_of(files[0], is_multi, number)
        _there(name, base)
        rescue.set_aside(primary, is_multi, number)
        return name, number
    if options.force:
        rescue.set_aside(primary, is_multi, 0)
        return "", 0
    if settings.auto_rescue and numbers:
        return rescue.name_of(files[0], is_multi, numbers[-1]), numbers[-1]
    return "", 0


def _there(name: str, base: Path) -> str:
    if not (base / name).is_file():
        raise BadInput(f"{name}: there is no such rescue file or save point")
    return name


def refuse_at_start(plan: RunPlan) -> None:
    """Refuse what HTCondor would let hang: raises DagError that names each line.

    A script without its execute bit never ends there, and a program that is absent holds its job
    for ever.  What a node before could still make is not judged.
    """
    if found := [*_hopeless(plan)]:
        raise DagError(found)


def _hopeless(plan: RunPlan) -> Iterator[DagFinding]:
    for node in plan.dag.nodes.values():
        if node.done:
            continue
        folder = plan.base / node.directory
        for script in filter(None, (node.pre, node.post, node.hold)):
            if _cannot_start(script, folder):
                yield DagFinding(
                    script.place,
                    f"the script {script.program} is not executable; chmod +x {script.program}",
                )
        if not (node.noop or node.pre or node.parents or node.weak_parents):
            yield from _hopeless_jobs(node, folder)


def _cannot_start(script: Script, folder: Path) -> bool:
    path = folder / script.program
    return path.is_file() and not os.access(path, os.X_OK)


def _hopeless_jobs(node: DagNode, folder: Path) -> Iterator[DagFinding]:
    """What is wrong with the jobs of a node that begins at once."""
    if node.kind not in (Kind.JOB, Kind.PROVISIONER):
        return
    try:
        text = node.text if node.text is not None else (folder / node.submit).read_text()
        before = {item.name: item.value for item in node.variables if not item.appended}
        after = {item.name: item.value for item in node.variables if item.appended}
        before |= {"JOB": node.name, "RETRY": "0"}
        jobs = read_jobs(text, SubmitSetting(folder, before=before, after=after, needs_queue=False))
    except (GridbotError, OSError, UnicodeDecodeError):
        return  # its submission will fail and say why
    if node.kind is Kind.PROVISIONER and len(jobs) > 1:
        yield DagFinding(node.place, f"the PROVISIONER {node.name} has {len(jobs)} jobs, not one")
    for job in jobs[:1]:
        name = job.executable
        if name and job.transfer_executable and not (folder / name).is_file():
            yield DagFinding(node.place, f"node {node.name}: the program {name} does not exist")
