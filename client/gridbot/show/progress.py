"""Progress of a BOT or of a transfer: a bar on a terminal, elsewhere a line per change."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from gridbot.api.connection import quiet
from gridbot.api.inputs import Progress as Told
from gridbot.api.state import BotState
from gridbot.api.units import duration
from gridbot.printing import counted

PLAIN_SECONDS = 5.0  # least time between two lines without a terminal
IDLE_SECONDS = 10.0  # hosts ask every few seconds; a shorter idle time is normal


def status_line(state: BotState) -> str:
    """Job counts of a BOT; while jobs run also rate and remaining time."""
    parts = [f"{state.jobs_finished} of {counted(state.jobs_total, 'job')}"]
    if failed := state.jobs_failed - state.jobs_cancelled:
        parts.append(f"{failed} failed")
    if state.jobs_cancelled:
        parts.append(f"{state.jobs_cancelled} cancelled")
    if reused := state.document.get("jobs_reused"):
        parts.append(f"{reused} reused")
    if state.is_final:
        return ", ".join([*parts, state.state])
    parts += [f"{state.jobs_in_progress} in progress", f"{state.jobs_waiting} unsent"]
    if state.jobs_silent:
        parts.append(f"{state.jobs_silent} with silent hosts")
    # While no job runs, the rate only falls and the remaining time only grows.
    if state.jobs_running and state.jobs_per_second:
        parts.append(f"{state.jobs_per_second:.3g}/s")
    if state.jobs_running and state.eta is not None:
        parts.append(f"{duration(state.eta)} left")
    if state.tail:
        parts.append("tail")
    if state.is_held:
        parts.append("held")
    if state.growing:
        parts.append("growing")
    return ", ".join(parts)


def follow(states: Iterable[BotState], silent: bool = False) -> BotState:
    """Show each state as it comes; return the last one."""
    show = iter if silent else _bar if sys.stderr.isatty() else _lines
    return deque(show(states), maxlen=1)[0]


def standing_still(
    states: Iterable[BotState], told: Callable[[BotState], None], clock: Callable[[], float]
) -> Iterator[BotState]:
    """Pass the states on; call `told` once per period of IDLE_SECONDS without running replicas."""
    since, is_told = clock(), False
    for state in states:
        if state.has_stopped or state.jobs_running:
            since, is_told = clock(), False
        elif not is_told and clock() - since >= IDLE_SECONDS:
            is_told = True
            told(state)
        yield state


def changes(
    states: Iterable[BotState], show: Callable[[BotState], None], clock: Callable[[], float]
) -> Iterator[BotState]:
    """Pass the states on; show the first, the last, and each change at most every PLAIN_SECONDS.

    A new rate or remaining time alone is no change.
    """
    shown, shown_at = None, -PLAIN_SECONDS
    for state in states:
        now = (
            state.state, state.jobs_total, state.jobs_finished, state.jobs_failed,
            state.jobs_running, state.jobs_silent, state.tail,
        )  # fmt: skip
        if now != shown and (state.has_stopped or clock() - shown_at >= PLAIN_SECONDS):
            shown, shown_at = now, clock()
            show(state)
        yield state


def _lines(states: Iterable[BotState]) -> Iterator[BotState]:
    def show(state: BotState) -> None:
        print(f"bot {state.id}: {status_line(state)}", file=sys.stderr, flush=True)

    return changes(states, show, time.monotonic)


def _bar(states: Iterable[BotState]) -> Iterator[BotState]:
    with _progress("{task.description}", "{task.fields[status]}") as bar:
        line: TaskID | None = None
        for state in states:
            if line is None:
                line = bar.add_task(f"bot {state.id}", total=state.jobs_total, status="")
            bar.update(
                line,
                completed=state.jobs_finished,
                total=state.jobs_total,
                status=status_line(state),
            )
            bar.refresh()
            yield state


@contextmanager
def transfer(silent: bool = False) -> Iterator[Told]:
    """Context with a callback (label, done, total) that draws bars; silent without a terminal."""
    if silent or not sys.stderr.isatty():
        yield quiet
        return
    with _progress("{task.description}", "{task.percentage:>3.0f}%") as bar:
        lines: dict[str, TaskID] = {}

        def told(what: str, done: int, total: int) -> None:
            if what not in lines:
                lines[what] = bar.add_task(what, total=total)
            bar.update(lines[what], completed=done)

        yield told


def _progress(before: str, after: str) -> Progress:
    columns = TextColumn(before, markup=False), BarColumn(), TextColumn(after, markup=False)
    return Progress(*columns, console=Console(stderr=True))
