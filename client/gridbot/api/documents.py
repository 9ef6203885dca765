"""Documents that the server answers with, as far as this API reads them; times are ISO 8601.

Names and types are those of `gridbot_server.models.responses`, which a test compares: a light
installation has neither the server nor pydantic.  A newer server may add fields.
"""

# No postponed annotations: with them, Python 3.11 does not see which fields are not required.

from typing import Any, Literal, NotRequired, TypedDict

State = Literal["open", "running", "held", "done", "cancelled"]


class BotSummary(TypedDict):
    """A BOT in a list."""

    id: int
    name: str
    owner: str
    state: State
    held: str | None
    created_at: str
    ended_at: str | None
    jobs_total: int
    jobs_done: int
    jobs_failed: int
    jobs_cancelled: int
    jobs_reused: int
    jobs_left: int
    jobs_running: int
    jobs_silent: int
    jobs_in_progress: int
    jobs_waiting: int
    jobs_unsent: int
    tail: bool
    growing: bool
    group: str | None


class Bots(TypedDict):
    """`GET /bots`: the latest first."""

    bots: list[BotSummary]


class Match(TypedDict):
    """How the hosts that asked for work in the last day suit a BOT."""

    hosts_known: int
    hosts_matching: int
    hosts_stock: int
    hosts_stock_matching: int
    reason: str
    is_sample: bool


class ReplicaLimits(TypedDict):
    """What one replica may use."""

    cpus: int
    memory_mb: int
    disk_mb: int
    seconds: float
    gpus: int


class Replicas(TypedDict):
    """The replicas of a BOT."""

    made: int
    running: int
    by_reason: dict[str, int]
    progress: float | None


class HostCommand(TypedDict):
    """One of several programs: where it runs, and its command there."""

    where: str
    command: list[str]


class BotDetails(BotSummary):
    """`GET /bots/ID`."""

    command: list[str]
    programs: list[HostCommand]
    policy: str
    suspended: str | None
    policy_version: int
    round: int
    version: int
    resources: ReplicaLimits
    quorum: int
    assurance: float | None
    provisional: int
    confidence: float | None
    validator: str
    max_attempts: int
    max_replicas: int
    failover_after: int | None
    max_failures: str | None
    tail_threshold: int | None
    tail_sticky: bool
    tail_since: str | None
    signed: bool
    owner_signed: bool
    waits_for_signature: bool
    signed_for_boinc: bool
    boinc_unsuitable: str | None
    outputs_to: str | None
    unpublished: int | None
    boinc_url: str | None
    mean_turnaround_seconds: float | None
    cut_off: int
    cut_off_seconds: float | None
    cut_off_grid: str | None
    refused_by: dict[str, str]
    jobs_per_second: float | None
    eta_seconds: float | None
    progress: str
    closed: str | None
    replicas: Replicas
    match: Match | None


class FigureRange(TypedDict):
    """A figure over simulations: its median and 80 % range."""

    median: float
    low: float
    high: float


class PredictedFigures(TypedDict):
    """What is still to come of a BOT."""

    left_seconds: FigureRange | None
    tail_seconds: FigureRange | None
    replicas: FigureRange | None
    speculative: FigureRange | None
    failed: FigureRange | None
    cpu_hours: FigureRange | None


class PredictedRun(TypedDict):
    """One simulation."""

    seed: int
    has_ended: bool
    why_not: str
    left_seconds: float | None
    tail_seconds: float | None
    replicas: int
    speculative: int
    failed: int
    cpu_hours: float
    decisions: str


class PredictedRuns(TypedDict):
    """Simulations under one policy."""

    figures: PredictedFigures
    runs: list[PredictedRun]


class FigureDifference(TypedDict):
    """How much more a figure is under the tried policy."""

    seeds: int
    mean: float
    low: float | None
    high: float | None
    percent: float | None
    verdict: Literal["real", "open", "too few seeds"]
    seeds_wanted: int | None


class FigureDifferences(TypedDict):
    """The tried policy against the present one."""

    left_seconds: FigureDifference | None
    tail_seconds: FigureDifference | None
    replicas: FigureDifference | None
    speculative: FigureDifference | None
    failed: FigureDifference | None
    cpu_hours: FigureDifference | None


