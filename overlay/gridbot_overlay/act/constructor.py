"""The constructor's loop: look, reconcile, plan, act.  A crash anywhere in it loses nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any

from gridbot.api.errors import GridbotError
from gridbot.printing import counted
from gridbot_overlay.act.acts import Acts
from gridbot_overlay.act.dependencies import Dependencies
from gridbot_overlay.act.server import MOST_TAGS, GridNews, QueueDemand
from gridbot_overlay.act.store import DrainOrder, GridRecord, PilotStore
from gridbot_overlay.decide.construct import GridView, Plan, plan, plan_without_server
from gridbot_overlay.decide.health import is_mute, judge
from gridbot_overlay.decide.model import Grid, Pilot, PilotState, Sighting
from gridbot_overlay.decide.money import begin, spending
from gridbot_overlay.decide.reconcile import (
    NO_GRID,
    UNKNOWN,
    Orphan,
    attribute,
    charged,
    given_up,
    orphan,
    reconcile,
)
from gridbot_overlay.submitters import GridError, Submitter

HISTORY_SECONDS = 6 * 3600.0  # pilots that ended before say nothing of a grid any more
_MOST_HOSTS = 5  # measured ads of a grid
_MOST_TAILS = 5  # pilots of a grid whose last words are fetched at one look
_TAIL_SECONDS = 600.0  # after a pilot's end nobody looks for its last words any more


@dataclass(frozen=True, slots=True)
class GridListing:
    """What was seen of one grid when it was asked; `problem` says why nothing could be."""

    asked_at: float
    sightings: tuple[Sighting, ...] = ()
    problem: str = ""


class Constructor:
    """Keeps the overlay as large as the BOTs demand and the grids allow."""

    def __init__(self, deps: Dependencies, acts: Acts) -> None:
        self._deps = deps
        self._acts = acts
        self._seen: dict[str, GridListing] = {}  # what was seen and not yet used
        self._spared: set[str] = set()  # tags that another constructor may know, and it was said

    def run_once(self, now: float) -> Plan:
        """Do one round and return what was planned.

        1. Look at all grids; write down what became of our pilots, take those back that no
           constructor knows.
        2. Ask the server what operators ordered, what BOTs demand, and how the pilots fare.
           Without it nothing is submitted, and only those pilots are taken back that must go
           whatever the demand: a server that is away must neither start pilots nor cost any.
        3. Plan, then submit and cancel.
        4. Revoke keys that no pilot needs, tell the server of pilots that have ended.
        """
        listings = self._ask_grids(now)
        self._reconcile(listings)
        try:
            self._acts.follow(self._orders(), now)
            demand = self._deps.server.demand()
            hosts = {name: self._fare(name, now) for name in self._deps.grids}
        except GridbotError as error:
            self._deps.say(f"nothing is planned: {error}")
            bare = plan_without_server(self._views(listings, {}, now), str(error), now)
            self._deps.store.note(now, bare.notes, {})
            self._acts.cancel(bare.cancels)
            return bare
        views = self._views(listings, hosts, now)
        planned = self._plan(demand, views, now)
        self._deps.store.note(now, planned.notes, planned.unserved)
        self._acts.cancel(planned.cancels)
        self._acts.submit(planned.submits, now)
        self._acts.tell(planned.refusals, now)
        self._acts.tell_grids(self._told(views), now)
        self._listen(listings, now)  # last: words may take long to fetch
        self._tidy(now)
        return planned

    def _ask_grids(self, now: float) -> dict[str, GridListing]:
        """Ask all grids; what one says too late for this round is for the next."""
        deps, prefix = self._deps, self._deps.store.prefix
        deps.workers.collect()
        works = {
            name: partial(deps.submitters[name].pilots, prefix)
            for name in deps.grids
            if name not in self._seen
        }
        deps.workers.each(works, partial(self._answered, now))
        listings, self._seen = self._seen, {}
        return {
            name: listings.get(name) or GridListing(now, problem=str(deps.workers.busy(name)))
            for name in deps.grids
        }

    def _answered(self, asked_at: float, name: str, answer: list[Sighting] | Exception) -> None:
        if isinstance(answer, Exception):
            problem = str(answer) or type(answer).__name__
            self._seen[name] = GridListing(asked_at, problem=problem)
        else:
            self._seen[name] = GridListing(asked_at, tuple(answer))

    def _reconcile(self, listings: Mapping[str, GridListing]) -> None:
        deps = self._deps
        for name, listing in listings.items():
            if listing.problem:
                deps.say(f"{name}: cannot be asked: {listing.problem}")
        seen = {
            name: listing.sightings for name, listing in listings.items() if not listing.problem
        }
        grid_of = deps.store.grids_of(
            {sighting.tag for sightings in seen.values() for sighting in sightings}
        )
        found = attribute(seen, grid_of, deps.grids)
        orphans = self._unknown(found.strays, grid_of)
        for name, own in found.own.items():
            at = listings[name].asked_at
            reconciled = reconcile(self._pilots(name, at), own, at)
            deps.store.save(reconciled.changed)
            orphans[name] += reconciled.orphans
        self._acts.take_back(orphans)

    def _unknown(
        self, strays: Mapping[str, Sequence[Sighting]], grid_of: Mapping[str, str]
    ) -> defaultdict[str, list[Orphan]]:
        """Return those that no constructor knows.

        A copy of this folder, or this folder before it was restored, gives its tags the same
        prefix.  So what the folder does not know is unknown only if the server knows no good key
        of it; while the server cannot be asked, it is left alone.
        """
        orphans = defaultdict[str, list[Orphan]](list)
        unheard = {item.tag for some in strays.values() for item in some} - grid_of.keys()
        # First those that were not asked for yet: one request has room for a limited number.
        asked = sorted(unheard, key=lambda tag: (tag in self._spared, tag))[:MOST_TAGS]
        keys = self._keys_of(asked)
        unknown = set[str]() if keys is None else set(asked) - keys.keys()
        for name, some in strays.items():
            for sighting in some:
                if sighting.tag in grid_of:
                    orphans[name].append(orphan(sighting, NO_GRID))
                elif sighting.tag in unknown:
                    orphans[name].append(orphan(sighting, UNKNOWN))
            self._tell_spared(name, some, keys or {})
        return orphans

    def _keys_of(self, tags: Sequence[str]) -> Mapping[str, int] | None:
        """Return the good keys that the server has of submissions, None if it cannot be asked."""
        try:
            return self._deps.server.keys_of(tags) if tags else {}
        except GridbotError as error:
            many = counted(len(tags), "submission")
            self._deps.say(f"left alone: {many} that this folder does not know: {error}")
            return None

    def _tell_spared(self, name: str, strays: Sequence[Sighting], keys: Mapping[str, int]) -> None:
        for tag in sorted({sighting.tag for sighting in strays} & keys.keys() - self._spared):
            ids = ", ".join(sighting.native_id for sighting in strays if sighting.tag == tag)
            self._deps.say(
                f"{name}: leaves {ids} of {tag} alone: this folder does not know it, but its key"
                f" {keys[tag]} is good, so a constructor with a copy of this folder may."
                f"  If none does: gridbot token revoke {keys[tag]}"
            )
            self._spared.add(tag)

    def _fare(self, name: str, now: float) -> list[Mapping[str, Any]]:
        """Write down how the server says that pilots fare; return their hosts' ads."""
        known = {pilot.id: pilot for pilot in self._pilots(name, now)}
        if not known:
            return []
        # Another constructor may have a grid of this name, too.
        rows = [row for row in self._deps.server.pilots(name) if row["pilot"] in known]
        fared = (_fared(known[row["pilot"]], row) for row in rows)
        self._deps.store.save(pilot for pilot in fared if pilot != known[pilot.id])
        return _hosts(rows)

    def _listen(self, listings: Mapping[str, GridListing], now: float) -> None:
        """Fetch the last words of pilots that are held, or did not end well."""
        works = {
            name: partial(_tails, self._deps.submitters[name], some)
            for name, listing in listings.items()
            if not listing.problem and (some := self._with_words(name, now))
        }
        self._deps.workers.each(works, self._heard)

    def _heard(self, name: str, answer: Mapping[str, str] | Exception) -> None:
        if isinstance(answer, Exception):
            return  # they are asked for again at the next look
        pilots = self._deps.store.pilots(name, 0.0)
        self._deps.store.save(
            replace(pilot, stderr=answer[pilot.id]) for pilot in pilots if answer.get(pilot.id)
        )

    def _with_words(self, name: str, now: float) -> list[Pilot]:
        """Return some pilots whose words are still to be fetched, mute ones before others."""
        silent = [pilot for pilot in self._pilots(name, now) if _is_to_be_heard(pilot, now)]
        return sorted(silent, key=is_mute)[-_MOST_TAILS:]

    def _plan(
        self,
        demand: QueueDemand,
        views: Sequence[GridView],
        now: float,
    ) -> Plan:
        planned = plan(demand.demands, views, demand.queue, now)
        for name in self._deps.grids:
            waiting = [pilot for pilot in self._pilots(name, now) if pilot.is_waiting]
            after = (_counted(pilot, planned.surplus) for pilot in waiting)
            self._deps.store.save(
                new for old, new in zip(waiting, after, strict=True) if new != old
            )
        return planned

    def _views(
        self,
        listings: Mapping[str, GridListing],
        hosts: Mapping[str, Sequence[Mapping[str, Any]]],
        now: float,
    ) -> list[GridView]:
        problems = {name: listing.problem for name, listing in listings.items()}
        return views_of(self._deps.store, self._deps.grids.values(), now, problems, hosts)

    def _orders(self) -> list[DrainOrder]:
        """Return what operators said at the server since the last round, of grids that we have."""
        store = self._deps.store
        orders = self._deps.server.orders(store.prefix, store.heard)
        return [order for order in orders if order.grid in self._deps.grids]

    def _told(self, views: Iterable[GridView]) -> GridNews:
        store = self._deps.store
        drained = {name: store.grid(name).drained for name in self._deps.grids}
        return GridNews(_told_ads(views), drained, store.heard)

    def _tidy(self, now: float) -> None:
        for name in self._deps.grids:
            ended = [pilot for pilot in self._pilots(name, now) if not pilot.is_live]
            self._acts.settle(name, [pilot for pilot in ended if not pilot.is_settled])
            self._acts.log(name, self._to_log(name, now))
            if self._deps.store.grid(name).drained == "now":
                self._acts.revoke(self._deps.store.tokens_of(name))
        for name in sorted(self._deps.store.grids_with_pilots() - set(self._deps.grids)):
            self._give_up(name, now)
        self._acts.revoke(self._deps.store.idle_tokens())
        self._deps.store.forget(now)

    def _to_log(self, name: str, now: float) -> list[Pilot]:
        """Return pilots that have ended, whose words have come or are not waited for."""
        return [
            pilot
            for pilot in self._pilots(name, now)
            if pilot.is_settled and not pilot.is_logged and not _is_to_be_heard(pilot, now)
        ]

    def _give_up(self, name: str, now: float) -> None:
        """Close the records of a grid that nobody can ask any more; their keys are idle then."""
        pilots = self._pilots(name, now)
        closed = [given_up(pilot, now) for pilot in pilots if pilot.is_live]
        if closed:
            self._deps.say(f"{name}: {counted(len(closed), 'pilot')} given up: {NO_GRID}")
            self._deps.store.save(closed)
        ended = [pilot for pilot in pilots if not pilot.is_live]
        self._acts.settle(name, [pilot for pilot in (*closed, *ended) if not pilot.is_settled])

    def _pilots(self, name: str, now: float) -> list[Pilot]:
        return self._deps.store.pilots(name, now - HISTORY_SECONDS)


