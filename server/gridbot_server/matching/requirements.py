"""What a BOT needs of a host, whatever policies say: one list, for dispatch and explanations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from gridbot_client.protocol.manifest import with_program
from gridbot_client.protocol.messages import Manifest, Resources, manifest_id
from gridbot_client.protocol.programs import MAKERS, HostProgram, choose, places
from gridbot_client.protocol.software import runtimes_of
from gridbot_server.matching.stock_platforms import stock_programs

# A stock client runs a job on the GPUs of one maker; these are served.
_STOCK_GPUS = {"NVIDIA": "NumNvidiaGpus", "ATI": "NumAmdGpus", "intel_gpu": "NumIntelGpus"}


class Work(Protocol):
    """A BOT as far as its needs go."""

    @property
    def owner(self) -> int:
        """Who submitted it."""

    @property
    def manifest_version(self) -> int:
        """Form of its manifest: 1, or 2 if the signature covers its jobs."""

    @property
    def manifest_id(self) -> str:
        """Hash of its manifest."""

    @property
    def image(self) -> str:
        """Image of the containers in which it runs; "" if it needs none."""

    @property
    def signed(self) -> bool:
        """Whether the project has signed it."""

    @property
    def owner_signed(self) -> bool:
        """Whether its owner has signed it."""

    @property
    def resources(self) -> Resources:
        """What one replica may use."""

    @property
    def platforms(self) -> Sequence[str]:
        """Where native clients can run it; none: anywhere."""

    @property
    def programs(self) -> Sequence[HostProgram]:
        """For several platforms and kinds of hosts; none: one command for all."""

    @property
    def sandbox(self) -> int:
        """Least sandbox level that it asks for."""

    @property
    def stock_platforms(self) -> Sequence[str]:
        """Where stock BOINC clients can run it; none: it is not signed for them."""

    @property
    def together(self) -> int:
        """Jobs that run at the same time; 1: each for itself."""

    @property
    def boinc_api(self) -> bool:
        """Whether its program is made for BOINC's API."""

    @property
    def has_storage(self) -> bool:
        """Whether its outputs go to a storage of its owner's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestWork:
    """A BOT's needs as its manifest says them: a `Work` where the manifest is at hand."""

    owner: int
    signed: bool
    owner_signed: bool
    manifest: Manifest
    stock_platforms: Sequence[str] = ()  # where stock BOINC clients can run it
    has_storage: bool = False  # of its owner's, to which its outputs go

    @property
    def manifest_version(self) -> int:
        """Form of the manifest."""
        return self.manifest.version

    @property
    def manifest_id(self) -> str:
        """Hash of the manifest."""
        return manifest_id(self.manifest.text())

    @property
    def image(self) -> str:
        """Image of its containers."""
        return self.manifest.image

    @property
    def resources(self) -> Resources:
        """What one replica may use."""
        return self.manifest.resources

    @property
    def platforms(self) -> Sequence[str]:
        """Where native clients can run it; none: anywhere."""
        return self.manifest.platforms

    @property
    def programs(self) -> Sequence[HostProgram]:
        """For several platforms and kinds of hosts."""
        return self.manifest.programs

    @property
    def sandbox(self) -> int:
        """Least sandbox level that it asks for."""
        return self.manifest.walls.level

    @property
    def together(self) -> int:
        """Jobs that run at the same time."""
        return self.manifest.together

    @property
    def boinc_api(self) -> bool:
        """Whether its program is made for BOINC's API."""
        return self.manifest.boinc_api


class Worker(Protocol):
    """A client of a host."""

    @property
    def owner(self) -> int:
        """Who runs it."""

    @property
    def accepts(self) -> Sequence[int]:
        """Owners whom a pilot serves, or whose unsigned commands a client of protocol 1 runs."""

    @property
    def trusts(self) -> Sequence[int]:
        """Owners whose signatures it trusts, its own among them; for clients of protocol 2."""

    @property
    def protocol(self) -> int:
        """Version of the protocol that it speaks."""

    @property
    def attributes(self) -> Mapping[str, Any]:
        """The host's ad."""


