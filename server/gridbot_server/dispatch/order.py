"""In which order BOTs are looked at for the hosts of a batch, kept from one batch to the next.

Theory of operation
===================

Whether a BOT suits any host, and its rank, are evaluated once as long as the BOT stays as it is and
its policies look at nothing else: not at the host, the time or the queue.  So a batch pays for the
BOTs that changed since the last one, and for those whose policies look at more.

Usage changes all the time, and with it the place of all BOTs of an owner.  So what comes behind
usage in the key is sorted once, for BOTs of one owner and one usage of groups; and the lists of
owners are put behind each other when a batch looks at them.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import merge
from operator import attrgetter
from typing import NamedTuple

from gridbot_policies import Ads
from gridbot_policies.classad import Record
from gridbot_policies.policy.ads import UNSEEN_HOST
from gridbot_server.dispatch.candidates import Candidate
from gridbot_server.matching.spending import FREE_STEPS, Spending

_MOST_LOOKERS = 10_000  # most of them have ended by then

# What comes first: since when its gang gathers, usage of the BOT's owner and of its group, negative
# rank, whether it is a first copy, and the number of its BOT.
Key = tuple[float, float, float, float, bool, int]


@dataclass(frozen=True, slots=True)
class RankedBot:
    """Where the first copies of a BOT, or the further ones, stand for any host."""

    key: tuple[float, bool, int]  # negative rank, whether it is a first copy, BOT
    candidate: Candidate

    @property
    def rank(self) -> float:
        """What the BOT's policy says."""
        return -self.key[0]

    @property
    def is_first(self) -> bool:
        """Whether it is of first copies."""
        return self.key[1]


class _Peers(NamedTuple):
    """BOTs that only their ranks tell apart."""

    gathers_since: float
    owner: int
    group_usage: float


@dataclass(slots=True)
class Ranking:
    """What is known of BOTs from earlier batches."""

    known: dict[int, Candidate] = field(default_factory=dict)  # by BOT
    peers: dict[_Peers, list[RankedBot]] = field(default_factory=dict)  # sorted
    placed: dict[int, tuple[_Peers, list[RankedBot]]] = field(default_factory=dict)  # by BOT
    asked: dict[int, Candidate] = field(default_factory=dict)  # for each host
    unsuitable: dict[int, Candidate] = field(default_factory=dict)  # for any host
    restless: dict[int, Candidate] = field(default_factory=dict)  # evaluated in each batch
    of_gangs: dict[int, Candidate] = field(default_factory=dict)
    # BOTs and policies that look at the host, each with whether the BOT was in its tail phase.
    lookers: set[tuple[int, str, bool]] = field(default_factory=set)

    def update(self, candidates: Collection[Candidate]) -> list[Candidate]:
        """Forget what is gone; return those that are new or not the same any more."""
        known = self.known
        changed = [item for item in candidates if known.get(item.bot) is not item]
        for item in changed:
            self._forget(item.bot)
            known[item.bot] = item
        if len(known) > len(candidates):
            for bot in known.keys() - {item.bot for item in candidates}:
                self._forget(bot)
        if len(self.lookers) > _MOST_LOOKERS:
            self.lookers.clear()
        return changed

    def _forget(self, bot: int) -> None:
        self.displace(bot)
        self.known.pop(bot, None)
        for where in (self.restless, self.of_gangs):
            where.pop(bot, None)

    def displace(self, bot: int) -> None:
        """Forget what was found out about a BOT."""
        self.asked.pop(bot, None)
        self.unsuitable.pop(bot, None)
        peers, places = self.placed.pop(bot, (None, []))
        if peers is None:
            return
        among = self.peers[peers]
        for place in places:
            del among[bisect_left(among, place.key, key=attrgetter("key"))]
        if not among:
            del self.peers[peers]

    def place(self, item: Candidate, rank: float) -> None:
        """Note where a BOT stands that suits any host."""
        peers = _Peers(item.gathers_since, item.owner, item.group_usage)
        among = self.peers.setdefault(peers, [])
        places = [
            RankedBot((-rank, is_first, item.bot), item)
            for is_first, there_are in ((False, item.copies), (True, item.fresh or item.dry))
            if there_are
        ]
        for place in places:
            insort(among, place, key=attrgetter("key"))
        self.placed[item.bot] = peers, places


