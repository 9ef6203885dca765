"""Quadratic assignment problems, in the format of QAPLIB: n, then two matrices of n x n.

Facility i gets location k; the cost is the sum of flow(i, j) x distance(k, l) over all ordered
pairs of facilities i, j and their locations k, l.  Format and instances: Burkard, Karisch, Rendl,
"QAPLIB - a quadratic assignment problem library", J. Global Optimization 10 (1997).  Hosts get this
module and `search.py`; both need Python's own library alone.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

Matrix = tuple[tuple[int, ...], ...]

_RESTARTS = 50  # of the heuristic, times the size


class BadProblem(ValueError):
    """A text is no problem that can be solved here; the message says why."""


@dataclass(frozen=True)
class Problem:
    """Distances between locations, and flows between facilities; whole numbers, not negative."""

    distances: Matrix
    flows: Matrix
    is_symmetric: bool  # the same from i to j as from j to i, in both matrices
    step: int  # the least difference of two costs
    symmetries: tuple[tuple[int, ...], ...]  # permutations of locations that change no distance

    @property
    def size(self) -> int:
        """Number of facilities, and of locations."""
        return len(self.flows)

    def cost(self, places: Sequence[int]) -> int:
        """Cost if facility i is at location `places[i]`."""
        return sum(
            flow * self.distances[places[i]][places[j]]
            for i, row in enumerate(self.flows)
            for j, flow in enumerate(row)
        )


def problem_of(distances: Matrix, flows: Matrix) -> Problem:
    """A problem, with what follows from its matrices."""
    is_symmetric = all(rows == tuple(zip(*rows, strict=True)) for rows in (distances, flows))
    has_inner = any(distances[k][k] for k in range(len(flows))) and any(
        flows[i][i] for i in range(len(flows))
    )
    step = 2 if is_symmetric and not has_inner else 1  # each flow counts twice
    return Problem(distances, flows, is_symmetric, step, tuple(_extended((), distances)))


def _extended(begun: tuple[int, ...], distances: Matrix) -> Iterator[tuple[int, ...]]:
    """Yield each way to go on with a permutation of which the first images are known."""
    k = len(begun)
    if k == len(distances):
        yield begun
        return
    for image in set(range(len(distances))).difference(begun):
        images = (*begun, image)
        if all(
            distances[other][k] == distances[images[other]][image]
            and distances[k][other] == distances[image][images[other]]
            for other in range(k + 1)
        ):
            yield from _extended(images, distances)


def parse(text: str) -> Problem:
    """Read a problem; the first matrix has the distances.  Raises BadProblem."""
    try:
        size, *numbers = (int(word) for word in text.split())
    except ValueError as error:
        raise BadProblem(f"expected n and two matrices of whole numbers: {error}") from None
    if size < 2 or len(numbers) != 2 * size * size:
        raise BadProblem(
            f"n is {size}, so two matrices have {2 * size * size} numbers, not {len(numbers)}"
        )
    if (least := min(numbers)) < 0:
        raise BadProblem(f"{least} is negative; the bound is for distances and flows from 0 on")
    rows = [tuple(numbers[at : at + size]) for at in range(0, len(numbers), size)]
    return problem_of(tuple(rows[:size]), tuple(rows[size:]))


def descent(problem: Problem, seed: int = 1) -> list[int]:
    """A good solution: the best of many random ones, each improved by exchanging facilities."""
    chance = random.Random(seed)
    found = [
        _improved(problem, chance.sample(range(problem.size), problem.size))
        for _ in range(_RESTARTS * problem.size)
    ]
    return min(found, key=problem.cost)


def _improved(problem: Problem, places: list[int]) -> list[int]:
    is_better = True
    while is_better:
        is_better = False
        for i in range(problem.size):
            for j in range(i):
                if _change(problem, places, i, j) < 0:
                    places[i], places[j] = places[j], places[i]
                    is_better = True
    return places


def _change(problem: Problem, places: Sequence[int], i: int, j: int) -> int:
    """By how much the cost rises if two facilities change places."""
    flows, distances = problem.flows, problem.distances
    k, m = places[i], places[j]
    change = (flows[i][i] - flows[j][j]) * (distances[m][m] - distances[k][k])
    change += (flows[i][j] - flows[j][i]) * (distances[m][k] - distances[k][m])
    for other, place in enumerate(places):
        if other not in (i, j):
            change += (flows[i][other] - flows[j][other]) * (
                distances[m][place] - distances[k][place]
            )
            change += (flows[other][i] - flows[other][j]) * (
                distances[place][m] - distances[place][k]
            )
    return change