@dataclass(frozen=True, slots=True)
class Lack:
    """What keeps a BOT from a host: a word for its kind, and words for people."""

    # boinc (api, platform, processor), grid, trust, platform, sandbox, client, gang, or a
    # resource's
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource of which a host must have as much as a replica may use."""

    kind: str  # the option of `gridbot submit`, too
    field: str  # of Resources
    attribute: str  # of the host
    unit: str
    units: str

    def words(self, amount: object) -> str:
        """Amount with its unit."""
        return f"{amount} {self.unit if str(amount) == '1' else self.units}"

    def offered(self, host: Mapping[str, Any]) -> int | float | None:
        """Return how much a host has; None if it does not say."""
        if self.kind != "gpus":
            return number(host.get(self.attribute))
        if is_stock(host):
            return max(number(host.get(name)) or 0 for name in _STOCK_GPUS.values())
        # Unlike the rest, a GPU is something that few hosts have: silence means none.
        return number(host.get(self.attribute)) or 0


TOO_OLD = (
    "the client is too old for the BOT's exit codes, environment, standard input, directories,"
    " checkpoints, programs or inputs from URLs: update it"
)

NOT_WANTED = "the client asks for work for other processors now"

# Clients send outputs past the server since before they know manifests of this version.
_SENDS_ELSEWHERE = 7
STAYS_HERE = "the client is too old to send outputs to a storage of the BOT's owner: update it"

UNVERIFIABLE = "the client is too old to check the BOT's signatures: update it"

NOT_AT_HOME = "jobs that run together are for machines whose owners trust the BOT's"

ONLY_STOCK = "the BOT's program is made for BOINC's API: only BOINC clients run it"

UNFIT = "the host could not make the BOT's environment: gridbot bot logs says why"
_NUMBER = (int, float)  # a union would be made anew for each look
_ID_CHARACTERS = 16  # of manifests' ids, in a host's ad

RESOURCES = (
    Resource("cpus", "cpus", "NumCpus", "CPU", "CPUs"),
    Resource("memory", "memory_mb", "Memory", "MB memory", "MB memory"),
    Resource("disk", "disk_mb", "Disk", "MB disk", "MB disk"),
    Resource("gpus", "gpus", "NumGpus", "GPU", "GPUs"),
)


def is_stock(host: Mapping[str, Any]) -> bool:
    """Tell whether the host's ad is that of a stock BOINC client."""
    return host.get("IsBoinc") is True


def obstacle(worker: Worker, work: Work) -> str | None:
    """Return the first requirement that a host fails, in words; None if it meets all."""
    first = next(lacks(worker, work), None)
    return first.text if first else None


def lacks(worker: Worker, work: Work) -> Iterator[Lack]:
    """Yield all requirements that a host fails, policies excepted.

    A host that does not report a resource is assumed to have enough of it: its own client refuses
    replicas that do not fit.
    """
    host, program = worker.attributes, program_for(worker, work)
    resources = with_program(work.resources, program)
    if is_stock(host):
        yield from _stock_lacks(host, work, program)
    else:
        yield from _native_lacks(worker, work, program, resources)
    if why := _weakness(worker, work):
        yield Lack("sandbox", why)
    if work.image and not is_stock(host) and not _has_runtime(host, work.image):
        yield Lack("containers", no_runtime(work.image))
    if (unfit := host.get("UnfitFor")) and _is_unfit(unfit, work):
        yield Lack("environment", UNFIT)
    for resource in RESOURCES:
        wanted = getattr(resources, resource.field)
        offered = _offered(resource, host, program) if wanted else None
        if offered is not None and offered < wanted:
            yield Lack(resource.kind, f"needs {resource.words(wanted)}")


def _offered(
    resource: Resource, host: Mapping[str, Any], program: HostProgram | None
) -> int | float | None:
    """Return how much a host has for a program: of GPUs, those of its maker."""
    if resource.kind == "gpus" and program is not None and program.selector.gpu:
        return number(host.get(MAKERS[program.selector.gpu].counted)) or 0
    return resource.offered(host)


def program_for(worker: Worker, work: Work) -> HostProgram | None:
    """Return which of a BOT's programs a host runs; None if it has none, or none for the host."""
    if not work.programs:
        return None
    if is_stock(worker.attributes):
        return choose(stock_programs(work.programs, work.stock_platforms), worker.attributes)
    may_use_gpus = _is_at_home(worker, work) and not work.image
    return choose(work.programs, worker.attributes, may_use_gpus=may_use_gpus)


def resources_on(worker: Worker, work: Work) -> Resources:
    """Return what a replica may use on a host."""
    return with_program(work.resources, program_for(worker, work))


def no_runtime(image: str) -> str:
    """Say that a host cannot run a BOT's image."""
    wanted = " or ".join(name.capitalize() for name in runtimes_of(image))
    return f"the BOT runs in containers of {image}, and the host has no {wanted}"


def _has_runtime(host: Mapping[str, Any], image: str) -> bool:
    there = host.get("Containers")
    return isinstance(there, str) and not {*runtimes_of(image)}.isdisjoint(there.split())


def _is_unfit(unfit: object, work: Work) -> bool:
    """Whether the host has tried, and says that it cannot provide what the BOT shares."""
    return isinstance(unfit, str) and work.manifest_id[:_ID_CHARACTERS] in unfit.split()


