"""`GET /bots/ID/explanation`: why a BOT does not run, or that nothing is wrong."""

from __future__ import annotations

from gridbot_server.models.responses import ResponseModel
from gridbot_server.models.responses.bots import State, WordOfOverlay


class OfferedValue(ResponseModel):
    """What rejected hosts have instead."""

    value: str
    hosts: int
    """Hosts that have it."""


class RejectingCondition(ResponseModel):
    """A condition of the policy, the resources or a permission that rejects hosts."""

    kind: str
    """Such as JobRequirements, Concurrency, memory, trust."""

    text: str
    via: str | None
    """The policy's own attribute in which it is written."""

    rejects: int
    """Hosts that it rejects."""

    only: int
    """Hosts that meet all other conditions."""

    values: list[OfferedValue]
    """The commonest first."""


class FailedCondition(ResponseModel):
    """What a host fails, and has instead."""

    text: str
    has: str


class NearMiss(ResponseModel):
    """A host that fails few conditions."""

    host: str
    fails: list[FailedCondition]


class PossibleChange(ResponseModel):
    """What could be relaxed."""

    conditions: int
    """Conditions that change together."""

    instead_of: str
    text: str
    """What would stand there."""

    hosts: int
    """Hosts that it would win."""

    policy: str | None
    """The whole policy with the change made; null if that does not do it."""

    submit: str | None
    """Options of a new submission that it takes; null if none."""


class WaitingOfKind(ResponseModel):
    """Further replicas that wait for one kind of hosts."""

    kind: str
    """What HomogeneousBy gave for the hosts of their jobs' first replicas."""

    copies: int
    hosts: int
    """Known hosts of that kind that can run them."""


class SilentHost(ResponseModel):
    """A host that missed three contacts, and what it alone has of a BOT."""

    id: int
    name: str | None
    """Null: it is another person's."""

    jobs: int
    silent_seconds: float
    """Since it was heard of."""


class Explanation(WordOfOverlay):
    """How the hosts that asked for work in the last day suit a BOT."""

    id: int
    state: State
    verdict: str
    """The plainest reason, for people."""

    held: str | None
    """Why nothing of it is sent until it is resumed; null: it is not held."""

    suspended: str | None
    """Why it gets no work until its policy is changed; null: it is not suspended."""

    hosts_known: int
    hosts_left_out: bool
    """Whether the policy took too long to look at all of them."""

    hosts_matching: int
    hosts_stock: int
    """Hosts among the known ones that run stock BOINC clients."""

    hosts_stock_matching: int
    """Hosts among the matching ones that run stock BOINC clients."""

    hosts_silent: int
    """Matching hosts that missed three contacts, or have not asked for work for ten minutes."""

    hosts_full: int
    """Matching hosts that hold as many replicas as Concurrency allows."""

    hosts_outranked: int
    """Matching hosts that serve another BOT first."""

    hosts_undecided: int
    """Matching hosts whose owners refuse it at times, by load or clock."""

    hosts_free: int
    """Matching hosts that may take a job at their next request."""

    signed_for_boinc: bool
    """Whether stock BOINC clients are offered it."""

    boinc_unsuitable: str | None
    """Why stock BOINC clients cannot run it, if that was tried."""

    jobs_unsent: int
    """Replicas that wait to be sent."""

    jobs_running: int
    """Replicas in progress, without those of silent hosts."""

    silent: list[SilentHost]
    """Silent hosts that alone have jobs of the BOT; those with most first."""

    homogeneous: list[WaitingOfKind]
    """Further replicas that HomogeneousBy binds to a kind of hosts; most first."""

    conditions: list[RejectingCondition]
    """Those that reject most first."""

    nearest: list[NearMiss]
    """Those that fail fewest first."""

    changes: list[PossibleChange]


class ExplainedHost(ResponseModel):
    """The one host that was asked about."""

    id: int
    name: str
    is_boinc: bool
    """Whether it runs a stock BOINC client."""

    client_version: str | int | float | bool | None
    """As the host says it."""

    platform: str | int | float | bool | None
    """As the host says it."""


class HostExplanation(Explanation):
    """The same, about one host alone."""

    host: ExplainedHost
