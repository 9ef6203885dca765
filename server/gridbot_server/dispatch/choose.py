"""Algorithm 1 of the paper with the optimisation of section 6.4: which replicas a host gets.

Pure: the clock, the ads, the buffer's content and the accounts of evaluation budgets are arguments,
so a simulator runs the same code.

Theory of operation
===================

The algorithm evaluates JobRequirements and Rank of all BOTs for the host that asks, and gives it
the best.  Most policies do not look at the host at the moment: that of Figure 3,
`!Tail ? 5 : Host.JobsToday`, does in the tail only.  `order.py` keeps these sorted for all hosts.
A request goes along them until the host has what it wants, so that it pays nothing for BOTs that
stand behind.  What it gets is the same as if all had been evaluated for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from heapq import merge
from itertools import islice
from operator import attrgetter

from gridbot_client.protocol.messages import Resources
from gridbot_policies import Ads
from gridbot_policies.policy.policy_set import DEFAULT_DEADLINE_SECONDS
from gridbot_server.dispatch.candidates import (
    Candidate,
    Choice,
    Copy,
    HostView,
    TakeAny,
    TakeSlot,
)
from gridbot_server.dispatch.order import Key, Order
from gridbot_server.matching import lots
from gridbot_server.matching.places import free_places
from gridbot_server.matching.requirements import number, obstacle, resources_on
from gridbot_server.matching.run_time import outlives

# Copies of one BOT that are looked at for one request: a bound on its cost.
COPIES_PER_REQUEST = 64
BEYOND_WIDTH = "Host.Width"  # why a host gets no more
BEYOND_TIME = "Host.TimeLeft"
BEYOND_GPUS = "Host.FreeGpus"
WHOLE_GANG = "its gang is whole"
GANG_BEFORE = "a gang that began before"
_LEAST_WAIT_SECONDS = 3600.0  # beside what the job itself may take


@dataclass(slots=True)
class _Offer:
    """A BOT's first copies, or one copy, that this host may have."""

    key: Key
    candidate: Candidate
    ads: Ads
    rank: float
    copy: Copy | None


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
    item = offer.candidate
    if offer.copy is None and not item.fresh:  # it is dry
        choice.inversions += 1
        return 0
    deadline = _deadline(offer, host)
    kind = item.policies.kind(offer.ads) if item.policies.is_homogeneous else None
    if offer.copy is not None:
        choice.takes.append(TakeSlot(item.bot, offer.copy.slot, deadline, kind))
        return 1
    count = min(count, item.fresh)
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
        return Ads(self.host.ad_for(item), item.ad, self.order.queue, now=self.order.now)

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
        free = free_places(self.host.attributes, self.resources(item), self._held(item, sent))
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
            held[self.resources(self.order.known(bot) or item)] += count
        held[self.resources(item)] += max(0, self.host.running + sent - of_bot.total())
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

    def resources(self, item: Candidate) -> Resources:
        """Return what a replica of a BOT may use on this host."""
        return resources_on(self.host, item) if item.programs else item.resources

    def with_gpus(self, item: Candidate, count: int) -> int:
        """Return for how many of `count` replicas the host has free GPUs."""
        if self._free_gpus is None or not (gpus := self.resources(item).gpus):
            return count
        return min(count, int(self._free_gpus // gpus))

    def give_gpus(self, item: Candidate, count: int) -> None:
        """Note that replicas with GPUs are sent."""
        if self._free_gpus is not None:
            self._free_gpus -= count * self.resources(item).gpus

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
    asked = [offer for item in order.asked for offer in _asked(round_, item)]
    settled = _settled(round_, order)
    if not asked:
        return settled
    asked.sort(key=attrgetter("key"))
    return merge(asked, settled, key=attrgetter("key"))


def _settled(round_: _Round, order: Order) -> Iterator[_Offer]:
    admitted: dict[int, bool] = {}  # BOTs, of which there may be two places
    for key, place in order.places():
        item, is_first = place.candidate, place.is_first
        if not (item.fresh or item.dry if is_first else item.copies):
            continue
        if item.bot not in admitted:
            admitted[item.bot] = round_.admits(item)
        if not admitted[item.bot]:
            continue
        ads = round_.ads(item)
        if is_first:
            yield _Offer(key, item, ads, place.rank, None)
        else:
            yield from _copy_offers(round_, item, ads, place.rank)


def _asked(round_: _Round, item: Candidate) -> Iterator[_Offer]:
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
            key = round_.order.key(item, rank, is_first=True)
            yield _Offer(key, item, ads, rank, None)
    else:
        round_.choice.refuse("JobRequirements")
    if item.copies and (suits or item.policies.looks_at_replicas):
        yield from _copy_offers(round_, item, ads, rank)


def _copy_offers(round_: _Round, item: Candidate, ads: Ads, rank: float) -> Iterator[_Offer]:
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
        key = order.key(item, rank, is_first=False)
        yield from (_Offer(key, item, ads, rank, copy) for copy in islice(fitting, host.want))
        return
    for copy in fitting:
        own = Ads(ads.host, ads.bot, ads.queue, copy.job, ads.now)
        suits = item.policies.requirements(own)
        rank = item.policies.rank(own) if suits else 0.0
        if not (round_.is_affordable(item, own) and round_.spending.is_due(item.owner, item.bot)):
            return
        if suits:
            key = order.key(item, rank, is_first=False)
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