def distrust(worker: Worker, work: Work) -> str | None:
    """Say why a native client would refuse the BOT for its signatures; None if it would not.

    The client decides by itself, from the keys that its user pinned.  This keeps jobs from clients
    that would only send them back.
    """
    if work.manifest_version == 1:
        if worker.protocol > 1:
            return "submitted before signatures covered jobs: submit it again"
        is_own = work.owner == worker.owner or work.owner in worker.accepts
        return (
            None if work.signed or is_own else "unsigned, and the client does not accept its owner"
        )
    if worker.protocol == 1:
        return UNVERIFIABLE
    if work.signed or (work.owner_signed and work.owner in worker.trusts):
        return None
    if not work.owner_signed:
        return "nobody has signed it"
    return "not signed by the project, and the client does not trust its owner's key"


def _weakness(worker: Worker, work: Work) -> str | None:
    """Say that a host's sandbox is too weak; None if it is not, or the host does not say.

    Its own client would refuse the BOT, and strangers' work below what the machine's owner asks.
    """
    host = worker.attributes
    level, wanted = number(host.get("SandboxLevel")), work.sandbox
    if level is None:
        return None
    if not (_is_trusted(worker, work) or is_stock(host) or host.get("Grid") is not None):
        wanted = max(wanted, 1, int(number(host.get("MinSandbox")) or 0))
    return f"needs sandbox level {wanted}, the host has {level}" if level < wanted else None


def _is_trusted(worker: Worker, work: Work) -> bool:
    """Whether the machine's owner trusts the BOT's: it runs there as the owner's own work."""
    return work.owner_signed and work.owner in worker.trusts


def _is_at_home(worker: Worker, work: Work) -> bool:
    """Whether a host does what only those ask for whom its owner trusts."""
    return worker.attributes.get("Grid") is not None or _is_trusted(worker, work)


def _native_lacks(
    worker: Worker, work: Work, program: HostProgram | None, wanted: Resources
) -> Iterator[Lack]:
    if work.boinc_api:
        yield Lack("boinc api", ONLY_STOCK)
    # A pilot serves only the owners for whom it was submitted (paper section 8).
    if worker.attributes.get("Grid") is not None and work.owner not in worker.accepts:
        yield Lack("grid", "the pilot was not submitted on behalf of its owner")
    elif why := distrust(worker, work):
        yield Lack("trust", why)
    if work.programs:
        if program is None:
            yield Lack("platform", _needs_platform(places(work.programs)))
    elif work.platforms and worker.attributes.get("Platform") not in work.platforms:
        yield Lack("platform", _needs_platform(work.platforms))
    manifest_version = number(worker.attributes.get("ManifestVersion")) or 2
    if work.manifest_version > manifest_version:
        yield Lack("client", TOO_OLD)
    elif work.has_storage and manifest_version < _SENDS_ELSEWHERE:
        yield Lack("client", STAYS_HERE)
    if wanted.gpus and work.image:
        yield Lack("containers", "containers get no GPUs")
    is_at_home = _is_at_home(worker, work)
    if wanted.gpus and not is_at_home:
        yield Lack("gpus", "GPUs are for work of those whom the machine's owner trusts")
    if work.together > 1 and not is_at_home:
        yield Lack("gang", NOT_AT_HOME)


def _stock_lacks(
    host: Mapping[str, Any], work: Work, program: HostProgram | None
) -> Iterator[Lack]:
    """Yield the requirements that a stock client fails; it reports all platforms that it runs."""
    if not work.stock_platforms:
        yield Lack("boinc", "not signed for BOINC clients")
    elif work.programs:
        programs = stock_programs(work.programs, work.stock_platforms)
        if program is None and choose(programs, anything_wanted(host)):
            yield Lack("boinc processor", NOT_WANTED)
        elif program is None:
            yield Lack("boinc platform", _needs_platform(places(programs)))
    elif not set(work.stock_platforms) & set(str(host.get("Platforms", "")).split()):
        yield Lack("boinc platform", _needs_platform(work.stock_platforms))
    elif not _wants(host, work):
        yield Lack("boinc processor", NOT_WANTED)


def anything_wanted(host: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the ad of a stock client as if it asked for all kinds of work."""
    return {name: value for name, value in host.items() if name != "Wants"}


def _wants(host: Mapping[str, Any], work: Work) -> bool:
    """True if the client asks for work of this kind; outside a request, it may."""
    asked = host.get("Wants")
    if asked is None:
        return True
    kinds = str(asked).split()
    return any(kind in _STOCK_GPUS for kind in kinds) if work.resources.gpus else "CPU" in kinds


def _needs_platform(names: Iterable[str]) -> str:
    return f"needs platform {' or '.join(names)}"


def number(value: object) -> int | float | None:
    """Return what an ad says, if that is a number."""
    return value if isinstance(value, _NUMBER) else None
