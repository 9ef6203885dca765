"""`gridbot client pause | resume`."""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from pathlib import Path

import click

from gridbot_client.commands.options import as_json, data_option, folder_of, tell
from gridbot_client.preferences.watch import clock
from gridbot_client.quantities import TIME

_MOST_PAUSE_SECONDS = 365 * 86_400


@click.command()
@click.argument("duration", type=TIME, required=False)
@click.option("--until", metavar="HH:MM", help="Pause until this time of the day, at most a day.")
@data_option
@as_json
def pause(duration: float | None, until: str | None, data: Path | None, as_json: bool) -> None:
    """Start no further replicas, until `resume` or for a time.

    DURATION is such as 30m or 2h.  Without an end, running replicas finish and are reported.  With
    one they are suspended: they stay in memory, do not run, and go on afterwards.
    """
    if duration is not None and until:
        raise click.UsageError("DURATION and --until exclude each other; give one")
    folder, now = folder_of(data), time.time()
    end = _after(duration, now) if duration is not None else _next(until, now) if until else None
    folder.make()
    folder.pause(end)
    said = f"paused until {clock(end)}" if end else "paused"
    document = {"paused": True, "until": None if end is None else round(end)}  # s since 1970
    tell(f"{said}; to continue: gridbot client resume", document, as_json=as_json)


def _after(duration: float, now: float) -> float:
    """When a pause of some seconds ends.  Raises UsageError."""
    if not 0 < duration <= _MOST_PAUSE_SECONDS:
        raise click.UsageError(
            f"a pause of {duration:g} s: give more than 0s and at most 365d, such as 30m or 2h"
        )
    return now + duration


def _next(time_of_day: str, now: float) -> float:
    """When the clock shows a time next.  Raises UsageError."""
    try:
        wanted = datetime.strptime(time_of_day, "%H:%M").time()  # noqa: DTZ007
    except ValueError:
        raise click.UsageError(f"--until {time_of_day!r}: give a time such as 18:00") from None
    today = datetime.fromtimestamp(now).date()  # noqa: DTZ006
    found = datetime.combine(today, wanted).timestamp()
    return found if found > now else datetime.combine(today + timedelta(1), wanted).timestamp()


@click.command()
@data_option
@as_json
def resume(data: Path | None, as_json: bool) -> None:
    """Continue after `pause`, or ask the server at once.

    It ends the current back-off, as after an outage.
    """
    folder = folder_of(data)
    folder.make()
    folder.paused_flag.unlink(missing_ok=True)
    folder.hurry_flag.touch()
    tell("resumed", {"paused": False}, as_json=as_json)
