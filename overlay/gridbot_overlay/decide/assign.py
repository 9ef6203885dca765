"""Bipartite min-cost assignment of scarce slots: to owners by share, of grids to BOTs.  Pure.

Paper section 5: BOTs are matched to grids, each side with capacities.  The k-th slot of an owner
is worth share / k, so that owners who compete get slots in proportion to their shares.  Sets of
slots that can be had together are a matroid; so the most valuable one is also one of the largest:
no share makes a slot stay empty.  Among equally valuable assignments the cheapest is taken.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

import networkx as nx

C = TypeVar("C", bound=Hashable)
P = TypeVar("P", bound=Hashable)
_Group: TypeAlias = tuple[str, frozenset[P]]

_SCALE = 10**9  # values become whole numbers, which the solver needs to be exact
EXACT_OWNERS = 50  # with more of them, shares are kept roughly
_EXACT_SLOTS = 16  # of an owner; from then on slots are valued in blocks of an eighth more
_MOST_BLOCKS = 80 * EXACT_OWNERS  # of all owners: more owners, larger blocks, the same time
_SOURCE, _SINK = "source", "sink"


@dataclass(frozen=True, slots=True)
class Claim(Generic[C, P]):
    """Slots that one BOT could use, and the pools that could give them."""

    key: C
    owner: str
    wanted: int
    pools: frozenset[P]
    rank: float = 0.0  # among the claims of an owner on the same pools, the higher is filled first


@dataclass(frozen=True, slots=True)
class Pool(Generic[P]):
    """Slots that are as good as each other; `cost` is what one of them costs, in any unit."""

    key: P
    slots: int
    cost: int


def assign(
    claims: Sequence[Claim[C, P]],
    pools: Sequence[Pool[P]],
    shares: Mapping[str, float],
    held: Mapping[str, int],
) -> dict[tuple[C, P], int]:
    """Return how many slots each claim gets from each pool.

    `held` are the slots that an owner has already: its next one is worth share / (held + 1).
    """
    groups = _groups(claims, {pool.key for pool in pools if pool.slots > 0})
    if not groups:
        return {}
    graph = _graph(groups, [pool for pool in pools if pool.slots > 0], shares, held)
    _, flow = nx.network_simplex(graph)
    assigned = dict[tuple[C, P], int]()
    left = {
        usable: {key: sum(arcs.values()) for (_, key), arcs in flow["able", usable].items()}
        for usable in {usable for _, usable in groups}
    }
    for (owner, usable), members in groups.items():
        count = sum(flow["owner", owner]["able", usable].values())
        assigned.update(_shared_out(members, _taken(left[usable], count)))
    return assigned


def _taken(left: dict[P, int], count: int) -> dict[P, int]:
    """Take slots out of what is `left` for several owners who can all use it."""
    taken = dict[P, int]()
    for key in list(left):
        taken[key] = min(left[key], count)
        left[key] -= taken[key]
        count -= taken[key]
    return taken


def _groups(claims: Sequence[Claim[C, P]], there: set[P]) -> dict[_Group[P], list[Claim[C, P]]]:
    """Claims of one owner on the same pools count as one; this bounds the solver's work."""
    groups = defaultdict[_Group[P], list[Claim[C, P]]](list)
    for claim in claims:
        usable = claim.pools & there
        if claim.wanted > 0 and usable:
            groups[claim.owner, usable].append(claim)
    return groups


def _graph(
    groups: Mapping[_Group[P], Sequence[Claim[C, P]]],
    pools: Sequence[Pool[P]],
    shares: Mapping[str, float],
    held: Mapping[str, int],
) -> Any:
    graph = nx.MultiDiGraph()
    slots = sum(pool.slots for pool in pools)
    # One unit of value outweighs all the costs together.
    unit = 1 + slots * max(abs(pool.cost) for pool in pools)
    wanted = defaultdict[str, int](int)
    for (owner, usable), members in groups.items():
        total = sum(claim.wanted for claim in members)
        wanted[owner] += total
        graph.add_edge(("owner", owner), ("able", usable), capacity=total, weight=0)
    # What several owners' groups can use is one node: most policies exclude nothing.
    for usable in dict.fromkeys(usable for _, usable in groups):
        for pool in pools:  # in their order, not a set's: so equal input gives equal output
            if pool.key in usable:
                graph.add_edge(("able", usable), ("pool", pool.key), weight=0)
    highest = max(shares[owner] for owner in wanted)
    for owner, total in wanted.items():
        share, count = shares[owner] / highest, min(total, slots)
        for size, position in _blocks(held.get(owner, 0), count, _MOST_BLOCKS // len(wanted)):
            value = max(1, round(_SCALE * share / position))
            graph.add_edge(_SOURCE, ("owner", owner), capacity=size, weight=-value * unit)
    for pool in pools:
        graph.add_edge(("pool", pool.key), _SINK, capacity=pool.slots, weight=pool.cost)
    graph.add_edge(_SINK, _SOURCE, weight=0)
    return graph


def _blocks(held: int, count: int, most: int) -> Iterator[tuple[int, float]]:
    """Yield an owner's next `count` slots as (size, middle position) of blocks of equal value.

    There are about `most` blocks, of which those of the first slots are exact.
    """
    exact = max(1, min(_EXACT_SLOTS, most // 3))
    growth = max(1 / 8, (count / exact) ** (1 / max(1, most - exact)) - 1)
    done = 0
    while done < count:
        first = held + done + 1
        size = 1 if done < exact else min(max(1, int(first * growth)), count - done)
        yield size, first + (size - 1) / 2
        done += size


def _shared_out(members: Sequence[Claim[C, P]], given: Mapping[P, int]) -> dict[tuple[C, P], int]:
    """Split what a group got among its claims, those of the highest rank first."""
    assigned = dict[tuple[C, P], int]()
    left = dict(given)
    for claim in sorted(members, key=lambda claim: -claim.rank):
        missing = claim.wanted
        for key, count in left.items():
            taken = min(missing, count)
            if taken:
                assigned[claim.key, key] = taken
                left[key] -= taken
                missing -= taken
    return assigned