def views_of(
    store: PilotStore,
    grids: Collection[Grid],
    now: float,
    problems: Mapping[str, str] = MappingProxyType({}),
    hosts: Mapping[str, Sequence[Mapping[str, Any]]] = MappingProxyType({}),
) -> list[GridView]:
    """Return all grids as the store knows them; `problems` and `hosts` are by grid."""
    pilots = {grid.name: store.pilots(grid.name, now - HISTORY_SECONDS) for grid in grids}
    return [
        _view(store, grid, pilots, problems.get(grid.name, ""), hosts.get(grid.name, ()), now)
        for grid in grids
    ]


def _view(
    store: PilotStore,
    grid: Grid,
    pilots: Mapping[str, Sequence[Pilot]],
    problem: str,
    hosts: Sequence[Mapping[str, Any]],
    now: float,
) -> GridView:
    record, own = store.grid(grid.name), pilots[grid.name]
    ended = store.spent(grid.name, begin(grid.limits.budget_period, now))
    others = [pilot for name in pilots if name != grid.name for pilot in pilots[name]]
    return GridView(
        grid=grid,
        pilots=own,
        hosts=hosts,
        health=judge(own, now, record.resumed_at, others),
        used_hours=store.used_hours(grid.name),
        wasted_hours=store.totals(grid.name)["wasted_hours"],
        money=spending(grid, own, ended, now),
        barrier=f"cannot be asked: {problem}" if problem else _drain_text(record),
        is_drained=bool(record.drained),
    )


