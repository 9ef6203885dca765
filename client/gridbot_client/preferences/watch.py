"""Follows the owner's preferences and pauses while the client runs."""

from __future__ import annotations

import time
from dataclasses import replace

from gridbot_client.activity import ActivityLog
from gridbot_client.agent import Room
from gridbot_client.preferences import look
from gridbot_client.preferences.decision import WorkPermit, decide
from gridbot_client.preferences.model import OwnerPreferences, PreferenceError
from gridbot_client.storage import Folder

_LOOK_SECONDS = 5.0  # between two looks at the machine


class PreferenceWatch:
    """What may run now.  Preferences that are changed take effect at the next look."""

    def __init__(self, folder: Folder, room: Room, activity: ActivityLog) -> None:
        self._folder = folder
        self._room = room
        self._activity = activity
        self._load = look.OtherLoad()
        self._looked_at = -_LOOK_SECONDS
        self._texts: dict[str, str] = {}
        self._of_preferences = WorkPermit("", room)
        self.verdict = self._of_preferences
        folder.save_suspended("")

    def look(self, now: float) -> WorkPermit:
        """Judge at a time in seconds since 1970; says so when work is suspended or goes on."""
        texts = self._folder.preferences()
        if texts != self._texts or time.monotonic() - self._looked_at >= _LOOK_SECONDS:
            self._texts, self._looked_at = texts, time.monotonic()
            self._of_preferences = self._judged(texts, now)
        verdict = self._of_preferences
        if (until := self._folder.paused_until()) and now < until:
            verdict = replace(verdict, obstacle=f"paused until {clock(until)}")
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

    def _judged(self, texts: dict[str, str], now: float) -> WorkPermit:
        if not texts:
            return WorkPermit("", self._room)
        try:
            wanted = OwnerPreferences.parse(texts)
        except PreferenceError as error:  # kept by another version
            return WorkPermit(f"preferences cannot be read: {error}", self._room)
        was_suspended = bool(self._of_preferences.obstacle)
        facts = look.facts(self._load, now)
        return decide(wanted, facts, self._room, was_suspended=was_suspended)


def clock(moment: float) -> str:
    """A time of the day for people, with the day."""
    return time.strftime("%a %H:%M", time.localtime(moment))
