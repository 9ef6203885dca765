"""Branch and bound with the Gilmore-Lawler bound.

A node is a partial assignment: pairs of a facility and its location.  Its bound is the cost of what
is assigned, and the optimum of a linear assignment problem: the cost of facility i at location k is
what it has with those that are assigned, and at least the sum of its flows to the others, greatest
first, times the distances from there, least first (Gilmore, SIAM J. 10 (1962); Lawler, Management
Science 9 (1963)).  The dual solution bounds the children, too: that with i at k costs at least the
reduced cost of the pair more.  A node is divided by the facility, or by the location, of which the
fewest children remain (polytomic branching, as Mautor and Roucairol, Discrete Applied Mathematics
55 (1994)).  While what is assigned leaves reflections of the locations open, a facility tries one
location of each that they map onto each other.

What a node gives depends on the node and the best known cost alone, so with a best cost that does
not change the tree is the same, in whatever order and on how many machines it is searched.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from operator import mul, sub
from typing import Any

from scripts.assignment.problem import Problem

Node = tuple[int, ...]  # facility, location, facility, location, ...
_EXACT = 2  # with so few facilities left the bound is the cost


@dataclass
class Search:
    """A search: open nodes, with lower bounds of what is below them, and what was found."""

    open: list[tuple[int, Node]]  # bound, node; the last one is next
    best: int  # cost of the best solution known; only better ones are of interest
    places: list[int] | None = None  # of a better solution
    nodes: int = 0  # that were bounded
    digest: int = 0  # of the nodes' names, in any order


def explore(problem: Problem, search: Search, seconds: float) -> Search:
    """Go on, depth first, until no node is open or the time is over; at least one node."""
    ends_at = time.perf_counter() + seconds
    while search.open:
        _visit(problem, search)
        if time.perf_counter() >= ends_at:
            break
    return search


def widen(problem: Problem, search: Search, count: int) -> Search:
    """Go on with the node of fewest pairs, until so many are open, or none."""
    while search.open and len(search.open) < count:
        search.open.sort(key=lambda entry: -len(entry[1]))
        _visit(problem, search)
    return search


def work(problem: Problem, task: Mapping[str, Any]) -> dict[str, Any]:
    """What a host does: a slice of a search, from and to JSON."""
    nodes = [(bound, tuple(node)) for bound, node in task["open"]]
    search = explore(problem, Search(nodes, task["best"]), task["seconds"])
    return asdict(search)


def _visit(problem: Problem, search: Search) -> None:
    bound, node = search.open.pop()
    if bound <= search.best - problem.step:
        search.nodes += 1
        search.digest = (search.digest + zlib.crc32(bytes(node))) % 2**64
        _divide(problem, search, node)


def _divide(problem: Problem, search: Search, node: Node) -> None:
    limit = search.best - problem.step + 1  # a cost from here on is of no interest
    facilities, locations, fixed, costs = relaxation(problem, node)
    value, u, v, columns = assigned(costs, limit - fixed)
    value += fixed
    if value >= limit:
        return
    if len(facilities) <= _EXACT:
        pairs = dict(zip(node[::2], node[1::2], strict=True))
        pairs.update((i, locations[columns[at]]) for at, i in enumerate(facilities))
        search.best, search.places = value, [pairs[i] for i in range(problem.size)]
        return
    reduced = [
        [value + cost - by for cost, by in zip(map(sub, row, v), [less] * len(v), strict=True)]
        for row, less in zip(costs, u, strict=True)
    ]
    children = _fewest(problem, node, reduced, facilities, locations, limit)
    children.sort(reverse=True)  # the most promising one is next
    search.open.extend(children)


def relaxation(problem: Problem, node: Node) -> tuple[list[int], list[int], int, list[list[int]]]:
    """Free facilities, free locations, the cost of what is assigned, and a linear problem.

    Its costs are lists by facility, of lists by location.
    """
    flows, distances = problem.flows, problem.distances
    taken, places = node[::2], node[1::2]
    facilities = [i for i in range(problem.size) if i not in taken]
    locations = [k for k in range(problem.size) if k not in places]
    fixed = sum(
        flows[i][j] * distances[k][m]
        for i, k in zip(taken, places, strict=True)
        for j, m in zip(taken, places, strict=True)
    )
    rows, columns = [], []
    for i in facilities:
        row = flows[i]
        if problem.is_symmetric:
            known = [2 * row[j] for j in taken]
        else:
            known = [row[j] for j in taken] + [flows[j][i] for j in taken]
        others = sorted([row[j] for j in facilities if j != i])
        rows.append([row[i], *known, *others])
    for k in locations:
        row = distances[k]
        known = [row[m] for m in places]
        if not problem.is_symmetric:
            known += [distances[m][k] for m in places]
        others = sorted([row[m] for m in locations if m != k], reverse=True)
        columns.append([row[k], *known, *others])
    return (
        facilities,
        locations,
        fixed,
        [[sum(map(mul, row, column)) for column in columns] for row in rows],
    )


def assigned(
    costs: Sequence[Sequence[int]], limit: int
) -> tuple[int, list[int], list[int], list[int]]:
    """Solve a linear assignment problem: its optimum, dual values of rows and columns, and columns.

    `columns` says which column each row gets.  Once the optimum is known to be `limit` or more,
    a lower bound of it that is so is returned, and the rest is of no use.  Shortest augmenting
    paths, after reductions of columns and rows: Jonker and Volgenant, Computing 38 (1987).
    """
    size = len(costs)
    v = [min(column) for column in zip(*costs, strict=True)]
    u = []
    row_of, column_of = [-1] * size, [-1] * size
    for i, row in enumerate(costs):
        slack = list(map(sub, row, v))
        least = min(slack)
        u.append(least)
        for j, value in enumerate(slack):
            if value == least and row_of[j] < 0:
                row_of[j], column_of[i] = i, j
                break
    value = sum(u) + sum(v)
    for start in range(size):
        if column_of[start] >= 0:
            continue
        if value >= limit:
            break
        value += _augment(costs, u, v, row_of, column_of, start)
    return value, u, v, column_of


def _augment(
    costs: Sequence[Sequence[int]], u: list[int], v: list[int], row_of: list[int],
    column_of: list[int], start: int,
) -> int:  # fmt: skip
    """Give the row `start` a column along a shortest path; return by how much the optimum rises."""
    todo = list(range(len(v)))
    row, less = costs[start], u[start]
    distance = [cost - less - by for cost, by in zip(row, v, strict=True)]
    before = [start] * len(v)
    scanned: list[int] = []
    while True:
        j = min(todo, key=distance.__getitem__)
        reached = distance[j]
        todo.remove(j)
        i = row_of[j]
        if i < 0:
            break
        scanned.append(j)
        row, less = costs[i], u[i] - reached
        for other in todo:
            length = row[other] - less - v[other]
            if length < distance[other]:
                distance[other], before[other] = length, i
    u[start] += reached
    for column in scanned:
        rise = reached - distance[column]
        v[column] -= rise
        u[row_of[column]] += rise
    while True:  # along the path, each row gets the column that it reached
        i = before[j]
        row_of[j], column_of[i], j = i, j, column_of[i]
        if i == start:
            return reached


def _fewest(
    problem: Problem, node: Node, bounds: list[list[int]], facilities: list[int],
    locations: list[int], limit: int,
) -> list[tuple[int, Node]]:  # fmt: skip
    """Children of a node that may be better than `limit`, divided so that they are few."""
    distinct = _distinct(problem, node[1::2], locations)
    choices = []
    for row, i in zip(bounds, facilities, strict=True):
        choices.append([(row[at], (*node, i, locations[at])) for at in distinct])
    for at, k in enumerate(locations):
        choices.append(
            [(row[at], (*node, i, k)) for row, i in zip(bounds, facilities, strict=True)]
        )
    best = min(choices, key=lambda children: _rating(children, limit))
    return [child for child in best if child[0] < limit]


def _rating(children: list[tuple[int, Node]], limit: int) -> tuple[int, int]:
    """Less is better: how many children remain, and then how low their bounds are."""
    remaining = [bound for bound, _ in children if bound < limit]
    return len(remaining), -sum(remaining)


def _distinct(problem: Problem, places: Sequence[int], locations: list[int]) -> list[int]:
    """Indexes of free locations, one of each that symmetries map onto each other.

    Of the symmetries those count that leave what is assigned in its place.
    """
    fixing = [each for each in problem.symmetries if all(each[k] == k for k in places)]
    return [at for at, k in enumerate(locations) if all(k <= symmetry[k] for symmetry in fixing)]
