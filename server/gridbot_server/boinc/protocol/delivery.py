"""The part of a scheduler reply that brings work: applications, files, and the jobs themselves.

The client silently drops an application version or a job of which any part is missing in the
reply, so all that an assignment needs is sent with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from gridbot_client.protocol.cached import LEAST_BYTES
from gridbot_server.boinc.application.description import (
    App,
    Application,
    AppVersion,
    FileUse,
    JobFile,
    Terms,
    Workunit,
)
from gridbot_server.boinc.application.signed import AppFile
from gridbot_server.boinc.protocol.names import output_name
from gridbot_server.boinc.protocol.tags import BoincError
from gridbot_server.credit.markup import block, element, escape, flag, given, lines

# What describes a BOT is the same in many replies.
_kept = lru_cache(maxsize=1024)

# How long a client keeps a file that a later BOT may need, after the last reply that named it.
_KEPT_SECONDS = 7 * 86_400

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


class StockAssignment(NamedTuple):
    """A replica for this client, run on terms that it shares with others until a deadline.

    The client echoes a certificate (lines of hex) with each upload.
    """

    application: Application
    terms: Terms
    workunit: Workunit
    deadline: int  # s since 1970
    certificates: tuple[str, ...] = ()


def render(
    assignments: Sequence[StockAssignment], signed_anew: Sequence[AppFile], places: Places
) -> Iterator[str]:
    """Say all that these assignments need, everything once, before what needs it."""
    needed: dict[str, str] = {}
    for file in signed_anew:
        _need_file(needed, file, places)
    shared = {id(item.terms): item for item in assignments}
    for item in shared.values():
        needed[f"app {item.application.app.name}"] = _app(item.application.app)
        for file in item.application.files_of(item.terms.version):
            _need_file(needed, file, places)
    for item in shared.values():
        version = item.terms.version
        key = f"{version.app_name} {version.version_num} {version.platform} {version.plan_class}"
        needed[key] = _version(version)
    for item in assignments:
        for own in item.workunit.inputs:
            _need_file(needed, own, places)
    yield from needed.values()
    frames = {key: _frame(item.terms, places.upload_url) for key, item in shared.items()}
    for item in assignments:
        yield _job(frames[id(item.terms)], item, places)


def _need_file(needed: dict[str, str], file: AppFile | JobFile, places: Places) -> None:
    name = places.name_of(file.sha256)
    # An application's file, which comes first, has a signature, which must not get lost.
    needed.setdefault(f"file {name}", _download(name, places.download_url, file))


_KEEP = (flag("sticky"), element("sticky_lifetime", _KEPT_SECONDS))


@_kept
def _app(app: App) -> str:
    title = element("user_friendly_name", app.user_friendly_name)
    return block("app", element("name", app.name), title)


@_kept
def _download(name: str, download_url: str, file: AppFile | JobFile) -> str:
    signed = file if isinstance(file, AppFile) else None
    return block(
        "file_info",
        element("name", name),
        element("url", f"{download_url}/{name}"),
        flag("executable", signed is not None and signed.executable),
        lines("file_signature", signed.signature if signed else ""),
        element("nbytes", file.size),
        element("md5_cksum", file.md5),
        *(_KEEP if signed and file.size >= LEAST_BYTES else ()),
    )


@_kept
def _version(version: AppVersion) -> str:
    coproc = version.coproc
    return block(
        "app_version",
        element("app_name", version.app_name),
        element("version_num", version.version_num),
        element("platform", version.platform),
        given("plan_class", version.plan_class),
        element("api_version", version.api_version),
        element("avg_ncpus", version.avg_ncpus),
        element("flops", version.flops),
        block("coproc", element("type", coproc.type), element("count", coproc.count))
        if coproc
        else "",
        *map(_use, version.files),
    )


def _use(use: FileUse) -> str:
    return block(
        "file_ref",
        element("file_name", use.file_name),
        given("open_name", use.open_name),
        # The client starts a main program where it lies.
        flag("main_program" if use.main_program else "copy_file"),
        flag("optional", use.optional),
    )


# -------------------------------------------------------------------------------- the jobs


@_kept
def _frame(terms: Terms, upload_url: str) -> str:
    """The text of a job, with holes for what differs between the jobs of a BOT."""
    version = terms.version
    files = "".join(
        block(
            "file_info",
            f"<name>%(output{number})s</name>\n",
            element("max_nbytes", upload.max_nbytes),
            _fixed(element("url", upload_url)),
            f"%(certificate{number})s",
        )
        for number, upload in enumerate(terms.uploads)
    )
    workunit = block(
        "workunit",
        "<name>%(name)s</name>\n",
        _fixed(element("app_name", version.app_name)),
        element("rsc_fpops_est", terms.rsc_fpops_est),
        element("rsc_fpops_bound", terms.rsc_fpops_bound),
        element("rsc_memory_bound", terms.rsc_memory_bound),
        element("rsc_disk_bound", terms.rsc_disk_bound),
        "<command_line>%(line)s</command_line>\n%(inputs)s",
    )
    result = block(
        "result",
        "<name>%(name)s</name>\n<wu_name>%(name)s</wu_name>\n",
        "<report_deadline>%(deadline)d</report_deadline>\n",
        _fixed(element("platform", version.platform)),
        element("version_num", version.version_num),
        element("plan_class", version.plan_class),
        *(
            _use(FileUse(f"%(output{number})s", _fixed(upload.open_name), optional=upload.optional))
            for number, upload in enumerate(terms.uploads)
        ),
        # Or the client keeps it for up to an hour.
        flag("report_immediately"),
    )
    return files + workunit + result


def _fixed(text: str) -> str:
    """As part of a frame."""
    return text.replace("%", "%%")


def _job(frame: str, item: StockAssignment, places: Places) -> str:
    workunit, uploads = item.workunit, {}
    for number, certificate in enumerate(item.certificates):
        uploads[f"output{number}"] = escape(output_name(workunit.name, number))
        uploads[f"certificate{number}"] = lines("xml_signature", certificate)
    return frame % {
        **uploads,
        "name": escape(workunit.name),
        "line": escape(workunit.command_line),
        "inputs": "".join(_inputs(workunit, places)) if workunit.inputs else "",
        "deadline": item.deadline,
    }


def _inputs(workunit: Workunit, places: Places) -> Iterator[str]:
    for file in workunit.inputs:
        yield _use(FileUse(places.name_of(file.sha256), file.open_name))
