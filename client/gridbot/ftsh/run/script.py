"""Runs a script from its beginning to its exit code."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType

from gridbot.ftsh.run.commands import FAILURES, Interpreter
from gridbot.ftsh.run.log import Detail, ScriptLog
from gridbot.ftsh.run.settings import ShellSettings
from gridbot.ftsh.run.state import MOST_CALLS, Exited, Returned, ShellState
from gridbot.ftsh.tree import FtshScript
from gridbot.reliable.scope import Cancellation, Cancelled, Scope, entered, present

_ENDING_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGINT)
# A call of ftsh within another takes fewer frames of Python than this.
_FRAMES_PER_CALL = 60


def run_script(
    script: FtshScript,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    settings: ShellSettings,
) -> int:
    """Run a script and return its exit code: 0, 1 if it failed, or that of its `exit`.

    `arguments` begin with the script's name.  Signals that end it end all that it runs, too; the
    code is then 128 and the signal's number.  Raises OSError if the log cannot be opened.
    """
    with _log(settings, arguments[0]) as log:
        state = ShellState(
            settings=settings,
            log=log,
            functions=script.functions,
            arguments=list(arguments),
            environment={**environment, **settings.exported()},
            folder=os.getcwd(),
        )
        with present().cancellation.inner() as cancellation, _Signals(cancellation) as signals:
            return _run(script, state, Scope(present().deadline, cancellation), signals)


def _run(script: FtshScript, state: ShellState, scope: Scope, signals: _Signals) -> int:
    try:
        with entered(scope), _deep_calls():
            Interpreter(state).group(script.body)
    except Returned:
        pass
    except Exited as ended:
        state.say(Detail.STRUCTURES, 0, f"exit {ended.code}")
        return ended.code
    except Cancelled:
        if not signals.number:
            raise
        state.say(Detail.FAILURES, 0, f"ended by signal {signals.number}")
        return 128 + signals.number
    except FAILURES:
        state.say(Detail.FAILURES, 0, "the script has failed")
        return 1
    state.say(Detail.STRUCTURES, 0, "the script has succeeded")
    return 0


@contextmanager
def _log(settings: ShellSettings, script: str) -> Iterator[ScriptLog]:
    """Open the log: a file to which others may append as well, or standard error."""
    if not settings.log_file:
        yield ScriptLog(2, settings.log_level, script, settings.has_decimal_times)
        return
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    descriptor = os.open(settings.log_file, flags, 0o644)
    try:
        yield ScriptLog(descriptor, settings.log_level, script, settings.has_decimal_times)
    finally:
        os.close(descriptor)


class _Signals:
    """Signals that end the shell cancel what it runs, which is then ended on the way out.

    Python runs handlers between any two instructions: one that raised there could leave a program
    behind that was just being started.  So the number goes to a pipe, and a thread reads it.
    """

    def __init__(self, cancellation: Cancellation) -> None:
        self._cancellation = cancellation
        self.number = 0

    def __enter__(self) -> _Signals:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        self._wake_before = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        # Those that are ignored stay so: `nohup` means it.
        heard = [each for each in _ENDING_SIGNALS if signal.getsignal(each) != signal.SIG_IGN]
        self._before = {each: signal.signal(each, _noted) for each in heard}
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wake_before)
        os.close(self._writer)
        self._thread.join()
        os.close(self._reader)

    def _watch(self) -> None:
        while numbers := os.read(self._reader, 64):
            ending = [number for number in numbers if number in _ENDING_SIGNALS]
            if ending:
                self.number = self.number or ending[0]
                self._cancellation.set()


def _noted(_number: int, _frame: FrameType | None) -> None:
    """Leave a signal to the pipe."""


@contextmanager
def _deep_calls() -> Iterator[None]:
    """Let functions of the script call each other as deep as they may."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, MOST_CALLS * _FRAMES_PER_CALL))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)
