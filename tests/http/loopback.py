"""An application on a real socket, and a network that loses its replies."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from werkzeug.serving import make_server

Wsgi = Callable[[dict[str, Any], Any], Iterable[bytes]]


@contextmanager
def serve(app: Wsgi, port: int = 0) -> Iterator[str]:
    """Serve an application in a thread; give its URL."""
    server = make_server("127.0.0.1", port, app, threaded=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass
class LosesReplies:
    """Lets the application do its work, then cuts the connection before it can answer.

    `lose` holds (method, end of the path); each is lost once.
    """

    app: Wsgi
    lose: list[tuple[str, str]]
    seen: list[tuple[str, str]] = field(default_factory=list)

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        request = (environ["REQUEST_METHOD"], environ["PATH_INFO"])
        self.seen.append(request)
        answer = self.app(environ, start_response)
        for method, end in self.lose:
            if request[0] == method and request[1].endswith(end):
                self.lose.remove((method, end))
                b"".join(answer)
                environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
                return []
        return answer
