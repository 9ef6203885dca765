"""A BOINC client's scheduler request: who it is, what it ended, what it holds, what it wants."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from gridbot_client.protocol.messages import MAX_HOLDING, MAX_OUTPUTS, MAX_REPORTS
from gridbot_server.boinc.protocol import machine
from gridbot_server.boinc.protocol.machine import (
    DiskUsage,
    Gpus,
    Machine,
    NetStats,
    Preferences,
    TimeStats,
    Wanted,
)
from gridbot_server.boinc.protocol.tags import (
    MAX_TEXT,
    BoincError,
    Grammar,
    Section,
    kept,
    number,
    read,
    section,
    unescape,
)

# A report brings up to 64 KB of what the program wrote to stderr.
MAX_REQUEST_BYTES = 32 * 1024 * 1024
MAX_PLATFORMS = 16
MAX_TRICKLES = 100
MAX_KEPT_FILES = 1000
MAX_TRICKLE_CHARACTERS = 64 * 1024
MAX_KEY_CHARACTERS = 2000
# Of a program's 63 KB, each byte beyond ASCII is escaped by up to six characters.
MAX_STDERR_CHARACTERS = 400_000

_PRESENT = 1  # the status of a file that is there

_GPU = ("coproc_opencl", "pci_info")
GRAMMAR = Grammar(
    root="scheduler_request",
    inside={
        "scheduler_request": (
            "working_global_preferences",
            "time_stats",
            "net_stats",
            "host_info",
            "disk_usage",
            "coprocs",
            "result",
            "app_versions",
            "other_results",
            "in_progress_results",
            "alt_platform",
        ),
        "working_global_preferences": ("day_prefs",),
        "coprocs": machine.GPU_ELEMENTS,
        **dict.fromkeys(machine.GPU_ELEMENTS, _GPU),
        "result": ("file_info",),
    },
    raw=frozenset({"stderr_out", "msg_from_host", "client_opaque", "time_stats_log", "job_log"}),
)

# The name of each `<other_result>`, of which nothing else is of interest.
_HELD = re.compile(rf"<name>\s*+([^<]{{1,{MAX_TEXT}}}+)</name>")
_TRICKLE = re.compile(
    r"\s*<result_name>([^<]*)</result_name>\s*<time>\s*(\d{0,15})[^<]*</time>\n?(.*)", re.S | re.A
)


class FileInfo(NamedTuple):
    """A file as the client knows it; `error` says why it could not be uploaded."""

    name: str
    size: int
    md5: str = ""
    error: str = ""


class Reported(NamedTuple):
    """One `<result>`: how a replica ended, in BOINC's words."""

    name: str
    state: int
    exit_status: int
    cpu_seconds: float
    elapsed_seconds: float
    stderr_out: str  # raw: the client's words, and the program's stderr in the middle
    files: tuple[FileInfo, ...]


@dataclass(frozen=True, slots=True)
class Trickle:
    """A message of a running program, as text that is not looked into."""

    name: str
    sent_at: int  # s since 1970
    text: str


@dataclass(frozen=True, slots=True)
class ClientInfo:
    """The client program: its version, and what it can and may do."""

    version: tuple[int, int, int]
    platforms: tuple[str, ...]
    allows_others: bool  # several clients on one machine
    refuses_work: bool  # its user wants no more


@dataclass(frozen=True, slots=True)
class SchedulerRequest:
    """One scheduler RPC."""

    authenticator: str
    hostid: int  # 0: it has none yet
    rpc_seqno: int
    client: ClientInfo
    cpu: Wanted
    code_sign_key: str
    preferences: Preferences
    time: TimeStats
    net: NetStats
    disk: DiskUsage
    machine: Machine
    gpus: tuple[Gpus, ...]
    reported: tuple[Reported, ...]
    held: tuple[str, ...]  # names
    knows_held: bool  # whether `held` is all that it holds; otherwise nothing can be lost
    trickles: tuple[Trickle, ...]
    kept_files: tuple[FileInfo, ...]  # whole, of jobs that it may not have any more


def parse(body: bytes) -> SchedulerRequest:
    """Read a request's body; raise BoincError for what is none.

    Values that are wrong or missing get defaults.  Reports beyond MAX_REPORTS are left out: the
    client sends them again, as nobody acknowledges them.
    """
    if len(body) > MAX_REQUEST_BYTES:
        raise BoincError(f"the request has {len(body)} bytes, at most {MAX_REQUEST_BYTES}")
    text = body.decode(errors="replace").replace("\x00", "\N{REPLACEMENT CHARACTER}")
    return _request(read(text, GRAMMAR))


