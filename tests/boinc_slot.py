"""A slot directory of a stock client, with the shim running in it, for the tests of the shim."""

import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from gridbot_client.protocol.messages import Manifest, ReplicaId, Scalar
from gridbot_server.boinc.application import shim
from gridbot_server.boinc.application.shim.ending import Ending, read_ending

SHELLS = [
    shell for shell in ("dash", "busybox sh", "bash --posix") if shutil.which(shell.split()[0])
]
ID = ReplicaId(7, 3, 1)
DEADLINE = 20.0


class Slot:
    """A slot directory as a stock client makes it, and the script running in it."""

    def __init__(self, path: Path, shell: str) -> None:
        self.path = path
        self.shell = shell.split()
        path.mkdir()

    def start(
        self,
        manifest: Manifest,
        args: dict[str, Scalar] | None = None,
        own: tuple[str, ...] = (),
        words: list[str] | None = None,
    ) -> "subprocess.Popen[bytes]":
        self.render(manifest)
        if words is None:
            words = shim.command_line(manifest, ID, args or {}, own).split()
        with (self.path / "stderr.txt").open("ab") as stderr:
            return subprocess.Popen(
                [*self.shell, "main", *words],
                cwd=self.path,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
            )

    def render(self, manifest: Manifest) -> None:
        """Write the script, with a watch that looks twice as often."""
        before, tick, after = shim.render(manifest).partition("\ntick=2 ")
        assert tick
        (self.path / "main").write_text(f"{before}\ntick=1 {after}")

    def again(self) -> "Slot":
        """A slot of the same kind that nothing ran in."""
        return Slot(self.path.with_name(self.path.name + "+"), " ".join(self.shell))

    def run(self, manifest: Manifest, *more: object, **named: object) -> int:
        with self.start(manifest, *more, **named) as process:  # type: ignore[arg-type]
            return process.wait(DEADLINE)

    @property
    def ending(self) -> Ending | None:
        return read_ending((self.path / "stderr.txt").read_text(errors="replace"))

    @property
    def output(self) -> bytes | None:
        path = self.path / "gb_out"
        return path.read_bytes() if path.exists() else None

    def tell(self, message: bytes) -> None:
        """As the client does: the text, then the flag."""
        with (self.path / "boinc_mmap_file").open("r+b") as file:
            file.seek(1)
            file.write(message + b"\0")
            file.flush()
            file.seek(0)
            file.write(b"\1")


def manifest(*command: str, **fields: object) -> Manifest:
    return Manifest("lab", command, **fields)  # type: ignore[arg-type]


def shell_job(script: str, **fields: object) -> Manifest:
    return manifest("sh", "-c", script.replace("{", "{{").replace("}", "}}"), **fields)


def until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + DEADLINE
    while not is_so():
        assert time.monotonic() < end, "it did not come to be so"
        time.sleep(0.05)


def is_alive(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
