"""Preferences of a machine's owner: what is refused, and what they decide."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridbot_client.agent import Room
from gridbot_client.net.allowance import TransferLimits
from gridbot_client.preferences.decision import Facts, decide
from gridbot_client.preferences.merging import merged
from gridbot_client.protocol.messages import ProtocolError
from gridbot_client.protocol.preferences import (
    READERS,
    OwnerPreferences,
    PreferenceError,
    account_preferences,
    settings,
)

ROOM = Room(8, 1000)
NOON = Facts(minute=12 * 60, weekday=0, on_battery=False, idle_minutes=60.0, other_load=0.0)


@pytest.mark.parametrize(
    ("texts", "facts", "obstacle"),
    [
        ({}, NOON, ""),
        ({"hours": "9-17"}, NOON, ""),
        ({"hours": "12:00-12:01"}, NOON, ""),
        ({"hours": "9-12"}, NOON, "hours: not at 12:00"),
        ({"hours": "22:00-07:00"}, NOON, "hours: not at 12:00"),
        ({"hours": "22:00-07:00"}, replace(NOON, minute=23 * 60), ""),
        ({"hours": "22:00-07:00"}, replace(NOON, minute=6 * 60), ""),
        ({"hours": "22:00-24:00"}, replace(NOON, minute=24 * 60 - 1), ""),
        ({"days": "mon-fri"}, NOON, ""),
        ({"days": "sat-mon"}, NOON, ""),
        ({"days": "tue,sun"}, NOON, "days: not on mon"),
        ({"on-battery": "no"}, NOON, ""),
        ({"on-battery": "no"}, replace(NOON, on_battery=None), ""),
        ({"on-battery": "yes"}, replace(NOON, on_battery=True), ""),
        ({"on-battery": "no"}, replace(NOON, on_battery=True), "on-battery: the machine runs"),
        ({"idle-minutes": "10"}, NOON, ""),
        ({"idle-minutes": "10"}, replace(NOON, idle_minutes=4), "idle-minutes: the machine was"),
        ({"idle-minutes": "10"}, replace(NOON, idle_minutes=None), "idle-minutes: it cannot"),
        ({"max-other-load": "25"}, replace(NOON, other_load=25), ""),
        ({"max-other-load": "25%"}, replace(NOON, other_load=26), "max-other-load: other"),
        ({"max-other-load": "25"}, replace(NOON, other_load=None), ""),
    ],
)
def test_a_preference_forbids_work_and_says_why(
    texts: dict[str, str], facts: Facts, obstacle: str
) -> None:
    found = decide(OwnerPreferences.parse(texts), facts, ROOM).obstacle
    assert found.startswith(obstacle)
    assert bool(found) == bool(obstacle)


def test_a_machine_suspended_for_other_load_waits_until_there_is_clearly_less() -> None:
    wanted = OwnerPreferences.parse({"max-other-load": "40"})
    facts = replace(NOON, other_load=35)
    assert not decide(wanted, facts, ROOM).obstacle
    assert decide(wanted, facts, ROOM, was_suspended=True).obstacle
    assert not decide(wanted, replace(NOON, other_load=30), ROOM, was_suspended=True).obstacle


@pytest.mark.parametrize(
    ("texts", "idle_minutes", "room"),
    [
        ({}, None, ROOM),
        ({"cpus": "3"}, None, Room(3, 1000)),
        ({"cpus": "30"}, None, ROOM),
        ({"cpu-share": "50"}, None, Room(4, 1000)),
        ({"cpu-share": "1"}, None, Room(1, 1000)),
        ({"memory-in-use": "20", "memory-when-idle": "80"}, 0.0, Room(8, 200)),
        ({"memory-in-use": "20", "memory-when-idle": "80"}, 60.0, Room(8, 800)),
        ({"memory-in-use": "20"}, None, Room(8, 200)),
        ({"memory-when-idle": "80"}, 0.0, Room(8, 800)),
    ],
)
def test_preferences_bound_cpus_and_memory(
    texts: dict[str, str], idle_minutes: float | None, room: Room
) -> None:
    facts = replace(NOON, idle_minutes=idle_minutes)
    assert decide(OwnerPreferences.parse(texts), facts, ROOM).room == room


@pytest.mark.parametrize(
    ("text", "kept"), [("500MB", 500 << 20), ("20GB", 20 << 30), ("2g", 2 << 30)]
)
def test_the_disk_for_what_is_kept_is_a_size(text: str, kept: int) -> None:
    assert decide(OwnerPreferences.parse({"disk": text}), NOON, ROOM).disk_bytes == kept


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"hour": "9-17"}, "'hour' is no preference; there are hours, days"),
        ({"hours": "9"}, "hours = '9': hours are like 22:00-07:00"),
        ({"hours": "9-9"}, "hours are like"),
        ({"hours": "9:60-10"}, "a day has 24 hours of 60 minutes"),
        ({"hours": "9-25"}, "a day has 24 hours"),
        ({"days": "mon-fry"}, "days = 'mon-fry': 'fry' is no day"),
        ({"on-battery": "maybe"}, "on-battery = 'maybe': give yes or no"),
        ({"idle-minutes": "-1"}, "idle-minutes = '-1': give a number from 0 on"),
        ({"idle-minutes": "nan"}, "give a number from 0 on"),
        ({"disk": "20"}, "disk = '20': give a size such as 500MB or 20GB"),
        ({"disk": "0GB"}, "give a size"),
        ({"cpus": "0"}, "cpus = '0': give a whole number"),
        ({"cpu-share": "120"}, "give per cent, above 0 and up to 100"),
        ({"cpus": "2", "cpu-share": "50"}, "cpus = 2 contradicts cpu-share = 50"),
        (
            {"memory-in-use": "90", "memory-when-idle": "50"},
            "memory-in-use = 90 contradicts memory-when-idle = 50",
        ),
        ({"disk": "2.5"}, "disk = '2.5': give a size"),
        (
            {"hours": "9-17", "network-hours": "22:00-09:00"},
            "hours = 9-17 contradicts network-hours = 22:00-09:00",
        ),
        (
            {"memory-in-use": "50", "idle-minutes": "5"},
            "memory-in-use = 50 contradicts idle-minutes = 5",
        ),
    ],
)
def test_what_cannot_hold_is_refused_by_name(texts: dict[str, str], message: str) -> None:
    with pytest.raises(PreferenceError) as refused:
        OwnerPreferences.parse(texts)
    assert message in str(refused.value)


def test_hours_of_work_and_of_transfers_may_meet_in_the_night() -> None:
    found = OwnerPreferences.parse({"hours": "22-7", "network-hours": "1:00-6:00"})
    assert found.hours and found.network_hours


def test_sizes_may_have_parts_and_spaces() -> None:
    found = OwnerPreferences.parse({"disk": "1.5 GB", "download-rate": "0.5MiB/s"})
    assert (found.disk, found.download_rate) == (3 << 29, 1 << 19)


def test_what_is_said_twice_is_refused() -> None:
    assert settings(["cpus=2", "cpus=2"]) == {"cpus": "2"}
    with pytest.raises(PreferenceError, match="cpus = 3 contradicts cpus = 2"):
        settings(["cpus=2", "cpus=3"])


@pytest.mark.parametrize(
    ("supplies", "answer"),
    [
        ({}, None),
        ({"BAT0": {"type": "Battery", "status": "Discharging"}}, True),
        ({"BAT0": {"type": "Battery", "status": "Full"}}, False),
        (
            {
                "AC": {"type": "Mains", "online": "1"},
                "BAT0": {"type": "Battery", "status": "Discharging"},
            },
            False,
        ),
        ({"mouse": {"type": "Battery", "status": "Discharging", "scope": "Device"}}, None),
    ],
)
def test_the_battery_is_found_where_linux_shows_it(
    tmp_path: Path, supplies: dict[str, dict[str, str]], answer: bool | None
) -> None:
    for name, files in supplies.items():
        folder = tmp_path / "sys/class/power_supply" / name
        folder.mkdir(parents=True)
        for file, text in files.items():
            (folder / file).write_text(f"{text}\n")
    script = "from gridbot_client.preferences import look; print(look.on_battery())"
    told = subprocess.run(
        [sys.executable, "-c", script], env={"GRIDBOT_SYSTEM_ROOT": str(tmp_path)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert told.stdout.strip() == str(answer)


def test_transfers_keep_to_rates_amounts_and_hours() -> None:
    texts = {"download-rate": "1MB/s", "daily-transfer": "2GB", "network-hours": "22-7"}
    found = decide(OwnerPreferences.parse(texts), NOON, ROOM).transfers
    assert found == TransferLimits({"down": 1 << 20}, 2 << 30, "network-hours: not at 12:00")
    night = replace(NOON, minute=23 * 60)
    assert not decide(OwnerPreferences.parse(texts), night, ROOM).transfers.obstacle


def test_a_share_of_the_disk_lowers_what_a_client_uses_by_itself_and_never_raises_it() -> None:
    disk = replace(NOON, disk_bytes=100 << 30)
    for texts, bytes_ in (
        ({}, None), ({"disk": "50GB"}, 50 << 30), ({"disk-share": "5"}, 5 << 30),
        ({"disk-share": "90"}, 20 << 30),
    ):  # fmt: skip
        assert decide(OwnerPreferences.parse(texts), disk, ROOM).disk_bytes == bytes_
    with pytest.raises(PreferenceError, match="disk = 1GB contradicts disk-share = 5"):
        OwnerPreferences.parse({"disk": "1GB", "disk-share": "5"})


def test_the_account_adds_to_what_the_machine_prefers_and_never_replaces_it() -> None:
    found = merged({"hours": "22-7"}, {"hours": "0-12", "on-battery": "no"})
    assert found.texts == {"hours": "22-7", "on-battery": "no"}
    assert found.lines() == ["hours=22-7  (this machine)", "on-battery=no  (the account)"]


def test_the_machine_may_lift_what_the_account_prefers() -> None:
    found = merged({"hours": "any", "days": "any"}, {"hours": "0-1", "days": "sun"})
    assert not decide(OwnerPreferences.parse(found.texts), NOON, ROOM).obstacle


@pytest.mark.parametrize(
    ("own", "account", "why"),
    [
        ({"cpus": "2"}, {"cpu-share": "50"}, "cpus = 2 contradicts cpu-share = 50"),
        ({"idle-minutes": "5"}, {"memory-in-use": "9"}, "memory-in-use = 9 contradicts"),
        ({}, {"colour": "red"}, "'colour' is no preference"),
        ({}, {"disk": "21GB"}, "only this machine's owner may lend so much"),
        ({}, {"cpus": "-1"}, "cpus = '-1': give a whole number"),
        ({}, {"hours": "9" * 300}, "hours: longer than"),
    ],
)
def test_what_the_server_says_is_left_out_where_it_contradicts_or_means_nothing(
    own: dict[str, str], account: dict[str, str], why: str
) -> None:
    found = merged(own, {**account, "on-battery": "no"})
    assert found.texts == {**own, "on-battery": "no"}
    (said,) = found.left_out.values()
    assert why in said
    assert f"not followed: {said}" in found.lines()


@given(st.dictionaries(st.sampled_from(list(READERS)), st.text(max_size=9) | st.just("50")))
def test_whatever_an_account_says_gives_a_machine_no_more_than_it_lends(
    account: dict[str, str],
) -> None:
    own = {"cpus": "3", "memory-in-use": "20", "on-battery": "no"}
    facts = replace(NOON, on_battery=True, idle_minutes=0.0)
    found = decide(OwnerPreferences.parse(merged(own, account).texts), facts, ROOM)
    assert found.obstacle
    assert found.room.cpus <= 3
    assert found.room.memory_mb <= 200


@pytest.mark.parametrize(
    "said",
    [
        None, [], {}, {"version": -1, "texts": {}}, {"version": 1.5, "texts": {}},
        {"version": 1, "texts": {"hours": 7}}, {"version": 1, "texts": {"hours": "x" * 201}},
        {"version": 1, "texts": {"n" * 41: "x"}}, {"version": 1, "texts": {"a\0": "x"}},
        {"version": 1, "texts": {str(n): "x" for n in range(51)}},
    ],
)  # fmt: skip
def test_a_reply_with_preferences_of_another_form_is_refused(said: object) -> None:
    with pytest.raises(ProtocolError):
        account_preferences(said)
