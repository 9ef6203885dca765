"""The JSON bodies that the API takes, as models: what they may hold, and their defaults."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from gridbot_client.protocol.messages import MAX_BIGINT, PLACEHOLDER_TYPES

MAX_JOBS_AT_ONCE = 20_000
MAX_NAME_CHARACTERS = 200

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


Line = Annotated[
    str, Field(min_length=1, max_length=MAX_NAME_CHARACTERS), AfterValidator(_one_line)
]
Text = Annotated[str, AfterValidator(_storable)]
OwnerName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}\z")]
GridName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}\z")]
PilotName = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{0,100}\z")]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}\z")]
BoincText = Annotated[str, Field(pattern=r"^[0-9a-f\s.]{1,1000}\z")]  # a key or a signature
BigInt = Annotated[int, Field(ge=-MAX_BIGINT, le=MAX_BIGINT)]
PlaceholderType = Literal[PLACEHOLDER_TYPES]  # type: ignore[valid-type]


class Body(BaseModel):
    """What all bodies share: a misspelt name is an error, nothing is converted silently."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class File(Body):
    """A file that is uploaded before, by its hash."""

    name: Text
    sha256: Sha256
    size: Annotated[int, Field(ge=0, le=MAX_BIGINT)]
    executable: bool = False


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


class SubmissionRequest(Body):
    """`POST /bots`."""

    submit_key: Line
    name: Line
    command: Annotated[list[Text], Field(min_length=1, max_length=1000)]
    jobs: Jobs
    policy: Text = ""
    placeholders: dict[str, PlaceholderType] = {}
    inputs: Annotated[list[File], Field(max_length=10_000)] = []
    outputs: Annotated[list[Text], Field(max_length=256)] = ["stdout"]
    resources: RequestedResources = RequestedResources()
    max_output_bytes: Annotated[int, Field(ge=0, le=MAX_BIGINT)] = 64 * 1024 * 1024
    platforms: Annotated[list[Line], Field(max_length=20)] = []
    quorum: Annotated[int, Field(ge=1, le=10)] = 1
    validator: Line = "exact"
    max_attempts: Annotated[int, Field(ge=1, le=100)] = 3
    max_replicas: Annotated[int, Field(ge=1, le=50)] = 5
    failover_after: Annotated[int, Field(ge=1, le=100)] | None = None
    tail_threshold: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    tail_sticky: bool = True


class BotChange(Body):
    """`PATCH /bots/ID`: only what is given changes."""

    policy: Text = ""
    name: Line = ""
    tail_threshold: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    tail_sticky: bool = True
    max_attempts: Annotated[int, Field(ge=1, le=100)] = 3
    max_replicas: Annotated[int, Field(ge=1, le=50)] = 5
    failover_after: Annotated[int, Field(ge=1, le=100)] | None = None


class Signature(Body):
    """`PUT /bots/ID/signature`."""

    signature: Annotated[str, Field(max_length=200)]  # base64


class BoincSignatures(Body):
    """`PUT /bots/ID/boinc`: a `SignedApplication`."""

    script: Annotated[Text, Field(max_length=1 << 20)]
    signatures: Annotated[dict[Sha256, BoincText], Field(max_length=20_000)]  # by SHA-256


class BoincKey(Body):
    """`PUT /boinc/key`: the next code signing key, and the signature over it by the present one."""

    key: BoincText
    signature: BoincText


class Join(Body):
    """`POST /clients`."""

    host: dict[str, Any]
    mac: Line  # the MAC address, or whatever else stays the same on this machine
    accepts: Annotated[list[OwnerName], Field(max_length=1000)] = []
    pilot: PilotName = ""  # what the overlay calls it


class ClientChange(Body):
    """`PUT /clients/self`: only what is given changes."""

    host: dict[str, Any] | None = None
    accepts: Annotated[list[OwnerName], Field(max_length=1000)] | None = None


class HostChange(Body):
    """`PATCH /hosts/ID`."""

    venue: Literal["", "home", "work", "school"]


class NewOwner(Body):
    """`POST /owners`."""

    name: OwnerName
    operator: bool = False
    share: Annotated[float, Field(gt=0, le=1e6)] = 1.0
    max_jobs: Annotated[int, Field(ge=0, le=MAX_BIGINT)] = 20_000_000


class NewToken(Body):
    """`POST /tokens`."""

    owner: OwnerName
    scope: Literal["operator", "user", "join"]
    label: Annotated[str, Field(max_length=MAX_NAME_CHARACTERS), AfterValidator(_one_line)] = ""
    expires_seconds: Annotated[float, Field(gt=0, le=100 * 365 * 86_400)] | None = None


class PilotToken(Body):
    """`POST /overlay/tokens`."""

    grid: GridName
    owners: Annotated[list[OwnerName], Field(min_length=1, max_length=1000)]
    seconds: Annotated[float, Field(gt=0, le=366 * 86_400)]
    tag: PilotName  # of their submission: they are TAG.0 to TAG.(count - 1)
    count: Annotated[int, Field(ge=1, le=10_000)]


class EndedPilots(Body):
    """`POST /overlay/pilots/ended`."""

    grid: GridName
    pilots: Annotated[list[Line], Field(max_length=10_000)]


class Tags(Body):
    """`POST /overlay/tags`."""

    tags: Annotated[list[PilotName], Field(max_length=1000)]