class Prediction(TypedDict):
    """`POST /bots/ID/what-if`."""

    bot: int
    as_of: str
    policy_version: int
    jobs_left: int
    hosts: int
    seeds: int
    verdict: str
    now: PredictedRuns
    tried: PredictedRuns | None
    differences: FigureDifferences | None
    sooner: int | None
    assumes: list[str]
    left_out: list[str]


class ChangedBot(BotSummary):
    """`PATCH /bots/ID`."""

    warnings: list[str]
    match: Match | None


class Submitted(TypedDict):
    """`POST /bots`, `POST /bots/ID/start`."""

    id: int
    state: State
    jobs_total: int
    jobs_reused: int
    signed_for_boinc: bool
    boinc_unsuitable: str | None
    boinc_url: str | None
    warnings: list[str]
    match: Match


class JobsAppended(TypedDict):
    """`POST /bots/ID/jobs`."""

    jobs_total: int
    first: int


class JobsCancelled(BotSummary):
    """`POST /bots/ID/jobs/cancel`."""

    cancelled: list[int]


class Retried(TypedDict):
    """`POST /bots/ID/retry`."""

    retried: int
    version: int


class FailureGroup(TypedDict):
    """Failed replicas that are alike, and one of them."""

    reason: str
    exit_code: int | None
    signal: int | None
    line: str
    replicas: int
    jobs: int
    hosts: int
    seq: int
    replica: int
    args: dict[str, str | int | float | bool]


class FailureDigest(TypedDict):
    """`GET /bots/ID/failures`: the largest groups first."""

    groups: list[FailureGroup]


class ManifestText(TypedDict):
    """`GET /bots/ID/manifest`."""

    text: str
    id: str
    signature: str | None
    owner_signature: str | None


class OfferedValue(TypedDict):
    """What rejected hosts have instead."""

    value: str
    hosts: int


class RejectingCondition(TypedDict):
    """A condition of the policy, the resources or a permission that rejects hosts."""

    kind: str
    text: str
    via: str | None
    rejects: int
    only: int
    values: list[OfferedValue]


class FailedCondition(TypedDict):
    """What a host fails, and has instead."""

    text: str
    has: str


class NearMiss(TypedDict):
    """A host that fails few conditions."""

    host: str
    fails: list[FailedCondition]


class PossibleChange(TypedDict):
    """What could be relaxed."""

    conditions: int
    instead_of: str
    text: str
    hosts: int
    policy: str | None
    submit: str | None


class WaitingOfKind(TypedDict):
    """Further replicas that wait for one kind of hosts."""

    kind: str
    copies: int
    hosts: int


class SilentHost(TypedDict):
    """A silent host that alone has jobs of the BOT."""

    id: int
    name: str | None
    jobs: int
    silent_seconds: float


class Explanation(TypedDict):
    """How the hosts that asked for work in the last day suit a BOT."""

    id: int
    state: State
    verdict: str
    held: str | None
    suspended: str | None
    hosts_known: int
    hosts_left_out: bool
    hosts_matching: int
    hosts_stock: int
    hosts_stock_matching: int
    hosts_silent: int
    hosts_full: int
    hosts_outranked: int
    hosts_undecided: int
    hosts_free: int
    signed_for_boinc: bool
    boinc_unsuitable: str | None
    jobs_unsent: int
    jobs_running: int
    silent: list[SilentHost]
    homogeneous: list[WaitingOfKind]
    conditions: list[RejectingCondition]
    nearest: list[NearMiss]
    changes: list[PossibleChange]
    cut_off: int
    cut_off_seconds: float | None
    cut_off_grid: str | None
    refused_by: dict[str, str]


class ExplainedHost(TypedDict):
    """The one host that was asked about."""

    id: int
    name: str
    is_boinc: bool
    client_version: str | int | float | bool | None
    platform: str | int | float | bool | None


class HostExplanation(Explanation):
    """The same, about one host alone."""

    host: ExplainedHost


class ResultOutput(TypedDict):
    """A file that a job returned."""

    sha256: str
    size: int
    content: NotRequired[str]
    place: NotRequired[str]
    lost: NotRequired[bool]


class ResultLine(TypedDict):
    """A line of `GET /bots/ID/results`: a finished job."""

    n: int
    seq: int
    event: NotRequired[Literal["provisional", "recalled", "confirmed", "failed"] | None]
    state: Literal["done", "failed"]
    args: dict[str, str | int | float | bool]
    replica: int | None
    host: str | None
    exit_code: int | None
    signal: int | None
    reason: str
    cpu_seconds: float | None
    wall_seconds: float | None
    version: int
    outputs: dict[str, ResultOutput]


