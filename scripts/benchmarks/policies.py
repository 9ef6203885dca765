"""What policies cost a host request, beside HTCondor's own library in the same run.

Each request brings a host ad of 40 attributes with values that were never seen before, and
nothing is kept from one request to the next.  Both sides get the same host as a plain mapping,
and their values are compared before anything is timed.
"""

from __future__ import annotations

import gc
import os
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from gridbot_policies import Ads, PolicySet
from gridbot_policies.classad import record
from gridbot_policies.classad.values import Missing

from .harness.command import measurement
from .harness.installation import BenchFailed
from .harness.windows import Row

BOTS = 50
REQUESTS = 100  # per round and side
WARM_REQUESTS = 140  # after these every policy is compiled
POLICIES = ("JobRequirements", "Rank", "Concurrency", "Deadline", "ReplicationRequirements")

# The paper's Figure 3, with figures of each BOT's own so that no two texts are equal.
FIGURE_3 = """
JobRequirements = !Tail ? true : regexp("node", Host.Name) && Host.ErrorRate < 0.{share:02};
Rank = !Tail ? {number} : Host.JobsToday;
ReplicationRequirements = (NumberOfReplicas < 3 && Job.Replica1.Host.ErrorRate > 0.1);
Concurrency = 2 * Host.NumCpus;
Deadline = Concurrency * {seconds};
"""

# Fifteen clauses as HTCondor's users write them: MY is the job, TARGET the machine.
FIFTEEN_CLAUSES = """
RequestCpus = {cpus}; RequestMemory = {memory}; RequestDisk = {disk}; MinFlops = 1.5E9;
JobRequirements = (TARGET.Arch == "X86_64") && (TARGET.OpSys == "LINUX")
    && (TARGET.Disk >= RequestDisk) && (TARGET.Memory >= RequestMemory)
    && (TARGET.NumCpus >= RequestCpus) && (TARGET.HasFileTransfer)
    && (TARGET.OpSysMajorVer >= 7) && (TARGET.HasSingularity =?= true)
    && (TARGET.ErrorRate < 0.5) && (TARGET.Flops > MinFlops)
    && (TARGET.Site =!= "quarantine") && (TARGET.LoadAvg < 0.9 * TARGET.NumCpus)
    && (TARGET.MaxJobRetirementTime >= 3600 || TARGET.IsDedicated)
    && (TARGET.TimeLeft =?= undefined || TARGET.TimeLeft > 7200)
    && (MY.RequestMemory <= 2 * TARGET.Memory);
"""


@dataclass(frozen=True, slots=True)
class Side:
    """One way to do the work of a request, for a host as a plain mapping."""

    name: str
    serve: Callable[[Mapping[str, Any]], list[Any]]


@measurement()
@click.option("--rounds", type=click.IntRange(1), default=9, help="Timings of each side, in turn.")
def policies(rounds: int) -> list[Row]:
    """Policies per host request, 50 BOTs, beside HTCondor's ClassAd library."""
    library = _library()
    figure = [
        FIGURE_3.format(share=10 + n % 40, number=n + 1, seconds=2000 + n) for n in range(BOTS)
    ]
    fifteen = [
        FIFTEEN_CLAUSES.format(cpus=1 + n % 2, memory=256 + 8 * n, disk=1000 + n)
        for n in range(BOTS)
    ]
    everything = [Side("one ad that holds all BOTs", _Nested(library, figure, POLICIES).values)]
    requirements = [
        Side("one ad that holds all BOTs", _Nested(library, fifteen, POLICIES[:1]).values),
        Side("MY and TARGET", _Facing(library, fifteen).values),
    ]
    ours, clauses = _Ours(figure), _Ours(fifteen)
    wanted = Side("", _Nested(library, figure, POLICIES).chosen)
    return [
        _case("all 250 values", ours.all_values, everything, rounds, 0.6),
        _case("what dispatch needs, they all values", ours.chosen, everything, rounds, 0.3, wanted),
        _case("15 clauses x 50", clauses.requirements, requirements, rounds, 0.5),
    ]


