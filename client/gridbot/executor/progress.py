"""How many calls have ended: a bar in a terminal, or what a notebook's cell displays."""

from __future__ import annotations

import importlib
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, Protocol

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

_UPDATE_SECONDS = 0.1  # between two messages to a notebook


class _Display(Protocol):
    """Where progress is shown."""

    def show(self, ended: int, total: int) -> None:
        """Show so many calls."""

    def close(self) -> None:
        """Leave it as it is."""


class Progress:
    """Shows a bar from the first call to the end; by default in notebooks only."""

    def __init__(self, is_wanted: bool | None) -> None:
        self._is_wanted = _is_notebook() if is_wanted is None else is_wanted
        self._lock = threading.Lock()
        self._display: _Display | None = None
        self._ended = self._total = 0

    def expects(self, calls: Sequence[Future[Any]]) -> None:
        """Count further calls, and those of them that end, however they do."""
        if not self._is_wanted or not calls:
            return
        with self._lock:
            self._total += len(calls)
            if self._display is None:
                self._display = _Notebook() if _is_notebook() else _Terminal()
            self._display.show(self._ended, self._total)
        for call in calls:
            call.add_done_callback(self._count)

    def close(self) -> None:
        """Leave the bar as it is."""
        with self._lock:
            if self._display is not None:
                self._display.close()

    def _count(self, _: Future[Any]) -> None:
        with self._lock:
            self._ended += 1
            if self._display is not None:
                self._display.show(self._ended, self._total)


class _Terminal:
    """A bar that is drawn on the terminal."""

    def __init__(self) -> None:
        columns = (BarColumn(), MofNCompleteColumn(), TextColumn("calls"))
        self._bar = Bar(*columns, TimeElapsedColumn())
        self._task = self._bar.add_task("calls", total=0)
        self._bar.start()

    def show(self, ended: int, total: int) -> None:
        """Draw so many calls."""
        self._bar.update(self._task, completed=ended, total=total)

    def close(self) -> None:
        """Leave it as it is."""
        self._bar.stop()


class _Notebook:
    """An output of a cell that is replaced; it needs no widgets."""

    def __init__(self) -> None:
        display: Any = importlib.import_module("IPython.display").display
        self._output = display(_shown(0, 0), raw=True, display_id=True)
        self._due = 0.0

    def show(self, ended: int, total: int) -> None:
        """Replace it, unless that was done a moment ago and more is to come."""
        if ended < total and time.monotonic() < self._due:
            return
        self._due = time.monotonic() + _UPDATE_SECONDS
        self._output.update(_shown(ended, total), raw=True)

    def close(self) -> None:
        """Leave it as it is."""


def _shown(ended: int, total: int) -> dict[str, str]:
    text = f"{ended} of {total} calls"
    bar = f'<progress value="{ended}" max="{max(1, total)}"></progress>'
    return {"text/plain": text, "text/html": f"{bar} {text}"}


def _is_notebook() -> bool:
    """True in a notebook's kernel."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(shell).__name__ == "ZMQInteractiveShell"
