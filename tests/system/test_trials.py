"""What people type from the README alone, in a real terminal, and what they read."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from scripts.trials.terminal import Terminal, TrialFailed, terminal

CHECKOUT = Path(__file__).parents[2]

if shutil.which("tmux") is None and "CI" not in os.environ:
    pytest.skip("tmux is missing", allow_module_level=True)


@pytest.fixture
def person(private_directory: Path) -> Iterator[Terminal]:
    with terminal(private_directory / "vera") as made:
        yield made


def test_a_line_is_typed_and_what_it_prints_is_read_whole(person: Terminal) -> None:
    word = "long" * 100  # wider than the window
    assert person.type(f"echo {word}; pwd").splitlines()[0] == word
    assert person.type("printf unfinished") == "unfinished"
    assert [item.code for item in person.typed] == [0, 0]
    assert len(person.type("seq 500").splitlines()) == 500


def test_an_answer_is_typed_when_the_question_is_there(person: Terminal) -> None:
    person.begin("read -p 'really? ' word; echo said $word")
    person.asked("really?", "yes")
    person.ended("said yes")


def test_what_a_person_does_not_expect_ends_the_trial_with_what_was_said(person: Terminal) -> None:
    with pytest.raises(TrialFailed, match="ended with 3, not 0, and said:\noops"):
        person.type("sh -c 'echo oops; exit 3'")
    with pytest.raises(TrialFailed, match="does not say 'fine'; it said:\noops"):
        person.type("echo oops", "fine")


# What each does stands in scripts/trials, a module for each.  `lab` waits for minutes until a
# killed machine is silent, which tests/system/test_silent_hosts.py shows sooner.
@pytest.mark.timeout(900)
@pytest.mark.parametrize("persona", ["volunteer", "scientist", "moments"])
def test_a_person_reads_what_the_readme_leads_to_expect(persona: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "scripts.trials.cli", persona],
        cwd=CHECKOUT, capture_output=True, text=True, env={**os.environ, "PIP_NO_COMPILE": "1"},
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert "all as expected" in ended.stdout
