"""The operator's commands: hosts, users and keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import quote

import click

from gridbot.api.errors import NotFound
from gridbot.api.session import Session
from gridbot.api.units import seconds
from gridbot.commands.options import as_json, print_json, say, with_session
from gridbot.printing import counted, table
from gridbot.show.page import client_name, host_page

_HOST_COLUMNS = (
    "id",
    "name",
    "owner",
    "cpus",
    "memory",
    "platform",
    "client",
    "clients",
    "replicas_running",
    "error_rate",
    "credit",
    "seen_at",
    "banned_at",
)


@click.command()
@as_json
@with_session
def hosts(session: Session, as_json: bool) -> None:
    """List hosts: all of them for an operator, otherwise your own."""
    document = session.connection.get("/hosts")
    if as_json:
        print_json(document)
    else:
        click.echo(columns([_flat(host) for host in document["hosts"]], _HOST_COLUMNS))


@click.group()
def host() -> None:
    """Show a host; set its venue; give its jobs to others; ban and unban it."""


HOST = click.argument("number", metavar="ID", type=click.IntRange(1))


@host.command(name="show")
@HOST
@as_json
@with_session
def show_host(session: Session, number: int, as_json: bool) -> None:
    """Show what the answers of one host came to, and what follows.

    Right and wrong are answers that machines of other owners have checked.
    """
    found = [item for item in session.connection.get("/hosts")["hosts"] if item["id"] == number]
    if not found:
        raise NotFound(f"there is no host {number}; for their IDs: gridbot hosts")
    (said,) = found
    print_json(said) if as_json else click.echo(host_page(said))


@host.command(name="set")
@HOST
@click.option(
    "--venue", type=click.Choice(["home", "work", "school", "none"]), required=True,
    help="Location of the machine: Host.Venue in policies, the preference set of BOINC clients.",
)  # fmt: skip
@as_json
@with_session
def set_host(session: Session, number: int, venue: str, as_json: bool) -> None:
    """Set the venue of one of your hosts; `gridbot hosts` shows their IDs."""
    body = {"venue": "" if venue == "none" else venue}
    document = session.connection.send("PATCH", f"/hosts/{number}", body)
    print_json(document) if as_json else click.echo(f"host {number}: venue {venue}")


@host.command()
@HOST
@as_json
@with_session
def forget(session: Session, number: int, as_json: bool) -> None:
    """Give the jobs of a lost host to others at once.

    For its owner and operators; `gridbot hosts` shows IDs.  Else copies are sent when
    the host is silent, and its replicas expire at their deadline.  If the host comes back it may
    work as before, and what it finished meanwhile counts.
    """
    document = session.connection.send("DELETE", f"/hosts/{number}/replicas")
    if as_json:
        print_json(document)
    else:
        replicas = counted(document["replicas"], "replica")
        click.echo(f"host {number} is forgotten; {replicas} rescheduled")


@host.command()
@HOST
@click.option("--why", metavar="TEXT", help="Reason, shown to the owner of the host.")
@as_json
@with_session
def ban(session: Session, number: int, why: str | None, as_json: bool) -> None:
    """Ban a host: the server refuses all its requests.

    For operators.  Its replicas are sent to other hosts at once.  Its clients log the reason and
    retry a few times a day.
    """
    body = {"why": why} if why else {}
    document = session.connection.send("PUT", f"/hosts/{number}/ban", body)
    if as_json:
        print_json(document)
    else:
        replicas = counted(document["replicas"], "replica")
        click.echo(f"host {number} is banned; {replicas} rescheduled")


@host.command()
@HOST
@as_json
@with_session
def unban(session: Session, number: int, as_json: bool) -> None:
    """Lift the ban of a host; its clients may work again."""
    document = session.connection.send("DELETE", f"/hosts/{number}/ban")
    print_json(document) if as_json else click.echo(f"host {number} is not banned")


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


@click.group()
def token() -> None:
    """Create, revoke and list access keys."""


@token.command()
@click.argument("owner")
@click.option(
    "--scope",
    type=click.Choice(["user", "operator", "join"]),
    default="user",
    show_default=True,
    help="user: submit and manage own BOTs; operator: everything; join: only join clients.",
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
        click.echo(f"key {document['id']}; save it now, it cannot be shown again", err=True)


@token.command()
@click.argument("number", metavar="ID", type=click.IntRange(1))
@click.option("--with-clients", is_flag=True, help="Also revoke clients that joined with the key.")
@as_json
@with_session
def revoke(session: Session, number: int, with_clients: bool, as_json: bool) -> None:
    """Revoke the key ID; `gridbot token list` shows IDs.

    Clients that joined with the key have tokens of their own and keep working, unless
    --with-clients is given.
    """
    path = f"/tokens/{number}" + ("?with_clients=1" if with_clients else "")
    document = session.connection.send("DELETE", path)
    if as_json:
        print_json(document)
        return
    ended, left = document["clients_ended"], document["clients_left"]
    also = f", and {counted(ended, 'client')} with it" if with_clients else ""
    click.echo(f"key {number} is revoked{also}")
    if left:
        keep = "keeps" if left == 1 else "keep"
        say(
            f"note: {counted(left, 'client')} that joined with it {keep} working;"
            f" to revoke them: gridbot token revoke {number} --with-clients"
        )


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


def _flat(host: Mapping[str, Any]) -> dict[str, Any]:
    ad = host["attributes"]
    columns = {"cpus": "NumCpus", "memory": "Memory", "platform": "Platform"}
    own = {column: ad.get(name) for column, name in columns.items()}
    return {**host, **own, "client": client_name(ad.get("IsBoinc"), ad.get("ClientVersion"))}


def tell_volunteer(document: Mapping[str, Any], as_json: bool) -> None:
    """Print a user's credit, team and consent to be named."""
    if as_json:
        print_json(document)
    else:
        names = ("name", "credit", "recent_credit", "team", "public", "created_at")
        click.echo(columns([document], names))


def columns(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> str:
    """Table of the fields `names` of each row."""
    header = [name.removesuffix("_at").replace("_", " ") for name in names]
    return table(header, [[_cell(name, row.get(name)) for name in names] for row in rows])


def _cell(name: str, value: object) -> object:
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name.endswith("_at"):
        return datetime.fromisoformat(str(value)).astimezone().strftime("%Y-%m-%d %H:%M")
    if name.endswith("credit"):
        return f"{value:,.2f}"
    return f"{value:.3g}" if isinstance(value, float) else value
