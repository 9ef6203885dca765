"""Runs the constructor round after round, until it is told to stop."""

from __future__ import annotations

import logging
import random
import signal
import threading
import time

from gridbot.api.errors import GridbotError
from gridbot_overlay.act.acts import DryActs, RealActs
from gridbot_overlay.act.constructor import Constructor
from gridbot_overlay.act.dependencies import Dependencies, Say
from gridbot_overlay.act.store import PilotStore
from gridbot_overlay.act.watch import DemandWatch
from gridbot_overlay.act.workers import PATIENCE_SECONDS, GridWorkers
from gridbot_overlay.decide.construct import Plan
from gridbot_overlay.folder import OverlayFolder
from gridbot_overlay.pilot.artefact import Artefact
from gridbot_overlay.settings import OverlaySettings

_WRITING_SECONDS = 1.0  # an editor writes a file within
_LEAST_SECONDS = 1.0  # between two looks
_NO_HURRY_SECONDS = 600.0  # longer than any question to a grid takes
log = logging.getLogger(__name__)


def run_once(folder: OverlayFolder, store: PilotStore, say: Say) -> Plan:
    """Do one round, and wait for all that it asks of grids.  Raises GridbotError."""
    deps = _dependencies(folder, folder.settings(), store, say, _NO_HURRY_SECONDS)
    return Constructor(deps, RealActs(deps, _artefact(folder, say))).run_once(time.time())


def dry_run(folder: OverlayFolder, say: Say) -> Plan:
    """Do one round on a copy of what the constructor remembers; say what it would do."""
    store = folder.store().copy()
    deps = _dependencies(folder, folder.settings(), store, say, _NO_HURRY_SECONDS)
    return Constructor(deps, DryActs(say)).run_once(time.time())


def run_on(folder: OverlayFolder, store: PilotStore, say: Say, interval_seconds: float) -> None:
    """Look and act every `interval_seconds` until SIGTERM or ^C.  Pilots go on without us.

    It looks at once when BOTs begin, grow or end, but not sooner than a second after the last look.

    The configuration is read anew whenever it has changed; while it is wrong, the last right one
    holds; and so it does until the new one has been the same for a second: an editor may be
    writing it, and pilots of a grid that is missing there would lose their keys.
    """
    settings, artefact = folder.settings(), _artefact(folder, say)
    wake, stop = threading.Event(), threading.Event()
    _stop_by_signal(stop, wake)

    def constructor(of: OverlaySettings) -> Constructor:
        deps = _dependencies(folder, of, store, say, PATIENCE_SECONDS)
        return Constructor(deps, RealActs(deps, artefact))

    current = constructor(settings)
    watch = DemandWatch(folder.server(settings), wake.set)
    while not stop.is_set():
        try:
            fresh = folder.settings()
            if fresh != settings and not stop.wait(_WRITING_SECONDS) and folder.settings() == fresh:
                current = constructor(fresh)
                settings = fresh
                watch.close()
                watch = DemandWatch(folder.server(settings), wake.set)
                say("configuration reloaded")
        except GridbotError as error:
            say(str(error))
        try:
            current.run_once(time.time())
        except Exception as error:
            log.exception("round failed")
            say(f"round failed, retrying: {error!r}")
        stop.wait(_LEAST_SECONDS)
        # Not in step with other constructors of the same cluster.
        wake.wait(interval_seconds * random.uniform(0.9, 1.1) - _LEAST_SECONDS)  # noqa: S311
        wake.clear()


def _artefact(folder: OverlayFolder, say: Say) -> Artefact:
    say("building the pilots' archive; the first time pip downloads wheels for it")
    built = folder.artefact()
    say(f"pilots' archive: {built}")
    return built


def _dependencies(
    folder: OverlayFolder, settings: OverlaySettings, store: PilotStore, say: Say, patience: float
) -> Dependencies:
    return Dependencies(
        grids=settings.grids,
        submitters=folder.submitters(settings),
        server=folder.server(settings),
        store=store,
        pins=folder.pins(settings),
        say=say,
        workers=GridWorkers(patience),
    )


def _stop_by_signal(*events: threading.Event) -> None:
    def end(*_: object) -> None:
        for event in events:
            event.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
