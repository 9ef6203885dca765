"""Scheduler replies: what a BOINC client is told, in the form that it reads.

One element per line, in lower case, without attributes except a message's priority.  The client
silently drops an application version or a job of which any part is missing in the reply, so all
that an assignment needs is sent with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from gridbot_server.boinc.application import (
    App,
    Application,
    AppVersion,
    FileUse,
    InputFile,
    OutputFile,
    Work,
    Workunit,
)
from gridbot_server.boinc.signed import AppFile
from gridbot_server.boinc.tags import BoincError, block, element, escape, flag

# From 507 on clients take preferences even if a host has its own.
_SCHEDULER_VERSION = 720
DAY_SECONDS = 86_400


# What describes a BOT is the same in many replies.
_kept = lru_cache(maxsize=1024)

# By this word in it, clients know an URL to be one for uploads.
_UPLOAD_WORD = "file_upload_handler"


@dataclass(frozen=True, slots=True)
class Places:
    """Where clients find files: below `download_url`, by the name that `name_of` gives a SHA-256.

    They take any URL with `file_upload_handler` in it for one to upload to, and no other.
    """

    download_url: str  # without a slash at its end
    upload_url: str
    name_of: Callable[[str], str]

    def __post_init__(self) -> None:
        if _UPLOAD_WORD not in self.upload_url or _UPLOAD_WORD in self.download_url:
            raise BoincError(
                f"{self.upload_url!r} must hold {_UPLOAD_WORD}, {self.download_url!r} must not"
            )


@dataclass(frozen=True, slots=True)
class Assignment:
    """A replica for this client, run by one of its application's versions until a deadline.

    `certificates` (hex lines) are for the work's outputs, in order; the client echoes them.
    """

    application: Application
    version: AppVersion
    work: Work
    deadline: int  # s since 1970
    certificates: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Message:
    """A line for the client's log; a notice is shown to its user as well."""

    text: str
    is_notice: bool = False


@dataclass(frozen=True, slots=True)
class Volunteer:
    """Whose account the client uses."""

    id: int
    name: str
    created_at: int  # s since 1970
    email_hash: str
    cross_project_id: str
    total_credit: float = 0.0
    recent_credit: float = 0.0
    team: str = ""


@dataclass(frozen=True, slots=True)
class Host:
    """The client's host as the server knows it.

    `is_new` tells the client its id, upon which it counts its requests anew and takes another
    identity: only for a host that has none, or is given another.
    """

    id: int
    created_at: int  # s since 1970
    is_new: bool = False
    total_credit: float = 0.0
    recent_credit: float = 0.0
    venue: str = ""


@dataclass(frozen=True, slots=True)
class SigningKey:
    """The public key of application files; `signature` is the one by the key before it."""

    text: str
    signature: str = ""


@dataclass(frozen=True, slots=True)
class SchedulerReply:
    """Everything that one reply may say; what is empty is left out."""

    project: str
    master_url: str = ""
    messages: tuple[Message, ...] = ()
    request_delay_seconds: float = 0.0  # no request before
    next_rpc_seconds: float = 0.0  # a request at the latest after that, to be said every time
    is_down: bool = False
    volunteer: Volunteer | None = None
    host: Host | None = None
    resource_share: float = 100.0
    acks: tuple[str, ...] = ()
    aborts: tuple[str, ...] = ()
    has_messages_acked: bool = False
    key: SigningKey | None = None
    signed_anew: tuple[AppFile, ...] = ()  # files that the client has, for the key
    assignments: tuple[Assignment, ...] = ()


def render(reply: SchedulerReply, places: Places | None = None) -> str:
    """The reply's text; `places` is needed where it speaks of files."""
    if (reply.assignments or reply.signed_anew) and places is None:
        raise BoincError("a reply that speaks of files must say where its files are")
    return block(
        "scheduler_reply",
        element("scheduler_version", _SCHEDULER_VERSION),
        flag("dont_use_dcf"),
        *_project(reply),
        *_volunteer(reply.volunteer, reply.resource_share),
        *_host(reply.host),
        *_answers(reply),
        *_key(reply.key),
        *(_work(reply, places) if places else ()),
    )


