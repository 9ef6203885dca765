"""The JSON bodies that the API takes, as models: what they may hold, and their defaults."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from gridbot_client.protocol import workflows
from gridbot_client.protocol.checkpoints import EVERY_SECONDS, EXIT_CODE, MAX_FILES
from gridbot_client.protocol.manifest import DEFAULT_MAX_OUTPUT_BYTES, MAX_TOGETHER
from gridbot_client.protocol.messages import (
    MAX_BIGINT,
    MAX_HOLDING,
    MAX_LIVE_POSITIONS,
    PLACEHOLDER_TYPES,
)
from gridbot_client.protocol.preferences import (
    MAX_NAME_BYTES,
    MAX_PREFERENCES,
    MAX_SHARE,
    MAX_TEXT_BYTES,
)
from gridbot_client.protocol.programs import MAX_PROGRAMS, MAX_WHERE
from gridbot_client.protocol.software import MAX_ENTRIES
from gridbot_client.protocol.sources import MAX_SOURCED, MAX_SOURCES

MAX_JOBS_AT_ONCE = 20_000
MAX_PARTS_AT_ONCE = MAX_JOBS_AT_ONCE  # one job in each, at worst
MAX_SIGNED_PARTS = 1_000_000
MAX_KNOWN_ANSWERS = 10_000
MAX_KNOWN_CONTENT = 4 * 16_384  # characters of base64; a larger output is uploaded
MAX_NAME_CHARACTERS = 200
MAX_GRIDS = 100
MAX_REFUSED_BOTS = 1000
MAX_TRIED_POLICY = 20_000  # characters
PREDICTION_SEEDS, MAX_PREDICTION_SEEDS = 8, 64
MAX_RUN_SECONDS = 366 * 86_400

ADDRESS_PATTERN = r"^([A-Za-z0-9.-]{1,253}|\[[0-9a-fA-F:.]{2,45}\]):[0-9]{1,5}$"

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_HIDDEN_TEXT = re.compile(r"[\x00\ud800-\udfff]")


def _one_line(text: str) -> str:
    if _CONTROL.search(text):
        raise ValueError("control characters are not allowed")
    return text


def _storable(text: str) -> str:
    if _HIDDEN_TEXT.search(text):
        raise ValueError("NUL characters and lone surrogates are not allowed")
    return text


def _shown(name: str) -> str:
    if not name.isprintable() or name != name.strip():
        raise ValueError("expected printable characters without spaces at the ends")
    return name


Line = Annotated[
    str, Field(min_length=1, max_length=MAX_NAME_CHARACTERS), AfterValidator(_one_line)
]
Text = Annotated[str, AfterValidator(_storable)]
OWNER_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$"
GRID_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
MAX_FAILURES_PATTERN = r"^([0-9]{1,9}|(100|[0-9]{1,2}(\.[0-9]{1,3})?)%)$"
# What people type is explained to them in words, too.
PATTERNS_IN_WORDS = {
    OWNER_PATTERN: "up to 64 letters, digits and . _ @ -, a letter or digit first",
    MAX_FAILURES_PATTERN: "a number of jobs, or a share such as 5%",
    ADDRESS_PATTERN: "HOST:PORT",
    GRID_PATTERN: "up to 64 letters, digits and . _ -, a letter or digit first",
}
OwnerName = Annotated[str, Field(pattern=OWNER_PATTERN)]
GridName = Annotated[str, Field(pattern=GRID_PATTERN)]
GroupName = Annotated[str, Field(pattern=GRID_PATTERN)]
PilotName = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{0,100}$")]
BotNumber = Annotated[str, Field(pattern=r"^[1-9][0-9]{0,17}$")]
TeamName = Annotated[str, Field(min_length=1, max_length=100), AfterValidator(_shown)]
NewsTitle = Annotated[str, Field(min_length=1, max_length=100), AfterValidator(_shown)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
HexKey = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]  # Ed25519, public
Base64Signature = Annotated[str, Field(pattern=r"^[A-Za-z0-9+/]{86}==$")]  # Ed25519
Fingerprints = Annotated[list[Sha256], Field(max_length=1000)]  # of owners' keys
Protocol = Literal[1, 2]
BoincText = Annotated[str, Field(pattern=r"^[0-9a-f\s.]{1,1000}$")]  # a key or a signature
BigInt = Annotated[int, Field(ge=-MAX_BIGINT, le=MAX_BIGINT)]
Count = Annotated[int, Field(ge=0, le=MAX_BIGINT)]
ExitCode = Annotated[int, Field(ge=0, le=255)]
MaxFailures = Annotated[str, Field(pattern=MAX_FAILURES_PATTERN)]  # failed jobs: N or P%
PlaceholderType = Literal[PLACEHOLDER_TYPES]  # type: ignore[valid-type]


class Body(BaseModel):
    """What all bodies share: a misspelt name is an error, nothing is converted silently."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


