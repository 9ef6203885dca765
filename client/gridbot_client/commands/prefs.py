"""`gridbot client prefs`: when and how much a machine works."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import click

from gridbot_client.commands.options import as_json, data_option, folder_of, tell
from gridbot_client.preferences.watch import preferred
from gridbot_client.protocol.preferences import READERS, OwnerPreferences, PreferenceError, settings
from gridbot_client.terminal import printable


@click.group()
def prefs() -> None:
    """Say when and how much this machine works.

    While a preference forbids work, what runs is suspended: it stays in memory.  What this machine
    prefers goes before what its account does (gridbot account prefs).

    \b
    hours=22:00-07:00     only then, by this machine's clock
    days=mon-fri,sun      only on these; "any" for these two overrides the account
    on-battery=no         not without mains
    idle-minutes=10       only when nobody used the machine for 10 minutes
    max-other-load=25     only while other programs use at most 25 % of the CPUs
    cpus=4                at most; or
    cpu-share=50          at most, per cent of the CPUs lent
    memory-in-use=25      per cent of the memory lent, while somebody uses the machine
    memory-when-idle=75   the same, while nobody does
    disk=20GB             for files and directories of BOTs that are kept for further jobs; or
    disk-share=10         the same, per cent of the disk
    disk-free=5GB         that stay free
    download-rate=1MB/s   of inputs; upload-rate the same of outputs
    daily-transfer=2GB    of both together
    network-hours=1:00-6:00  inputs and outputs move only then
    give-back-minutes=30  after 30 minutes of suspension work goes back to the server
    """


@prefs.command("set")
@click.argument("texts", nargs=-1, required=True, metavar="NAME=VALUE...")
@data_option
@as_json
def set_prefs(texts: tuple[str, ...], data: Path | None, as_json: bool) -> None:
    """Set preferences; a running client follows within seconds."""
    try:
        given = settings(texts)
    except PreferenceError as error:
        raise click.UsageError(str(error)) from None
    _save_preferences(data, lambda kept: {**kept, **given}, as_json=as_json)


@prefs.command("unset")
@click.argument("names", nargs=-1, required=True)
@data_option
@as_json
def unset_prefs(names: tuple[str, ...], data: Path | None, as_json: bool) -> None:
    """Forget preferences."""
    if unknown := [name for name in names if name not in READERS]:
        raise click.UsageError(f"{unknown[0]!r} is no preference; there are {', '.join(READERS)}")
    _save_preferences(
        data, lambda kept: {name: kept[name] for name in kept if name not in names}, as_json=as_json
    )


@prefs.command("show")
@data_option
@as_json
def show_prefs(data: Path | None, as_json: bool) -> None:
    """Show what is preferred, and who said it: this machine, or the account on the server."""
    found = preferred(folder_of(data))
    document = {
        name: {"value": value, "of": found.origins[name]} for name, value in found.texts.items()
    }
    lines = found.lines() or ["nothing is preferred"]
    click.echo(json.dumps(document) if as_json else "\n".join(map(printable, lines)))


def _save_preferences(
    data: Path | None, changed: Callable[[dict[str, str]], dict[str, str]], *, as_json: bool
) -> None:
    folder = folder_of(data)
    texts = changed(folder.preferences())
    try:
        OwnerPreferences.parse(texts)
    except PreferenceError as error:
        raise click.UsageError(str(error)) from None
    folder.make()
    folder.save_preferences(texts)
    line = ", ".join(f"{name}={value}" for name, value in texts.items()) or "none is left"
    tell(line, texts, as_json=as_json)