# ------------------------------------------------------------------------- whole replies


def project_is_down(project: str, why: str, delay_seconds: float) -> SchedulerReply:
    """Come again later: the client looks at nothing else, and keeps what it has to report."""
    message = Message(why, is_notice=True)
    return SchedulerReply(
        project, messages=(message,), request_delay_seconds=delay_seconds, is_down=True
    )


def bad_key(project: str) -> SchedulerReply:
    """No account has this key; the client asks once a day, until its user sets it right."""
    text = (
        "Invalid or missing account key: clients need one that"
        " gridbot token create NAME --scope join made. To fix, remove and add this project."
    )
    return SchedulerReply(
        project, messages=(Message(text, is_notice=True),), request_delay_seconds=DAY_SECONDS
    )


# --------------------------------------------------------------------------------- parts


def _given(name: str, value: object) -> str:
    """An element, unless its value is empty."""
    return element(name, value) if value else ""


def _credit(amount: float) -> str:
    """As BOINC's scheduler writes it: never with an exponent."""
    return f"{amount:.6f}"


def _text(name: str, text: str) -> str:
    """An element of several lines: a key or a signature."""
    return f"<{name}>\n{text.strip()}\n</{name}>\n" if text else ""


def _project(reply: SchedulerReply) -> Iterator[str]:
    yield _given("master_url", reply.master_url)
    yield _given("project_name", reply.project)
    yield flag("project_is_down", reply.is_down)
    for message in reply.messages:
        priority = "notice" if message.is_notice else "low"
        yield f'<message priority="{priority}">{escape(message.text)}</message>\n'
    yield _given("request_delay", reply.request_delay_seconds)
    yield _given("next_rpc_delay", reply.next_rpc_seconds)


def _volunteer(volunteer: Volunteer | None, resource_share: float) -> Iterator[str]:
    if volunteer is None:
        return
    yield element("userid", volunteer.id)
    yield element("user_name", volunteer.name)
    yield element("user_total_credit", _credit(volunteer.total_credit))
    yield element("user_expavg_credit", _credit(volunteer.recent_credit))
    yield element("user_create_time", volunteer.created_at)
    yield element("email_hash", volunteer.email_hash)
    yield element("cross_project_id", volunteer.cross_project_id)
    yield element("team_name", volunteer.team)
    yield block("project_preferences", element("resource_share", resource_share))


def _host(host: Host | None) -> Iterator[str]:
    if host is None:
        return
    if host.is_new:
        yield element("hostid", host.id)
    yield element("host_total_credit", _credit(host.total_credit))
    yield element("host_expavg_credit", _credit(host.recent_credit))
    yield element("host_create_time", host.created_at)
    yield element("host_venue", host.venue)


def _answers(reply: SchedulerReply) -> Iterator[str]:
    """What is said of replicas and messages that the client has."""
    for tag, names in (("result_ack", reply.acks), ("result_abort", reply.aborts)):
        yield from (block(tag, element("name", name)) for name in names)
    yield flag("message_ack", reply.has_messages_acked)


def _key(key: SigningKey | None) -> Iterator[str]:
    if key is not None:
        yield _text("code_sign_key", key.text)
        yield _text("code_sign_key_signature", key.signature)


def _work(reply: SchedulerReply, places: Places) -> Iterator[str]:
    """What is needed comes before what needs it, and everything once."""
    needed: dict[str, str] = {}
    assignments = reply.assignments
    for file in reply.signed_anew:
        name = places.name_of(file.sha256)
        needed[f"file {name}"] = _download(name, places.download_url, file)
    for item in _distinct_applications(assignments):
        needed[f"app {item.app.name}"] = _app(item.app)
        for file in item.files:
            name = places.name_of(file.sha256)
            needed[f"file {name}"] = _download(name, places.download_url, file)
    for assignment in assignments:
        version = assignment.version
        key = f"{version.app_name} {version.version_num} {version.platform} {version.plan_class}"
        if key not in needed:
            needed[key] = _version(version)
        for own in assignment.work.inputs:
            name = places.name_of(own.sha256)
            # An application's file has a signature, which must not get lost.
            needed.setdefault(f"file {name}", _download(name, places.download_url, own))
    yield from needed.values()
    for assignment in assignments:
        yield from _assignment(assignment, places)


