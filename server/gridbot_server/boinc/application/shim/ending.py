"""Reads what the shim wrote to stderr: how the command really ended, and its logs."""

from __future__ import annotations

import re
from typing import NamedTuple

_TIME = r"(?:([0-9]{1,7})m([0-9]{1,2}(?:\.[0-9]{1,9})?)s|[0-9a-z.]+)"
_END = re.compile(
    r"\[gridbot end reason=([a-z_]{0,40}) exit=(-?[0-9]{1,10}|none)"
    rf" cpu={_TIME}\+{_TIME}\]\s*\Z"
)
_LOGS = re.compile(r"\n?\[gridbot (stdout|stderr)\]\n")


class Ending(NamedTuple):
    """How a command ended, in a native client's words: the reason is empty for a good end."""

    reason: str
    # The negative signal for one that was killed; of 32 bits with a sign, as Windows has them.
    exit_code: int | None
    cpu_seconds: float
    stdout: str = ""
    stderr: str = ""


def read_ending(text: str) -> Ending | None:
    """Read the stderr of a stock client's report; None when the shim did not come to its end.

    What the command printed comes before the last line and cannot pass for it.
    """
    end = _END.search(text[-400:])
    if end is None:
        return None
    logs = _logs(text[: max(0, len(text) - 400) + end.start()])
    reason, exit_code, *times = end.groups("0")
    user_minutes, user, system_minutes, system = map(float, times)
    cpu_seconds = 60 * (user_minutes + system_minutes) + user + system
    code = None if exit_code == "none" else signed_32(int(exit_code))
    return Ending(reason, code, cpu_seconds, *logs)


def signed_32(status: int) -> int:
    """An exit status in 32 bits with a sign, as Windows gives them either way."""
    return (status + 2**31) % 2**32 - 2**31


def _logs(text: str) -> tuple[str, str]:
    """Both logs' ends; a client that keeps less than all of stderr drops the first part."""
    _, *rest = _LOGS.split(text)
    found = dict(zip(rest[::2], rest[1::2], strict=True))
    return found.get("stdout", ""), found.get("stderr", text if not rest else "").removesuffix("\n")
