"""The constructor's loop: look, reconcile, plan, act.  A crash anywhere in it loses nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from gridbot.errors import GridbotError
from gridbot.printing import counted
from gridbot_overlay.acts import Acts, Say, for_all
from gridbot_overlay.construct import Plan, View, plan, plan_without_server
from gridbot_overlay.health import is_mute, judge
from gridbot_overlay.model import Grid, Pilot, Sighting, State
from gridbot_overlay.reconcile import NO_GRID, given_up, reconcile
from gridbot_overlay.server import Server, Wishes
from gridbot_overlay.store import GridRecord, Store
from gridbot_overlay.submitters import Submitter

HISTORY_SECONDS = 6 * 3600.0  # pilots that ended before say nothing of a grid any more
_MOST_HOSTS = 5  # measured ads of a grid
_MOST_TAILS = 5  # pilots of a grid whose last words are fetched at one look
_TAIL_SECONDS = 600.0  # after a pilot's end nobody looks for its last words any more


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen of one grid; `problem` says why nothing could be."""

    sightings: tuple[Sighting, ...] = ()
    problem: str = ""


class Constructor:
    """Keeps the overlay as large as the BOTs demand and the grids allow."""

    def __init__(
        self,
        grids: Mapping[str, Grid],
        submitters: Mapping[str, Submitter],
        server: Server,
        store: Store,
        acts: Acts,
        say: Say,
    ) -> None:
        self._grids = grids
        self._submitters = submitters
        self._server = server
        self._store = store
        self._acts = acts
        self._say = say

    def run_once(self, now: float) -> Plan:
        """Do one round and return what was planned.

        1. Look at all grids; write down what became of our pilots, take orphans back.
        2. Ask the server what BOTs demand and how the pilots fare.  Without it nothing is
           submitted, and only those pilots are taken back that must go whatever the demand: a
           server that is away must neither start pilots nor cost any.
        3. Plan, then submit and cancel.
        4. Revoke keys that no pilot needs, tell the server of pilots that have ended.
        """
        looks = self._look()
        self._reconcile(looks, now)
        try:
            wishes = self._server.wishes()
            hosts = {name: self._fare(name, now) for name in self._grids}
        except GridbotError as error:
            self._say(f"nothing is planned: {error}")
            bare = plan_without_server(self._views(looks, {}, now), str(error), now)
            self._store.note(now, bare.notes, {})
            self._acts.cancel(bare.cancels)
            return bare
        self._listen(looks, now)
        planned = self._plan(wishes, looks, hosts, now)
        self._store.note(now, planned.notes, planned.unserved)
        self._acts.cancel(planned.cancels)
        self._acts.submit(planned.submits, now)
        self._tidy(now)
        return planned

    def _look(self) -> dict[str, Look]:
        prefix = self._store.prefix
        names = list(self._grids)
        answers = for_all(lambda name: self._submitters[name].pilots(prefix), names)
        return {name: _look(answer) for name, answer in zip(names, answers, strict=True)}

    def _reconcile(self, looks: Mapping[str, Look], now: float) -> None:
        orphans: dict[str, Sequence[str]] = {}
        for name, look in looks.items():
            if look.problem:
                self._say(f"{name}: cannot be asked: {look.problem}")
                continue
            found = reconcile(self._pilots(name, now), look.sightings, now)
            self._store.save(found.changed)
            if found.orphans:
                orphans[name] = found.orphans
        self._acts.take_back(orphans)

    def _fare(self, name: str, now: float) -> list[Mapping[str, Any]]:
        """Write down how the server says that pilots fare; return their hosts' ads."""
        known = {pilot.id: pilot for pilot in self._pilots(name, now)}
        if not known:
            return []
        rows = self._server.pilots(name)
        fared = (_fared(known[row["pilot"]], row) for row in rows if row["pilot"] in known)
        self._store.save(pilot for pilot in fared if pilot != known[pilot.id])
        return _hosts(rows)

    def _listen(self, looks: Mapping[str, Look], now: float) -> None:
        """Fetch the last words of pilots that failed to start, or are held."""
        mute = [
            (name, pilot)
            for name, look in looks.items()
            if not look.problem
            for pilot in self._mute(name, now)
        ]
        tails = for_all(
            lambda item: self._submitters[item[0]].tail(item[1].native_id, item[1].tag), mute
        )
        words = zip((pilot for _, pilot in mute), tails, strict=True)
        self._store.save(
            replace(pilot, stderr=tail) for pilot, tail in words if isinstance(tail, str) and tail
        )

    def _mute(self, name: str, now: float) -> list[Pilot]:
        silent = [
            pilot
            for pilot in self._pilots(name, now)
            if pilot.native_id
            and not pilot.stderr
            and (is_mute(pilot) or pilot.state is State.HELD)
            and (pilot.ended_at is None or pilot.ended_at > now - _TAIL_SECONDS)
        ]
        return silent[-_MOST_TAILS:]

    def _plan(
        self,
        wishes: Wishes,
        looks: Mapping[str, Look],
        hosts: Mapping[str, Sequence[Mapping[str, Any]]],
        now: float,
    ) -> Plan:
        planned = plan(wishes.demands, self._views(looks, hosts, now), wishes.queue, now)
        for name in self._grids:
            waiting = [pilot for pilot in self._pilots(name, now) if pilot.is_waiting]
            after = (_counted(pilot, planned.surplus) for pilot in waiting)
            self._store.save(new for old, new in zip(waiting, after, strict=True) if new != old)
        return planned

    def _views(
        self,
        looks: Mapping[str, Look],
        hosts: Mapping[str, Sequence[Mapping[str, Any]]],
        now: float,
    ) -> list[View]:
        problems = {name: look.problem for name, look in looks.items()}
        return views_of(self._store, self._grids.values(), now, problems, hosts)

    def _tidy(self, now: float) -> None:
        for name in self._grids:
            ended = [pilot for pilot in self._pilots(name, now) if not pilot.is_live]
            self._acts.settle(name, [pilot for pilot in ended if not pilot.is_settled])
            if self._store.grid(name).drained == "now":
                self._acts.revoke(self._store.tokens_of(name))
        for name in sorted(self._store.grids_with_pilots() - set(self._grids)):
            self._give_up(name, now)
        self._acts.revoke(self._store.idle_tokens())
        self._store.forget(now)

    def _give_up(self, name: str, now: float) -> None:
        """Close the records of a grid that nobody can ask any more; their keys are idle then."""
        pilots = self._pilots(name, now)
        closed = [given_up(pilot, now) for pilot in pilots if pilot.is_live]
        if closed:
            self._say(f"{name}: {counted(len(closed), 'pilot')} given up: {NO_GRID}")
            self._store.save(closed)
        ended = [pilot for pilot in pilots if not pilot.is_live]
        self._acts.settle(name, [pilot for pilot in (*closed, *ended) if not pilot.is_settled])

    def _pilots(self, name: str, now: float) -> list[Pilot]:
        return self._store.pilots(name, now - HISTORY_SECONDS)


