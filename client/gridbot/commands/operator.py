"""The operator's commands: users and keys."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode

import click

from gridbot.api.session import Session
from gridbot.api.units import seconds
from gridbot.commands.options import KEYS, as_json, print_each, print_json, say, with_session
from gridbot.printing import counted
from gridbot.show.columns import columns
from gridbot_client.terminal import printable


@click.group()
def user() -> None:
    """Add and list users; show their credit."""


@user.command(name="add")
@click.argument("name")
@click.option("--operator", is_flag=True, help="Make the user an operator, who may do everything.")
@click.option(
    "--share",
    type=click.FloatRange(0, min_open=True),
    metavar="NUMBER",
    help="Share of the hosts, relative to other users' shares.  [default: 1]",
)
@click.option(
    "--max-jobs",
    type=click.IntRange(1),
    metavar="N",
    help="Quota: jobs in the user's unfinished BOTs.  [default: no limit]",
)
@as_json
@with_session
def add_user(session: Session, name: str, as_json: bool, **options: Any) -> None:
    """Add a user.  To create a key for the user: gridbot token create NAME."""
    given = {key: value for key, value in options.items() if value}
    document = session.connection.send("POST", "/owners", {"name": name, **given})
    if as_json:
        print_json(document)
    else:
        click.echo(f"added {name}; to create a key: gridbot token create {name}")


@user.command(name="list")
@as_json
@with_session
def list_users(session: Session, as_json: bool) -> None:
    """List the users with their shares, quotas and credit."""
    document = session.connection.get("/owners")
    names = ("name", "operator", "share", "max_jobs", "credit")
    if as_json:
        print_json(document)
    else:
        click.echo(columns(document["owners"], names))


@user.command(name="show")
@click.argument("name", required=False)
@as_json
@with_session
def show_user(session: Session, name: str | None, as_json: bool) -> None:
    """Show your credit and team; operators may name any user."""
    tell_volunteer(session.connection.get("/volunteer", name=name), as_json)


@user.command(name="set")
@click.option(
    "--public/--private",
    required=True,
    help="Allow or forbid the published statistics to name you and your hosts.",
)
@as_json
@with_session
def set_user(session: Session, public: bool, as_json: bool) -> None:
    """Set your consent to be named in published statistics.

    New users are not named.
    """
    tell_volunteer(session.connection.send("PATCH", "/volunteer", {"public": public}), as_json)


@user.command(name="comparisons")
@click.argument("name")
@click.option(
    "--allow/--forbid",
    required=True,
    help="Whether the user's own comparisons (--validator command:./compare) run on the server.",
)
@as_json
@with_session
def change_comparisons(session: Session, name: str, allow: bool, as_json: bool) -> None:
    """Allow or forbid a user's own comparisons on the server.

    They run confined there.  New users may not.
    """
    path = f"/owners/{quote(name, safe='')}"
    document = session.connection.send("PATCH", path, {"may_compare": allow})
    if as_json:
        print_json(document)
    else:
        may = "may" if document["may_compare"] else "may not"
        click.echo(f"{name} {may} run comparisons on the server")


@user.command()
@click.option("--target", metavar="PATH", help="Only changes of this path, such as /api/v1/bots/7.")
@click.option(
    "--limit",
    type=click.IntRange(1, 10_000),
    default=100,
    show_default=True,
    metavar="N",
    help="Changes at most.",
)
@as_json
@with_session
def audit(session: Session, target: str | None, limit: int, as_json: bool) -> None:
    """List who changed what, the latest first.

    An operator sees all, others what their own keys did.
    """
    query = urlencode({"limit": limit, **({"target": target} if target else {})})
    entries = session.connection.get(f"/audit?{query}")["entries"]
    if as_json:
        print_json(entries)
        return
    for entry in entries:
        given = json.dumps(entry["given"]) if entry["given"] else ""
        line = f"{entry['at'][:19]}  {entry['owner']}  key {entry['key']}  {entry['action']}"
        click.echo(printable(f"{line}  {entry['target']}  {given}".rstrip()))


@click.group()
def token() -> None:
    """Create, revoke and list access keys."""


@token.command()
@click.argument("owner")
@click.option(
    "--scope",
    type=click.Choice(["user", "operator", "join", "metrics"]),
    default="user",
    show_default=True,
    help="user: submit and manage own BOTs; operator: everything; join: only join clients;"
    " metrics: only read /metrics.",
)
@click.option("--label", default="", metavar="TEXT", help="Note on its purpose.")
@click.option("--expires", metavar="TIME", help="Lifetime, such as 12h or 30d.  [default: none]")
@as_json
@with_session
def create(session: Session, owner: str, expires: str | None, as_json: bool, **rest: Any) -> None:
    """Create a key for the user OWNER and print it.  It cannot be shown again."""
    body = {"owner": owner, **rest}
    if expires:
        body["expires_seconds"] = seconds(expires)
    document = session.connection.send("POST", "/tokens", body)
    if as_json:
        print_json(document)
    else:
        click.echo(document["token"])
        say(f"key {document['id']}; save it now, it cannot be shown again")
        if rest["scope"] == "join":
            url = session.connection.url
            say(f"on each machine: gridbot client join {url} --key {document['token']}")


@token.command()
@KEYS
@click.option("--with-clients", is_flag=True, help="Also revoke clients that joined with the keys.")
@as_json
@with_session
def revoke(session: Session, numbers: Sequence[int], with_clients: bool, as_json: bool) -> None:
    """Revoke the keys ID...; `gridbot token list` shows IDs.

    Clients that joined with a key have tokens of their own and keep working, unless
    --with-clients is given.
    """

    def revoked(number: int) -> tuple[Mapping[str, Any], str]:
        path = f"/tokens/{number}" + ("?with_clients=1" if with_clients else "")
        document = session.connection.send("DELETE", path)
        ended, left = document["clients_ended"], document["clients_left"]
        also = f", and {counted(ended, 'client')} with it" if with_clients else ""
        if left and not as_json:
            keep = "keeps" if left == 1 else "keep"
            say(
                f"note: {counted(left, 'client')} that joined with it {keep} working;"
                f" to revoke them: gridbot token revoke {number} --with-clients"
            )
        return document, f"key {number} is revoked{also}"

    print_each("tokens", numbers, revoked, as_json)


@token.command(name="list")
@as_json
@with_session
def list_tokens(session: Session, as_json: bool) -> None:
    """List keys; the secrets themselves are not shown."""
    document = session.connection.get("/tokens")
    names = (
        "id", "owner", "scope", "label", "machines", "uses", "created_at", "expires_at",
        "revoked_at",
    )  # fmt: skip
    if as_json:
        print_json(document)
    else:
        click.echo(columns(document["tokens"], names))


def tell_volunteer(document: Mapping[str, Any], as_json: bool) -> None:
    """Print a user's credit, team and consent to be named."""
    if as_json:
        print_json(document)
    else:
        names = ("name", "credit", "recent_credit", "team", "public", "created_at")
        click.echo(columns([document], names))
