"""A simulation that begins with what is there: a BOT that runs, its hosts, and other BOTs as load.

Jobs get other numbers: first come those that are over, then those that were begun, then those that
were never sent.  Replicas in progress go on from their ages.  All hosts that can run the BOT are
taken to be trusted by its owner; what they hold of other BOTs goes on, and those BOTs compete for
hosts as they do at the server, by their owners' shares.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import replace
from itertools import chain, count

from gridbot_client.protocol.manifest import Manifest, Resources
from gridbot_client.protocol.messages import ReplicaId
from gridbot_server.storage.states import State
from gridbot_server.validators.digests import digest
from gridbot_simulator.store.tables import (
    DAY,
    StoredBot,
    StoredClient,
    StoredCopy,
    StoredEnd,
    StoredHost,
    StoredLease,
    StoredOwner,
)
from gridbot_simulator.world.chance import stream
from gridbot_simulator.world.client import Run, SimulatedClient, SimulatedHost
from gridbot_simulator.world.jobs import Workload
from gridbot_simulator.world.present import Present, Row, straggler_seconds
from gridbot_simulator.world.simulation import EventKind, Scenario, Simulation

_UNKNOWN_SECONDS = 600.0  # of a job of another BOT of which none has ended
_OTHERS_SPREAD = 0.5, 1.5  # of the usual time of its jobs
_MOST_SECONDS = 366 * DAY  # that jobs of other BOTs may take


class LiveSimulation(Simulation):
    """What becomes of a BOT that runs, under a policy and a seed."""

    def __init__(self, present: Present, policy: str, seed: int) -> None:
        self._present = present
        self._client_of_host = {client["host"]: client for client in present.clients}
        self._seq = {seq: self._first + place for place, seq in enumerate(present.begun)}
        chance = stream(seed, "jobs")
        least = self._least_seconds()
        left = [present.draw_seconds(chance, least.get(seq, 0.0)) for seq in present.begun]
        left += [present.draw_seconds(chance) for _ in range(present.fresh)]
        self._progress: dict[ReplicaId, float | None] = {}  # of replicas whose programs tell it
        self._began_at: dict[ReplicaId, float | None] = {}
        self._others_seconds = {
            other["id"]: other["usual_seconds"] or other["mean_turnaround"] or _UNKNOWN_SECONDS
            for other in present.rows["others"]
        }
        super().__init__(
            Scenario(policy, Workload(left), [], seed, bot=present.bot["id"], begins_at=present.now)
        )

    @property
    def _first(self) -> int:
        """The number of the first job that is left."""
        return int(self._present.bot["size"]) - self._present.left

    def _least_seconds(self) -> dict[int, float]:
        """What jobs in progress have taken so far, as on a host of speed 1, by their numbers."""
        present, found = self._present, dict[int, float]()
        for lease in present.rows["leases"]:
            began_at = present.began_at.get((lease["seq"], lease["replica"]), present.now)
            age = (present.now - began_at) * present.speeds.get(lease["host"], 1.0)
            found[lease["seq"]] = max(age, found.get(lease["seq"], 0.0))
        return found

    # -------------------------------------------------------------------------------- rows

    def _add_rows(self) -> None:
        present = self._present
        self._add_owners()
        self._add_bot()
        for other in present.rows["others"]:
            self._add_other(other)
        for row in present.rows["clients"]:
            self._add_client(row)
        numbers = [row["id"] for row in present.rows["clients"]]
        self._client_numbers = count(1 + max(numbers, default=0))
        self._add_replicas()
        for client in list(self._clients.values()):
            self._begin(client)

    def _add_owners(self) -> None:
        rows = self._present.rows
        for row in chain(rows["clients"], rows["others"], [self._present.bot]):
            owner = StoredOwner(row["owner"], row["owner_name"], row.get("share", 1.0))
            self.tables.owners[owner.id] = owner

    def _add_bot(self) -> None:
        row, present = self._present.bot, self._present
        real = present.manifest
        manifest = _manifest(real.owner, real.resources)
        sent = row["size"] - present.fresh
        bot = StoredBot(
            row["id"], row["owner"], row["name"], row["size"], self._scenario.policy,
            replace(manifest, inputs=real.inputs, sources=real.sources), row["created_at"],
            fed=sent, failed=row["failed"], done=self._first - row["failed"],
        )  # fmt: skip
        for name in (
            "quorum", "max_attempts", "max_replicas", "max_failures", "failover_after",
            "tail_threshold", "tail_sticky", "tail", "tail_since", "watched", "turnaround_sum",
            "turnaround_n", "recent_runs", "usual_seconds",
        ):  # fmt: skip
            setattr(bot, name, row[name])
        bot.outcomes = self._first
        copies, leases = len(present.rows["copies"]), len(present.rows["leases"])
        bot.counts = Counter({"sent_first": sent, "back": sent - leases, "queued": copies})
        self.tables.bots[bot.id] = bot

    def _add_other(self, row: Row) -> None:
        """Add a BOT that is a load: its replicas in progress are its first jobs."""
        leases = sum(lease["bot"] == row["id"] for lease in self._present.rows["others_leases"])
        size = leases + row["unsent"]
        resources = Resources(**row["resources"], seconds=int(_MOST_SECONDS))
        self.tables.bots[row["id"]] = StoredBot(
            row["id"], row["owner"], f"bot {row['id']}", size, row["policy"],
            _manifest(row["owner_name"], resources), row["created_at"],
            fed=leases, counts=Counter({"sent_first": leases}),
        )  # fmt: skip

    def _add_client(self, row: Row) -> None:
        """Add a client's rows; and its host, unless that has a later client."""
        token = hashlib.sha256(b"%d" % row["id"]).digest()
        stored = self._stored_client(row, row["id"], token)
        stored.seen_at, stored.contact_seconds = row["seen_at"], row["contact_seconds"]
        stored.silent_since = row["silent_since"]
        self.tables.add_client(stored)
        if self._client_of_host[row["host"]] is not row:
            return
        self.tables.hosts[row["host"]] = StoredHost(
            row["host"], row["owner"], row["grid"], self.tables.now, row["ad"].get("Name"),
            row["error_rate"], row["mean_turnaround"], row["jobs_today"],
            int(self.tables.now // DAY), row["recent_cpu"],
        )  # fmt: skip
        traits = self._present.traits(row, self._hosts_chance)
        name = str(row["ad"].get("Name") or f"host {row['host']}")
        host = SimulatedHost(
            row["host"], name, self._present.model(row), traits, ad=row["ad"],
        )  # fmt: skip
        self._hosts[host.id] = host
        host.client = self._clients[row["id"]] = SimulatedClient(row["id"], token, host)
        host.client.is_there = False

    def _stored_client(self, row: Row, number: int, token: bytes) -> StoredClient:
        fits, owner = row["host"] in self._present.fitting, self._present.bot["owner"]
        accepts, trusts = (
            tuple(sorted({*owners, owner} if fits else {*owners} - {owner}))
            for owners in (row["accepts"], row["trusts"])
        )
        return StoredClient(
            number, token, row["host"], row["owner"], row["grid"], self.tables.now, accepts, trusts,
            row["dedicated"], cached=tuple(row["cached"]),
        )  # fmt: skip

    def _client_row(self, host: SimulatedHost, number: int, token: bytes) -> StoredClient:
        return self._stored_client(self._client_of_host[host.id], number, token)

    def _add_replicas(self) -> None:
        present, bot, tables = self._present, self._scenario.bot, self.tables
        rows = present.rows
        others = Counter[int]()
        for row in rows["others_leases"]:
            self._hold(self._lease(row, row["bot"], others[row["bot"]], 1, "first"))
            others[row["bot"]] += 1
        for row in rows["leases"]:
            lease = self._lease(row, bot, self._seq[row["seq"]], row["replica"], row["why"])
            name = ReplicaId(*lease.name)
            self._progress[name] = row["progress"]
            self._began_at[name] = present.began_at.get((row["seq"], row["replica"]))
            self._hold(lease)
        for row in rows["copies"]:
            copy = StoredCopy(
                bot, self._seq[row["seq"]], row["replica"], 0, row["why"], row["not_before"],
                row["prio"], row["pool"], row["vain"],
            )  # fmt: skip
            tables.queue(copy)
        for row in rows["ended"]:
            lease = self._lease(row, bot, self._seq[row["seq"]], row["replica"], row["why"])
            end = StoredEnd(lease, row["how"], row["reason"], row["ended_at"], valid=row["valid"])
            if row["how"] == State.SUCCESS:
                end.digest = bytes.fromhex(digest((), 0))  # as of all simulated answers
            tables.ended[bot, lease.seq][lease.replica] = end
        tables.pending += [(bot, self._seq[row["seq"]]) for row in rows["pending"]]
        tables.kinds |= {(bot, self._seq[row["seq"]]): row["kind"] for row in rows["kinds"]}

    def _lease(self, row: Row, bot: int, seq: int, replica: int, why: str) -> StoredLease:
        """A replica that a host has or had; one that is not known is added."""
        tables, owner = self.tables, row["owner"]
        tables.owners.setdefault(owner, StoredOwner(owner, ""))
        tables.hosts.setdefault(row["host"], StoredHost(row["host"], owner, None, tables.now))
        if row["client"] not in tables.clients:
            token = hashlib.sha256(b"%d" % row["client"]).digest()
            gone = StoredClient(row["client"], token, row["host"], owner, None, row["sent_at"])
            tables.add_client(gone)
        deadline = row.get("deadline", self.tables.now)
        return StoredLease(
            bot, seq, replica, 0, why, row["client"], row["host"], row["owner"], row["sent_at"],
            deadline,
        )  # fmt: skip

    def _hold(self, lease: StoredLease) -> None:
        self.tables.lease(lease)
        if client := self._clients.get(lease.client):
            client.hold(ReplicaId(*lease.name), self._resources_of(lease.bot))
        else:
            self._note_gone(lease.client)

    # ------------------------------------------------------------------------ what is there

    def _begin(self, client: SimulatedClient) -> None:
        """Let a host be there with what it runs, or away."""
        row, host, now = self._client_of_host[client.host.id], client.host, self.tables.now
        for name in client.to_start():
            client.start(name, self._going_on(host, name))
        if row["is_away"]:
            self._be_away(client)
            return
        client.is_there = True
        self._there[client.id] = client
        for name, run in client.runs.items():
            self._at(run.ends_at, EventKind.ENDS, client.id, name)
        self._ask_at(client, now + self._polls.random() * self._grain)
        stayed = now - row["session_at"] if row["session_at"] is not None else 0.0
        stays = host.model.up.more_seconds(max(0.0, stayed), self._hosts_chance)
        if row["expires_at"] is not None:
            stays = min(stays, max(0.0, row["expires_at"] - now))
        self._at(now + stays, EventKind.GOES, host.id)

    def _be_away(self, client: SimulatedClient) -> None:
        """Let what a host runs be suspended until it comes back, or be lost."""
        host, now = client.host, self.tables.now
        self._note_gone(client.id)
        for run in client.runs.values():
            run.done, run.began_at = now - run.began_at, now
        if not host.model.keeps_work:
            client.runs.clear()
            host.client = None
        self._at(now + host.model.down.seconds(self._hosts_chance), EventKind.COMES, host.id)

    def _going_on(self, host: SimulatedHost, name: ReplicaId) -> Run:
        """What becomes of a replica that has run for some time."""
        sent_at = self.tables.leases[name[:2]][name.replica].sent_at
        began_at = self._began_at.get(name) or sent_at
        run, limit = self._run_of(host, name), self._resources_of(name.bot).seconds
        age, seconds = run.began_at - began_at, run.ends_at - run.began_at
        if progress := self._progress.get(name):
            seconds = age / progress
        elif seconds <= age:  # none that ended took so long, or it fails
            seconds = straggler_seconds(age, stream(self._scenario.seed, "age", *name))
        if seconds > limit:
            seconds, run.fails, run.reason = max(age, limit), True, "time_limit"
        run.began_at, run.ends_at = began_at, began_at + seconds
        return run

    # -------------------------------------------------------------------------------- runs

    def _seconds_of(self, name: ReplicaId) -> float:
        if name.bot == self._scenario.bot:
            return self._scenario.workload.seconds[name.seq - self._first]
        chance = stream(self._scenario.seed, *name)
        return self._others_seconds[name.bot] * chance.uniform(*_OTHERS_SPREAD)


def _manifest(owner: str, resources: Resources) -> Manifest:
    return Manifest(owner, ("program", "{i}"), {"i": "int"}, resources=resources)