def _without_defaults(schema: dict[str, Any]) -> None:
    for described in schema["properties"].values():
        described.pop("default", None)


class PartialBody(Body):
    """Base of bodies of which only what is given changes; what is not given has no default."""

    model_config = ConfigDict(json_schema_extra=_without_defaults)


class File(Body):
    """A file that is uploaded before, by its hash."""

    name: Text
    sha256: Sha256
    size: Annotated[int, Field(ge=0, le=MAX_BIGINT)]
    executable: bool = False


class UnpackedArchive(Body):
    """What is in an archive: bytes of its files, and number of files, directories and links."""

    bytes: Annotated[int, Field(ge=0, le=MAX_BIGINT)]
    entries: Annotated[int, Field(ge=0, le=MAX_ENTRIES)]


class RequestedResources(Body):
    """What one replica may use."""

    cpus: Annotated[int, Field(ge=1, le=4096)] = 1
    memory_mb: Annotated[int, Field(ge=1, le=1 << 30)] = 512
    disk_mb: Annotated[int, Field(ge=1, le=1 << 30)] = 1024
    seconds: Annotated[float, Field(gt=0, le=365 * 86_400)] = 86_400.0
    gpus: Annotated[int, Field(ge=0, le=64)] = 0


class Jobs(Body):
    """The jobs of a BOT: a range, a list, or a stream that is sent afterwards."""

    range: list[BigInt] | None = None
    items: Annotated[list[dict[str, Any]], Field(max_length=MAX_JOBS_AT_ONCE)] | None = None
    stream: Literal[True] | None = None


class NameOfJobInput(Body):
    """Names that inputs of single jobs may have: a pattern in which * and ? stop at a slash."""

    name: Line
    executable: bool = False


class WantedWalls(Body):
    """The walls that a BOT asks for around its jobs."""

    level: Annotated[int, Field(ge=0, le=4)] = 0
    network: bool = False


class Envelope(Body):
    """What a submitter signs beside the command, and the signature over the whole manifest."""

    project: Sha256  # fingerprint of the project's first key
    bot: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]  # the BOT's identity
    owner_key: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    not_before: Annotated[int, Field(ge=0, le=MAX_BIGINT)]  # seconds since 1970
    expires: Annotated[int, Field(ge=0, le=MAX_BIGINT)]
    signature: Base64Signature


class KnownOutput(Body):
    """An output of a known answer: its content, an uploaded file, or without a size its hash."""

    name: Text
    sha256: Sha256
    size: Annotated[int, Field(ge=0, le=MAX_BIGINT)] | None = None
    content: Annotated[str, Field(max_length=MAX_KNOWN_CONTENT)] | None = None  # base64


class KnownAnswer(Body):
    """The answer of a job that the BOT's owner has already; `job` counts from 0."""

    job: Annotated[int, Field(ge=0, le=MAX_BIGINT)]
    outputs: Annotated[list[KnownOutput], Field(min_length=1, max_length=256)]


class Checkpoint(Body):
    """Files that a program saves before it exits with `exit_code`, to go on with them."""

    files: Annotated[list[Text], Field(min_length=1, max_length=MAX_FILES)]
    exit_code: Annotated[int, Field(ge=1, le=255)] = EXIT_CODE
    every: Annotated[float, Field(ge=1, le=86_400)] = EVERY_SECONDS
    """Seconds between two checkpoints that are sent to the server, at least."""


class ProgramOf(Body):
    """What hosts of a kind run, as in `linux-x86_64 gpu=nvidia cuda>=11`."""

    where: Annotated[Line, Field(max_length=MAX_WHERE)]
    command: Annotated[list[Text], Field(min_length=1, max_length=1000)]
    inputs: Annotated[list[Text], Field(max_length=10_000)] = []
    """Names of those inputs that are not for all hosts."""


