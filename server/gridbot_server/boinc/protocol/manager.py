"""What account managers ask of a project, and are told: `am_get_info.php` and its relatives.

Account managers are web sites by which people attach their BOINC clients to several projects, and
keep name, preferences, resource shares and venues the same at all of them
(https://github.com/BOINC/boinc/wiki/AccountManagement).  What they set comes as BOINC keeps it, and
is read into what an account of ours has; what that cannot say is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import quote_plus

from gridbot_client.protocol.preferences import (
    DAYS,
    MAX_SHARE,
    MAX_TEXT_BYTES,
    VENUES,
    OwnerPreferences,
    PreferenceError,
)
from gridbot_server.boinc.protocol.preferences import global_preferences, project_preferences
from gridbot_server.boinc.protocol.tags import BoincError, Grammar, Section, read
from gridbot_server.credit.markup import block, element, flag

_VENUE = re.compile(r'<venue\s+name="(\w{1,20})"\s*>(.*?)</venue>', re.ASCII | re.DOTALL)
MOST_VENUES = 20  # of a text, of which those with a name of BOINC's count
_NEVER = (24.0, 0.0)  # from 24 to 0
_MB, _GB = 2**20, 2**30


@dataclass(frozen=True, slots=True)
class ManagedAccount:
    """An account, as its manager is told."""

    id: int
    name: str
    weak_key: str  # for machines: it attaches, and changes nothing
    cross_project_id: str
    created_at: int  # s since 1970
    preferences_version: int
    preferences: Mapping[str, Mapping[str, str]]  # texts by name, by venue
    shares: Mapping[str, float]  # of a client's time beside other projects, by venue
    is_public: bool
    team: int  # 0: none
    is_founder: bool  # of that team
    venue: str  # of machines that attach later


def account_info(account: ManagedAccount) -> str:
    """The answer of `am_get_info.php`; texts are escaped as in an URL, as BOINC's are."""
    return block(
        "am_get_info_reply",
        flag("success"),
        element("id", account.id),
        element("name", quote_plus(account.name)),
        element("country", ""),
        element("weak_auth", account.weak_key),
        element("cpid", account.cross_project_id),
        element("has_profile", 0),
        element("create_time", account.created_at),
        block(
            "global_prefs",
            global_preferences(account.preferences_version, account.preferences),
        ),
        block("project_prefs", project_preferences(account.shares)),
        element("url", ""),
        element("send_email", 0),
        element("show_hosts", int(account.is_public)),
        element("teamid", account.team),
        element("venue", account.venue),
        flag("teamfounder", account.is_founder),
    )


def done(page: str) -> str:
    """The answer of a page that changed what it was asked to."""
    return block(f"{page}_reply", flag("success"))


# ------------------------------------------------------------------------------ what they set


def read_preferences(text: str) -> dict[str, dict[str, str]]:
    """Texts by name, by venue, of `<global_preferences>`.

    Raises BoincError for a text that is none, PreferenceError for one that cannot hold.
    """
    found = {}
    for venue, part in _by_venue(text, "global_preferences").items():
        texts = dict(_texts(read(part, _grammar("global_preferences"))))
        OwnerPreferences.parse(texts)
        found[venue] = texts
    return {venue: texts for venue, texts in found.items() if texts}


def beyond_boinc(texts: Mapping[str, str]) -> dict[str, str]:
    """Those of an account's preferences for which BOINC has no word, so that no manager has it."""
    return {name: text for name, text in texts.items() if name == "give-back-minutes"}


def read_shares(text: str) -> dict[str, float]:
    """Resource shares by venue, of `<project_preferences>`; BoincError for a text that is none."""
    found = {}
    for venue, part in _by_venue(text, "project_preferences").items():
        section = read(part, _grammar("project_preferences"))
        if "resource_share" in section:
            found[venue] = _share(section.text("resource_share"))
    return found


def _share(text: str) -> float:
    """A resource share; BoincError for what is none."""
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= MAX_SHARE:
        raise BoincError(f"resource_share {text[:40]!r}: give a number from 0 to {MAX_SHARE:.0f}")
    return share


def _by_venue(text: str, root: str) -> dict[str, str]:
    """The text of each venue, as if it were a document of its own."""
    if text.count("<venue") > MOST_VENUES:
        raise BoincError(f"more than {MOST_VENUES} venues")
    venues = {name: f"<{root}>{inner}</{root}>" for name, inner in _VENUE.findall(text)}
    parts = {"default": _VENUE.sub("", text), **venues}
    return {name: part for name, part in parts.items() if name in VENUES}


