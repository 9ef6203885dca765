"""Pilots and their constructor behind a router that lets nothing in and one port out."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace

from tests.overlay_wheels import lay_wheels
from tests.system.overlays import Overlay, overlay

from . import behind_nat
from .behind_nat import Site
from .measure import Outcome, follow, outcome, seen_lives, submit
from .networks import inside
from .place import CPUS, NODES, Place, Run

NAME = "nat"
_GRID = "site"
_OPTIONS = ("--walltime", "30m", "--max-running", str(NODES * CPUS))


def play(place: Place, jobs: int, seconds: float, say: Callable[[str], None]) -> Outcome:
    """Run a BOT on pilots of such a site, and try the ways that its router must close."""
    with (
        behind_nat.site(place.server.port, say) as site,
        overlay(place.server, NAME, with_defaults=True) as made,
    ):
        leaks = list(site.leaks())
        say(f"ways that are open: {leaks or 'one port of the server, from inside'}")
        _configure(made, site)
        lay_wheels(made.folder)  # from the Internet, where the site is not
        bot = submit(place.server, jobs, seconds)
        with inside(site.nodes):
            made.start()
        run = Run(place, made, bot, jobs, say)
        course = follow(run)
        sent = made.pilots(_GRID)
    found = outcome(NAME, run, seconds, course, seen_lives(sent), sent)
    return replace(found, faults=(*leaks, *found.faults))


def _configure(made: Overlay, site: Site) -> None:
    """Add the grid, which pins keys where the owner's is; then name the server as the site does."""
    made.add("local", _GRID, *_OPTIONS)
    key = shutil.copy(made.server.settings.operator_key_path, made.server.folder / "site.key")
    server = f"[server]\nurl = {json.dumps(site.url)}\nkey_file = {json.dumps(str(key))}\n"
    configured = made.folder / "overlay.toml"
    configured.write_text(server + configured.read_text())
