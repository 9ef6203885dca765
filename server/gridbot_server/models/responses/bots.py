"""BOTs: their state, what became of a submission, manifests."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from gridbot_server.models.responses import ResponseModel

State = Literal["open", "running", "held", "done", "cancelled"]


class BotSummary(ResponseModel):
    """A BOT in a list."""

    id: int
    name: str
    owner: str
    state: State
    """`open` while jobs are still added; `held` while nothing of it is sent, until it is resumed;
    `done` when every job has an outcome, also if jobs failed."""

    held: str | None
    """Why it is held; null: it is not."""

    created_at: datetime
    ended_at: datetime | None
    jobs_total: int
    jobs_done: int
    """Jobs with a canonical answer."""

    jobs_failed: int
    """Jobs that failed for good."""

    jobs_cancelled: int
    """Those of them that were cancelled, one by one."""

    jobs_reused: int
    """Jobs that are done without being run: they have the outcomes of others."""

    jobs_left: int
    """Jobs without an outcome."""

    jobs_running: int
    """Replicas in progress, without those of silent hosts."""

    jobs_silent: int
    """Jobs that only silent hosts have: they missed three contacts.  Copies wait to be sent."""

    jobs_in_progress: int
    """Jobs without an outcome of which a host that is not silent has a replica."""

    jobs_waiting: int
    """Jobs without an outcome of which nobody has a replica."""

    jobs_unsent: int
    """Replicas that wait to be sent, without copies of what silent hosts have."""

    tail: bool
    """Whether it is in its tail phase."""

    growing: bool
    """Whether it takes further jobs while it runs, until it is closed."""

    group: str | None
    """The group of its owner's that it is in; null: none."""


class Bots(ResponseModel):
    """`GET /bots`: the latest first."""

    bots: list[BotSummary]


class WordOfOverlay(ResponseModel):
    """What pilots, and the grids that send them, have to say of a BOT."""

    cut_off: int
    """Replicas that ran when the time of their pilots was over, a pilot's counted once."""

    cut_off_seconds: float | None
    """What the longest of them had run."""

    cut_off_grid: str | None
    """The grid of the last of them."""

    refused_by: dict[str, str]
    """By grid: why it sends no pilots for it, as the overlay said within 15 minutes."""


class Match(ResponseModel):
    """How the hosts that asked for work in the last day suit a BOT."""

    hosts_known: int
    hosts_matching: int
    """Hosts that could be given a job now."""

    hosts_stock: int
    """Hosts among the known ones that run stock BOINC clients."""

    hosts_stock_matching: int
    """Hosts among the matching ones that run stock BOINC clients."""

    reason: str
    """Why no host matches, for people; empty if one does."""

    is_sample: bool
    """Whether there are more hosts, and only those that asked for work last were looked at."""


class ReplicaLimits(ResponseModel):
    """What one replica may use."""

    cpus: int
    """Cores."""

    memory_mb: int
    """MB."""

    disk_mb: int
    """MB."""

    seconds: float
    """Seconds of wall time."""

    gpus: int


class Replicas(ResponseModel):
    """The replicas of a BOT."""

    made: int
    """Replicas ever sent."""

    running: int
    """Replicas in progress."""

    by_reason: dict[str, int]
    """How many were made for which reason: first, quorum, expired, error, tail, retry, silent,
    gang."""

    progress: float | None
    """How far those in progress are that say so, on average: from 0 to 1."""


class HostCommand(ResponseModel):
    """One of several programs: where it runs, and its command there."""

    where: str
    command: list[str]