class SubmissionRequest(Body):
    """`POST /bots`.

    Without an `envelope` the BOT waits until somebody signs it.  `parts` are the signatures of the
    parts of the job table, of 64 jobs each.
    """

    submit_key: Line
    name: Line
    command: Annotated[list[Text], Field(min_length=1, max_length=1000)]
    jobs: Jobs
    policy: Text = ""
    placeholders: dict[str, PlaceholderType] = {}
    inputs: Annotated[list[File], Field(max_length=10_000)] = []
    outputs: Annotated[list[Text], Field(max_length=256)] = ["stdout"]
    resources: RequestedResources = RequestedResources()
    max_output_bytes: Annotated[int, Field(ge=0, le=MAX_BIGINT)] = DEFAULT_MAX_OUTPUT_BYTES
    platforms: Annotated[list[Line], Field(max_length=20)] = []
    quorum: Annotated[int, Field(ge=1, le=10)] = 1
    validator: Line = "exact"
    comparison: File | None = None  # the program of `command:`
    known_answers: Annotated[list[KnownAnswer], Field(max_length=MAX_KNOWN_ANSWERS)] = []
    max_attempts: Annotated[int, Field(ge=1, le=100)] = 3
    max_replicas: Annotated[int, Field(ge=1, le=50)] = 5
    failover_after: Annotated[int, Field(ge=1, le=100)] | None = None
    max_failures: MaxFailures | None = None  # failed jobs beyond which it is held
    tail_threshold: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    tail_sticky: bool = True
    growing: bool = False  # it takes further jobs until it is closed
    reuse: bool = False  # jobs whose very derivation has an outcome of this owner get that
    group: GroupName | None = None  # of its owner's; made by its first BOT
    outputs_to: GroupName | None = None  # a storage of its owner's, to which outputs go
    job_inputs: Annotated[list[NameOfJobInput], Field(max_length=100)] | None = None
    walls: WantedWalls = WantedWalls()
    exit_codes: Annotated[list[ExitCode], Field(min_length=1, max_length=256)] | Literal["any"] = [
        0
    ]
    environment: Annotated[dict[str, Text], Field(max_length=200)] = {}
    # Outputs that come back under another name; it, and names of outputs, may have placeholders.
    output_names: Annotated[dict[str, Text], Field(max_length=256)] = {}
    stdin: Text = ""  # name of an input; it and the environment's values may have placeholders
    # Inputs that are tar archives of directories, by name; jobs see what is in them.
    archives: Annotated[dict[str, UnpackedArchive], Field(max_length=1000)] = {}
    requirements: Text = ""  # name of an input for pip
    conda_pack: Text = ""  # name of an archive
    image: Text = ""  # of a container: its name, or that of an input
    # Words of the command that start a program which may stay for further jobs.
    resident: Annotated[int, Field(ge=0, le=1000)] = 0
    # Consecutive jobs that are a gang, and seconds for which its members wait for each other.
    together: Annotated[int, Field(ge=1, le=MAX_TOGETHER)] = 1
    gather_seconds: Annotated[float, Field(ge=1, le=86_400)] = 60.0
    checkpoint: Checkpoint | None = None
    boinc_api: bool = False  # the program is made for BOINC's API
    # For several platforms; `command` and `platforms` are those of the table then.
    programs: Annotated[list[ProgramOf], Field(max_length=MAX_PROGRAMS)] = []
    # URLs from which clients fetch inputs, in order, by the input's name; such an input need not be
    # uploaded.  Both may have placeholders.
    sources: Annotated[
        dict[str, Annotated[list[Text], Field(min_length=1, max_length=MAX_SOURCES)]],
        Field(max_length=MAX_SOURCED),
    ] = {}
    envelope: Envelope | None = None
    parts: Annotated[list[Base64Signature], Field(max_length=MAX_PARTS_AT_ONCE)] = []


class StorageRequest(Body):
    """`POST /storages`."""

    name: GroupName
    place: Text
    """s3://BUCKET/PREFIX?endpoint=https://…, an endpoint that the server's operator allows."""

    access_key: Text
    secret_key: Text
    """Kept encrypted, and never told again."""


