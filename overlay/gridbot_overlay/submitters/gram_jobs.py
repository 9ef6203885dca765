"""What must be remembered of jobs in GRAM, which lists nothing: one file for each submission."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from gridbot import reliable
from gridbot_client.storage import write_atomically
from gridbot_overlay.submitters import GridError

_KEPT_SECONDS = 86_400
_LOCK_SECONDS, _LOCK_LOOK_SECONDS = 60.0, 0.05


class Phase(StrEnum):
    """How far a job and we have come with each other."""

    REQUESTED = "requested"  # it starts once we commit
    COMMITTED = "committed"
    ENDED = "ended"  # its last state is written down here
    RELEASED = "released"  # its job manager may forget it, too


@dataclass(slots=True, kw_only=True)
class GramJob:
    """One pilot."""

    tag: str
    index: int
    contact: str  # of its job manager: changes when that is started again
    phase: Phase = Phase.REQUESTED
    state: int = 32  # GRAM's, when last seen
    reason: str = ""
    is_cancelled: bool = False
    changed_at: float = 0.0

    @property
    def native_id(self) -> str:
        """The same for all its life."""
        return f"{self.tag}.{self.index}"

    @property
    def is_live(self) -> bool:
        """Whether GRAM still has something to say of it."""
        return self.phase in (Phase.REQUESTED, Phase.COMMITTED)


class Journal:
    """The folder with a file for each submission."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Let nobody else read or write here meanwhile.  Raises GridError after a minute."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        trying = reliable.trying(_LOCK_SECONDS, every=_LOCK_LOOK_SECONDS, on=BlockingIOError)
        with (self._folder / "lock").open("w") as lock:
            try:
                trying(fcntl.flock)(lock.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise GridError(f"another process uses {self._folder}") from None
            yield

    def read(self, prefix: str = "") -> list[GramJob]:
        """Return the jobs of submissions whose tag begins with `prefix`."""
        files = sorted(self._folder.glob("*.json"))
        return [
            GramJob(**{**job, "phase": Phase(job["phase"])})
            for file in files
            if file.name.startswith(prefix)
            for job in json.loads(file.read_text())
        ]

    def write(self, jobs: Iterable[GramJob]) -> None:
        """Write whole submissions down, such that not even a power failure loses them."""
        by_tag: dict[str, list[GramJob]] = {}
        for job in jobs:
            by_tag.setdefault(job.tag, []).append(job)
        for tag, its in by_tag.items():
            file = self._folder / f"{tag}.json"
            content = json.dumps([asdict(job) for job in its]).encode()
            if not file.exists() or file.read_bytes() != content:
                write_atomically(file, content)

    def forget(self, jobs: Sequence[GramJob], now: float) -> None:
        """Drop submissions that ended long ago."""
        recent = {job.tag for job in jobs if job.is_live or now - job.changed_at < _KEPT_SECONDS}
        for tag in {job.tag for job in jobs} - recent:
            (self._folder / f"{tag}.json").unlink(missing_ok=True)
