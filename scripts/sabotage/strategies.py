"""When hosts lie.  Liars know the rules, and their own record as well as the server does."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

RARELY = 0.05
SOMETIMES = 0.2
HALF = 0.5
LAST = 0.97  # of a BOT's jobs; what comes later are its last ones
SELDOM, LATE = 0.02, 0.3  # how often who waits long lies, and from which part of the BOT's jobs on
BURSTS, IN_A_BURST = 10, 0.2  # in so many parts of the BOT, the first fifth of each


@dataclass(frozen=True, slots=True)
class Occasion:
    """What a liar knows when it answers."""

    is_trusted: bool  # by the rule in force
    is_first: bool  # its replica is the job's first one, which no real host is told
    in_company: bool  # another liar has had a replica of the same job
    progress: float  # part of the BOT's jobs that were sent
    random: random.Random


@dataclass(frozen=True, slots=True)
class Strategy:
    """One way of lying."""

    lies: Callable[[Occasion], bool]
    colludes: bool = True  # its lies agree with those of others
    is_greedy: bool = False  # it claims 4,096 cores and answers at once
    returns: bool = False  # as a new owner after each catch
    is_one_owner: bool = False  # all liars are machines of one owner


def _always(_: Occasion) -> bool:
    return True


def _never(_: Occasion) -> bool:
    return False


def _rarely(occasion: Occasion) -> bool:
    return occasion.random.random() < RARELY


def _once_trusted(occasion: Occasion) -> bool:
    return occasion.is_trusted


def _sometimes_once_trusted(occasion: Occasion) -> bool:
    return occasion.is_trusted and occasion.random.random() < SOMETIMES


def _rarely_once_trusted(occasion: Occasion) -> bool:
    return occasion.is_trusted and occasion.random.random() < RARELY


def _first_and_trusted(occasion: Occasion) -> bool:
    return occasion.is_first and occasion.is_trusted


def _further_and_trusted(occasion: Occasion) -> bool:
    return occasion.is_trusted and not occasion.is_first


def _in_company(occasion: Occasion) -> bool:
    return occasion.in_company


def _in_the_second_half(occasion: Occasion) -> bool:
    return occasion.progress > HALF


def _at_the_end(occasion: Occasion) -> bool:
    return occasion.progress > LAST


def _seldom_and_late(occasion: Occasion) -> bool:
    is_time = occasion.is_trusted and occasion.progress > LATE
    return is_time and occasion.random.random() < SELDOM


def _in_bursts(occasion: Occasion) -> bool:
    return occasion.is_trusted and occasion.progress * BURSTS % 1 < IN_A_BURST


def _in_company_once_trusted(occasion: Occasion) -> bool:
    return occasion.in_company and occasion.is_trusted


STRATEGIES: Mapping[str, Strategy] = MappingProxyType(
    {
        "always": Strategy(_always, colludes=False),
        "rarely": Strategy(_rarely, colludes=False),
        "patient": Strategy(_once_trusted),
        "first and trusted": Strategy(_first_and_trusted),
        "colluding": Strategy(_always),
        "greedy": Strategy(_always, is_greedy=True),
        "whitewashing": Strategy(_always, returns=True),
        "one owner": Strategy(_once_trusted, is_one_owner=True),
        # Beside the eight that the goals name.
        "patient, 20 %": Strategy(_sometimes_once_trusted),
        "patient, 5 %": Strategy(_rarely_once_trusted),
        "patient whitewashing": Strategy(_once_trusted, returns=True),
        "patient, greedy": Strategy(_once_trusted, is_greedy=True),
        "in company": Strategy(_in_company),
        "in company, greedy": Strategy(_in_company, is_greedy=True),
        "last jobs": Strategy(_at_the_end),
        "burst": Strategy(_in_the_second_half),
        "further and trusted": Strategy(_further_and_trusted),
        "seldom and late": Strategy(_seldom_and_late),
        "bursts": Strategy(_in_bursts),
        "patient company, greedy": Strategy(_in_company_once_trusted, is_greedy=True),
        "nobody": Strategy(_never),
    }
)