class GangMember(Body):
    """`POST /clients/self/gang`: a member of a gang is ready to start."""

    replica: Annotated[list[Count], Field(min_length=3, max_length=3)]
    """BOT, job and number."""

    address: Annotated[str, Field(pattern=ADDRESS_PATTERN)]
    """Where the other members reach it, as HOST:PORT."""

    run: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
    """Random; a repeated request of one run of the replica has the same."""


class ManifestVersion(Body):
    """Another version of a BOT's manifest, signed by the owner's key as at the submission."""

    text: Text
    """As the one before, but for inputs, archives, resources, max_output_bytes, not_before and
    expires.
    """

    signature: Base64Signature
    parts: Annotated[list[Base64Signature], Field(max_length=MAX_SIGNED_PARTS)] = []
    """Over the parts of the job table, as `GET /bots/ID/parts` lists them."""


class Retry(Body):
    """`POST /bots/ID/retry`."""

    jobs: (
        Annotated[
            list[Annotated[int, Field(ge=0, le=MAX_BIGINT)]], Field(max_length=MAX_JOBS_AT_ONCE)
        ]
        | None
    ) = None
    """Failed jobs; null: all of them."""

    version: ManifestVersion | None = None


class BotChange(PartialBody):
    """`PATCH /bots/ID`."""

    policy: Text = ""
    name: Line = ""
    tail_threshold: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    tail_sticky: bool = True
    max_attempts: Annotated[int, Field(ge=1, le=100)] = 3
    max_replicas: Annotated[int, Field(ge=1, le=50)] = 5
    failover_after: Annotated[int, Field(ge=1, le=100)] | None = None
    max_failures: MaxFailures | None = None  # failed jobs beyond which it is held


class WhatIf(Body):
    """`POST /bots/ID/what-if`."""

    policy: Annotated[Text, Field(max_length=MAX_TRIED_POLICY)] | None = None
    """Instead of the present one; null: only the present one is simulated."""

    seeds: Annotated[int, Field(ge=1, le=MAX_PREDICTION_SEEDS)] = PREDICTION_SEEDS
    """Simulations under each policy, each with other chances."""


class GroupChange(PartialBody):
    """`PATCH /groups/NAME`."""

    share: Annotated[float, Field(gt=0, le=1e6)] | None = None
    """Of its owner's hosts, beside other groups with a share and all else, which has 1; null:
    none of its own."""


NodeName = Annotated[
    str,
    Field(min_length=1, max_length=workflows.MAX_NAME_CHARACTERS),
    AfterValidator(_one_line),
]
Why = Annotated[str, Field(max_length=workflows.MAX_WHY_CHARACTERS), AfterValidator(_one_line)]
Seconds = Annotated[float, Field(ge=0, le=workflows.MAX_SECONDS)]
NodeCount = Annotated[int, Field(ge=0, le=10**9)]
Edge = Annotated[list[Count], Field(min_length=2, max_length=2)]  # places of nodes: before, after


class ToldLayer(Body):
    """How many nodes of a layer are in which state."""

    waiting: NodeCount = 0
    running: NodeCount = 0
    done: NodeCount = 0
    failed: NodeCount = 0
    futile: NodeCount = 0


class ToldNode(Body):
    """A node of a workflow."""

    name: NodeName
    state: Literal["waiting", "running", "done", "failed", "futile"]
    layer: Annotated[int, Field(ge=0, lt=workflows.MAX_LAYERS)]
    tries: NodeCount = 0
    why: Why = ""
    jobs: NodeCount = 0
    jobs_running: NodeCount = 0
    jobs_waiting: NodeCount = 0
    bot: Count | None = None
    job: Count | None = None


class ToldWorkflow(Body):
    """`PUT /groups/NAME/workflow`: how the run of a workflow is."""

    kind: Literal["dag", "flow"]
    name: NodeName
    state: Literal["running", "done", "failed", "interrupted"]
    why: Why = ""
    seconds: Seconds  # since it began
    eta_seconds: Seconds | None = None
    layers: Annotated[list[ToldLayer], Field(max_length=workflows.MAX_LAYERS)]
    nodes: Annotated[list[ToldNode], Field(max_length=workflows.MAX_NODES)]
    edges: Annotated[list[Edge], Field(max_length=workflows.MAX_EDGES)] = []
    edges_total: NodeCount = 0

    @model_validator(mode="after")
    def _refuse_strange_places(self) -> Self:
        count = len(self.nodes)
        for before, after in self.edges:
            if max(before, after) >= count:
                raise ValueError(f"edge {before}, {after}: there are {count} nodes")
        for node in self.nodes:
            if node.layer >= len(self.layers):
                raise ValueError(f"node {node.name}: there are {len(self.layers)} layers")
        return self