class Order:
    """The BOTs of one batch of requests: those whose place is the same for all hosts are sorted.

    `usage` is the replicas that each owner has running, divided by the owner's share; owners who
    have less come first.  Within one owner Rank decides alone, as in the paper, unless groups have
    shares: then that of less usage goes first.  Of equal BOTs the older one does.  `now` (s since
    1970) is the time that policies see.  What policies take is charged to `spending`.  `ranking`
    is what earlier batches found out.  A gang begins only if `may_begin`.
    """

    def __init__(
        self,
        candidates: Collection[Candidate],
        queue: Record,
        usage: Mapping[int, float] | None = None,
        now: float | None = None,
        spending: Spending | None = None,
        ranking: Ranking | None = None,
        may_begin: Callable[[], bool] = lambda: True,
    ) -> None:
        self.queue, self.now, self.may_begin = queue, now, may_begin
        self.spending = spending or Spending()
        self._usage = usage or {}
        self.overspent: list[int] = []  # BOTs whose policy exceeded its budget without a host
        self._ranking = ranking or Ranking()
        changed = self._ranking.update(candidates)
        # An owner whose policies are dear is charged by each host that they are evaluated for.
        self._owing = (
            {item.bot: item for item in candidates if self.spending.owes(item.owner)}
            if self.spending.anybody_owes
            else {}
        )
        # Of who comes to owe only now, what has a place keeps it.
        owing = {item.owner for item in self._owing.values()}
        for item in [*self._ranking.restless.values(), *changed]:
            self._settle(item)
        self._places = self._in_order(owing)

    @property
    def asked(self) -> list[Candidate]:
        """BOTs whose policies are evaluated for each host."""
        asked = {**self._ranking.asked, **self._owing} if self._owing else self._ranking.asked
        if not asked:
            return []
        return [item for item in asked.values() if item.has_work]

    @property
    def unsuitable(self) -> list[Candidate]:
        """BOTs that suit no host now."""
        unsuitable = self._ranking.unsuitable.values()
        return [item for item in unsuitable if item.bot not in self._owing]

    @property
    def of_gangs(self) -> Collection[Candidate]:
        """BOTs whose jobs run together."""
        return self._ranking.of_gangs.values()

    def known(self, bot: int) -> Candidate | None:
        """A BOT; None if it is not in the buffer."""
        return self._ranking.known.get(bot)

    def key(self, item: Candidate, rank: float, *, is_first: bool) -> Key:
        """Where an offer stands.  Of one BOT, copies go first: somebody waits for them already.

        Gangs that gather go before all: what they hold stands still meanwhile.
        """
        usage = self._usage.get(item.owner, 0.0)
        return item.gathers_since, usage, item.group_usage, -rank, is_first, item.bot

    def places(self) -> Iterator[tuple[Key, RankedBot]]:
        """Where BOTs stand whose place is the same for all hosts, the best first."""
        for before, lists in self._places:
            for place in lists[0] if len(lists) == 1 else merge(*lists, key=attrgetter("key")):
                yield (*before, *place.key), place

    def _in_order(
        self, owing: Collection[int]
    ) -> list[tuple[tuple[float, float, float], list[list[RankedBot]]]]:
        """Put the lists of those behind each other who have less usage and those who have more.

        Of owners who owe all BOTs are asked for each host instead.
        """
        found: dict[tuple[float, float, float], list[list[RankedBot]]] = {}
        for peers, places in self._ranking.peers.items():
            if peers.owner not in owing:
                usage = self._usage.get(peers.owner, 0.0)
                before = peers.gathers_since, usage, peers.group_usage
                found.setdefault(before, []).append(places)
        return sorted(found.items())

    def _settle(self, item: Candidate) -> None:
        """Find out whether a BOT suits any host, and where it stands then."""
        ranking = self._ranking
        ranking.displace(item.bot)
        if item.lacks is not None:
            ranking.of_gangs[item.bot] = item
        if not item.has_work:
            return
        looker = item.bot, item.policies.text, item.ad.get("Tail") is True
        looks_at_replicas = item.copies and item.policies.looks_at_replicas
        if item.is_suspended or looker in ranking.lookers or looks_at_replicas:
            ranking.asked[item.bot] = item
            return
        if self.spending.owes(item.owner):
            ranking.restless[item.bot] = self._owing[item.bot] = item
            return
        ads = Ads(UNSEEN_HOST, item.ad, self.queue, now=self.now)
        found = item.policies.for_any_host(ads)
        if item.policies.is_restless or ads.spent > FREE_STEPS:
            ranking.restless[item.bot] = item
        if not self.spending.charge(item.owner, item.bot, ads):
            self.overspent.append(item.bot)
        elif found is None:
            ranking.lookers.add(looker)
            ranking.asked[item.bot] = item
        else:
            suits, rank = found
            if suits:
                ranking.place(item, rank)
            else:
                ranking.unsuitable[item.bot] = item
