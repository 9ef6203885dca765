"""Which hosts could be given a BOT's jobs at all, and what keeps the others from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gridbot_client.protocol.programs import places
from gridbot_policies import Ads, PolicySet
from gridbot_policies.classad import Record, record
from gridbot_policies.classad.source import cut
from gridbot_policies.classad.values import fold
from gridbot_policies.explain.conditions import ONLY_ASKING, PolicyConditions
from gridbot_policies.explain.rejections import Condition, Judged, judge
from gridbot_policies.explain.relax import Bound, Change
from gridbot_policies.policy.ads import LIVE_ATTRIBUTES
from gridbot_policies.policy.unknown import Unknown
from gridbot_server.matching.cached import shared_inputs, with_cached
from gridbot_server.matching.policies import owner_policy
from gridbot_server.matching.requirements import (
    NOT_AT_HOME,
    ONLY_STOCK,
    RESOURCES,
    STAYS_HERE,
    TOO_OLD,
    UNFIT,
    ManifestWork,
    Resource,
    is_stock,
    lacks,
    no_runtime,
)
from gridbot_server.matching.stock_platforms import stock_programs

_PRIVATE = ("Name", "Owner", "Requirements")
_HIDDEN = Record({fold(name): Unknown(name) for name in _PRIVATE}, _PRIVATE)
_SHORT = 100  # characters of a condition in a line
NOBODY = "no client has asked for work in the last day; start one with: gridbot client start"


@dataclass(frozen=True, slots=True)
class HostClient:
    """A client of a host as far as matching goes; `attributes` are all that policies see.

    `name` is None for those who may not know whose machine it is.
    """

    host: int
    attributes: Mapping[str, Any]
    owner: int
    accepts: Sequence[int]
    trusts: Sequence[int]
    protocol: int
    name: str | None = None
    silent: bool = False  # it has not asked for work lately
    running: int = 0  # replicas that the client holds
    cached: Sequence[str] = ()  # marks of what it says that its cache holds

    @property
    def label(self) -> str:
        """What to call the host before those who ask."""
        return self.name or f"host {self.host}"

    @property
    def is_stock(self) -> bool:
        """Whether it is a stock BOINC client."""
        return is_stock(self.attributes)


@dataclass(frozen=True, slots=True, kw_only=True)
class BotRequirements(ManifestWork):
    """What a BOT asks of a host, and the queue in which it waits."""

    bot: int
    owner_name: str
    policies: PolicySet
    ad: Record
    queue: Record
    now: float  # the time that policies see, seconds since 1970
    # Why it could not be signed for stock BOINC clients, if that was tried.
    boinc_unsuitable: str | None = None


@dataclass(frozen=True, slots=True)
class MatchCount:
    """How many hosts are known, how many suit, and the commonest obstacle when none does.

    The `stock` ones among them run stock BOINC clients.
    """

    hosts_known: int
    hosts_matching: int
    hosts_stock: int
    hosts_stock_matching: int
    reason: str


@dataclass(frozen=True, slots=True)
class Known:
    """A candidate with the ads that the BOT's policies see of it.

    What the BOT's owner may not know of the host is `Unknown` in `open`, and replaced by what may
    be shown in `shown`: only the whole match may depend on it, as it does at dispatch.
    """

    candidate: HostClient
    demand: BotRequirements
    lacks: Mapping[str, str] = field(init=False, repr=False, compare=False)  # words by kind
    ads: Ads = field(init=False, repr=False, compare=False)
    open: Ads = field(init=False, repr=False, compare=False)
    shown: Ads = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        host = record(self.candidate.attributes)
        inputs = shared_inputs(self.demand.manifest, self.demand.policies)
        if inputs is not None:
            host = with_cached(host, inputs, self.candidate.cached)
        found = {lack.kind: lack.text for lack in lacks(self.candidate, self.demand)}
        object.__setattr__(self, "lacks", found)
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


def suits(known: Known) -> bool:
    """Tell whether the host could be given a job of the BOT now."""
    policies = known.demand.policies
    return (
        not known.lacks
        and owner_accepts(known) is not False
        and policies.requirements(known.ads)
        and policies.concurrency(known.ads) >= 1
    )


def owner_accepts(known: Known) -> bool | None:
    """Tell whether the host's owner accepts the BOT; None if its load or clock decides that."""
    ads = known.ads
    policy = owner_policy(ads.host.get("Requirements"))
    return policy is None or policy.accepts(ads.host, ads.bot, ads.queue, ads.now, LIVE_ATTRIBUTES)


