"""Answers requests of ARC's REST interface 1.0.

/arex/rest                             versions
/arex/rest/1.0/info                    the service, in GLUE 2
/arex/rest/1.0/delegations[/ID]        proxies, which clients insist on; none is kept
/arex/rest/1.0/jobs                    jobs of the client; POST ?action=… acts on them
/arex/rest/1.0/jobs/ID/session/PATH    files of a job, also by WebDAV's PROPFIND
/arex/rest/1.0/jobs/ID/diagnose/NAME   what is known of a job
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import format_datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.etree.ElementTree import Element, SubElement

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding

from gridbot.api.errors import BadInput, Refused
from gridbot.gatekeeper import glue2
from gridbot.gatekeeper.answers import (
    ArcAnswer,
    ArcRequest,
    RequestFault,
    document,
    job_ids,
    text,
    xml,
)
from gridbot.gatekeeper.files import CutShort, JobFiles, Listed, is_full, one
from gridbot.gatekeeper.jobs import AcceptedJob, AcceptedJobs, JobsUnreadable
from gridbot.gatekeeper.reading import read
from gridbot.gatekeeper.states import ArcState

log = logging.getLogger(__name__)

VERSION = "1.0"
_BODY_BYTES = 4 << 20
_NO_SUCH_JOB = "Job not found"

Item = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class GatekeeperLimits:
    """Bounds for what clients send."""

    jobs: int = 10_000  # of one subject, until they are cleaned
    file_bytes: int = 2 << 30  # of one input


class ArcRest:
    """The interface over accepted jobs and their files."""

    def __init__(
        self,
        jobs: AcceptedJobs,
        files: JobFiles,
        limits: GatekeeperLimits,
    ) -> None:
        self._jobs, self._files, self._limits = jobs, files, limits

    def answer(self, request: ArcRequest) -> ArcAnswer:
        """Answer one request.  Raises RequestFault."""
        try:
            return self._answer(request)
        except JobsUnreadable as error:
            log.error("%s", error)
            raise RequestFault(
                HTTPStatus.SERVICE_UNAVAILABLE, "the jobs cannot be read or written now: try later"
            ) from None

    def _answer(self, request: ArcRequest) -> ArcAnswer:
        match request.path:
            case []:
                _only(request, "GET")
                return document(request, HTTPStatus.OK, "versions", {"version": [VERSION]})
            case [version, *_] if version != VERSION:
                raise RequestFault(
                    HTTPStatus.NOT_FOUND, f"version {version[:20]}: there is {VERSION}"
                )
            case [_, "info"]:
                _only(request, "GET")
                told = glue2.service(request.base)
                return document(request, HTTPStatus.OK, "InfoRoot", told)
            case [_, "delegations"]:
                return self._delegations(request)
            case [_, "delegations", id]:
                return self._delegation(request, id)
            case [_, "jobs"]:
                return self._all_jobs(request)
            case [_, "jobs", id, "session", *parts]:
                return self._session(request, self._own(request, id), "/".join(parts))
            case [_, "jobs", id, "diagnose", name]:
                _only(request, "GET")
                return self._diagnosis(self._own(request, id), name)
            case _:
                raise RequestFault(HTTPStatus.NOT_FOUND, "there is no such resource")

    # --- delegations

    def _delegations(self, request: ArcRequest) -> ArcAnswer:
        if request.method == "GET":
            return document(request, HTTPStatus.OK, "delegations", {})
        _only(request, "POST")
        if request.query.get("action") != "new":
            raise _no_action(request)
        request.content(_BODY_BYTES)
        place = f"{request.base}/rest/{VERSION}/delegations/{secrets.token_hex(16)}"
        return text(HTTPStatus.CREATED, certificate_request(), Location=place)

    def _delegation(self, request: ArcRequest, id: str) -> ArcAnswer:
        request.content(_BODY_BYTES)
        if request.method == "PUT":
            return text(HTTPStatus.OK, "")
        _only(request, "POST")
        if request.query.get("action") == "renew":
            return text(HTTPStatus.CREATED, certificate_request())
        if request.query.get("action") == "delete":
            return text(HTTPStatus.OK, "")
        raise RequestFault(HTTPStatus.NOT_FOUND, f"delegation {id[:40]}: none is kept")

    # --- jobs

    def _all_jobs(self, request: ArcRequest) -> ArcAnswer:
        if request.method == "GET":
            wanted = request.query.get("state", "")
            jobs = [job for job in self._jobs.of(request.subject) if wanted in ("", job.shown)]
            listed = [{"id": job.id, "state": job.shown} for job in jobs]
            return document(request, HTTPStatus.OK, "jobs", {"job": listed})
        _only(request, "POST")
        action = request.query.get("action", "")
        if action == "new":
            return self._new(request)
        act = self._actions(request).get(action)
        if act is None:
            raise _no_action(request)
        items = [self._on(request, id, act) for id in job_ids(request, _BODY_BYTES)]
        return document(request, HTTPStatus.CREATED, "jobs", {"job": items})

    def _actions(self, request: ArcRequest) -> Mapping[str, Callable[[AcceptedJob], Item]]:
        return {
            "info": lambda job: _item(
                job.id, 200, "OK",
                info_document={"ComputingActivity": glue2.activity(request.base, job)},
            ),
            "status": lambda job: _item(job.id, 200, "OK", state=job.shown),
            "kill": self._kill,
            "clean": self._clean,
            "restart": lambda job: _item(job.id, 505, "a job is not restarted here; submit it"),
            "delegations": lambda job: _item(job.id, 200, "OK"),
        }  # fmt: skip

    def _new(self, request: ArcRequest) -> ArcAnswer:
        """Accept jobs; each that cannot be run here gets its reason."""
        try:
            described = read(request.content(_BODY_BYTES))
            good = [job.text for job in described if not isinstance(job.found, BadInput)]
            with self._files.room(sum(map(len, good))):
                ids = iter(self._jobs.add(request.subject, good, self._limits.jobs))
        except BadInput as error:
            raise RequestFault(HTTPStatus.BAD_REQUEST, str(error)) from None
        except OSError as error:
            raise _no_room(error) from None
        except Refused as error:
            raise RequestFault(HTTPStatus.TOO_MANY_REQUESTS, str(error)) from None
        items: list[Item] = [
            {"status-code": "400", "reason": str(job.found)}
            if isinstance(job.found, BadInput)
            else _item(next(ids), 201, "Created", state="ACCEPTING")
            for job in described
        ]
        return document(request, HTTPStatus.CREATED, "jobs", {"job": items})

    def _on(self, request: ArcRequest, id: str, act: Callable[[AcceptedJob], Item]) -> Item:
        job = self._jobs.one(request.subject, id)
        return _item(id, 404, _NO_SUCH_JOB) if job is None else act(job)

    def _kill(self, job: AcceptedJob) -> Item:
        if job.ended is not None:
            return _item(job.id, 505, f"the job has ended already: {job.state}")
        self._jobs.kill(job.id)
        return _item(job.id, 202, "Queued for killing")

    def _clean(self, job: AcceptedJob) -> Item:
        if job.ended is None:
            return _item(job.id, 505, f"the job has not ended: {job.shown}; kill it first")
        self._files.remove(job.id)
        self._jobs.remove(job.id)
        return _item(job.id, 202, "Queued for cleaning")

    def _own(self, request: ArcRequest, id: str) -> AcceptedJob:
        """The client's job with this id.  Raises RequestFault."""
        job = self._jobs.one(request.subject, id)
        if job is None:
            raise RequestFault(HTTPStatus.NOT_FOUND, _NO_SUCH_JOB)
        return job

    # --- files of a job

    def _session(self, request: ArcRequest, job: AcceptedJob, name: str) -> ArcAnswer:
        if request.method == "PUT":
            return self._receive(request, job, name)
        _only(request, "GET", "HEAD", "PROPFIND")
        request.content(_BODY_BYTES)
        place = self._files.find(self._shown(job), name)
        if place is None:
            raise RequestFault(HTTPStatus.NOT_FOUND, f"{name[:200]}: there is no such file")
        if request.method == "PROPFIND":
            return self._properties(request, job, place)
        if place.is_file():
            kind = "application/octet-stream"
            return ArcAnswer(HTTPStatus.OK, kind=kind, file=place)
        listed = self._files.listed(place)
        files = [item.name for item in listed if not item.is_directory]
        folders = [item.name for item in listed if item.is_directory]
        return document(request, HTTPStatus.OK, "list", {"file": files, "dir": folders})

    def _shown(self, job: AcceptedJob) -> Path:
        """The directory that clients see: the outputs, once a job has ended."""
        find = self._files.inputs if job.ended is None else self._files.outputs
        return find(job.id)

    def _receive(self, request: ArcRequest, job: AcceptedJob, name: str) -> ArcAnswer:
        """Take a file that a job waits for; the same again, too, until it is submitted."""
        sent = next((file for file in job.description.inputs if file.name == name), None)
        if sent is None:
            raise RequestFault(
                HTTPStatus.NOT_FOUND, f"{name[:200]}: the job has no input of this name"
            )
        if request.length > self._limits.file_bytes:
            words = f"{name}: {request.length} bytes, at most {self._limits.file_bytes}"
            raise RequestFault(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, words)
        if job.state is not ArcState.ACCEPTED:
            raise RequestFault(HTTPStatus.FORBIDDEN, f"{name}: the job has its files: {job.shown}")
        try:
            awaiting = self._jobs.awaiting(job.id)
            self._files.receive(job.id, sent, request.length, request.read, awaiting)
        except CutShort as error:
            raise RequestFault(HTTPStatus.BAD_REQUEST, str(error)) from None
        except Refused as error:  # it was submitted, or cleaned, while this came
            raise RequestFault(HTTPStatus.FORBIDDEN, f"{name}: {error}") from None
        except OSError as error:
            raise _no_room(error) from None
        return text(HTTPStatus.OK, "")

    def _properties(self, request: ArcRequest, job: AcceptedJob, place: Path) -> ArcAnswer:
        root = Element("D:multistatus", {"xmlns:D": "DAV:"})
        shown = self._shown(job)
        below = self._files.listed(place) if request.depth != "0" else []
        here = [one(place)] if place.exists() else [Listed(place, "", True, 0, job.created)]
        for item in (*here, *below):
            relative = item.path.relative_to(shown).as_posix()
            inner = "" if relative == "." else f"/{quote(relative)}"
            _response(root, f"/arex/rest/{VERSION}/jobs/{job.id}/session{inner}", item)
        return xml(HTTPStatus.MULTI_STATUS, root)

    # --- what is known of a job

    def _diagnosis(self, job: AcceptedJob, name: str) -> ArcAnswer:
        wanted = job.description
        told = {
            "status": job.shown,
            "description": job.text,
            "failed": job.end.reason,
            "errors": job.end.reason,
            "local": f"jobname={wanted.name}\nsubject={job.subject}\nlocalid={job.bot or ''}",
            "diag": f"exitcode={'' if job.end.exit_code is None else job.end.exit_code}",
        }
        if not told.get(name):
            raise RequestFault(HTTPStatus.NOT_FOUND, f"{name[:40]}: nothing is known of that")
        return text(HTTPStatus.OK, f"{told[name]}\n")


