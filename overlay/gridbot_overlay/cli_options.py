"""Options that several commands of `gridbot overlay` have."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from gridbot_client.quantities import Quantity, seconds
from gridbot_overlay.folder import OverlayFolder

R = TypeVar("R")

# overlay.toml holds whole seconds.
TIME = Quantity("time", lambda text: round(seconds(text)), least=1)


def with_folder(command: Callable[..., R]) -> Callable[..., R]:
    """Add --data to a command, and pass it the overlay's folder."""

    @click.option(
        "--data",
        type=click.Path(file_okay=False, path_type=Path),
        metavar="DIR",
        help="Folder of the overlay, with overlay.toml."
        "  [default: overlay in GRIDBOT_DATA; /var/lib/gridbot if root; or ~/.local/share/gridbot]",
    )
    @functools.wraps(command)
    def call(data: Path | None, **options: Any) -> R:
        return command(OverlayFolder.at(data), **options)

    return call
