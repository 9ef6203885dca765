"""Claims about the assignment of slots: it is the best there is, and takes bounded work."""

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

import pytest
from tests.work import calls

from gridbot_overlay.decide.assign import Claim, Pool, assign

AClaim = Claim[int, str]
APool = Pool[str]
Assignment = Mapping[tuple[int, str], int]


def _splits(claim: AClaim, pools: Sequence[APool]) -> Iterator[tuple[int, ...]]:
    """Every way in which a claim could be served, were it alone."""
    ranges = [range(min(claim.wanted, p.slots) + 1 if p.key in claim.pools else 1) for p in pools]
    return (split for split in itertools.product(*ranges) if sum(split) <= claim.wanted)


def _value(
    taken: Mapping[str, int], shares: Mapping[str, float], held: Mapping[str, int]
) -> Fraction:
    return sum(
        (
            Fraction(shares[owner]) / (held.get(owner, 0) + k)
            for owner, count in taken.items()
            for k in range(1, count + 1)
        ),
        Fraction(0),
    )


def _best(
    claims: Sequence[AClaim],
    pools: Sequence[APool],
    shares: Mapping[str, float],
    held: Mapping[str, int],
) -> tuple[Fraction, int]:
    """Value and cost of the best assignment, by trying all."""
    best = (Fraction(0), 0)
    for splits in itertools.product(*(list(_splits(claim, pools)) for claim in claims)):
        totals = [sum(column) for column in zip(*splits, strict=True)]
        if any(total > pool.slots for total, pool in zip(totals, pools, strict=True)):
            continue
        taken: dict[str, int] = {}
        for claim, split in zip(claims, splits, strict=True):
            taken[claim.owner] = taken.get(claim.owner, 0) + sum(split)
        cost = sum(total * pool.cost for total, pool in zip(totals, pools, strict=True))
        best = max(best, (_value(taken, shares, held), -cost))
    return best


def _worth(
    assigned: Assignment,
    claims: Sequence[AClaim],
    pools: Sequence[APool],
    shares: Mapping[str, float],
    held: Mapping[str, int],
) -> tuple[Fraction, int]:
    owners = {claim.key: claim.owner for claim in claims}
    costs = {pool.key: pool.cost for pool in pools}
    taken: dict[str, int] = {}
    for (claim, _), count in assigned.items():
        taken[owners[claim]] = taken.get(owners[claim], 0) + count
    return _value(taken, shares, held), -sum(n * costs[pool] for (_, pool), n in assigned.items())


def _assert_possible(
    assigned: Assignment, claims: Sequence[AClaim], pools: Sequence[APool]
) -> None:
    for claim in claims:
        got = {pool: n for (key, pool), n in assigned.items() if key == claim.key}
        assert set(got) <= claim.pools
        assert sum(got.values()) <= claim.wanted
    for pool in pools:
        assert sum(n for (_, key), n in assigned.items() if key == pool.key) <= pool.slots


@pytest.mark.parametrize("seed", range(500))
def test_no_assignment_is_better_by_value_and_then_by_cost(seed: int) -> None:
    draw = random.Random(seed)
    pools = [
        Pool(f"grid {n}", draw.randint(0, 3), draw.choice([0, 1, 100, 250]))
        for n in range(draw.randint(1, 3))
    ]
    names = [pool.key for pool in pools]
    # Powers of two times three: sums of their harmonic parts seldom tie by accident alone.
    shares = {"ann": draw.choice([1.0, 2.0, 3.0]), "bob": draw.choice([1.0, 1.5]), "cy": 4.0}
    held = {"ann": draw.randint(0, 2), "cy": draw.randint(0, 3)}
    claims = [
        Claim(
            key=number,
            owner=draw.choice(list(shares)),
            wanted=draw.randint(0, 3),
            pools=frozenset(draw.sample(names, draw.randint(0, len(names)))),
        )
        for number in range(draw.randint(1, 4))
    ]
    assigned = assign(claims, pools, shares, held)
    _assert_possible(assigned, claims, pools)
    worth = _worth(assigned, claims, pools, shares, held)
    best = _best(claims, pools, shares, held)
    assert worth[1] == best[1]
    # Values are rounded to whole numbers for the solver.
    assert abs(worth[0] - best[0]) < Fraction(1, 10**6)


def test_scarce_slots_are_divided_in_proportion_to_shares() -> None:
    claims = [Claim("a", "ann", 1000, frozenset({"g"})), Claim("b", "bob", 1000, frozenset({"g"}))]
    assigned = assign(claims, [Pool("g", 400, 1)], {"ann": 3.0, "bob": 1.0}, {})
    assert assigned["a", "g"] + assigned["b", "g"] == 400
    assert assigned["a", "g"] == pytest.approx(300, rel=0.1)


