"""Guests: clients of friends' servers, as processes below this one.

A guest's standard input is a pipe from here.  When it closes, also because this client was killed,
the guest ends its tasks, returns what is unfinished to its server, and leaves.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from gridbot_client.activity import ActivityLog
from gridbot_client.agent import LocalReplica, Room
from gridbot_client.boot import since_boot
from gridbot_client.friends.lending import (
    Friend,
    LateUse,
    Loan,
    Rest,
    to_lend,
    to_take_back,
)
from gridbot_client.friends.roster import folder_of_friend, friends_of
from gridbot_client.options import Options
from gridbot_client.storage import Folder

_IDLE = "30s"  # a guest without work leaves after so long
_LOOK_SECONDS = 1.0  # between two looks at the list of friends
_GRACE_SECONDS = 20.0  # in which a guest leaves
# Preferences that guests have, too; those that say when the machine works hold for this client,
# which ends its guests.
_CARRIED = (
    "disk", "disk-share", "disk-free", "download-rate", "upload-rate", "daily-transfer",
    "network-hours",
)  # fmt: skip
_OF_HOME = ("GRIDBOT_KEY", "GRIDBOT_SERVER")  # they name another server than a friend's


@dataclass(slots=True)
class _Guest:
    loan: Loan
    process: subprocess.Popen[bytes]
    leaves_by: float | None = None  # when it is killed; None: it may stay

    def end(self, now: float) -> None:
        if self.leaves_by is None and self.process.stdin:
            self.process.stdin.close()
            self.leaves_by = now + _GRACE_SECONDS


class Guests:
    """The guests of one client.  Not thread-safe."""

    def __init__(
        self, folder: Folder, options: Options, activity: ActivityLog,
        clock: Callable[[], float] = since_boot,
    ) -> None:  # fmt: skip
        self._folder, self._options, self._activity = folder, options, activity
        self._clock = clock
        self._friends: tuple[Friend, ...] = ()
        self._looked_at = -_LOOK_SECONDS
        self._guests = dict[str, _Guest]()
        self._rests = dict[str, Rest]()
        self._use = LateUse(options.lend_after)

    def has_friends(self) -> bool:
        """Whether the machine works for others, too; looks again each second."""
        now = self._clock()
        if self._options.may_lend and now - self._looked_at >= _LOOK_SECONDS:
            self._friends, self._looked_at = friends_of(self._folder), now
        return bool(self._friends or self._guests)

    @property
    def items(self) -> list[LocalReplica]:
        """What guests use, as if it ran here; also of those that are about to leave."""
        return [guest.loan.item for guest in self._guests.values()]

    def tend(self, items: Sequence[LocalReplica], room: Room, *, is_open: bool) -> None:
        """End guests whose CPUs home needs, or all unless the machine works, and begin others.

        `items` is what home has here, and `room` for what there is room now.
        """
        now = self._clock()
        used = self._use.note(items, now)
        self._see_ended(now)
        known = {friend.name for friend in self._friends} if is_open else set[str]()
        staying = [guest.loan for guest in self._guests.values() if guest.leaves_by is None]
        back = to_take_back(staying, items, room)
        if back:
            self._activity.say(f"takes back {_cpus(sum(loan.cpus for loan in back))} for home")
        for loan in staying:
            if loan in back or loan.friend not in known:
                self._guests[loan.friend].end(now)
        if used is not None and is_open and not back:
            asked = [friend for friend in self._friends if self._may_ask(friend, now)]
            loans = [guest.loan for guest in self._guests.values()]
            for loan in to_lend(asked, loans, used, room):
                try:
                    self._begin(loan)
                except OSError as error:  # a full disk, above all
                    self._rest(loan.friend, f"was not asked: {error}", has_failed=True)

    def close(self) -> None:
        """End all guests, which leave at the same time."""
        for guest in self._guests.values():
            guest.end(self._clock())
        for guest in self._guests.values():
            try:
                guest.process.wait(max(0.0, (guest.leaves_by or 0.0) - self._clock()))
            except subprocess.TimeoutExpired:
                guest.process.kill()
                guest.process.wait()
        self._guests.clear()

    def _may_ask(self, friend: Friend, now: float) -> bool:
        is_free = friend.name not in self._guests
        return is_free and self._rests.get(friend.name, Rest()).until <= now

    def _see_ended(self, now: float) -> None:
        for name, guest in list(self._guests.items()):
            code = guest.process.poll()
            if code is None:
                if guest.leaves_by is not None and now > guest.leaves_by:
                    guest.process.kill()
                continue
            del self._guests[name]
            if guest.leaves_by is None:
                why = f"ended with {code}: {self._log(name)}" if code else "has no work"
                self._rest(name, why, has_failed=code != 0)

    def _rest(self, name: str, why: str, *, has_failed: bool) -> None:
        now = self._clock()
        self._rests[name] = rest = self._rests.get(name, Rest()).after(now, has_failed=has_failed)
        self._activity.say(f"{name} {why}; asked again in {rest.until - now:.0f} s")

    def _log(self, name: str) -> str:
        return str(self._folder.friends / name / "client.log")

    def _begin(self, loan: Loan) -> None:
        """Start a guest, unless its friend was removed meanwhile.  Raises OSError."""
        known = {friend.name: friend for friend in friends_of(self._folder)}
        if (friend := known.get(loan.friend)) is None:
            return
        place = folder_of_friend(self._folder, friend)
        preferred = self._folder.preferences()
        place.save_preferences({name: preferred[name] for name in _CARRIED if name in preferred})
        place.save_policy(self._folder.policy())
        with (place.path / "start.log").open("wb") as log:
            process = subprocess.Popen(
                command(self._folder, place, loan, self._options), stdin=subprocess.PIPE,
                stdout=log, stderr=log, start_new_session=True, env=environment(os.environ),
            )  # fmt: skip
        self._guests[loan.friend] = _Guest(loan, process)
        self._activity.say(f"lends {_cpus(loan.cpus)} to {friend.url}")


def command(home: Folder, place: Folder, loan: Loan, options: Options) -> list[str]:
    """What starts a guest: within the same walls, without GPUs."""
    walls = options.walls
    return [
        *(sys.executable, "-m", "gridbot", "client", "run", "--quiet"),
        *("--data", str(place.path), "--guest-of", str(home.path), "--exit-when-idle", _IDLE),
        *("--cpus", str(loan.cpus), "--memory", f"{loan.memory_mb}MB", "--gpus", "0"),
        *("--sandbox", str(walls.most), "--min-sandbox", str(walls.least)),
        *(["--allow-network"] if walls.allow_network else []),
        *_repeated("--allow-read", walls.reads),
        *_repeated("--allow-write", walls.writes),
    ]


def environment(given: Mapping[str, str]) -> dict[str, str]:
    """What a guest sees of the environment: not the key of home, which a friend must not get.

    A server that says that it does not know its client would be shown it.
    """
    return {name: value for name, value in given.items() if name not in _OF_HOME}


def _repeated(option: str, values: Iterable[str]) -> list[str]:
    return [word for value in values for word in (option, value)]


def _cpus(count: int) -> str:
    return "1 CPU" if count == 1 else f"{count} CPUs"
