"""One BOT on five kinds of grids at once, and one whose GridPolicy excludes one of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tests.system.batch_systems import open_folder
from tests.system.grid_engine_cell import grid_engine
from tests.system.overlays import PYTHON, Overlay, overlay

from gridbot_overlay.decide.model import Pilot

from . import trees
from .measure import Outcome, follow, outcome, seen_lives, submit
from .networks import Door, opened
from .place import Place, Run
from .trees import toml

NAME = "grids"
EXCLUDED = "slurm"  # by the second BOT
_PILOTS = 4  # at most, on each grid
_LEAST_SECONDS = 5.0  # jobs last so long at least, for pilots of slow grids to get some
_JOB = ("--memory", "64")  # MB; HTCondor's slots have little
_PILOT = ("--walltime", "30m", "--max-running", str(_PILOTS), "--max-queued", str(_PILOTS))

Add = Callable[[Overlay], None]  # configures a grid


@dataclass(frozen=True, kw_only=True)
class Share:
    """What one grid had of one BOT."""

    scenario: str
    grid: str
    is_excluded: bool
    pilots: int
    jobs: int


def play(
    place: Place, jobs: int, seconds: float, say: Callable[[str], None]
) -> Iterator[tuple[Outcome, list[Share]]]:
    """Run a BOT on all grids, then one that excludes one."""
    seconds = max(seconds, _LEAST_SECONDS)
    with _grids(place, say) as grids:
        for name, excluded in ((NAME, ""), (f"not-{EXCLUDED}", EXCLUDED)):
            yield _play(name, excluded, grids, place, jobs, seconds, say)


def _play(
    name: str, excluded: str, grids: dict[str, Add], place: Place, jobs: int, seconds: float,
    say: Callable[[str], None],
) -> tuple[Outcome, list[Share]]:  # fmt: skip
    with overlay(place.server, name, with_defaults=True) as made:
        for add in grids.values():
            add(made)
        made.start()
        policy = f'GridPolicy = Grid.Name != "{excluded}"' if excluded else ""
        run = Run(place, made, submit(place.server, jobs, seconds, policy, *_JOB), jobs, say)
        course = follow(run)
        sent = {grid: made.pilots(grid) for grid in grids}
    shares = list(_shares(run, name, excluded, sent))
    pilots = [pilot for some in sent.values() for pilot in some]
    found = outcome(name, run, seconds, course, seen_lives(pilots), pilots)
    faults = [fault for share in shares if (fault := _fault(share))]
    return replace(found, faults=(*found.faults, *faults)), shares


def _shares(
    run: Run, scenario: str, excluded: str, sent: dict[str, list[Pilot]]
) -> Iterator[Share]:
    query = """
        SELECT c.grid, count(*) FROM ended e JOIN client c ON c.id = e.client
         WHERE e.bot = %s AND e.how = 'success' GROUP BY c.grid"""
    jobs = Counter(dict(run.server.rows(query, run.bot)))
    for grid, pilots in sent.items():
        yield Share(
            scenario=scenario,
            grid=grid,
            is_excluded=grid == excluded,
            pilots=len(pilots),
            jobs=jobs[grid],
        )


def _fault(share: Share) -> str:
    if share.is_excluded and (share.pilots or share.jobs):
        return f"{share.grid} was excluded, and had {share.pilots} pilots and {share.jobs} jobs"
    if not share.is_excluded and not share.jobs:
        return f"{share.grid} had {share.pilots} pilots and did no job"
    return ""


@contextmanager
def _grids(place: Place, say: Callable[[str], None]) -> Iterator[dict[str, Add]]:
    """Start the grids that do not run yet; give what adds each to an overlay."""
    with ExitStack() as stack:
        made: dict[str, Add] = {"slurm": _slurm(place), "local": _local}
        for name, start in (("sge", _grid_engine), ("condor", _condor), ("gram", _gram)):
            say(f"{name} starts")
            made[name] = stack.enter_context(start(place))
        yield made


def _adder(kind: str, name: str, memory_mb: int, python: str = PYTHON, **options: object) -> Add:
    own = [word for key, value in options.items() for word in ("--option", f"{key}={toml(value)}")]
    node = ("--setup", f"export GRIDBOT_HOST_ID={name}", "--python", python)
    shape = (*_PILOT, "--memory", str(memory_mb))
    return lambda made: made.add(kind, name, *shape, *node, *own)


def _slurm(place: Place) -> Add:
    return lambda made: made.add_slurm("slurm", place.cluster, *_PILOT)


_local = _adder("local", "local", 900)


@contextmanager
def _grid_engine(place: Place) -> Iterator[Add]:
    server = ("127.0.0.1", place.server.port)
    with open_folder("sge") as folder, grid_engine(folder, slots=_PILOTS) as cell:
        network = Path(f"/proc/{cell.keeper}/ns/net")
        with opened(Door(outside=network, at=server, behind=server)):
            through = [*cell.entrance, "sh", "-c"]
            yield _adder("grid_engine", "sge", 2000, environment=cell.env, through=through)


@contextmanager
def _condor(place: Place) -> Iterator[Add]:
    with trees.running("condor", place.server.port) as made:
        yield _adder(
            "htcondor",
            "condor",
            100,
            "python3",  # the tree's own, of another version than ours
            through=made.through,
            logs=f"{made.home}/logs",
            environment={"CONDOR_CONFIG": f"{made.home}/pool/condor_config"},
        )


@contextmanager
def _gram(place: Place) -> Iterator[Add]:
    with (
        trees.running("gram", place.server.port) as made,
        trees.gatekeeper(made, place.server.folder) as options,
    ):
        yield _adder("gram", "gram", 900, "python3", **options)
