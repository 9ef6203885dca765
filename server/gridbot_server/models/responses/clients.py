"""What clients hear: when they join, and for each request for work."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from gridbot_server.models.responses import ResponseModel


class SentIntroduction(ResponseModel):
    """An older key's word for a newer one."""

    old: str
    new: str
    signature: str
    """Ed25519, base64, as the keys."""


class ClientIdentity(ResponseModel):
    """`PUT /clients/self`."""

    client: int
    owner: str
    accepts: list[str]
    """Further owners whose unsigned commands it runs."""

    project: str
    """Fingerprint of the project's first key, by which manifests name the project."""

    project_key: str
    """The public key that signs for strangers: Ed25519, base64."""

    signs_at_submission: bool
    """The server itself holds that key and signs with it, so that who breaks into it can, too."""

    epoch: int
    """It rises when the database is restored from a backup."""

    protocol: int
    """Latest version of the protocol that the server speaks."""

    introductions: list[SentIntroduction]
    """How the project's earlier keys lead to its present one."""


class ClientStanding(ResponseModel):
    """`GET /clients/self/standing`: what the answers of the client's machine came to."""

    right: int
    """Answers with which those of other owners' machines agreed."""

    wrong: int
    """Answers that were outvoted."""

    unchecked: int
    """Replicas in progress, and answers that nobody has judged yet, or for good."""

    width: float
    """Replicas of strangers' BOTs that it may have in progress or unjudged."""


class HinderedBots(ResponseModel):
    """BOTs that one thing keeps from a client."""

    reason: str
    """`trust`, `grid`, `platform`, `sandbox`, `client`, `cpus`, `memory`, `disk`, `gpus`, `owner`,
    `requirements`, `concurrency`, `width`, or `free`: nothing."""

    text: str
    """The same in words, about one of them."""

    bots: int


class ClientProspects(ResponseModel):
    """`GET /clients/self/prospects`: what the server has for a client, and why nothing else."""

    bots_waiting: int
    """BOTs with unsent jobs that were looked at, 50 at most."""

    reasons: list[HinderedBots]
    """What keeps them from the client; most BOTs first."""

    jobs_today: int
    """Valid replicas of its machine on this day."""

    credit: float
    """Credit that its machine has earned, in cobblestones."""

    release: str
    """GridBot's release at the server, as in `0.1.0`: a client may be older."""


class JoinedClient(ClientIdentity):
    """`POST /clients`: the only time that the token is shown."""

    token: str
    receipt: str
    """With this it joins again a server that was restored from an older backup; none for pilots."""

    owner_keys: list[str]
    """Fingerprints of the owner's signing keys, for whoever joins with a key of their own."""


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

    proof: str | None = None
    """That the job belongs to the signed BOT: base64.  None for the job of a range."""


class SentManifest(ResponseModel):
    """A manifest, byte for byte as it was signed."""

    text: str
    signature: str | None
    """The project key's, Ed25519, base64; null if it has not signed."""

    owner_signature: str | None
    """That of the manifest's owner key; null if it has not signed."""

    project_key: str | None
    """The key that made `signature`: base64."""

    introductions: list[SentIntroduction]
    """How older keys lead to those that signed."""


class SentPreferences(ResponseModel):
    """What the account prefers on this machine."""

    version: int
    texts: dict[str, str]
    """By name, as `gridbot client prefs` takes them."""


class WorkAnswer(ResponseModel):
    """`POST /rpc`.  The engine renders it by itself; tests hold it against this model."""

    protocol: Literal[1, 2]
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

    preferences: SentPreferences | None = None
    """If the client follows the account's and has another version of them."""

    call_back: list[ReplicaName] | None = None
    """Replicas to return, unless they have begun: others are more urgent."""

    follow: list[Annotated[list[int | str], Field(min_length=5, max_length=5)]] | None = None
    """BOT, job, number, `stdout` or `stderr`, and the offset from which on that is to be sent."""


class GangState(ResponseModel):
    """What a gang does that a replica belongs to."""

    state: Literal["gathering", "started", "over"]
    """`over`: the replica is to be dropped, the client's lease is gone."""

    members: list[str]
    """Addresses of all members, in the order of their jobs, once they have started."""


class LatestCheckpoint(ResponseModel):
    """The checkpoint with which a replica begins; without one, all is null."""

    number: int | None = None
    sha256: str | None = None
    size: int | None = None
    """Bytes."""