def owner_clauses(known: Known, answer: bool | None) -> list[str]:
    """Return the clauses with this answer of the host owner's policy, if one may know it."""
    ads = known.ads
    policy = owner_policy(ads.host.get("Requirements"))
    if policy is None or known.candidate.name is None:
        return []
    return list(policy.clauses(answer, ads.host, ads.bot, ads.queue, ads.now, LIVE_ATTRIBUTES))


def conditions(demand: BotRequirements) -> list[Condition[Known]]:
    """Return all that the BOT asks of a host.

    What its owner can change soonest comes first: the policy, then the resources, which
    need a new submission, then what others must agree to.
    """
    nowhere = Ads(record({}), demand.ad, demand.queue, now=demand.now)
    policy = PolicyConditions[Known](
        demand.policies, nowhere, lambda known: known.open, lambda known: known.shown
    )
    return [
        *policy.conditions(), *_resources(demand), *_platforms(demand), *_permissions(demand),
        _owner(), policy.whole(),
    ]  # fmt: skip


def judged(
    candidates: Iterable[HostClient], demand: BotRequirements, is_enough: Callable[[], bool]
) -> Judged[Known]:
    """Judge the hosts of the candidates by their most suitable clients, until it is enough."""
    subjects = ((item.host, Known(item, demand)) for item in candidates)
    return judge(conditions(demand), subjects, suits, is_enough)


def survey(
    candidates: Iterable[HostClient],
    demand: BotRequirements,
    is_enough: Callable[[], bool] = lambda: False,
) -> MatchCount:
    """Count the hosts of which at least one client could be given a job."""
    found = judged(candidates, demand, is_enough)
    stock, stock_matching = stock_hosts(found)
    return MatchCount(
        len(found.verdicts), len(found.matching), stock, stock_matching, commonest_obstacle(found)
    )


def stock_hosts(found: Judged[Known]) -> tuple[int, int]:
    """Return how many of the hosts run stock BOINC clients, and how many of these suit."""
    stock = [item for item in found.verdicts if item.subject.candidate.is_stock]
    return len(stock), sum(not item.failed for item in stock)


def commonest_obstacle(found: Judged[Known]) -> str:
    """Return the commonest reason why no host can run it, in one line; "" if one can."""
    if not found.verdicts:
        return NOBODY
    main = found.main_obstacle()
    if main is None or found.matching:
        return ""
    condition, hosts = main
    count = f"{len(hosts)} {'host' if len(hosts) == 1 else 'hosts'}"
    return f"{sentence(condition, hosts[0])} ({count})"


def sentence(condition: Condition[Known], known: Known) -> str:
    """Return in words the condition that a host fails."""
    match condition.kind:
        case "boinc" | "trust" | "grid" | "owner" | "client" | "environment" | "containers":
            return condition.text
        case "sandbox":
            return known.lacks["sandbox"]
        case "JobRequirements" | "Concurrency":
            via = f", in {condition.via}," if condition.via else ""
            has = condition.has(known)
            lack = f"is {has}" if has == ONLY_ASKING else "is not satisfied"
            return f"the policy's condition {cut(condition.text, _SHORT)}{via} {lack}"
        case "platform" | "boinc platform":
            return f"a job needs {cut(condition.text, _SHORT)}, the host has another"
        case _:
            return f"a job needs {condition.text}, the host has less"


