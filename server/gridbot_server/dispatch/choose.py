"""Algorithm 1 of the paper with the optimisation of section 6.4: which replicas a host gets.

Pure: the clock, the ads, the buffer's content and the accounts of evaluation budgets are arguments,
so a simulator runs the same code.

Theory of operation
===================

The algorithm evaluates JobRequirements and Rank of all BOTs for the host that asks, and gives it
the best.  Most policies do not look at the host at the moment: that of Figure 3,
`!Tail ? 5 : Host.JobsToday`, does in the tail only.  `Order` evaluates and sorts these once for all
hosts of a batch.  A request goes along them until the host has what it wants, so that it pays
nothing for BOTs that stand behind.  What it gets is the same as if all had been evaluated for it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import merge
from itertools import islice
from operator import attrgetter
from typing import Any

from gridbot_client.protocol.messages import Resources
from gridbot_policies import Ads, PolicySet
from gridbot_policies.classad import Record
from gridbot_policies.policy.ads import UNSEEN_HOST
from gridbot_policies.policy.owner import OwnerPolicy
from gridbot_policies.policy.policy_set import DEFAULT_DEADLINE_SECONDS
from gridbot_server.matching import lots
from gridbot_server.matching.places import free_places
from gridbot_server.matching.requirements import UNVERIFIABLE, number, obstacle
from gridbot_server.matching.run_time import outlives
from gridbot_server.matching.spending import Spending

# Copies of one BOT that are looked at for one request: a bound on its cost.
COPIES_PER_REQUEST = 64
BEYOND_WIDTH = "Host.Width"  # why a host gets no more
BEYOND_TIME = "Host.TimeLeft"
BEYOND_GPUS = "Host.FreeGpus"
WHOLE_GANG = "its gang is whole"
GANG_BEFORE = "a gang that began before"
_LEAST_WAIT_SECONDS = 3600.0  # beside what the job itself may take


@dataclass(frozen=True, slots=True)
class Holder:
    """A host that holds a replica of a job, or had one."""

    host: int
    owner: int


@dataclass(frozen=True, slots=True)
class Copy:
    """A further copy of a job that waits in the buffer, and what is known of its siblings."""

    slot: Any  # whatever the caller needs to take it
    seq: int
    holders: Sequence[Holder]  # of replicas in progress, and of outputs that may make a quorum
    job: Record  # the Job ad
    pool: str | None = None
    failed: Sequence[Holder] = ()  # those whose replicas failed in this round
    kind: str | None = None  # of hosts, to which HomogeneousBy binds its job
    drawn: int = lots.ANYBODY  # for whom it is kept


@dataclass(slots=True)
class Candidate:
    """One BOT as dispatch sees it at one moment; `fresh` falls as replicas are taken."""

    bot: int
    owner: int
    policies: PolicySet
    ad: Record
    resources: Resources
    fresh: int  # first copies at hand
    copies: Callable[[], Sequence[Copy]] | None  # looks at the waiting copies; None: there are none
    dry: bool = False  # unsent first copies exist, but none is at hand
    signed: bool = False
    owner_signed: bool = False
    manifest_version: int = 2
    manifest_id: str = ""
    image: str = ""
    platforms: Sequence[str] = ()
    sandbox: int = 0  # least sandbox level that it asks for
    stock_platforms: Sequence[str] = ()  # where stock BOINC clients can run it; none: nowhere
    among_strangers: bool = False  # its jobs run on machines whose owners nobody vouches for
    quorum: int = 1
    running: int = 0  # replicas in progress
    needs: str = ""  # the same for BOTs that need the same of a host, if that is known
    is_suspended: bool = False  # its policy exceeded its budget repeatedly
    is_assured: bool = False  # answers of strangers are checked by others
    program: bytes = b""  # what hosts prove themselves with
    run_seconds: float | None = None  # that a replica is taken to run; None: nobody knows
    share: float = 1.0  # of its owner
    # Replicas that run of its group by the group's share; 0 where its owner has given none a share.
    group_usage: float = 0.0
    together: int = 1  # jobs of a gang
    gathers_since: float = math.inf  # s since 1970: a gang waits for further hosts
    lacks: int | None = None  # members of the gang that gathers, or may begin to; None: no gangs
    gang: int | None = None  # the number of the gang that gathers: all at hand is of it
    of_other_gangs: int = 0  # first copies at hand beside

    @property
    def has_work(self) -> bool:
        """Whether it has replicas to send, at hand or elsewhere."""
        return bool(self.fresh or self.dry or self.copies)

    @property
    def gathers(self) -> bool:
        """Whether a gang of it waits for further members."""
        return self.gang is not None and bool(self.lacks)

    @property
    def first_copies(self) -> int:
        """Those at hand, also of gangs that wait for the one that gathers."""
        return self.fresh + self.of_other_gangs

    def rest(self) -> None:
        """Let nobody have any of it, for the rest of the batch."""
        self.fresh, self.copies, self.dry = 0, None, False

    @property
    def at_hand(self) -> int:
        """The replicas that can be sent at once."""
        return self.fresh + (len(self.copies()) if self.copies else 0)

    @property
    def distinct_owners(self) -> bool:
        """Whether a quorum, or a check, needs different owners."""
        return (self.quorum > 1 or self.is_assured) and self.among_strangers

    def is_bounded(self, host: HostView) -> bool:
        """Whether the host's width bounds it: it works for a stranger who does not vouch for it."""
        return self.among_strangers and self.owner != host.owner and not host.dedicated

    def voter(self, host: int, owner: int) -> int:
        """Who speaks when a host does: among strangers all hosts of an owner count as one."""
        return owner if self.among_strangers else host


