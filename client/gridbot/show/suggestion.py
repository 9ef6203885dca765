"""A suggested policy, for a terminal or a file: what was found stands in its comments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gridbot.printing import counted, table
from gridbot.show.simulation import ROWS, difference, heading

_TOLD = ("makespan_seconds", "cpu_hours")
# The figures of which one has to be less, that a choice is better.
_BETTER = {"time": ("makespan_seconds",), "cost": ("cpu_hours",), "balance": _TOLD}
_PREFERRED = {
    "time": "the least makespan",
    "cost": "the least CPU time",
    "balance": "the knee of the frontier",
}


def suggestion_page(found: Mapping[str, Any]) -> str:
    """The chosen policy, under comments with the frontier and the check of the choice."""
    chosen, seeds = found["chosen"], found["seeds"]
    lines = [
        heading(found, seeds),
        "",
        *_frontier(found).splitlines(),
        "",
        f"Chosen for {_PREFERRED[found['prefer']]}: {chosen['policy']}.",
        *_check(chosen["against_present"], seeds, _BETTER[found["prefer"]]),
    ]
    comments = "\n".join(f"// {line}".rstrip() for line in lines)
    return f"{comments}\n\n{chosen['text']}".rstrip()


def _frontier(found: Mapping[str, Any]) -> str:
    """The candidates on the frontier, and the present policy, which is the first of all."""
    shown = [item for at, item in enumerate(found["candidates"]) if at == 0 or item["on_frontier"]]
    rows = [
        (
            item["policy"],
            *(_middle(item["figures"][figure], figure) for figure in _TOLD),
            _mark(item, found["knee"]),
        )
        for item in shown
    ]
    return table(("policy", *(ROWS[figure][0] for figure in _TOLD), ""), rows)


def _mark(item: Mapping[str, Any], knee: str) -> str:
    if item["policy"] == knee:
        return "frontier, its knee"
    return "frontier" if item["on_frontier"] else ""


def _middle(ranged: Mapping[str, float] | None, figure: str) -> str:
    return "-" if ranged is None else ROWS[figure][1](ranged["median"])


def _check(against: Mapping[str, Any] | None, seeds: int, preferred: Sequence[str]) -> list[str]:
    if against is None:
        return ["No policy that was tried is preferable to the present one."]
    lines = [f"Against the present policy, under {counted(seeds, 'further seed')}:"]
    lines += [f"  {ROWS[name][0]}: {difference(against[name], name)}" for name in _TOLD]
    if not any(_is_gain(against[name]) for name in preferred):
        lines.append("It is not shown to be better than the present policy.")
    return lines


def _is_gain(found: Mapping[str, Any] | None) -> bool:
    return found is not None and found["verdict"] == "real" and found["mean"] < 0
