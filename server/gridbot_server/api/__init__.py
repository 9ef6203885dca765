"""The HTTP interface: each module parses, calls, answers; a new one is listed here."""

from gridbot_server.api import (
    bans,
    boinc,
    bots,
    clients,
    content,
    deletion,
    invitations,
    jobs,
    openapi,
    operation,
    overlay,
    results,
    rpc,
    signing,
    uploads,
    volunteers,
)

BLUEPRINTS = (
    bans.blueprint,
    *boinc.BLUEPRINTS,
    bots.blueprint,
    clients.blueprint,
    content.blueprint,
    deletion.blueprint,
    invitations.blueprint,
    jobs.blueprint,
    openapi.blueprint,
    operation.blueprint,
    overlay.blueprint,
    results.blueprint,
    rpc.blueprint,
    signing.blueprint,
    uploads.blueprint,
    volunteers.blueprint,
)
