"""What a job description in RSL becomes."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from gridbot.api.errors import BadInput
from gridbot.rsl.requests import convert
from gridbot.rsl.syntax import parse

HOME = {"HOME": "/home/ada"}


def fields(text: str, base: Path = Path()) -> dict[str, Any]:
    return convert(parse(text), HOME, base).fields


def test_a_conjunction_is_a_bot() -> None:
    found = fields(
        "&(executable = ./prog)(arguments = -n '{5}' $(HOME)/x)(environment = (A 1)(B $(HOME)))"
        "(count = 3)(maxWallTime = 90)(max_time = 60)(min_memory = 100)(maxMemory = 200)"
        "(file_stage_in = (data/a.csv a.csv))(file_stage_out = (out.txt file:///tmp/o))"
        "(stdin = in.txt)(queue = fast)"
    )
    assert found == {
        "name": "prog",
        "command": ["./prog", "-n", "{{5}}", "/home/ada/x"],
        "env": {"A": "1", "B": "/home/ada"},
        "items": range(3),
        "time": 3600.0,
        "memory": 200,
        "inputs": ["data/a.csv=a.csv", "in.txt"],
        "outputs": ["stdout", "out.txt"],
        "stdin": "in.txt",
        "policy": 'GridPolicy = Grid.Name == "fast";',
        "base": Path(),
    }


def test_a_multi_request_is_a_gang_of_all_its_processes(tmp_path: Path) -> None:
    (tmp_path / "worker").write_text("#!/bin/sh\n")
    found = fields(
        '+(&(executable = /bin/echo)(arguments = "it\'s")(max_wall_time = 5))'
        "(&(executable = ./worker)(count = 2)(environment = (N 7))(max_wall_time = 9))",
        tmp_path,
    )
    assert found["command"] == ["sh", "-c", "{line}"]
    assert [item["line"] for item in found["items"]] == [
        "exec env /bin/echo 'it'\"'\"'s'",
        "exec env N=7 ./worker",
        "exec env N=7 ./worker",
    ]
    assert (found["together"], found["time"], found["inputs"]) == (3, 540.0, ["./worker"])


@pytest.mark.parametrize(
    "text",
    [
        "|(&(executable = a)(queue = q1))(&(executable = a)(queue = q2))",
        "&(executable = a)(|(queue = q1)(queue = q2))",
        "&(executable = a)(|(resourceManagerContact = q1:2119/jobmanager)(queue = q2))",
    ],
)
def test_alternatives_leave_the_choice_of_a_grid_to_the_overlay(text: str) -> None:
    assert fields(text)["policy"] == 'GridPolicy = Grid.Name == "q1" || Grid.Name == "q2";'


def test_a_single_process_gets_all_cores() -> None:
    found = fields("&(executable = a)(job_type = single)(count = 4)")
    assert found["cpus"] == 4
    assert "items" not in found


def test_substitutions_hold_for_the_rest_of_a_description() -> None:
    found = fields("&(rsl_substitution = (D $(HOME)/d))(executable = $(D)/prog)")
    assert found["command"] == ["/home/ada/d/prog"]


def test_what_says_nothing_here_is_told() -> None:
    made = convert(
        parse("&(executable = a)(two_phase = 60)(stdout = out)(dry_run = yes)"), {}, Path()
    )
    assert [note.split()[0] for note in made.notes] == ["two_phase", "stdout"]
    assert made.is_dry_run


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("&(count = 2)", "executable is missing"),
        ("&(executable = a)(count = none)", "count = none: expected a number"),
        ("&(executable = a)(count = 0)", "count = 0: expected a number"),
        ("&(executable = a)(directory = /tmp)", "directory is not supported; there are"),
        ("&(executable = a)(job_type = mpi)", "job_type 'mpi': single or multiple"),
        ("&(executable = a)(executable != b)", "executable != b: expected = after executable"),
        ("&(executable = a)(file_stage_in = (http://x/y y))", "only local files are sent"),
        ("|(&(executable = a))(&(executable = b))", "alternatives may differ in queue"),
        ("+(+(executable = a))", "a multi-request within another"),
        ("&(executable = a)(queue = 'x\" || true')", "is no name of a grid"),
        ("&(executable = $(NOWHERE))", "nothing defines the variable NOWHERE"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_attribute(text: str, why: str) -> None:
    with pytest.raises(BadInput) as refused:
        fields(text)
    assert why in str(refused.value)


# Each letter is twice the one before: O has 163,840 characters.
DOUBLED = [f"(rslSubstitution = ({b} $({a})$({a})))" for a, b in pairwise("ABCDEFGHIJKLMNO")]
TENFOLD = "(rslSubstitution = (A 0123456789))(executable = a)"


@pytest.mark.parametrize(
    ("doublings", "values"),
    [
        (14, "a"),
        (11, "$(L)$(L)"),
        (5, "$(F)" * 300),
        (5, "$(F) " * 300),
        (5, "($(F) a)" * 300),
        (11, "$($(L)$(L) a)"),
        (11, "$(X $(L)$(L))"),
    ],
)
def test_what_variables_give_is_bounded(doublings: int, values: str) -> None:
    text = f"&{TENFOLD}{''.join(DOUBLED[:doublings])}(arguments = {values})"
    with pytest.raises(BadInput, match="variables give more than 65536 characters"):
        fields(text)


def test_variables_may_give_much_to_each_part_of_a_multi_request() -> None:
    text = f"&{TENFOLD}(arguments = {'$(A)' * 6000})"
    assert len(fields(text)["command"][1]) == 60_000
    assert [len(item["line"]) > 60_000 for item in fields(f"+({text})({text})")["items"]] == [
        True,
        True,
    ]