class ReadPosition(Body):
    """How much of a replica's output is known."""

    seq: Count
    replica: Count
    stdout: Count
    stderr: Count


class FollowedOutput(Body):
    """`POST /bots/ID/live`."""

    job: Count | None = None
    """Only replicas of this job."""

    positions: Annotated[list[ReadPosition], Field(max_length=MAX_LIVE_POSITIONS)] = []
    """Replicas that are not named here are read from their beginning."""


class CancelledJobs(Body):
    """`POST /bots/ID/jobs/cancel`."""

    jobs: Annotated[
        list[Annotated[int, Field(ge=0, le=MAX_BIGINT)]], Field(max_length=MAX_JOBS_AT_ONCE)
    ]
    unsent: bool = False
    """Only those that no host was given yet."""


class Signature(Body):
    """`PUT /bots/ID/signature`: by the key of the project or by the manifest's owner key.

    `parts` are the signatures of all parts of the job table, in order; needed from the key that
    the manifest names, or the project's if it names none.
    """

    signature: Base64Signature
    parts: Annotated[list[Base64Signature], Field(max_length=MAX_SIGNED_PARTS)] = []


class NewSigningKey(Body):
    """`POST /signing/keys`: a further key of an owner, with the word of an older one."""

    key: HexKey
    label: Line = "no name"
    introduced_by: HexKey | None = None
    signature: Base64Signature | None = None


class NextProjectKey(Body):
    """`PUT /signing/project-key`: the project's next key, introduced by the present one."""

    key: HexKey
    signature: Base64Signature


class NewRevocation(Body):
    """`POST /signing/revocations`: a key's word that a key or a BOT is not trusted any more."""

    subject: Sha256  # fingerprint of a key, or id of a manifest
    signer: HexKey
    signature: Base64Signature


class BoincSignatures(Body):
    """`PUT /bots/ID/boinc`: a `SignedApplication`."""

    script: Annotated[Text, Field(max_length=1 << 20)] = ""
    scripts: Annotated[
        list[Annotated[Text, Field(max_length=1 << 20)]], Field(max_length=MAX_PROGRAMS)
    ] = []
    """In place of `script`, of a BOT with several programs for stock clients."""

    signatures: Annotated[dict[Sha256, BoincText], Field(max_length=20_000)]  # by SHA-256


class BoincKey(Body):
    """`PUT /boinc/key`: the next code signing key, and the signature over it by the present one."""

    key: BoincText
    signature: BoincText


class ReturnedReplicas(Body):
    """`POST /clients/self/return`: BOT, job and replica of each."""

    replicas: Annotated[
        list[Annotated[list[Count], Field(min_length=3, max_length=3)]],
        Field(min_length=1, max_length=MAX_HOLDING),
    ]


class CutOff(Body):
    """Replicas of a BOT that ran when their pilot's time was over."""

    bot: Count
    seconds: Annotated[float, Field(ge=0, le=MAX_RUN_SECONDS)]
    """That the longest of them had run."""


class Leave(Body):
    """`POST /clients/self/leave`."""

    cut_off: Annotated[list[CutOff], Field(max_length=MAX_HOLDING)] = []


class Join(Body):
    """`POST /clients`."""

    host: dict[str, Any]
    mac: Line  # the MAC address, or whatever else stays the same on this machine
    accepts: Annotated[list[OwnerName], Field(max_length=1000)] = []
    pilot: PilotName = ""  # what the overlay calls it
    protocol: Protocol = 1
    trusts: Fingerprints = []


class JoinAgain(Body):
    """`POST /clients/again`."""

    receipt: Annotated[str, Field(max_length=2000)]
    host: dict[str, Any]
    protocol: Protocol = 1
    trusts: Fingerprints = []


class ClientChange(PartialBody):
    """`PUT /clients/self`."""

    host: dict[str, Any] | None = None
    accepts: Annotated[list[OwnerName], Field(max_length=1000)] | None = None
    protocol: Protocol = 1
    trusts: Fingerprints = []


