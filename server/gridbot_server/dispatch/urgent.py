"""What a host has not begun and should return, because something more urgent waits.

A client holds some replicas ahead.  Where they may be long, or nobody knows, what is submitted
later would wait behind them.  The server asks for them, and the client returns those that it still
has not begun: so nothing runs twice.  Its next request gets the others.

`to_call_back` is pure, as `choose`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from itertools import repeat
from typing import NamedTuple

from gridbot_client.protocol.messages import ReplicaId
from gridbot_policies import Ads
from gridbot_server.dispatch.candidates import Candidate, HostView, Take, TakeAny
from gridbot_server.dispatch.choose import choose
from gridbot_server.dispatch.order import Order

PAUSE_SECONDS = 60.0  # in which a host is not asked again: ranks may change as replicas move
_MOST_HOSTS = 10_000


class CallBack(NamedTuple):
    """What a host is asked to return, and for what."""

    replicas: Sequence[ReplicaId] = ()  # the last first
    instead: Sequence[int] = ()  # BOTs of what is to be sent in their places
    overspent: Set[int] = frozenset()  # BOTs whose policy exceeded its budget


class Pauses:
    """When this process asked hosts last to return something; of the last 10,000 of them.

    What others asked of a client, the database knows.
    """

    def __init__(self) -> None:
        self._asked_at: dict[int, float] = {}  # by host, the earliest first

    def begin(self, host: int, now: float) -> None:
        """Note that a host is asked."""
        self._asked_at.pop(host, None)
        self._asked_at[host] = now
        if len(self._asked_at) > _MOST_HOSTS:
            del self._asked_at[next(iter(self._asked_at))]

    def lasts(self, host: int, now: float) -> bool:
        """Whether a host is to be left alone."""
        asked_at = self._asked_at.get(host)
        return asked_at is not None and now - asked_at < PAUSE_SECONDS


def to_call_back(
    host: HostView,
    unstarted: Sequence[ReplicaId],
    candidates: Mapping[int, Candidate],
    order: Order,
    usage: Mapping[int, float],
    promised: Mapping[int, int],
) -> CallBack:
    """Find those of `unstarted` in whose place more urgent ones would be sent.

    `order` and `usage` are those by which these candidates are chosen.  `promised` is for how many
    replicas of each BOT others of this batch were called back: they have those.
    """
    held = Counter(name.bot for name in unstarted)
    if not any(item.has_work for bot, item in candidates.items() if bot not in held):
        return CallBack()
    without = replace(
        host,
        want=len(unstarted),
        running=max(0, host.running - len(unstarted)),
        of_bot=Counter(host.of_bot) - held,
    )
    choice = choose(without, order)
    ranks = _Ranks(host, order)
    takes = [take for take in choice.takes if take.bot not in held]
    better = list(_unpromised(takes, candidates, promised))
    found, instead = [], []
    for name in reversed(unstarted):
        item = candidates.get(name.bot)
        if better and item and _is_more_urgent(better[0], item, usage, ranks):
            found.append(name)
            instead.append(better.pop(0).bot)
    return CallBack(found, instead, choice.overspent)


def _unpromised(
    takes: Sequence[Take], candidates: Mapping[int, Candidate], promised: Mapping[int, int]
) -> Iterator[Candidate]:
    """List the BOT of each replica to be sent that is for nobody else."""
    spoken_for = Counter(promised)
    for take in takes:
        item = candidates[take.bot]
        count = take.count if isinstance(take, TakeAny) else 1
        count = max(0, min(count, item.at_hand - spoken_for[item.bot]))
        spoken_for[item.bot] += count
        yield from repeat(item, count)


class _Ranks:
    """Ranks of BOTs at a host, each evaluated once."""

    def __init__(self, host: HostView, order: Order) -> None:
        self._host, self._order = host, order
        self._known: dict[int, float] = {}

    def __call__(self, item: Candidate) -> float:
        if item.bot not in self._known:
            host = self._host.ad_for(item)
            ads = Ads(host, item.ad, self._order.queue, now=self._order.now)
            self._known[item.bot] = item.policies.rank(ads)
            self._order.spending.charge(item.owner, item.bot, ads)
        return self._known[item.bot]


def _is_more_urgent(
    better: Candidate, held: Candidate, usage: Mapping[int, float], ranks: _Ranks
) -> bool:
    """Whether a BOT goes before another, also once a replica of it is there instead.

    So nothing is called back in turns.  A member of a gang stays: without it all others begin anew.
    """
    if held.together > 1:
        return False
    if better.owner == held.owner:
        return ranks(better) > ranks(held) and better.group_usage <= held.group_usage
    after = usage.get(better.owner, 0.0) + 1 / better.share
    return after <= usage.get(held.owner, 0.0) - 1 / held.share
