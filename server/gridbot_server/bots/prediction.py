"""The process that simulates: one order on its standard input, one answer on its standard output.

It runs beside the web process, at a low priority.  It bounds its own CPU time and memory; here is
the bound on its time, after which it is killed with all that it may have started.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import orjson

from gridbot_server.errors import Conflict, InternalError

log = logging.getLogger(__name__)

WALL_SECONDS = 45.0  # proxies cut an answer that takes a minute
_LIMITS = (-signal.SIGXCPU, -signal.SIGKILL)  # how one ends that used up its CPU time
_MODULE = "gridbot_simulator.what_if"
_LOGGED = 2000  # bytes


def simulate(order: Mapping[str, Any], seconds: float = WALL_SECONDS) -> Mapping[str, Any]:
    """Have an order carried out.

    Raises Conflict if it cannot be simulated, or not within its limits.
    """
    process = subprocess.Popen(
        [sys.executable, "-I", "-m", _MODULE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={n: os.environ[n] for n in ("LD_LIBRARY_PATH",) if n in os.environ},
        start_new_session=True,
    )
    try:
        said, cried = process.communicate(orjson.dumps(order), timeout=seconds)
    except subprocess.TimeoutExpired:
        raise _too_much(f"{seconds:.0f} s") from None
    finally:
        with suppress(ProcessLookupError):  # it has ended, and nothing is left of its group
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    if process.returncode in _LIMITS:
        raise _too_much("the CPU time that it may take")
    if process.returncode:
        log.error(
            "a simulation ended with %d: %s",
            process.returncode,
            cried[-_LOGGED:].decode(errors="replace"),
        )
        raise InternalError("the simulation failed; the server's log says why")
    answer: Mapping[str, Any] = orjson.loads(said)
    if why := answer.get("why_not"):
        raise Conflict(str(why))
    return answer


def _too_much(limit: str) -> Conflict:
    return Conflict(
        f"there is too much left to simulate it within {limit}: try fewer seeds, or try later"
    )
