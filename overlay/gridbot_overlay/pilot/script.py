"""Renders the job script of a pilot: what the node's shell does, then its Python.  Pure."""

from __future__ import annotations

import json
import re
import shlex
from importlib import resources

from gridbot_overlay.decide.model import Grid
from gridbot_overlay.decide.set_up import set_up
from gridbot_overlay.pilot.artefact import Artefact
from gridbot_overlay.pilot.pins import PilotPins

_TEMPLATE = resources.files(__package__).joinpath("job.sh").read_text(encoding="utf-8")
_START = resources.files(__package__).joinpath("start.py").read_text(encoding="utf-8")
_PLACEHOLDER = re.compile("@(setup|python|scratch|settings|start)@")


def render(
    grid: Grid, server_url: str, token: str, artefact: Artefact, pins: PilotPins, now: float,
    *, is_probe: bool = False,
) -> str:  # fmt: skip
    """Return the shell script that starts one pilot of the grid.

    `token` is a pilots' key, which says whom they serve; `now` is when they are submitted, in
    seconds since 1970.  A probe examines its node and leaves: it joins no server, and
    fetches the artefact even where that is at hand.  The submitter tells each pilot its tag
    and index by GRIDBOT_PILOT_TAG and GRIDBOT_PILOT_INDEX.
    """
    shape = grid.shape
    settings = {
        "server": server_url,
        "token": token,
        "artefact": artefact.sha256,
        # Where nodes share a file system with us.
        "artefact_path": "" if is_probe else str(artefact.path),
        "is_probe": is_probe,
        "submitted_at": now,
        "walltime": shape.walltime_seconds,
        "arguments": [
            *("--cpus", str(shape.all_cpus), "--memory", str(shape.nodes * shape.memory_mb)),
            *("--gpus", str(shape.gpus)),
            *("--exit-when-idle", str(shape.idle_seconds)),
            *(["--dedicated"] if grid.is_dedicated else []),
            *(["--shared-cache", grid.shared_cache] if grid.shared_cache else []),
            *pins.arguments,
        ],
    }
    values = {
        "setup": set_up(grid.setup),
        "python": shlex.quote(grid.python),
        "scratch": grid.scratch,
        # In no environment, where each of the pilot's jobs could read the key.
        "settings": repr(json.dumps(settings)),
        "start": _START.rstrip("\n"),
    }
    # In one pass: what an operator wrote is never taken for a placeholder.
    return _PLACEHOLDER.sub(lambda found: values[found[1]], _TEMPLATE)
