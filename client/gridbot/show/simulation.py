"""What a simulation found, for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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


def _points(part: float) -> str:
    return f"{part:.1f} points"


# How differences of figures are written that are parts of something.
_DIFFERS: Mapping[str, Callable[[float], str]] = {
    name: _points for name in ROWS if name.endswith("_percent")
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


def comparison_page(found: Mapping[str, Any]) -> str:
    """Each figure of all policies, and how it differs from that under the first one."""
    policies = found["policies"]
    first = policies[0]["policy"]
    lines = [heading(found, len(policies[0]["runs"]))]
    for name, (title, written) in ROWS.items():
        rows = [_compared(policy, name, written) for policy in policies]
        lines += ["", table((title, "median", "80 % of simulations", f"against {first}"), rows)]
    lines += ["", *_doubts(policies)]
    for policy in policies:
        lines += [f"{policy['policy']}: {line}" for line in warnings(policy)]
    return "\n".join(lines).rstrip()


def _compared(
    policy: Mapping[str, Any], name: str, written: Callable[[float], str]
) -> tuple[str, str, str, str]:
    ranged, against = policy["figures"][name], policy["against_first"]
    differs = "" if against is None else difference(against[name], name)
    if ranged is None:
        return policy["policy"], "-", "-", differs
    spread = f"{written(ranged['low'])} - {written(ranged['high'])}"
    return policy["policy"], written(ranged["median"]), spread, differs


def difference(found: Mapping[str, Any] | None, figure: str) -> str:
    """A difference of a figure and its interval, if it is real; else that it may be chance."""
    written = _DIFFERS.get(figure, ROWS[figure][1])
    if found is None:
        return "not comparable"
    if found["verdict"] == "too few seeds":
        return f"{_signed(found['mean'], written)}; too few seeds"
    low, high = (_signed(found[end], written) for end in ("low", "high"))
    if found["verdict"] == "real":
        return f"{_signed(found['mean'], written)} ({low} to {high})"
    return "none" if found["low"] == found["high"] == 0 else f"unclear ({low} to {high})"


def _signed(value: float, written: Callable[[float], str]) -> str:
    return f"{'-' if value < 0 else '+'}{written(abs(value))}"


def _doubts(policies: Sequence[Mapping[str, Any]]) -> list[str]:
    """Lines about differences of the makespan that these seeds do not decide."""
    lines = []
    for policy in policies[1:]:
        found = policy["against_first"]["makespan_seconds"]
        if found is None or found["verdict"] == "real" or found["mean"] == 0:
            continue
        wanted = found["seeds_wanted"]
        with_more = "more than 1,000" if wanted is None else f"some {wanted}"
        lines.append(
            f"{policy['policy']}: {found['seeds']} seeds do not tell whether the makespan differs;"
            f" {with_more} would"
        )
    return lines


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
