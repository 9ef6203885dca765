"""Which jobs want a speculative replica, in the tail phase of a BOT (paper Algorithm 2).  Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from gridbot_policies import Ads, PolicySet
from gridbot_policies.classad import Record, record

Job = TypeVar("Job")


def has_idle_hosts(unsent: int, running: int) -> bool:
    """Whether few replicas are unsent: otherwise speculative ones compete with first copies."""
    return unsent < max(1, running)


def decide(
    policies: PolicySet,
    bot: Record,
    queue: Record,
    jobs: Mapping[Job, Record],
    now: float,
    is_affordable: Callable[[Ads], bool],
) -> list[Job]:
    """Return the jobs, given by their ads, for which ReplicationRequirements asks for a replica.

    No host takes part in it.  `now` (s since 1970) is the time that policies see.  `is_affordable`
    is told the ads after each evaluation; the jobs that are left are not looked at when it is not.
    """
    nobody, wanted = record({}), []
    for job, ad in jobs.items():
        ads = Ads(nobody, bot, queue, ad, now)
        if policies.wants_replica(ads):
            wanted.append(job)
        if not is_affordable(ads):
            break
    return wanted
