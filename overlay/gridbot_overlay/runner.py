"""Runs the constructor round after round, until it is told to stop."""

from __future__ import annotations

import logging
import random
import signal
import threading
import time

from gridbot.errors import GridbotError
from gridbot_overlay.acts import DryActs, RealActs, Say
from gridbot_overlay.construct import Plan
from gridbot_overlay.constructor import Constructor
from gridbot_overlay.settings import Settings
from gridbot_overlay.site import Site
from gridbot_overlay.store import Store

_WRITING_SECONDS = 1.0  # an editor writes a file within
log = logging.getLogger(__name__)


def constructor(site: Site, settings: Settings, store: Store, say: Say) -> Constructor:
    """Put a constructor together.  Raises GridbotError."""
    grids, server = settings.grids, site.server(settings)
    submitters = site.submitters(settings)
    acts = RealActs(grids, submitters, server, store, site.artefact(), say)
    return Constructor(grids, submitters, server, store, acts, say)


def dry_run(site: Site, settings: Settings, say: Say) -> Plan:
    """Do one round on a copy of what the constructor remembers; say what it would do."""
    store = site.store().copy()
    submitters, server = site.submitters(settings), site.server(settings)
    dry = Constructor(settings.grids, submitters, server, store, DryActs(say), say)
    return dry.run_once(time.time())


def run_on(site: Site, store: Store, say: Say, interval_seconds: float) -> None:
    """Look and act every `interval_seconds` until SIGTERM or ^C.  Pilots go on without us.

    The configuration is read anew whenever it has changed; while it is wrong, the last right one
    holds; and so it does until the new one has been the same for a second: an editor may be
    writing it, and pilots of a grid that is missing there would lose their keys.
    """
    stop = _stop_by_signal()
    settings = site.settings()
    current = constructor(site, settings, store, say)
    while not stop.is_set():
        try:
            fresh = site.settings()
            if fresh != settings and not stop.wait(_WRITING_SECONDS) and site.settings() == fresh:
                current = constructor(site, fresh, store, say)
                settings = fresh
                say("the configuration was read anew")
        except GridbotError as error:
            say(str(error))
        try:
            current.run_once(time.time())
        except Exception as error:
            log.exception("this round failed")
            say(f"this round failed: {error!r}")
        # Not in step with other constructors of the same cluster.
        stop.wait(interval_seconds * random.uniform(0.9, 1.1))  # noqa: S311


def _stop_by_signal() -> threading.Event:
    stop = threading.Event()

    def end(*_: object) -> None:
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    return stop
