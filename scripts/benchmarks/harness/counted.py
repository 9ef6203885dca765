"""A web process's engine without its sockets, so that what it does can be counted.

A program of its own, for any commit's environment: it imports nothing of this checkout.  It answers
pickled messages on its standard input.  `None` asks how many first copies are in the buffer.  A
list is a batch of HTTP requests, which the engine serves in one transaction; a tuple is such a
batch after which both threads call `getloadavg`, where callgrind writes what it counted of them.
"""

from __future__ import annotations

import gc
import os
import pickle
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gridbot_server.api.rpc import UNCHECKED_BYTES
from gridbot_server.buffer.buffer import SchedulingBuffer
from gridbot_server.dispatch.engine import Engine
from gridbot_server.http import auth
from gridbot_server.web import fast_http

_NEVER_SECONDS = 1e6


def _serve(engine: Engine, requests: Sequence[bytes], mark: bool) -> list[bytes]:
    """Answer requests that are all queued before the writer thread sees the first of them."""
    answered: list[Any] = []
    all_here = threading.Event()

    def tell(item: Any) -> None:
        answered.append(item)
        if len(answered) == len(requests):
            if mark:
                os.getloadavg()
            all_here.set()

    for request in requests:
        plain: Any = fast_http.read(request, UNCHECKED_BYTES)
        body = request[plain.start : plain.size]
        engine.begin(auth.token_hash(plain.authorization), body, tell)
    all_here.wait()
    replies = [item.result().render() for item in answered]
    if mark:
        os.getloadavg()
    return replies


def main(dsn: str, buffer_path: Path) -> None:
    """Serve until there is no more input."""
    sys.setswitchinterval(_NEVER_SECONDS)  # the writer waits until this thread does
    gc.disable()
    engine, ready = Engine(dsn, buffer_path), SchedulingBuffer(buffer_path)
    while True:
        try:
            message = pickle.load(sys.stdin.buffer)
        except EOFError:
            break
        if message is None:
            answer: Any = sum(segment.fresh for segment in ready.segments())
        else:
            answer = _serve(engine, message, isinstance(message, tuple))
        pickle.dump(answer, sys.stdout.buffer)
        sys.stdout.buffer.flush()
    engine.close()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
