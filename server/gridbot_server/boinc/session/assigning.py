"""What dispatch gave a stock client, as assignments in BOINC's terms."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from gridbot_client.protocol import messages
from gridbot_client.protocol.messages import FileRef, Manifest, ReplicaId
from gridbot_client.protocol.template import TemplateError
from gridbot_server.boinc.application import description
from gridbot_server.boinc.application.description import (
    Application,
    AppVersion,
    JobInstance,
    Terms,
    Variant,
)
from gridbot_server.boinc.application.offers import OfferedBot, content_md5s
from gridbot_server.boinc.protocol.delivery import StockAssignment
from gridbot_server.boinc.protocol.names import Lease, Names, output_name
from gridbot_server.boinc.protocol.request import SchedulerRequest
from gridbot_server.boinc.session.host_ad import host_ad
from gridbot_server.boinc.session.hosts import KnownClient
from gridbot_server.boinc.session.project import Project
from gridbot_server.matching.requirements import anything_wanted
from gridbot_server.signing.stock_clients import Unsuitable
from gridbot_server.storage.db import Connect

log = logging.getLogger(__name__)


def assignments(
    project: Project,
    connect: Connect,
    request: SchedulerRequest,
    client: KnownClient,
    given: Sequence[bytes],
) -> tuple[StockAssignment, ...]:
    """Say in BOINC's terms what was given, each as our own reply says it."""
    # Nobody else could have put something wrong into it.
    items = [orjson.loads(part) for part in given]
    offers = project.offers.read(connect, {item["id"][0] for item in items})
    all_terms = {bot: _terms(offer, request, client) for bot, offer in offers.items()}
    now, made = time.time(), []
    for item, instance in zip(
        items, _instances(items, project.names, client, connect), strict=True
    ):
        offer, found = offers[instance.id.bot], all_terms[instance.id.bot]
        if offer.application is None or found is None:
            # A lost one, and its host is not what it was: whoever says so must not fill the log.
            log.info("replica %s is not sent again: its client cannot run it any more", instance.id)
            continue
        manifest, terms = found
        try:
            workunit = description.workunit(manifest, instance)
        except (Unsuitable, TemplateError) as error:
            # Servers refuse such jobs where they arrive; one of another version may not have.
            log.info("replica %s is not sent, it is not for BOINC clients: %s", instance.id, error)
            continue
        certificates = _certificates(project.names, workunit.name, terms)
        deadline = math.ceil(now + item["deadline_seconds"])
        made.append(StockAssignment(offer.application, terms, workunit, deadline, certificates))
    return tuple(made)


def _instances(
    items: Sequence[Mapping[str, Any]], names: Names, client: KnownClient, connect: Connect
) -> Iterator[JobInstance]:
    inputs = [tuple(map(messages.file_ref, item["inputs"])) for item in items]
    md5s = _md5s(connect, [ref for refs in inputs for ref in refs])
    for item, refs in zip(items, inputs, strict=True):
        id = ReplicaId(*item["id"])
        yield JobInstance(id, names.replica(Lease(id, client.id)), item["args"], refs, md5s)


def _md5s(connect: Connect, files: Sequence[FileRef]) -> Mapping[str, str]:
    if not files:
        return {}
    with connect() as conn:
        return content_md5s(conn, files)


def _terms(
    offer: OfferedBot, request: SchedulerRequest, client: KnownClient
) -> tuple[Manifest, Terms] | None:
    """What this client runs of a BOT, and on what terms; None if it cannot."""
    if offer.application and offer.manifest.programs:
        run = _variant(offer.application, request)
        manifest, version = (run.manifest, run.version) if run else (offer.manifest, None)
    else:
        manifest, version = offer.manifest, _version(offer, request)
    if version is None:
        return None
    return manifest, description.terms(manifest, version, client.mean_turnaround)


def _variant(application: Application, request: SchedulerRequest) -> Variant | None:
    """The program for the processors for which a client asks; for a lost job, for any."""
    host = host_ad(request)
    return application.variant_for(host) or application.variant_for(anything_wanted(host))


def _version(offer: OfferedBot, request: SchedulerRequest) -> AppVersion | None:
    """The version of a BOT without a table that a client can run."""
    gpus = offer.manifest.resources.gpus
    fitting = [found for found in request.gpus if found.count >= gpus]
    wanted = [found for found in fitting if found.wanted.is_any]
    kinds = {found.type for found in wanted or fitting}
    made = offer.application
    return made.version_for(request.client.platforms, kinds) if made else None


def _certificates(names: Names, replica: str, terms: Terms) -> tuple[str, ...]:
    return tuple(
        names.certificate(output_name(replica, number), upload.max_nbytes)
        for number, upload in enumerate(terms.uploads)
    )