def _request(part: Section) -> SchedulerRequest:
    held = _HELD.findall(part.inner("other_results"))
    host_info, free_disk = _without_free_disk(part.inner("host_info"))
    return SchedulerRequest(
        authenticator=part.text("authenticator"),
        hostid=part.integer("hostid"),
        rpc_seqno=part.integer("rpc_seqno"),
        client=_client(part),
        cpu=_wanted_cpus(part),
        code_sign_key=part.text("code_sign_key", MAX_KEY_CHARACTERS),
        preferences=_preferences(part.inner("working_global_preferences")),
        time=machine.read_time_stats(part.one("time_stats")),
        net=machine.read_net_stats(part.one("net_stats")),
        disk=machine.read_disk_usage(part.one("disk_usage"), free_disk),
        machine=_machine(host_info),
        gpus=_gpus(part.inner("coprocs")),
        reported=_reports(part),
        held=tuple(unescape(name.strip()) for name in held[:MAX_HOLDING]),
        knows_held="other_results" in part
        and len(held) <= MAX_HOLDING
        and part.count("result") <= MAX_REPORTS,
        trickles=_trickles(part),
        kept_files=_kept_files(part),
    )


def _without_free_disk(host_info: str) -> tuple[str, int]:
    """What is the same in all requests of a host, and what is not."""
    before, _, rest = host_info.partition("<d_free>")
    free, _, after = rest.partition("</d_free>")
    return before + after, int(number(free))


@kept
def _preferences(text: str) -> Preferences:
    return machine.read_preferences(section("working_global_preferences", text, GRAMMAR))


@kept
def _machine(text: str) -> Machine:
    return machine.read_machine(section("host_info", text, GRAMMAR))


@kept
def _gpus(text: str) -> tuple[Gpus, ...]:
    return machine.read_gpus(section("coprocs", text, GRAMMAR))


def _client(part: Section) -> ClientInfo:
    return ClientInfo(
        version=(
            part.integer("core_client_major_version", most=10**6),
            part.integer("core_client_minor_version", most=10**6),
            part.integer("core_client_release", most=10**6),
        ),
        platforms=_platforms(part),
        allows_others=part.flag("allow_multiple_clients"),
        refuses_work=part.flag("dont_send_work"),
    )


def _platforms(part: Section) -> tuple[str, ...]:
    others = part.all("alt_platform", MAX_PLATFORMS)
    names = [part.text("platform_name"), *(other.text("name") for other in others)]
    return tuple(dict.fromkeys(filter(None, names)))


def _wanted_cpus(part: Section) -> Wanted:
    return Wanted(
        part.number("cpu_req_secs", part.number("work_req_seconds")),
        part.number("cpu_req_instances"),
    )


def _reports(part: Section) -> tuple[Reported, ...]:
    """Those that somebody could acknowledge: they have a name."""
    found = map(_reported, part.all("result", MAX_REPORTS))
    return tuple(item for item in found if item.name)


def _reported(part: Section) -> Reported:
    return Reported(
        part.text("name"),
        part.integer("state", most=100),
        part.integer("exit_status", least=-(2**31), most=2**32),
        part.number("final_cpu_time", most=1e9),
        part.number("final_elapsed_time", most=1e9),
        part.raw("stderr_out")[:MAX_STDERR_CHARACTERS],
        tuple(_file_info(item) for item in part.all("file_info", MAX_OUTPUTS)),
    )


def _file_info(part: Section) -> FileInfo:
    return FileInfo(
        part.text("name"),
        part.integer("nbytes"),
        part.text("md5_cksum").lower(),
        part.text("error_msg"),
    )


def _kept_files(part: Section) -> tuple[FileInfo, ...]:
    """What is there of the files that the client was told to keep."""
    found = part.beside("file_info", MAX_KEPT_FILES)
    return tuple(_file_info(item) for item in found if item.integer("status") == _PRESENT)


def _trickles(part: Section) -> tuple[Trickle, ...]:
    found = map(_TRICKLE.match, part.raws("msg_from_host")[:MAX_TRICKLES])
    return tuple(_trickle(match) for match in found if match)


def _trickle(found: re.Match[str]) -> Trickle:
    text = found[3].strip()[:MAX_TRICKLE_CHARACTERS]
    return Trickle(found[1].strip()[:255], int(found[2] or 0), text)
