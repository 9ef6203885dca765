"""The manifest of a BOT, which is hashed, signed and sent: command, inputs, limits, walls.

What single jobs add to it is signed apart, in parts of the job table: see `job_table`.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import posixpath
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

from gridbot_client.protocol import boinc_api, fields, software
from gridbot_client.protocol.checkpoints import CheckpointRule, read_rule
from gridbot_client.protocol.fields import MAX_BIGINT, ProtocolError, file_name
from gridbot_client.protocol.programs import HostProgram, check_programs, read_programs
from gridbot_client.protocol.software import Unpacked
from gridbot_client.protocol.sources import Sources, check_sources, read_sources

PLACEHOLDER_TYPES = ("int", "real", "text")
# Versions of manifests: those of version 1 name no BOT, and their jobs are not signed.  Later ones
# have fields that a client must know to run the jobs as they are meant; without them it is 2.
VERSION, EXTENDED, SHARING, NAMING, JOINING, SAVING, BOINC_API, CHOOSING = 2, 3, 4, 5, 6, 7, 8, 9
LATEST = FETCHING = 10
MAX_EXIT_CODE = 255
MAX_TOGETHER = 128  # jobs of a gang
ANY = "any"


class Later(NamedTuple):
    """A field that older clients do not know: its version, and its value if it says nothing."""

    version: int
    default: object


LATER: Mapping[str, Later] = {
    "exit_codes": Later(EXTENDED, (0,)),
    "environment": Later(EXTENDED, {}),
    "stdin": Later(EXTENDED, ""),
    "archives": Later(SHARING, {}),
    "requirements": Later(SHARING, ""),
    "conda_pack": Later(SHARING, ""),
    "image": Later(SHARING, ""),
    "output_names": Later(NAMING, {}),
    "together": Later(JOINING, 1),
    "checkpoint": Later(SAVING, None),
    "boinc_api": Later(BOINC_API, False),
    "programs": Later(CHOOSING, ()),
    "sources": Later(FETCHING, {}),
}
CLOCK_ERROR_SECONDS = 86_400  # by which the clocks of signer and machine may differ
DEFAULT_MAX_OUTPUT_BYTES = 64 << 20
MAX_WALLS = 4
_MOST_VARIABLES, _MOST_VALUE_BYTES = 200, 8192

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_OWN_VARIABLES = "GRIDBOT_"  # the client's; by one of them it finds the processes of a job
_PATTERN = re.compile(
    r"[A-Za-z0-9_*?][A-Za-z0-9._+=@%*?-]*"
    r"(/(?!\.\.?(/|$))[A-Za-z0-9_.*?][A-Za-z0-9._+=@%*?-]*)*"
)
_WILD_OR_STREAM = re.compile(r"[*?\[]|^stdout$|^stderr$")
_IDENTITY = re.compile(r"([0-9a-f]{32})?")
_KEY = re.compile(r"([0-9a-f]{64})?")


@dataclass(frozen=True, slots=True)
class FileRef:
    """A content-addressed file: its name in the slot directory, hash and size."""

    name: str
    sha256: str
    size: int
    executable: bool = False


@dataclass(frozen=True, slots=True)
class Resources:
    """Resource limits of one replica; clients enforce them, the server matches hosts by them."""

    cpus: int = 1
    memory_mb: int = 512
    disk_mb: int = 1024
    seconds: float = 86_400.0  # wall clock
    gpus: int = 0


def with_program(limits: Resources, program: HostProgram | None) -> Resources:
    """What a replica may use that runs one of several programs.

    One without `gpu=` uses no GPU, one with it as many as the BOT asks for, and one at least.
    """
    if program is None:
        return limits
    needed = program.selector
    gpus = max(1, limits.gpus) if needed.gpu else 0
    return replace(limits, cpus=needed.cpus or limits.cpus, gpus=gpus)


@dataclass(frozen=True, slots=True)
class JobInput:
    """Names that inputs of single jobs may have: a pattern in which * and ? stop at a slash.

    As in a shell they match no dot at the beginning of a part.
    """

    name: str
    executable: bool = False


@dataclass(frozen=True, slots=True)
class RequestedWalls:
    """The walls around a job that its owner asks for: their least level, and access to networks."""

    level: int = 0
    network: bool = False


class JobRange(NamedTuple):
    """Jobs whose only argument is `i` = start + seq * step, for `size` jobs."""

    start: int
    step: int
    size: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """Command of a BOT's replicas: argv template, typed placeholders, inputs, limits.

    Owner's and project's keys sign exactly `text()`; the manifest's id is its SHA-256.  No shell is
    involved: a placeholder is replaced inside one argument, by a value of its type.

    `project` is the fingerprint of the project's first key, `bot` the BOT's identity: 128 random
    bits in hex.  `owner_key` signs the job table; if it is empty the project's key does.  The
    signature is valid from `not_before` to `expires`, seconds since 1970.
    """

    owner: str
    command: tuple[str, ...]
    placeholders: Mapping[str, str] = field(default_factory=dict)  # name -> int, real or text
    inputs: tuple[FileRef, ...] = ()
    outputs: tuple[str, ...] = ("stdout",)  # names or glob patterns in the slot directory, filled
    resources: Resources = field(default_factory=Resources)
    max_output_bytes: int = DEFAULT_MAX_OUTPUT_BYTES  # all outputs of one replica together
    platforms: tuple[str, ...] = ()  # e.g. "linux-x86_64"; empty = any
    job_inputs: tuple[JobInput, ...] = ()
    range: JobRange | None = None  # None: the job table is signed in parts
    walls: RequestedWalls = field(default_factory=RequestedWalls)
    # Exit codes that are answers, "any" for all; a signal is none.
    exit_codes: tuple[int, ...] | str = (0,)
    environment: Mapping[str, str] = field(default_factory=dict)  # name -> template of its value
    stdin: str = ""  # template of the name of an input; empty: standard input is empty
    # Inputs that are archives of directories: jobs see what is in them, read-only, under the name.
    archives: Mapping[str, Unpacked] = field(default_factory=dict)
    requirements: str = ""  # input that pip installs from; what it makes is on the jobs' PATH
    conda_pack: str = ""  # archive that is an environment of conda; its programs are on the PATH
    # Outputs that come back under another name: both are templates (`output_names.py`).
    output_names: Mapping[str, str] = field(default_factory=dict)
    image: str = ""  # of a container, in which jobs run: its name, or an input that is an archive
    # So many words of the command start a program that may stay for further jobs (`residents.py` of
    # the client); 0: each job starts its own.  A client may always run the whole command instead.
    resident: int = 0
    # Consecutive jobs that are a gang: they run at the same time, or not at all.
    together: int = 1
    checkpoint: CheckpointRule | None = None
    boinc_api: bool = False  # the program is made for BOINC's API: only BOINC clients run it
    # For several platforms and kinds of hosts; command and platforms are then those of the table.
    programs: tuple[HostProgram, ...] = ()
    sources: Sources = field(default_factory=dict)  # where clients fetch inputs (`sources.py`)
    project: str = ""
    bot: str = ""
    owner_key: str = ""  # Ed25519, in hex
    not_before: int = 0
    expires: int = MAX_BIGINT
    version: int = VERSION

    def text(self) -> str:
        """Canonical JSON that is hashed, signed and sent.

        Later fields appear only if they say something; they, and names with dots that older clients
        refuse, make the version.
        """
        raw = {
            name: value
            for name, value in asdict(self).items()
            if name not in LATER and name != "resident"
        } | self.optional()
        raw |= {**self.later(), "version": max(self.version, self.least_version())}
        return json.dumps(raw, sort_keys=True, separators=(",", ":"))

    def optional(self) -> dict[str, Any]:
        """Fields that clients may ignore, if they say something."""
        return {"resident": self.resident} if self.resident else {}

    def later(self) -> dict[str, Any]:
        """Later fields that say something."""
        found = asdict(self)
        return {name: found[name] for name, later in LATER.items() if found[name] != later.default}

    def least_version(self) -> int:
        """The version that a client must know to run the jobs."""
        names = (*(ref.name for ref in self.inputs), *(item.name for item in self.job_inputs))
        has_dots = any("/." in name for name in names)
        later = (LATER[name].version for name in self.later())
        has_templates = any("{" in output for output in self.outputs)
        return max(
            SHARING if has_dots else VERSION, NAMING if has_templates else VERSION, *later, VERSION
        )

    @property
    def templates(self) -> tuple[str, ...]:
        """All in which placeholders are filled: of the command, the environment, the input."""
        return (*self.words, *self.environment.values(), self.stdin)

    @property
    def words(self) -> tuple[str, ...]:
        """Those of the command, or of the commands of all programs."""
        return tuple(word for item in self.programs for word in item.command) or self.command

    @property
    def program_names(self) -> frozenset[str]:
        """Names of the files that commands start, if they are inputs."""
        commands = [item.command for item in self.programs] or [self.command]
        return frozenset(posixpath.normpath(command[0]) for command in commands)

    def running(self, program: HostProgram) -> Manifest:
        """What a host runs that has chosen this program: a manifest without a table.

        Inputs of other programs are not there.
        """
        others = {name for item in self.programs for name in item.inputs} - {*program.inputs}
        return replace(
            self,
            command=program.command,
            inputs=tuple(ref for ref in self.inputs if ref.name not in others),
            archives={name: a for name, a in self.archives.items() if name not in others},
            platforms=(program.selector.platform,),
            resources=with_program(self.resources, program),
            programs=(),
        )

    def variants(self) -> tuple[Manifest, ...]:
        """What hosts run: the manifest, or one for each of its programs."""
        return tuple(map(self.running, self.programs)) or (self,)

    @property
    def files(self) -> tuple[FileRef, ...]:
        """Inputs that each job finds as files of its own."""
        others = {*self.archives, self.image}
        return tuple(ref for ref in self.inputs if ref.name not in others)

    def kept_for(self, ref: FileRef) -> str:
        """A shared input in the keys of what hosts make of it.

        One with sources is named by its owner, too, who need not have had it: others' copies of it
        are not shown to jobs.
        """
        return f"{ref.sha256} of {self.owner}" if ref.name in self.sources else ref.sha256

    @property
    def has_environment(self) -> bool:
        """True if hosts provide more than files of each job."""
        return bool(self.archives or self.requirements or self.image)

    def is_answer(self, exit_code: int) -> bool:
        """True if a program that exits so has given an answer, and has not failed."""
        if isinstance(self.exit_codes, str):
            return 0 <= exit_code <= MAX_EXIT_CODE
        return exit_code in self.exit_codes

    @classmethod
    def from_text(cls, text: str) -> Manifest:
        """Parse a manifest.  Raises ProtocolError that names the wrong field."""
        raw = fields.mapping(fields.parse(text), "manifest")
        version = fields.integer(raw, "version", 1, MAX_BIGINT, 1)
        for name in sorted(LATER.keys() & raw.keys()):
            if version < LATER[name].version:
                least = LATER[name].version
                raise ProtocolError(f"{name}: only manifests of version {least} have it")
        manifest = cls(
            owner=fields.string(raw, "owner", 200),
            command=tuple(
                fields.text(part, "command", 8192) for part in fields.listing(raw, "command", 1000)
            ),
            placeholders={
                fields.text(name, "placeholders", 100): fields.one_of(
                    kind, "placeholders", PLACEHOLDER_TYPES
                )
                for name, kind in fields.mapping(
                    raw.get("placeholders", {}), "placeholders"
                ).items()
            },
            inputs=tuple(file_ref(item) for item in fields.listing(raw, "inputs", 10_000)),
            outputs=tuple(
                fields.text(item, "outputs", 400) for item in fields.listing(raw, "outputs", 256)
            ),
            resources=resources(fields.mapping(raw.get("resources", {}), "resources")),
            max_output_bytes=fields.integer(raw, "max_output_bytes", 0, MAX_BIGINT),
            platforms=tuple(
                fields.text(item, "platforms", 100) for item in fields.listing(raw, "platforms", 20)
            ),
            job_inputs=tuple(job_input(item) for item in fields.listing(raw, "job_inputs", 100)),
            range=_job_range(raw.get("range")),
            walls=_walls(fields.mapping(raw.get("walls", {}), "walls")),
            exit_codes=_exit_codes(raw.get("exit_codes", [0])),
            environment=_environment(fields.mapping(raw.get("environment", {}), "environment")),
            stdin=fields.string(raw, "stdin", fields.MAX_NAME_BYTES, ""),
            archives=software.read_archives(fields.mapping(raw.get("archives", {}), "archives")),
            requirements=fields.string(raw, "requirements", fields.MAX_NAME_BYTES, ""),
            conda_pack=fields.string(raw, "conda_pack", fields.MAX_NAME_BYTES, ""),
            output_names=_output_names(raw),
            image=software.read_image(raw),
            resident=_resident(raw),
            together=fields.integer(raw, "together", 1, MAX_TOGETHER, 1),
            checkpoint=read_rule(raw),
            boinc_api=raw.get("boinc_api") is True,
            programs=read_programs(raw),
            sources=read_sources(fields.mapping(raw.get("sources", {}), "sources")),
            project=_hex(raw, "project", _KEY),
            bot=_hex(raw, "bot", _IDENTITY),
            owner_key=_hex(raw, "owner_key", _KEY),
            not_before=fields.integer(raw, "not_before", 0, MAX_BIGINT, 0),
            expires=fields.integer(raw, "expires", 0, MAX_BIGINT, MAX_BIGINT),
            version=version,
        )
        if version < NAMING and any("{" in output for output in manifest.outputs):
            raise ProtocolError(f"outputs: only those of version {NAMING} have placeholders")
        inputs = {ref.name: ref.executable for ref in manifest.inputs}
        software.check_archives(manifest.archives, inputs, manifest.stdin)
        software.check_environments(
            requirements=manifest.requirements, conda_pack=manifest.conda_pack,
            image=manifest.image, inputs=inputs, archives=manifest.archives,
        )  # fmt: skip
        check_programs(
            manifest.programs, command=manifest.command, platforms_named=manifest.platforms,
            inputs=inputs.keys(), resident=manifest.resident,
            shared={manifest.stdin, manifest.requirements, manifest.conda_pack, manifest.image},
        )  # fmt: skip
        for run in manifest.variants() if manifest.boinc_api else ():
            boinc_api.check_manifest(run)
        check_sources(
            manifest.sources, inputs,
            lambda name: any(_matches(item.name, name) for item in manifest.job_inputs),
        )  # fmt: skip
        return manifest


def manifest_id(text: str) -> str:
    """Id of a manifest: the SHA-256 of its text, in hex."""
    return hashlib.sha256(text.encode()).hexdigest()


def file_ref(raw: object) -> FileRef:
    """Validate a file reference with a safe relative name."""
    item = fields.mapping(raw, "file")
    return FileRef(
        name=file_name(item.get("name"), "file.name"),
        sha256=fields.sha256(item.get("sha256"), "file.sha256"),
        size=fields.integer(item, "size", 0, MAX_BIGINT),
        executable=item.get("executable") is True,
    )


def job_input(raw: object) -> JobInput:
    """Validate a pattern of names of jobs' own inputs."""
    item = fields.mapping(raw, "job_input")
    name = fields.string(item, "name", fields.MAX_NAME_BYTES)
    if not _PATTERN.fullmatch(name):
        raise ProtocolError(
            f"job_input.name: {name!r} is not a usable file name or pattern (letters, digits,"
            " ._+=@%- and *? in parts that do not begin with a dash; the first part does not begin"
            " with a dot either)"
        )
    return JobInput(name, item.get("executable") is True)


