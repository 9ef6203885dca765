"""An account's preferences in BOINC's words."""

import re

import pytest

from gridbot_client.protocol.preferences import READERS
from gridbot_server.boinc.protocol.preferences import global_preferences, version_of

# Each of our names, and what BOINC's client reads for it (GLOBAL_PREFS::parse in lib/prefs.cpp).
SAID = {
    ("hours", "22:30-07:00"): {"start_hour": 22.5, "end_hour": 7.0},
    ("days", "mon-sat"): {"day_of_week": 0, "start_hour": 24.0, "end_hour": 0.0},
    ("on-battery", "no"): {"run_on_batteries": 0},
    ("idle-minutes", "10"): {
        "run_if_user_active": 0, "run_gpu_if_user_active": 0, "idle_time_to_run": 10,
    },
    ("max-other-load", "25"): {"suspend_cpu_usage": 25},
    ("cpus", "3"): {"max_cpus": 3},
    ("cpu-share", "50"): {"max_ncpus_pct": 50},
    ("memory-in-use", "20"): {"ram_max_used_busy_pct": 20},
    ("memory-when-idle", "80"): {"ram_max_used_idle_pct": 80},
    ("disk", "512MB"): {"disk_max_used_gb": 0.5},
    ("disk-share", "30"): {"disk_max_used_pct": 30},
    ("disk-free", "2GB"): {"disk_min_free_gb": 2},
    ("download-rate", "100KB"): {"max_bytes_sec_down": 102400},
    ("upload-rate", "1MB/s"): {"max_bytes_sec_up": 1 << 20},
    ("daily-transfer", "1GB"): {"daily_xfer_limit_mb": 1024, "daily_xfer_period_days": 1},
    ("network-hours", "1-5:30"): {"net_start_hour": 1, "net_end_hour": 5.5},
    ("give-back-minutes", "15"): {"leave_apps_in_memory": 0},
}  # fmt: skip


def values(text: str) -> dict[str, float]:
    return {name: float(value) for name, value in re.findall(r"<(\w+)>([\d.]+)</", text)}


@pytest.mark.parametrize("setting", SAID)
def test_each_preference_is_said_in_boincs_name_and_unit(setting: tuple[str, str]) -> None:
    name, text = setting
    without, found = (
        values(global_preferences(1, {"default": told})) for told in ({}, {name: text})
    )
    assert dict(found.items() - without.items()) == SAID[setting]


def test_every_preference_has_a_word_of_boincs() -> None:
    assert {name for name, _ in SAID} == set(READERS)


def test_flags_are_always_said_because_a_missing_one_means_no() -> None:
    found = values(global_preferences(1, {}))
    assert found["run_on_batteries"] == found["run_if_user_active"] == 1


def test_a_version_comes_back_as_it_went() -> None:
    version = 1_795_244_407_420_214
    assert version_of(values(global_preferences(version, {}))["mod_time"]) == version


def test_venues_have_sets_of_their_own() -> None:
    text = global_preferences(1, {"default": {"cpus": "1"}, "work": {"cpus": "2"}})
    before, inside = text.split('<venue name="work">')
    assert values(before)["max_cpus"] == 1
    assert values(inside)["max_cpus"] == 2
    assert inside.rstrip().endswith("</venue>\n</global_preferences>")
