"""Describes a BOT to stock clients: its application, and the workunit of each replica.

Only the description is here, in BOINC's terms; the codec writes it.  Files are referenced by copy,
since a plain program finds a small text in the place of a file that is not copied.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType
from typing import Any, NamedTuple

from gridbot_client.protocol import boinc_api
from gridbot_client.protocol.messages import (
    MAX_BIGINT,
    MAX_NAME_BYTES,
    MAX_OUTPUTS,
    FileRef,
    Manifest,
    ProtocolError,
    ReplicaId,
    Scalar,
)
from gridbot_client.protocol.programs import HostProgram, Selector, choose
from gridbot_server.boinc.application import shim
from gridbot_server.boinc.application.shim import windows
from gridbot_server.boinc.application.signed import AppFile, script_of
from gridbot_server.boinc.protocol.names import boinc_platform
from gridbot_server.matching.stock_platforms import (
    is_wrapped_for_windows,
    served_platforms,
    stock_manifests,
    stock_platforms,
    stock_programs,
)
from gridbot_server.signing.stock_clients import Unsuitable

NameOf = Callable[[str], str]  # the name of a file with this SHA-256, for ever

# A nominal speed.  Sent with the version, it makes clients compute with the same seconds as we do,
# whatever their benchmarks say.
FLOPS = 1e9
# From 6.0 on, clients talk to programs through a file in the slot, where the shim reads.
API_VERSION = "7.20.0"
# The shim enforces the time limit itself, with a native client's reason; the client's limit is
# for a machine where the shim cannot.
_TIME_SLACK = 2.0
_TIME_SLACK_SECONDS = 3600.0
# What the shim writes into the slot beside the command's files.
_SHIM_BYTES = 1 << 20
_BUNDLE_BYTES = 64 + MAX_OUTPUTS * (MAX_NAME_BYTES + 24)

# Arguments whose JSON is no longer fit any client's command line, even if each byte takes five.
SURELY_FITS_BYTES = 1000

# Names that hold none of the words by which clients look for a vendor's library.
PLAN_CLASSES: Mapping[str, str] = {
    "gpu_nvidia": "NVIDIA",
    "gpu_amd": "ATI",
    "gpu_intel": "intel_gpu",
}


@dataclass(frozen=True, slots=True)
class App:
    """All BOTs of one owner: newer versions let clients drop the files of older ones."""

    name: str
    user_friendly_name: str


@dataclass(frozen=True, slots=True)
class FileUse:
    """A `file_ref`: a file under its name in the slot, by copy unless it is the main program."""

    file_name: str
    open_name: str = ""
    main_program: bool = False
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Coproc:
    """Processors of one kind that a version needs."""

    type: str
    count: int


@dataclass(frozen=True, slots=True)
class AppVersion:
    """One BOT on one platform; its number is the BOT's."""

    app_name: str
    version_num: int
    platform: str
    files: tuple[FileUse, ...]
    avg_ncpus: float
    plan_class: str = ""
    coproc: Coproc | None = None
    flops: float = FLOPS
    api_version: str = API_VERSION


class Variant(NamedTuple):
    """One of a BOT's programs: what a client runs that is given it, and the files it then needs."""

    program: HostProgram
    manifest: Manifest
    version: AppVersion
    files: tuple[AppFile, ...]


@dataclass(frozen=True, slots=True)
class Application:
    """What a client must know of a BOT before its first job."""

    app: App
    files: tuple[AppFile, ...]
    versions: tuple[AppVersion, ...]
    variants: tuple[Variant, ...] = ()  # of a BOT with several programs

    def variant_for(self, host: Mapping[str, Any]) -> Variant | None:
        """The program for a host, by its ad; None for none, or of a BOT without a table."""
        chosen = choose([item.program for item in self.variants], host)
        return next((item for item in self.variants if item.program is chosen), None)

    def files_of(self, version: AppVersion) -> tuple[AppFile, ...]:
        """What a client must have for a version."""
        own = (item.files for item in self.variants if item.version is version)
        return next(own, self.files)

    def version_for(
        self, platforms: Sequence[str], coprocs: Collection[str] = ()
    ) -> AppVersion | None:
        """The version for a client, in the order of the platforms it names; None for none."""
        for platform in platforms:
            for version in self.versions:
                has_gpu = version.coproc is None or version.coproc.type in coprocs
                if version.platform == platform and has_gpu:
                    return version
        return None


@dataclass(frozen=True, slots=True)
class JobFile:
    """A job's own file; unlike the application's files it has no signature."""

    sha256: str
    md5: str
    size: int
    open_name: str  # in the slot


