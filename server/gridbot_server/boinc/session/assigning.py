"""What dispatch gave a stock client, as assignments in BOINC's terms."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from gridbot_client.protocol import messages
from gridbot_client.protocol.messages import FileRef, ReplicaId
from gridbot_server.boinc.application import description
from gridbot_server.boinc.application.description import JobInstance, Terms
from gridbot_server.boinc.application.offers import OfferedBot, content_md5s
from gridbot_server.boinc.protocol.delivery import StockAssignment
from gridbot_server.boinc.protocol.names import Lease, Names, output_name
from gridbot_server.boinc.protocol.request import SchedulerRequest
from gridbot_server.boinc.session.hosts import KnownClient
from gridbot_server.boinc.session.project import Project
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
    terms = {bot: _terms(offer, request, client) for bot, offer in offers.items()}
    now, made = time.time(), []
    for item, instance in zip(
        items, _instances(items, project.names, client, connect), strict=True
    ):
        offer, found = offers[instance.id.bot], terms[instance.id.bot]
        if offer.application is None or found is None:
            # A lost one, and its host is not what it was: whoever says so must not fill the log.
            log.info("replica %s is not sent again: its client cannot run it any more", instance.id)
            continue
        workunit = description.workunit(offer.manifest, instance)
        certificates = _certificates(project.names, workunit.name, found)
        deadline = math.ceil(now + item["deadline_seconds"])
        made.append(StockAssignment(offer.application, found, workunit, deadline, certificates))
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


def _terms(offer: OfferedBot, request: SchedulerRequest, client: KnownClient) -> Terms | None:
    """On what terms this client runs a BOT; None if it cannot."""
    gpus = offer.manifest.resources.gpus
    fitting = [found for found in request.gpus if found.count >= gpus]
    wanted = [found for found in fitting if found.wanted.is_any]
    kinds = {found.type for found in wanted or fitting}
    made = offer.application
    version = made.version_for(request.client.platforms, kinds) if made else None
    if version is None:
        return None
    return description.terms(offer.manifest, version, client.mean_turnaround)


def _certificates(names: Names, replica: str, terms: Terms) -> tuple[str, ...]:
    return tuple(
        names.certificate(output_name(replica, number), upload.max_nbytes)
        for number, upload in enumerate(terms.uploads)
    )
