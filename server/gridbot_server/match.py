"""Which hosts could be given a BOT's jobs at all, and what keeps the others from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gridbot_client.protocol import Manifest, Resources
from gridbot_policies import Ads, PolicySet
from gridbot_policies.ads import LIVE_ATTRIBUTES
from gridbot_policies.classad import Record, record
from gridbot_policies.classad.values import fold
from gridbot_policies.conditions import ONLY_ASKING, PolicyConditions
from gridbot_policies.explain import Bound, Condition, Judged, judge
from gridbot_policies.source import cut
from gridbot_policies.unknown import Unknown
from gridbot_server.dispatch.ads import owner_policy

# What hosts are asked for beside the policy: the manifest's field, the host's attribute, words
# for the people who read it, and the option of `gridbot submit`.
_RESOURCES = (
    ("cpus", "NumCpus", "CPUs", "--cpus"),
    ("memory_mb", "Memory", "MB memory", "--memory"),
    ("disk_mb", "Disk", "MB disk", "--disk"),
    ("gpus", "NumGpus", "GPUs", "--gpus"),
)
_NO_RESOURCES = Resources(cpus=0, memory_mb=0, disk_mb=0, seconds=0, gpus=0)
_PRIVATE = ("Name", "Owner", "Requirements")
_HIDDEN = Record({fold(name): Unknown(name) for name in _PRIVATE}, _PRIVATE)
_SHORT = 100  # characters of a condition in a line
NOBODY = "no client has asked for work in the last day; start one with: gridbot client run"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A client of a host as far as matching goes; `ad` is the whole ad that policies see.

    `name` is None for those who may not know whose machine it is.
    """

    host: int
    ad: Mapping[str, Any]
    owner: int
    accepts: Sequence[int]
    name: str | None = None
    silent: bool = False  # it has not asked for work lately
    running: int = 0  # replicas that the client holds

    @property
    def label(self) -> str:
        """What to call the host before those who ask."""
        return self.name or f"host {self.host}"


@dataclass(frozen=True, slots=True)
class Demand:
    """What a BOT asks of a host, and the queue in which it waits."""

    owner: int
    owner_name: str
    signed: bool
    manifest: Manifest
    policies: PolicySet
    ad: Record
    queue: Record
    now: float  # the time that policies see, seconds since 1970


@dataclass(frozen=True, slots=True)
class Match:
    """How many hosts are known, how many suit, and the commonest obstacle when none does."""

    hosts_known: int
    hosts_matching: int
    reason: str


@dataclass(frozen=True, slots=True)
class Known:
    """A candidate with the ads that the BOT's policies see of it.

    What the BOT's owner may not know of the host is `Unknown` in `open`, and replaced by what may
    be shown in `shown`: only the whole match may depend on it, as it does at dispatch.
    """

    candidate: Candidate
    demand: Demand
    ads: Ads = field(init=False, repr=False, compare=False)
    open: Ads = field(init=False, repr=False, compare=False)
    shown: Ads = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        host = record(self.candidate.ad)
        ads = self._ads(host)
        is_own = self.candidate.name is not None
        shown = {"Name": self.candidate.label, "Owner": "another owner", "Requirements": None}
        object.__setattr__(self, "ads", ads)
        object.__setattr__(self, "open", ads if is_own else self._ads(host.overlaid(_HIDDEN)))
        object.__setattr__(
            self, "shown", ads if is_own else self._ads(host.overlaid(record(shown)))
        )

    def _ads(self, host: Record) -> Ads:
        return Ads(host, self.demand.ad, self.demand.queue, now=self.demand.now)


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


def suits(known: Known) -> bool:
    """Tell whether the host could be given a job of the BOT now."""
    candidate, demand = known.candidate, known.demand
    manifest = demand.manifest
    return (
        trusts(demand.signed, demand.owner, candidate.owner, candidate.accepts)
        and fits(manifest.resources, manifest.platforms, candidate.ad) is None
        and _owner_agrees(known)
        and demand.policies.requirements(known.ads)
        and demand.policies.concurrency(known.ads) >= 1
    )


def conditions(demand: Demand) -> list[Condition[Known]]:
    """Return all that the BOT asks of a host.

    What its owner can change soonest comes first: the policy, then the resources, which
    need a new submission, then what others must agree to.
    """
    nowhere = Ads(record({}), demand.ad, demand.queue, now=demand.now)
    policy = PolicyConditions[Known](
        demand.policies, nowhere, lambda known: known.open, lambda known: known.shown
    )
    return [
        *policy.conditions(), *_resources(demand.manifest), *_platform(demand.manifest),
        _trust(demand), _owner(), policy.whole(),
    ]  # fmt: skip