@dataclass(frozen=True, slots=True)
class UploadTerms:
    """A file that a replica uploads, of at most so many bytes."""

    open_name: str  # in the slot
    max_nbytes: int
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Terms:
    """What the replicas of a BOT that one client is sent have in common.

    Estimate and limit in operations, memory and disk in bytes.
    """

    version: AppVersion
    rsc_fpops_est: float
    rsc_fpops_bound: float
    rsc_memory_bound: float
    rsc_disk_bound: float
    uploads: tuple[UploadTerms, ...]


class Workunit(NamedTuple):
    """One replica for a stock client; `name` is what the client calls both it and its workunit."""

    name: str
    command_line: str
    inputs: tuple[JobFile, ...] = ()


class JobInstance(NamedTuple):
    """The replica that `workunit` is to describe, under its name at clients.

    `md5s` has, by SHA-256, the MD5 of the job's own inputs.
    """

    id: ReplicaId
    name: str
    args: Mapping[str, Scalar]
    inputs: Sequence[FileRef] = ()
    md5s: Mapping[str, str] = MappingProxyType({})


def describe(
    manifest: Manifest, bot: int, files: Sequence[tuple[AppFile, ...]], name_of: NameOf
) -> Application:
    """The application of a BOT whose files are signed.

    `files` are those of each of `stock_manifests`, the main program first, then the others.
    """
    app = App(_app_name(manifest), f"GridBot: {manifest.owner}")
    needed = tuple({file.sha256: file for file in chain(*files)}.values())
    if manifest.programs:
        variants = tuple(_variants(manifest, app, bot, files, name_of))
        return Application(app, needed, tuple(item.version for item in variants), variants)
    uses, resources = _uses(manifest, files[0], name_of), manifest.resources
    classes: Mapping[str, str] = PLAN_CLASSES if resources.gpus else {"": ""}
    versions = tuple(
        AppVersion(
            app.name,
            bot,
            platform,
            uses,
            resources.cpus,
            plan_class,
            Coproc(kind, resources.gpus) if kind else None,
        )
        for platform in platforms(manifest)
        for plan_class, kind in classes.items()
    )
    return Application(app, needed, versions)


def _uses(manifest: Manifest, files: Sequence[AppFile], name_of: NameOf) -> tuple[FileUse, ...]:
    return (
        FileUse(name_of(files[0].sha256), main_program=True),
        *(
            FileUse(name_of(file.sha256), open_name)
            for file, open_name in zip(files[1:], _signed_inputs(manifest), strict=True)
        ),
    )


def _variants(
    manifest: Manifest,
    app: App,
    bot: int,
    files: Sequence[tuple[AppFile, ...]],
    name_of: NameOf,
) -> Iterator[Variant]:
    programs = stock_programs(manifest.programs, stock_platforms(manifest))
    for number, (program, own) in enumerate(zip(programs, files, strict=True), 1):
        run, needed = manifest.running(program), program.selector
        limits = run.resources
        version = AppVersion(
            app.name,
            bot,
            boinc_platform(needed.platform),
            _uses(run, own, name_of),
            limits.cpus,
            _class_of(needed, number),
            Coproc(PLAN_CLASSES[f"gpu_{needed.gpu}"], limits.gpus) if needed.gpu else None,
        )
        yield Variant(program, run, version, own)


def _class_of(needed: Selector, number: int) -> str:
    """A plan class that no other program of the BOT has: clients tell versions apart by it."""
    kind = f"gpu_{needed.gpu}" if needed.gpu else "mt" if needed.cpus > 1 else "cpu"
    return f"{kind}_{number}"


def platforms(manifest: Manifest) -> tuple[str, ...]:
    """BOINC's names of the platforms that a manifest allows; Unsuitable when there is none."""
    found = stock_platforms(manifest)
    if not found:
        raise Unsuitable(
            f"no stock client is served on {' or '.join(manifest.platforms)},"
            f" only on {', '.join(served_platforms(manifest))}"
        )
    return tuple(map(boinc_platform, found))


def check_manifest(manifest: Manifest) -> None:
    """Raise Unsuitable when stock clients cannot run a manifest's jobs, whatever these are."""
    if manifest.sources:
        raise Unsuitable(
            "its inputs come from URLs, and stock clients check files by MD5, not by the SHA-256"
            " that its signature covers"
        )
    platforms(manifest)
    for run in stock_manifests(manifest):
        script_of(run)


