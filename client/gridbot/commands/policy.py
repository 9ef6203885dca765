"""`gridbot policy`: what can be said about a policy file without a server."""

from __future__ import annotations

from pathlib import Path

import click

from gridbot.commands.options import FILE
from gridbot.errors import BadInput
from gridbot.policy import check_policy


@click.group()
def policy() -> None:
    """Check a policy file."""


@policy.command()
@click.argument("file", type=FILE)
def check(file: Path) -> None:
    """Parse FILE; show where it is wrong, and names that no ad carries."""
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise BadInput(f"{file}: is not UTF-8 text") from None
    hints = check_policy(text)
    for hint in hints:
        click.echo(f"{file}: {hint}", err=True)
    click.echo(f"{file}: {'parsed, see above' if hints else 'good'}")
