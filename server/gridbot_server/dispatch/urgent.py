"""What a host has not begun and should return, because something more urgent waits.

A client holds some replicas ahead.  Where they may be long, or nobody knows, what is submitted
later would wait behind them.  The server asks for them, and the client returns those that it still
has not begun: so nothing runs twice.  Its next request gets the others.

Pure, as `choose`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from gridbot_client.protocol.messages import ReplicaId
from gridbot_policies import Ads
from gridbot_server.dispatch.choose import Candidate, HostView, Order, TakeAny, choose


def to_call_back(
    host: HostView,
    unstarted: Sequence[ReplicaId],
    candidates: Mapping[int, Candidate],
    order: Order,
    usage: Mapping[int, float],
) -> list[ReplicaId]:
    """List those of `unstarted` in whose place more urgent ones would be sent, the last first.

    `order` and `usage` are those by which these candidates are chosen.
    """
    held = Counter(name.bot for name in unstarted)
    if not any(item.has_work for bot, item in candidates.items() if bot not in held):
        return []
    without = replace(
        host,
        want=len(unstarted),
        running=max(0, host.running - len(unstarted)),
        of_bot=Counter(host.of_bot) - held,
    )
    choice = choose(without, order)
    ranks = _Ranks(host, order)
    better = [
        candidates[take.bot]
        for take in choice.takes
        if take.bot not in held
        for _ in range(take.count if isinstance(take, TakeAny) else 1)
    ]
    found = []
    for name in reversed(unstarted):
        item = candidates.get(name.bot)
        if better and item and _is_more_urgent(better[0], item, usage, ranks):
            found.append(name)
            del better[0]
    return found


class _Ranks:
    """Ranks of BOTs at a host, each evaluated once."""

    def __init__(self, host: HostView, order: Order) -> None:
        self._host, self._order = host, order
        self._known: dict[int, float] = {}

    def __call__(self, item: Candidate) -> float:
        if item.bot not in self._known:
            ads = Ads(self._host.ad, item.ad, self._order.queue, now=self._order.now)
            self._known[item.bot] = item.policies.rank(ads)
            self._order.spending.charge(item.owner, item.bot, ads)
        return self._known[item.bot]


def _is_more_urgent(
    better: Candidate, held: Candidate, usage: Mapping[int, float], ranks: _Ranks
) -> bool:
    """Whether a BOT goes before another, also once a replica of it is there instead.

    So nothing is called back in turns.
    """
    if better.owner == held.owner:
        return ranks(better) > ranks(held) and better.group_usage <= held.group_usage
    after = usage.get(better.owner, 0.0) + 1 / better.share
    return after <= usage.get(held.owner, 0.0) - 1 / held.share
