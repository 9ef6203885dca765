"""Tells from what became of a grid's pilots where, and how fast, new ones may be tried.  Pure.

Paper section 6.5 (black holes) and section 8: a failing resource must neither eat the queue nor
flood the grid's gateway.  Nothing is remembered but the pilots themselves: trouble is a row of bad
pilots that no good one has ended since; each further incident doubles the pause, then one pilot
probes.  A node is paused before its grid is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from gridbot_client.backoff import BackOff
from gridbot_overlay.decide.model import Pilot

FEWEST = 3  # bad pilots, or failed replicas, before anything is concluded
MOST_FAILED = 0.5  # share of failed replicas that makes a pilot faulty
FAST_PER_MINUTE, FAST_SHARE, FAST_FEWEST = 6.0, 0.2, 5  # so many fast failures do, too
PAUSES = BackOff(least=60.0)  # of a grid, by the number of incidents in a row
WHY_HELD = "held by the batch system"
SERVER_AWAY = 75  # the exit code of a pilot that did not reach the server; sysexits: try later
EVERYWHERE = "replicas fail everywhere: look at the BOTs"
_SHOWN = 300  # characters of a pilot's own words


@dataclass(frozen=True, slots=True)
class GridHealth:
    """What may be tried in a grid now; `most_new` pilots, None for as many as limits allow."""

    most_new: int | None = None
    reason: str = ""
    bad_nodes: tuple[str, ...] = ()
    failure_rate: float = 0.0  # share of the last pilots that came to nothing


@dataclass(frozen=True, slots=True)
class Trouble:
    """A row of bad pilots.  Times are seconds since 1970."""

    since: float
    last_at: float
    until: float  # no pilot is tried before
    text: str
    words: str  # of the last of them; a part of `text`


@dataclass(frozen=True, slots=True, kw_only=True)
class Symptom:
    """One way in which pilots come to nothing, what ends it, and what it is called."""

    is_bad: Callable[[Pilot, float], bool]
    is_cure: Callable[[Pilot, float], bool]
    weight: Callable[[Pilot], int]
    order: Callable[[Pilot, float], float]  # when it shows what it is, to be compared
    text: str  # with {count} pilots


def is_broken(pilot: Pilot, now: float = 0.0) -> bool:  # noqa: ARG001  # one of the symptoms
    """Tell whether the pilot failed to start, where the server's absence was not the reason."""
    return is_mute(pilot) and pilot.exit_code != SERVER_AWAY


def is_mute(pilot: Pilot) -> bool:
    """Tell whether the pilot ended, or was held, before its client spoke with the server."""
    if pilot.cancelled:
        return pilot.cancelled == WHY_HELD
    return not pilot.is_live and not pilot.has_joined


def is_cut_off(pilot: Pilot, now: float = 0.0) -> bool:  # noqa: ARG001  # one of the symptoms
    """Tell whether the pilot did not reach the server."""
    return is_mute(pilot) and pilot.exit_code == SERVER_AWAY


def is_faulty(pilot: Pilot, now: float) -> bool:
    """Tell whether replicas fail on the pilot, by their share or by their rate."""
    total = pilot.jobs + pilot.failures
    if not pilot.failures:
        return False
    share = pilot.failures / total
    if share > MOST_FAILED and (pilot.failures >= FEWEST or not pilot.is_live):
        return True
    minutes = max((pilot.ended_at or now) - _began(pilot), 1.0) / 60
    return (
        pilot.failures >= FAST_FEWEST
        and share > FAST_SHARE
        and pilot.failures / minutes > FAST_PER_MINUTE
    )


def is_wasted(pilot: Pilot, now: float = 0.0) -> bool:  # noqa: ARG001  # one of the symptoms
    """Tell whether the pilot ran, matched nothing and left."""
    ended = not pilot.is_live and not pilot.cancelled and pilot.exit_code != SERVER_AWAY
    return ended and pilot.has_joined and not _has_worked(pilot)


def _has_worked(pilot: Pilot) -> bool:
    """Tell whether it had something to do; what it was killed in is neither job nor failure."""
    return pilot.has_held or pilot.jobs + pilot.failures + pilot.holding > 0


