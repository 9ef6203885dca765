"""One seed, lived through: who does something next, what strikes, and whether all ends well."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

from gridbot_client.protocol.manifest import Manifest, Resources
from gridbot_client.protocol.messages import ReplicaId
from gridbot_server.dispatch.replies import ReplyParts
from gridbot_simulator.nemesis import faults as of_faults
from gridbot_simulator.nemesis import shape as of_shape
from gridbot_simulator.nemesis.broken import InvariantBroken
from gridbot_simulator.nemesis.buffer import FaultyBuffer
from gridbot_simulator.nemesis.clients import OWNER, ClientMachine, SentRequest
from gridbot_simulator.nemesis.faults import AT_POINTS, STEPS, Fault, FaultKind
from gridbot_simulator.nemesis.points import Killed, Points
from gridbot_simulator.nemesis.processes import (
    Answer,
    Cycles,
    FeederProcess,
    Process,
    ServerMachine,
    SharedWorld,
    WebProcess,
)
from gridbot_simulator.nemesis.store import FaultyStore
from gridbot_simulator.nemesis.witness import Witness
from gridbot_simulator.store.tables import StoredBot, StoredOwner, Tables
from gridbot_simulator.world.chance import stream

BEGINS_AT = 1_767_225_600.0  # 2026-01-01
_HOSTS, _STOCK = 6, 2  # the last ones have BOINC's client
_MANIFEST = Manifest("scientist", ("program", "{i}"), {"i": "int"}, resources=Resources())
_SECONDS = 0.1, 2.0  # that pass between two steps
_BACKUP_STEPS = 40  # between two backups
_CALM_ROUNDS, _CALM_SECONDS = 2000, 2.0  # in which all must end once nothing fails any more
_MOST_SLEEP = 200  # s
# How often a process makes a pass.
_WEB, _FEEDER, _CYCLE = 3.0, 2.0, 1.0


@dataclass(slots=True)
class SeedVerdict:
    """What came of a seed."""

    seed: int
    faults: Sequence[Fault]
    violation: InvariantBroken | None
    story: Sequence[str]
    steps: int
    struck: Mapping[FaultKind, int]
    statements: Counter[str]  # how often each one ran, by file:name


Plant = Callable[["Story"], None]
MakeStore = Callable[[Tables, Points], FaultyStore]


def live(
    seed: int,
    faults: Sequence[Fault] | None = None,
    *,
    plant: Plant | None = None,
    make_store: MakeStore = FaultyStore,
    is_told: bool = False,
) -> SeedVerdict:
    """Live through a seed, with its own faults or with others.

    `plant` is called with the story before it begins: tests plant defects so.  `make_store` makes
    the database.  `is_told`: keep what happened, line by line.
    """
    listed = of_faults.draw(seed) if faults is None else faults
    story = Story(seed, listed, make_store, is_told=is_told)
    if plant is not None:
        plant(story)
    violation = None
    try:
        story.run()
    except Exception as error:
        violation = _violation(error, story.store)
    return SeedVerdict(
        seed, listed, violation, story.lines, story.step, story.struck, story.store.seen
    )


def _violation(error: Exception, store: FaultyStore) -> InvariantBroken:
    """What an error shows: what the store found first, whatever the server made of it."""
    if isinstance(error, InvariantBroken):
        return store.difference or error
    found = store.difference or InvariantBroken(
        f"no_error_{type(error.__context__ or error).__name__}", str(error)
    )
    found.__cause__ = error
    return found


class Story:
    """A server with its machines and clients."""

    def __init__(
        self, seed: int, faults: Sequence[Fault], make_store: MakeStore, *, is_told: bool
    ) -> None:
        self._schedule = stream(seed, "schedule")
        self._seed, self._is_told = seed, is_told
        self._faults = sorted(faults)
        self._shape = of_shape.draw(seed)
        self.lines: list[str] = []
        self.struck: dict[FaultKind, int] = {}
        self.step = 0
        self._now = 0.0  # that goes on
        self.tables = Tables(BEGINS_AT)
        self.points = Points(self._go_between, self._tell)
        self.store = make_store(self.tables, self.points)
        self.witness = Witness(self.tables)
        self.make_buffer: Callable[[ServerMachine], FaultyBuffer] = self._new_buffer
        self._numbers, self._bots = count(1), count(1)
        self._generations = count(1)
        self._active: list[str] = []  # names of those that make a pass now
        self._for_messages: list[Fault] = []  # faults that wait for one
        self._away_until = 0  # step
        self._backup = b""
        self._around = SharedWorld(self.store, self.points, self, stream(seed, "server"))
        self._sites = [ServerMachine("a"), ServerMachine("b")]
        self._webs = [self._web(1, 0), self._web(2, 0), self._web(3, 1)]
        self._machines = [
            ClientMachine.make(number, number > _HOSTS - _STOCK, stream(seed, "host", number))
            for number in range(1, _HOSTS + 1)
        ]
        self._processes, self._weights = self._all_processes()
        self.tables.owners[OWNER] = StoredOwner(OWNER, "scientist")
        for machine in self._machines:
            machine.join(self.tables, next(self._numbers), self._schedule.uniform(0, 5))
        self._backup = self.store.snapshot()

    # -------------------------------------------------------------------------------- set-up

    def _web(self, number: int, site: int) -> WebProcess:
        return WebProcess(
            f"web {number}", self._around, self._sites[site], lambda: next(self._generations),
            self._served, self._answer,
        )  # fmt: skip

    def _all_processes(self) -> tuple[list[Process], list[float]]:
        feeders = [
            FeederProcess(f"feeder {site.name}", self._around, site, self.make_buffer_of)
            for site in self._sites
        ]
        cycles = Cycles(self._around).all()
        weights = [_WEB] * len(self._webs) + [_FEEDER] * len(feeders) + [_CYCLE] * len(cycles)
        return [*self._webs, *feeders, *cycles], weights

    def make_buffer_of(self, site: ServerMachine) -> FaultyBuffer:
        """A new buffer of a machine."""
        return self.make_buffer(site)

    def _new_buffer(self, site: ServerMachine) -> FaultyBuffer:
        return FaultyBuffer(site.name, self.points, site.dead, self._shape.slots)

    def _submit(self) -> None:
        """Let the BOTs of this step come."""
        for coming in self._shape.bots:
            if coming.step == self.step:
                number = next(self._bots)
                self.tables.bots[number] = StoredBot(
                    number, OWNER, f"bot{number}", coming.jobs, coming.policy, _MANIFEST,
                    self.tables.now, quorum=coming.quorum,
                )  # fmt: skip
                self._tell(f"BOT {number} comes: {coming.jobs} jobs, quorum {coming.quorum}")

    def steady(self) -> float:
        """Seconds since the beginning."""
        return self._now

    def wall(self) -> float:
        """Seconds since the epoch."""
        return self.tables.now

    # ------------------------------------------------------------------------------ the steps

    def run(self) -> None:
        """Live through all faults, and until all BOTs have ended; raises InvariantBroken."""
        for self.step in range(STEPS):
            self._advance(self._schedule.uniform(*_SECONDS))
            (process,) = self._schedule.choices(self._processes, self._weights)
            self._submit()
            due = self._begin_faults()
            self._send()
            self._pass(process, due)
            if self.step % _BACKUP_STEPS == 0:
                self._backup = self.store.snapshot()
            self._check()
        self._calm()

    def _advance(self, seconds: float) -> None:
        self._now += seconds
        # In whole microseconds, as PostgreSQL's times are.
        self.tables.now = round(self.tables.now + seconds, 6)

    def _calm(self) -> None:
        """Let nothing fail any more: all must end."""
        self.store.is_away, self._for_messages = False, []
        for _ in range(_CALM_ROUNDS):
            self.step += 1
            self._advance(_CALM_SECONDS)
            self._send()
            for process in self._processes:
                self._pass(process, ())
            self._check()
            if self._is_over():
                break
        self.store.check(idle=True)

    def _is_over(self) -> bool:
        tables = self.tables
        is_running = any(bot.state == "running" for bot in tables.bots.values())
        return not (
            is_running or tables.pending or tables.leases or tables.waiting or tables.ranges
        )

    def _pass(self, process: Process, due: Sequence[Fault]) -> None:
        """Let a process do something while these faults are due."""
        self._tell_of(process.name)
        self._active = [process.name]
        self.points.begin(due)
        try:
            process.step()
            is_killed = self.points.end()
        except Killed:
            self.points.end()
            is_killed = True
        self.points.is_dying = False
        if is_killed:
            self._tell(f"{process.name} is dead")
            process.die()

    def _go_between(self, who: int) -> None:
        """Let another process make a pass while one is on its way."""
        others = [item for item in self._processes if not self._is_active(item)]
        process = others[who % len(others)]
        self._active.append(process.name)
        self._tell_of(process.name)
        process.step()
        self._active.pop()

    def _is_active(self, process: Process) -> bool:
        return process.name in self._active

    def _check(self) -> None:
        if self.step % 3 == 0:
            self.witness.read_results()
        self.store.check(idle=False)
        self.witness.check()

    # ----------------------------------------------------------------------------- the faults

    def _begin_faults(self) -> list[Fault]:
        """Let the faults of this step happen; return those that strike within it."""
        if self.step >= self._away_until:
            self.store.is_away = False
        due = []
        while self._faults and self._faults[0].step <= self.step:
            fault = self._faults.pop(0)
            self.struck[fault.kind] = self.struck.get(fault.kind, 0) + 1
            if fault.kind in AT_POINTS:
                due.append(fault)
            else:
                self._happen(fault)
        return due

    def _happen(self, fault: Fault) -> None:
        match fault.kind:
            case FaultKind.CLOCK:
                self.tables.now += fault.value
                self._tell(f"{fault.kind} by {fault.value} s")
            case FaultKind.DAMAGE:
                site = self._sites[fault.value % len(self._sites)]
                site.damage()
                self._tell(f"the buffer of {site.name} is damaged")
            case FaultKind.OUTAGE:
                self.store.is_away = True
                self._away_until = self.step + 1 + fault.value % 20
                self._tell(f"{fault.kind} until step {self._away_until}")
            case FaultKind.RESTORE:
                self._restore()
            case FaultKind.HOST_LOST:
                machine = self._machines[fault.value % len(self._machines)]
                machine.join(self.tables, next(self._numbers), self._now + 1.0)
                self._tell(f"{machine.host.name} is set up anew, as client {machine.client.id}")
            case FaultKind.SLEEP:
                machine = self._machines[fault.value % len(self._machines)]
                machine.sleep(self._now, fault.value % _MOST_SLEEP)
                self._tell(f"{machine.host.name} sleeps until {machine.awake_at:.0f} s")
            case FaultKind.CANCEL:
                self._cancel(fault.value)
            case _:
                self._for_messages.append(fault)
        self.store.may_be_damaged = any(
            site.buffer is not None and site.buffer.is_damaged for site in self._sites
        )

    def _restore(self) -> None:
        """Restore the last backup: all processes and buffers begin anew."""
        self._tell(FaultKind.RESTORE)
        for process in self._processes:
            process.die()
        for site in self._sites:
            site.discard()
        self.store.restore(self._backup)
        self.witness.begin_epoch()

    def _cancel(self, value: int) -> None:
        running = [bot for bot in self.tables.bots.values() if bot.state == "running"]
        if running:
            bot = running[value % len(running)]
            bot.state, bot.ended_at, bot.version = "cancelled", self.tables.now, bot.version + 1
            self._tell(f"BOT {bot.id} is cancelled")

    def _strikes(self, kind: FaultKind) -> Fault | None:
        """The fault of this kind that waits for a message, which it takes."""
        found = next((fault for fault in self._for_messages if fault.kind is kind), None)
        if found is not None:
            self._for_messages.remove(found)
        return found

    # ------------------------------------------------------------------------------- messages

    def _send(self) -> None:
        """Let clients work, and send the requests that are due."""
        for machine in self._machines:
            machine.work(self._now)
            request = machine.ask(self._now, self._leases)
            web = self._schedule.choice(self._webs)  # drawn in each step: faults change nothing
            if request is None:
                continue
            message = SentRequest(machine.client.token, request, self._now, machine)
            self._tell(f"{machine.host.name} sends {request.key} to {web.name}")
            if self._strikes(FaultKind.LOST_REQUEST):
                self._tell("which is lost")
                continue
            if fault := self._strikes(FaultKind.DELAY):
                message.due += 1 + fault.value % 60
                self._tell(f"which takes until {message.due:.0f} s")
            web.arrived.append(message)
            if fault := self._strikes(FaultKind.REPEAT):
                other = self._webs[fault.value % len(self._webs)]
                later = replace(message, due=self._now + fault.value % 40, is_heard=False)
                other.arrived.append(later)
                self._tell(f"which comes to {other.name} once more at {later.due:.0f} s")

    def _leases(self, client: int) -> list[ReplicaId]:
        return [ReplicaId(*name) for name in self.tables.held.get(client, ())]

    def _served(self, message: SentRequest, answer: Answer) -> None:
        if isinstance(answer, ReplyParts):
            self.witness.served(self._client(message), message.request, answer)

    def _answer(self, message: SentRequest, answer: Answer) -> None:
        """Let a reply leave."""
        if isinstance(answer, ReplyParts):
            self._tell(
                f"answers {message.sender.host.name}: acks {_named(answer.acks)}, aborts"
                f" {_named(answer.abort)}, {len(answer.assignments)} replicas"
            )
        if not message.is_heard or self._strikes(FaultKind.LOST_REPLY):
            self._tell("which is lost")
            return
        machine = message.sender
        if machine.client.token != message.token:
            return  # it was set up anew meanwhile
        if isinstance(answer, ReplyParts):
            self.witness.leaves(machine.client.id, answer)
        if machine.hear(message.request, answer, self.tables, self._now):
            machine.join(self.tables, next(self._numbers), self._now + 1.0)
            self._tell(f"{machine.host.name} joins again, as client {machine.client.id}")

    def _client(self, message: SentRequest) -> int:
        return self.tables.by_token[message.token].id

    # ------------------------------------------------------------------------------ the story

    def _tell_of(self, name: str) -> None:
        self._tell(f"{name} makes a pass")

    def _tell(self, what: str) -> None:
        if self._is_told:
            self.lines.append(f"{self.step:4} {self._now:7.1f} s  {what}")


def _named(names: Sequence[ReplicaId]) -> str:
    return ", ".join(map(str, names)) or "none"