def _distinct_applications(assignments: Sequence[Assignment]) -> Iterable[Application]:
    """Each once: nearly all assignments of a reply share theirs."""
    return {id(item.application): item.application for item in assignments}.values()


@_kept
def _app(app: App) -> str:
    title = element("user_friendly_name", app.user_friendly_name)
    return block("app", element("name", app.name), title)


@_kept
def _download(name: str, download_url: str, file: AppFile | InputFile) -> str:
    signed = file if isinstance(file, AppFile) else None
    return block(
        "file_info",
        element("name", name),
        element("url", f"{download_url}/{name}"),
        flag("executable", signed is not None and signed.executable),
        _text("file_signature", signed.signature if signed else ""),
        element("nbytes", file.size),
        element("md5_cksum", file.md5),
    )


# A reply has these for each of its jobs, so they are written in one piece.


def _upload(file: OutputFile, upload_url: str, certificate: str) -> str:
    return (
        f"<file_info>\n<name>{escape(file.name)}</name>\n<max_nbytes>{file.max_nbytes}</max_nbytes>\n"
        f"<url>{upload_url}</url>\n{_text('xml_signature', certificate)}</file_info>\n"
    )


def _use(use: FileUse) -> str:
    # The client starts a main program where it lies.
    how = "<main_program/>" if use.main_program else "<copy_file/>"
    return (
        f"<file_ref>\n<file_name>{escape(use.file_name)}</file_name>\n"
        f"{_given('open_name', use.open_name)}{how}\n{flag('optional', use.optional)}</file_ref>\n"
    )


@_kept
def _version(version: AppVersion) -> str:
    coproc = version.coproc
    return block(
        "app_version",
        element("app_name", version.app_name),
        element("version_num", version.version_num),
        element("platform", version.platform),
        _given("plan_class", version.plan_class),
        element("api_version", version.api_version),
        element("avg_ncpus", version.avg_ncpus),
        element("flops", version.flops),
        block("coproc", element("type", coproc.type), element("count", coproc.count))
        if coproc
        else "",
        *map(_use, version.files),
    )


def _assignment(item: Assignment, places: Places) -> Iterator[str]:
    work = item.work
    certificates, url = item.certificates or ("",) * len(work.outputs), escape(places.upload_url)
    for file, certificate in zip(work.outputs, certificates, strict=True):
        yield _upload(file, url, certificate)
    yield _workunit(work.workunit)
    yield (
        f"<result>\n<name>{escape(work.name)}</name>\n"
        f"<wu_name>{escape(work.workunit.name)}</wu_name>\n"
        f"<report_deadline>{item.deadline}</report_deadline>\n{_named(item.version)}"
        f"{''.join(map(_use, work.output_uses))}"
        # Or the client keeps it for up to an hour.
        "<report_immediately/>\n</result>\n"
    )


@_kept
def _named(version: AppVersion) -> str:
    """By what a result names the version that runs it."""
    return (
        element("platform", version.platform)
        + element("version_num", version.version_num)
        + element("plan_class", version.plan_class)
    )


def _workunit(unit: Workunit) -> str:
    limits = (unit.rsc_fpops_est, unit.rsc_fpops_bound, unit.rsc_memory_bound, unit.rsc_disk_bound)
    return (
        f"<workunit>\n<name>{escape(unit.name)}</name>\n{_needs(unit.app_name, *limits)}"
        f"<command_line>{escape(unit.command_line)}</command_line>\n"
        f"{''.join(map(_use, unit.files))}</workunit>\n"
    )


@_kept
def _needs(app_name: str, estimate: float, bound: float, memory: float, disk: float) -> str:
    """What the workunits of a BOT have in common, as long as one host's estimate holds."""
    return "".join(
        (
            element("app_name", app_name),
            element("rsc_fpops_est", estimate),
            element("rsc_fpops_bound", bound),
            element("rsc_memory_bound", memory),
            element("rsc_disk_bound", disk),
        )
    )
