"""The points at which a process may be struck."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import psycopg

from gridbot_simulator.nemesis.faults import Fault, FaultKind


class Killed(BaseException):
    """The process is dead: nothing that it would do on its way out is done."""


class Points:
    """Counts the points that a step crosses, and lets its faults strike."""

    def __init__(self, interrupt: Callable[[int], None], tell: Callable[[str], None]) -> None:
        """`interrupt` lets another process go first, `tell` is told of what strikes where."""
        self._interrupt, self._tell = interrupt, tell
        self._due: list[Fault] = []
        self._crossed = 0
        self.is_inside = False  # a transaction: nobody goes between
        self.is_dying = False  # who was killed does nothing more, but Python still unwinds

    def begin(self, due: Sequence[Fault]) -> None:
        """Begin a step with these faults."""
        self._due, self._crossed, self.is_dying = list(due), 0, False

    def end(self) -> bool:
        """End a step; return whether its process is to die only now."""
        is_to_die = any(fault.kind is FaultKind.KILL for fault in self._due)
        self._due = []
        return is_to_die

    @property
    def may_strike(self) -> bool:
        """Whether something may still happen in this step."""
        return bool(self._due)

    def cross(self, place: str, *, is_statement: bool = False, is_committed: bool = False) -> None:
        """Cross a point; raises Killed or OperationalError.

        `is_statement`: the database may fail.  `is_committed`: something was just committed.
        """
        if not self._due:
            return
        self._crossed += 1
        for fault in [fault for fault in self._due if fault.point < self._crossed]:
            match fault.kind:
                case FaultKind.KILL:
                    self._strike(fault, place)
                    self.is_dying = True
                    raise Killed(place)
                case FaultKind.ERROR if is_statement:
                    self._strike(fault, place)
                    raise psycopg.OperationalError(f"the connection is lost: {place}")
                case FaultKind.LOST_COMMIT if is_committed:
                    self._strike(fault, place)
                    raise psycopg.OperationalError(f"the connection is lost after {place}")
                case FaultKind.INTERRUPT if not self.is_inside:
                    self._strike(fault, place)
                    self._aside(fault.value)
                case _:
                    pass

    def _strike(self, fault: Fault, place: str) -> None:
        self._due.remove(fault)
        self._tell(f"at {place}: {fault.kind}")

    def _aside(self, who: int) -> None:
        """Let another process make a pass of its own, in which nothing strikes."""
        due, crossed, self._due = self._due, self._crossed, []
        self._interrupt(who)
        self._due, self._crossed = due, crossed