def _library() -> Any:
    """HTCondor's ClassAd library, in the mode in which pools run it."""
    os.environ.update(TZ="UTC", LC_ALL="C", CONDOR_CONFIG="ONLY_ENV")
    try:
        import classad2
        import htcondor2  # noqa: F401  # switches the library to HTCondor's defaults
    except ImportError as error:
        raise BenchFailed(
            f"HTCondor's Python package is needed to compare with ({error});"
            " it exists for Linux on x86_64 and aarch64: pip install htcondor"
        ) from None
    return classad2


# ------------------------------------------------------------------------------- the ads


def hosts(seed: int) -> Iterator[dict[str, Any]]:
    """Yield hosts of 40 attributes, each with values of its own."""
    draw = random.Random(seed)
    while True:
        host: dict[str, Any] = {f"Feature{n}": draw.randrange(10**6) for n in range(20)}
        yield host | {
            "Name": f"node{draw.randrange(10**6)}.cluster",
            "Owner": f"owner{draw.randrange(10**4)}",
            "Site": f"site{draw.randrange(100)}",
            "Arch": "X86_64",
            "OpSys": "LINUX",
            "OpSysMajorVer": draw.randrange(7, 13),
            "NumCpus": draw.randrange(2, 129),
            "Memory": draw.randrange(1024, 10**6),
            "Disk": draw.randrange(10**4, 10**7),
            "Flops": draw.uniform(2e9, 9e9),
            "LoadAvg": draw.uniform(0, 1),
            "ErrorRate": draw.uniform(0, 0.4),
            "JobsToday": draw.randrange(1000),
            "MeanTurnaround": draw.uniform(10, 10**4),
            "RecentCpuTime": draw.uniform(0, 10**5),
            "Running": draw.randrange(10),
            "HasFileTransfer": True,
            "HasSingularity": True,
            "IsDedicated": draw.random() < 0.5,
            "MaxJobRetirementTime": draw.randrange(3600, 10**5),
        }


def _bot(number: int) -> dict[str, Any]:
    return {
        "Id": number,
        "Name": f"bot{number}",
        "Owner": "ada",
        "JobsTotal": 1000,
        "JobsLeft": 900 - number,
        "JobsDone": 90,
        "JobsFailed": 10 + number,
        "JobsUnsent": 500,
        "JobsRunning": 60,
        "Tail": number % 2 == 0,
        "MeanTurnaround": 100.5 + number,
        "Age": 5000.0,
    }


_QUEUE = {"BOTsInQueue": BOTS, "JobsInQueue": 25_000}


# ------------------------------------------------------------------------------ our side


class _Ours:
    def __init__(self, texts: Sequence[str]) -> None:
        self._bots = [
            (PolicySet.parse(text), record(_bot(number))) for number, text in enumerate(texts)
        ]
        self._queue = record(_QUEUE)

    def _ads(self, host: Mapping[str, Any]) -> Iterator[tuple[PolicySet, Ads]]:
        ad = record(host)
        for policies, bot in self._bots:
            yield policies, Ads(ad, bot, self._queue)

    def all_values(self, host: Mapping[str, Any]) -> list[Any]:
        return [policies.value(name, ads) for policies, ads in self._ads(host) for name in POLICIES]

    def requirements(self, host: Mapping[str, Any]) -> list[Any]:
        return [policies.value("JobRequirements", ads) for policies, ads in self._ads(host)]

    def chosen(self, host: Mapping[str, Any]) -> list[Any]:
        """Requirements of all, Rank of those that hold, the rest of the best alone."""
        suitable = [
            (policies.rank(ads), policies, ads)
            for policies, ads in self._ads(host)
            if policies.requirements(ads)
        ]
        if not suitable:
            return []
        rank, policies, ads = max(suitable, key=lambda item: item[0])
        return [rank, policies.concurrency(ads), policies.deadline(ads)]


# ---------------------------------------------------------------------------- their side