def check_job(manifest: Manifest, args: Mapping[str, Scalar], inputs: Sequence[FileRef]) -> None:
    """Raise Unsuitable when stock clients cannot run a job, whatever its number will be."""
    longest = ReplicaId(MAX_BIGINT, MAX_BIGINT, 2**31 - 1)
    for ref in inputs:
        _check_input(ref)
    for run in stock_manifests(manifest):
        if is_wrapped_for_windows(run):
            windows.check_names(chain(windows.file_names(run), (ref.name for ref in inputs)))
        _command_line(run, longest, args, inputs)


def terms(manifest: Manifest, version: AppVersion, expected_seconds: float | None = None) -> Terms:
    """On what terms a version runs the replicas of its BOT; without an estimate as long as it may.

    Where no shim holds the limits of time and disk, the client does.
    """
    resources = manifest.resources
    expected = min(expected_seconds or resources.seconds, resources.seconds)
    longest, disk = resources.seconds, resources.disk_mb << 20
    if not manifest.boinc_api:
        longest = longest * _TIME_SLACK + _TIME_SLACK_SECONDS
        # Of the outputs, while they are gathered.
        copied = min(disk, manifest.max_output_bytes)
        # The inputs once more, and two checkpoints while one replaces the other.
        saved = disk + 2 * copied if manifest.checkpoint else 0
        disk += copied + saved + _SHIM_BYTES
    return Terms(
        version,
        expected * FLOPS,
        longest * FLOPS,
        float(resources.memory_mb << 20),
        float(disk),
        uploads(manifest),
    )


def uploads(manifest: Manifest) -> tuple[UploadTerms, ...]:
    """The files that a replica uploads, in the order of their numbers.

    The shim makes one of all outputs, since each costs a client two seconds; a program that is made
    for BOINC's API leaves each where it was told.
    """
    most = manifest.max_output_bytes
    if manifest.boinc_api:
        return tuple(UploadTerms(name, most) for name in manifest.outputs)
    if not manifest.outputs:
        return ()
    bundled = 0 if shim.single_output(manifest) else _BUNDLE_BYTES
    return (UploadTerms(shim.OUTPUT, most + bundled, shim.may_lack_output(manifest)),)


def output_of(manifest: Manifest, number: int) -> str | None:
    """The output that is uploaded under a number as it is; None for a bundle of several."""
    return manifest.outputs[number] if manifest.boinc_api else shim.single_output(manifest)


def workunit(manifest: Manifest, instance: JobInstance) -> Workunit:
    """Describe one replica; raise Unsuitable when its arguments or files are not for BOINC."""
    line = _command_line(manifest, instance.id, instance.args, instance.inputs)
    own = zip(instance.inputs, _own_inputs(manifest, instance.inputs), strict=True)
    files = (_own_input(ref, instance.md5s, open_name) for ref, open_name in own)
    return Workunit(instance.name, line, tuple(files))


def _command_line(
    manifest: Manifest, id: ReplicaId, args: Mapping[str, Scalar], inputs: Sequence[FileRef]
) -> str:
    if manifest.boinc_api:
        try:
            boinc_api.check_job(manifest, args, inputs)
            return boinc_api.command_line(manifest, args)
        except ProtocolError as error:
            raise Unsuitable(str(error)) from None
    return shim.command_line(manifest, id, args, [ref.name for ref in inputs])


def _signed_inputs(manifest: Manifest) -> Sequence[str]:
    """Under which names a BOT's files are in a slot, its main program left out."""
    if manifest.boinc_api:
        return [ref.name for ref in boinc_api.others(manifest)]
    return [shim.SIGNED_INPUT.format(number) for number in range(len(manifest.inputs))]


def _own_inputs(manifest: Manifest, inputs: Sequence[FileRef]) -> Sequence[str]:
    """Under which names a job's own files are in a slot."""
    if manifest.boinc_api:
        return [ref.name for ref in inputs]
    return [shim.OWN_INPUT.format(number) for number in range(len(inputs))]


def _app_name(manifest: Manifest) -> str:
    return f"gridbot_{manifest.owner}"


def _check_input(ref: FileRef) -> None:
    if ref.executable:
        raise Unsuitable(
            f"a job's input {ref.name} is a program, and stock clients run signed"
            " ones only: make it an input of the whole BOT"
        )


def _own_input(ref: FileRef, md5s: Mapping[str, str], open_name: str) -> JobFile:
    _check_input(ref)
    return JobFile(ref.sha256, md5s[ref.sha256], ref.size, open_name)
