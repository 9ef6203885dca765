"""One record of the statistics files each, named as BOINC's `db_dump` names them.

What this server does not know is left out: time zones, countries, the sites and pages of users.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from gridbot_server.credit.markup import block, element

_MB, _KB = 1 << 20, 1 << 10

# Element -> attribute of the host ad, and how many of the element's unit one of its unit is.
_TEXTS = {
    "p_vendor": ("CpuVendor",),
    "p_model": ("CpuModel",),
    "os_name": ("OpSysName", "OpSys"),
    "os_version": ("OpSysVersion",),
}
_NUMBERS = {
    "ncpus": (("DetectedCpus", 1), ("NumCpus", 1)),
    "p_fpops": (("Flops", 1),),
    "p_iops": (("IntOps", 1),),
    "m_nbytes": (("DetectedMemory", _MB), ("Memory", _MB)),
    "m_cache": (("CpuCache", _KB),),
    "m_swap": (("Swap", _MB),),
    "d_total": (("TotalDisk", _MB),),
    "d_free": (("Disk", _MB),),
    "n_bwup": (("BandwidthUp", 1),),
    "n_bwdown": (("BandwidthDown", 1),),
}
_MOST_TEXT = 255


@dataclass(frozen=True, slots=True)
class Credit:
    """A total, and an average per day that decays since a time (seconds since 1970)."""

    total: float
    average: float
    averaged_at: float

    def elements(self) -> str:
        """What users, teams and hosts have in common."""
        return (
            element("total_credit", f"{self.total:.6f}")
            + element("expavg_credit", f"{self.average:.6f}")
            + element("expavg_time", f"{self.averaged_at:.6f}")
        )


def user(id: int, name: str, created_at: int, credit: Credit, cpid: str, team: int | None) -> str:
    """A user who agreed to be named."""
    return block(
        "user",
        element("id", id),
        element("name", name),
        element("create_time", created_at),
        credit.elements(),
        element("cpid", cpid),
        _known("teamid", team),
    )


def team(
    id: int, name: str, founder: tuple[int, str] | None, created_at: int, credit: Credit
) -> str:
    """A team; its founder is named if he agreed."""
    return block(
        "team",
        element("id", id),
        element("type", 0),
        element("name", name),
        element("userid", founder[0]) if founder else "",
        credit.elements(),
        element("founder_name", founder[1]) if founder else "",
        element("create_time", created_at),
    )


@dataclass(frozen=True, slots=True)
class HostRecord:
    """A host; `user` and `cpid` only if its owner agreed, since both lead to him."""

    id: int
    user: int | None
    cpid: str | None
    ad: Mapping[str, Any]  # as it described itself: anything may stand there
    created_at: int
    seen_at: int
    turnaround_seconds: float | None
    credit: Credit

    def record(self) -> str:
        """Its record."""
        return block(
            "host",
            element("id", self.id),
            _known("userid", self.user),
            self.credit.elements(),
            *(element(name, _text(self.ad, *names)) for name, names in _TEXTS.items()),
            *self._boinc(),
            element("create_time", self.created_at),
            element("rpc_time", self.seen_at),
            *(_known(name, _number(self.ad, *names)) for name, names in _NUMBERS.items()),
            _known("avg_turnaround", self.turnaround_seconds),
            _known("host_cpid", self.cpid),
        )

    def _boinc(self) -> tuple[str, ...]:
        version = _text(self.ad, "ClientVersion") if self.ad.get("IsBoinc") is True else ""
        return (
            _known("boinc_version", version or None),
            _known("vbox_version", _text(self.ad, "VirtualBox") or None),
            _known("coprocs", _text(self.ad, "GpuModel") or None),
        )


class Totals(NamedTuple):
    """How many have credit, whether named or not, and how much there is."""

    users: int
    teams: int
    hosts: int
    credit: float

    def record(self, now: float) -> str:
        """What stands in `tables.xml`."""
        return (
            element("update_time", int(now))
            + element("nusers_total", self.users)
            + element("nteams_total", self.teams)
            + element("nhosts_total", self.hosts)
            + element("total_credit", f"{self.credit:.6f}")
        )


def _known(name: str, value: object | None) -> str:
    return "" if value is None else element(name, value)


def _text(ad: Mapping[str, Any], *names: str) -> str:
    found = (ad[name] for name in names if isinstance(ad.get(name), str))
    return next(found, "")[:_MOST_TEXT]


def _number(ad: Mapping[str, Any], *names: tuple[str, int]) -> float | None:
    for name, unit in names:
        value = ad.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return value * unit
    return None