class _Nested:
    """One ad holds all BOTs, and the host is put into it: the fastest way for many policies."""

    def __init__(self, library: Any, texts: Sequence[str], names: Sequence[str]) -> None:
        bots = (
            f"BOT{number} = [{_attributes(_bot(number))}; Job = [NumberOfReplicas = 0;"
            f" Policies = [{text}]]]"
            for number, text in enumerate(texts)
        )
        self._root = library.ClassAd(f"[Queue = [{_attributes(_QUEUE)}]; {'; '.join(bots)}]")
        self._values = [
            {name: library.ExprTree(f"BOT{number}.Job.Policies.{name}") for name in names}
            for number in range(len(texts))
        ]
        # `TARGET` is a name like any other here, found by climbing, as `Host` is.
        self._host_name = "TARGET" if "TARGET" in texts[0] else "Host"

    def values(self, host: Mapping[str, Any]) -> list[Any]:
        root = self._root
        root[self._host_name] = host
        return [value.eval(root) for bot in self._values for value in bot.values()]

    def chosen(self, host: Mapping[str, Any]) -> list[Any]:
        """As `_Ours.chosen`."""
        root = self._root
        root[self._host_name] = host
        suitable = [
            (bot["Rank"].eval(root), bot)
            for bot in self._values
            if bot["JobRequirements"].eval(root)
        ]
        if not suitable:
            return []
        rank, bot = max(suitable, key=lambda item: item[0])
        return [rank, bot["Concurrency"].eval(root), bot["Deadline"].eval(root)]


class _Facing:
    """Each job's ad against the machine's, as HTCondor's matchmaking API does it."""

    def __init__(self, library: Any, texts: Sequence[str]) -> None:
        self._library = library
        self._jobs = [library.ClassAd(f"[{text}]") for text in texts]
        self._requirements = library.ExprTree("JobRequirements")

    def values(self, host: Mapping[str, Any]) -> list[Any]:
        machine = self._library.ClassAd(host)
        return [self._requirements.eval(scope=job, target=machine) for job in self._jobs]


def _attributes(attributes: Mapping[str, Any]) -> str:
    return "; ".join(f"{name} = {_literal(value)}" for name, value in attributes.items())


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else repr(value)


# -------------------------------------------------------------------------------- timing


def _case(
    name: str,
    ours: Callable[[Mapping[str, Any]], list[Any]],
    theirs: Sequence[Side],
    rounds: int,
    target: float,
    equal_to: Side | None = None,
) -> Row:
    """Time both sides in turn; the ratio is to their fastest way, round by round."""
    _check_equal(name, ours, equal_to or theirs[0])
    timed = [
        [_microseconds(serve, seed) for serve in (ours, *(side.serve for side in theirs))]
        for seed in range(rounds)
    ]
    ratios = [row[0] / min(row[1:]) for row in timed]
    columns = [statistics.median(column) for column in zip(*timed, strict=True)]
    fastest = min(range(len(theirs)), key=lambda index: columns[1 + index])
    return {
        "case": name,
        "us_per_request": columns[0],
        "classad2_us_per_request": columns[1 + fastest],
        "classad2_arrangement": theirs[fastest].name,
        "ratio": statistics.median(ratios),
        "ratio_least": min(ratios),
        "ratio_most": max(ratios),
        "target": target,
    }


def _microseconds(serve: Callable[[Mapping[str, Any]], list[Any]], seed: int) -> float:
    """CPU time per request over hosts that `serve` has not seen."""
    source = hosts(seed)
    unseen = [next(source) for _ in range(REQUESTS)]
    gc.collect()
    gc.disable()
    began = time.process_time_ns()
    for host in unseen:
        serve(host)
    spent = time.process_time_ns() - began
    gc.enable()
    return spent / REQUESTS / 1000


def _check_equal(name: str, ours: Callable[..., list[Any]], theirs: Side) -> None:
    source = hosts(-1)
    for _ in range(WARM_REQUESTS):
        host = next(source)
        mine, other = _plain(ours(host)), _plain(theirs.serve(host))
        if mine != other:
            raise BenchFailed(f"{name}: the values differ for the host {host}: {mine} / {other}")


def _plain(values: Sequence[Any]) -> list[Any]:
    """Values in one form; HTCondor's bindings have an enumeration for undefined and error."""
    return [
        value.name.lower() if hasattr(value, "name") or isinstance(value, Missing) else value
        for value in values
    ]