class HostChange(Body):
    """`PATCH /hosts/ID`."""

    venue: Literal["", "home", "work", "school"]


Venue = Literal["default", "home", "work", "school"]


class PreferencesChange(Body):
    """`PATCH /account/preferences`: texts by name, of one venue, and shares; null removes one."""

    venue: Venue = "default"
    shares: dict[Venue, Annotated[float, Field(ge=0, le=MAX_SHARE)] | None] = {}
    preferences: Annotated[
        dict[
            Annotated[str, Field(max_length=MAX_NAME_BYTES)],
            Annotated[Line, Field(max_length=MAX_TEXT_BYTES)] | None,
        ],
        Field(max_length=MAX_PREFERENCES),
    ] = {}


class Ban(Body):
    """`PUT /hosts/ID/ban`: the reason is told to whoever runs the host."""

    why: Line | None = None


class NewOwner(Body):
    """`POST /owners`."""

    name: OwnerName
    operator: bool = False
    share: Annotated[float, Field(gt=0, le=1e6)] = 1.0
    max_jobs: Annotated[int, Field(ge=0, le=MAX_BIGINT)] = 20_000_000


class OwnerChange(Body):
    """`PATCH /owners/NAME`: whether comparisons of the owner's own run on this server."""

    may_compare: bool


class NewNewsItem(Body):
    """`POST /news`; lines of the text stay lines."""

    title: NewsTitle
    text: Annotated[Text, Field(min_length=1, max_length=5000)]


class NewAddress(Body):
    """`POST /account/notices`: where notices go, https://HOST/PATH or mailto:NAME@HOST."""

    url: Annotated[str, Field(min_length=1, max_length=500)]


class Confirmation(Body):
    """`POST /account/notices/ID/confirm`: the code that was mailed there."""

    code: Annotated[str, Field(min_length=1, max_length=50), AfterValidator(str.upper)]


class NewToken(Body):
    """`POST /tokens`."""

    owner: OwnerName
    scope: Literal["operator", "user", "join", "metrics"]
    label: Annotated[str, Field(max_length=MAX_NAME_CHARACTERS), AfterValidator(_one_line)] = ""
    expires_seconds: Annotated[float, Field(gt=0, le=100 * 365 * 86_400)] | None = None


class NewInvitation(Body):
    """`POST /invitations`."""

    owner: OwnerName | None = None  # whose machines they become; none: the caller's
    uses: Annotated[int, Field(ge=1, le=10_000)] = 1  # machines
    expires_seconds: Annotated[float, Field(gt=0, le=366 * 86_400)] = 7 * 86_400.0
    label: Annotated[str, Field(max_length=MAX_NAME_CHARACTERS), AfterValidator(_one_line)] = ""


class PilotToken(Body):
    """`POST /overlay/tokens`."""

    grid: GridName
    owners: Annotated[list[OwnerName], Field(min_length=1, max_length=1000)]
    seconds: Annotated[float, Field(gt=0, le=366 * 86_400)]
    tag: PilotName  # of their submission: they are TAG.0 to TAG.(count - 1)
    count: Annotated[int, Field(ge=1, le=10_000)]
    artefact: Sha256 | None = None  # the one file that the key reads; else all that its owner sent


class EndedPilots(Body):
    """`POST /overlay/pilots/ended`."""

    grid: GridName
    pilots: Annotated[list[Line], Field(max_length=10_000)]


class Refusals(Body):
    """`POST /overlay/refusals`."""

    constructor: Annotated[PilotName, Field(min_length=1)]
    bots: Annotated[
        dict[BotNumber, Annotated[dict[GridName, Line], Field(max_length=MAX_GRIDS)]],
        Field(max_length=MAX_REFUSED_BOTS),
    ]
    """By BOT and grid: why the grid does not serve it."""


AdValue = (
    Annotated[str, Field(max_length=1000), AfterValidator(_storable)]
    | bool
    | Annotated[int, Field(ge=-MAX_BIGINT, le=MAX_BIGINT)]
    | float
)
AttributeName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")]


def _named_once(ad: dict[str, AdValue]) -> dict[str, AdValue]:
    if len({name.lower() for name in ad}) < len(ad):
        raise ValueError("names of attributes are equal regardless of case")
    return ad


GridAd = Annotated[dict[AttributeName, AdValue], Field(max_length=100), AfterValidator(_named_once)]


