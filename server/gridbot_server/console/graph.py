"""The geometry of a workflow's graph: layers from left to right, in SVG's own units.  Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gridbot_server.console.figures import BarPart, bar
from gridbot_server.models.responses.workflows import WorkflowLayer, WorkflowNode, WorkflowSummary

_WIDTH, _HEIGHT = 160, 26  # of a node's box
_ACROSS, _DOWN = 50, 8  # between two boxes
_MARGIN = 4
_MOST_IN_COLUMN = 20  # boxes; a layer with more has several columns
_CHARACTERS = 20  # of a name that fit into a box

_STATES = (
    ("done", "done"),
    ("failed", "failed"),
    ("running", "running"),
    ("futile", "cannot run"),
    ("waiting", "waiting"),
)  # in the order of bars, with the words of legends


@dataclass(frozen=True, slots=True)
class Box:
    """A node, where it is drawn."""

    node: WorkflowNode
    label: str
    x: int
    y: int


@dataclass(frozen=True, slots=True)
class Graph:
    """A drawing: its size, its boxes, and the path of each edge."""

    width: int
    height: int
    boxes: Sequence[Box]
    paths: Sequence[str]
    box_width: int = _WIDTH
    box_height: int = _HEIGHT


def drawing(nodes: Sequence[WorkflowNode], edges: Sequence[tuple[int, int]]) -> Graph:
    """Place nodes in columns by their layers, near those that they come after."""
    parents: dict[int, list[int]] = {}
    for before, after in edges:
        parents.setdefault(after, []).append(before)
    places = _places(nodes, parents)
    boxes = [Box(node, _label(node.name), *places[number]) for number, node in enumerate(nodes)]
    width = max((x for x, _ in places.values()), default=0) + _WIDTH + _MARGIN
    height = max((y for _, y in places.values()), default=0) + _HEIGHT + _MARGIN
    return Graph(width, height, boxes, [_path(places[a], places[b]) for a, b in edges])


def _places(
    nodes: Sequence[WorkflowNode], parents: Mapping[int, Sequence[int]]
) -> dict[int, tuple[int, int]]:
    """Left upper corners, by the nodes' numbers."""
    layers: dict[int, list[int]] = {}
    for number, node in enumerate(nodes):
        layers.setdefault(node.layer, []).append(number)
    places: dict[int, tuple[int, int]] = {}
    column = 0
    for _, layer in sorted(layers.items()):
        layer.sort(key=lambda number: _mean_height(parents.get(number, ()), places))
        for place, number in enumerate(layer):
            across, down = divmod(place, _MOST_IN_COLUMN)
            x = _MARGIN + (column + across) * (_WIDTH + _ACROSS)
            places[number] = (x, _MARGIN + down * (_HEIGHT + _DOWN))
        column += 1 + (len(layer) - 1) // _MOST_IN_COLUMN
    return places


def _mean_height(numbers: Sequence[int], places: Mapping[int, tuple[int, int]]) -> float:
    known = [places[number][1] for number in numbers if number in places]
    return sum(known) / len(known) if known else 0.0


def _path(before: tuple[int, int], after: tuple[int, int]) -> str:
    """From the right side of a box to the left side of another."""
    x, y = before[0] + _WIDTH, before[1] + _HEIGHT // 2
    to_x, to_y = after[0], after[1] + _HEIGHT // 2
    bend = _ACROSS // 2
    return f"M{x},{y}C{x + bend},{y} {to_x - bend},{to_y} {to_x},{to_y}"


def _label(name: str) -> str:
    """A name that fits: of a long one its beginning and its end, in which names differ most."""
    if len(name) <= _CHARACTERS:
        return name
    return f"{name[: _CHARACTERS // 2]}…{name[1 - _CHARACTERS // 2 :]}"


def node_parts(run: WorkflowSummary) -> list[BarPart]:
    """Return the pieces of a workflow's bar."""
    counts = [(kind, label, int(getattr(run, f"nodes_{kind}"))) for kind, label in _STATES]
    return bar(counts, run.nodes_total)


def layer_parts(layer: WorkflowLayer) -> list[BarPart]:
    """Return the pieces of the bar of one layer."""
    counts = [(kind, label, int(getattr(layer, kind))) for kind, label in _STATES]
    return bar(counts, sum(count for _, _, count in counts))
