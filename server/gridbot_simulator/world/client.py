"""A client on a simulated host: it decides with the real client's own functions."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from gridbot_client import agent
from gridbot_client.agent import LocalReplica, Room, Stage
from gridbot_client.backoff import poll_seconds
from gridbot_client.protocol.manifest import Resources
from gridbot_client.protocol.messages import ReplicaId, Report, Scalar, WorkRequest
from gridbot_client.work.pace import Pace
from gridbot_server.dispatch.replies import ReplyParts
from gridbot_simulator.world.hosts import HostModel, HostTraits


@dataclass(slots=True)
class Run:
    """A replica that runs: since when, when it would end, and seconds done before that.

    While its host is away, it is suspended: `began_at` is then the time when the host left.
    """

    began_at: float
    ends_at: float
    fails: bool
    reason: str = "exit_nonzero"
    done: float = 0.0


@dataclass(slots=True)
class SimulatedHost:
    """A machine, and the client that is on it now."""

    id: int
    name: str
    model: HostModel
    traits: HostTraits
    client: SimulatedClient | None = None
    ad: Mapping[str, Scalar] | None = None  # of a real machine

    @property
    def room(self) -> Room:
        """What replicas may take."""
        return Room(self.model.cpus, self.model.memory_mb, self.model.gpus)

    @property
    def attributes(self) -> Mapping[str, Scalar]:
        """What it says of itself."""
        if self.ad is not None:
            return self.ad
        return {
            "Name": self.name,
            "NumCpus": self.model.cpus,
            "Memory": self.model.memory_mb,
            "OpSys": "LINUX",
            "Arch": "X86_64",
        }


class SimulatedClient:
    """One client: replicas, reports that wait, and when it asks next."""

    def __init__(self, id_: int, token: bytes, host: SimulatedHost) -> None:
        self.id, self.token, self.host = id_, token, host
        self.is_there = True
        self.ask_at: float | None = None  # the request that is planned
        self.runs: dict[ReplicaId, Run] = {}
        self._items: dict[ReplicaId, LocalReplica] = {}
        self._reports: list[Report] = []
        self._attributes = host.attributes
        self._pace = Pace(host.model.cpus)
        self._seqno = 0

    # --------------------------------------------------------------------------- requests

    def request(self) -> WorkRequest:
        """The next request."""
        items = list(self._items.values())
        self._seqno += 1
        reported = {report.id for report in self._reports}
        return WorkRequest(
            key=f"{self.id}-{self._seqno}",
            seqno=self._seqno,
            host=self._attributes,
            want=agent.wanted(items, self.host.room, self._pace.lookahead_seconds),
            holding=tuple(name for name in self._items if name not in reported),
            reports=tuple(self._reports),
            ahead=self._pace.ahead(),
        )

    def take_in(
        self,
        reply: ReplyParts,
        names: Iterable[ReplicaId],
        resources: Callable[[int], Resources],
    ) -> list[tuple[ReplicaId, Run]]:
        """Take in a reply, in which these replicas come; return the runs that it aborts.

        `resources` says what replicas of a BOT may use.
        """
        for name in reply.acks:
            self._items.pop(name, None)
        acknowledged = set(reply.acks)
        self._reports = [report for report in self._reports if report.id not in acknowledged]
        aborted = []
        for name in reply.abort:
            if self._items.pop(name, None) and (run := self.runs.pop(name, None)):
                aborted.append((name, run))
        for name in names:
            self.hold(name, resources(name.bot))
        return aborted

    def hold(self, name: ReplicaId, resources: Resources) -> None:
        """Let a replica wait for room, unless it is here."""
        if name not in self._items:
            seconds = self._pace.seconds(name.bot)
            self._items[name] = LocalReplica(name, resources, Stage.WAITING, seconds)

    def poll_in(self, reply: ReplyParts, chance: random.Random) -> float:
        """Seconds until it asks again by itself."""
        asked = agent.next_request_seconds(reply.next_request_seconds, may_ask=True)
        return poll_seconds(asked, chance.random())

    @property
    def is_busy(self) -> bool:
        """Whether all that it has keeps it busy, so that it asks for nothing."""
        return not agent.has_idle_cpus(list(self._items.values()), self.host.room)

    @property
    def has_reports(self) -> bool:
        """Whether reports wait for the next request."""
        return bool(self._reports)

    # ------------------------------------------------------------------------------- runs

    def to_start(self) -> Sequence[ReplicaId]:
        """The replicas that begin now."""
        return list(agent.to_start(list(self._items.values()), self.host.room))

    def start(self, name: ReplicaId, run: Run) -> None:
        """Begin a replica."""
        self._items[name] = replace(self._items[name], stage=Stage.RUNNING)
        self.runs[name] = run

    def end(self, name: ReplicaId, report: Report) -> None:
        """End a replica; its report waits for the next request."""
        del self.runs[name]
        item = self._items[name]
        self._items[name] = replace(item, stage=Stage.FINISHED)
        self._reports.append(report)
        if report.how == "success":
            self._pace.ended(name.bot, item.resources, report.wall_seconds)
