from __future__ import annotations

import random
from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripts.assignment.master import Entry, SearchMaster, pieces
from scripts.assignment.problem import BadProblem, Matrix, Problem, descent, parse, problem_of
from scripts.assignment.search import Search, assigned, explore, relaxation, widen, work

from gridbot import connect

DATA = Path(__file__).resolve().parents[3] / "scripts" / "assignment" / "data"
UNKNOWN = 10**9  # a cost that each solution is better than


def matrix(chance: random.Random, size: int, is_symmetric: bool) -> Matrix:
    rows = [[chance.choice((0, 0, 1, 2, 5)) for _ in range(size)] for _ in range(size)]
    if is_symmetric:
        rows = [[rows[min(i, j)][max(i, j)] * (i != j) for j in range(size)] for i in range(size)]
    return tuple(map(tuple, rows))


def grid(rows: int, columns: int) -> Matrix:
    places = [(row, column) for row in range(rows) for column in range(columns)]
    return tuple(tuple(abs(a - c) + abs(b - d) for c, d in places) for a, b in places)


def on_grid(rows: int, columns: int, seed: int = 1) -> Problem:
    return problem_of(grid(rows, columns), matrix(random.Random(seed), rows * columns, True))


def some(seed: int) -> Problem:
    """Problems of up to six facilities; every third is on a grid."""
    if seed % 3 == 0:
        return on_grid(2, 2 + seed % 2, seed)
    chance = random.Random(seed)
    size, is_symmetric = chance.randint(2, 6), seed % 3 == 1
    return problem_of(*(matrix(chance, size, is_symmetric) for _ in range(2)))


def least(problem: Problem) -> int:
    return min(map(problem.cost, permutations(range(problem.size))))


def searched(problem: Problem, best: int) -> Search:
    return explore(problem, Search([(0, ())], best), 60.0)


@given(st.lists(st.lists(st.integers(0, 9), min_size=4, max_size=4), min_size=4, max_size=4))
def test_a_linear_assignment_is_optimal_and_its_dual_proves_it(costs: list[list[int]]) -> None:
    value, u, v, columns = assigned(costs, UNKNOWN)
    assert value == min(
        sum(costs[i][j] for i, j in enumerate(places)) for places in permutations(range(4))
    )
    assert sorted(columns) == [0, 1, 2, 3]
    assert sum(costs[i][j] for i, j in enumerate(columns)) == value == sum(u) + sum(v)
    assert all(u[i] + v[j] <= costs[i][j] for i in range(4) for j in range(4))


@given(st.integers(0, 10_000), st.data())
def test_the_bound_of_a_node_is_never_above_the_best_below_it(
    seed: int, data: st.DataObject
) -> None:
    problem = some(seed)
    places = data.draw(st.permutations(range(problem.size)))
    depth = data.draw(st.integers(0, problem.size - 1))
    node = tuple(x for i in range(depth) for x in (i, places[i]))
    _, _, fixed, costs = relaxation(problem, node)
    bound = fixed + assigned(costs, UNKNOWN)[0]
    rest = permutations(places[depth:])
    best = min(problem.cost([*places[:depth], *others]) for others in rest)
    assert bound <= best
    if problem.size - depth <= 2:
        assert bound == best


@given(st.integers(0, 10_000))
def test_a_search_finds_the_least_cost(seed: int) -> None:
    problem = some(seed)
    found = searched(problem, UNKNOWN)
    assert found.places is not None
    assert problem.cost(found.places) == found.best == least(problem)


@given(st.integers(0, 10_000))
def test_no_solution_is_better_than_the_best(seed: int) -> None:
    problem = some(seed)
    best = least(problem)
    assert searched(problem, best).places is None
    assert searched(problem, best + problem.step).best == best


def test_costs_differ_by_the_step_at_least() -> None:
    for seed in range(60):
        problem = some(seed)
        costs = {problem.cost(places) for places in permutations(range(problem.size))}
        assert {(cost - min(costs)) % problem.step for cost in costs} == {0}


@pytest.mark.parametrize(("rows", "columns", "count"), [(2, 3, 4), (3, 3, 8), (1, 4, 2)])
def test_a_grids_reflections_and_rotations_are_found(rows: int, columns: int, count: int) -> None:
    problem = on_grid(rows, columns)
    assert len(problem.symmetries) == count
    places = list(range(problem.size))
    cost = problem.cost(places)
    assert {problem.cost([s[k] for k in places]) for s in problem.symmetries} == {cost}


def test_at_the_root_one_location_of_each_orbit_is_tried() -> None:
    problem = on_grid(3, 4)
    root = widen(problem, Search([(0, ())], UNKNOWN), 2)
    assert len(root.open) == 4  # of twelve


def test_slices_and_order_do_not_change_the_tree() -> None:
    problem = on_grid(3, 3)
    best = problem.cost(descent(problem))
    whole = searched(problem, best)
    assert whole.nodes > 30
    chance, nodes, digest = random.Random(1), 0, 0
    waiting: list[list[Entry]] = [[(0, ())]]
    while waiting:
        task = waiting.pop(chance.randrange(len(waiting)))
        part = work(problem, {"open": task, "best": best, "seconds": 0.0})
        nodes, digest = nodes + part["nodes"], (digest + part["digest"]) % 2**64
        waiting += pieces(part["open"], chance.randint(1, 3))
    assert (nodes, digest) == (whole.nodes, whole.digest)


def test_pieces_hold_each_node_once_and_none_is_empty() -> None:
    entries = [(number, tuple(range(number % 4))) for number in range(7)]
    for count in range(1, 10):
        found = pieces(entries, count)
        assert sorted(entry for piece in found for entry in piece) == entries
        assert len(found) == min(count, 7)
        assert all(found)
    assert pieces([], 3) == []


@pytest.mark.parametrize(("name", "cost"), [("nug12", 578), ("nug14", 1014)])
def test_the_heuristic_finds_the_known_optimum(name: str, cost: int) -> None:
    problem = parse((DATA / f"{name}.dat").read_text())
    places = descent(problem)
    assert sorted(places) == list(range(problem.size))
    assert problem.cost(places) == cost


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "whole numbers"),
        ("2 0 1 x", "'x'"),
        ("2 0 1 1 0 0 1 1", "8 numbers, not 7"),
        ("1 0 0", "n is 1"),
        ("2 0 1 1 0 0 -3 1 0", "-3 is negative"),
    ],
)
def test_a_text_that_is_no_problem_is_refused(text: str, told: str) -> None:
    with pytest.raises(BadProblem, match=told):
        parse(text)


@pytest.mark.parametrize(
    "answer",
    [
        None,
        {"open": [], "best": 2},
        {"open": [], "best": 2, "places": [0, 0, 0, 0]},
        {"open": [], "best": 2, "places": [3, 2, 1, 0]},
        {"open": [[0, 7]], "best": UNKNOWN},
        {"open": [[0, ["x"]]], "best": UNKNOWN},
    ],
)
def test_an_answer_that_is_none_is_searched_again(tmp_path: Path, answer: object) -> None:
    (tmp_path / "key").write_text("gb_user_x")
    session = connect("http://127.0.0.1:9", tmp_path / "key")
    the, bound = on_grid(2, 2), UNKNOWN
    with SearchMaster(
        the, tmp_path, session, start=bound, places=None, seconds=1.0, width=1,
        told=lambda _: None, name="search",
    ) as master:  # fmt: skip
        master.begin()
        listed = master.listed
        master.completed([[0, [0, 0]]], answer)
        assert (master.state["refused"], master.state["best"]) == (1, UNKNOWN)
        assert master.listed == listed + 1
