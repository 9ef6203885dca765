"""What the server's own processes share: arguments, log, and an orderly end."""

from __future__ import annotations

import argparse
import logging
import signal
import threading
from collections.abc import Callable
from pathlib import Path

from gridbot_server.settings import Settings
from gridbot_server.supervision.garbage import collect_rarely

LOG_FORMAT = "%(asctime)s %(name)s %(levelname)s %(message)s"


def run_process(name: str, run: Callable[[Settings, threading.Event], None]) -> None:
    """Call `run` with the settings of `--data DIR` and an event that SIGTERM or ^C sets."""
    parser = argparse.ArgumentParser(prog=f"gridbot-{name}")
    parser.add_argument("--data", type=Path, required=True, help="data directory of the server")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    collect_rarely()
    run(Settings.load(arguments.data), stop)
