"""Pilots as processes of this machine, each in a session of its own, that outlive the constructor.

A folder for each submission, and in it for each pilot I: `I.lock`, `I.pid`, `I.err`, `I.exit`.
The pilot's first process holds a lock on `I.lock` as long as it lives.  So the kernel says which
pilots live, also after a crash of the constructor or of the machine, and a process that got an
old pilot's number is never taken for it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gridbot_overlay.decide.model import CheckResult, Grid, PilotOrder, PilotState, Sighting
from gridbot_overlay.decide.set_up import set_up
from gridbot_overlay.submitters import GridError, rendering
from gridbot_overlay.submitters.commands import Commands, inherited_environment
from gridbot_overlay.submitters.logs import TAIL_BYTES

_KEPT_SECONDS = 24 * 3600.0  # of a submission all of whose pilots have ended
_GRACE_SECONDS = 10.0
# Its standard input is the lock; a background command gets /dev/null instead, so what the pilot
# leaves behind does not hold the lock.
_RUN = """\
echo $$ > "$1.pid.new" && mv "$1.pid.new" "$1.pid"
GRIDBOT_LOCAL="$1" ./script 2> "$1.err" &
trap 'again=yes' TERM INT HUP
again=yes
while [ "$again" ]; do
    again=
    wait $!
    code=$?
done
echo $code > "$1.exit.new" && mv "$1.exit.new" "$1.exit"
"""


class Local:
    """Pilots as processes of this machine."""

    def __init__(self, grid: Grid, folder: Path) -> None:
        rendering.options(grid, {})
        self._grid = grid
        self._folder = folder / "pilots"
        self._started: list[subprocess.Popen[bytes]] = []  # to be reaped

    def submit(self, order: PilotOrder) -> list[str]:
        """Start the pilots at once; there is no queue."""
        self._drop_old()
        folder = self._folder / rendering.job_name(order.tag, 0)
        native_id = f'"{order.tag}.$GRIDBOT_LOCAL"'
        try:
            folder.mkdir(mode=0o700, parents=True)
            script = folder / "script"
            script.touch(mode=0o700)
            script.write_text(rendering.script(order, "$GRIDBOT_LOCAL", native_id))
            pilots = [LocalPilot(folder, index) for index in range(order.count)]
            self._started += [pilot.start() for pilot in pilots]
        except OSError as error:
            raise GridError(f"pilots cannot be started here: {error}") from error
        return [pilot.native_id for pilot in pilots]

    def pilots(self, prefix: str) -> list[Sighting]:
        """Look at the pilots of all submissions of the last day."""
        self._reap()
        return [pilot.sighting() for pilot in self._known() if pilot.folder.name.startswith(prefix)]

    def cancel(self, native_ids: Sequence[str]) -> None:
        """End pilots with their process groups: ask, wait, then kill."""
        living = [pilot for pilot in map(self._find, native_ids) if pilot and pilot.is_alive()]
        for number in (signal.SIGTERM, signal.SIGKILL):
            for pilot in living:
                pilot.signal(number)
            living = self._wait_ended(living)
        if living:
            names = ", ".join(pilot.native_id for pilot in living)
            raise GridError(f"these pilots do not end: {names}")

    def tail(self, native_id: str, tag: str) -> str:  # noqa: ARG002  # its id names both
        """Return the end of the pilot's stderr."""
        pilot = self._find(native_id)
        return pilot.tail() if pilot else ""

    def check(self) -> list[CheckResult]:
        """Compare the grid with this machine's CPUs, and start the interpreter once."""
        grid, cpus = self._grid, len(os.sched_getaffinity(0))
        wanted = grid.limits.max_running * grid.shape.cpus
        text = f"{wanted} for pilots, of {cpus} on this machine"
        advice = "" if wanted <= cpus else "; lower limits.max_running"
        return [CheckResult("cpus", wanted <= cpus, text + advice), self._check_python()]

    def _check_python(self) -> CheckResult:
        asks = f"{self._grid.python} -c 'import sys; print(sys.version.split()[0])'"
        try:
            said = Commands().run("sh", "-c", f"{set_up(self._grid.setup)}\n{asks}").split()[-1]
        except (GridError, IndexError) as error:
            return CheckResult("python", False, str(error))
        is_good = tuple(map(int, said.split(".")[:2])) >= (3, 11)
        return CheckResult(
            "python", is_good, f"{self._grid.python} is {said}; 3.11 or newer is needed"
        )

    def _known(self) -> Iterator[LocalPilot]:
        try:
            for lock in sorted(self._folder.glob("*/*.lock")):
                yield LocalPilot(lock.parent, int(lock.stem))
        except OSError as error:
            raise GridError(f"{self._folder} cannot be read: {error}") from error

    def _find(self, native_id: str) -> LocalPilot | None:
        tag, _, index = native_id.rpartition(".")
        pilot = LocalPilot(self._folder / Path(tag).name, int(index)) if index.isdecimal() else None
        return pilot if pilot and pilot.path("lock").exists() else None

    def _wait_ended(self, pilots: Sequence[LocalPilot]) -> list[LocalPilot]:
        end = time.monotonic() + _GRACE_SECONDS
        while (
            living := [pilot for pilot in pilots if pilot.is_alive()]
        ) and time.monotonic() < end:
            time.sleep(0.02)
        self._reap()
        return living

    def _reap(self) -> None:
        self._started = [process for process in self._started if process.poll() is None]

    def _drop_old(self) -> None:
        before = time.time() - _KEPT_SECONDS
        ages = {pilot.folder: pilot.folder.stat().st_mtime for pilot in self._known()}
        alive = {pilot.folder for pilot in self._known() if pilot.is_alive()}
        for folder, changed in ages.items():
            if changed < before and folder not in alive:
                shutil.rmtree(folder)


