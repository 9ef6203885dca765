"""Options of one run of the client."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from gridbot_client.agent import Room
from gridbot_client.host import description
from gridbot_client.host.gpus import Gpu
from gridbot_client.pilot.behaviour import IDLE_SHARE, IDLE_WINDOW_SECONDS, PilotOptions
from gridbot_client.protocol.messages import Scalar
from gridbot_client.storage import Folder
from gridbot_client.walls.levels import Sandbox
from gridbot_client.work import containers
from gridbot_client.work.confinement import WallOptions
from gridbot_client.work.idleness import Idleness
from gridbot_client.work.nodes import PilotNodes, WorkerOptions
from gridbot_client.work.shared_cache import SharedCache
from gridbot_policies.policy.owner import OwnerPolicy

LEND_AFTER_SECONDS = 10.0  # so that CPUs do not go to and fro


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of one run of the client."""

    room: Room
    gpus: tuple[Gpu, ...] = ()  # for replicas
    pilot: PilotOptions | None = None
    nodes: PilotNodes | None = None  # of a pilot that has several
    home: Path | None = None  # folder of the client whose guest this one is
    lend_after: float = LEND_AFTER_SECONDS  # for which CPUs were idle that friends get
    is_dedicated: bool = False
    once: bool = False
    exit_when_idle: float | None = None  # seconds
    cache_bytes: int = 10 << 30
    shared_cache: Path | None = None  # folder that the pilots of a grid share
    policy: OwnerPolicy | None = None
    walls: WallOptions = field(default_factory=WallOptions)
    runtimes: tuple[str, ...] = field(default_factory=containers.found)  # of containers

    def describe(self, folder: Folder, sandbox: Sandbox) -> dict[str, Scalar]:
        """Attributes of the host ad that change rarely."""
        found = description.attributes(
            self.room, folder.path, gpus=self.gpus, is_pilot=self.pilot is not None,
            is_dedicated=self.is_dedicated, policy=self.policy,
        )  # fmt: skip
        found["IsGuest"] = self.home is not None
        if self.runtimes:
            found["Containers"] = " ".join(self.runtimes)
        return {**found, **sandbox.attributes, "MinSandbox": self.walls.least}

    def idleness(self) -> Callable[[], Idleness] | None:
        """Factory of the CPU watch of a pilot's replicas; None on a volunteer's machine."""
        if self.pilot is None:
            return None
        return partial(Idleness, self.pilot.idle_window_seconds, IDLE_SHARE)

    def shared_cache_of_grid(self) -> SharedCache | None:
        """The cache that the pilots of a grid share; None without one."""
        return SharedCache(self.shared_cache, self.cache_bytes) if self.shared_cache else None

    def for_workers(self, folder: Folder, sandbox: Sandbox) -> WorkerOptions:
        """What workers on other nodes of a pilot must know; `sandbox` is that of this one."""
        seconds = self.pilot.idle_window_seconds if self.pilot else IDLE_WINDOW_SECONDS
        return WorkerOptions(folder.path, self.walls, seconds, sandbox.level)

    def with_gpus(self, gpus: tuple[Gpu, ...]) -> Options:
        """These options of a client that has GPUs."""
        return replace(self, gpus=gpus, room=replace(self.room, gpus=len(gpus)))

    def on_nodes(self, nodes: PilotNodes) -> Options:
        """These options of a pilot that has several nodes, which have the room together.

        It runs no containers: what runs them is on this machine.
        """
        room = replace(self.room, nodes=len(nodes.names))
        return replace(self, nodes=nodes, room=room, runtimes=())

    @property
    def returns_work(self) -> bool:
        """True if what is unfinished at the end goes back to the server, for others."""
        return self.pilot is not None or self.home is not None

    @property
    def may_lend(self) -> bool:
        """True if idle CPUs may go to friends.  A pilot and a guest have none."""
        return not self.is_temporary and not self.returns_work

    @property
    def is_temporary(self) -> bool:
        """True if the run is short, so that waiting hours for the server makes no sense."""
        return self.once or self.pilot is not None or self.exit_when_idle is not None
