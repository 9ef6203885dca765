"""`gridbot invite`: one line that lets another machine run your BOTs."""

from __future__ import annotations

import click

from gridbot.api.session import Session
from gridbot.api.units import seconds
from gridbot.commands.options import as_json, print_json, say, with_session
from gridbot.printing import counted
from gridbot_client.installation import copied_from, elsewhere_command
from gridbot_client.net.discovery import is_loopback
from gridbot_client.net.invitation import Invitation
from gridbot_client.protocol.signatures import fingerprint
from gridbot_client.terminal import printable


@click.command()
@click.option(
    "--for", "owner", metavar="OWNER",
    help="Owner of the machines that join; to name another than you needs an operator's key."
    "  [default: you]",
)  # fmt: skip
@click.option(
    "--expires", default="7d", show_default=True, metavar="TIME",
    help="How long machines may join, such as 12h or 30d.",
)  # fmt: skip
@click.option(
    "--uses", type=click.IntRange(1, 10_000), default=1, show_default=True, metavar="N",
    help="How many machines may join.",
)  # fmt: skip
@click.option("--label", default="", metavar="TEXT", help="Note on its purpose.")
@as_json
@with_session
def invite(
    session: Session, owner: str | None, expires: str, uses: int, label: str, as_json: bool
) -> None:
    """Print a line that lets another machine join and run your BOTs.

    Paste it there; it needs no root.  Below it is the line that installs GridBot.

    The line is secret: machines that join with it get your jobs.  To withdraw it: gridbot token
    revoke ID
    """
    signer = session.signer()
    body = {"owner": owner, "expires_seconds": seconds(expires), "uses": uses, "label": label}
    document = session.connection.send("POST", "/invitations", body)
    # The caller's own key is known here; those of another owner an operator takes from the server.
    is_own = document["owner"] == signer.owner
    owners = [signer.key.fingerprint] if is_own else document["owner_keys"]
    invitation = Invitation(
        url=session.connection.url,
        key=document["token"],
        project_key=fingerprint(bytes.fromhex(session.project_key())),
        owners=tuple(owners),
    )
    line = f"gridbot client join '{invitation.text}' && gridbot client start"
    install = elsewhere_command()
    if as_json:
        texts = {"invitation": invitation.text, "command": line, "install": install}
        print_json({**document, **texts})
        return
    click.echo(line)
    say(_told(document["id"], printable(document["owner"]), uses, expires, owners))
    copied = f" (it needs a copy of {path})" if (path := copied_from()) else ""
    say(f"if GridBot is not installed there yet, first{copied}:\n{install}")
    if is_loopback(invitation.url):
        say(
            f"note: {invitation.url} leads nowhere from another machine; start the server with"
            " --bind ADDRESS:PORT, or --url URL behind a proxy, then invite again"
        )


def _told(number: int, owner: str, uses: int, expires: str, owners: list[str]) -> str:
    runs = f"run BOTs signed by {', '.join(owners)}" if owners else "run what the project signs"
    return (
        f"lets {counted(uses, 'machine')} join as {owner}'s within {expires} and {runs};"
        f" to withdraw it: gridbot token revoke {number}"
    )
