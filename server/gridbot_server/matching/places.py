"""How many replicas of a size a host could start at once, beside those that it has.  Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from gridbot_client.protocol.messages import Resources
from gridbot_server.matching.requirements import number

_MOST_NODES = 1_000_000  # more are taken to be nonsense that a host says


def free_places(host: Mapping[str, Any], wanted: Resources, held: Mapping[Resources, int]) -> float:
    """Return for how many replicas that want so much the host has cores and memory free.

    `host` is its ad; what that does not say bounds nothing.  `held` counts the replicas that the
    host has, by what they may use.  On a pilot of several nodes a replica has cores of one of them;
    one that is larger than a node has nodes for itself.  The nodes are taken to be filled one after
    the other, as clients fill them.
    """
    nodes = max(1, int(min(number(host.get("NumNodes")) or 1, _MOST_NODES)))
    cpus, memory_mb = number(host.get("NumCpus")), number(host.get("Memory"))
    by_cpus = by_memory = math.inf
    if cpus is not None:
        of_cpus = [(item.cpus, count) for item, count in held.items()]
        by_cpus = _free(cpus, nodes, wanted.cpus, of_cpus)
    if memory_mb is not None:
        of_memory = [(item.memory_mb, count) for item, count in held.items()]
        by_memory = _free(memory_mb, nodes, wanted.memory_mb, of_memory)
    return min(by_cpus, by_memory)


def _free(total: float, nodes: int, wanted: int, held: Iterable[tuple[int, int]]) -> float:
    """Return how many that want so much of one resource fit beside those that are held."""
    if not wanted:
        return math.inf
    node = total // nodes
    if node < 1:
        return 0
    used = sum(_used(size, count, node) for size, count in held)
    full, begun = divmod(used, node)
    if wanted > node:  # it has unused nodes
        unused = nodes - math.ceil(used / node)
        return max(0, unused // min(nodes, math.ceil(wanted / node)))
    if full >= nodes:
        return 0
    return (nodes - full - 1) * (node // wanted) + (node - begun) // wanted


def _used(size: int, count: int, node: float) -> float:
    """Return what so many of one size take, with what is left over of the nodes that they fill."""
    if not size or not count:
        return 0
    if size > node:
        return count * math.ceil(size / node) * node
    full = (count - 1) // (node // size)
    return full * node + (count - full * (node // size)) * size
