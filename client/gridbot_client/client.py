"""The client's loop: the main thread makes requests, one thread executes each running replica."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Mapping
from types import MappingProxyType

from gridbot_client import agent, joining
from gridbot_client.activity import ActivityLog, count_of
from gridbot_client.agent import UNFINISHED
from gridbot_client.backoff import REVOKED_SECONDS
from gridbot_client.boot import since_boot
from gridbot_client.friends.guests import Guests
from gridbot_client.host import description
from gridbot_client.host.permission import Permission
from gridbot_client.net.allowance import TransferAllowance
from gridbot_client.net.kept_requests import KeptRequests
from gridbot_client.net.sources import SourceClient
from gridbot_client.net.transport import READ_SECONDS, RequestRefused, Transport, TransportError
from gridbot_client.options import Options
from gridbot_client.pilot.behaviour import NodeRecord
from gridbot_client.preferences.watch import PreferenceWatch
from gridbot_client.protocol.messages import (
    MAX_HOLDING,
    ProtocolError,
    Scalar,
    WorkReply,
    WorkRequest,
    decode_reply,
    read_revocations,
)
from gridbot_client.schedule import RequestSchedule
from gridbot_client.storage import Folder, Identity
from gridbot_client.walls.levels import Sandbox
from gridbot_client.work.cache import Cache
from gridbot_client.work.confinement import Confinement
from gridbot_client.work.execution import ReplicaExecutor
from gridbot_client.work.images import Images
from gridbot_client.work.manifests import Manifests
from gridbot_client.work.nodes import NodesRunner, NodeWorker
from gridbot_client.work.places import ReplicaPlaces
from gridbot_client.work.processes import Census
from gridbot_client.work.provision import Provision
from gridbot_client.work.replicas import HeldReplicas
from gridbot_client.work.run_spans import RunSpans
from gridbot_client.work.runner import Runner
from gridbot_client.work.shared import SharedFolders
from gridbot_client.work.slots import SpareFolders
from gridbot_client.work.suspension import Suspension
from gridbot_client.work.trust import Pins, Trust

_LOOK_SECONDS = 1.0  # how often the pause flag is looked at
_REVOCATIONS_SECONDS = 3600.0  # how often the server is asked for them
_WAIT_SECONDS = 50.0  # for work, in one request: less than transports and proxies allow
_HOST_SECONDS = 60.0  # how often the host's attributes are measured


class Revoked(Exception):
    """The server no longer accepts this client: revoked or banned."""


class Client:
    """One running client.  The caller holds the folder's lock.

    `rejoin` is called when the server does not know the client; it returns a new identity, or None.
    """

    def __init__(
        self, folder: Folder, identity: Identity, options: Options, activity: ActivityLog,
        rejoin: Callable[[], Identity | None], confinement: Confinement, sandbox: Sandbox,
        workers: Mapping[str, NodeWorker] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        self._folder = folder
        self._sandbox = sandbox
        self._options = options
        self._activity = activity
        self._rejoin = rejoin
        self._permission = Permission(options.policy, folder, activity)
        self._epoch: int | None = None  # of the server, as it told last
        self._revocations = folder.revocations()
        self._revocations_at = -_REVOCATIONS_SECONDS
        self._allowance = TransferAllowance(folder.transferred)
        self._told_marks: tuple[str, ...] = ()  # of the cache, as the server has acknowledged
        self._use(identity)
        self._census = Census()
        shared_cache = options.shared_cache_of_grid()
        self._cache = Cache(folder.cache, options.cache_bytes, shared=shared_cache)
        # A cluster lends its nodes by a batch system's rules, not by those for a person's machines.
        self._preferences = PreferenceWatch(
            folder, options.room, activity, follows_account=options.pilot is None
        )
        self._suspension = Suspension()
        runner = Runner(confinement, self._census, options.idleness(), self._suspension)
        keeps_cells = confinement.keeps_cells and not options.nodes
        self._places = ReplicaPlaces(folder.cells, keeps_cells=keeps_cells)
        self._images = Images.of(options.runtimes, folder.containers, options.walls.allow_network)
        self._shared = SharedFolders(folder.shared, options.cache_bytes, self._images.remove)
        provision = Provision(self._shared, runner, self._images)
        self._unfit = provision.unfit
        nodes, cpus = options.nodes, options.room.cpus // options.room.nodes
        self._nodes = NodesRunner(runner, nodes, workers, cpus) if nodes else None
        executor = ReplicaExecutor(
            self._nodes or runner, self._cache, self._places, provision, self._connect,
            SourceClient(self._allowance),
        )  # fmt: skip
        spares = SpareFolders(folder.spare)
        self._replicas = HeldReplicas(
            folder.slots, spares, options.room, executor, activity,
            RunSpans.of(os.environ, time.time), options.gpus, nodes.names if nodes else (),
        )  # fmt: skip
        self._guests = Guests(folder, options, activity)
        self._schedule = RequestSchedule(folder)
        self._kept = KeptRequests(self._connect, self._replicas.changed)
        self._pending = folder.pending_request()
        self._seqno = folder.next_seqno()
        self._busy_at = self._looked_at = since_boot()
        self._worked_seconds = 0.0
        self._host: dict[str, Scalar] = {}
        self._host_at = -_HOST_SECONDS
        self._transfer_obstacle = ""
        folder.save_transfer_obstacle("")
        self._is_introduced = False
        self._is_revoked = False
        self._is_draining = False  # asks for no further work
        self._record = NodeRecord()  # successes and failures on a pilot's node

    def run(self) -> None:
        """Work until interrupted or done; the next run continues unfinished replicas."""
        self._places.sweep(self._census)
        self._images.sweep()
        if count := self._replicas.recover(self._census, self._manifests):
            self._activity.say(f"resumed {count_of(count)} of an earlier run")
        try:
            while not self._is_done():
                if not self._wait():
                    self._exchange()
        finally:
            cut_off = self._replicas.running_seconds(time.time()) if self._is_at_end() else {}
            self._replicas.save_checkpoints()
            self._guests.close()
            self._allowance.close()
            self._replicas.leave()
            self._places.close()
            self._images.close()
            if self._options.returns_work:
                self._say_goodbye(cut_off)
            self._activity.close()
            self._transport.close()

    def _wait(self) -> bool:
        """Wait for a moment if no request is due; False if one is due now."""
        self._activity.flush()
        if self._folder.hurry_flag.exists() or self._replicas.has_room_again:
            self._replicas.has_room_again = False
            self._schedule.hurry()
        self._heed_preferences()
        self._lend()
        self._replicas.start_ready()
        with self._replicas.changed:
            seconds = self._schedule.due_in(self._replicas.items())
            if self._kept.is_answered:
                self._schedule.awaits(0.0)  # if that is an error, for no longer than the back-off
                seconds = 0.0
            if seconds > 0:
                self._replicas.changed.wait(min(seconds, _LOOK_SECONDS))
        return seconds > 0

    def _is_done(self) -> bool:
        items, now = self._replicas.items(), since_boot()
        if items:
            self._worked_seconds += now - self._looked_at
        self._looked_at = now
        if items or now < self._record.ask_at:  # keeps a bad node from the pilots after this one
            self._busy_at = now
        if self._is_at_end() or self._record.is_leaving:
            return True
        if self._nodes and self._nodes.has_lost_one:
            self._activity.say("a node of this pilot is gone")
            return True
        if self._is_draining and not items:
            return True
        return agent.may_leave(items, now - self._busy_at, self._idle_limit)

    @property
    def _idle_limit(self) -> float | None:
        """Seconds without work after which the client leaves; None: never."""
        most, pilot = self._options.exit_when_idle, self._options.pilot
        return pilot.idle_limit(most, self._worked_seconds) if pilot else most

    def _is_paused(self) -> bool:
        return self._folder.is_paused(time.time())

    def _heed_preferences(self) -> None:
        """Suspend or continue what runs, and start no more than there is room for now."""
        verdict = self._preferences.look(time.time())
        self._suspension.is_on = bool(verdict.obstacle)
        self._replicas.room = verdict.room
        self._allowance.limits = verdict.transfers
        if (obstacle := self._allowance.obstacle()) != self._transfer_obstacle:
            self._transfer_obstacle = obstacle
            self._folder.save_transfer_obstacle(obstacle)
            self._activity.say(f"transfers wait: {obstacle}" if obstacle else "transfers go on")
        kept = (verdict.disk_bytes or 2 * self._options.cache_bytes) // 2
        self._cache.most_bytes = self._shared.most_bytes = kept
        is_closed = self._is_revoked or self._is_paused()
        self._replicas.is_halted = is_closed or self._suspension.is_on

    def _lend(self) -> None:
        """Lend to friends what home leaves idle, and take back what it needs."""
        if self._guests.has_friends():
            is_open = not self._replicas.is_halted
            self._guests.tend(self._replicas.items(), self._replicas.room, is_open=is_open)
            self._replicas.lent = self._guests.items

    @property
    def _may_ask(self) -> bool:
        """Whether policy and preferences allow to ask for work."""
        is_open = not self._suspension.is_on and not self._allowance.obstacle()
        return self._permission.is_given and is_open

    # --- requests

    def _exchange(self) -> None:
        """Make one request and apply its reply, or note the failure and back off.

        The request counts as answered once its reply is applied on disk.  A client killed before
        that repeats the request with the same idempotency key and gets the same leases.
        """
        try:
            answered = self._kept.take() or self._ask()
            if answered is None:
                return
            request, reply = answered[0], decode_reply(answered[1])
            self._manifests.take_in(reply.manifests)
        except RequestRefused as error:
            self._refused(error)
        except (TransportError, ProtocolError) as error:
            self._failed(error)
        else:
            self._apply(request, reply)

    def _ask(self) -> tuple[WorkRequest, bytes] | None:
        """Make the next request and return it with its reply; None if the server keeps it."""
        self._kept.give_up()
        if not self._is_introduced:
            self._introduce()
        self._learn_revocations()
        self._return_some()
        if self._preferences.gives_back:
            self._give_back()
        self._pending = request = self._next_request()
        self._schedule.asks()
        body = self._folder.save_request(request)
        # Who waits in this thread sees nothing of guests.
        is_aside = request.holding or self._guests.has_friends()
        if request.wait and is_aside and not request.reports and self._kept.has_room:
            self._kept.begin(request, body)
            self._schedule.awaits(request.wait + READ_SECONDS)
            return None
        return request, self._sent(request, body)

    def _sent(self, request: WorkRequest, body: bytes) -> bytes:
        began = since_boot()
        reply = self._transport.rpc(body)
        if not request.wait:
            self._replicas.pace.answered(since_boot() - began)
        return reply

    def _apply(self, request: WorkRequest, reply: WorkReply) -> None:
        """Take in what a reply grants and acknowledges, and plan the next request."""
        self._is_revoked = False
        self._note_epoch(reply.epoch)
        self._is_draining = self._is_draining or self._options.once
        if self._options.pilot:
            acks = set(reply.acks)
            ended = [report for report in request.reports if report.id in acks]
            self._record = self._record.after(ended, since_boot())
        # With work in hand it asks as often as it was told to: the server takes it for lost else.
        may_ask = self._may_ask or bool(self._replicas.items())
        asked = agent.next_request_seconds(reply.next_request_seconds, may_ask=may_ask)
        if self._schedule.answered(asked, not_before=self._record.ask_at):
            self._activity.say(f"{self._identity.url} answers again")
        if request.cached is not None:
            self._told_marks = request.cached
        if reply.preferences is not None:
            self._preferences.told(reply.preferences)
        self._heed_preferences()  # the request may have waited for a minute
        if self._replicas.call_back(reply.call_back):
            self._schedule.awaits(0.0)
        self._replicas.take_in(request.reports, reply, self._manifests)
        if request.want and not reply.assignments:
            self._activity.no_work(reply.message)
        self._forget_request()

    def _note_epoch(self, epoch: int) -> None:
        """Introduce the machine again to a server that began a new epoch, as after a restore."""
        if self._epoch not in (None, epoch):
            self._is_introduced = False
            self._told_marks = ()
            self._activity.say(
                f"{self._identity.url} was restored from a backup: what it no longer knows of this"
                " machine's work is done again"
            )
        self._epoch = epoch

    def _give_back(self) -> None:
        """Return what was suspended for long, so that the server sends it to others at once."""
        if any(item.stage in UNFINISHED for item in self._replicas.items()):
            self._replicas.save_checkpoints()
            self._transport.post_json("/api/v1/clients/self/leave", {})
            given = self._replicas.give_back()
            self._activity.say(f"returned {count_of(given)} that had been suspended")

    def _introduce(self) -> None:
        """Send the host's attributes; if the server does not know the client, join again."""
        try:
            joining.introduce(self._transport, self._identity, self._attributes())
        except RequestRefused as error:
            identity = self._rejoin() if error.code == 401 else None
            if identity is None:
                raise
            self._use(identity)
            self._kept = KeptRequests(self._connect, self._replicas.changed)
        self._is_introduced = True

    def _return_some(self) -> None:
        """Return what has not begun and cannot run here, or is called back; nobody erred."""
        if returned := self._replicas.to_return()[:MAX_HOLDING]:
            body = {"replicas": [list(id) for id in returned]}
            try:
                self._transport.post_json("/api/v1/clients/self/return", body)
            except TransportError:
                self._replicas.keep()  # better than idle CPUs while no server answers
                raise
            self._replicas.drop(returned)

    def _next_request(self) -> WorkRequest:
        """The unanswered request, or a new one.

        An unanswered request for work is replaced when the owner's policy has changed or no longer
        holds, and when there is something to report, because a busy server prefers reports.
        Replicas granted to the old request come with the new reply all the same.
        """
        now = time.time()
        host = {**self._attributes(), **description.live_attributes(now), **self._end()}
        host |= {"Suspended": True} if self._suspension.is_on else {}
        if self._options.gpus:
            host["FreeGpus"] = agent.free_gpus(self._replicas.items(), self._options.room)
        host |= {"UnfitFor": self._unfit.attribute} if self._unfit.attribute else {}
        self._permission.judge(host, now)
        pending = self._pending
        if pending is None or (not pending.reports and self._replicas.to_tell().reports):
            return self._new_request(host)
        is_same_policy = pending.host.get("Requirements") == host.get("Requirements")
        if pending.want and not (self._may_ask and is_same_policy):
            return self._new_request(host)
        return pending

    def _new_request(self, host: Mapping[str, Scalar]) -> WorkRequest:
        reports, holding, unstarted, progress, live = self._replicas.to_tell()
        record = self._record.after(reports, since_boot())
        self._is_draining = self._is_draining or record.is_over(self._time_left())
        is_closed = self._is_draining or self._is_revoked or self._is_paused() or not self._may_ask
        seqno, self._seqno = self._seqno, self._seqno + 1
        return WorkRequest(
            key=uuid.uuid4().hex,
            seqno=seqno,
            host=host,
            want=0 if is_closed else self._wanted(record),
            holding=holding[:MAX_HOLDING],
            reports=reports,
            manifests=self._manifests.ids(),
            wait=self._may_wait() if self._kept.has_room or not holding else 0.0,
            ahead=self._replicas.pace.ahead(),
            preferences=self._preferences.version,
            unstarted=unstarted if len(holding) <= MAX_HOLDING else 0,
            progress=progress[:MAX_HOLDING],
            live=live,
            cached=None if (marks := self._cache.marks()) == self._told_marks else marks,
        )

    def _may_wait(self) -> float:
        """Seconds for which the server may keep a request until it has work.

        The owner's policy and preferences are not looked at meanwhile.
        """
        if self._options.policy or self._options.once or self._preferences.is_needed:
            return 0.0
        if not agent.has_idle_cpus(self._replicas.items(), self._replicas.room):
            return 0.0
        seconds = _WAIT_SECONDS
        if (limit := self._idle_limit) is not None:
            seconds = min(seconds, limit - (since_boot() - self._busy_at))
        if (left := self._time_left()) is not None:
            seconds = min(seconds, left)
        return max(0.0, seconds)

    def _wanted(self, record: NodeRecord) -> int:
        items = self._replicas.items()
        lookahead = self._replicas.pace.lookahead_seconds
        wanted = agent.wanted(items, self._replicas.room, lookahead)
        if self._options.pilot is None:
            return wanted
        unfinished = sum(item.stage in UNFINISHED for item in items)
        return record.wanted(wanted, unfinished, since_boot())

    def _time_left(self) -> float | None:
        pilot = self._options.pilot
        return pilot.time_left(time.time()) if pilot else None

    def _forget_request(self) -> None:
        self._pending = None
        self._folder.request_answered()

    # --- failure of requests

    def _failed(self, error: Exception, floor: float = 0.0) -> None:
        wait = self._schedule.failed(error, floor)
        self._activity.say(f"waiting for the server ({error}); next try in {wait:.0f} s")

    def _refused(self, error: RequestRefused) -> None:
        """Drop the refused request, because repeating it would not help.

        A revoked or banned client ends its processes, keeps unreported results, and asks again
        after hours, in case that was a mistake.
        """
        if not error.shuts_out:
            self._forget_request()
            self._failed(error)
            return
        if error.code == 401 and self._is_introduced and not self._options.is_temporary:
            self._is_introduced = False  # the server may have lost the token: joins again if it can
            self._failed(error)
            return
        text = f"{self._identity.url} no longer accepts this client: {error}"
        if self._options.is_temporary:
            raise Revoked(text)
        self._is_revoked = True
        self._replicas.stop_running()
        self._activity.say(text if error.code == 403 else f"{text}; {self._how_to_join()}")
        self._failed(error, REVOKED_SECONDS)

    def _how_to_join(self) -> str:
        return f"to join again: gridbot client join {self._identity.url}"

    # --- the rest

    def _end(self) -> dict[str, Scalar]:
        """Host attribute TimeLeft of a pilot, in whole seconds; empty for other clients."""
        left = self._time_left()
        return {} if left is None else {"TimeLeft": round(left)}

    def _is_at_end(self) -> bool:
        """Whether the time of a pilot is over."""
        return self._time_left() == 0

    def _say_goodbye(self, cut_off: Mapping[int, float]) -> None:
        """Report ended replicas and return unfinished ones, which nobody would continue here.

        The report is a new request: if the unanswered one still reaches the server, it is then too
        old to be granted replicas that nobody would run.  `cut_off` is for how long replicas ran
        that had needed more time, by BOT.
        """
        self._is_draining = True
        request = self._new_request(self._attributes())
        unfinished = len(self._replicas.items())
        if not unfinished and self._pending is None:
            return
        try:
            if self._pending or request.reports:
                self._transport.rpc(self._folder.save_request(request))
            told = [{"bot": bot, "seconds": seconds} for bot, seconds in cut_off.items()]
            body = {"cut_off": told} if told else {}
            given = self._transport.post_json("/api/v1/clients/self/leave", body)["replicas"]
            self._replicas.give_back()
        except TransportError as error:
            self._activity.say(
                f"could not return {count_of(unfinished)}, which the server sends elsewhere after"
                f" the deadline: {error}"
            )
        else:
            self._activity.say(f"returned {count_of(given)} unfinished")

    def _use(self, identity: Identity) -> None:
        self._identity = identity
        self._told_marks = ()
        self._transport = self._connect()
        pins = Pins(identity.project_key, identity.project, frozenset(identity.trusts))
        self._trust = Trust(pins, time.time, self._revocations)
        self._manifests = Manifests(self._trust, self._policy_obstacle, self._attributes)

    def _policy_obstacle(self, bot: Mapping[str, Scalar]) -> str | None:
        """The clause of the owner's policy that forbids a BOT that arrived; None if none does."""
        if self._options.policy is None:
            return None
        host = {**self._attributes(), **description.live_attributes(time.time())}
        return self._permission.obstacle_to(host, bot, time.time())

    def _learn_revocations(self) -> None:
        """Ask from time to time what was revoked; what is known is never forgotten."""
        if since_boot() - self._revocations_at < _REVOCATIONS_SECONDS:
            return
        told = read_revocations(self._transport.get_json("/api/v1/clients/self/revocations"))
        self._revocations_at = since_boot()
        kept = self._trust.with_revocations(told)
        if kept != self._revocations:
            self._revocations = kept
            self._folder.save_revocations(kept)
            self._manifests.revoked(kept)

    def _connect(self) -> Transport:
        return Transport(self._identity.url, self._identity.token, allowance=self._allowance)

    def _attributes(self) -> dict[str, Scalar]:
        """Host attributes that change rarely, measured every _HOST_SECONDS."""
        if since_boot() - self._host_at >= _HOST_SECONDS:
            options = self._options
            self._host = options.describe(self._folder, self._sandbox)
            kept = self._preferences.verdict.disk_free_bytes >> 20
            self._host["Disk"] = max(0, int(self._host["Disk"]) - kept)
            self._host_at = since_boot()
        return self._host