def _only(request: ArcRequest, *methods: str) -> None:
    if request.method not in methods:
        words = f"{request.method} is none of {', '.join(methods)}"
        raise RequestFault(HTTPStatus.NOT_IMPLEMENTED, words)


def _no_room(error: OSError) -> RequestFault:
    """What a client is told of a disk without room; raises any other error again."""
    if not is_full(error):
        raise error
    return RequestFault(HTTPStatus.INSUFFICIENT_STORAGE, "the gatekeeper's disk is full")


def _no_action(request: ArcRequest) -> RequestFault:
    action = request.query.get("action", "")
    return RequestFault(HTTPStatus.NOT_IMPLEMENTED, f"action {action[:40]!r} is not implemented")


def _item(id: str, status: int, reason: str, **more: Any) -> Item:
    return {"status-code": str(status), "reason": reason, "id": id, **more}


def _response(root: Element, path: str, item: Listed) -> None:
    """What WebDAV says of a file or directory."""
    response = SubElement(root, "D:response")
    SubElement(response, "D:href").text = f"{path}/" if item.is_directory else path
    found = SubElement(response, "D:propstat")
    SubElement(found, "D:status").text = "HTTP/1.1 200 OK"
    known = SubElement(found, "D:prop")
    SubElement(known, "D:displayname").text = item.name
    kind = SubElement(known, "D:resourcetype")
    if item.is_directory:
        SubElement(kind, "D:collection")
    else:
        SubElement(known, "D:getcontentlength").text = str(item.size)
    changed = datetime.fromtimestamp(item.changed, UTC)
    SubElement(known, "D:getlastmodified").text = format_datetime(changed, usegmt=True)


def certificate_request() -> str:
    """A request for a proxy whose private key nobody keeps: nobody can act by it."""
    key = rsa.generate_private_key(65537, 2048)
    made = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    return made.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM).decode()
