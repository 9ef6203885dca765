"""How fast BOTs get on: lines of `gridbot top`, from their history."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gridbot.printing import counted

MINUTES = 5  # whole ones, over which the throughput is taken


def throughput_lines(histories: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a line for each BOT: jobs per minute, by grid, over the last whole minutes."""
    for history in histories:
        whole = slice(-MINUTES - 1, -1)  # the last minute is not over
        minutes = len(history["times"][whole])
        if not minutes:
            continue
        done = {
            item["grid"] or "no grid": sum(item["done"][whole]) / minutes
            for item in history["grids"]
        }
        grids = ", ".join(f"{grid} {rate:.1f}" for grid, rate in sorted(done.items()) if rate)
        left = counted(history["left"][-1], "job")
        rate = f"{sum(done.values()):.1f} jobs a minute" + (f" ({grids})" if grids else "")
        yield f"bot {history['id']}: {left} left, {rate}"
