"""Brings what the constructor knows of its pilots together with what the grids show.  Pure.

Pilots are found by our own tag, so a submission whose reply was lost is found again, and a pilot
that nobody waits for is taken back.

Several grids may be of one batch system (a partition, an account, a shape each; `slurm` beside
`ssh`), and then each lists the pilots of all.  So `attribute` comes first: a submission belongs to
the grid that made it, and only the listing of that grid says what became of its pilots.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from gridbot_overlay.decide.model import Pilot, PilotState, Sighting

# A submission whose reply was lost shows up within so long, or never does.
GRACE_SECONDS = 120.0
NEVER_MADE = "its submission was never confirmed"
NO_GRID = "its grid is not configured any more"
# Why an orphan is taken back.
UNKNOWN = "no constructor knows it"
COUNTS_AS_ENDED = "it counts as ended"
NAMESAKE = "another pilot has its name"
_WAITS = (PilotState.SUBMITTING, PilotState.QUEUED, PilotState.HELD)


@dataclass(frozen=True, slots=True)
class Attributed:
    """Sightings, by the grid that listed them."""

    own: Mapping[str, Sequence[Sighting]]  # of submissions that the grid made
    strays: Mapping[str, Sequence[Sighting]]  # alive, and no configured grid made them


@dataclass(frozen=True, slots=True)
class Orphan:
    """A pilot of ours that is in a grid and that nobody waits for."""

    native_id: str
    tag: str
    why: str


@dataclass(frozen=True, slots=True)
class Reconciled:
    """Pilots whose record changes, and what the grid has that is not wanted there."""

    changed: tuple[Pilot, ...]
    orphans: tuple[Orphan, ...]


def attribute(
    listings: Mapping[str, Sequence[Sighting]],
    grid_of: Mapping[str, str],
    configured: Collection[str],
) -> Attributed:
    """Give each sighting to the grid that made its submission, and find those that have none.

    `listings` are by grid, of those that could be asked; `grid_of` names the grid of each known
    submission by its tag.  A sighting of another configured grid is dropped: the listing of that
    grid is what counts, also when it cannot be had now, or is newer.  Where several grids list
    one stray, it is given to the first, so that it is cancelled once.
    """
    own = {
        name: [sighting for sighting in sightings if grid_of.get(sighting.tag) == name]
        for name, sightings in listings.items()
    }
    strays = defaultdict[str, list[Sighting]](list)
    found = set[tuple[str, int, str]]()
    for name, sightings in listings.items():
        for sighting in sightings:
            key = sighting.tag, sighting.index, sighting.native_id
            is_alive = sighting.state is not PilotState.ENDED
            if is_alive and grid_of.get(sighting.tag) not in configured and key not in found:
                found.add(key)
                strays[name].append(sighting)
    return Attributed(own, strays)


def reconcile(known: Iterable[Pilot], sightings: Sequence[Sighting], now: float) -> Reconciled:
    """Compare the pilots of one grid with what its complete listing shows of its submissions.

    `known` are the live pilots and those that ended lately.
    """
    before = {(pilot.tag, pilot.index): pilot for pilot in known}
    after: dict[tuple[str, int], Pilot] = {}
    orphans = list[Orphan]()
    for sighting in sightings:
        key = sighting.tag, sighting.index
        pilot = before.get(key)
        if pilot is not None and _is_it(pilot, sighting):
            after[key] = _seen(replace(pilot, native_id=sighting.native_id), sighting, now)
            if pilot.cancelled and sighting.state is not PilotState.ENDED:
                # The first attempt did not reach it.
                orphans.append(orphan(sighting, f"again: {pilot.cancelled}"))
        elif sighting.state is not PilotState.ENDED:
            is_namesake = pilot is not None and bool(pilot.native_id)
            orphans.append(orphan(sighting, NAMESAKE if is_namesake else COUNTS_AS_ENDED))
    for key, pilot in before.items():
        if pilot.is_live and key not in after:
            after[key] = _unseen(pilot, now)
    changed = tuple(pilot for key, pilot in after.items() if pilot != before[key])
    return Reconciled(changed, tuple(orphans))


def orphan(sighting: Sighting, why: str) -> Orphan:
    """Call a pilot that a grid shows an orphan."""
    return Orphan(sighting.native_id, sighting.tag, why)


def given_up(pilot: Pilot, now: float) -> Pilot:
    """Close the record of a pilot whose grid is not looked at any more, at its latest end."""
    ended_at = now if pilot.started_at is None else _runs_until(pilot)
    return replace(
        pilot, state=PilotState.ENDED, ended_at=ended_at, reason=NO_GRID, cancelled=NO_GRID
    )


def charged(pilot: Pilot) -> Pilot:
    """Charge for a pilot that ran and has ended though nobody saw it run: since it last waited."""
    if pilot.is_live or pilot.started_at is not None:
        return pilot
    return replace(pilot, started_at=_last_waiting(pilot))


def _is_it(pilot: Pilot, sighting: Sighting) -> bool:
    """Tell whether it is the pilot that we know; one that was given up counts no more."""
    if pilot.native_id:
        return pilot.native_id == sighting.native_id
    return pilot.is_live


def _seen(pilot: Pilot, sighting: Sighting, now: float) -> Pilot:
    state = sighting.state
    if state is PilotState.ENDED and not pilot.is_live:
        return pilot
    seen = replace(
        pilot,
        state=state,
        reason=sighting.reason or pilot.reason,
        node=sighting.node or pilot.node,
        exit_code=sighting.exit_code,
        ended_at=_latest_end(pilot, now) if state is PilotState.ENDED else None,
        is_settled=False,
    )
    if state in _WAITS:
        return replace(seen, waiting_at=_waiting_since(pilot, state, now), running_at=None)
    if state is PilotState.RUNNING and pilot.running_at is None:
        seen = replace(seen, running_at=now)
    # One that we took back counts as never started, unless it is seen to run.
    ran = state is PilotState.RUNNING or pilot.has_joined or not pilot.cancelled
    if pilot.started_at is None and ran:
        # It started after it was last seen to wait; so its hours are not counted too low.
        seen = replace(seen, started_at=_last_waiting(pilot))
    return replace(seen, overran_at=now) if _overruns(seen, now) else seen


def _overruns(pilot: Pilot, now: float) -> bool:
    if pilot.state is not PilotState.RUNNING or pilot.running_at is None:
        return False
    return now > pilot.running_at + pilot.walltime_seconds


def _waiting_since(pilot: Pilot, state: PilotState, now: float) -> float:
    """Return when it was last seen to wait; for a held pilot, since when it is held."""
    if state is PilotState.HELD and pilot.state is PilotState.HELD and pilot.waiting_at is not None:
        return pilot.waiting_at
    return now


def _latest_end(pilot: Pilot, now: float) -> float:
    """Return when a pilot ended that is gone now, were we away for long."""
    return min(now, _runs_until(pilot))


def _runs_until(pilot: Pilot) -> float:
    """Its walltime bounds it, unless it was seen to run for longer."""
    began = _last_waiting(pilot) if pilot.started_at is None else pilot.started_at
    return max(began + pilot.walltime_seconds, pilot.overran_at or began)


def _last_waiting(pilot: Pilot) -> float:
    return pilot.submitted_at if pilot.waiting_at is None else pilot.waiting_at


def _unseen(pilot: Pilot, now: float) -> Pilot:
    """What the listing lacks has ended, unless it is so new that it may not be listed yet."""
    if pilot.state is PilotState.SUBMITTING and now - pilot.submitted_at < GRACE_SECONDS:
        return pilot
    reason = pilot.reason or "no longer known to the batch system"
    ended = replace(pilot, state=PilotState.ENDED, ended_at=_latest_end(pilot, now), reason=reason)
    if not pilot.native_id and not pilot.reason:
        # Nobody refused it: we were stopped before it was made, which is no fault of the grid.
        return replace(ended, reason=NEVER_MADE, cancelled=NEVER_MADE)
    # What costs money and was accepted may have run while nobody looked: a grid forgets in time.
    may_have_run = pilot.price > 0 and pilot.native_id and not pilot.cancelled
    return charged(ended) if pilot.has_joined or may_have_run else ended
