"""What dispatch chooses among, for whom, and what it comes to."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gridbot_client.protocol.messages import Resources
from gridbot_client.protocol.programs import HostProgram
from gridbot_policies import PolicySet
from gridbot_policies.classad import Record
from gridbot_policies.policy.owner import OwnerPolicy
from gridbot_server.matching import lots
from gridbot_server.matching.cached import SharedInputs, with_cached
from gridbot_server.matching.requirements import UNVERIFIABLE


@dataclass(frozen=True, slots=True)
class Holder:
    """A host that holds a replica of a job, or had one."""

    host: int
    owner: int


@dataclass(frozen=True, slots=True)
class Copy:
    """A further copy of a job that waits in the buffer, and what is known of its siblings."""

    slot: Any  # whatever the caller needs to take it
    seq: int
    holders: Sequence[Holder]  # of replicas in progress, and of outputs that may make a quorum
    job: Record  # the Job ad
    pool: str | None = None
    failed: Sequence[Holder] = ()  # those whose replicas failed in this round
    kind: str | None = None  # of hosts, to which HomogeneousBy binds its job
    drawn: int = lots.ANYBODY  # for whom it is kept


@dataclass(slots=True)
class Candidate:
    """One BOT as dispatch sees it at one moment; `fresh` falls as replicas are taken."""

    bot: int
    owner: int
    policies: PolicySet
    ad: Record
    resources: Resources
    fresh: int  # first copies at hand
    copies: Callable[[], Sequence[Copy]] | None  # looks at the waiting copies; None: there are none
    dry: bool = False  # unsent first copies exist, but none is at hand
    signed: bool = False
    owner_signed: bool = False
    manifest_version: int = 2
    manifest_id: str = ""
    image: str = ""
    platforms: Sequence[str] = ()
    programs: Sequence[HostProgram] = ()
    sandbox: int = 0  # least sandbox level that it asks for
    stock_platforms: Sequence[str] = ()  # where stock BOINC clients can run it; none: nowhere
    among_strangers: bool = False  # its jobs run on machines whose owners nobody vouches for
    quorum: int = 1
    running: int = 0  # replicas in progress
    needs: str = ""  # the same for BOTs that need the same of a host, if that is known
    is_suspended: bool = False  # its policy exceeded its budget repeatedly
    is_assured: bool = False  # answers of strangers are checked by others
    program: bytes = b""  # what hosts prove themselves with
    run_seconds: float | None = None  # that a replica is taken to run; None: nobody knows
    share: float = 1.0  # of its owner
    # Replicas that run of its group by the group's share; 0 where its owner has given none a share.
    group_usage: float = 0.0
    together: int = 1  # jobs of a gang
    boinc_api: bool = False  # its program is made for BOINC's API
    has_storage: bool = False  # of its owner's, to which its outputs go
    shared_inputs: SharedInputs | None = None  # if its policies ask whether hosts hold them
    gathers_since: float = math.inf  # s since 1970: a gang waits for further hosts
    lacks: int | None = None  # members of the gang that gathers, or may begin to; None: no gangs
    gang: int | None = None  # the number of the gang that gathers: all at hand is of it
    of_other_gangs: int = 0  # first copies at hand beside

    @property
    def has_work(self) -> bool:
        """Whether it has replicas to send, at hand or elsewhere."""
        return bool(self.fresh or self.dry or self.copies)

    @property
    def gathers(self) -> bool:
        """Whether a gang of it waits for further members."""
        return self.gang is not None and bool(self.lacks)

    @property
    def first_copies(self) -> int:
        """Those at hand, also of gangs that wait for the one that gathers."""
        return self.fresh + self.of_other_gangs

    def rest(self) -> None:
        """Let nobody have any of it, for the rest of the batch."""
        self.fresh, self.copies, self.dry = 0, None, False

    @property
    def at_hand(self) -> int:
        """The replicas that can be sent at once."""
        return self.fresh + (len(self.copies()) if self.copies else 0)

    @property
    def distinct_owners(self) -> bool:
        """Whether a quorum, or a check, needs different owners."""
        return (self.quorum > 1 or self.is_assured) and self.among_strangers

    def is_bounded(self, host: HostView) -> bool:
        """Whether the host's width bounds it: it works for a stranger who does not vouch for it."""
        return self.among_strangers and self.owner != host.owner and not host.dedicated

    def voter(self, host: int, owner: int) -> int:
        """Who speaks when a host does: among strangers all hosts of an owner count as one."""
        return owner if self.among_strangers else host


@dataclass(slots=True)
class HostView:
    """The host that asks: its ad, who it is, and how many replicas its client holds already.

    One is made for each request, as of what is chosen: to make a frozen one takes twice as long.
    """

    id: int
    owner: int
    attributes: Mapping[str, Any]
    ad: Record
    running: int
    want: int
    accepts: Sequence[int] = ()
    trusts: Sequence[int] = ()
    protocol: int = 2
    dedicated: bool = False
    # (bot, seq) of what the client holds or reports now, with or without a lease: the late
    # answer of an expired replica is on its way, so a copy of its job would be for nothing.  Where
    # no copies wait, nothing.
    at_hand: Collection[tuple[int, int]] = ()
    policy: OwnerPolicy | None = None
    of_bot: Mapping[int, int] = field(default_factory=dict)  # replicas of each BOT it holds
    ahead: Mapping[int, int] = field(default_factory=dict)  # the most that it would hold, by BOT
    room: int | None = None  # replicas that its width leaves room for, of strangers; None: any
    width: int = 0  # of strangers' replicas; matters where `room` does
    lot: int = lots.ANYBODY  # by which its crew is drawn
    unjudged: int = 0  # replicas of strangers that it has in progress or unjudged
    # The most that it may hold of programs with which it was caught.
    bounds: Mapping[bytes, int] = field(default_factory=dict)
    mean_turnaround: float | None = None  # s
    cached: Collection[str] = ()  # marks of what it says that it holds

    def ad_for(self, item: Candidate) -> Record:
        """The host as a BOT's policies see it."""
        if item.shared_inputs is None:
            return self.ad
        return with_cached(self.ad, item.shared_inputs, self.cached)


@dataclass(slots=True)
class TakeAny:
    """Send `count` first copies of a BOT."""

    bot: int
    count: int
    deadline_seconds: float
    kind: str | None = None  # of the host, to which HomogeneousBy binds the jobs


@dataclass(slots=True)
class TakeSlot:
    """Send this very copy."""

    bot: int
    slot: Any
    deadline_seconds: float
    kind: str | None = None


Take = TakeAny | TakeSlot


@dataclass(slots=True)
class Choice:
    """What to send, and how many BOTs were refused for which reason: all, if nothing is sent."""

    takes: list[Take] = field(default_factory=list)
    refusals: dict[str, int] = field(default_factory=dict)
    inversions: int = 0  # BOTs that ranked high enough but whose segment was dry
    overspent: set[int] = field(default_factory=set)  # BOTs whose policy exceeded its budget

    @property
    def is_outdated(self) -> bool:
        """Whether nothing but its age keeps the client from all work that there is.

        What it may run and is only not at hand is brought later.
        """
        return set(self.refusals) == {UNVERIFIABLE} and not self.inversions

    def refuse(self, reason: str) -> None:
        """Count one BOT that this host does not get."""
        self.refusals[reason] = self.refusals.get(reason, 0) + 1

    def overspend(self, bot: int) -> None:
        """Refuse a BOT whose policy exceeded its budget, once."""
        if bot not in self.overspent:
            self.overspent.add(bot)
            self.refuse("evaluation budget")
