"""A slow and lossy line: passes packets between two ends, late or never.

`python slow_link.py END END DELAY LOSS`: the ends are descriptors of TUN devices, which give and
take a packet at a time; DELAY is one packet's, in seconds; LOSS is the share that vanishes, in both
directions.  SIGTERM ends it; then it prints how many packets it carried, and how many it lost.
"""

from __future__ import annotations

import os
import random
import select
import signal
import sys
import time
from collections import deque
from contextlib import suppress

_LARGEST = 65_536


class Line:
    """What is on its way between two ends."""

    def __init__(self, ends: tuple[int, int], delay: float, loss: float) -> None:
        self._beyond = {ends[0]: ends[1], ends[1]: ends[0]}
        self._delay, self._loss = delay, loss
        self._waiting: deque[tuple[float, int, bytes]] = deque()  # in the order of their times
        self.carried = self.lost = 0

    def step(self) -> None:
        """Wait for the next packet or the next arrival, and see to it."""
        readable, _, _ = select.select(list(self._beyond), [], [], self._pause())
        for end in readable:
            self._take(end)
        while self._waiting and self._waiting[0][0] <= time.monotonic():
            _, end, packet = self._waiting.popleft()
            with suppress(OSError):  # the device is down
                os.write(end, packet)

    def _pause(self) -> float | None:
        return max(0.0, self._waiting[0][0] - time.monotonic()) if self._waiting else None

    def _take(self, end: int) -> None:
        packet = os.read(end, _LARGEST)
        if random.random() < self._loss:
            self.lost += 1
            return
        self.carried += 1
        self._waiting.append((time.monotonic() + self._delay, self._beyond[end], packet))


def main() -> None:
    """Pass packets on until SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    first, second, delay, loss = sys.argv[1:]
    line = Line((int(first), int(second)), float(delay), float(loss))
    try:
        while True:
            line.step()
    finally:
        print(line.carried, line.lost, flush=True)


if __name__ == "__main__":
    main()
