"""The HTTP interface: each module parses, calls, answers; a new one is listed here."""

from gridbot_server.api import (
    boinc,
    bots,
    clients,
    content,
    documents,
    jobs,
    operation,
    overlay,
    results,
    rpc,
    signing,
    uploads,
    volunteers,
)

BLUEPRINTS = (
    boinc.blueprint,
    bots.blueprint,
    clients.blueprint,
    content.blueprint,
    documents.blueprint,
    jobs.blueprint,
    operation.blueprint,
    overlay.blueprint,
    results.blueprint,
    rpc.blueprint,
    signing.blueprint,
    uploads.blueprint,
    volunteers.blueprint,
)