def admits(allowed: Iterable[JobInput], ref: FileRef) -> bool:
    """True if a job may have this file as an input of its own."""
    return any(
        (item.executable or not ref.executable) and _matches(item.name, ref.name)
        for item in allowed
    )


def _matches(pattern: str, name: str) -> bool:
    parts, names = pattern.split("/"), name.split("/")
    return len(parts) == len(names) and all(
        fnmatch.fnmatchcase(name, part) and (name[0] != "." or part[0] == ".")
        for part, name in zip(parts, names, strict=True)
    )


def _job_range(raw: object) -> JobRange | None:
    if raw is None:
        return None
    if isinstance(raw, list) and list(map(type, raw)) == [int] * 3:
        found = JobRange(*raw)
        last = found.start + found.step * (found.size - 1)
        if found.size > 0 and max(abs(found.start), abs(last), found.size) <= MAX_BIGINT:
            return found
    raise ProtocolError("range: expected [start, step, size] of at least one job, within 64 bits")


def _resident(raw: Mapping[str, Any]) -> int:
    words = fields.integer(raw, "resident", 0, 1000, 0)
    command = fields.listing(raw, "command", 1000)
    if words > len(command) or any("{" in str(word) for word in command[:words]):
        raise ProtocolError(
            f"resident: the command has no {words} words at its beginning without placeholders"
        )
    if words and raw.get("stdin"):
        raise ProtocolError("resident: standard input is the program's way to the client")
    if words and raw.get("together", 1) != 1:
        raise ProtocolError("resident: jobs that run together start programs of their own")
    return words


