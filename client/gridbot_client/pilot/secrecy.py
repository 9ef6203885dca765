"""Hides what a process knows from the other processes of its user."""

from __future__ import annotations

from contextlib import suppress

_PR_SET_DUMPABLE = 4


def hide() -> None:
    """Let no process without root's rights read this one's memory, environment or open files.

    So a job without walls does not find the key of the client that runs it.  It ends with the
    next program that is executed, and so holds for no job.
    """
    # Some builds of Python lack ctypes, other systems than Linux the call.
    with suppress(ImportError, OSError, AttributeError):
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
