"""`gridbot host …`: the machines that work for the server."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click

from gridbot.api.errors import BadInput, NotFound
from gridbot.api.session import Session
from gridbot.commands.options import as_json, print_each, print_json, with_session
from gridbot.printing import counted
from gridbot.show.columns import hosts_table
from gridbot.show.page import host_page
from gridbot_client.terminal import printable

HOSTS = click.argument("names", metavar="HOST...", nargs=-1, required=True)


@click.group()
def host() -> None:
    """List and show hosts; set their venue; give their jobs to others; ban and unban them.

    HOST is an ID or a name that `gridbot host list` shows.
    """


@host.command(name="list")
@as_json
@with_session
def list_hosts(session: Session, as_json: bool) -> None:
    """List hosts: all of them for an operator, otherwise your own."""
    document = session.connection.get("/hosts")
    if as_json:
        print_json(document)
    elif document["hosts"]:
        click.echo(hosts_table(document["hosts"]))
    else:
        click.echo("no hosts; to let a machine run your BOTs: gridbot invite")


@host.command()
@HOSTS
@as_json
@with_session
def show(session: Session, names: Sequence[str], as_json: bool) -> None:
    """Show what the answers of a host came to, and what follows.

    Right and wrong are answers that machines of other owners have checked.
    """
    known = {item["id"]: item for item in _listed(session)}

    def said(number: int) -> tuple[Mapping[str, Any], str]:
        if number not in known:
            raise NotFound(f"there is no host {number}; for their IDs: gridbot host list")
        return known[number], host_page(known[number])

    print_each("hosts", numbered(names, known.values()), said, as_json)


@host.command(name="set")
@HOSTS
@click.option(
    "--venue", type=click.Choice(["home", "work", "school", "none"]), required=True,
    help="Location of the machine: Host.Venue in policies, the preference set of BOINC clients.",
)  # fmt: skip
@as_json
@with_session
def set_(session: Session, names: Sequence[str], venue: str, as_json: bool) -> None:
    """Set the venue of your hosts."""
    body = {"venue": "" if venue == "none" else venue}

    def changed(number: int) -> tuple[Mapping[str, Any], str]:
        document = session.connection.send("PATCH", f"/hosts/{number}", body)
        return document, f"host {number}: venue {venue}"

    print_each("hosts", _numbers(session, names), changed, as_json)


@host.command()
@HOSTS
@as_json
@with_session
def forget(session: Session, names: Sequence[str], as_json: bool) -> None:
    """Give the jobs of a lost host to others at once.

    For its owner and operators.  Else copies are sent when the host is silent, and its replicas
    expire at their deadline.  If the host comes back it may work as before, and what it finished
    meanwhile counts.
    """

    def forgotten(number: int) -> tuple[Mapping[str, Any], str]:
        document = session.connection.send("DELETE", f"/hosts/{number}/replicas")
        replicas = counted(document["replicas"], "replica")
        return document, f"host {number} is forgotten; {replicas} rescheduled"

    print_each("hosts", _numbers(session, names), forgotten, as_json)


@host.command()
@HOSTS
@click.option("--why", metavar="TEXT", help="Reason, shown to the owner of the host.")
@as_json
@with_session
def ban(session: Session, names: Sequence[str], why: str | None, as_json: bool) -> None:
    """Ban a host: the server refuses all its requests.

    For operators.  Its replicas are sent to other hosts at once.  Its clients log the reason and
    retry a few times a day.
    """
    body = {"why": why} if why else {}

    def banned(number: int) -> tuple[Mapping[str, Any], str]:
        document = session.connection.send("PUT", f"/hosts/{number}/ban", body)
        replicas = counted(document["replicas"], "replica")
        return document, f"host {number} is banned; {replicas} rescheduled"

    print_each("hosts", _numbers(session, names), banned, as_json)


@host.command()
@HOSTS
@as_json
@with_session
def unban(session: Session, names: Sequence[str], as_json: bool) -> None:
    """Lift the ban of a host; its clients may work again."""

    def lifted(number: int) -> tuple[Mapping[str, Any], str]:
        document = session.connection.send("DELETE", f"/hosts/{number}/ban")
        return document, f"host {number} is not banned"

    print_each("hosts", _numbers(session, names), lifted, as_json)


def _numbers(session: Session, names: Sequence[str]) -> list[int]:
    """IDs of hosts that are named; hosts are listed only if one is not a number already."""
    is_known = all(name.isdecimal() for name in names)
    return numbered(names, () if is_known else _listed(session))


def _listed(session: Session) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = session.connection.get("/hosts")["hosts"]
    return found


def numbered(names: Sequence[str], hosts: Iterable[Mapping[str, Any]]) -> list[int]:
    """IDs of hosts that are given by ID or name.

    Raises NotFound for a name that no host has, BadInput for one that several have.
    """
    named: dict[str, list[int]] = {}
    for item in hosts:
        named.setdefault(str(item["name"]), []).append(item["id"])
    return [_numbered(name, named) for name in names]


def _numbered(name: str, named: Mapping[str, Sequence[int]]) -> int:
    if name.isdecimal():
        return int(name)
    found = named.get(name, ())
    if not found:
        raise NotFound(f"there is no host {printable(name)}; for IDs and names: gridbot host list")
    if len(found) > 1:
        those = ", ".join(map(str, sorted(found)))
        raise BadInput(f"{counted(len(found), 'host')} are named {name}; give an ID: {those}")
    return found[0]
