"""The list of friends, and guests that cannot begin."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from gridbot_client.activity import ActivityLog
from gridbot_client.agent import Room
from gridbot_client.commands.friends import friends
from gridbot_client.friends.guests import Guests
from gridbot_client.friends.roster import (
    add_friend,
    folder_of_friend,
    forget_friend,
    friends_of,
    named,
)
from gridbot_client.options import LEND_AFTER_SECONDS, Options
from gridbot_client.storage import Folder, Identity

ROOM = Room(cpus=1, memory_mb=1000)
URL = "https://friend.example"


class Home:
    """A client with one friend, and a clock that stands still unless it is moved."""

    def __init__(self, path: Path) -> None:
        self.folder, self.now = Folder(path), 0.0
        self.said: list[str] = []
        add_friend(self.folder, named(URL))
        self.guest = folder_of_friend(self.folder, named(URL))
        self.guest.make()
        activity = ActivityLog(self.said.append, lambda: 0.0)
        self.guests = Guests(self.folder, Options(room=ROOM), activity, lambda: self.now)

    def looks(self) -> None:
        assert self.guests.has_friends()

    def lends(self) -> None:
        self.guests.tend([], ROOM, is_open=True)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A client that has been idle for long enough to lend."""
    made = Home(tmp_path)
    made.looks()
    made.lends()
    made.now = LEND_AFTER_SECONDS
    return made


@pytest.mark.parametrize(
    "urls",
    [
        ("https://a.example/b", "https://a.example_b"),
        ("https://a.example", "http://a.example"),
        ("https://a.example/?b", "https://a.example/?c"),
    ],
)
def test_each_server_has_a_folder_of_its_own(urls: tuple[str, str], tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    for url in urls:
        add_friend(folder, named(url))
    assert tuple(friend.url for friend in friends_of(folder)) == urls
    assert len({folder_of_friend(folder, friend).path for friend in friends_of(folder)}) == 2


def test_no_servers_folder_is_in_the_way_of_the_list_or_too_long(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    for url in ("http://friends.json", f"https://{'a' * 300}.example/{'b' * 300}"):
        add_friend(folder, named(url))
        folder_of_friend(folder, named(url)).make()
    assert len(friends_of(folder)) == 2


def test_a_friend_that_was_removed_since_the_last_look_gets_nothing(home: Home) -> None:
    home.looks()
    forget_friend(home.folder, URL)
    shutil.rmtree(home.guest.path)
    home.lends()
    assert home.guests.items == []
    assert not home.guest.path.exists()


def test_a_guest_that_cannot_begin_is_a_friends_trouble_and_not_homes(home: Home) -> None:
    (home.guest.path / "start.log").mkdir()
    home.looks()
    home.lends()
    home.lends()
    assert home.guests.items == []
    [line] = home.said
    assert "start.log" in line
    assert line.endswith("asked again in 120 s")


def test_a_removal_that_was_cut_short_goes_on(tmp_path: Path) -> None:
    url = "http://127.0.0.1:9"
    home, guest = Folder(tmp_path), folder_of_friend(Folder(tmp_path), named(url))
    add_friend(home, named(url))
    guest.make()
    guest.save_identity(Identity(url, "gb_token", 1, "someone", "0" * 64))
    forget_friend(home, url)
    again = CliRunner().invoke(friends, ["--remove", url, "--data", str(tmp_path)])
    assert again.exit_code == 0, again.output
    assert not guest.path.exists()
    more = CliRunner().invoke(friends, ["--remove", url, "--data", str(tmp_path)])
    assert "is no friend" in more.output


def test_a_guest_without_an_identity_joins_no_server(tmp_path: Path) -> None:
    command = [
        *(sys.executable, "-m", "gridbot", "client", "run", "--sandbox", "1"),
        *("--server", "http://127.0.0.1:9", "--exit-when-idle", "1s"),
        *("--guest-of", str(tmp_path), "--data", str(tmp_path / "friends/gone")),
    ]
    from_home, to_guest = os.pipe()
    with open(from_home) as stdin, open(to_guest, "w"):
        ended = subprocess.run(command, stdin=stdin, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 4
    assert "a guest joins none" in ended.stderr
