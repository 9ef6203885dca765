"""Which outputs of a replica are wanted."""

from __future__ import annotations

from fnmatch import fnmatchcase

from gridbot_client.protocol.messages import Manifest


def is_wanted(name: str, manifest: Manifest) -> bool:
    """Whether the name is an output's or matches a pattern, part by part."""
    parts = name.split("/")
    for output in manifest.outputs:
        patterns = output.split("/")
        if len(patterns) == len(parts) and all(map(fnmatchcase, parts, patterns)):
            return True
    return False