class GroupResultLine(ResultLine):
    """A line of `GET /groups/NAME/results`: a finished job; `n` counts in the group."""

    bot: int


class GroupState(TypedDict):
    """A label over BOTs of one owner."""

    name: str
    owner: str
    share: float | None
    created_at: str
    results: int
    bots: int
    bots_unfinished: int
    bots_held: int
    jobs_total: int
    jobs_done: int
    jobs_failed: int
    jobs_cancelled: int
    jobs_left: int


class Groups(TypedDict):
    """`GET /groups`: the latest first."""

    groups: list[GroupState]


class WorkflowSummary(TypedDict):
    """The run of a workflow, as it told last."""

    id: int
    group: str
    owner: str
    kind: Literal["dag", "flow"]
    name: str
    state: Literal["running", "done", "failed", "interrupted", "silent"]
    verdict: str
    seconds: float
    eta_seconds: float | None
    told_at: str
    nodes_total: int
    nodes_waiting: int
    nodes_running: int
    nodes_done: int
    nodes_failed: int
    nodes_futile: int


class GridState(TypedDict):
    """A grid that a constructor submits pilots to."""

    name: str
    constructor: str
    ad: dict[str, Any]
    told_at: str
    good_seconds: int


class Grids(TypedDict):
    """`GET /grids`: by name."""

    grids: list[GridState]


class SignablePart(TypedDict):
    """A part of a BOT's job table."""

    first: int
    size: int
    root: str
    is_signed: bool
    signature: str | None


class SignableParts(TypedDict):
    """`GET /bots/ID/parts`."""

    parts: list[SignablePart]


class SigningKeyInfo(TypedDict):
    """A public key that signs an owner's BOTs."""

    key: str
    fingerprint: str
    label: str
    introduced_by: str | None
    created_at: str
    is_revoked: bool


class Signing(TypedDict):
    """`GET /signing`: what a submitter must know to sign."""

    owner: str
    project: str
    project_key: str
    keys: list[SigningKeyInfo]


class LiveReplica(TypedDict):
    """Output of a replica in progress, in base64."""

    seq: int
    replica: int
    stdout: str
    stderr: str


class LiveReplicas(TypedDict):
    """`POST /bots/ID/live`."""

    is_over: bool
    replicas: list[LiveReplica]


class LogLine(TypedDict):
    """A line of `GET /bots/ID/logs`: a replica that ended."""

    seq: int
    replica: int
    why: str
    how: Literal["success", "error", "expired", "lost", "cancelled"]
    reason: str
    exit_code: int | None
    host: str | None
    sent_at: str
    ended_at: str
    cpu_seconds: float | None
    wall_seconds: float | None
    version: int
    valid: bool | None
    difference: str | None
    said: str | None
    stdout: str | None
    stderr: str | None


class Health(TypedDict):
    """`GET /health`: whether the server works, and how much there is to do."""

    status: Literal["ok", "degraded"]
    trouble: str | None
    version: str
    project_key: str
    epoch: int
    bots_running: int
    jobs_unsent: int
    jobs_undecided: int
    jobs_set_aside: int
    replicas_running: int
    clients_active: int
    inversions: int


class UploadProgress(TypedDict):
    """`PUT` of an upload."""

    offset: int
    complete: bool


class UsedFile(TypedDict):
    """An input of a job."""

    name: str
    sha256: str
    size: int


class JobName(TypedDict):
    """A job."""

    bot: int
    job: int


class MakingJob(TypedDict):
    """A job whose confirmed answer has a content."""

    bot: int
    job: int
    name: str
    output: str
    size: int
    ended_at: str
    host: str | None
    command: list[str]
    programs: list[HostCommand]
    environment: dict[str, str]
    image: str
    args: dict[str, Any]
    inputs: list[UsedFile]
    reused: JobName | None
    invalidated: bool


class Provenance(TypedDict):
    """`GET /data/SHA256`."""

    sha256: str
    made_by: list[MakingJob]
    used_by: list[JobName]


class Invalidated(TypedDict):
    """`POST /data/SHA256/invalidate`."""

    jobs: int
    bots: list[int]
