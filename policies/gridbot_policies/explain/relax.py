"""What to write instead of conditions so that more hosts pass: looser limits, alone or together."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from gridbot_policies.classad.source import Span

S = TypeVar("S")

IsEnough = Callable[[], bool]

_MOST_PLACES = 15  # behind the point of a number
_MANY = 2**63  # where the language's integers end


@dataclass(frozen=True, slots=True)
class Change:
    """A looser condition in the place of another: in the policy's text, or at a new submission."""

    instead_of: str
    text: str
    edit: tuple[Span, str] | None = None  # a stretch of the policy, and what to write there
    submit: str | None = None  # an option of `gridbot submit`


@dataclass(frozen=True, slots=True)
class Bound(Generic[S]):
    """A condition that can be loosened by a number: what each host has, and what then to write."""

    at_least: bool  # the hosts' number must reach the limit, rather than stay below it
    amount: Callable[[S], float | None]
    change: Callable[[str], Change]  # to a new number


@dataclass(frozen=True, slots=True)
class Relaxed:
    """Changes of one condition or several, with which so many hosts more pass."""

    hosts: int
    changes: Sequence[Change]


@dataclass(frozen=True, slots=True)
class RelaxableHost(Generic[S]):
    """A host and the conditions that it fails, all of which can be loosened."""

    subject: S
    bounds: Sequence[Bound[S]]


_Amounts = Mapping[int, float]  # by the ids of the bounds that a host fails


def relaxed(
    bounds: Sequence[Bound[S]], missing: Sequence[RelaxableHost[S]], is_enough: IsEnough
) -> Iterator[Relaxed]:
    """Yield the limits at which the nearest, half and all of the hosts pass that fail all `bounds`.

    `missing` are the hosts that fail these, or some of them, and nothing else.
    """
    known = list[_Amounts]()
    for host in missing:
        if is_enough():
            return
        if (amounts := _amounts(host)) is not None:
            known.append(amounts)
    nearest = _nearest(bounds, [amounts for amounts in known if len(amounts) == len(bounds)])
    told = set[tuple[str, ...]]()
    for count in sorted({1, math.ceil(len(nearest) / 2), len(nearest)}) if nearest else ():
        limits = tuple(_limit(bound, nearest[:count]) for bound in bounds)
        if limits not in told:
            told.add(limits)
            hosts = sum(_passes(bounds, limits, amounts) for amounts in known)
            yield Relaxed(hosts, [b.change(n) for b, n in zip(bounds, limits, strict=True)])


def _amounts(host: RelaxableHost[S]) -> _Amounts | None:
    found = {id(bound): bound.amount(host.subject) for bound in host.bounds}
    numbers = {key: number for key, number in found.items() if number is not None}
    is_whole = len(numbers) == len(found) and all(map(math.isfinite, numbers.values()))
    return numbers if is_whole else None


def _nearest(bounds: Sequence[Bound[S]], hosts: Sequence[_Amounts]) -> list[_Amounts]:
    """Sort hosts by how little must be loosened for them: by the sum of their ranks."""
    ranks = [0] * len(hosts)
    for bound in bounds:
        amounts = sorted({item[id(bound)] for item in hosts}, reverse=bound.at_least)
        places = {amount: place for place, amount in enumerate(amounts)}
        ranks = [rank + places[item[id(bound)]] for rank, item in zip(ranks, hosts, strict=True)]
    order = sorted(range(len(hosts)), key=ranks.__getitem__)
    return [hosts[index] for index in order]


def _limit(bound: Bound[S], hosts: Sequence[_Amounts]) -> str:
    worst = min if bound.at_least else max
    return _round(worst(item[id(bound)] for item in hosts), down=bound.at_least)


def _passes(bounds: Sequence[Bound[S]], limits: Sequence[str], amounts: _Amounts) -> bool:
    """Tell whether a host meets those of the new limits that it failed."""
    return all(
        amounts[id(bound)] >= float(limit) if bound.at_least else amounts[id(bound)] <= float(limit)
        for bound, limit in zip(bounds, limits, strict=True)
        if id(bound) in amounts
    )


def _round(number: float, down: bool) -> str:
    """Return a limit that the number still meets, with few digits where it is no integer."""
    if float(number).is_integer():
        return str(int(number)) if abs(number) < _MANY else repr(float(number))
    places = min(2 - math.floor(math.log10(abs(number))), _MOST_PLACES)
    cut = (math.floor if down else math.ceil)(number * 10**places) / 10**places
    return f"{cut:.{max(0, places)}f}".rstrip("0").rstrip(".") if places > 0 else f"{cut:.0f}"
