"""Gunicorn's settings, from those of the server whose data directory the environment names."""

import os
import resource
from pathlib import Path
from typing import Any

from gridbot_server.settings import DATA_VARIABLE, Settings
from gridbot_server.supervision.garbage import collect_rarely

_MOST_CONNECTIONS = 4096

_settings = Settings.load(Path(os.environ[DATA_VARIABLE]))


def _connections() -> int:
    """How many connections a process may have; the files that it opens beside them are few."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * _MOST_CONNECTIONS
    files = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
    return files // 2


bind = _settings.bind
worker_class = "gridbot_server.web.worker.WebWorker"
workers = _settings.web_workers
threads = _settings.web_threads
worker_connections = _connections()
# Connections that the kernel keeps for us; those beyond try again after a second, at the earliest.
backlog = 4096
keepalive = 30  # seconds; longer than clients wait between small requests
timeout = 60  # seconds without a heartbeat before a worker is killed
graceful_timeout = 8  # seconds; the supervisor waits 10

limit_request_line = 4094
limit_request_fields = 64
limit_request_field_size = 8190

worker_tmp_dir = "/dev/shm"  # noqa: S108  a heartbeat on a busy disk would stall its worker
accesslog = None
errorlog = "-"
control_socket_disable = True  # it would lie in the user's home, one for all servers


def post_worker_init(_worker: Any) -> None:
    """The application is loaded, no request has come yet."""
    collect_rarely()


def worker_exit(_server: Any, worker: Any) -> None:
    """Finish the requests for work that a worker has taken, give its connections back."""
    app = getattr(worker, "wsgi", None)  # none where the application did not start
    if app is not None:
        app.extensions["gridbot"].close()
