"""The constructor's loop: look, reconcile, plan, act.  A crash anywhere in it loses nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gridbot.errors import GridbotError
from gridbot_overlay.acts import Acts, Say, for_all
from gridbot_overlay.construct import Plan, View, plan
from gridbot_overlay.health import is_broken, judge
from gridbot_overlay.model import Grid, Pilot, Sighting, State
from gridbot_overlay.reconcile import reconcile
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
           planned: a server that is away must neither start pilots nor cost any.
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
            notes = dict.fromkeys(self._grids, f"the server cannot be asked: {error}")
            self._store.note(now, notes, {})
            return Plan(notes=notes)
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
            and (is_broken(pilot) or pilot.state is State.HELD)
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
        views = [
            view_of(self._store, grid, looks[name].problem, hosts[name], now)
            for name, grid in self._grids.items()
        ]
        planned = plan(wishes.demands, views, wishes.queue, now)
        for name in self._grids:
            waiting = [pilot for pilot in self._pilots(name, now) if pilot.is_waiting]
            counted = (_counted(pilot, planned.surplus) for pilot in waiting)
            self._store.save(
                after for before, after in zip(waiting, counted, strict=True) if after != before
            )
        return planned

    def _tidy(self, now: float) -> None:
        for name in self._grids:
            ended = [pilot for pilot in self._pilots(name, now) if not pilot.is_live]
            self._acts.settle(name, [pilot for pilot in ended if not pilot.is_settled])
            if self._store.grid(name).drained == "now":
                self._acts.revoke(self._store.tokens_of(name))
        self._acts.revoke(self._store.idle_tokens())
        self._store.forget(now)
        for name in sorted(self._store.grids_with_pilots() - set(self._grids)):
            self._say(f"{name}: is not configured any more, but had pilots that lived")

    def _pilots(self, name: str, now: float) -> list[Pilot]:
        return self._store.pilots(name, now - HISTORY_SECONDS)


def view_of(
    store: Store, grid: Grid, problem: str, hosts: Sequence[Mapping[str, Any]], now: float
) -> View:
    """Return one grid as the store knows it."""
    record = store.grid(grid.name)
    pilots = store.pilots(grid.name, now - HISTORY_SECONDS)
    return View(
        grid=grid,
        pilots=pilots,
        hosts=hosts,
        health=judge(pilots, now, record.resumed_at),
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
