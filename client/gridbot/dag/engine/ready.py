"""Which node is submitted next: priorities, and throttles of categories."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from heapq import heappop, heappush

from gridbot.dag.engine.table import NodeState

_Key = tuple[int, int]


class ReadyQueue:
    """Nodes that may be submitted, the highest priority first.

    Nodes of a category that is full wait aside, so that no pass over them is needed.
    """

    def __init__(self, throttles: Mapping[str, int], depth_first: bool, priority: int = 0) -> None:
        self._throttles = throttles
        self._step = -1 if depth_first else 1
        self._priority = priority
        self._heap: list[tuple[_Key, NodeState]] = []
        self._aside: dict[str, list[tuple[_Key, NodeState]]] = defaultdict(list)
        self._used: Counter[str] = Counter()
        self._last = 0
        self._first = 0
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def add(self, state: NodeState, front: bool = False) -> None:
        """Put a node at its place; with `front`, before others of its priority."""
        if front:
            self._first -= 1
            turn = self._first - (1 << 40)
        else:
            self._last += 1
            turn = self._last * self._step
        self._length += 1
        heappush(self._heap, ((-state.node.priority - self._priority, turn), state))

    def take(self) -> NodeState | None:
        """The next node that its category lets through, which counts there from now on."""
        while self._heap:
            key, state = heappop(self._heap)
            category = state.node.category
            most = self._throttles.get(category) if category else None
            if most is not None and self._used[category] >= most:
                heappush(self._aside[category], (key, state))
                continue
            self._used[category] += 1
            self._length -= 1
            return state
        return None

    def left(self, state: NodeState) -> None:
        """A node's jobs have ended, and its category has room."""
        category = state.node.category
        self._used[category] -= 1
        if waiting := self._aside.get(category):
            heappush(self._heap, heappop(waiting))

    def clear(self) -> None:
        """Let nobody through any more; their number stays, for reports."""
        self._heap.clear()
        self._aside.clear()
