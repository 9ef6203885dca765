"""What somebody was told, against what is there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple

from gridbot_client.protocol.messages import ReplicaId, WorkRequest
from gridbot_server.dispatch.replies import ReplyParts
from gridbot_simulator.nemesis.broken import InvariantBroken
from gridbot_simulator.nemesis.clients import name_of
from gridbot_simulator.store.tables import Job, StoredLease, Tables


class Witness:
    """Remembers what clients and the owner of the BOTs were told, in one epoch."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self.begin_epoch()

    def begin_epoch(self) -> None:
        """A backup was restored: what was told before may be told otherwise."""
        self._acknowledged: set[tuple[ReplicaId, int]] = set()
        self._told: dict[Job, tuple[object, ...]] = {}
        self._last: dict[int, int] = {}

    # ------------------------------------------------------------------------------- clients

    def leaves(self, client: int, reply: ReplyParts) -> None:
        """Look at a reply that leaves: it says what is so."""
        if reply.epoch != self._tables.epoch:
            raise InvariantBroken(
                "a_reply_is_of_this_epoch", f"{reply.epoch}, not {self._tables.epoch}"
            )
        for assignment in reply.assignments:
            name = name_of(assignment)
            lease = self._lease(name)
            if (lease is None or lease.client != client) and not self._tables.find_end(*name):
                raise InvariantBroken("what_is_assigned_is_leased", f"{name} to client {client}")
        # What was reported of another epoch ended nothing, and may be sent again by the same name.
        ended = [name for name in reply.acks if self._has_ended(name, client)]
        self._acknowledged |= {(name, client) for name in ended}

    def served(self, client: int, request: WorkRequest, reply: ReplyParts) -> None:
        """Look at a reply as soon as its transaction is over."""
        for name in request.holding:
            lease = self._lease(name)
            is_leased = lease is not None and lease.client == client
            if not is_leased and self._is_over(name) and name not in reply.abort:
                raise InvariantBroken("clients_are_told_what_is_not_wanted", f"{name} of {client}")

    def _has_ended(self, name: ReplicaId, client: int) -> bool:
        end = self._tables.find_end(*name)
        return end is not None and end.lease.client == client

    def _lease(self, name: ReplicaId) -> StoredLease | None:
        return self._tables.find_lease(*name)

    def _is_over(self, name: ReplicaId) -> bool:
        bot = self._tables.bots.get(name.bot)  # None: it came after the backup that was restored
        return (
            bot is None or bot.state != "running" or (name.bot, name.seq) in self._tables.outcomes
        )

    # ----------------------------------------------------------------------------- the owner

    def read_results(self) -> None:
        """Read the outcomes that came since the last time, as a scientist does."""
        for job, told in self._results().items():
            if job not in self._told:
                self._told[job] = told

    def _results(self) -> Mapping[Job, tuple[object, ...]]:
        return {
            job: (outcome.n, outcome.canonical, outcome.reason)
            for job, outcome in self._tables.outcomes.items()
        }

    # ------------------------------------------------------------------------------ each step

    def check(self) -> None:
        """Raise InvariantBroken if something is not as it was told."""
        results = self._results()
        for job, told in self._told.items():
            if results.get(job) != told:
                raise InvariantBroken(
                    "what_was_told_is_final", f"{job}: {told}, now {results.get(job)}"
                )
        for name, client in self._acknowledged:
            lease = self._lease(name)
            if lease is not None and lease.client == client:
                raise InvariantBroken("what_is_acknowledged_is_kept", astuple(lease))
