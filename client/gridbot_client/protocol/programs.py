"""Programs of a BOT for several platforms and kinds of hosts: the table, and how a host chooses.

A row says where its program runs: a platform and conditions, as in
`linux-x86_64 gpu=nvidia cuda>=11`.  Server and clients choose by the same function, from a host's
ad; the table is signed, so that a server can propose nothing that is not in it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from gridbot_client.protocol import fields
from gridbot_client.protocol.fields import ProtocolError

MAX_PROGRAMS = 20
MAX_WHERE = 200  # characters
_MAX_CPUS = 4096

# What others call a platform, and what hosts call it.
_PLATFORM_NAMES = {
    "windows-x86_64": "windows-amd64",
    "windows-aarch64": "windows-arm64",
    "darwin-aarch64": "darwin-arm64",
}
_PLATFORM = re.compile(r"[a-z0-9]{1,20}-[a-z0-9_]{1,20}")
_CONDITION = re.compile(r"(gpu|cpus)=([a-z0-9]{1,10})|(cuda|driver|gpu_memory)>=([0-9.]{1,20})")
_VERSION = re.compile(r"[0-9]{1,6}(\.[0-9]{1,6}){0,3}")
_LEADING_VERSION = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})*")


class GpuMaker(NamedTuple):
    """A maker of GPUs: the attribute that counts them, `GpuVendor`, and the word in `Wants`."""

    counted: str
    vendor: str
    wanted: str


MAKERS: Mapping[str, GpuMaker] = {
    "nvidia": GpuMaker("NumNvidiaGpus", "NVIDIA", "NVIDIA"),
    "amd": GpuMaker("NumAmdGpus", "AMD", "ATI"),
    "intel": GpuMaker("NumIntelGpus", "INTEL", "intel_gpu"),
    "apple": GpuMaker("NumAppleGpus", "APPLE", "apple_gpu"),
}


class Selector(NamedTuple):
    """Where a program runs; what is empty or 0 asks for nothing."""

    platform: str
    gpu: str = ""  # a maker
    cuda: float = 0.0
    driver: tuple[int, ...] = ()
    gpu_memory: int = 0  # MB
    cpus: int = 0  # that a replica uses, in place of the BOT's

    @property
    def conditions(self) -> int:
        """How many there are: a program with more of them is meant for fewer hosts."""
        return sum(map(bool, self[1:]))


@dataclass(frozen=True, slots=True)
class HostProgram:
    """A row of the table: where, the command there, and the inputs that are not for all hosts."""

    where: str
    command: tuple[str, ...]
    inputs: tuple[str, ...] = ()  # names

    @property
    def selector(self) -> Selector:
        """What `where` says.  Raises ProtocolError."""
        return selector(self.where)


@lru_cache(maxsize=1024)
def selector(where: str) -> Selector:
    """Read where a program runs.  Raises ProtocolError that names the wrong word."""
    platform, *conditions = where.split() or [""]
    if len(where) > MAX_WHERE or not _PLATFORM.fullmatch(platform):
        raise _wrong(where, f"{platform!r} is no platform such as linux-x86_64")
    found: dict[str, Any] = {}
    for word in conditions:
        match = _CONDITION.fullmatch(word)
        if match is None:
            known = "gpu=MAKER, cuda>=N, driver>=N, gpu_memory>=MB and cpus=N"
            raise _wrong(where, f"{word!r} is no condition; there are {known}")
        name, value = match[1] or match[3], match[2] or match[4]
        if name in found:
            raise _wrong(where, f"{name} is there twice")
        found[name] = _value(where, name, value)
    if not found.get("gpu") and {*found} - {"cpus"}:
        raise _wrong(where, "conditions on a GPU need its maker, as in gpu=nvidia")
    if "cuda" in found and found["gpu"] != "nvidia":
        raise _wrong(where, "cuda is for gpu=nvidia")
    return Selector(_PLATFORM_NAMES.get(platform, platform), **found)


def _value(where: str, name: str, text: str) -> object:
    if name == "gpu":
        if text not in MAKERS:
            raise _wrong(where, f"gpu={text}: the makers are {', '.join(MAKERS)}")
        return text
    if name == "driver":
        if not _VERSION.fullmatch(text):
            raise _wrong(where, f"driver>={text} is no version such as 535.104")
        return _version(text)
    if name == "cuda":
        if not re.fullmatch(r"[0-9]{1,3}(\.[0-9])?", text):
            raise _wrong(where, f"cuda>={text} is no version such as 11 or 12.4")
        return float(text)
    most = _MAX_CPUS if name == "cpus" else 1 << 30
    if not text.isdecimal() or not 0 < int(text) <= most:
        raise _wrong(where, f"{name}: {text} is no whole number from 1 to {most}")
    return int(text)


def _version(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")))


def _wrong(where: str, why: str) -> ProtocolError:
    return ProtocolError(f"programs: {where[:MAX_WHERE]!r}: {why}")


def choose(
    programs: Sequence[HostProgram], host: Mapping[str, Any], *, may_use_gpus: bool = True
) -> HostProgram | None:
    """The program for a host, by its ad; None if there is none.

    The host's own platform comes before others whose programs it runs, more conditions before
    fewer, and then the order of the table counts.  What the host does not say of its cores bounds
    nothing; what it does not say of GPUs is not there.
    """
    platforms = str(host.get("Platforms") or host.get("Platform") or "").split()
    wanted = str(host["Wants"]).split() if "Wants" in host else None
    fitting = [
        (platforms.index(needed.platform), -needed.conditions, place)
        for place, needed in enumerate(item.selector for item in programs)
        if needed.platform in platforms
        and (may_use_gpus or not needed.gpu)
        and _is_wanted(needed, wanted)
        and _has(needed, host)
    ]
    return programs[min(fitting)[2]] if fitting else None


def _is_wanted(needed: Selector, wanted: Collection[str] | None) -> bool:
    """Whether a stock client asks for work of the kind; None: it does not say."""
    return wanted is None or (MAKERS[needed.gpu].wanted if needed.gpu else "CPU") in wanted


def _has(needed: Selector, host: Mapping[str, Any]) -> bool:
    """Whether a host meets the conditions, beside the platform."""
    cpus = host.get("NumCpus")
    if isinstance(cpus, int | float) and cpus < needed.cpus:
        return False
    if not needed.gpu:
        return True
    maker = MAKERS[needed.gpu]
    if not _number(host.get(maker.counted)):
        return False
    if not (needed.cuda or needed.driver or needed.gpu_memory):
        return True
    return (
        host.get("GpuVendor") == maker.vendor  # it is this maker's of which the rest is said
        and _number(host.get("CudaVersion")) >= needed.cuda
        and _number(host.get("GpuMemory")) >= needed.gpu_memory
        and _driver(host.get("GpuDriver")) >= needed.driver
    )


def _number(value: object) -> float:
    return value if isinstance(value, int | float) else 0


def _driver(value: object) -> tuple[int, ...]:
    found = _LEADING_VERSION.match(str(value or ""))
    return _version(found[0]) if found else ()


def read_programs(raw: Mapping[str, Any]) -> tuple[HostProgram, ...]:
    """The table of a manifest, if it has one.  Raises ProtocolError that names the wrong row."""
    rows = fields.listing(raw, "programs", MAX_PROGRAMS) if "programs" in raw else []
    return tuple(_read(fields.mapping(row, "programs")) for row in rows)


def _read(row: Mapping[str, Any]) -> HostProgram:
    where = fields.string(row, "where", MAX_WHERE)
    what = f"programs: {where!r}: command"
    command = fields.listing(row, "command", 1000)
    if not command:
        raise ProtocolError(f"{what}: empty")
    selector(where)
    return HostProgram(
        where,
        tuple(fields.text(part, what, 8192) for part in command),
        tuple(
            fields.text(name, "programs.inputs", fields.MAX_NAME_BYTES)
            for name in fields.listing(row, "inputs", 10_000)
        ),
    )


def platforms(programs: Iterable[HostProgram]) -> tuple[str, ...]:
    """Platforms that the table names, each once."""
    return tuple(dict.fromkeys(item.selector.platform for item in programs))


def places(programs: Iterable[HostProgram]) -> tuple[str, ...]:
    """Where they run, in words."""
    return tuple(item.where for item in programs)


def check_programs(
    programs: Sequence[HostProgram],
    *,
    command: Sequence[str],
    platforms_named: Sequence[str],
    inputs: Collection[str],
    shared: Collection[str],
    resident: int,
) -> None:
    """Make sure that the table agrees with the rest of its manifest.  Raises ProtocolError.

    `inputs` are the names of all inputs, `shared` of those that every host needs.
    """
    if not programs:
        return
    seen: dict[Selector, str] = {}
    for item in programs:
        if other := seen.get(item.selector):
            raise _wrong(item.where, f"{other!r} says the same")
        seen[item.selector] = item.where
        for name in item.inputs:
            if name not in inputs:
                raise _wrong(item.where, f"{name} is not the name of an input")
            if name in shared:
                raise _wrong(item.where, f"all hosts need the input {name}")
    if tuple(command) != programs[0].command:
        raise ProtocolError("command: with programs, it is that of the first of them")
    if tuple(platforms_named) != platforms(programs):
        raise ProtocolError("platforms: with programs, they are those of the table")
    if resident:
        raise ProtocolError("resident: a BOT with programs has no one that stays")
