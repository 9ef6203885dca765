"""Sends the checkpoints of one replica while its program goes on."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable

from gridbot_client.backoff import BackOff
from gridbot_client.net.transport import RequestRefused, Transport, TransportError
from gridbot_client.work.checkpoints import SEND_SECONDS, ReplicaCheckpoint

log = logging.getLogger(__name__)

# A checkpoint that stays here is lost with the machine: it is not put off for long.
_PAUSES = BackOff(least=5.0, most=300.0)


class CheckpointSender:
    """A thread that sends the latest checkpoint, but none sooner than `every` after another."""

    def __init__(self, connect: Callable[[], Transport], checkpoint: ReplicaCheckpoint) -> None:
        self._connect, self._checkpoint = connect, checkpoint
        self._changed = threading.Condition()
        self._has_news = self._is_over = False
        self._thread: threading.Thread | None = None

    def saved(self) -> None:
        """Let the latest checkpoint be sent, when its time has come."""
        if not self._checkpoint.is_unsent:
            return
        with self._changed:
            self._has_news = True
            self._changed.notify()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="checkpoints", daemon=True)
                self._thread.start()

    def close(self, *, sends_last: bool) -> None:
        """End; `sends_last`: once the latest one is sent, if that takes no longer than it may."""
        with self._changed:
            self._is_over = True
            self._has_news = self._has_news and sends_last
            self._changed.notify()
        if sends_last and self._thread:
            self._thread.join(SEND_SECONDS)

    def _run(self) -> None:
        pause, failures = 0.0, 0
        while self._waits_for_news(pause):
            try:
                with self._connect() as transport:
                    self._checkpoint.send(transport)
                pause, failures = self._checkpoint.rule.every, 0
            except RequestRefused as error:
                if not error.shuts_out:  # it has lost its lease, so the job goes on elsewhere
                    log.warning("a checkpoint is not sent: %s", error)
                    return
                failures += 1
                pause = self._again(error, failures)
            except (TransportError, OSError) as error:
                log.info("a checkpoint waits to be sent: %s", error)
                failures += 1
                pause = self._again(error, failures)

    def _waits_for_news(self, pause: float) -> bool:
        """Rest, and wait for a further checkpoint; False if none follows."""
        rests_until = time.monotonic() + pause
        with self._changed:
            while not self._is_over:
                left = rests_until - time.monotonic()
                if self._has_news and left <= 0:
                    break
                self._changed.wait(left if self._has_news else None)
            found, self._has_news = self._has_news, False
            return found

    def _again(self, error: Exception, failures: int) -> float:
        """Let it be sent again; return the pause until then."""
        with self._changed:
            self._has_news = not self._is_over
        return _PAUSES.after(error, failures, random.random())  # noqa: S311
