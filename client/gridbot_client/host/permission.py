"""Evaluates the owner's policy: may the client ask for work now?"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from gridbot_client.activity import ActivityLog
from gridbot_client.protocol.messages import Scalar
from gridbot_client.storage import Folder
from gridbot_policies import SemanticError
from gridbot_policies.classad import ParseError, record
from gridbot_policies.policy.ads import BOT_ATTRIBUTES, SERVER_SIDE_ATTRIBUTES
from gridbot_policies.policy.owner import OwnerPolicy, partly_known


class UnreadablePolicy(Exception):
    """The owner's policy cannot be read; the message has the place of the error."""


def read_policy(text: str, where: str) -> OwnerPolicy:
    """Parse the owner's policy; `where` names its source.  Raises UnreadablePolicy."""
    try:
        return OwnerPolicy.parse(text)
    except ParseError as error:
        raise UnreadablePolicy(f"{where}: {error.pretty()}") from None
    except SemanticError as error:
        raise UnreadablePolicy(f"{where}: {error}") from None


def read_policy_file(path: Path) -> OwnerPolicy:
    """Read the owner's policy from a file.  Raises UnreadablePolicy."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UnreadablePolicy(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UnreadablePolicy(f"{path}: not UTF-8 text: {error}") from None
    return read_policy(text, str(path))


class Permission:
    """The owner's permission to ask for work; prints when it changes."""

    def __init__(self, policy: OwnerPolicy | None, folder: Folder, activity: ActivityLog) -> None:
        self._policy = policy
        self._folder = folder
        self._activity = activity
        self._obstacle = ""
        folder.save_obstacle("")

    @property
    def is_given(self) -> bool:
        """Result of the last `judge`."""
        return not self._obstacle

    def obstacle_to(
        self, host: Mapping[str, Scalar], bot: Mapping[str, Scalar], now: float
    ) -> str | None:
        """The clause that forbids a BOT with these attributes; others of its ad are not known."""
        if self._policy is None:
            return None
        hidden = [name for name in BOT_ATTRIBUTES if name not in bot]
        known = partly_known(bot, hidden)
        return self._policy.obstacle(record(host), now, SERVER_SIDE_ATTRIBUTES, known)

    def judge(self, host: Mapping[str, Scalar], now: float) -> None:
        """Evaluate the policy for the host's attributes; unknown BOT attributes do not forbid."""
        if self._policy is None:
            return
        found = self._policy.obstacle(record(host), now, SERVER_SIDE_ATTRIBUTES) or ""
        if found == self._obstacle:
            return
        self._obstacle = found
        self._folder.save_obstacle(found)
        if found:
            self._activity.say(f"not asking for work: the owner's policy is not satisfied: {found}")
        else:
            self._activity.say("asking for work again: the owner's policy is satisfied")
