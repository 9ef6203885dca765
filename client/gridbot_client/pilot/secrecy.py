"""Hides a process's memory and environment from other processes of its user."""

from __future__ import annotations

from contextlib import suppress

_PR_SET_DUMPABLE = 4


def hide() -> None:
    """Make this process non-dumpable, so that only root reads its memory, environment and files.

    So an unsandboxed job cannot read the key of its client.  The flag does not survive exec, so it
    does not affect jobs.
    """
    # Some builds of Python lack ctypes; systems other than Linux lack prctl.
    with suppress(ImportError, OSError, AttributeError):
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