def judged(
    candidates: Iterable[Candidate], demand: Demand, is_enough: Callable[[], bool]
) -> Judged[Known]:
    """Judge the hosts of the candidates by their most suitable clients, until it is enough."""
    subjects = ((item.host, Known(item, demand)) for item in candidates)
    return judge(conditions(demand), subjects, suits, is_enough)


def survey(
    candidates: Iterable[Candidate],
    demand: Demand,
    is_enough: Callable[[], bool] = lambda: False,
) -> Match:
    """Count the hosts of which at least one client could be given a job."""
    found = judged(candidates, demand, is_enough)
    return Match(len(found.verdicts), len(found.matching), obstacle(found))


def obstacle(found: Judged[Known]) -> str:
    """Return in one line why no host can be given a job; "" if one can."""
    if not found.verdicts:
        return NOBODY
    main = found.main_obstacle()
    if main is None or found.matching:
        return ""
    condition, hosts = main
    count = f"{len(hosts)} {'host' if len(hosts) == 1 else 'hosts'}"
    return f"{_sentence(condition, condition.has(hosts[0]))} ({count})"


def _sentence(condition: Condition[Known], has: str) -> str:
    match condition.kind:
        case "trust" | "owner":
            return condition.text
        case "JobRequirements" | "Concurrency":
            via = f", in {condition.via}," if condition.via else ""
            lack = f"is {has}" if has == ONLY_ASKING else "does not hold there"
            return f"the policy's condition {cut(condition.text, _SHORT)}{via} {lack}"
        case _:
            return f"a job needs {condition.text}, the host has less"


def _resources(manifest: Manifest) -> Iterator[Condition[Known]]:
    for field_name, attribute, words, option in _RESOURCES:
        wanted = getattr(manifest.resources, field_name)
        alone = replace(_NO_RESOURCES, **{field_name: wanted})
        if wanted:
            yield _resource(alone, attribute, f"{wanted} {words}", option)


def _resource(alone: Resources, attribute: str, text: str, option: str) -> Condition[Known]:
    def amount(known: Known) -> float | None:
        return _number(known.candidate.ad.get(attribute))

    unit = text.partition(" ")[2]
    bound = Bound(
        at_least=True,
        amount=amount,
        text=lambda limit: f"{limit} {unit}",
        change=lambda limit: {"submit": f"{option} {limit}"},
    )
    return Condition(
        kind=option.removeprefix("--"),
        text=text,
        meets=lambda known: fits(alone, (), known.candidate.ad) is None,
        has=lambda known: str(known.candidate.ad.get(attribute, "none")),
        bound=bound,
    )


def _platform(manifest: Manifest) -> Iterator[Condition[Known]]:
    if manifest.platforms:
        yield Condition(
            kind="platform",
            text=f"platform {' or '.join(manifest.platforms)}",
            meets=lambda known: fits(_NO_RESOURCES, manifest.platforms, known.candidate.ad) is None,
            has=lambda known: str(known.candidate.ad.get("Platform", "none")),
        )


def _trust(demand: Demand) -> Condition[Known]:
    def meets(known: Known) -> bool:
        host = known.candidate
        return trusts(demand.signed, demand.owner, host.owner, host.accepts)

    return Condition(
        kind="trust",
        text=(
            "the BOT is not signed by the project, and the client does not accept"
            f" {demand.owner_name}'s unsigned commands"
        ),
        meets=meets,
        has=lambda _: "no",
    )


def _owner() -> Condition[Known]:
    return Condition(
        kind="owner",
        text="the host owner's own Requirements do not accept the BOT",
        meets=_owner_agrees,
        has=lambda _: "no",
    )


def _owner_agrees(known: Known) -> bool:
    """Tell whether the host's owner may accept the BOT; load and clock are known to it alone."""
    ads = known.ads
    policy = owner_policy(ads.host.get("Requirements"))
    return policy is None or (
        policy.accepts(ads.host, ads.bot, ads.queue, ads.now, LIVE_ATTRIBUTES) is not False
    )


def _number(value: object) -> int | float | None:
    return value if isinstance(value, int | float) else None
