"""Pilots' wheels for overlays of tests: fetched once in a run, and not for each overlay."""

import atexit
import functools
import shutil
import tempfile
from pathlib import Path

from gridbot_overlay.pilot.artefact import build


@functools.cache
def _built() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="gridbot-wheels-"))
    atexit.register(shutil.rmtree, folder)
    build(folder)
    return folder


def lay_wheels(overlay: Path) -> Path:
    """Give an overlay's folder the wheels; return where its artefact is built."""
    artefact = overlay / "artefact"
    artefact.mkdir(parents=True, exist_ok=True)
    if not (artefact / "wheels").exists():
        (artefact / "wheels").symlink_to(_built() / "wheels")
    return artefact
