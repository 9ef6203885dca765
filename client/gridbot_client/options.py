"""How one run of the client behaves: what the command line and the machine say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from gridbot_client.agent import Room
from gridbot_client.host import description
from gridbot_client.pilot.behaviour import IDLE_SHARE, Pilot
from gridbot_client.protocol.messages import Scalar
from gridbot_client.storage import Folder
from gridbot_client.work.idleness import Idleness
from gridbot_policies.policy.owner import OwnerPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How one run of the client behaves."""

    room: Room
    pilot: Pilot | None = None
    is_dedicated: bool = False
    once: bool = False
    exit_when_idle: float | None = None  # seconds
    cache_bytes: int = 10 << 30
    policy: OwnerPolicy | None = None

    def describe(self, folder: Folder) -> dict[str, Scalar]:
        """The host's lasting attributes."""
        return description.attributes(
            self.room, folder.path, is_pilot=self.pilot is not None,
            is_dedicated=self.is_dedicated, policy=self.policy,
        )  # fmt: skip

    def idleness(self) -> Callable[[], Idleness] | None:
        """What watches each replica of a pilot; nothing on a volunteer's machine."""
        if self.pilot is None:
            return None
        return partial(Idleness, self.pilot.idle_window_seconds, IDLE_SHARE)

    @property
    def is_temporary(self) -> bool:
        """Whether nobody waits for this run to come right again hours later."""
        return self.once or self.pilot is not None or self.exit_when_idle is not None
