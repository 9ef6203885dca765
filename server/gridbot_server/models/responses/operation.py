"""Health, hosts, owners and keys."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from gridbot_server.models.responses import Ad, ResponseModel


class Health(ResponseModel):
    """`GET /health`."""

    status: Literal["ok", "degraded"]
    """`degraded` when an operator must look after something."""

    trouble: str | None
    """What that is, for people."""

    version: str
    """Of the server."""

    project_key: str
    """The public key that signs for native clients: Ed25519, base64."""

    epoch: int
    """It rises when the database is restored from a backup."""

    bots_running: int
    """BOTs that have jobs left."""

    jobs_unsent: int
    """Replicas that wait to be sent."""

    jobs_undecided: int
    jobs_set_aside: int
    """Wake-ups that the transitioner has still to settle, up to 10,000."""

    replicas_running: int
    """Replicas in progress."""

    clients_active: int
    """Clients that asked for work in the last ten minutes."""

    inversions: int
    """Times that a BOT was passed over because its part of the buffer was dry."""


class Host(ResponseModel):
    """A machine."""

    id: int
    name: str | None
    """As it calls itself."""

    owner: str
    attributes: Ad
    """What the machine last said of itself."""

    venue: Literal["", "home", "work", "school"]
    """Where it stands, for policies."""

    banned_at: datetime | None
    """Since when it is banned."""

    banned_why: str
    """The reason that its clients are told."""

    clients: int
    """Clients on it that may ask for work."""

    seen_at: datetime | None
    """When one of them last asked for work."""

    silent_since: datetime | None
    """Since when all of them are silent: they hold replicas, and missed three contacts."""

    too_old: bool
    """Whether its clients cannot check signatures: they get no signed BOT before an update."""

    error_rate: float
    """Moving average of failed replicas among all, from 0 to 1."""

    mean_turnaround_seconds: float | None
    """Seconds from sending to a valid report, on average."""

    jobs_today: int
    """Valid replicas of this day."""

    recent_cpu_seconds: float
    """CPU seconds that gave valid outputs, decaying by e a day."""

    credit: float
    """Credit earned, in cobblestones."""

    recent_credit: float
    """Credit a day, decaying."""

    replicas_running: int
    """Replicas that its clients hold."""

    answers_right: int
    """Answers with which those of other owners' machines agreed."""

    answers_wrong: int
    """Answers that were outvoted."""

    answers_unchecked: int
    """Answers and replicas in progress for strangers that nobody has judged yet, or for good."""

    width: float
    """Replicas of strangers' BOTs that it may have in progress or unjudged."""


class Hosts(ResponseModel):
    """`GET /hosts`: the latest seen first."""

    hosts: list[Host]


class ChangedHost(ResponseModel):
    """`PATCH /hosts/ID`."""

    id: int
    venue: Literal["", "home", "work", "school"]


class BannedHost(ResponseModel):
    """`PUT /hosts/ID/ban`."""

    id: int
    banned_at: datetime
    banned_why: str
    replicas: int
    """Replicas that were taken back from it now."""


class UnbannedHost(ResponseModel):
    """`DELETE /hosts/ID/ban`."""

    id: int
    banned_at: None


class ForgottenHost(ResponseModel):
    """`DELETE /hosts/ID/replicas`."""

    id: int
    replicas: int
    """Replicas that it had, whose jobs go to others."""


class AddedOwner(ResponseModel):
    """`POST /owners`."""

    name: str
    operator: bool
    """Whether it may have keys of that scope."""

    share: float
    """How hosts are divided among owners: twice the share, twice the hosts."""

    max_jobs: int
    """Quota: jobs in unfinished BOTs."""

    may_compare: bool
    """Whether comparisons of the owner's own (`command:`) run on this server."""

    created_at: datetime


class Owner(AddedOwner):
    """A person who may submit."""

    credit: float
    """Credit that the hosts of this owner earned, in cobblestones."""

    recent_credit: float
    """Credit a day, decaying."""


class Owners(ResponseModel):
    """`GET /owners`: by name."""

    owners: list[Owner]


class TokenInfo(ResponseModel):
    """A key, without the secret."""

    id: int
    owner: str
    scope: Literal["operator", "user", "account", "join", "pilot", "metrics"]
    label: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None

    uses: int | None
    """Machines that may join with it; none: any number."""

    machines: int
    """Machines that have joined with it."""


class Tokens(ResponseModel):
    """`GET /tokens`: the oldest first."""

    tokens: list[TokenInfo]


class NewKey(ResponseModel):
    """`POST /tokens`, `POST /overlay/tokens`: the only time that the key is shown."""

    id: int
    """What revokes it."""

    token: str
    """The key."""


class LoginLink(ResponseModel):
    """`POST /console/links`."""

    url: str
    """Lets the browser that opens it first into the console, once, within five minutes."""


class IssuedInvitation(ResponseModel):
    """`POST /invitations`: the only time that the key is shown."""

    id: int
    """What revokes it."""

    token: str
    """The key."""

    owner: str
    """For whom machines join with it."""

    owner_keys: list[str]
    """Fingerprints of the keys that sign the owner's BOTs."""

    uses: int
    """Machines that may join with it."""

    expires_at: datetime


class RevokedToken(ResponseModel):
    """`DELETE /tokens/ID`."""

    id: int
    revoked: Literal[True]
    clients_ended: int
    """Clients that were ended with it."""

    clients_left: int
    """Clients that joined with it and go on working."""
