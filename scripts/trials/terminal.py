"""A person's terminal: lines are typed into a shell in tmux, and what it shows is read.

The shell's prompt carries the number of the command and the exit code of the last one, so that a
command has ended when the next prompt is there, whatever it printed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

COLUMNS, ROWS = 100, 40  # of the window
_HISTORY_LINES = 20_000
_LOOK_SECONDS, _REPEAT_SECONDS = 0.1, 2.0
_PATIENCE_SECONDS = 180.0
# Number of the command, exit code of the last one; bash(1), section PROMPTING.
_PS1 = r"[\#:$?]$ "
_PROMPT = re.compile(r"\[(\d+):(\d+)\]\$ ?")  # not only at the left: a last line may lack its end
# What a shell of somebody else on this machine would have, too.
_KEPT = ("LANG", "PIP_", "http_proxy", "https_proxy", "no_proxy", "SSL_CERT_FILE")


class TrialFailed(Exception):
    """The terminal showed something else than a person expects; the message has both."""


@dataclass(frozen=True, slots=True)
class Typed:
    """One line that was typed, and what came of it."""

    line: str
    code: int
    seconds: float
    text: str  # that it printed


@dataclass
class Terminal:
    """A shell in a window of 100 columns.  `typed` is what was typed so far, without answers."""

    _socket: Path
    typed: list[Typed] = field(default_factory=list)
    _began: float = 0.0
    _line: str = ""

    def type(
        self, line: str, *reads: str, code: int = 0, seconds: float = _PATIENCE_SECONDS
    ) -> str:
        """Type a line and wait until it has ended; return what it printed.

        It must end with this exit code and have printed each text of `reads`.
        """
        self.begin(line)
        return self.ended(*reads, code=code, seconds=seconds)

    def repeat(self, line: str, *reads: str, seconds: float = _PATIENCE_SECONDS) -> str:
        """Type a line again and again, until it has printed all this; its exit code may be any."""
        until = time.monotonic() + seconds
        while True:
            self.begin(line)
            text = self._finished(seconds).text
            if all(part in text for part in reads):
                return text
            if time.monotonic() > until:
                raise TrialFailed(f"`{line}` does not say {reads}; it said last:\n{text}")
            time.sleep(_REPEAT_SECONDS)

    def begin(self, line: str) -> None:
        """Type a line; it may ask something before it ends."""
        self._line, self._began = line, time.monotonic()
        self._send(line)

    def asked(self, question: str, answer: str, seconds: float = _PATIENCE_SECONDS) -> None:
        """Wait for a question of the line that was begun, and type the answer."""
        self._wait(lambda: question in self._said()[0], f"asks {question!r}", seconds)
        self._send(answer)

    def ended(self, *reads: str, code: int | None = 0, seconds: float = _PATIENCE_SECONDS) -> str:
        """Wait for the end of the line that was begun, with all that `type` checks.

        None stands for any exit code.
        """
        last = self._finished(seconds)
        if code is not None and last.code != code:
            raise TrialFailed(
                f"`{last.line}` ended with {last.code}, not {code}, and said:\n{last.text}"
            )
        for part in reads:
            if part not in last.text:
                raise TrialFailed(f"`{last.line}` does not say {part!r}; it said:\n{last.text}")
        return last.text

    def _finished(self, seconds: float) -> Typed:
        self._wait(lambda: self._said()[1] is not None, "ends", seconds)
        text, code = self._said()
        assert code is not None, "it was there a moment ago"
        self.typed.append(Typed(self._line, code, time.monotonic() - self._began, text))
        return self.typed[-1]

    def shown(self) -> str:
        """All that the window has shown, lines that were wrapped made whole."""
        return self._tmux("capture-pane", "-p", "-J", "-S", "-").rstrip()

    def wait_ready(self) -> None:
        """Wait for the first prompt."""
        self._wait(lambda: _PROMPT.search(self.shown()) is not None, "shows a prompt", 30.0)

    def _said(self) -> tuple[str, int | None]:
        """What the current line has printed; its exit code, once the next prompt is there."""
        number, text = len(self.typed) + 1, self.shown()
        prompts = {int(found[1]): found for found in _PROMPT.finditer(text)}
        if number not in prompts:
            return "", None
        own, following = prompts[number], prompts.get(number + 1)
        printed = text[own.end() : following.start() if following else None]
        printed = printed.removeprefix(self._line).removeprefix("\n").rstrip()
        return printed, int(following[2]) if following else None

    def _wait(self, fact: Callable[[], bool], what: str, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not fact():
            if time.monotonic() > until:
                raise TrialFailed(
                    f"`{self._line}`: not seen within {seconds:.0f} s that it {what}; the terminal"
                    f" shows:\n{self.shown()}"
                )
            time.sleep(_LOOK_SECONDS)

    def _send(self, text: str) -> None:
        self._tmux("send-keys", "-l", "--", text)
        self._tmux("send-keys", "Enter")

    def _tmux(self, *words: str) -> str:
        return _run(self._socket, words).stdout


def edits(path: Path, text: str) -> None:
    """Leave a file as the person's editor would."""
    path.write_text(text)
    if os.geteuid() == 0:
        shutil.chown(path, "nobody", "nogroup")


@contextmanager
def terminal(home: Path, variables: Mapping[str, str] | None = None) -> Iterator[Terminal]:
    """Open a terminal in a home, with a fresh environment.

    In the end it is closed, and what still runs on behalf of this home is killed.  As root, the
    person is another user (`nobody`): what root is spared would be missed else.
    """
    home.mkdir(mode=0o755, exist_ok=True)
    as_person: list[str] = []
    if os.geteuid() == 0:
        shutil.chown(home, "nobody", "nogroup")
        as_person = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]
    told = {name: value for name, value in os.environ.items() if name.startswith(_KEPT)}
    told |= {"HOME": str(home), "PATH": "/usr/local/bin:/usr/bin:/bin", "PS1": _PS1}
    told |= {"HISTFILE": "/dev/null", "VIRTUAL_ENV_DISABLE_PROMPT": "1", **(variables or {})}
    environment = [f"{name}={value}" for name, value in told.items()]
    shell = ["bash", "--norc", "--noprofile", "-i"]
    socket = home.with_suffix(".tmux")
    size = ("-x", str(COLUMNS), "-y", str(ROWS), "-c", str(home))
    _run(
        socket,
        ("set-option", "-g", "history-limit", str(_HISTORY_LINES), ";", "new-session", "-d", *size,
         *as_person, "env", "-i", "TERM=screen-256color", *environment, *shell),
    )  # fmt: skip
    made = Terminal(socket)
    try:
        made.wait_ready()
        yield made
    finally:
        _run(socket, ("kill-server",))
        _kill_all_of(home)


def _kill_all_of(home: Path) -> None:
    """Kill the processes whose environment has this home, such as clients in the background."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get("HOME") == str(home):
                process.kill()


def _run(socket: Path, words: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    """Tell the tmux of this terminal something.  Raises TrialFailed with what it answers."""
    command = ["tmux", "-S", str(socket), "-f", "/dev/null", *words]
    try:
        ended = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        raise TrialFailed("tmux is missing (on Debian: apt install tmux)") from None
    if ended.returncode:
        raise TrialFailed(f"`{' '.join(words)}`: {ended.stderr.strip()}")
    return ended
