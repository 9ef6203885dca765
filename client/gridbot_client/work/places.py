"""Places in which replicas run: the replica's own slot, or one that many of a BOT use in turn.

Walls cost ten times what a short task does.  So a cell stays for the next replica of its BOT, and
because its mounts are of certain folders, so do these: each cell has a slot folder of its own, in
which its replicas run one after the other.  Between two of them no process lives in the cell, and
the folders are emptied.  What a replica's report needs later is moved to the replica's own slot.
No other BOT, and so no other owner, gets the cell.  A replica that is stopped, or loses its first
process, takes its cell along; and of what was not emptied, nothing is used again.

A program that stays (`residents.py`) keeps its cell and its folders.  It is stopped between two
jobs, and ends when it was idle for some seconds, or when another BOT's replica begins.

If the client is killed its warden ends all cells.  The next client removes their folders (`sweep`),
in which nothing is that a replica needs again: reports and outputs are in the replicas' own slots.
"""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from gridbot_client.protocol.fields import STREAMS
from gridbot_client.work import outputs, processes, trees
from gridbot_client.work.confinement import KeptCell, identity
from gridbot_client.work.processes import Census
from gridbot_client.work.slots import ReplicaSlot

log = logging.getLogger(__name__)

_MOST_IDLE = 16
_IDLE_SECONDS = 60.0  # for which an idle cell stays, in which nothing runs
_RESIDENT_SECONDS = 5.0  # for which an idle program stays
_TIDY_SECONDS = 2.0
_LIFE_SECONDS = 600.0  # what a view shows of the machine may have been replaced since


class PlaceKey(NamedTuple):
    """For which replicas a place is: those of one BOT with the same GPUs."""

    bot: int
    manifest: str  # its id
    is_stranger: bool  # whether they are strangers' work
    gpus: str = ""


class SharedHere:
    """What a place has of shared folders; it keeps them as long as it stays."""

    def __init__(self) -> None:
        # Folders, and their names in its own; None: none was asked for yet.
        self.folders: tuple[tuple[Path, str | None], ...] | None = None
        self.leases = ExitStack()


class ReplicaPlace:
    """Where a replica runs: `slot` is its folder, `kept` its cell, if that stays."""

    def __init__(self, slot: ReplicaSlot, shared: SharedHere, kept: KeptCell | None = None) -> None:
        self.slot = slot
        self.shared = shared
        self.kept = kept
        self.has_program = kept is not None and kept.program is not None  # that served others

    def hand_over(self, slot: ReplicaSlot, names: Iterable[str]) -> None:
        """Move outputs to a replica's own slot, from where they are uploaded.  Raises OSError."""
        for name in names:
            source, target = outputs.path_of(self.slot, name), outputs.path_of(slot, name)
            if name in STREAMS:  # the cell has it open
                shutil.copyfile(source, target)
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                source.rename(target)


class _Standing:
    """A folder with its cell, and for whom it is."""

    def __init__(self, path: Path, key: PlaceKey, now: float) -> None:
        self.path, self.key = path, key
        self.kept = KeptCell()
        self.shared = SharedHere()
        self.made_at = self.idle_since = now

    def furnish(self, slot: ReplicaSlot) -> None:
        """Give it empty folders."""
        self.path.mkdir(mode=0o700)
        slot.reset()

    def clear(self, slot: ReplicaSlot) -> None:
        """Empty the folders, which the cell has mounted.  Raises OSError if they are others now.

        The folders of a program that stays are its own.
        """
        if self.kept.program:
            return
        as_made = self.kept.folders
        trees.clear(slot.work, [name for name in as_made if name])
        is_bare = trees.holds_only_folders(slot.work, [name for name in as_made if name])
        if not is_bare or as_made != {name: identity(slot.work / name) for name in as_made}:
            raise OSError(f"{slot.work} is not as it was")

    def is_over(self, now: float) -> bool:
        """True if it has been idle for long."""
        most = _RESIDENT_SECONDS if self.kept.program else _IDLE_SECONDS
        return now - self.idle_since > most

    def remove(self) -> None:
        """End the cell, and remove its folder."""
        self.kept.close()
        self.shared.leases.close()
        trees.remove(self.path)


class ReplicaPlaces:
    """The places of a client; safe to use from many threads."""

    def __init__(
        self, folder: Path, *, keeps_cells: bool, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._folder = folder
        self._keeps_cells = keeps_cells
        self._clock = clock
        self._lock = threading.Lock()
        self._idle: list[_Standing] = []  # the longest idle first
        self._made = 0
        self._is_closed = threading.Event()
        self._tidier: threading.Thread | None = None

    def sweep(self, census: Census) -> None:
        """End what an earlier client left, and remove it."""
        processes.kill_all(lambda: census.under(str(self._folder)))
        for path in self._folder.iterdir():
            try:
                trees.remove(path)
            except OSError as error:
                log.warning("%s is left: %s", path, error)
                self._made = max(self._made, int(path.name) if path.name.isdigit() else 0)

    @contextmanager
    def taken(
        self, slot: ReplicaSlot, key: PlaceKey, *, fresh: bool = False
    ) -> Iterator[ReplicaPlace]:
        """Place for one replica, with empty folders, or with a program that has stayed.

        With `fresh` no other replica has been in it.  The replica's own slot is empty, too.
        """
        slot.reset()
        if not self._keeps_cells:
            shared = SharedHere()
            with shared.leases:
                yield ReplicaPlace(slot, shared)
            return
        standing, is_whole = self._take(key, fresh), False
        place = ReplicaSlot(standing.path, slot.id)
        try:
            if standing.kept.task is None:
                standing.furnish(place)
            yield ReplicaPlace(place, standing.shared, standing.kept)
            is_whole = standing.kept.task is not None
        finally:
            self._give_back(standing, place, is_whole)

    def close(self) -> None:
        """End all that are idle."""
        self._is_closed.set()
        self._end(lambda _: True)

    def _tidy(self) -> None:
        """End what has been idle for long, again and again."""
        while not self._is_closed.wait(_TIDY_SECONDS):
            self._end(lambda standing: standing.is_over(self._clock()))

    def _end(self, is_meant: Callable[[_Standing], bool]) -> None:
        """End some of those that are idle."""
        with self._lock:
            over = [standing for standing in self._idle if is_meant(standing)]
            self._idle = [standing for standing in self._idle if standing not in over]
        for standing in over:
            standing.remove()

    def _take(self, key: PlaceKey, fresh: bool) -> _Standing:
        # Programs of other BOTs hold memory that this one's replicas may need.
        self._end(lambda standing: standing.key != key and standing.kept.program is not None)
        with self._lock:
            for standing in reversed(self._idle):
                if standing.key == key and not fresh:
                    self._idle.remove(standing)
                    return standing
            if self._tidier is None:
                self._tidier = threading.Thread(target=self._tidy, name="tidier", daemon=True)
                self._tidier.start()
            self._made += 1
            return _Standing(self._folder / str(self._made), key, self._clock())

    def _give_back(self, standing: _Standing, slot: ReplicaSlot, is_whole: bool) -> None:
        now = self._clock()
        try:
            if not is_whole or now - standing.made_at > _LIFE_SECONDS:
                raise OSError("it serves no more")
            standing.clear(slot)
        except OSError:
            standing.remove()
            return
        standing.idle_since = now
        with self._lock:
            self._idle.append(standing)
            over = self._idle[:-_MOST_IDLE]
            self._idle = self._idle[-_MOST_IDLE:]
        for other in over:
            other.remove()
