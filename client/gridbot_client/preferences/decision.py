"""May this machine compute now, with how much, and why not.  Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from gridbot_client.agent import Room
from gridbot_client.net.allowance import Direction, TransferLimits
from gridbot_client.protocol.preferences import DAYS, OwnerPreferences

# A suspended machine goes on only when other programs leave this share of the allowed load:
# without it, one at the limit would be stopped and continued at each look.
RELIEF = 0.75
USUAL_DISK_BYTES = 20 << 30  # that a client uses if nobody says anything


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known of the machine at one moment; None where it cannot be known."""

    minute: int  # since midnight, local time
    weekday: int  # 0 is Monday
    on_battery: bool | None = None  # None: it has none
    idle_minutes: float | None = None  # since keyboard or mouse were used last
    other_load: float | None = None  # per cent of all CPUs, used by others than this client
    disk_bytes: int | None = None  # of the disk with the client's folder


@dataclass(frozen=True, slots=True)
class WorkPermit:
    """`obstacle` says why nothing may run, "" if it may; `room` is how much may be used."""

    obstacle: str
    room: Room
    disk_bytes: int | None = None  # for what is kept of inputs; None: the client's own bound
    disk_free_bytes: int = 0  # that stay free
    transfers: TransferLimits = field(default_factory=TransferLimits)
    give_back_seconds: float | None = None  # of suspension, then work goes back; None: never


def decide(
    wanted: OwnerPreferences, facts: Facts, room: Room, *, was_suspended: bool = False
) -> WorkPermit:
    """Judge; `was_suspended` says what the last judgement was."""
    obstacle = _obstacle(wanted, facts, was_suspended)
    minutes = wanted.give_back_minutes
    return WorkPermit(
        obstacle,
        _room(wanted, facts, room),
        _disk(wanted, facts),
        wanted.disk_free,
        _transfers(wanted, facts),
        None if minutes is None else 60 * minutes,
    )


def _disk(wanted: OwnerPreferences, facts: Facts) -> int | None:
    """What may be kept; a share of the disk only lowers what a client uses by itself."""
    if wanted.disk is not None or wanted.disk_share == 100 or facts.disk_bytes is None:
        return wanted.disk
    return min(USUAL_DISK_BYTES, int(facts.disk_bytes * wanted.disk_share / 100))


def _transfers(wanted: OwnerPreferences, facts: Facts) -> TransferLimits:
    limits: dict[Direction, int | None] = {"down": wanted.download_rate, "up": wanted.upload_rate}
    rates = {direction: rate for direction, rate in limits.items() if rate is not None}
    hours, obstacle = wanted.network_hours, ""
    if hours is not None and not hours.holds(facts.minute):
        obstacle = f"network-hours: not at {facts.minute // 60:02}:{facts.minute % 60:02}"
    return TransferLimits(rates, wanted.daily_transfer, obstacle)


def _obstacle(wanted: OwnerPreferences, facts: Facts, was_suspended: bool) -> str:
    """The first preference that forbids work, in words."""
    if wanted.days is not None and facts.weekday not in wanted.days:
        return f"days: not on {DAYS[facts.weekday]}"
    if wanted.hours is not None and not wanted.hours.holds(facts.minute):
        return f"hours: not at {facts.minute // 60:02}:{facts.minute % 60:02}"
    if facts.on_battery and not wanted.on_battery:
        return "on-battery: the machine runs on its battery"
    if wanted.idle_minutes > 0:
        if facts.idle_minutes is None:
            return "idle-minutes: it cannot be known when this machine was used last"
        if facts.idle_minutes < wanted.idle_minutes:
            return f"idle-minutes: the machine was used {facts.idle_minutes:.0f} minutes ago"
    if wanted.max_other_load is not None and facts.other_load is not None:
        most = wanted.max_other_load * (RELIEF if was_suspended else 1)
        if facts.other_load > most:
            return f"max-other-load: other programs use {facts.other_load:.0f} % of the CPUs"
    return ""


def _room(wanted: OwnerPreferences, facts: Facts, room: Room) -> Room:
    """The share of CPUs and memory that may be used: one CPU at least."""
    share = wanted.cpu_share / 100
    cpus = min(room.cpus, wanted.cpus or max(1, int(room.cpus * share)))
    is_idle = facts.idle_minutes is not None and facts.idle_minutes >= wanted.in_use_minutes
    memory = wanted.memory_when_idle if is_idle else min(
        wanted.memory_in_use, wanted.memory_when_idle
    )  # fmt: skip
    return replace(room, cpus=cpus, memory_mb=int(room.memory_mb * memory / 100))
