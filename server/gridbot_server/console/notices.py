"""Notices: who is told when a BOT of one's own ends or is held, and whether it arrived."""

from __future__ import annotations

from typing import Any

from flask import request

from gridbot_server.api import notices as api
from gridbot_server.api.schema import call
from gridbot_server.console.blueprint import action, blueprint, live, model, own
from gridbot_server.http import auth
from gridbot_server.http.services import current
from gridbot_server.models.requests import Confirmation, NewAddress


@blueprint.get("/notices")
@auth.rule("console user")
@live("notices.html", seconds=2.0, whose=own)
def notices_page() -> dict[str, Any]:
    """Show the addresses of whose session it is."""
    return {
        "title": "Notices",
        "addresses": call(api.list_addresses).addresses,
        "sends_mail": current().settings.mail_relay is not None,
    }


# ---------------------------------------------------------------------------------- actions


@blueprint.post("/notices")
@auth.rule("console user")
@action
def add_mailbox() -> str:
    """Have a code mailed to a mailbox, which is told once the code is shown."""
    url = f"mailto:{request.form.get('mailbox', '').strip()}"
    call(api.add_address, json=model(NewAddress, {"url": url}))
    return "/notices"


@blueprint.post("/notices/<int:address>/confirm")
@auth.rule("console user")
@action
def confirm_mailbox(address: int) -> str:
    """Show the code that was mailed to a mailbox."""
    given = {"code": request.form.get("code", "").strip()}
    call(api.confirm_address, address=address, json=model(Confirmation, given))
    return "/notices"


@blueprint.post("/notices/<int:address>/remove")
@auth.rule("console user")
@action
def remove_address(address: int) -> str:
    """Tell an address nothing more."""
    call(api.remove_address, address=address)
    return "/notices"
