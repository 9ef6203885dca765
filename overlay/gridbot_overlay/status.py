"""What `gridbot overlay status` shows: pilots, what they did, and why no more are submitted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

from gridbot.api.units import duration
from gridbot.printing import counted, cut, table
from gridbot_client.terminal import printable
from gridbot_overlay.act.store import PilotStore
from gridbot_overlay.decide.construct import GridView
from gridbot_overlay.decide.grid_ad import queue_wait
from gridbot_overlay.decide.health import WHY_HELD, is_mute
from gridbot_overlay.decide.model import Pilot, PilotState
from gridbot_overlay.decide.money import described

_LIVE = (PilotState.SUBMITTING, PilotState.QUEUED, PilotState.HELD, PilotState.RUNNING)
_MOST_SHOWN = 3  # failing pilots of a grid
_MOST_HOW = 60  # characters
_MOST_LINES = 12  # of one pilot's last words


def document(
    store: PilotStore, views: Sequence[GridView], now: float, *, is_running: bool
) -> dict[str, Any]:
    """Return the whole status as JSON; times are seconds."""
    grids, bots = store.notes("grid"), store.notes("bot")
    return {
        "is_running": is_running,
        "grids": [_grid(store, view, grids.get(view.grid.name), now) for view in views],
        "unserved_bots": [{"bot": int(number), "why": text} for number, (text, _) in bots.items()],
    }


def lines(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield the status for people."""
    if not found["is_running"]:
        yield "the constructor is not running; to start it: gridbot overlay run"
        yield ""
    yield table(
        ("grid", "kind", *map(str, _LIVE), "jobs", "failed", "hours", "wasted", "wait"),
        [_row(grid) for grid in found["grids"]],
    )
    for grid in found["grids"]:
        yield ""
        yield printable(f"{grid['name']}: {_why(grid)}")
        if grid["money"]:
            yield printable(f"  {grid['money']}")
        for pilot in grid["failing"]:
            yield printable(f"  {pilot['pilot']} {pilot['node']}: {pilot['reason']}")
            yield from (f"    {line}" for line in _last_lines(pilot["stderr"]))
    for bot in found["unserved_bots"]:
        yield ""
        yield printable(f"BOT {bot['bot']}: no grid can serve it: {bot['why']}")


def ended_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield pilots that have ended, as the server keeps them, for people."""
    rows = [
        (
            item["pilot"],
            item["grid"],
            item["node"],
            "" if item["exit_code"] is None else str(item["exit_code"]),
            duration(item["told_seconds_ago"]),
            cut(item["how"], _MOST_HOW),
        )
        for item in found["logs"]
    ]
    yield printable(table(("pilot", "grid", "node", "exit", "ago", "how"), rows))


def log_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield how one pilot ended, and its last words, for people."""
    yield printable(f"{found['pilot']} of {found['grid']}, there {found['native_id']}")
    code = "" if found["exit_code"] is None else f"exit code {found['exit_code']}"
    ended = ", ".join(filter(None, (found["node"], code, found["how"])))
    yield printable(f"ended {duration(found['told_seconds_ago'])} ago: {ended or 'by itself'}")
    yield from (printable(line) for line in found["words"].splitlines())


def _grid(
    store: PilotStore, view: GridView, note: tuple[str, float] | None, now: float
) -> dict[str, Any]:
    states = Counter(str(pilot.state) for pilot in view.live)
    totals = store.totals(view.grid.name)
    text, looked_at = note or ("no round of the constructor yet", None)
    return {
        "name": view.grid.name,
        "kind": view.grid.kind,
        "pilots": {str(state): states[state] for state in _LIVE},
        "jobs": totals["jobs"],
        "failures": totals["failures"],
        "pilot_hours": round(view.used_hours + sum(_hours(view.live, now)), 6),
        "wasted_pilot_hours": round(totals["wasted_hours"], 6),
        "price": view.grid.price,
        "spent": round(view.money.spent, 6),
        "budget": view.grid.limits.budget,
        "budget_period": view.grid.limits.budget_period,
        "money": described(view.grid, view.money) if view.grid.price else "",
        "queue_wait": queue_wait(view.pilots),
        "health": view.health.reason,
        "why": text,
        "looked_seconds_ago": None if looked_at is None else max(0.0, now - looked_at),
        "failing": [_pilot(pilot) for pilot in _failing(view.pilots)],
    }


def _hours(live: Sequence[Pilot], now: float) -> Iterator[float]:
    """Yield the hours that pilots which run have used so far."""
    for pilot in live:
        if pilot.started_at is not None:
            yield max(0.0, now - pilot.started_at) / 3600


def _failing(pilots: Sequence[Pilot]) -> list[Pilot]:
    """Return the last pilots that failed to start, are held, or lost replicas."""
    bad = [
        pilot
        for pilot in pilots
        if is_mute(pilot) or pilot.state is PilotState.HELD or (pilot.failures and not pilot.jobs)
    ]
    return bad[-_MOST_SHOWN:]


def _pilot(pilot: Pilot) -> dict[str, Any]:
    return {
        "pilot": pilot.id,
        "native_id": pilot.native_id,
        "state": str(pilot.state),
        "node": pilot.node,
        "reason": _reason(pilot),
        "stderr": pilot.stderr,
    }


def _reason(pilot: Pilot) -> str:
    if pilot.cancelled not in ("", WHY_HELD):
        # How it ended then is not the site's doing.
        said = [f"cancelled by the constructor: {pilot.cancelled}", pilot.error]
    else:
        said = [pilot.cancelled, pilot.reason, pilot.error]
        if pilot.exit_code is not None:
            said.append(f"exit code {pilot.exit_code}")
    if pilot.failures and not pilot.jobs:
        # It may be the node's fault or the command's, which the replicas' own words tell.
        said.append(f"{counted(pilot.failures, 'replica')} failed: gridbot bot logs BOT --failed")
    return "; ".join(filter(None, said)) or str(pilot.state)


def _row(grid: Mapping[str, Any]) -> list[object]:
    wait = grid["queue_wait"]
    return [
        grid["name"],
        grid["kind"],
        *grid["pilots"].values(),
        grid["jobs"],
        grid["failures"],
        f"{grid['pilot_hours']:.2f}",
        f"{grid['wasted_pilot_hours']:.2f}",
        duration(None if wait is None else timedelta(seconds=wait)),
    ]


def _why(grid: Mapping[str, Any]) -> str:
    seconds = grid["looked_seconds_ago"]
    if seconds is None:
        return str(grid["why"])
    ago = duration(timedelta(seconds=round(seconds)))
    return f"no more pilots: {grid['why']} ({ago} ago)"


def _last_lines(text: str) -> list[str]:
    return [cut(printable(line), 160) for line in text.splitlines()[-_MOST_LINES:]]
