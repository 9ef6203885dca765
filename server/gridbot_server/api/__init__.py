"""The HTTP interface: each module parses, calls, answers; a new one is listed here."""

from gridbot_server.api import (
    boinc,
    bots,
    clients,
    content,
    documents,
    jobs,
    operation,
    results,
    rpc,
    uploads,
)

BLUEPRINTS = (
    boinc.blueprint,
    bots.blueprint,
    clients.blueprint,
    content.blueprint,
    documents.blueprint,
    jobs.blueprint,
    operation.blueprint,
    results.blueprint,
    rpc.blueprint,
    uploads.blueprint,
)
