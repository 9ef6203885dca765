"""What clients hear: when they join, and for each request for work."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from gridbot_server.models.responses import ResponseModel


class ClientIdentity(ResponseModel):
    """`PUT /clients/self`."""

    client: int
    owner: str
    accepts: list[str]
    """Further owners whose unsigned commands it runs."""

    project_key: str
    """The public key that signs what it runs: Ed25519, base64."""

    epoch: int
    """It rises when the database is restored from a backup."""


class JoinedClient(ClientIdentity):
    """`POST /clients`: the only time that the token is shown."""

    token: str


ReplicaName = Annotated[list[int], Field(min_length=3, max_length=3)]


class InputFile(ResponseModel):
    """A file that a job finds under this name."""

    name: str
    sha256: str
    size: int
    """Bytes."""

    executable: bool


class AssignedReplica(ResponseModel):
    """A replica to run."""

    id: ReplicaName
    """BOT, job, replica."""

    manifest: str
    """SHA-256 of the manifest that says what to run."""

    args: dict[str, str | int | float | bool]
    """What fills the command's placeholders."""

    inputs: list[InputFile]
    """The job's own, beside the manifest's."""

    deadline_seconds: float
    """Seconds from now in which the report must come."""


class SentManifest(ResponseModel):
    """A manifest, byte for byte as it was signed."""

    text: str
    signature: str | None
    """Ed25519 over the text, base64; null if it is not signed."""


class WorkAnswer(ResponseModel):
    """`POST /rpc`.  The engine renders it by itself; tests hold it against this model."""

    protocol: Literal[1]
    epoch: int
    """It rises when the database is restored from a backup: then the client tells all anew."""

    next_request_seconds: float
    """Seconds to wait before the next request."""

    acks: list[ReplicaName]
    """Reports that are kept: the client may forget them."""

    reupload: list[ReplicaName]
    """Replicas whose outputs never arrived: upload and report them again."""

    abort: list[ReplicaName]
    """Replicas that nobody wants any more."""

    assignments: list[AssignedReplica]
    manifests: dict[str, SentManifest]
    """By SHA-256: those of the assignments that the client did not have."""

    message: str
    """Why there is no work, for people."""