def _output_names(raw: Mapping[str, Any]) -> dict[str, str]:
    found = fields.mapping(raw.get("output_names", {}), "output_names")
    for name in found:
        if name not in fields.listing(raw, "outputs", 256) or _WILD_OR_STREAM.search(name):
            raise ProtocolError(
                f"output_names: {name[:100]!r} is none of the outputs, or is a pattern or a stream"
            )
    return {name: fields.text(value, f"output_names.{name}", 400) for name, value in found.items()}


def _exit_codes(raw: object) -> tuple[int, ...] | str:
    if raw == ANY:
        return ANY
    if not isinstance(raw, list) or not 0 < len(raw) <= MAX_EXIT_CODE + 1:
        raise ProtocolError(f"exit_codes: expected {ANY} or a list, got {fields.kind(raw)}")
    for code in raw:
        if type(code) is not int or not 0 <= code <= MAX_EXIT_CODE:
            raise ProtocolError(
                f"exit_codes: expected numbers from 0 to {MAX_EXIT_CODE}, got {fields.kind(code)}"
            )
    return tuple(sorted(set(raw)))


def _environment(raw: Mapping[str, Any]) -> dict[str, str]:
    if len(raw) > _MOST_VARIABLES:
        raise ProtocolError(f"environment: {len(raw)} variables, at most {_MOST_VARIABLES}")
    for name in raw:
        if not _VARIABLE.fullmatch(name) or name.startswith(_OWN_VARIABLES):
            raise ProtocolError(
                f"environment: {name[:100]!r} is no name of a variable (letters, digits and _, no"
                f" digit first), or one of the client's own, {_OWN_VARIABLES}…"
            )
    return {
        name: fields.text(value, f"environment.{name}", _MOST_VALUE_BYTES)
        for name, value in raw.items()
    }


def _walls(raw: Mapping[str, Any]) -> RequestedWalls:
    level = fields.integer(raw, "level", 0, MAX_WALLS, 0)
    return RequestedWalls(level, raw.get("network") is True)


def _hex(raw: Mapping[str, Any], name: str, form: re.Pattern[str]) -> str:
    value = fields.string(raw, name, 64, "")
    if not form.fullmatch(value):
        raise ProtocolError(f"{name}: {value!r} is not of the form {form.pattern}")
    return value


def resources(raw: Mapping[str, Any]) -> Resources:
    """Validate resource limits."""
    default = Resources()
    return Resources(
        cpus=fields.integer(raw, "cpus", 1, 4096, default.cpus),
        memory_mb=fields.integer(raw, "memory_mb", 1, 1 << 30, default.memory_mb),
        disk_mb=fields.integer(raw, "disk_mb", 1, 1 << 30, default.disk_mb),
        seconds=fields.number(raw, "seconds", 0.001, 365 * 86_400.0, default.seconds),
        gpus=fields.integer(raw, "gpus", 0, 64, default.gpus),
    )
