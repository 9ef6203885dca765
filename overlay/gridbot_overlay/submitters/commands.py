"""Runs the programs of batch systems, here or on a login node; nothing else starts one."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO

from gridbot_overlay.submitters import GridError

TIMEOUT_SECONDS = 60.0
OUTPUT_BYTES = 64 << 20  # a listing of 100,000 pilots
_MESSAGE_CHARACTERS = 2000
_CANCEL_AT_ONCE = 100
# What programs of batch systems may see of our environment, because jobs inherit what they see.
_INHERITED = re.compile(
    "PATH|HOME|USER|LOGNAME|SHELL|LD_LIBRARY_PATH|SSH_AUTH_SOCK|KRB5CCNAME|SLURM_CONF|SGE_[A-Z_]+"
    "|PBS_(CONF_FILE|DEFAULT|SERVER)|CONDOR_CONFIG|X509_(USER_PROXY|CERT_DIR)|GLOBUS_HOSTNAME"
    "|KUBECONFIG|KUBERNETES_SERVICE_(HOST|PORT)"
)
_NEVER = re.compile(r"(?!)")
# ssh's own failure, whatever the command is; and its words when only a change of keys helps.
_SSH_FAILED = 255
_NOT_LET_IN = re.compile(
    "Permission denied|Host key verification failed|REMOTE HOST IDENTIFICATION HAS CHANGED"
    "|Too many authentication failures|Bad (configuration|owner)|[Nn]o such identity"
    "|Unable to negotiate"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Commands:
    """How the programs of one grid are run."""

    # A command that takes one shell line as its last argument, such as: ssh login.example
    through: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    timeout_seconds: float = TIMEOUT_SECONDS
    # Words which say that the system is away, not that it refused.
    away: re.Pattern[str] = _NEVER

    def run(self, *command: str, stdin: str = "", good: Sequence[int] = (0,)) -> str:
        """Run a program and return what it printed on stdout.

        Raises GridError with the program's own words when it cannot be started, takes too long,
        prints too much, or ends with a code that is not `good`.
        """
        code, stdout, stderr = self.ended(*command, stdin=stdin)
        if code not in good:
            words = (_line(stderr) or _line(stdout))[-_MESSAGE_CHARACTERS:]
            raise GridError(
                f"{command[0]} ended with code {code}: {words or 'no output'}",
                is_lasting=not self._is_away(words),
            )
        return stdout

    def ended(self, *command: str, stdin: str = "") -> tuple[int, str, str]:
        """Run a program; give its exit code, stdout and stderr.  GridError as for `run`."""
        with (
            tempfile.TemporaryFile() as given,
            tempfile.TemporaryFile() as out,
            tempfile.TemporaryFile() as err,
        ):
            given.write(stdin.encode())
            given.seek(0)
            # Files and not pipes: what a program leaves running (ssh's master connection) keeps
            # a pipe open, and nobody would know when the program's own output has ended.
            process = self._start(command, given, out, err)
            self._wait(command[0], process, (out, err))
            if process.returncode == _SSH_FAILED and self.through:
                raise _not_reached(self.through, _text(err))
            return process.returncode, _text(out), _text(err)

    def cancel(self, program: str, native_ids: Sequence[str], gone: re.Pattern[str]) -> None:
        """Name all pilots to a program that cancels; lines that match `gone` are no complaints."""
        for first in range(0, len(native_ids), _CANCEL_AT_ONCE):
            some = native_ids[first : first + _CANCEL_AT_ONCE]
            code, stdout, stderr = self.ended(program, *some)
            lines = [line for line in (stdout + stderr).splitlines() if line.strip()]
            complaints = [line for line in lines if not gone.search(line)]
            if code and complaints:
                words = "; ".join(complaints)[:_MESSAGE_CHARACTERS]
                is_lasting = not self._is_away(words)
                raise GridError(f"{program} ended with code {code}: {words}", is_lasting=is_lasting)

    def _start(
        self, command: Sequence[str], given: IO[bytes], out: IO[bytes], err: IO[bytes]
    ) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                self._full(command),
                stdin=given,
                stdout=out,
                stderr=err,
                env=self._seen_environment(),
                start_new_session=True,
            )
        except OSError as error:
            raise GridError(
                f"{command[0]} cannot be started: {error.strerror}", is_lasting=True
            ) from error

    def _full(self, command: Sequence[str]) -> list[str]:
        if not self.through:
            return list(command)
        pairs = [f"{name}={value}" for name, value in self.environment.items()]
        return [*self.through, shlex.join(["env", "LC_ALL=C", *pairs, *command])]

    def _seen_environment(self) -> dict[str, str]:
        return inherited_environment() | {"LC_ALL": "C"} | dict(self.environment)

    def _wait(
        self, name: str, process: subprocess.Popen[bytes], files: Sequence[IO[bytes]]
    ) -> None:
        """Wait for a program's end.  `reliable.run` would not see how much it prints."""
        end, pause = time.monotonic() + self.timeout_seconds, 0.001
        while process.poll() is None:
            problem = ""
            if time.monotonic() > end:
                problem = f"gave no answer within {self.timeout_seconds:g} s"
            elif any(os.fstat(file.fileno()).st_size > OUTPUT_BYTES for file in files):
                problem = f"printed more than {OUTPUT_BYTES >> 20} MiB"
            if problem:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                raise GridError(f"{name} {problem}")
            time.sleep(pause)
            pause = min(2 * pause, 0.05)

    def _is_away(self, words: str) -> bool:
        return bool(self.away.search(words))


def _not_reached(through: Sequence[str], words: str) -> GridError:
    said = _line(words)[-_MESSAGE_CHARACTERS:] or "no output"
    is_lasting = _NOT_LET_IN.search(said) is not None
    return GridError(f"{through[-1]} is not reached: {said}", is_lasting=is_lasting)


def inherited_environment() -> dict[str, str]:
    """Give what programs, and so pilots, may see of our environment: no secrets."""
    return {name: value for name, value in os.environ.items() if _INHERITED.fullmatch(name)}


def _line(text: str) -> str:
    """What a program said in several lines, as one of ours."""
    return "; ".join(line.strip() for line in text.splitlines() if line.strip())


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read(OUTPUT_BYTES).decode(errors="replace")