@dataclass(slots=True)
class HostView:
    """The host that asks: its ad, who it is, and how many replicas its client holds already.

    One is made for each request, and making a frozen one takes twice as long.
    """

    id: int
    owner: int
    attributes: Mapping[str, Any]
    ad: Record
    running: int
    want: int
    accepts: Sequence[int] = ()
    trusts: Sequence[int] = ()
    protocol: int = 2
    dedicated: bool = False
    # (bot, seq) of what the client holds or reports now, with or without a lease: the late
    # answer of an expired replica is on its way, so a copy of its job would be for nothing.
    at_hand: Collection[tuple[int, int]] = ()
    policy: OwnerPolicy | None = None
    of_bot: Mapping[int, int] = field(default_factory=dict)  # replicas of each BOT it holds
    ahead: Mapping[int, int] = field(default_factory=dict)  # the most that it would hold, by BOT
    room: int | None = None  # replicas that its width leaves room for, of strangers; None: any
    width: int = 0  # of strangers' replicas; matters where `room` does
    lot: int = lots.ANYBODY  # by which its crew is drawn
    unjudged: int = 0  # replicas of strangers that it has in progress or unjudged
    # The most that it may hold of programs with which it was caught.
    bounds: Mapping[bytes, int] = field(default_factory=dict)
    mean_turnaround: float | None = None  # s


@dataclass(frozen=True, slots=True)
class TakeAny:
    """Send `count` first copies of a BOT."""

    bot: int
    count: int
    deadline_seconds: float
    kind: str | None = None  # of the host, to which HomogeneousBy binds the jobs


@dataclass(frozen=True, slots=True)
class TakeSlot:
    """Send this very copy."""

    bot: int
    slot: Any
    deadline_seconds: float
    kind: str | None = None


Take = TakeAny | TakeSlot


@dataclass(slots=True)
class Choice:
    """What to send, and how many BOTs were refused for which reason: all, if nothing is sent."""

    takes: list[Take] = field(default_factory=list)
    refusals: dict[str, int] = field(default_factory=dict)
    inversions: int = 0  # BOTs that ranked high enough but whose segment was dry
    overspent: set[int] = field(default_factory=set)  # BOTs whose policy exceeded its budget

    @property
    def is_outdated(self) -> bool:
        """Whether nothing but its age keeps the client from all work that there is.

        What it may run and is only not at hand is brought later.
        """
        return set(self.refusals) == {UNVERIFIABLE} and not self.inversions

    def refuse(self, reason: str) -> None:
        """Count one BOT that this host does not get."""
        self.refusals[reason] = self.refusals.get(reason, 0) + 1

    def overspend(self, bot: int) -> None:
        """Refuse a BOT whose policy exceeded its budget, once."""
        if bot not in self.overspent:
            self.overspent.add(bot)
            self.refuse("evaluation budget")


# What comes first: since when its gang gathers, usage of the BOT's owner and of its group, negative
# rank, whether it is a first copy, and which of the candidates it is.
_Key = tuple[float, float, float, float, bool, int]

