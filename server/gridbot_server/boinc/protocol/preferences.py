"""An account's preferences in the words of BOINC, as they stand in a scheduler reply.

`<global_preferences>` say when and how much a client works, `<project_preferences>` which share of
its time this project has beside others.

A client takes what is missing for BOINC's default, but a missing flag for "no", so flags are always
said.  Source: `GLOBAL_PREFS::parse` in lib/prefs.cpp of BOINC; the units are per cent, hours since
midnight, minutes, and days with 0 for Sunday.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gridbot_client.protocol.preferences import DAYS, VENUES, Hours, OwnerPreferences
from gridbot_server.credit.markup import block, element

DEFAULT_SHARE = 100.0  # of a client's time, as BOINC's
_MICROSECONDS = 1_000_000
_GB = 2**30
# In BOINC a span from 24 to 0 holds never, one of no length always.
_NEVER = (24.0, 0.0)


def version_of(mod_time: float) -> int:
    """Our version of the preferences that a client says it holds."""
    return round(mod_time * _MICROSECONDS)


def global_preferences(version: int, venues: Mapping[str, Mapping[str, str]]) -> str:
    """The element for a client; preferences were checked when they were set."""
    default = OwnerPreferences.parse(venues.get("default", {}))
    return block(
        "global_preferences",
        element("mod_time", f"{version / _MICROSECONDS:.6f}"),
        *_elements(default),
        *(_at_venue(venue, venues[venue]) for venue in VENUES[1:] if venue in venues),
    )


def project_preferences(shares: Mapping[str, float]) -> str:
    """The element for a client: its resource share, and those at venues with another one."""
    return block(
        "project_preferences",
        element("resource_share", f"{shares.get('default', DEFAULT_SHARE):.15g}"),
        *(
            _venue(venue, element("resource_share", f"{shares[venue]:.15g}"))
            for venue in VENUES[1:]
            if venue in shares
        ),
    )


def _at_venue(venue: str, texts: Mapping[str, str]) -> str:
    return _venue(venue, "".join(_elements(OwnerPreferences.parse(texts))))


def _venue(venue: str, inner: str) -> str:
    return f'<venue name="{venue}">\n{inner}</venue>\n'


def _elements(wanted: OwnerPreferences) -> Iterator[str]:
    """What is preferred; numbers that say nothing are left to the client's defaults."""
    works_in_use = wanted.idle_minutes <= 0
    yield element("run_on_batteries", int(wanted.on_battery))
    yield element("run_if_user_active", int(works_in_use))
    yield element("run_gpu_if_user_active", int(works_in_use))
    if not works_in_use:
        yield element("idle_time_to_run", f"{wanted.idle_minutes:g}")
    if wanted.max_other_load is not None:
        yield element("suspend_cpu_usage", f"{wanted.max_other_load:g}")
    if wanted.cpus is not None:
        yield element("max_cpus", wanted.cpus)
    yield element("max_ncpus_pct", f"{wanted.cpu_share:g}")
    yield element("ram_max_used_busy_pct", f"{wanted.memory_in_use:g}")
    yield element("ram_max_used_idle_pct", f"{wanted.memory_when_idle:g}")
    yield element("leave_apps_in_memory", int(wanted.give_back_minutes is None))
    yield from _disk(wanted)
    yield from _transfers(wanted)
    yield from _times(wanted)


def _disk(wanted: OwnerPreferences) -> Iterator[str]:
    if wanted.disk is not None:
        yield element("disk_max_used_gb", f"{wanted.disk / _GB:.4f}")
    if wanted.disk_share < 100:
        yield element("disk_max_used_pct", f"{wanted.disk_share:g}")
    if wanted.disk_free:
        yield element("disk_min_free_gb", f"{wanted.disk_free / _GB:.4f}")


def _transfers(wanted: OwnerPreferences) -> Iterator[str]:
    """Rates in bytes per second, amounts in MB; an amount without a period does not count."""
    if wanted.download_rate is not None:
        yield element("max_bytes_sec_down", wanted.download_rate)
    if wanted.upload_rate is not None:
        yield element("max_bytes_sec_up", wanted.upload_rate)
    if wanted.daily_transfer is not None:
        yield element("daily_xfer_limit_mb", f"{wanted.daily_transfer / 2**20:.4f}")
        yield element("daily_xfer_period_days", 1)
    if wanted.network_hours is not None:
        yield from _span("net_", wanted.network_hours)


def _times(wanted: OwnerPreferences) -> Iterator[str]:
    if wanted.hours is not None:
        yield from _span("", wanted.hours)
    if wanted.days is None:
        return
    for day in range(len(DAYS)):
        if day not in wanted.days:
            begin, end = _NEVER
            yield block(
                "day_prefs",
                element("day_of_week", (day + 1) % len(DAYS)),
                element("start_hour", begin),
                element("end_hour", end),
            )


def _span(prefix: str, hours: Hours) -> Iterator[str]:
    yield element(f"{prefix}start_hour", f"{hours.begin / 60:.4f}")
    yield element(f"{prefix}end_hour", f"{hours.end / 60:.4f}")