def test_what_an_owner_holds_already_counts() -> None:
    claims = [Claim("a", "ann", 10, frozenset({"g"})), Claim("b", "bob", 10, frozenset({"g"}))]
    assigned = assign(claims, [Pool("g", 10, 1)], {"ann": 1.0, "bob": 1.0}, {"ann": 10})
    assert assigned == {("b", "g"): 10}


def test_a_small_share_leaves_no_slot_empty() -> None:
    claims = [Claim("a", "ann", 5, frozenset({"g"})), Claim("b", "bob", 5, frozenset({"g", "h"}))]
    pools = [Pool("g", 5, 0), Pool("h", 5, 1000)]
    assigned = assign(claims, pools, {"ann": 1e-9, "bob": 1e6}, {})
    assert assigned == {("a", "g"): 5, ("b", "h"): 5}


def test_of_an_owners_bots_the_one_of_higher_rank_comes_first() -> None:
    claims = [
        Claim("low", "ann", 5, frozenset({"g"}), rank=1.0),
        Claim("high", "ann", 5, frozenset({"g"}), rank=2.0),
    ]
    assigned = assign(claims, [Pool("g", 6, 0)], {"ann": 1.0}, {})
    assert assigned == {("high", "g"): 5, ("low", "g"): 1}


def test_nothing_wanted_or_nothing_there_is_no_error() -> None:
    assert assign([], [Pool("g", 1, 0)], {}, {}) == {}
    assert assign([Claim("a", "ann", 1, frozenset({"g"}))], [], {"ann": 1.0}, {}) == {}


def _scattered(bots: int, slots: int) -> tuple[list[AClaim], list[APool], dict[str, float]]:
    """BOTs of a fifth as many owners, each for 10 of 20 grids; slots are those of one grid."""
    draw = random.Random(1)
    names = [f"grid {n}" for n in range(20)]
    pools = [Pool(name, slots, draw.randint(0, 400)) for name in names]
    shares = {f"owner {n}": draw.choice([1.0, 2.0, 5.0]) for n in range(bots // 5)}
    claims = [
        Claim(n, f"owner {n % len(shares)}", draw.randint(1, 60), frozenset(draw.sample(names, 10)))
        for n in range(bots)
    ]
    return claims, pools, shares


def _work_of(claims: Sequence[AClaim], pools: Sequence[APool], shares: Mapping[str, float]) -> int:
    return calls(lambda: assign(claims, pools, shares, {}))


def test_500_bots_on_20_grids_of_5000_slots_are_assigned_in_five_million_calls() -> None:
    claims, pools, shares = _scattered(bots=500, slots=250)
    assert _work_of(claims, pools, shares) < 5_000_000
    assigned = assign(claims, pools, shares, {})
    assert sum(assigned.values()) == 5000


def test_work_grows_slower_than_bots_to_the_power_of_one_and_a_half_and_not_with_slots() -> None:
    few = _work_of(*_scattered(bots=60, slots=30))
    many = _work_of(*_scattered(bots=240, slots=120))
    assert many < 4**1.5 * few
    assert _work_of(*_scattered(bots=240, slots=12_000)) < 1.1 * many


def _crowded(
    owners: int, slots: int, costs: int
) -> tuple[list[AClaim], list[APool], dict[str, float]]:
    """Owners of one BOT each that all want everything; slots are those of one of 60 lots."""
    draw = random.Random(3)
    everywhere = frozenset(f"lot {n}" for n in range(60))
    pools = [Pool(f"lot {n}", slots, draw.randint(0, costs)) for n in range(60)]
    claims = [Claim(n, f"owner {n}", 2000, everywhere) for n in range(owners)]
    return claims, pools, {f"owner {n}": 1.0 + n % 2 for n in range(owners)}


@pytest.mark.parametrize(("slots", "costs"), [(33, 1), (33, 400), (2000, 1)])
def test_200_owners_who_want_everything_cost_less_than_three_times_the_work_of_50(
    slots: int, costs: int
) -> None:
    claims, pools, shares = _crowded(200, slots, costs)
    assert _work_of(claims, pools, shares) < 3 * _work_of(*_crowded(50, slots, costs))
    assigned = assign(claims, pools, shares, {})
    assert sum(assigned.values()) == 60 * slots
    _assert_possible(assigned, claims, pools)


def test_the_shares_of_very_many_owners_are_kept_roughly() -> None:
    shares = {f"owner {n}": 1.0 + n % 2 for n in range(200)}
    claims = [Claim(n, f"owner {n}", 2000, frozenset({"g"})) for n in range(200)]
    assigned = assign(claims, [Pool("g", 3000, 0)], shares, {})
    small = [assigned[n, "g"] for n in range(0, 200, 2)]
    large = [assigned[n, "g"] for n in range(1, 200, 2)]
    assert sum(large) / sum(small) == pytest.approx(2.0, rel=0.2)
    assert min(small) >= 5
    assert max(large) <= 40