# "": the grid is used; "finish": it gets no more pilots, and what runs may end; "now": it may not.
Drain = Literal["", "finish", "now"]


class GridAds(Body):
    """`POST /overlay/grids`."""

    constructor: Annotated[PilotName, Field(min_length=1)]
    seconds: Annotated[int, Field(ge=1, le=86_400)]
    """For how long they are good."""

    grids: Annotated[dict[GridName, GridAd], Field(max_length=MAX_GRIDS)]
    drained: Annotated[dict[GridName, Drain], Field(max_length=MAX_GRIDS)] = {}
    """Of all its grids, also those that get no pilots and so have no ad."""

    heard: Annotated[int, Field(ge=0, le=MAX_BIGINT)] = 0
    """The number of the last order that it has heard."""


class GridOrder(Body):
    """`POST /grids/orders`."""

    constructor: Annotated[PilotName, Field(min_length=1)]
    grid: GridName
    drained: Drain


class PilotWords(Body):
    """What is kept of one pilot that has ended."""

    pilot: Annotated[PilotName, Field(min_length=1)]
    native_id: Annotated[str, Field(max_length=200), AfterValidator(_storable)] = ""
    node: Annotated[str, Field(max_length=300), AfterValidator(_storable)] = ""
    how: Annotated[str, Field(max_length=1000), AfterValidator(_storable)] = ""
    """How it ended, in the words of its batch system or of the constructor."""

    exit_code: Annotated[int, Field(ge=-1000, le=1000)] | None = None
    words: Annotated[str, Field(max_length=4096), AfterValidator(_storable)] = ""
    """The end of its stderr."""


class PilotLogs(Body):
    """`POST /overlay/logs`."""

    grid: GridName
    logs: Annotated[list[PilotWords], Field(max_length=100)]


class Tags(Body):
    """`POST /overlay/tags`."""

    tags: Annotated[list[PilotName], Field(max_length=1000)]


class NewTeam(Body):
    """`POST /teams`."""

    name: TeamName


class VolunteerChange(PartialBody):
    """`PATCH /volunteer`; without a team one is in none."""

    team: TeamName | None = None
    public: bool = False


class _Open(BaseModel):
    """Base of what only describes: `gridbot_client.protocol.messages` reads it, within bounds."""

    model_config = ConfigDict(use_attribute_docstrings=True)


Replica = Annotated[list[int], Field(min_length=3, max_length=3)]


class ReportedOutput(_Open):
    """A file that a replica returned."""

    name: str
    sha256: Sha256
    size: int
    """Bytes."""

    content: str | None = None
    """The file itself, base64, if it is small; others are uploaded before."""


class ReplicaReport(_Open):
    """How one replica ended."""

    id: Replica
    """BOT, job, replica."""

    how: Literal["success", "error"]
    reason: str = ""
    """A code such as exit_nonzero; empty on success."""

    exit_code: int | None = None
    cpu_seconds: float = 0.0
    wall_seconds: float = 0.0
    outputs: list[ReportedOutput] = []
    stdout: str = ""
    """The end of its standard output."""

    stderr: str = ""
    """The end of its standard error."""


class LivePiece(_Open):
    """What a running replica has printed."""

    id: Replica
    stream: Literal["stdout", "stderr"]
    at: int
    """Bytes of the stream before these."""

    content: str
    """Base64."""


class WorkQuestion(_Open):
    """`POST /rpc`: a client reports what ended, lists what it holds, asks for more."""

    protocol: Protocol
    key: str
    """Idempotency key: the same request, sent again, is answered with the same replicas."""

    seqno: int
    """It rises by one with each new request."""

    host: dict[str, str | int | float | bool]
    """What the machine says of itself."""

    want: int
    """How many replicas it takes."""

    holding: list[Replica] = []
    """Replicas that it has."""

    reports: list[ReplicaReport] = []
    manifests: list[Sha256] = []
    """Manifests that it has."""

    preferences: int | None = None
    """Version of the account's preferences that it follows; null: it follows none."""

    unstarted: int = 0
    """How many of `holding`, the last ones, have not begun and may be called back."""

    progress: list[Annotated[list[int | float], Field(min_length=4, max_length=4)]] = []
    """BOT, job, number, and how far the replica is, from 0 to 1."""

    live: list[LivePiece] = []
    """Output of replicas that somebody follows."""