def views_of(
    store: Store,
    grids: Collection[Grid],
    now: float,
    problems: Mapping[str, str] = MappingProxyType({}),
    hosts: Mapping[str, Sequence[Mapping[str, Any]]] = MappingProxyType({}),
) -> list[View]:
    """Return all grids as the store knows them; `problems` and `hosts` are by grid."""
    pilots = {grid.name: store.pilots(grid.name, now - HISTORY_SECONDS) for grid in grids}
    return [
        _view(store, grid, pilots, problems.get(grid.name, ""), hosts.get(grid.name, ()), now)
        for grid in grids
    ]


def _view(
    store: Store,
    grid: Grid,
    pilots: Mapping[str, Sequence[Pilot]],
    problem: str,
    hosts: Sequence[Mapping[str, Any]],
    now: float,
) -> View:
    record, own = store.grid(grid.name), pilots[grid.name]
    others = [pilot for name in pilots if name != grid.name for pilot in pilots[name]]
    return View(
        grid=grid,
        pilots=own,
        hosts=hosts,
        health=judge(own, now, record.resumed_at, others),
        used_hours=store.used_hours(grid.name),
        barrier=f"cannot be asked: {problem}" if problem else _drain_text(record),
        is_drained=bool(record.drained),
    )


def _drain_text(record: GridRecord) -> str:
    return "drained; gridbot overlay resume ends that" if record.drained else ""


def _look(answer: list[Sighting] | Exception) -> Look:
    if isinstance(answer, Exception):
        return Look(problem=str(answer) or type(answer).__name__)
    return Look(sightings=tuple(answer))


def _fared(pilot: Pilot, row: Mapping[str, Any]) -> Pilot:
    return replace(
        pilot,
        has_joined=True,
        jobs=row["jobs"],
        failures=row["failures"],
        holding=row["running"] if pilot.is_live else 0,
        has_held=pilot.has_held or row["running"] > 0,
        error=row["error"] or "",
        node=pilot.node or row["host_name"] or "",
    )


def _counted(pilot: Pilot, surplus: frozenset[str]) -> Pilot:
    """Count looks at which it was not needed, so that pilots do not come and go."""
    return replace(pilot, surplus_cycles=pilot.surplus_cycles + 1 if pilot.id in surplus else 0)


def _hosts(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the ads of the hosts that spoke last."""
    ads: dict[int, Mapping[str, Any]] = {}
    for row in rows:
        if len(ads) < _MOST_HOSTS:
            ads.setdefault(row["host"], row["ad"])
    return list(ads.values())
