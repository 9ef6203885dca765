"""The page on which volunteers who made their accounts themselves decide what is theirs to decide.

It takes the password each time.  The account's key would not do: each job can read that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gridbot_server.credit.markup import escape

# What may be decided, and how the form puts it; one thing each time.
DECISIONS = {
    "nothing": "show my account",
    "public": "name me and my hosts in the statistics",
    "private": "do not name me",
    "join": "join this team:",
    "leave": "leave my team",
}


def account_page(project: str, account: Mapping[str, Any] | None = None) -> str:
    """The form, below what is known of the account that was changed with it."""
    title = f"Your account at {escape(project)}"
    options = "".join(f'<option value="{name}">{text}\n' for name, text in DECISIONS.items())
    return (
        f"<!DOCTYPE html>\n<html><head>\n<title>{title}</title>\n</head><body>\n"
        f"<h1>{title}</h1>\n{_state(account) if account else ''}"
        '<form method="post" autocomplete="off">\n'
        '<p>E-mail address <input name="email" type="email" required></p>\n'
        '<p>Password <input name="password" type="password" required></p>\n'
        f'<p><select name="decision">\n{options}</select> <input name="team" maxlength="100"></p>\n'
        "<p><button>Go</button></p>\n</form>\n</body></html>\n"
    )


def _state(account: Mapping[str, Any]) -> str:
    team = f"in the team {escape(account['team'])}" if account["team"] else "in no team"
    named = "named" if account["public"] else "not named"
    return f"<p>{account['credit']:,.2f} credit, {team}, {named} in the statistics.</p>\n"
