from __future__ import annotations

import calendar
import time
from pathlib import Path

import pytest

from gridbot_client import agent
from gridbot_client.activity import ActivityLog
from gridbot_client.host import description
from gridbot_client.host.permission import (
    Permission,
    UnreadablePolicy,
    read_policy,
    read_policy_file,
)
from gridbot_client.protocol.messages import MAX_REQUIREMENTS_BYTES, ProtocolError, host_attributes
from gridbot_client.status import status_of
from gridbot_client.storage import Folder

SUNDAY = calendar.timegm((2024, 3, 10, 13, 5, 0))


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    made = Folder(tmp_path / "client")
    made.make()
    return made


def test_the_owner_is_told_once_when_leave_is_withdrawn_and_given(folder: Folder) -> None:
    lines: list[str] = []
    policy = read_policy('LoadAvg < 0.5 && BOT.Owner != "eve"', "--requirements")
    permission = Permission(policy, folder, ActivityLog(lines.append, lambda: 0.0))
    for load in (0.1, 2.0, 3.0, 0.2, 0.1):
        permission.judge({"LoadAvg": load}, 0.0)
        assert permission.is_given == (load < 0.5)
        assert folder.obstacle() == ("" if load < 0.5 else "LoadAvg < 0.5")
    assert lines == [
        "not asking for work: the owner's policy is not satisfied: LoadAvg < 0.5",
        "asking for work again: the owner's policy is satisfied",
    ]


def test_what_only_the_server_knows_withdraws_no_leave(folder: Folder) -> None:
    policy = read_policy('Running < 2 && Owner == "me" && Queue.JobsInQueue > 5', "")
    permission = Permission(policy, folder, ActivityLog(lambda _: None, lambda: 0.0))
    permission.judge({"NumCpus": 4}, 0.0)
    assert permission.is_given


def test_a_new_run_forgets_why_the_last_one_asked_for_nothing(folder: Folder) -> None:
    folder.save_obstacle("LoadAvg < 0.5")
    assert Permission(None, folder, ActivityLog(lambda _: None, lambda: 0.0)).is_given
    assert folder.obstacle() == ""


def test_a_client_without_leave_looks_again_each_minute() -> None:
    assert agent.next_request_seconds(1.0, may_ask=True) == 1.0
    assert agent.next_request_seconds(1.0, may_ask=False) == 60.0
    assert agent.next_request_seconds(300.0, may_ask=False) == 300.0


def test_a_policy_is_kept_until_it_is_removed(folder: Folder) -> None:
    folder.save_policy("LoadAvg < 0.5")
    assert Folder(folder.path).policy() == "LoadAvg < 0.5"
    folder.save_policy("")
    assert Folder(folder.path).policy() == ""


def test_the_status_shows_the_policy_and_what_does_not_hold_of_it(folder: Folder) -> None:
    folder.save_policy("Requirements = Idle;\nIdle = LoadAvg < 0.5;")
    with folder.lock():
        folder.save_obstacle("LoadAvg < 0.5")
        shown = status_of(folder)
    assert (shown.requirements, shown.obstacle) == (folder.policy(), "LoadAvg < 0.5")
    assert shown.lines()[1:] == [
        "owner's policy:",
        "  Requirements = Idle;",
        "  Idle = LoadAvg < 0.5;",
        "not asking for work, because not satisfied:",
        "  LoadAvg < 0.5",
    ]
    assert status_of(folder).obstacle == ""


def test_a_policy_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnreadablePolicy, match=r"none\.ad: No such file"):
        read_policy_file(tmp_path / "none.ad")
    spoilt = tmp_path / "spoilt.ad"
    spoilt.write_bytes(b"\xff\xfe")
    with pytest.raises(UnreadablePolicy, match=r"spoilt\.ad: not UTF-8"):
        read_policy_file(spoilt)
    spoilt.write_bytes(b"")
    with pytest.raises(UnreadablePolicy, match=r"spoilt\.ad: line 1, column 1: expected"):
        read_policy_file(spoilt)


def test_clock_and_load_are_those_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "XXX-2")  # two hours east
    time.tzset()
    try:
        ad = description.live_attributes(SUNDAY)
    finally:
        monkeypatch.undo()
        time.tzset()
    assert (ad["ClockMin"], ad["ClockDay"]) == (15 * 60 + 5, 0)
    assert isinstance(ad["LoadAvg"], float) and ad["LoadAvg"] >= 0
    assert isinstance(ad.get("OnBattery", False), bool)


def test_the_host_publishes_its_owners_policy(tmp_path: Path) -> None:
    policy = read_policy("LoadAvg < 0.5", "")
    ad = description.attributes(description.room(1, 100), tmp_path, policy=policy)
    assert ad["Requirements"] == "LoadAvg < 0.5"
    assert "Requirements" not in description.attributes(description.room(1, 100), tmp_path)


def test_only_a_policy_may_be_long() -> None:
    policy = {"requirements": "x" * MAX_REQUIREMENTS_BYTES}
    assert host_attributes(policy) == policy
    with pytest.raises(ProtocolError, match=r"host\.Name: expected a string of at most 1000 bytes"):
        host_attributes({"Name": "x" * 1001})
    with pytest.raises(
        ProtocolError, match=r"host\.Requirements: expected a string of at most 8192 bytes"
    ):
        host_attributes({"Requirements": "x" * (MAX_REQUIREMENTS_BYTES + 1)})
