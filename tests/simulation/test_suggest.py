"""Claims about `gridbot policy suggest`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gridbot.show.suggestion import suggestion_page
from gridbot_policies import PolicySet, examples
from gridbot_policies.policy.policy_set import MAX_POLICY_BYTES
from gridbot_simulator.candidates import PRESENT, candidates
from gridbot_simulator.suggestion import choose, suggest, undominated

SMALL: dict[str, Any] = {
    "jobs": 40,
    "seconds": (300.0, 400.0),
    "hosts": [("collaborative", 10)],
    "seeds": 2,
}
POINTS = {"quick": (10.0, 9.0), "between": (12.0, 6.0), "cheap": (20.0, 5.0), "bad": (21.0, 9.0)}


# ------------------------------------------------------------------------------- candidates


def test_twenty_policies_at_most_are_tried_and_the_server_takes_each() -> None:
    for name in examples.names():
        texts = candidates(examples.text(name))
        assert len(texts) == len(set(texts)) <= 20
        assert next(iter(texts.values())) == examples.text(name)
        for text in texts.values():
            PolicySet.parse(text)


def test_what_a_policy_says_of_other_things_stays_in_each_candidate() -> None:
    own = 'OnLinux = Host.OpSys == "LINUX"; JobRequirements = OnLinux || false; Rank = 7;'
    for text in candidates(own).values():
        assert 'Host.OpSys == "LINUX"' in text
        assert "OnLinux || false" in text
        assert "Rank = 7;" in text


def test_a_condition_of_the_owner_holds_also_where_the_tail_is_left_to_reliable_hosts() -> None:
    text = candidates("jobrequirements = Host.A || Host.B;")["no copies, reliable"]
    assert "(Host.A || Host.B) && (!Tail || Host.ErrorRate < 0.1)" in text
    assert text.casefold().count("jobrequirements") == 1


def test_what_would_be_too_long_for_the_server_is_not_tried() -> None:
    room = MAX_POLICY_BYTES - len('Long = "";JobRequirements = true;')
    long = f'Long = "{"x" * room}";JobRequirements = true;'
    assert len(candidates("Rank = 7;")) == 20
    assert list(candidates(long)) == [PRESENT]
    for text in candidates(long.replace("x", "", 120)).values():
        PolicySet.parse(text)


# ------------------------------------------------------------------------------- the choice


def test_the_frontier_has_those_that_no_other_beats_in_time_and_in_cost() -> None:
    assert undominated(POINTS) == ["quick", "between", "cheap"]
    assert undominated({"a": (1.0, 1.0), "b": (1.0, 1.0)}) == ["a"]
    assert undominated({"a": (1.0, 1.0), "b": (1.01, 1.01)}, 0.03) == ["a", "b"]


def test_time_cost_and_balance_prefer_the_ends_of_the_frontier_and_its_knee() -> None:
    assert [choose(POINTS, prefer) for prefer in ("time", "cost", "balance")] == [
        "quick",
        "cheap",
        "between",
    ]


def test_what_is_preferred_is_the_least_on_the_frontier_and_is_checked_under_other_seeds() -> None:
    told: list[str] = []
    found = suggest(SMALL, examples.text("p1"), "cost", told.append)
    on = [item for item in found["candidates"] if item["on_frontier"]]
    costs = {item["policy"]: item["figures"]["cpu_hours"]["median"] for item in on}
    chosen = found["chosen"]
    assert costs[chosen["policy"]] == min(costs.values())
    assert chosen["policy"] != PRESENT  # it replicates whatever runs
    assert chosen["against_present"]["cpu_hours"]["mean"] < 0
    assert told[0] == "1 of 40: present policy, seed 1"
    assert any("seed 4" in line for line in told) and not any("seed 5" in line for line in told)


def test_a_bot_that_ends_under_no_policy_gets_none() -> None:
    never = "JobRequirements = Host.Memory > 1000000;"
    with pytest.raises(ValueError, match=r"ends under no policy .*: no host had a replica"):
        suggest({**SMALL, "jobs": 2, "hosts": [("collaborative", 1)], "seeds": 1}, never, "time")


def test_a_choice_is_not_called_better_for_what_was_not_preferred() -> None:
    found = suggest({**SMALL, "jobs": 4, "seeds": 1}, "", "cost", str)
    more, less = ({"verdict": "real", "mean": x, "low": x, "high": x} for x in (9.0, -9.0))
    found["chosen"]["against_present"] = {"makespan_seconds": more, "cpu_hours": less}
    in_vain = "It is not shown to be better"
    assert in_vain in suggestion_page({**found, "prefer": "time"})
    assert in_vain not in suggestion_page({**found, "prefer": "cost"})


# ------------------------------------------------------------------------------ the command

OPTIONS = ("--jobs", "40", "--time", "5m..6m", "--hosts", "collaborative:10", "--seeds", "1")


def command(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gridbot", "policy", *words],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )


def test_what_is_printed_is_a_policy_file_with_the_findings_in_its_comments(
    tmp_path: Path,
) -> None:
    found = command("suggest", *OPTIONS, "--prefer", "time")
    assert found.returncode == 0, found.stderr
    assert "// Chosen for the least makespan: " in found.stdout
    assert "frontier, its knee" in found.stdout
    assert "1 of 20: present policy, seed 1" in found.stderr
    file = tmp_path / "tail.ad"
    file.write_text(found.stdout, encoding="utf-8")
    checked = command("check", "--strict", str(file))
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_same_seeds_give_the_same_bytes() -> None:
    one, other = (command("suggest", *OPTIONS, "--json", PYTHONHASHSEED=n) for n in ("1", "2"))
    assert one.returncode == 0, one.stderr
    assert one.stdout == other.stdout
    document = json.loads(one.stdout)
    assert document["chosen"]["policy"] in {item["policy"] for item in document["candidates"]}
