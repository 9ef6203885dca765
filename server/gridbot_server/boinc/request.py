"""A BOINC client's scheduler request: who it is, what it ended, what it holds, what it wants."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeVar

from gridbot_client.protocol import MAX_HOLDING, MAX_OUTPUTS, MAX_REPORTS
from gridbot_server.boinc import machine
from gridbot_server.boinc.machine import (
    DiskUsage,
    Gpus,
    Machine,
    NetStats,
    Preferences,
    TimeStats,
    Wanted,
)
from gridbot_server.boinc.tags import BoincError, Grammar, Section, read

# A report brings up to 64 KB of what the program wrote to stderr.
MAX_REQUEST_BYTES = 32 * 1024 * 1024
MAX_PLATFORMS = 16
MAX_TRICKLES = 100
MAX_TRICKLE_CHARACTERS = 64 * 1024
MAX_KEY_CHARACTERS = 2000
# Of a program's 63 KB, each byte beyond ASCII is escaped by up to six characters.
MAX_STDERR_CHARACTERS = 400_000

_GPU = frozenset({"coproc_opencl", "pci_info"})
GRAMMAR = Grammar(
    root="scheduler_request",
    inside={
        "": frozenset({"scheduler_request"}),
        "scheduler_request": frozenset(
            {
                "working_global_preferences",
                "global_preferences",
                "time_stats",
                "net_stats",
                "host_info",
                "disk_usage",
                "coprocs",
                "result",
                "file_info",
                "app_versions",
                "other_results",
                "in_progress_results",
                "alt_platform",
            }
        ),
        "working_global_preferences": frozenset({"global_preferences"}),
        "global_preferences": frozenset({"day_prefs"}),
        "coprocs": machine.GPU_ELEMENTS,
        **dict.fromkeys(machine.GPU_ELEMENTS, _GPU),
        "result": frozenset({"file_info"}),
        "app_versions": frozenset({"app_version"}),
        "other_results": frozenset({"other_result"}),
        "in_progress_results": frozenset({"ip_result"}),
    },
    raw=frozenset({"stderr_out", "msg_from_host", "client_opaque", "time_stats_log", "job_log"}),
)

_TRICKLE = re.compile(
    r"\s*<result_name>([^<]*)</result_name>\s*<time>\s*(\d{0,15})[^<]*</time>\n?(.*)", re.S | re.A
)
_VARIETY = re.compile(r"<variety>([^<]*)</variety>")


@dataclass(frozen=True, slots=True)
class FileInfo:
    """A file as the client knows it; `error` says why it could not be uploaded."""

    name: str
    size: int
    max_size: int = 0
    md5: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class Reported:
    """One `<result>`: how a replica ended, in BOINC's words."""

    name: str
    state: int
    exit_status: int
    cpu_seconds: float
    elapsed_seconds: float
    platform: str
    version: int
    plan_class: str
    peak_memory_bytes: int
    peak_swap_bytes: int
    peak_disk_bytes: int
    stderr_out: str  # as it came: the client's own words and what the program wrote
    files: tuple[FileInfo, ...]


@dataclass(frozen=True, slots=True)
class Held:
    """A replica that is on the host and not reported yet; `app_version` is an index or -1."""

    name: str
    app_version: int = -1
    plan_class: str = ""


@dataclass(frozen=True, slots=True)
class Trickle:
    """A message from a running program to its project."""

    name: str  # of the replica
    sent_at: int
    variety: str
    text: str


@dataclass(frozen=True, slots=True)
class ClientInfo:
    """Which program asks, and what its user lets it do."""

    version: tuple[int, int, int]
    brand: str
    platforms: tuple[str, ...]  # its own first; one is `anonymous`: applications of its user
    allows_others: bool  # several clients on one machine
    is_sandboxed: bool
    refuses_work: bool  # its user wants no more
    refuses_docker: bool
    refuses_wsl: bool
    resource_share: float
    duration_correction: float


Named = TypeVar("Named", Reported, Held)


