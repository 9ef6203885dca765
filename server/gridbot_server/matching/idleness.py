"""Why a client gets no work: what keeps each BOT that waits to be sent from it.  Pure.

Asked for by a person who looks at a machine, never by a host request.  What it tells is about the
machine alone: whose BOTs they are, and what their policies say, is not its owner's to know.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gridbot_server.matching.hosts import BotRequirements, HostClient, Known, owner_accepts

FREE = "free"  # nothing keeps them from it


@dataclass(frozen=True, slots=True)
class Hindrance:
    """What keeps some BOTs from a client: a word for its kind, and words for people."""

    # trust, grid, platform, sandbox, client, cpus, memory, disk, gpus; owner, requirements,
    # concurrency, width; free
    reason: str
    text: str
    bots: int = 1


def hindrances(
    host: HostClient, bots: Sequence[BotRequirements], has_room: bool, is_enough: Callable[[], bool]
) -> list[Hindrance]:
    """Return what keeps which number of BOTs from a client, most BOTs first.

    `has_room` says whether its width leaves room for work of strangers.  When it `is_enough`, the
    BOTs that are left are not looked at.
    """
    found: dict[str, Hindrance] = {}
    for bot in itertools.takewhile(lambda _: not is_enough(), bots):
        reason, text = _hindrance(Known(host, bot), has_room)
        before = found.get(reason)
        found[reason] = Hindrance(reason, text, 1 + (before.bots if before else 0))
    return sorted(found.values(), key=lambda item: -item.bots)


def _hindrance(known: Known, has_room: bool) -> tuple[str, str]:
    """Return the first thing that keeps a BOT from a client."""
    host, policies = known.candidate, known.demand.policies
    if known.lacks:
        return next(iter(known.lacks.items()))
    if owner_accepts(known) is False:
        return "owner", "the policy of this machine's owner refuses it"
    if not policies.requirements(known.ads):
        return "requirements", "its policy wants other machines, or this one at another time"
    if host.running >= policies.concurrency(known.ads):
        return "concurrency", "this machine has as many of its jobs as its policy allows"
    if (
        not has_room
        and known.demand.signed
        and known.demand.owner not in (host.owner, *host.trusts)
    ):
        return "width", "answers of this machine to other people's jobs wait to be checked"
    return FREE, "its jobs, or copies for other machines, wait to be sent"