Lookers = set[tuple[int, bool]]
"""BOTs whose policies look at the host, each with whether it was in its tail phase."""


@dataclass(frozen=True, slots=True)
class _Offer:
    """A BOT's first copies, or one copy, that this host may have."""

    key: _Key
    candidate: Candidate
    ads: Ads
    rank: float
    copy: Copy | None


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the first copies of a BOT, or the further ones, stand for any host."""

    key: _Key
    candidate: Candidate
    rank: float
    is_first: bool


class Order:
    """The BOTs of one batch of requests: those whose place is the same for all hosts are sorted.

    `usage` is the replicas that each owner has running, divided by the owner's share; owners who
    have less come first.  Within one owner Rank decides alone, as in the paper, unless groups have
    shares: then that of less usage goes first.  `now` (s since 1970) is the time that policies see.
    What policies take is charged to `spending`.  `lookers` outlives the batch: BOTs whose policies
    looked at the host in this phase are not tried again.  A gang begins only if `may_begin`.
    """

    def __init__(
        self,
        candidates: Iterable[Candidate],
        queue: Record,
        usage: Mapping[int, float] | None = None,
        now: float | None = None,
        spending: Spending | None = None,
        lookers: Lookers | None = None,
        may_begin: Callable[[], bool] = lambda: True,
    ) -> None:
        self.queue, self.now, self.may_begin = queue, now, may_begin
        self._lookers = set() if lookers is None else lookers
        self.spending = spending or Spending()
        self._usage = usage or {}
        self.asked: list[tuple[int, Candidate]] = []  # for each host, with their positions
        self.unsuitable: list[Candidate] = []  # for any host
        self.overspent: list[int] = []  # BOTs whose policy exceeded its budget without a host
        self.places: list[_Place] = []
        self.of_gangs: list[Candidate] = []
        self.resources: dict[int, Resources] = {}  # of a replica, by BOT
        for position, item in enumerate(candidates):
            self.resources[item.bot] = item.resources
            if item.lacks is not None:
                self.of_gangs.append(item)
            if item.has_work:
                self._settle(position, item)
        self.places.sort(key=attrgetter("key"))

    def key(self, position: int, item: Candidate, rank: float, *, is_first: bool) -> _Key:
        """Where an offer stands.  Of one BOT, copies go first: somebody waits for them already.

        Gangs that gather go before all: what they hold stands still meanwhile.
        """
        usage = self._usage.get(item.owner, 0.0)
        return item.gathers_since, usage, item.group_usage, -rank, is_first, position

    def _settle(self, position: int, item: Candidate) -> None:
        # An owner whose policies are dear is charged by each host that they are evaluated for.
        waits = item.is_suspended or self.spending.owes(item.owner)
        looker = item.bot, item.ad.get("Tail") is True
        if waits or looker in self._lookers or (item.copies and item.policies.looks_at_replicas):
            self.asked.append((position, item))
            return
        ads = Ads(UNSEEN_HOST, item.ad, self.queue, now=self.now)
        found = item.policies.for_any_host(ads)
        if not self.spending.charge(item.owner, item.bot, ads):
            self.overspent.append(item.bot)
            return
        if found is None:
            self._lookers.add(looker)
            self.asked.append((position, item))
            return
        suits, rank = found
        if not suits:
            self.unsuitable.append(item)
            return
        for is_first, there_are in ((False, item.copies), (True, item.fresh or item.dry)):
            if there_are:
                key = self.key(position, item, rank, is_first=is_first)
                self.places.append(_Place(key, item, rank, is_first))


def choose(host: HostView, order: Order) -> Choice:
    """List what to send to `host`, best first.

    Policies whose owner has spent too much wait.  Concurrency of the best bounds all others (the
    printed algorithm has `<` where its text means `>`).
    """
    round_ = _Round(host, order)
    choice = round_.choice
    for bot in order.overspent:
        choice.overspend(bot)
    most, sent = host.want, 0
    width = host.want if host.room is None else host.room  # left for strangers
    given = 0  # of strangers
    members: dict[int, int] = {}  # of gangs, by BOT
    for offer in _offers(round_, order):
        concurrency = _concurrency(offer, host)
        if not round_.is_affordable(offer.candidate, offer.ads):
            continue
        if concurrency < 1:  # nothing of this BOT, which is no reason to give nothing of others
            choice.refuse("Concurrency")
            continue
        most = min(most, concurrency - host.running)
        if sent >= most and sent:
            break
        count = round_.with_gpus(offer.candidate, most - sent)
        if count <= 0:
            choice.refuse("Concurrency")
            continue
        is_of_gang = offer.candidate.lacks is not None
        if is_of_gang:
            wanted, waits_for_cores = round_.members(offer.candidate, sent, members)
            if waits_for_cores:  # what comes behind would take those that get free
                most = min(most, sent + wanted)
            count = min(count, wanted)
            if count <= 0:
                continue
        is_bounded = offer.candidate.is_bounded(host)
        if is_bounded:
            count = min(count, _most_bounded(offer, host, width, given))
        if count <= 0:
            choice.refuse(BEYOND_WIDTH)
            continue
        taken = _take(offer, count, host, choice)
        round_.give_gpus(offer.candidate, taken)
        if is_of_gang and taken:
            bot = offer.candidate.bot
            members[bot] = members.get(bot, 0) + taken
        sent += taken
        if sent >= most:
            break
        if is_bounded:
            width, given = width - taken, given + taken
    if not choice.takes:  # only then somebody reads why
        round_.refuse_unsuitable(order.unsuitable)
    return choice


def _concurrency(offer: _Offer, host: HostView) -> int:
    """Return the most replicas that the host may hold at once.

    Unless the BOT's policy says, a host that knows its replicas to be short holds what it runs
    within a second, so that none of its cores waits for a request.
    """
    item = offer.candidate
    asked = item.policies.concurrency(offer.ads)
    if item.policies.has_concurrency:
        return asked
    return max(asked, host.ahead.get(item.bot, 0))


def _take(offer: _Offer, count: int, host: HostView, choice: Choice) -> int:
    """Add one take for the offer; return the replicas it sends."""
    item, deadline = offer.candidate, _deadline(offer, host)
    kind = item.policies.kind(offer.ads) if item.policies.is_homogeneous else None
    if offer.copy is not None:
        choice.takes.append(TakeSlot(item.bot, offer.copy.slot, deadline, kind))
        return 1
    count = min(count, item.fresh)
    if count:
        choice.takes.append(TakeAny(item.bot, count, deadline, kind))
    if item.dry:
        choice.inversions += 1
    return count


def _most_bounded(offer: _Offer, host: HostView, width: int, given: int) -> int:
    """Return how many replicas a host may have of strangers; this request has `given` some.

    For a check only what is in progress counts, so that hosts full of unjudged answers can check.
    """
    most = host.width
    if (bound := host.bounds.get(offer.candidate.program)) is not None:
        most, width = bound, min(width, bound - host.unjudged - given)
    if offer.copy is None or not offer.candidate.is_assured:
        return max(0, width)
    return max(0, width, most - host.running - given)


def _deadline(offer: _Offer, host: HostView) -> float:
    """Return the seconds that the host has for a replica.

    Unless the BOT's policy says, that is what a job may run, and three times as long as the host
    usually takes to answer, an hour at least: a host that vanishes holds a short job no whole day.
    """
    item = offer.candidate
    if item.policies.has_deadline:
        return item.policies.deadline(offer.ads)
    limit = item.resources.seconds
    waits = max(_LEAST_WAIT_SECONDS, 3 * limit, 3 * (host.mean_turnaround or 0.0))
    return min(DEFAULT_DEADLINE_SECONDS, limit + waits)


def meets_needs(host: HostView, item: Candidate) -> bool:
    """Whether the host has what a BOT needs; what policies say is left open."""
    return obstacle(host, item) is None


class _Round:
    """One look at all BOTs for one host."""

    def __init__(self, host: HostView, order: Order) -> None:
        self.host, self.order, self.spending = host, order, order.spending
        self.choice = Choice()
        self._known: dict[str, str | None] = {}
        # A stock client counts its own GPUs.
        self._free_gpus = number(host.attributes.get("FreeGpus"))

    def admits(self, item: Candidate) -> bool:
        """Whether the host may have anything of a BOT, whatever its policies say."""
        reason = self._refusal(item)
        if reason:
            self.choice.refuse(reason)
        return not reason

    def _refusal(self, item: Candidate) -> str | None:
        if reason := self.obstacle(item):
            return reason
        host, order = self.host, self.order
        if host.policy and not host.policy.accepts(host.ad, item.ad, order.queue, order.now):
            return "the host owner's Requirements"
        if not self.spending.is_due(item.owner, item.bot):
            return "evaluation budget of its owner"
        return None

    def ads(self, item: Candidate) -> Ads:
        """What the policies of a BOT see."""
        return Ads(self.host.ad, item.ad, self.order.queue, now=self.order.now)

    def refuse_unsuitable(self, items: Iterable[Candidate]) -> None:
        """Count the BOTs that suit no host now, beside what keeps them from this one anyway."""
        for item in items:
            if item.has_work and self.admits(item):
                self.choice.refuse("JobRequirements")

    def members(self, item: Candidate, sent: int, members: Mapping[int, int]) -> tuple[int, bool]:
        """Return how many members of a gang the host may have beside `sent` replicas and `members`.

        Also whether the gang wants more of it than it has cores free: a member that waited for a
        core would let all others wait.
        """
        given = members.get(item.bot, 0)
        wanted = (item.lacks or 0) - given
        if wanted <= 0:
            self.choice.refuse(WHOLE_GANG)
            return 0, False
        begins = not item.gathers and not given
        if begins and (self.is_needed_by_gang(members) or not self.order.may_begin()):
            self.choice.refuse(GANG_BEFORE)
            return 0, False
        free = free_places(self.host.attributes, item.resources, self._held(item, sent))
        if not free:
            self.choice.refuse("Concurrency")
            return 0, True
        return int(min(wanted, free)), wanted > free

    def _held(self, item: Candidate, sent: int) -> Counter[Resources]:
        """What the host has in progress, and is `sent` now, by what a replica may use.

        Where the server does not know that, because the BOT is not in its buffer, the replica is
        taken to be as large as one of `item`.
        """
        held, of_bot = Counter[Resources](), Counter(self.host.of_bot)
        for take in self.choice.takes:
            of_bot[take.bot] += take.count if isinstance(take, TakeAny) else 1
        for bot, count in of_bot.items():
            held[self.order.resources.get(bot, item.resources)] += count
        held[item.resources] += max(0, self.host.running + sent - of_bot.total())
        return held

    def is_needed_by_gang(self, members: Mapping[int, int]) -> bool:
        """Whether a gang that gathers may have the host, and lacks more than `members` (by BOT).

        Another gang that began here would hold what that one waits for, and wait for it.  It does
        not matter whether the buffer has the jobs of the one that gathers at the moment.
        """
        for item in self.order.of_gangs:
            gathers = item.gathers or item.bot in members
            if not gathers or (item.lacks or 0) <= members.get(item.bot, 0) or self._refusal(item):
                continue
            ads = self.ads(item)
            suits = item.policies.requirements(ads)
            if self.is_affordable(item, ads) and suits:
                return True
        return False

    def with_gpus(self, item: Candidate, count: int) -> int:
        """Return for how many of `count` replicas the host has free GPUs."""
        if self._free_gpus is None or not item.resources.gpus:
            return count
        return min(count, int(self._free_gpus // item.resources.gpus))

    def give_gpus(self, item: Candidate, count: int) -> None:
        """Note that replicas with GPUs are sent."""
        if self._free_gpus is not None:
            self._free_gpus -= count * item.resources.gpus

    def obstacle(self, item: Candidate) -> str | None:
        """What keeps a BOT from the host, looked for once among those with the same needs."""
        if item.is_suspended:
            return "suspended policy"
        if outlives(item.run_seconds, self.host.attributes):
            return BEYOND_TIME
        if not self.with_gpus(item, 1):
            return BEYOND_GPUS
        if not item.needs:
            return obstacle(self.host, item)
        if item.needs not in self._known:
            self._known[item.needs] = obstacle(self.host, item)
        return self._known[item.needs]

    def is_affordable(self, item: Candidate, ads: Ads) -> bool:
        """Charge what the policies have taken; refuse a BOT beyond its budget."""
        if self.spending.charge(item.owner, item.bot, ads):
            return True
        self.choice.overspend(item.bot)
        return False


def _offers(round_: _Round, order: Order) -> Iterator[_Offer]:
    """Yield what the host may have, best first; no more is evaluated than is asked for."""
    asked = [offer for position, item in order.asked for offer in _asked(round_, position, item)]
    settled = _settled(round_, order.places)
    if not asked:
        return settled
    asked.sort(key=attrgetter("key"))
    return merge(asked, settled, key=attrgetter("key"))


def _settled(round_: _Round, places: Iterable[_Place]) -> Iterator[_Offer]:
    admitted: dict[int, bool] = {}  # BOTs, of which there may be two places
    for place in places:
        item = place.candidate
        if not (item.fresh or item.dry if place.is_first else item.copies):
            continue
        if item.bot not in admitted:
            admitted[item.bot] = round_.admits(item)
        if not admitted[item.bot]:
            continue
        ads = round_.ads(item)
        if place.is_first:
            yield _Offer(place.key, item, ads, place.rank, None)
        else:
            yield from _copy_offers(round_, place.key[-1], item, ads, place.rank)


def _asked(round_: _Round, position: int, item: Candidate) -> Iterator[_Offer]:
    """Yield the offers of a BOT whose policies look at the host."""
    if not item.has_work or not round_.admits(item):
        return
    ads = round_.ads(item)
    suits = item.policies.requirements(ads)
    rank = item.policies.rank(ads) if suits else 0.0
    if not round_.is_affordable(item, ads):
        return
    if suits:
        if item.fresh or item.dry:
            key = round_.order.key(position, item, rank, is_first=True)
            yield _Offer(key, item, ads, rank, None)
    else:
        round_.choice.refuse("JobRequirements")
    if item.copies and (suits or item.policies.looks_at_replicas):
        yield from _copy_offers(round_, position, item, ads, rank)


def _copy_offers(
    round_: _Round, position: int, item: Candidate, ads: Ads, rank: float
) -> Iterator[_Offer]:
    """Offer the copies that may run here; a policy that looks at replicas is asked about each.

    To others they are all the same: no more than the host wants.
    """
    assert item.copies is not None
    host, order = round_.host, round_.order
    kind = item.policies.kind(ads) if item.policies.is_homogeneous else None
    fitting = _of_different_partners(
        item,
        (
            copy
            for copy in item.copies()
            if _may_hold(host, item, copy) and (None in (kind, copy.kind) or kind == copy.kind)
        ),
    )
    if not item.policies.looks_at_replicas:
        key = order.key(position, item, rank, is_first=False)
        yield from (_Offer(key, item, ads, rank, copy) for copy in islice(fitting, host.want))
        return
    for copy in fitting:
        own = Ads(ads.host, ads.bot, ads.queue, copy.job, ads.now)
        suits = item.policies.requirements(own)
        rank = item.policies.rank(own) if suits else 0.0
        if not (round_.is_affordable(item, own) and round_.spending.is_due(item.owner, item.bot)):
            return
        if suits:
            key = order.key(position, item, rank, is_first=False)
            yield _Offer(key, item, own, rank, copy)


def _of_different_partners(item: Candidate, copies: Iterable[Copy]) -> Iterator[Copy]:
    """Where strangers check each other, let a request check as many of them as there are.

    Two that agree often prove little: as long as there are new jobs, no copies of the same ones.
    """
    seen: set[int] = set()
    others: list[Copy] = []
    for copy in copies:
        owners = {holder.owner for holder in copy.holders}
        if not item.is_assured or seen.isdisjoint(owners):
            seen |= owners
            yield copy
        else:
            others.append(copy)
    if not (item.fresh or item.dry):
        yield from others


def _may_hold(host: HostView, item: Candidate, copy: Copy) -> bool:
    """Two copies of one job never run on one host; counted for a quorum, nor for one owner."""
    if copy.pool == "dedicated" and not host.dedicated:
        return False
    if copy.drawn not in (lots.ANYBODY, host.lot) and item.is_bounded(host):
        return False
    if (item.bot, copy.seq) in host.at_hand or _should_others_try(host, item, copy):
        return False
    return all(
        holder.host != host.id and not (item.distinct_owners and holder.owner == host.owner)
        for holder in copy.holders
    )


def _should_others_try(host: HostView, item: Candidate, copy: Copy) -> bool:
    """Whether the job failed here and nowhere else, while others work for its BOT.

    The fault may be the host's (black holes, paper section 6.5); once two had it, it is the job's.
    """
    if item.together > 1:  # which would wait for those others
        return False
    is_new_here = all(holder.host != host.id for holder in copy.failed)
    if is_new_here or item.running <= host.of_bot.get(item.bot, 0):
        return False
    failed = {item.voter(holder.host, holder.owner) for holder in copy.failed}
    return failed == {item.voter(host.id, host.owner)}
