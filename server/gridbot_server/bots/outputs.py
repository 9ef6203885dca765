"""Which outputs of a replica are wanted, and how large they may become."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from gridbot_client.protocol.manifest import DEFAULT_MAX_OUTPUT_BYTES
from gridbot_client.protocol.messages import Manifest, Scalar
from gridbot_client.protocol.output_names import is_pattern, output_names
from gridbot_server.errors import RequestError

_MB = 1 << 20


def is_wanted(name: str, manifest: Manifest, args: Mapping[str, Scalar]) -> bool:
    """Whether the name is an output's of the job, or matches a pattern, part by part.

    Raises TemplateError.
    """
    parts = name.split("/")
    for output in output_names(manifest, args):
        patterns = output.name.split("/")
        if len(patterns) == len(parts) and all(map(fnmatchcase, parts, patterns)):
            return True
    return False


def check_sizes(outputs: Sequence[str], most: int, disk: int, largest: int) -> None:
    """Raise RequestError if a replica could never deliver `most` bytes of these outputs.

    They must fit on its disk, in MB, and each file into `largest` bytes, the server's limit
    (`max_output_bytes` in settings.json).  The default of `most` is nobody's wish, so it passes.
    """
    if most == DEFAULT_MAX_OUTPUT_BYTES:
        return
    if most > disk * _MB:
        raise RequestError(
            f"max_output_bytes: {most} is more than the disk of a job, {disk} MB"
            " (resources.disk_mb), where outputs lie until they are sent"
        )
    count = len(outputs)
    if most > count * largest and not any(map(is_pattern, outputs)):
        raise RequestError(
            f"max_output_bytes: {most} is more than {count} output{'s' if count > 1 else ''} can"
            f" have: this server takes files of at most {largest} bytes ({largest // _MB} MB)"
        )