@dataclass(frozen=True, slots=True)
class LocalPilot:
    """The files of one pilot."""

    folder: Path  # of its submission, named by the tag
    index: int

    @property
    def native_id(self) -> str:
        """What this kind of grid calls the pilot."""
        return f"{self.folder.name}.{self.index}"

    def path(self, kind: str) -> Path:
        """Name one of its files."""
        return self.folder / f"{self.index}.{kind}"

    def start(self) -> subprocess.Popen[bytes]:
        """Start the pilot, which then holds its lock."""
        with self.path("lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            return subprocess.Popen(
                ["sh", "-c", _RUN, "pilot", str(self.index)],
                cwd=self.folder,
                env=inherited_environment(),
                stdin=lock,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )

    def is_alive(self) -> bool:
        """Ask the kernel whether somebody holds the lock."""
        try:
            with self.path("lock").open("r") as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except FileNotFoundError:
            pass
        return False

    def signal(self, number: int) -> None:
        """Signal the pilot and all that runs in its process group."""
        # A pilot that was started just now writes its number soon.
        end = time.monotonic() + 2.0
        while not self.path("pid").exists() and self.is_alive() and time.monotonic() < end:
            time.sleep(0.01)
        with suppress(FileNotFoundError, ProcessLookupError):
            pid = int(self.path("pid").read_text())
            if self.is_alive():
                os.killpg(pid, number)

    def sighting(self) -> Sighting:
        """Tell what became of it."""
        is_alive, code = self.is_alive(), self._exit_code()
        reason = "" if is_alive or code is not None else "killed, or the machine went down"
        return Sighting(
            tag=self.folder.name,
            native_id=self.native_id,
            index=self.index,
            state=PilotState.RUNNING if is_alive else PilotState.ENDED,
            reason=reason,
            node=os.uname().nodename,
            exit_code=None if is_alive else code,
        )

    def tail(self) -> str:
        """Give the end of its stderr."""
        try:
            with self.path("err").open("rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES))
                return file.read(TAIL_BYTES).decode(errors="replace")
        except FileNotFoundError:
            return ""

    def _exit_code(self) -> int | None:
        try:
            return int(self.path("exit").read_text())
        except (FileNotFoundError, ValueError):
            return None
