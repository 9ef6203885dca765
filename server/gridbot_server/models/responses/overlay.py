"""What the overlay's constructor hears: demand, and how pilots fare."""

from __future__ import annotations

from gridbot_server.models.responses import Ad, ResponseModel


class BotDemand(ResponseModel):
    """What one unfinished BOT could use now."""

    bot: int
    name: str
    owner: str
    is_operator: bool
    """Whether its owner is an operator."""

    share: float
    """Its owner's share of the hosts."""

    unsent: int
    """Replicas that wait to be sent."""

    dedicated: int
    """Replicas among them that only dedicated hosts may have."""

    on_pilots: dict[str, int]
    """Replicas that run on pilots, by grid."""

    seconds: float | None
    """Seconds from sending to a valid report, on average."""

    run_seconds: float | None
    """What 95 of 100 replicas run at most; before any has ended, the time limit that was given."""

    cut_off_seconds: float | None
    """What the longest replica had run that its pilot's end cut off; null until two were."""

    cpus: int
    """Cores of one replica."""

    memory_mb: int
    """MB of one replica."""

    gpus: int
    """GPUs of one replica."""

    policy: str
    ad: Ad
    """The BOT's ad, as policies see it."""


class NotedRefusals(ResponseModel):
    """`POST /overlay/refusals`."""

    bots: int
    """How many are refused by some grid."""


class Demand(ResponseModel):
    """`GET /overlay/demand`."""

    bots: list[BotDemand]
    queue: Ad
    """The queue's ad, as policies see it."""


class DemandVersion(ResponseModel):
    """`GET /overlay/demand/version`."""

    version: str
    """Another one whenever a BOT begins, grows, is held, gets another policy or ends."""


class PilotTally(ResponseModel):
    """A pilot of a grid."""

    pilot: str
    """What the overlay calls it."""

    client: int
    host: int
    host_name: str | None
    jobs: int
    """Replicas of it that were judged valid."""

    failures: int
    """Replicas of it that failed."""

    core_seconds: float
    """Seconds that replicas of it ran, times their cores."""

    error: str
    """What was said of the last failure; empty without any."""

    seen_seconds_ago: float
    """Seconds since it last asked for work."""

    running: int
    """Replicas that it holds."""

    ad: Ad
    """What its host last said of itself."""


class Pilots(ResponseModel):
    """`GET /overlay/pilots`: the latest first."""

    pilots: list[PilotTally]


class KeptLogs(ResponseModel):
    """`POST /overlay/logs`."""

    logs: int
    """How many were told."""


class PilotEnd(ResponseModel):
    """How a pilot ended, as its constructor told."""

    pilot: str
    grid: str
    native_id: str
    """What its batch system calls it."""

    node: str
    how: str
    """In the words of its batch system, or why the constructor cancelled it."""

    exit_code: int | None
    told_seconds_ago: float


class PilotEnds(ResponseModel):
    """`GET /overlay/logs`: the latest first."""

    logs: list[PilotEnd]


class PilotLog(PilotEnd):
    """`GET /overlay/logs/PILOT`."""

    words: str
    """The end of what it wrote to stderr."""


class Relinquished(ResponseModel):
    """`POST /overlay/pilots/ended`, `POST /clients/self/leave`."""

    replicas: int
    """Replicas that were taken back and go to other hosts."""


class GoodKeys(ResponseModel):
    """`POST /overlay/tags`."""

    keys: dict[str, int]
    """By tag of a submission: the number of its key that is neither revoked nor expired."""