def _grammar(root: str) -> Grammar:
    return Grammar(root=root, inside={"": frozenset({root}), root: frozenset({"day_prefs"})})


def _texts(said: Section) -> Iterator[tuple[str, str]]:
    """Preferences of ours: the names in `protocol/preferences.py` the other way round."""
    works_in_use = said.flag("run_if_user_active")
    if not said.flag("run_on_batteries"):
        yield "on-battery", "no"
    if not works_in_use:
        yield "idle-minutes", f"{said.number('idle_time_to_run', 3, 0.01, 9999):g}"
    if (load := said.number("suspend_cpu_usage", 0, 0, 100)) > 0:
        yield "max-other-load", f"{load:g}"
    yield from _processors(said)
    yield from _memory(said, works_in_use)
    yield from _disk(said)
    yield from _transfers(said)
    yield from _hours("hours", said, "")
    yield from _hours("network-hours", said, "net_")
    yield from _days(said)


def _processors(said: Section) -> Iterator[tuple[str, str]]:
    share, count = said.number("max_ncpus_pct", 100, 0, 100), said.integer("max_cpus", 0, 0, 10**6)
    if 0 < share < 100:
        yield "cpu-share", f"{share:g}"
    elif count:
        yield "cpus", str(count)


def _memory(said: Section, works_in_use: bool) -> Iterator[tuple[str, str]]:
    """Per cent; a machine in use lends no more than an idle one."""
    idle = said.number("ram_max_used_idle_pct", 100, 0, 100) or 100
    busy = said.number("ram_max_used_busy_pct", 100, 0, 100) or 100
    if idle < 100:
        yield "memory-when-idle", f"{idle:g}"
    if works_in_use and min(busy, idle) < 100:
        yield "memory-in-use", f"{min(busy, idle):g}"


def _disk(said: Section) -> Iterator[tuple[str, str]]:
    most, share = said.number("disk_max_used_gb"), said.number("disk_max_used_pct", 0, 0, 100)
    if most > 0:
        yield "disk", _size(most * _GB)
    elif 0 < share < 100:
        yield "disk-share", f"{share:g}"
    if (free := said.number("disk_min_free_gb")) > 0:
        yield "disk-free", _size(free * _GB)


def _transfers(said: Section) -> Iterator[tuple[str, str]]:
    for name, rate in (
        ("download-rate", "max_bytes_sec_down"),
        ("upload-rate", "max_bytes_sec_up"),
    ):
        if (most := said.number(rate)) > 0:
            yield name, _size(most)
    days = said.number("daily_xfer_period_days")
    if days > 0 and (amount := said.number("daily_xfer_limit_mb")) > 0:
        yield "daily-transfer", _size(amount / days * _MB)


def _size(size: float) -> str:
    """Bytes as a text: at least a thousandth of a KB, since 0 would mean nothing."""
    return f"{max(size / 1024, 0.001):.3f}KB"[:MAX_TEXT_BYTES]


def _hours(name: str, said: Section, prefix: str) -> Iterator[tuple[str, str]]:
    """In BOINC a span of no length is always."""
    begin = said.number(f"{prefix}start_hour", 0, 0, 24)
    end = said.number(f"{prefix}end_hour", 0, 0, 24)
    if begin != end and (begin, end) != (0, 24):
        if (begin, end) == _NEVER:
            raise PreferenceError(f"{name} from 24 to 0 is never: suspend the project instead")
        yield name, f"{_clock(begin)}-{_clock(end)}"


def _clock(hour: float) -> str:
    minutes = round(hour * 60)
    return f"{minutes // 60:02d}:{minutes % 60:02d}"


def _days(said: Section) -> Iterator[tuple[str, str]]:
    """Days on which it never works; other hours on single days are not kept."""
    idle = set()
    for day in said.all("day_prefs", most=len(DAYS)):
        if (day.number("start_hour"), day.number("end_hour")) == _NEVER:
            idle.add((day.integer("day_of_week", 0, 0, 6) - 1) % len(DAYS))
    if len(idle) == len(DAYS):
        raise PreferenceError("days: none is left: suspend the project instead")
    if idle:
        yield "days", ",".join(name for day, name in enumerate(DAYS) if day not in idle)