# A pilot that started, or found work, long ago says nothing of those that were sent after it.
BROKEN = Symptom(
    is_bad=is_broken,
    is_cure=lambda pilot, _: pilot.has_joined,
    weight=lambda _: 1,
    order=lambda pilot, _: pilot.submitted_at,
    text="{count} pilots failed to start",
)
CUT_OFF = Symptom(
    is_bad=is_cut_off,
    is_cure=lambda pilot, _: pilot.has_joined,
    weight=lambda _: 1,
    order=lambda pilot, _: pilot.submitted_at,
    text="{count} pilots did not reach the server; check that its URL is right on the nodes and"
    " that no firewall blocks it",
)
FAULTY = Symptom(
    is_bad=is_faulty,
    is_cure=lambda pilot, now: pilot.jobs > 0 and not is_faulty(pilot, now),
    weight=lambda pilot: pilot.failures,
    order=lambda pilot, now: _when(pilot, now),
    text="replicas fail on {count} pilots",
)
WASTED = Symptom(
    is_bad=is_wasted,
    is_cure=lambda pilot, _: _has_worked(pilot),
    weight=lambda _: 1,
    order=lambda pilot, _: pilot.submitted_at,
    text="{count} pilots found no work",
)


def judge(
    pilots: Iterable[Pilot], now: float, resumed_at: float = 0.0, others: Iterable[Pilot] = ()
) -> GridHealth:
    """Judge a grid by its pilots of the last hours; what was before `resumed_at` is forgiven.

    `others` are the pilots of other grids, which tell whether failures are the BOTs' own.
    """
    own = [pilot for pilot in pilots if pilot.submitted_at >= resumed_at]
    counted = acquitted(own, others, now)
    found = _judge(counted, now)
    failing = None if found.reason else _trouble(own, FAULTY, now)
    return replace(found, reason=f"{EVERYWHERE}{failing.words}") if failing else found


def acquitted(pilots: Sequence[Pilot], others: Iterable[Pilot], now: float) -> list[Pilot]:
    """Take failures from pilots where nothing says that they would not have been elsewhere.

    A witness is a pilot of another node or grid that served the same owners well at the same
    time.  Without one, a BOT whose replicas all fail would look like a broken grid, and pause it
    for everybody.
    """
    faulty = {pilot.id: pilot for pilot in pilots if is_faulty(pilot, now)}
    if not faulty:
        return list(pilots)
    fine = [pilot for pilot in (*pilots, *others) if pilot.jobs and not is_faulty(pilot, now)]
    witnesses = {
        owners: [other for other in fine if set(owners) <= set(other.owners)]
        for owners in {pilot.owners for pilot in faulty.values()}
    }
    blamed = {
        pilot.id
        for pilot in faulty.values()
        if any(_is_elsewhere(other, pilot, now) for other in witnesses[pilot.owners])
    }
    innocent = faulty.keys() - blamed
    return [
        replace(pilot, failures=0, has_held=True) if pilot.id in innocent else pilot
        for pilot in pilots
    ]


def _is_elsewhere(other: Pilot, pilot: Pilot, now: float) -> bool:
    """Tell whether it lived on another node or in another grid at the same time."""
    return (
        (other.grid, other.node) != (pilot.grid, pilot.node)
        and _began(other) < _when(pilot, now)
        and _began(pilot) < _when(other, now)
    )


def _judge(counted: Sequence[Pilot], now: float) -> GridHealth:
    bad_nodes = _bad_nodes(counted, now)
    rate = _failure_rate(counted, now)
    paused = tuple(sorted(node for node, found in bad_nodes.items() if now < found.until))
    trouble = _trouble_of_grid(counted, bad_nodes, now)
    if trouble is None:
        reason = "; ".join(f"node {node} is paused: {bad_nodes[node].text}" for node in paused)
        return GridHealth(None, reason, paused, rate)
    if now < trouble.until:
        reason = f"paused for {trouble.until - now:.0f} s more: {trouble.text}"
        return GridHealth(0, reason, paused, rate)
    is_probed = any(
        pilot.is_live and not pilot.cancelled and pilot.submitted_at >= trouble.last_at
        for pilot in counted
    )
    reason = f"probing with one pilot: {trouble.text}"
    return GridHealth(0 if is_probed else 1, reason, paused, rate)


