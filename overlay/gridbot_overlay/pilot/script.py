"""Renders the job script of a pilot: what the node's shell does, then its Python.  Pure."""

from __future__ import annotations

import json
import shlex
from importlib import resources

from gridbot_overlay.decide.model import Grid
from gridbot_overlay.pilot.artefact import Artefact

_START = resources.files(__package__).joinpath("start.py").read_text(encoding="utf-8")
_END = "GRIDBOT_START"


def render(grid: Grid, server_url: str, token: str, artefact: Artefact) -> str:
    """Return the shell script that starts one pilot of the grid.

    `token` is a pilots' key, which says whom they serve.  The submitter tells each pilot its tag
    and index by GRIDBOT_PILOT_TAG and GRIDBOT_PILOT_INDEX.
    """
    shape = grid.shape
    settings = {
        "server": server_url,
        "token": token,
        "artefact": artefact.sha256,
        "artefact_path": str(artefact.path),  # where nodes share a file system with us
        "walltime": shape.walltime_seconds,
        "arguments": [
            *("--cpus", str(shape.cpus), "--memory", str(shape.memory_mb)),
            *("--exit-when-idle", str(shape.idle_seconds)),
            *(["--dedicated"] if grid.is_dedicated else []),
        ],
    }
    lines = [
        "umask 077",
        *grid.setup,
        f"named={shlex.quote(grid.python)}",
        # Its whole path: a Python that was found without PATH (HTCondor) does not know itself.
        'python=$(command -v "$named") || {',
        '    echo "gridbot pilot: $(hostname) has no $named: set python or setup of this grid" >&2',
        "    exit 3",
        "}",
        f'export GRIDBOT_SCRATCH="{grid.scratch}"',
        f"exec \"$python\" - <<'{_END}'",
        # In no environment, where each of the pilot's jobs could read the key.
        f"SETTINGS = {json.dumps(settings)!r}",
        _START.rstrip("\n"),
        _END,
    ]
    return "\n".join(lines) + "\n"