def _told_ads(views: Iterable[GridView]) -> dict[str, dict[str, Any]]:
    """Return what is known of grids that may get pilots; not whose machines are there."""
    return {view.grid.name: _told_ad(view.ad) for view in views if not view.barrier}


def _told_ad(ad: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in ad.items() if value is not None and name != "LastHost"}


def _drain_text(record: GridRecord) -> str:
    return "drained; gridbot overlay resume ends that" if record.drained else ""


def _is_to_be_heard(pilot: Pilot, now: float) -> bool:
    """Whether a pilot's last words matter, and may still be had."""
    if not pilot.native_id or pilot.stderr:
        return False
    if pilot.is_live:
        return pilot.state is PilotState.HELD
    is_late = pilot.ended_at is not None and pilot.ended_at <= now - _TAIL_SECONDS
    return not is_late and (is_mute(pilot) or bool(pilot.exit_code or pilot.failures))


def _tails(submitter: Submitter, pilots: Iterable[Pilot]) -> dict[str, str]:
    """Return pilots' last words by their ids, as far as they can be had."""
    tails: dict[str, str] = {}
    with suppress(GridError):  # where one cannot be had, the others would only take as long
        for pilot in pilots:
            tails[pilot.id] = submitter.tail(pilot.native_id, pilot.tag)
    return tails


def _fared(pilot: Pilot, row: Mapping[str, Any]) -> Pilot:
    return replace(
        charged(pilot),
        has_joined=True,
        jobs=row["jobs"],
        failures=row["failures"],
        core_seconds=row["core_seconds"],
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
