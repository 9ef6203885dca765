"""The master of a search: tasks are bundles of open nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from gridbot import Session
from gridbot.mw import Master
from scripts.assignment import problem as problem_module
from scripts.assignment import search as search_module
from scripts.assignment.problem import Problem
from scripts.assignment.search import Search, widen, work

Entry = tuple[int, Sequence[int]]  # bound, node


class SearchMaster(Master):
    """Finds the least cost that is below `start`, and proves that there is none less.

    `places` is a solution of that cost, if one is known.
    """

    def __init__(
        self, problem: Problem, folder: Path, session: Session, *, start: int,
        places: Sequence[int] | None, seconds: float, width: int,
        told: Callable[[SearchMaster], None], **options: Any,
    ) -> None:  # fmt: skip
        self._problem, self._start, self._places = problem, start, places
        self._seconds, self._told = seconds, told
        modules = [problem_module, search_module]
        super().__init__(
            partial(work, problem), folder, session, width=width, modules=modules, **options
        )

    def begin(self) -> None:
        """Divide the root, until there is a node for each task at the server."""
        places = None if self._places is None else list(self._places)
        root = Search([(0, ())], self._start, places)
        self.state.update(best=root.best, places=places, nodes=0, digest=0)
        self._account(widen(self._problem, root, 2 * self.width))

    def pack(self, task: Any) -> Any:
        """Nodes, the cost to be better than, and the time slice."""
        is_tail = self.listed < self.width // 2  # short slices let what is left be shared soon
        seconds = self._seconds / 5 if is_tail else self._seconds
        return {"open": task, "best": self.state["best"], "seconds": seconds}

    def completed(self, task: Any, answer: Any) -> None:
        """Count nodes, take a better solution, and list what is left open."""
        found = self._checked(answer)
        if found is None:
            self.state["refused"] = self.state.get("refused", 0) + 1
            found = Search(task, self.state["best"])
        self._account(found)
        self._told(self)

    def _checked(self, answer: Any) -> Search | None:
        """An answer, if it is one; a better solution is computed again.

        That no node is missing cannot be seen from here: let hosts that you trust search.
        """
        try:
            search = Search(**answer)
            counts = [search.nodes, search.digest, search.best]
            for bound, node in search.open:
                counts += [bound, *node]
            is_answer = all(isinstance(count, int) for count in counts)
            if search.best < self.state["best"]:
                places = search.places or []
                is_answer = is_answer and (
                    sorted(places) == list(range(self._problem.size))
                    and self._problem.cost(places) == search.best
                )
        except (TypeError, ValueError):
            return None
        return search if is_answer else None

    def _account(self, search: Search) -> None:
        state = self.state
        state["nodes"] += search.nodes
        state["digest"] = (state["digest"] + search.digest) % 2**64
        if search.best < state["best"]:
            state.update(best=search.best, places=search.places)
            self.delete_worse_than(search.best - self._problem.step)
        limit = state["best"] - self._problem.step
        entries = [entry for entry in search.open if entry[0] <= limit]
        for piece in pieces(entries, max(1, 2 * self.width - self.listed)):
            self.add(piece, key=min(bound for bound, _ in piece))


def pieces(entries: Sequence[Entry], count: int) -> list[list[Entry]]:
    """Share nodes among `count` tasks; each gets some of those with much and with little below."""
    ordered = sorted(entries, key=lambda entry: len(entry[1]))
    return [part for at in range(count) if (part := list(ordered[at::count]))]
