"""Commands that the shell carries out itself."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence

from gridbot.ftsh.run.state import Exited, ShellState
from gridbot.reliable import run
from gridbot.reliable.scope import Scope, entered

Builtin = Callable[[int, Sequence[str], ShellState], None]


def _cd(line: int, arguments: Sequence[str], state: ShellState) -> None:
    """Change the folder; without one, to the user's home."""
    if len(arguments) > 1:
        raise state.fail(line, "cd: one folder, please")
    folder = state.path(arguments[0] if arguments else os.path.expanduser("~"))
    try:
        with os.scandir(folder):
            state.folder = os.path.normpath(folder) if ".." not in folder else _real(folder)
    except (OSError, ValueError) as error:
        raise state.fail(line, f"cd: {error}") from None


def _real(folder: str) -> str:
    """A folder without `..`, which behind a link leads elsewhere than the text says."""
    return os.path.realpath(folder)


def _export(line: int, arguments: Sequence[str], state: ShellState) -> None:
    """Give a variable to the programs that follow."""
    if len(arguments) != 1:
        raise state.fail(line, f"export: the name of one variable, not {len(arguments)}")
    (name,) = arguments
    if "=" in name or not name:
        raise state.fail(line, f"export: {name!r} is no name; assign first, then export the name")
    state.environment[name] = state.value(name)


def _echo(line: int, arguments: Sequence[str], state: ShellState) -> None:
    ends = arguments[:1] != ["-n"]
    text = " ".join(arguments if ends else arguments[1:]) + ("\n" if ends else "")
    try:
        left = os.fsencode(text)
        while left:
            left = left[os.write(state.streams[1], left) :]
    except OSError as error:
        raise state.fail(line, f"echo: {error}") from None


def _exec(line: int, arguments: Sequence[str], state: ShellState) -> None:
    """Become another program, which nothing around limits any more."""
    if not arguments:
        raise state.fail(line, "exec: a program, please")
    try:
        if state.is_branch:  # a thread cannot become a program
            _run_free(arguments, state)
        _become(arguments, state)
    except (OSError, ValueError) as error:
        raise state.fail(line, f"exec: {arguments[0]}: {error}") from None


def _become(arguments: Sequence[str], state: ShellState) -> None:
    """Replace the shell.  Raises OSError with its streams as they were."""
    before, kept = os.getcwd(), [os.dup(number) for number in range(3)]
    # Python ignores it, which programs would inherit.
    was = signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        os.chdir(state.folder)
        for number, stream in enumerate(state.streams):
            os.dup2(stream, number)
        os.execvpe(arguments[0], list(arguments), state.environment)  # noqa: S606
    finally:
        signal.signal(signal.SIGPIPE, was)
        for number, copy in enumerate(kept):
            os.dup2(copy, number)
            os.close(copy)
        os.chdir(before)


def _run_free(arguments: Sequence[str], state: ShellState) -> None:
    with entered(Scope()):
        code = run(
            arguments, check=False, cwd=state.folder, env=state.environment,
            stdin=state.streams[0], stdout=state.streams[1], stderr=state.streams[2],
        )  # fmt: skip
    raise Exited(code if code >= 0 else 128 - code)


def _exit(_line: int, arguments: Sequence[str], _state: ShellState) -> None:
    """End at once, with a code: 0 without one, 1 for what is no number."""
    code = arguments[0] if arguments else "0"
    is_number = code.removeprefix("-").isdecimal() and len(code) < 10
    raise Exited(int(code) % 256 if is_number else 1)


def _success(_line: int, _arguments: Sequence[str], _state: ShellState) -> None:
    """Do nothing."""


def _failure(line: int, _arguments: Sequence[str], state: ShellState) -> None:
    raise state.fail(line, "failure")


BUILTINS: dict[str, Builtin] = {
    "cd": _cd,
    "export": _export,
    "echo": _echo,
    "exec": _exec,
    "exit": _exit,
    "success": _success,
    "failure": _failure,
}
