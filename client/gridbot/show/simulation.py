"""What a simulation found, for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from gridbot.api.units import duration
from gridbot.printing import counted, table
from gridbot_client.terminal import printable


def _time(seconds: float) -> str:
    return duration(timedelta(seconds=seconds))


def _percent(part: float) -> str:
    return f"{part:.1f} %"


def _hours(hours: float) -> str:
    return f"{hours:,.1f} h"


# Figures of a simulation: how each is called, and how it is written.
ROWS: Mapping[str, tuple[str, Callable[[float], str]]] = {
    "makespan_seconds": ("makespan", _time),
    "tail_seconds": ("tail phase", _time),
    "replicas_percent": ("speculative replicas", _percent),
    "resent_percent": ("replacements", _percent),
    "cpu_hours": ("CPU time", _hours),
    "discarded_percent": ("of it discarded", _percent),
}


def simulation_page(found: Mapping[str, Any]) -> str:
    """What is simulated, and each figure's median and 80 % range for one policy."""
    (policy,) = found["policies"]
    rows = [
        (title, written(ranged["median"]), f"{written(ranged['low'])} - {written(ranged['high'])}")
        for name, (title, written) in ROWS.items()
        if (ranged := policy["figures"][name]) is not None
    ]
    lines = [heading(found, len(policy["runs"])), ""]
    if rows:
        lines.append(table(("", "median", "80 % of simulations"), rows))
    return "\n".join([*lines, *warnings(policy)])


def heading(found: Mapping[str, Any], seeds: int) -> str:
    """What is simulated."""
    low, high = (_time(seconds) for seconds in found["job_seconds"])
    hosts = " and ".join(f"{item['hosts']:,} {item['kind']}" for item in found["hosts"])
    known = "" if found["hosts_known"] else " that the server does not know"
    return (
        f"{found['jobs']:,} jobs of {low} to {high} on {hosts} hosts{known},"
        f" {counted(seeds, 'simulation')}"
    )


def warnings(policy: Mapping[str, Any]) -> list[str]:
    """Lines about simulations that did not end, or had jobs that failed."""
    runs, lines = policy["runs"], []
    open_ = [run for run in runs if not run["has_ended"]]
    if open_:
        why = printable(open_[0]["why_not"])
        lines.append(f"{len(open_)} of {len(runs)} simulations did not end: {why}")
    if failed := max(run["failed"] for run in runs):
        lines.append(f"up to {counted(failed, 'job')} failed for good")
    return lines
