"""Fills the ads that policies see from what the server knows; names as in `policy.ads`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Protocol

from gridbot_policies.classad import Record, record
from gridbot_policies.policy.ads import LIVE_ATTRIBUTES, SERVER_SIDE_ATTRIBUTES

# What a host says of these is dropped.
_SERVER_SIDE = frozenset(name.lower() for name in SERVER_SIDE_ATTRIBUTES)
_LIVE = frozenset(name.lower() for name in LIVE_ATTRIBUTES)
_HOSTS_NAMES = 256  # lists of names that are remembered, of at most 10 KB each


def host_attributes(
    said: Mapping[str, Any], known: Mapping[str, Any], running: int
) -> dict[str, Any]:
    """Join what a host says of itself with what the server measured of it.

    Of several names that differ in case only the last one is kept: an ad cannot hold both.
    """
    own = {name: said[name] for name in _own_names(tuple(said))}
    return {**own, **known, "Running": running}


def lasting(said: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is worth keeping of what a host says of itself."""
    return {name: said[name] for name in _lasting_names(tuple(said))}


# Hosts say the same names in each request, and most of them those of all others.
@lru_cache(_HOSTS_NAMES)
def _own_names(said: tuple[str, ...]) -> tuple[str, ...]:
    spelt = {name.lower(): name for name in said}
    return tuple(name for folded, name in spelt.items() if folded not in _SERVER_SIDE)


@lru_cache(_HOSTS_NAMES)
def _lasting_names(said: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in said if name.lower() not in _LIVE)


class BotFigures(Protocol):
    """What the BOT ad says of a BOT's jobs; a row of a query may be one."""

    @property
    def bot(self) -> int:
        """Its number."""

    @property
    def size(self) -> int:
        """All jobs."""

    @property
    def done(self) -> int:
        """Jobs with an answer."""

    @property
    def failed(self) -> int:
        """Jobs that failed for good."""

    @property
    def unsent(self) -> int:
        """Replicas that wait to be sent."""

    @property
    def running(self) -> int:
        """Replicas in progress."""

    @property
    def tail(self) -> bool:
        """Whether it is in its tail phase."""

    @property
    def mean_turnaround(self) -> float | None:
        """Of its valid replicas, in seconds."""

    @property
    def created_at(self) -> float:
        """Seconds since the epoch."""


def bot_ad(state: BotFigures, name: str, owner: str, signed: bool, now: float) -> Record:
    """The BOT ad at `now` (seconds since the epoch)."""
    return record(
        {
            "Id": state.bot,
            "Name": name,
            "Owner": owner,
            "JobsTotal": state.size,
            "JobsLeft": state.size - state.done - state.failed,
            "JobsDone": state.done,
            "JobsFailed": state.failed,
            "JobsUnsent": state.unsent,
            "JobsRunning": state.running,
            "Tail": state.tail,
            "MeanTurnaround": state.mean_turnaround,
            "Age": max(0.0, now - state.created_at),
            "Signed": signed,
        }
    )


def queue_ad(states: Sequence[BotFigures]) -> Record:
    """The Queue ad."""
    return record(
        {"BOTsInQueue": len(states), "JobsInQueue": sum(state.unsent for state in states)}
    )


def job_ad(bot: int, seq: int, replicas: Sequence[Mapping[str, Any]], now: float) -> Record:
    """The Job ad with its replicas in progress; each is {replica, sent_at, seen_at, host: {...}}.

    Every replica carries a Host of its own, so that a look-up never climbs to the host that asks.
    """
    ordered = sorted(replicas, key=lambda item: item["sent_at"])
    attributes: dict[str, Any] = {
        "Name": f"{bot}-{seq}",
        "NumberOfReplicas": len(ordered),
        "Age": max(0.0, now - ordered[0]["sent_at"]) if ordered else 0.0,
    }
    for index, item in enumerate(ordered, start=1):
        attributes[f"Replica{index}"] = {
            "Name": f"{bot}-{seq}-{item['replica']}",
            "SentTime": int(item["sent_at"]),
            "Age": max(0.0, now - item["sent_at"]),
            "SilentSeconds": max(0.0, now - item.get("seen_at", now)),
            "Host": dict(item["host"]),
        }
    return record(attributes)
