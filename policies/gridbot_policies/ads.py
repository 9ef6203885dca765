"""The ads that policies see: which attributes each carries, and how they are nested.

The tables below are the one list of attribute names; whatever publishes an ad
fills these, and hints about misspelt names come from them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from gridbot_policies.classad import UNDEFINED, Record, record

HOST_ATTRIBUTES: Mapping[str, str] = MappingProxyType(
    {
        "Name": "the machine's own name",
        "Owner": "who runs the client there",
        "NumCpus": "processor cores that the client may use",
        "Memory": "memory that the client may use, MB",
        "Disk": "free disk that the client may use, MB",
        "OpSys": "operating system, such as LINUX",
        "Arch": "processor architecture, such as X86_64",
        "IsPilot": "true where the overlay started the client in a grid's queue",
        "IsDedicated": "true where nobody else's work preempts ours",
        "Grid": "the grid it belongs to; undefined for a volunteer's machine",
        "ClientVersion": "version of the client",
        "CpuModel": "processor model",
        "Flops": "measured floating point operations per second and core",
        "JobsToday": "replicas that it returned successfully today",
        "ErrorRate": "share of its recent replicas that failed or expired, 0 to 1",
        "MeanTurnaround": "mean time from sending a replica to its report, s",
        "RecentCpuTime": "CPU time recently spent on successful replicas, s",
        "Running": "replicas that it holds now",
        "TimeLeft": "time until the grid ends the pilot, s; undefined for others",
    }
)

BOT_ATTRIBUTES: Mapping[str, str] = MappingProxyType(
    {
        "Id": "the BOT's number",
        "Name": "the BOT's name",
        "Owner": "who submitted it",
        "JobsTotal": "all its jobs",
        "JobsLeft": "jobs without an outcome yet",
        "JobsDone": "jobs that succeeded",
        "JobsFailed": "jobs given up",
        "JobsUnsent": "replicas waiting to be sent",
        "JobsRunning": "replicas in progress",
        "Tail": "true towards the end, when few of its replicas are left to send",
        "MeanTurnaround": "mean time from sending a replica to its success, s",
        "Age": "time since it was submitted, s",
    }
)

QUEUE_ATTRIBUTES: Mapping[str, str] = MappingProxyType(
    {
        "BOTsInQueue": "BOTs that have jobs left",
        "JobsInQueue": "replicas of all BOTs that wait to be sent",
    }
)

JOB_ATTRIBUTES: Mapping[str, str] = MappingProxyType(
    {
        "Name": "the job's name",
        "Age": "time since its first replica was sent, s",
        "NumberOfReplicas": "its replicas in progress now; Replica1, Replica2 … are their ads",
    }
)

REPLICA_ATTRIBUTES: Mapping[str, str] = MappingProxyType(
    {
        "Name": "the replica's name",
        "SentTime": "when it was sent, s since 1970",
        "Age": "time since it was sent, s",
        "Host": "ad of the host that holds it",
    }
)

REPLICA_HOST_ATTRIBUTES: Mapping[str, str] = MappingProxyType(
    {
        name: HOST_ATTRIBUTES[name]
        for name in (
            "Name",
            "Owner",
            "Grid",
            "IsPilot",
            "ErrorRate",
            "JobsToday",
            "MeanTurnaround",
        )
    }
)


@dataclass(frozen=True, slots=True)
class Ads:
    """The four ads of one evaluation, nested once so that all policies can share them.

    Without `job`, no replica of the job in question is in progress. `now` (s since
    1970) is the time that time functions see.
    """

    host: Record
    bot: Record
    queue: Record
    job: Record | None = None
    now: float | None = None
    scope: Record = field(init=False, repr=False, compare=False)  # what encloses the policies

    def __post_init__(self) -> None:
        outermost = Record({"queue": self.queue, "host": self.host}, ("Queue", "Host"))
        object.__setattr__(self, "scope", job_scope(outermost, self.bot, self.job))


def job_scope(outermost: Record, bot: Record, job: Record | None) -> Record:
    """Return the scope [ outermost; BOT = [ …; Job = [ … ] ] ], seen from inside Job.

    Names are sought in the job, then the BOT, then outside: so `Tail`, `NumberOfReplicas`,
    `Job.Replica1.Host.ErrorRate` and `Host.NumCpus` all mean what the paper's Figure 3 means.
    """
    whole_job = _NO_REPLICAS if job is None else _complete_job(job)
    whole_bot = bot.holding("Job", whole_job)
    return whole_job.within(whole_bot.within(outermost.holding("BOT", whole_bot)))


def _blank(attributes: Mapping[str, str]) -> Record:
    return record(dict.fromkeys(attributes))


# A name that an ad lacks is sought outwards: a replica without a Host would silently be
# judged by the host that asks, and one whose host has no MeanTurnaround by the BOT's.
# So these ads always carry all their names.
_BLANK_JOB = _blank(JOB_ATTRIBUTES)
_BLANK_REPLICA = _blank(REPLICA_ATTRIBUTES)
_BLANK_REPLICA_HOST = _blank(REPLICA_HOST_ATTRIBUTES)
_NO_REPLICAS = _BLANK_JOB.holding("NumberOfReplicas", 0)
_REPLICA = re.compile("replica[0-9]+")


def _complete_job(job: Record) -> Record:
    replicas = {
        name: _complete_replica(replica)
        for name, replica in zip(job.names, job.attributes.values(), strict=True)
        if is_replica_name(name) and isinstance(replica, Record)
    }
    return _BLANK_JOB.overlaid(job).overlaid(record(replicas))


def _complete_replica(replica: Record) -> Record:
    host = replica.get("Host")
    whole_host = _BLANK_REPLICA_HOST.overlaid(host) if isinstance(host, Record) else UNDEFINED
    return _BLANK_REPLICA.overlaid(replica).holding("Host", whole_host)


def is_replica_name(name: str) -> bool:
    """Tell whether `name` is one of Replica1, Replica2 and so on."""
    return _REPLICA.fullmatch(name.lower()) is not None
