"""The command line of `scripts/data-trial`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict

import click

from scripts.claims import Claim, exit_code, shown

from . import inputs, outputs

_MB = 1_000_000
_NAMES = (inputs.NAME, outputs.NAME)


@click.command(context_settings={"show_default": True})
@click.argument("names", metavar="[inputs|outputs]...", nargs=-1, type=click.Choice(_NAMES))
@click.option("--clients", type=click.IntRange(2, 16), default=8, help="That fetch the input.")
@click.option("--input-mb", type=click.IntRange(1), default=20, help="Size of the input.")
@click.option("--outputs", "jobs", type=click.IntRange(10), default=12, help="Jobs with an output.")
@click.option("--output-mb", type=click.IntRange(1), default=2, help="Size of each output.")
@click.option("--full", is_flag=True, help="2000 MB for 8 clients, and 100 outputs of 100 MB.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(
    names: Sequence[str], clients: int, input_mb: int, jobs: int, output_mb: int, *, full: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Move contents past the server, from and to a real object store, and print what was claimed
    and what was measured. Ends with 1 if a claim is not met.

    inputs: all clients fetch one input by URL through squid, which they share; the server and a
    client are killed when each has a part. Relays before the server and the store count what both
    send, and hold the store at the half. The clients need thrice their number of its size on disk.

    outputs: outputs go to a storage of their owner, a tenth of them from two clients; server and a
    client are killed meanwhile. URLs of uploads are good for an hour: their end is set back in the
    database when the BOTs are done, and the sweep of the others' objects begins then.
    """
    if full:
        clients, input_mb, jobs, output_mb = 8, 2000, 100, 100
    claims = list[Claim]()
    chosen = names or _NAMES
    if inputs.NAME in chosen:
        claims += inputs.play(input_mb * _MB, clients)
    if outputs.NAME in chosen:
        claims += outputs.play(jobs, output_mb * _MB)
    if as_json:
        print(json.dumps([asdict(claim) for claim in claims], indent=2))
    else:
        print(shown(claims))
    sys.exit(exit_code(claims))


if __name__ == "__main__":
    command()