def _needed(
    kind: str,
    text: str,
    has: Callable[[Known], str],
    bound: Bound[Known] | None = None,
) -> Condition[Known]:
    """Return a condition on a requirement of the kinds that `lacks` yields."""
    return Condition(kind, text, lambda known: kind not in known.lacks, has, bound=bound)


def _resources(demand: BotRequirements) -> Iterator[Condition[Known]]:
    for resource in RESOURCES:
        if wanted := getattr(demand.resources, resource.field):
            yield _resource(resource, resource.words(wanted))


def _resource(resource: Resource, text: str) -> Condition[Known]:
    def amount(known: Known) -> float | None:
        return resource.offered(known.candidate.attributes)

    def change(limit: str) -> Change:
        return Change(text, resource.words(limit), submit=f"--{resource.kind} {limit}")

    bound = Bound(at_least=True, amount=amount, change=change)
    return _needed(resource.kind, text, lambda known: str(amount(known) or "none"), bound)


def _platforms(demand: BotRequirements) -> Iterator[Condition[Known]]:
    def has(attribute: str) -> Callable[[Known], str]:
        return lambda known: str(known.candidate.attributes.get(attribute, "none"))

    programs = demand.programs
    if demand.platforms:
        names = " or ".join(places(programs) or demand.platforms)
        yield _needed("platform", f"platform {names}", has("Platform"))
    if demand.stock_platforms:
        programs = stock_programs(programs, demand.stock_platforms)
        names = " or ".join(places(programs) or demand.stock_platforms)
        yield _needed("boinc platform", f"BOINC platform {names}", has("Platforms"))


def _permissions(demand: BotRequirements) -> Iterator[Condition[Known]]:
    """Yield conditions on signatures and accepted owners."""
    stock = (
        f"the BOT is unsuitable for stock BOINC clients: {demand.boinc_unsuitable}"
        if demand.boinc_unsuitable
        else "the BOT is not signed for stock BOINC clients:"
        f" gridbot app sign {demand.bot} --boinc-key FILE"
    )
    yield _needed("boinc", stock, lambda _: "a stock BOINC client")
    if demand.boinc_api:
        yield _needed("boinc api", ONLY_STOCK, lambda _: "a native client")
    yield _needed("trust", _signatures(demand), lambda known: known.lacks["trust"])
    walls = "the host's sandbox is too weak for work of others, or for what the BOT asks"
    yield _needed("sandbox", walls, lambda known: known.lacks["sandbox"])
    if demand.image:
        words = no_runtime(demand.image)
        yield _needed("containers", words, lambda known: known.lacks["containers"])
    if demand.manifest.has_environment:
        yield _needed("environment", UNFIT, lambda known: known.lacks["environment"])
    if demand.manifest_version > 2 or demand.has_storage:
        words = TOO_OLD if demand.manifest_version > 2 else STAYS_HERE
        yield _needed("client", words, lambda known: known.lacks["client"])
    if demand.together > 1:
        yield _needed("gang", NOT_AT_HOME, lambda known: known.lacks["gang"])
    pilot = f"the pilot was not submitted on behalf of {demand.owner_name}"
    yield _needed("grid", pilot, lambda known: str(known.candidate.attributes.get("Grid")))


def _signatures(demand: BotRequirements) -> str:
    """Say whose signature is missing, and what to do."""
    if demand.manifest.version == 1:
        return "the BOT was submitted before signatures covered jobs: submit it again"
    if demand.signed:
        return "the client is too old to check the BOT's signature"
    if demand.owner_signed:
        return (
            f"the BOT is signed by {demand.owner_name} alone, whose key the client does not trust;"
            f" for strangers' clients the project signs: gridbot app sign {demand.bot}"
        )
    return f"the BOT waits for a signature: gridbot app sign {demand.bot}"


def _owner() -> Condition[Known]:
    return Condition(
        kind="owner",
        text="the host owner's Requirements reject the BOT",
        meets=lambda known: owner_accepts(known) is not False,
        has=lambda known: ", ".join(owner_clauses(known, False)) or "no",
    )
