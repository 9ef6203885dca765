"""What hosts say that they hold of a BOT's inputs, as its policies see it.

Nobody checks it: a host that lies gets some BOTs before others, and fetches what it lacks.  Only
inputs of the BOT itself are shown to its policies, so that no owner asks hosts for others' files.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from gridbot_client.protocol.cached import LEAST_BYTES, cache_name, mark_of
from gridbot_client.protocol.manifest import Manifest
from gridbot_policies import PolicySet
from gridbot_policies.classad import Record, record

_MB = 1 << 20


class SharedInput(NamedTuple):
    """An input of all jobs of a BOT, large enough for hosts to tell of it."""

    sha256: str
    bytes: int


SharedInputs = Mapping[str, SharedInput]  # by mark


def shared_inputs(manifest: Manifest, policies: PolicySet) -> SharedInputs | None:
    """The inputs that hosts may tell of; None if the policies do not look at that."""
    if not policies.looks_at_caches:
        return None
    return {
        mark_of(cache_name(ref.sha256, manifest.owner if ref.name in manifest.sources else "")): (
            SharedInput(ref.sha256, ref.size)
        )
        for ref in manifest.inputs
        if ref.size >= LEAST_BYTES
    }


def with_cached(host: Record, inputs: SharedInputs, marks: Collection[str]) -> Record:
    """The ad of a host that told of these marks, with what it holds of the inputs of a BOT."""
    held = [inputs[mark] for mark in marks if mark in inputs]
    told = {
        "CachedMB": sum(item.bytes for item in held) / _MB,
        "Cached": [item.sha256 for item in held],
    }
    return host.overlaid(record(told))
