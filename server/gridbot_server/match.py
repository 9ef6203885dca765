"""Which hosts could be given a BOT's jobs at all, and what keeps the others from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gridbot_client.protocol import Manifest, Resources
from gridbot_policies import Ads, PolicySet
from gridbot_policies.classad import Record, record


@dataclass(frozen=True, slots=True)
class Candidate:
    """A client of a host as far as matching goes; `ad` is the whole ad that policies see."""

    host: int
    ad: Mapping[str, Any]
    owner: int
    accepts: Sequence[int]


@dataclass(frozen=True, slots=True)
class Demand:
    """What a BOT asks of a host."""

    owner: int
    owner_name: str
    signed: bool
    manifest: Manifest
    policies: PolicySet
    ad: Record


@dataclass(frozen=True, slots=True)
class Match:
    """How many hosts are known, how many suit, and the commonest obstacle when none does."""

    hosts_known: int
    hosts_matching: int
    reason: str


def fits(resources: Resources, platforms: Sequence[str], host: Mapping[str, Any]) -> str | None:
    """Return None when the host has what a replica needs, otherwise the first thing it lacks.

    A host that does not say how much of something it has is believed to have enough:
    its own client refuses what does not fit.
    """
    needs = (
        (resources.cpus, "NumCpus", "CPUs"),
        (resources.memory_mb, "Memory", "MB memory"),
        (resources.disk_mb, "Disk", "MB disk"),
    )
    for wanted, attribute, unit in needs:
        if (offered := _number(host.get(attribute))) is not None and offered < wanted:
            return f"needs {wanted} {unit}"
    # Unlike the rest, a GPU is something that few hosts have: silence means none.
    if resources.gpus > (_number(host.get("NumGpus")) or 0):
        return f"needs {resources.gpus} GPUs"
    if platforms and host.get("Platform") not in platforms:
        return f"needs platform {' or '.join(platforms)}"
    return None


def trusts(signed: bool, bot_owner: int, client_owner: int, accepts: Sequence[int]) -> bool:
    """Tell whether a client may run the BOT: signed by the project, its owner's, or accepted."""
    return signed or bot_owner == client_owner or bot_owner in accepts


def rejection(candidate: Candidate, demand: Demand, queue: Record) -> str | None:
    """Return None when the host could be given a job of the BOT now, otherwise why not."""
    if not trusts(demand.signed, demand.owner, candidate.owner, candidate.accepts):
        return (
            f"the BOT is not signed by the project, and the client does not accept"
            f" {demand.owner_name}'s unsigned commands"
        )
    if lack := fits(demand.manifest.resources, demand.manifest.platforms, candidate.ad):
        return f"a job {lack}, the host has less"
    ads = Ads(record(candidate.ad), demand.ad, queue)
    if not demand.policies.requirements(ads):
        return "the policy's JobRequirements does not hold there"
    if demand.policies.concurrency(ads) < 1:
        return "the policy's Concurrency is 0 there"
    return None


def survey(candidates: Iterable[Candidate], demand: Demand, queue: Record) -> Match:
    """Count the hosts of which at least one client could be given a job."""
    obstacles: dict[int, str | None] = {}
    for candidate in candidates:
        if obstacles.get(candidate.host, "") is not None:
            obstacles[candidate.host] = rejection(candidate, demand, queue)
    matching = sum(1 for obstacle in obstacles.values() if obstacle is None)
    if matching:
        return Match(len(obstacles), matching, "")
    if not obstacles:
        reason = "no client has asked for work in the last day; start one with: gridbot client run"
        return Match(0, 0, reason)
    return Match(len(obstacles), 0, _commonest(obstacles.values()))


def _commonest(obstacles: Iterable[str | None]) -> str:
    reason, count = Counter(obstacles).most_common(1)[0]
    return f"{reason} ({count} {'host' if count == 1 else 'hosts'})"


def _number(value: object) -> int | float | None:
    return value if isinstance(value, int | float) else None
