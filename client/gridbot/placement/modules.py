"""Programs that do one transfer, by name: Stork's rule, `stork.transfer.SOURCE-DESTINATION`.

They are called with the two URLs and the request's arguments, and exit with 0 when the file is
there.  Otherwise the first line that they print says why.  Our own gets the URLs on its standard
input: others on this machine see arguments, and URLs may bear passwords.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from gridbot.placement.queue import Placement

FOLDERS = "GRIDBOT_DATA_MODULES"  # like PATH; Stork's own variable names one folder
_FOLDER_OF_STORK = "STORK_MODULE_DIR"


@dataclass(frozen=True)
class ModuleCall:
    """Program and arguments, and what it gets on its standard input."""

    argv: list[str]
    given: bytes = b""


def call_of(placement: Placement, environment: Mapping[str, str]) -> ModuleCall:
    """How the next attempt is made: by a module of the user's, or by our own."""
    pair, request = placement.pair, placement.request
    urls = [
        request.source.by(pair.source).url,
        request.destination.by(pair.destination).url,
    ]
    name = f"stork.transfer.{pair.source}-{pair.destination}"
    folders = [
        *environment.get(FOLDERS, "").split(os.pathsep),
        environment.get(_FOLDER_OF_STORK, ""),
    ]
    for folder in filter(None, folders):
        module = os.path.join(folder, name)
        if os.access(module, os.X_OK) and os.path.isfile(module):
            return ModuleCall([module, *urls, *shlex.split(request.arguments)])
    given = json.dumps([*urls, request.sha256]).encode()
    return ModuleCall([sys.executable, "-P", "-m", "gridbot.placement.module"], given)
