"""`gridbot bot what-if`: when a BOT is likely to end, also under another policy."""

from __future__ import annotations

from pathlib import Path

import click

from gridbot.api.session import Session
from gridbot.commands.options import BOT, FILE, as_json, print_json, with_session
from gridbot.show.what_if import what_if_page


@click.command(name="what-if")
@BOT
@click.option("--policy", type=FILE, metavar="FILE.ad", help="Policy to try; nothing is changed.")
@click.option(
    "--seeds", type=click.IntRange(1, 64), default=8, show_default=True, metavar="N",
    help="Number of simulations under each policy, each with other chances.",
)  # fmt: skip
@as_json
@with_session
def what_if(session: Session, number: int, policy: Path | None, seeds: int, as_json: bool) -> None:
    """Predict when a BOT ends, and when it would under another policy.

    The server simulates its jobs from their present state on, which takes up to 45 seconds.  With
    --policy, prints the command that applies it.

    e.g.  gridbot bot what-if 7 --policy tail.ad
    """
    found = session.bot(number).what_if(policy, seeds)
    print_json(found) if as_json else click.echo(what_if_page(found, policy))
