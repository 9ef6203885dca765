"""The ads that policies see: which attributes each carries, and how they are nested.

The tables below are the one list of attribute names; whatever publishes an ad
fills these, and hints about misspelt names come from them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from gridbot_policies.classad import UNDEFINED, Record, record
from gridbot_policies.classad.compiler import Layer, Layout, Meter

HOST_ATTRIBUTES: Mapping[str, str] = MappingProxyType(
    {
        "Name": "the machine's own name",
        "Owner": "who runs the client there",
        "NumCpus": "processor cores that the client may use",
        "Memory": "memory that the client may use, MB",
        "Disk": "free disk that the client may use, MB",
        "NumNodes": "machines that have these together, more than 1 for pilots of several nodes",
        "OpSys": "operating system, such as LINUX",
        "Arch": "processor architecture, such as X86_64",
        "Platform": "system and architecture in one word, such as linux-x86_64",
        "NumGpus": "GPUs that the client may use; undefined where there are none",
        "FreeGpus": "those that none of its replicas has; undefined for stock BOINC clients",
        "IsPilot": "true where the overlay started the client in a grid's queue",
        "IsGuest": "true where the host works while its own server leaves it idle",
        "IsDedicated": "true where nobody else's work preempts ours",
        "Venue": "home, work or school, where its owner says so",
        "Grid": "the grid it belongs to; undefined for a volunteer's machine",
        "ClientVersion": "version of the client",
        "PythonVersion": "version of the Python under which the client runs, such as 3.11",
        "CpuModel": "processor model",
        "Flops": "measured floating point operations per second and core",
        "JobsToday": "replicas that it returned successfully today",
        "ErrorRate": "share of its recent replicas that failed or expired, 0 to 1",
        "MeanTurnaround": "mean time from sending a replica to its report, s",
        "RecentCpuTime": "CPU time recently spent on successful replicas, s",
        "Running": "replicas that it holds now",
        "Width": "replicas that it may have in progress or unjudged among strangers'",
        "TimeLeft": "time until the grid ends the pilot, s; undefined for others",
        "LoadAvg": "its load over the last minute, our own jobs included",
        "ClockMin": "minutes since midnight, by its clock",
        "ClockDay": "day of the week by its clock, 0 = Sunday",
        "OnBattery": "true where no mains feed it; undefined for machines without a battery",
        "Suspended": "true while its owner's preferences keep what it has from running",
        "Containers": "runtimes of containers that the host has, such as podman apptainer",
        "CachedMB": "what the host says that its cache holds of the BOT's inputs, MB; 0 if nothing",
        "Cached": "their hashes: Host.Has(hash) tells whether one is there",
        "UnfitFor": "beginnings of the ids of manifests whose environment the host could not make",
        "ManifestVersion": "latest version of manifests that the client knows; 2 if undefined",
        "SandboxLevel": "height of the walls around tasks: 0 none, 1 rules on files, network and"
        " calls, 2 namespaces beside, 3 a cgroup beside; 0 for stock BOINC clients",
        "Sandbox": "the same in words",
        "MinSandbox": "least level at which its owner lets work of others run",
        "Requirements": "text of its owner's policy; undefined where there is none",
        "IsBoinc": "true where a stock BOINC client asks",
        # What BOINC clients say beside.
        "Platforms": "all platforms whose programs it runs, in one text",
        "Wants": "what it asks for now, in one text: CPU, NVIDIA, ATI, intel_gpu",
        "CpuVendor": "maker of the processor",
        "CpuFeatures": "instruction sets of the processor, in one text",
        "CpuCache": "cache of the processor, KB",
        "IntOps": "measured integer operations per second and core",
        "DetectedCpus": "all cores, whatever the owner allows",
        "DetectedMemory": "all memory, MB",
        "Swap": "swap space, MB",
        "TotalDisk": "size of the disk, MB",
        "OpSysName": "the system's own name",
        "OpSysVersion": "version of the system",
        "Product": "model of the device",
        "VirtualBox": "version of VirtualBox; undefined without it",
        "Docker": "version of Docker; undefined without it",
        "HasWsl": "true where Windows runs Linux programs",
        "OnFraction": "share of the time in which the client runs, 0 to 1",
        "ActiveFraction": "share of that in which it may compute",
        "ConnectedFraction": "share of that with a network",
        "GpuActiveFraction": "share of that in which it may use GPUs",
        "Availability": "OnFraction * ActiveFraction",
        "BandwidthUp": "bytes per second to the network",
        "BandwidthDown": "bytes per second from the network",
        "NumNvidiaGpus": "GPUs of NVIDIA",
        "NumAmdGpus": "GPUs of AMD",
        "NumIntelGpus": "GPUs of Intel",
        "NumAppleGpus": "GPUs of Apple",
        "GpuVendor": "maker of the GPU that is described: NVIDIA, AMD, INTEL or APPLE",
        "GpuModel": "the fastest GPU's model; of native clients the one with most memory",
        "GpuMemory": "its memory, MB",
        "GpuFlops": "its floating point operations per second",
        "GpuDriver": "its driver's version",
        "GpuOpenCl": "its version of OpenCL",
        "CudaVersion": "its version of CUDA",
        "CudaCapability": "its compute capability",
    }
)

# Measured anew for each request, so that nobody keeps them.
LIVE_ATTRIBUTES = ("LoadAvg", "ClockMin", "ClockDay", "OnBattery", "TimeLeft", "Wants", "FreeGpus")

# What the server knows better than the host itself.
SERVER_SIDE_ATTRIBUTES = (
    "Owner", "Grid", "Venue", "IsPilot", "IsDedicated", "ErrorRate", "JobsToday", "MeanTurnaround",
    "RecentCpuTime", "Running", "Width", "CachedMB", "Cached",
)  # fmt: skip

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
        "Signed": "true where the project has signed what it runs",
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
        "SilentSeconds": "time since its client was heard of, s",
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


class Ads:
    """The ads of one evaluation: the host that asks, the BOT, the queue and the job.

    Without `job`, no replica of the job in question is in progress. `now` (s since
    1970) is the time that time functions see. No BOT or Job ad may have an attribute
    that is called like one of the ads.
    """

    __slots__ = ("_scope", "bot", "charged", "host", "job", "meter", "now", "queue", "steps")

    # A plain class, because one is made for each BOT and host request.
    def __init__(
        self,
        host: Record,
        bot: Record,
        queue: Record,
        job: Record | None = None,
        now: float | None = None,
    ) -> None:
        self.host = host
        self.bot = bot
        self.queue = queue
        self.job = _NO_REPLICAS if job is None else _complete_job(job)
        self.now = now
        self.charged = 0  # of the steps, to somebody's budget
        self.steps = 0  # that evaluations took among these ads, without those that are metered
        self.meter: Meter | None = None  # counts what functions took in compiled policies
        self._scope: Record | None = None

    @property
    def spent(self) -> int:
        """The steps that all evaluations among these ads have taken."""
        return self.steps if self.meter is None else self.steps + self.meter.spent

    @property
    def scope(self) -> Record:
        """The ads nested into each other, seen from inside the job: what encloses a policy."""
        if self._scope is None:
            held = {"queue": self.queue, "host": self.host, "target": self.host}
            outermost = Record(held, ("Queue", "Host", "Target"))
            self._scope = _job_scope(outermost, self.bot, self.job)
        return self._scope


class HostIsUnseen(Exception):
    """A policy looked at the host where none was shown to it."""


class _Unseen(Mapping[str, Any]):
    """Attributes that cannot be read."""

    def __getitem__(self, key: str) -> Any:
        raise HostIsUnseen(key)

    def __iter__(self) -> Iterator[str]:
        raise HostIsUnseen

    def __len__(self) -> int:
        raise HostIsUnseen


UNSEEN_HOST = Record(_Unseen(), ())
"""What stands for the host where it must not matter: a look at it raises HostIsUnseen."""


def grid_scope(grid: Record, bot: Record, queue: Record) -> Record:
    """Return what encloses a GridPolicy: as `Ads.scope`, with the grid where the host was."""
    held = {"queue": queue, "grid": grid, "target": grid}
    return _job_scope(Record(held, ("Queue", "Grid", "Target")), bot, _NO_REPLICAS)


def _job_scope(outermost: Record, bot: Record, job: Record) -> Record:
    """Return the scope [ outermost; BOT = [ …; Job = [ … ] ] ], seen from inside Job.

    Names are sought in the job, then the BOT, then outside: so `Tail`, `NumberOfReplicas`,
    `Job.Replica1.Host.ErrorRate` and `Host.NumCpus` all mean what the paper's Figure 3 means.
    """
    whole_bot = bot.holding("Job", job)
    return job.within(whole_bot.within(outermost.holding("BOT", whole_bot)))


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
        key: _complete_replica(value)
        for key, value in job.attributes.items()
        if isinstance(value, Record) and is_replica_name(key)
    }
    whole = _BLANK_JOB.overlaid(job)
    return Record({**whole.attributes, **replicas}, whole.names)


def _complete_replica(replica: Record) -> Record:
    host = replica.attributes.get("host")
    whole_host = _BLANK_REPLICA_HOST.overlaid(host) if isinstance(host, Record) else UNDEFINED
    whole = _BLANK_REPLICA.overlaid(replica)
    return Record({**whole.attributes, "host": whole_host}, whole.names)


def is_replica_name(name: str) -> bool:
    """Tell whether `name` is one of Replica1, Replica2 and so on."""
    return _REPLICA.fullmatch(name.lower()) is not None


def _is_job_attribute(name: str) -> bool:
    return name in _BLANK_JOB.attributes or is_replica_name(name)


_HOST = Layer("ads.host.attributes")
_QUEUE = Layer("ads.queue.attributes")
_JOB = Layer("ads.job.attributes", _is_job_attribute, frozenset(_BLANK_JOB.attributes))
_BOT = Layer("ads.bot.attributes")

LAYOUT = Layout(
    chain=(_JOB, _BOT),
    ads={
        "job": (_JOB, _BOT),
        "bot": (_BOT,),
        "queue": (_QUEUE,),
        "host": (_HOST,),
        "target": (_HOST,),
    },
)
"""Where a compiled policy finds in `Ads` what the walker finds in `Ads.scope`."""