@dataclass(frozen=True, slots=True)
class SchedulerRequest:
    """One scheduler RPC."""

    authenticator: str
    hostid: int
    rpc_seqno: int
    client: ClientInfo
    cpu: Wanted
    code_sign_key: str
    cross_project_id: str
    email_hash: str
    preferences: Preferences
    time: TimeStats
    net: NetStats
    disk: DiskUsage
    machine: Machine
    gpus: tuple[Gpus, ...]
    reported: tuple[Reported, ...]
    held: tuple[Held, ...]
    knows_held: bool  # whether `held` is all that it holds; otherwise nothing can be lost
    trickles: tuple[Trickle, ...]

    @property
    def is_first(self) -> bool:
        """Whether the client asks to be given a host id."""
        return self.hostid == 0


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
    reported, others = part.all("result"), part.one("other_results").all("other_result")
    preferences = part.one("working_global_preferences").one("global_preferences")
    return SchedulerRequest(
        authenticator=part.text("authenticator"),
        hostid=part.integer("hostid"),
        rpc_seqno=part.integer("rpc_seqno"),
        client=_client(part),
        cpu=_wanted_cpus(part),
        code_sign_key=part.text("code_sign_key", MAX_KEY_CHARACTERS),
        cross_project_id=part.text("cross_project_id"),
        email_hash=part.text("global_prefs_source_email_hash"),
        preferences=machine.read_preferences(preferences),
        time=machine.read_time_stats(part.one("time_stats")),
        net=machine.read_net_stats(part.one("net_stats")),
        disk=machine.read_disk_usage(part.one("disk_usage")),
        machine=machine.read_machine(part.one("host_info")),
        gpus=machine.read_gpus(part.one("coprocs")),
        reported=_named(tuple(map(_reported, reported[:MAX_REPORTS]))),
        held=_named(tuple(map(_held, others[:MAX_HOLDING]))),
        knows_held="other_results" in part
        and len(others) <= MAX_HOLDING
        and len(reported) <= MAX_REPORTS,
        trickles=_trickles(part),
    )


def _client(part: Section) -> ClientInfo:
    return ClientInfo(
        version=(
            part.integer("core_client_major_version", most=10**6),
            part.integer("core_client_minor_version", most=10**6),
            part.integer("core_client_release", most=10**6),
        ),
        brand=part.text("client_brand"),
        platforms=_platforms(part),
        allows_others=part.flag("allow_multiple_clients"),
        is_sandboxed=part.flag("sandbox"),
        refuses_work=part.flag("dont_send_work"),
        refuses_docker=part.flag("dont_use_docker"),
        refuses_wsl=part.flag("dont_use_wsl"),
        resource_share=part.number("resource_share_fraction", 1.0, 0.0, 1.0),
        duration_correction=part.number("duration_correction_factor", 1.0),
    )


def _platforms(part: Section) -> tuple[str, ...]:
    others = part.all("alt_platform")[:MAX_PLATFORMS]
    names = [part.text("platform_name"), *(other.text("name") for other in others)]
    return tuple(dict.fromkeys(filter(None, names)))


def _wanted_cpus(part: Section) -> Wanted:
    return Wanted(
        part.number("cpu_req_secs", part.number("work_req_seconds")),
        part.number("cpu_req_instances"),
    )


def _reported(part: Section) -> Reported:
    return Reported(
        name=part.text("name"),
        state=part.integer("state", most=100),
        exit_status=part.integer("exit_status", least=-(2**31), most=2**32),
        cpu_seconds=part.number("final_cpu_time", most=1e9),
        elapsed_seconds=part.number("final_elapsed_time", most=1e9),
        platform=part.text("platform"),
        version=part.integer("version_num", most=2**31),
        plan_class=part.text("plan_class"),
        peak_memory_bytes=part.integer("final_peak_working_set_size"),
        peak_swap_bytes=part.integer("final_peak_swap_size"),
        peak_disk_bytes=part.integer("final_peak_disk_usage"),
        stderr_out=part.raw("stderr_out")[:MAX_STDERR_CHARACTERS],
        files=tuple(_file_info(item) for item in part.all("file_info")[:MAX_OUTPUTS]),
    )


def _file_info(part: Section) -> FileInfo:
    return FileInfo(
        name=part.text("name"),
        size=part.integer("nbytes"),
        max_size=part.integer("max_nbytes"),
        md5=part.text("md5_cksum").lower(),
        error=part.text("error_msg"),
    )


def _held(part: Section) -> Held:
    return Held(
        part.text("name"),
        part.integer("app_version", default=-1, most=10**6),
        part.text("plan_class"),
    )


def _trickles(part: Section) -> tuple[Trickle, ...]:
    found = map(_TRICKLE.match, part.raws.get("msg_from_host", [])[:MAX_TRICKLES])
    return tuple(_trickle(match) for match in found if match)


def _trickle(found: re.Match[str]) -> Trickle:
    text = found[3].strip()[:MAX_TRICKLE_CHARACTERS]
    variety = _VARIETY.search(text)
    return Trickle(
        name=found[1].strip()[:255],
        sent_at=int(found[2] or 0),
        variety=variety[1].strip()[:255] if variety else "",
        text=text,
    )


def _named(items: tuple[Named, ...]) -> tuple[Named, ...]:
    """Leave out those that nobody could acknowledge."""
    return tuple(item for item in items if item.name)
