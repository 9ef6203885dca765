"""Follows the owner's preferences and pauses while the client runs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

from gridbot_client.activity import ActivityLog
from gridbot_client.agent import Room
from gridbot_client.preferences import look
from gridbot_client.preferences.decision import WorkPermit, decide
from gridbot_client.preferences.merging import ACCOUNT, Preferred, merged
from gridbot_client.protocol.preferences import (
    AccountPreferences,
    OwnerPreferences,
    PreferenceError,
)
from gridbot_client.storage import Folder

_LOOK_SECONDS = 5.0  # between two looks at the machine


class PreferenceWatch:
    """What may run now.  Preferences that are changed take effect at the next look."""

    def __init__(
        self, folder: Folder, room: Room, activity: ActivityLog, *, follows_account: bool = True
    ) -> None:
        self._folder = folder
        self._follows_account = follows_account
        self._room = room
        self._activity = activity
        self._load = look.OtherLoad()
        self._looked_at = -_LOOK_SECONDS
        self._texts: Mapping[str, str] = {}
        self._of_preferences = WorkPermit("", room)
        self.verdict = self._of_preferences
        self._suspended_at: float | None = None
        folder.save_suspended("")

    def look(self, now: float) -> WorkPermit:
        """Judge at a time in seconds since 1970; says so when work is suspended or goes on."""
        texts = preferred(self._folder, follows_account=self._follows_account).texts
        if texts != self._texts or time.monotonic() - self._looked_at >= _LOOK_SECONDS:
            self._texts, self._looked_at = texts, time.monotonic()
            self._of_preferences = self._judged(texts, now)
        verdict = self._of_preferences
        if (until := self._folder.paused_until()) and now < until:
            verdict = replace(verdict, obstacle=f"paused until {clock(until)}")
        if not verdict.obstacle:
            self._suspended_at = None
        elif self._suspended_at is None:
            self._suspended_at = time.monotonic()
        if verdict.obstacle != self.verdict.obstacle:
            self._folder.save_suspended(verdict.obstacle)
            if bool(verdict.obstacle) != bool(self.verdict.obstacle):
                said = f"suspended: {verdict.obstacle}" if verdict.obstacle else "goes on working"
                self._activity.say(said)
        self.verdict = verdict
        return verdict

    @property
    def is_needed(self) -> bool:
        """Whether anything is preferred."""
        return bool(self._texts)

    @property
    def gives_back(self) -> bool:
        """Whether work was suspended for so long that it is to go back to the server."""
        after, since = self.verdict.give_back_seconds, self._suspended_at
        return None not in (after, since) and time.monotonic() - (since or 0) >= (after or 0)

    @property
    def version(self) -> int | None:
        """Version of the account's preferences that is known; None if they do not matter."""
        return self._folder.account_preferences().version if self._follows_account else None

    def told(self, said: AccountPreferences) -> None:
        """Take in what the account prefers now."""
        self._folder.save_account_preferences(said)
        found = preferred(self._folder)
        texts = [f"{name}={text}" for name, text in found.texts.items()
                 if found.origins[name] == ACCOUNT]  # fmt: skip
        self._activity.say(f"the account prefers: {', '.join(texts) or 'nothing'}")
        for why in found.left_out.values():
            self._activity.say(f"the account's preference is not followed: {why}")

    def _judged(self, texts: Mapping[str, str], now: float) -> WorkPermit:
        if not texts:
            return WorkPermit("", self._room)
        try:
            wanted = OwnerPreferences.parse(texts)
        except PreferenceError as error:  # kept by another version
            return WorkPermit(f"preferences cannot be read: {error}", self._room)
        was_suspended = bool(self._of_preferences.obstacle)
        facts = look.facts(self._load, now, self._folder.path)
        return decide(wanted, facts, self._room, was_suspended=was_suspended)


def preferred(folder: Folder, *, follows_account: bool = True) -> Preferred:
    """What holds for a client: its machine's own preferences, and those of its account."""
    account = folder.account_preferences().texts if follows_account else {}
    return merged(folder.preferences(), account)


def clock(moment: float) -> str:
    """A time of the day for people, with the day."""
    return time.strftime("%a %H:%M", time.localtime(moment))