class BotDetails(BotSummary, WordOfOverlay):
    """`GET /bots/ID`."""

    command: list[str]
    """With its placeholders; of several programs it is the first one's."""

    programs: list[HostCommand]
    """With their placeholders; empty: all hosts run `command`."""

    policy: str
    """As it was given; empty for the defaults."""

    suspended: str | None
    """Why it gets no work until its policy is changed; null: it is not suspended."""

    policy_version: int
    """It rises with every change of the BOT."""

    round: int
    """It rises with every retry of failed jobs."""

    version: int
    """Of its manifest; a retry with changes makes the next."""

    resources: ReplicaLimits
    quorum: int
    """Equal answers that make one canonical."""

    assurance: float | None
    """The confidence that answers of strangers must reach; null: the policy does not say."""

    provisional: int
    """Jobs with an answer that is not sure yet; they count as not done."""

    confidence: float | None
    """The probability that a done job's answer is right, on average; null: not known."""

    validator: str
    """How answers are compared."""

    max_attempts: int
    """Failed replicas after which a job has failed."""

    max_replicas: int
    """Replicas of one job at most."""

    failover_after: int | None
    """Failures after which only dedicated hosts get a job; none if null."""

    max_failures: str | None
    """Failed jobs, a number or a share such as 5%, beyond which it is held; null: any number."""

    tail_threshold: int | None
    """Unsent jobs at which the tail phase begins; null: the server decides."""

    tail_sticky: bool
    """Whether a BOT that entered its tail phase stays in it."""

    tail_since: datetime | None
    """Since when it is in its tail phase; null: it never was."""

    signed: bool
    """Whether the project's key signed it, for strangers' clients."""

    owner_signed: bool
    """Whether its owner's key signed it, for clients that trust that key."""

    waits_for_signature: bool
    """Whether it runs nowhere until somebody signs it."""

    signed_for_boinc: bool
    """Whether stock BOINC clients are offered it."""

    boinc_unsuitable: str | None
    """Why stock BOINC clients cannot run it, if that was tried."""

    outputs_to: str | None
    """The storage to which its outputs go; null: they stay at the server."""

    unpublished: int | None
    """Jobs that are done, and of which an output has not its final name there yet."""

    boinc_url: str | None
    """Where stock BOINC clients attach; null where they cannot."""

    mean_turnaround_seconds: float | None
    """Seconds from sending to a valid report, on average."""

    jobs_per_second: float | None
    """Outcomes per second over the last 500 of them."""

    eta_seconds: float | None
    """Seconds until it is done at this rate."""

    progress: str
    """How far it is, in a sentence for people."""

    closed: str | None
    """By whom a growing BOT was closed, or why; null for others."""

    replicas: Replicas
    match: Match | None
    """Null once it has ended."""


class ChangedBot(BotSummary):
    """`PATCH /bots/ID`."""

    warnings: list[str]
    """What is legal in the policy but hardly meant."""

    match: Match | None
    """Null unless the policy was changed."""


class Submitted(ResponseModel):
    """`POST /bots`, `POST /bots/ID/start`."""

    id: int
    state: State
    jobs_total: int
    """Jobs that the server has."""

    jobs_reused: int
    """Jobs that are done without being run."""

    signed_for_boinc: bool
    """Whether stock BOINC clients are offered it."""

    boinc_unsuitable: str | None
    """Why stock BOINC clients cannot run it, if that was tried."""

    boinc_url: str | None
    """Where stock BOINC clients attach; null where they cannot."""

    warnings: list[str]
    """What is legal in the policy but hardly meant."""

    match: Match


class JobsAppended(ResponseModel):
    """`POST /bots/ID/jobs`."""

    jobs_total: int
    """Jobs that the server has, which is the next `offset`."""

    first: int
    """Number of the first job of this request; the others follow it."""


class JobsCancelled(BotSummary):
    """`POST /bots/ID/jobs/cancel`."""

    cancelled: list[int]
    """The jobs that had no answer and are cancelled now."""


class Retried(ResponseModel):
    """`POST /bots/ID/retry`."""

    retried: int
    """Failed jobs that get new attempts."""

    version: int
    """Of the manifest that they, and all that is unsent, run."""


class FailureGroup(ResponseModel):
    """Failed replicas that are alike, and one of them."""

    reason: str
    """A code such as exit_nonzero."""

    exit_code: int | None
    """Null if a signal ended the program, or it never ran."""

    signal: int | None
    line: str
    """The last line of standard error, numbers masked by #."""

    replicas: int
    jobs: int
    hosts: int
    seq: int
    """Job of the example."""

    replica: int
    """Replica of the example."""

    args: dict[str, str | int | float | bool]
    """Arguments of that job."""


class FailureDigest(ResponseModel):
    """`GET /bots/ID/failures`: the largest groups first."""

    groups: list[FailureGroup]


class PolicyVersion(ResponseModel):
    """A policy that a BOT has or had."""

    n: int
    """Its number, from 1 on."""

    policy: str
    changed_by: str
    """Who set it."""

    changed_at: datetime
    """Since when it holds."""


class PolicyVersions(ResponseModel):
    """`GET /bots/ID/policies`: the latest first; 100 at most."""

    policies: list[PolicyVersion]


class DeletedBot(ResponseModel):
    """`DELETE /bots/ID`."""

    id: int
    deleted: Literal[True]


class ManifestText(ResponseModel):
    """`GET /bots/ID/manifest`."""

    text: str
    """What the keys of owner and project sign: JSON, byte for byte."""

    id: str
    """SHA-256 of the text."""

    signature: str | None
    """The project key's, Ed25519, base64; null if it has not signed."""

    owner_signature: str | None
    """That of the owner key that the text names; null if it has not signed."""


class SignedForBoinc(ResponseModel):
    """`PUT /bots/ID/boinc`."""

    id: int
    signed_for_boinc: Literal[True]


class KeyChanged(ResponseModel):
    """`PUT /boinc/key`."""

    unsigned: list[int]
    """Unfinished BOTs that wait to be signed with the new key."""
