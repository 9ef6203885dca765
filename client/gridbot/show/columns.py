"""Tables of what operators and volunteers list: hosts, users, keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from gridbot.api.units import duration
from gridbot.printing import cut, table

_MOST_NAME = 24
_AWAY_AFTER = timedelta(minutes=10)  # without a request; the server calls others active
_HOST_COLUMNS = (
    "id", "name", "owner", "cpus", "memory", "platform", "client", "running", "errors", "credit",
    "seen", "state",
)  # fmt: skip


def columns(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> str:
    """Table of the fields `names` of each row."""
    header = [name.removesuffix("_at").replace("_", " ") for name in names]
    return table(header, [[_cell(name, row.get(name)) for name in names] for row in rows])


def hosts_table(hosts: Sequence[Mapping[str, Any]]) -> str:
    """One line per host: errors in per cent, seen in time ago."""
    return columns([_host(host) for host in hosts], _HOST_COLUMNS)


def _host(said: Mapping[str, Any]) -> dict[str, Any]:
    ad = said["attributes"]
    ago = _ago(said["seen_at"])
    return {
        **said,
        "name": cut(str(said["name"] or "-"), _MOST_NAME),
        "cpus": ad.get("NumCpus"),
        "memory": "-" if (memory := ad.get("Memory")) is None else f"{memory} MB",
        "platform": ad.get("Platform"),
        "client": client_name(ad.get("IsBoinc"), ad.get("ClientVersion")),
        "running": said["replicas_running"],
        "errors": f"{100 * said['error_rate']:.0f} %",
        "seen": ago and f"{duration(ago)} ago",
        "state": host_state(said),
    }


def _ago(moment: str | None) -> timedelta | None:
    """Time since a moment, in whole seconds."""
    if moment is None:
        return None
    passed = datetime.now(UTC) - datetime.fromisoformat(moment)
    return timedelta(seconds=max(1, round(passed.total_seconds())))


def host_state(said: Mapping[str, Any]) -> str:
    """One word: banned, silent, gone (no client may ask for work), running, idle or away."""
    ago = _ago(said["seen_at"])
    if said["banned_at"]:
        return "banned"
    if said["silent_since"]:
        return "silent"
    if not said["clients"]:
        return "gone"
    if said["replicas_running"]:
        return "running"
    return "idle" if ago and ago < _AWAY_AFTER else "away"


def client_name(is_boinc: object, version: object) -> str:
    """Client software and version of a host, such as BOINC 7.20.5."""
    return f"{'BOINC' if is_boinc is True else 'GridBot'} {version or ''}".rstrip()


def _cell(name: str, value: object) -> object:
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name.endswith("_at"):
        return datetime.fromisoformat(str(value)).astimezone().strftime("%Y-%m-%d %H:%M")
    if name.endswith("credit"):
        return f"{value:,.2f}"
    return f"{value:.3g}" if isinstance(value, float) else value
