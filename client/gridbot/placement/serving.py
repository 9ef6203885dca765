"""Runs a queue: some transfers at once, each attempt within a time limit, again after failures.

What a crash leaves: a transfer that is marked as running.  Its program is dead (it dies with us),
or left word that it is done.  So the next run takes the word, or queues the transfer again,
without counting the attempt.
"""

from __future__ import annotations

import json
import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from gridbot import reliable
from gridbot.api.errors import BadInput
from gridbot.placement.module import RESULT, discard
from gridbot.placement.modules import call_of
from gridbot.placement.queue import (
    ENDED,
    FAILED,
    QUEUED,
    REMOVED,
    RUNNING,
    Placement,
    PlacementQueue,
)
from gridbot.reliable.scope import Cancellation, Scope, entered, present
from gridbot_client.storage import held

_LOOK_SECONDS = 0.2
_MOST_SAID = 4096  # bytes of the line that says why a module failed
_PAUSES = reliable.BackOff(least=0.5, most=60.0)
_ENDING = reliable.ProcessEnding(grace=5.0)


@dataclass(frozen=True)
class PlacementLimits:
    """Bounds of a run; attempts and the time of each are Stork's defaults."""

    attempts: int = 10
    at_once: int = 10
    per_endpoint: int = 10
    seconds: float = 600.0


Told = Callable[[Placement], None]


class QueueIsRun(BadInput):
    """Another process runs the queue."""


@contextmanager
def locked(queue: PlacementQueue) -> Iterator[None]:
    """Run a queue alone.  Raises QueueIsRun if another process does."""
    busy = QueueIsRun(f"{queue.path}: another process runs this queue")
    with held(Path(f"{queue.path}.lock"), lambda: busy):
        yield


def serve(
    queue: PlacementQueue,
    limits: PlacementLimits,
    told: Told,
    is_over: Callable[[], bool],
) -> None:
    """Run a queue until `is_over` says so; it must be locked.

    Attempts that run then are interrupted, and go on with who runs the queue next.
    `told` gets each placement after each attempt, in the thread of the attempt.
    """
    _recover(queue)
    with present().cancellation.inner() as ended:
        threads: dict[int, threading.Thread] = {}
        cancelled: dict[int, Cancellation] = {}
        try:
            while True:
                for placement in queue.start(limits.at_once, limits.per_endpoint):
                    own = cancelled[placement.id] = Cancellation()
                    thread = threading.Thread(
                        target=_attempt, args=(queue, placement, limits, own, told)
                    )
                    threads[placement.id] = thread
                    thread.start()
                _end_removed(queue, threads, cancelled)
                if is_over():
                    return
                ended.wait(_LOOK_SECONDS)
                reliable.check()
        finally:
            for own in cancelled.values():
                own.set()
            for thread in threads.values():
                thread.join()


def _end_removed(
    queue: PlacementQueue,
    threads: dict[int, threading.Thread],
    cancelled: dict[int, Cancellation],
) -> None:
    for number in [number for number, thread in threads.items() if not thread.is_alive()]:
        del threads[number], cancelled[number]
    for number, own in cancelled.items():
        if queue.one(number).state == REMOVED:
            own.set()


def _recover(queue: PlacementQueue) -> None:
    """Take the word of programs that ended unseen; queue the others again."""
    for placement in queue.all((RUNNING,)):
        _end_left_behind(_result_file(queue, placement.id))
        found = _told_result(_result_file(queue, placement.id))
        if found:
            queue.succeeded(placement.id, found["bytes"], found["sha256"])
        else:
            queue.interrupted(placement.id)


def _end_left_behind(result: Path) -> None:
    """End a module of somebody else's that has outlived its queue; ours have not."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get(RESULT) == str(result):
                process.kill()
                process.wait(timeout=_ENDING.grace)


def _attempt(
    queue: PlacementQueue,
    placement: Placement,
    limits: PlacementLimits,
    own: Cancellation,
    told: Told,
) -> None:
    result = _result_file(queue, placement.id)
    result.unlink(missing_ok=True)
    scope = Scope(cancellation=own).within(limits.seconds)
    try:
        with entered(scope):
            code, said = _run(placement, result)
    except reliable.Cancelled:
        queue.interrupted(placement.id)  # unless it was removed
        _tidy(queue, placement, result)
        return
    except reliable.OutOfTime:
        code, said = 1, f"not done after {limits.seconds:g} s"
    except (OSError, ValueError) as error:
        code, said = 1, f"cannot be run: {error}"
    if code == 0:
        found = _told_result(result) or {}
        queue.succeeded(placement.id, found.get("bytes"), found.get("sha256"))
    else:
        chance = placement.id % 97 / 97  # spreads those that failed together
        pause = _PAUSES.seconds(placement.attempts + 1, chance)
        queue.failed(placement.id, said or f"exit code {code}", limits.attempts, pause)
    _tidy(queue, placement, result)
    told(queue.one(placement.id))


def _tidy(queue: PlacementQueue, placement: Placement, result: Path) -> None:
    """Remove what an attempt left, and parts of a copy that will not go on."""
    result.unlink(missing_ok=True)
    if queue.one(placement.id).state in (FAILED, REMOVED):
        discard(placement.request.destination)


def _run(placement: Placement, result: Path) -> tuple[int, str]:
    """Run the program of an attempt; return its exit code, and the first line that it printed."""
    call = call_of(placement, os.environ)
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as said:
        given.write(call.given)
        given.seek(0)
        code = reliable.run(
            call.argv, check=False, env=_environment(placement, result),
            stdin=given, stdout=said, stderr=said, ending=_ENDING,
        )  # fmt: skip
        said.seek(0)
        return code, said.readline(_MOST_SAID).decode(errors="replace").strip()


def _environment(placement: Placement, result: Path) -> Mapping[str, str]:
    return {
        **os.environ,
        "STORK_JOBID": str(placement.id),
        "GRIDBOT_PLACEMENT_FAILURES": str(placement.attempts),
        "GRIDBOT_PLACEMENT_PARENT": str(os.getpid()),
        RESULT: str(result),
    }


def _result_file(queue: PlacementQueue, number: int) -> Path:
    return Path(f"{queue.path}.{number}.done")


def _told_result(file: Path) -> dict[str, Any] | None:
    with suppress(FileNotFoundError, ValueError):
        found = json.loads(file.read_text())
        return found if isinstance(found, dict) else None
    return None


def are_ended(queue: PlacementQueue, numbers: Sequence[int]) -> bool:
    """Whether some placements have ended."""
    return all(queue.one(number).state in ENDED for number in numbers)


def is_empty(queue: PlacementQueue) -> bool:
    """Whether nothing is left to do."""
    return not queue.all((QUEUED, RUNNING))
