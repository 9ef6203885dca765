"""What a node's shell runs before a pilot: the lines of a grid's `setup`."""

from __future__ import annotations

from collections.abc import Sequence

# By the shell alone: a line may have taken PATH away.
_BEFORE = """set_up_failed() {
    echo "gridbot pilot: the grid's setup ended with exit code $1" >&2
    exit 3
}
trap 'set_up_failed $?' EXIT
set -e"""
_AFTER = """set +e
trap - EXIT"""


def set_up(lines: Sequence[str]) -> str:
    """Return the shell script that runs an operator's lines, and ends with 3 if a command fails.

    A command may stand in several lines.  Who wants to go on after a failure writes `set +e`.
    """
    return "\n".join([_BEFORE, *lines, _AFTER])
