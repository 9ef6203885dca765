"""A bar that shows how many calls have ended."""

from __future__ import annotations

import sys
import threading

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar


class Progress:
    """Shows a bar from the first call to the end; by default in notebooks only."""

    def __init__(self, is_wanted: bool | None) -> None:
        self._is_wanted = _is_notebook() if is_wanted is None else is_wanted
        self._lock = threading.Lock()
        self._bar: Bar | None = None
        self._total = 0

    def expects(self, calls: int) -> None:
        """Count further calls."""
        if not self._is_wanted or not calls:
            return
        with self._lock:
            self._total += calls
            if self._bar is None:
                columns = (BarColumn(), MofNCompleteColumn(), TextColumn("calls"))
                self._bar = Bar(*columns, TimeElapsedColumn())
                self._bar.add_task("calls", total=0)
                self._bar.start()
            self._bar.update(self._bar.task_ids[0], total=self._total)

    def ended(self, calls: int) -> None:
        """Count calls that have ended."""
        with self._lock:
            if self._bar is not None:
                self._bar.advance(self._bar.task_ids[0], calls)

    def close(self) -> None:
        """Leave the bar as it is."""
        with self._lock:
            if self._bar is not None:
                self._bar.stop()


def _is_notebook() -> bool:
    """True in a notebook's kernel."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(shell).__name__ == "ZMQInteractiveShell"
