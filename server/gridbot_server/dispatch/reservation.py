"""What a batch of host requests took out of the scheduling buffer."""

from __future__ import annotations

from dataclasses import dataclass, field

from gridbot_client.protocol.messages import ReplicaId
from gridbot_server.buffer.layout import Slot
from gridbot_server.dispatch.batch import ClientRow


@dataclass(slots=True)
class Reservation:
    """Slots that this batch took; the caller frees them after the commit or gives them back."""

    numbers: list[int] = field(default_factory=list)  # of all slots
    feeder_wanted: bool = False
    leaves_some: bool = False  # of the replicas in the buffer
    _names: set[ReplicaId] = field(default_factory=set)
    _holders: dict[tuple[int, int], list[ClientRow]] = field(default_factory=dict)  # of copies

    def add(self, slot: Slot) -> ReplicaId | None:
        """Keep a slot; None when another slot of its replica is kept already."""
        self.numbers.append(slot.number)
        name = ReplicaId(slot.bot, slot.seq, slot.replica)
        if name in self._names:
            return None
        self._names.add(name)
        return name

    def admits(self, copy: Slot, client: ClientRow, distinct_owners: bool) -> bool:
        """Whether a copy is the only one of its job for the client's host, or owner; noted if so.

        The first copy of a job is never in the same batch: the others follow when it is sent.
        """
        holders = self._holders.setdefault((copy.bot, copy.seq), [])
        is_only = not any(
            holder.host == client.host or (distinct_owners and holder.owner == client.owner)
            for holder in holders
        )
        if is_only:
            holders.append(client)
        return is_only
