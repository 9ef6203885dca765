"""The command `scripts/trial`: one persona per module, one report."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path

import click

from scripts.trials.lab import lab
from scripts.trials.moments import compared, moments
from scripts.trials.scientist import scientist
from scripts.trials.terminal import TrialFailed, Typed
from scripts.trials.volunteer import volunteer

# What a persona types, in a folder for all its homes.
PERSONAS: dict[str, Callable[[Path], Sequence[Typed]]] = {
    "scientist": scientist,
    "volunteer": volunteer,
    "lab": lab,
    "moments": moments,
}


@click.command()
@click.argument("persona", type=click.Choice(list(PERSONAS)))
@click.option("--transcript", is_flag=True, help="Print all that the terminal showed.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def trial(persona: str, transcript: bool, as_json: bool) -> None:
    """Type what PERSONA types from the README alone, and check what the terminal shows.

    Ends with 1 if the terminal shows something else than the person expects.
    """
    with tempfile.TemporaryDirectory(prefix="gridbot-trial-", dir="/tmp") as made:
        place = Path(made)
        place.chmod(0o711)  # others than root live below
        try:
            typed = PERSONAS[persona](place)
        except TrialFailed as error:
            sys.exit(str(error))
    if as_json:
        click.echo(json.dumps({"persona": persona, "typed": [asdict(item) for item in typed]}))
        return
    commands = [list(again) for _, again in groupby(typed, key=lambda item: item.line)]
    for number, again in enumerate(commands, 1):
        seconds, times = sum(item.seconds for item in again), len(again)
        repeated = f"  ({times} times)" if times > 1 else ""
        click.echo(f"{number:3} {seconds:6.1f} s  {_short(again[-1].line)}{repeated}")
        if transcript:
            lines = again[-1].text.splitlines()
            click.echo("".join(f"               {line}\n" for line in lines))
    if persona == "moments":
        click.echo("\n".join(compared(typed)))
    total = sum(item.seconds for item in typed)
    click.echo(f"{persona}: {len(commands)} commands, {total:.1f} s, all as expected")


def _short(line: str) -> str:
    return line if len(line) <= 85 else f"{line[:82]}..."


if __name__ == "__main__":
    trial()
