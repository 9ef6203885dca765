"""The HTTP interface: each module parses, calls, answers; a new one is listed here."""

from gridbot_server.api import (
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