def _bad_nodes(pilots: Sequence[Pilot], now: float) -> dict[str, Trouble]:
    """Nodes in trouble while others of the grid are not; if all are, the grid is."""
    by_node = defaultdict[str, list[Pilot]](list)
    for pilot in pilots:
        if pilot.node:
            by_node[pilot.node].append(pilot)
    found = {
        node: trouble
        for node, there in by_node.items()
        for trouble in (_worst(_troubles(there, (BROKEN, FAULTY), now)),)
        if trouble is not None
    }
    fine = (there for node, there in by_node.items() if node not in found)
    return found if any(_is_good(pilot, now) for there in fine for pilot in there) else {}


def _trouble_of_grid(
    pilots: Sequence[Pilot], bad_nodes: dict[str, Trouble], now: float
) -> Trouble | None:
    elsewhere = [pilot for pilot in pilots if pilot.node not in bad_nodes]
    # Where the system does not keep pilots from a paused node, the node would eat them all.
    in_spite = [
        pilot
        for pilot in pilots
        if pilot.node in bad_nodes and pilot.submitted_at > bad_nodes[pilot.node].since
    ]
    return _worst(
        [
            *_troubles(elsewhere, (BROKEN, CUT_OFF, FAULTY, WASTED), now),
            *_troubles(in_spite, (BROKEN, FAULTY), now),
        ]
    )


def _troubles(pilots: Sequence[Pilot], symptoms: Iterable[Symptom], now: float) -> list[Trouble]:
    found = (_trouble(pilots, symptom, now) for symptom in symptoms)
    return [trouble for trouble in found if trouble is not None]


def _trouble(pilots: Sequence[Pilot], symptom: Symptom, now: float) -> Trouble | None:
    """Return the row of bad pilots since the last good one, if it is long enough."""
    bad = [pilot for pilot in pilots if symptom.is_bad(pilot, now)]
    cures = (symptom.order(pilot, now) for pilot in pilots if symptom.is_cure(pilot, now))
    cured_at = max(cures, default=float("-inf"))
    row = [pilot for pilot in bad if symptom.order(pilot, now) > cured_at]
    if sum(map(symptom.weight, row)) < FEWEST:
        return None
    row.sort(key=lambda pilot: _when(pilot, now))
    last_at = _when(row[-1], now)
    pause = PAUSES.seconds(_incidents(row, now))
    words = _words(row[-1])
    text = symptom.text.format(count=len(row)) + words
    return Trouble(_when(row[0], now), last_at, last_at + pause, text, words)


def _incidents(row: Iterable[Pilot], now: float) -> int:
    """Count bad pilots that were sent together as one."""
    incidents, known_at = 0, float("-inf")
    for pilot in row:
        if pilot.submitted_at > known_at:
            incidents += 1
            known_at = _when(pilot, now)
    return incidents


def _worst(troubles: Iterable[Trouble]) -> Trouble | None:
    return max(troubles, key=lambda trouble: trouble.until, default=None)


def _began(pilot: Pilot) -> float:
    return pilot.started_at if pilot.started_at is not None else pilot.submitted_at


def _when(pilot: Pilot, now: float) -> float:
    return pilot.ended_at if pilot.ended_at is not None else now


def _is_good(pilot: Pilot, now: float) -> bool:
    return pilot.has_joined and not is_faulty(pilot, now) and not is_wasted(pilot)


def _failure_rate(pilots: Sequence[Pilot], now: float) -> float:
    ended = [pilot for pilot in pilots if not pilot.is_live]
    ended = [pilot for pilot in ended if pilot.cancelled in ("", WHY_HELD)]
    last = sorted(ended, key=lambda pilot: _when(pilot, now))[-20:]
    bad = sum(is_broken(pilot) or is_faulty(pilot, now) for pilot in last)
    return bad / len(last) if last else 0.0


def _words(pilot: Pilot) -> str:
    """The pilot's own account of its end: stderr, the last failure, or the system's reason."""
    said = pilot.stderr or pilot.error or pilot.reason
    lines = " / ".join(line.strip() for line in said.splitlines() if line.strip())
    return f"; the last one: {lines[-_SHOWN:]}" if lines else ""
