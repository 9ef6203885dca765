"""What a reply says beside the work: acknowledgements, when to come back, and why for nothing."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import orjson

from gridbot_client.protocol.messages import VERSION, Followed, ReplicaId
from gridbot_client.protocol.preferences import AccountPreferences
from gridbot_server.dispatch.batch import Exchange
from gridbot_server.dispatch.candidates import Choice, HostView

# Requests that clients without work may make together, per second: it sets how often they ask.
IDLE_REQUESTS_PER_SECOND = 50.0
MIN_IDLE_SECONDS, MAX_IDLE_SECONDS = 1.0, 3600.0
_JITTER = 0.25  # of the delay, here and in the client


@dataclass(slots=True)
class ReplyParts:
    """A reply in the making."""

    mimetype: ClassVar[str] = "application/json"

    acks: Sequence[ReplicaId] = ()
    reupload: Sequence[ReplicaId] = ()
    abort: Sequence[ReplicaId] = ()
    call_back: Sequence[ReplicaId] = ()
    assignments: list[bytes] = field(default_factory=list)
    manifests: dict[str, bytes] = field(default_factory=dict)  # id -> rendered member
    next_request_seconds: float = 1.0
    message: str = ""
    is_outdated: bool = False  # there was work whose signatures the client cannot check
    seeker: HostView | None = None  # who looked for work in vain: nothing in the buffer suits it
    epoch: int = 0
    protocol: int = VERSION
    preferences: AccountPreferences | None = None  # of the account, for a client with others
    follow: list[Followed] = field(default_factory=list)  # whose output it is to bring

    @property
    def may_wait(self) -> bool:
        """Whether work was looked for in vain, and it has nothing else to say."""
        told = (self.acks, self.reupload, self.abort, self.call_back, self.assignments, self.follow)
        return self.seeker is not None and not (any(told) or self.preferences)

    def render(self) -> bytes:
        """The bytes of the reply, equal in meaning to `protocol.encode_reply`."""
        told: dict[str, Any] = {
            "protocol": self.protocol,
            "epoch": self.epoch,
            "next_request_seconds": self.next_request_seconds,
            "acks": _plain(self.acks),
            "reupload": _plain(self.reupload),
            "abort": _plain(self.abort),
            "message": self.message,
        }
        if self.preferences:
            told["preferences"] = self.preferences
        if self.call_back:
            told["call_back"] = _plain(self.call_back)
        if self.follow:
            told["follow"] = _plain(self.follow)
        head = orjson.dumps(told)
        return b'%b,"assignments":[%b],"manifests":{%b}}' % (
            head[:-1],
            b",".join(self.assignments),
            b",".join(self.manifests.values()),
        )


def let_busy_wait(
    exchanges: Sequence[Exchange],
    replies: Mapping[int, ReplyParts],
    clients_active: int,
    chance: random.Random,
) -> None:
    """Call those back that have enough to do as seldom as the idle: they report by themselves."""
    for exchange in exchanges:
        if not exchange.request.want and exchange.running:
            replies[exchange.client.id].next_request_seconds = idle_delay(clients_active, chance)


def idle_delay(clients_active: int, chance: random.Random) -> float:
    """Return how long a client without work waits, so that all of them stay a light load.

    Jittered here and again by the client: equal delays would keep clients in step for ever.
    """
    return _mean_delay(clients_active) * chance.uniform(1 - _JITTER, 1 + _JITTER)


def contact_seconds(clients_active: int) -> float:
    """Return within how many seconds a client asks again, whatever the jitter of both sides."""
    return _mean_delay(clients_active) * (1 + _JITTER) ** 2


def _mean_delay(clients_active: int) -> float:
    fair = clients_active / IDLE_REQUESTS_PER_SECOND
    return min(max(fair, MIN_IDLE_SECONDS), MAX_IDLE_SECONDS)


def explain(choice: Choice, bots: int) -> str:
    """Say why there was no work, for a person."""
    if not bots:
        return "no unfinished BOT"
    if not choice.refusals:
        return "no unsent jobs"
    reasons = "; ".join(f"{reason} ({count})" for reason, count in choice.refusals.items())
    return f"none of {bots} BOTs suits this host now: {reasons}"


def begin_reply(exchange: Exchange) -> ReplyParts:
    """Answer what a request reports and holds; work may come beside."""
    acks = [report.id for report in exchange.request.reports if report.id not in exchange.reupload]
    reply = ReplyParts(
        acks=acks,
        reupload=exchange.reupload,
        abort=exchange.abort,
        protocol=exchange.request.protocol,
    )
    if not exchange.is_new and exchange.request.key != exchange.client.last_key:
        reply.next_request_seconds = MAX_IDLE_SECONDS
        reply.message = "another copy of this client asked after this one: join again"
    return reply


def _plain(names: Iterable[tuple[Any, ...]]) -> list[list[Any]]:
    return list(map(list, names))
