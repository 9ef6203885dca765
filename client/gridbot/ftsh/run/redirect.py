"""Opens what the redirections of a command name, and keeps what goes to variables."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import IO

from gridbot.ftsh.run.state import ShellState
from gridbot.ftsh.run.words import single
from gridbot.ftsh.tree import StreamRedirection

Streams = tuple[int, int, int]
_FLAGS = {
    "r": os.O_RDONLY,
    "w": os.O_WRONLY | os.O_CREAT | os.O_TRUNC,
    "a": os.O_WRONLY | os.O_CREAT | os.O_APPEND,
}


@contextmanager
def redirected(
    redirections: Sequence[StreamRedirection], line: int, state: ShellState
) -> Iterator[Streams]:
    """Streams of a command, from the first redirection to the last.  Raises CommandFailure.

    A variable is a file without a name while the command runs.  It keeps what came, also of a
    command that failed.
    """
    with ExitStack() as opened:
        streams = list(state.streams)
        kept: list[tuple[str, IO[bytes]]] = []
        for each in redirections:
            target = single(each.target, state)
            try:
                if each.kind == "stream":
                    found = streams[int(target)]
                elif each.kind == "variable":
                    file = opened.enter_context(_buffer(each, target, state))
                    found = file.fileno()
                    kept += [(target, file)] if each.mode != "r" else []
                else:
                    found = os.open(state.path(target), _FLAGS[each.mode] | os.O_CLOEXEC, 0o666)
                    opened.callback(os.close, found)
            except (OSError, ValueError) as error:
                raise state.fail(line, f"cannot redirect to {target}: {error}") from None
            streams[each.stream] = found
        try:
            yield (streams[0], streams[1], streams[2])
        finally:
            for name, file in kept:
                file.seek(0)
                state.variables[name] = os.fsdecode(file.read())


def _buffer(redirection: StreamRedirection, name: str, state: ShellState) -> IO[bytes]:
    """Return a file with what a variable holds; if it is to be replaced, an empty one."""
    file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115  # the caller closes it
    if redirection.mode != "w":
        file.write(os.fsencode(state.variables.get(name, "")))
    if redirection.mode == "r":
        file.seek(0)
    return file
