"""What A-REX is told, and what is read from its answers."""

from pathlib import Path

import pytest
from tests.orders import make_order

from gridbot_overlay.decide.model import Grid, PilotShape, PilotState
from gridbot_overlay.submitters import GridError
from gridbot_overlay.submitters.arc import Arc, descriptions, facts, state_of


def test_one_description_asks_for_the_whole_pilot_and_the_operators_relations_come_last() -> None:
    shape = PilotShape(cpus=4, memory_mb=3001, walltime_seconds=61)
    text = descriptions(make_order("gb-x", "", '(queue="q")', shape=shape), [0])
    assert text.startswith('&(executable="/bin/sh")(arguments="pilot.sh")')
    assert text.endswith('(queue="q")')
    for part in ('(jobname="gb-x")', '(count="4")', '(memory="751")', '(wallTime="2")'):
        assert part in text


def test_several_descriptions_are_one_multi_request_with_a_name_each() -> None:
    text = descriptions(make_order("gb-x", "", count=2), [7, 8])
    assert text.startswith("+(&(")
    assert '(jobname="gb-x+7")' in text
    assert '(jobname="gb-x+8")' in text


def test_no_description_holds_the_script_which_has_a_key() -> None:
    assert "SECRET" not in descriptions(make_order("gb-x", "SECRET"), [0])


@pytest.mark.parametrize(
    ("own", "told", "state"),
    [
        ("ACCEPTED", "ACCEPTED", PilotState.QUEUED),
        ("PREPARING", "RUNNING", PilotState.QUEUED),
        ("INLRMS", "ACCEPTED", PilotState.QUEUED),  # the collector is behind
        ("INLRMS", "QUEUING", PilotState.QUEUED),
        ("INLRMS", "HELD", PilotState.HELD),
        ("INLRMS", "RUNNING", PilotState.RUNNING),
        ("FINISHED", "ACCEPTED", PilotState.ENDED),
        ("DELETED", "", PilotState.ENDED),
        ("", "KILLED", PilotState.ENDED),
        ("a new word", "another one", PilotState.QUEUED),
    ],
)
def test_a_rexs_own_word_goes_before_that_of_its_collector(
    own: str, told: str, state: PilotState
) -> None:
    assert state_of(own, told) is state


def test_of_a_fact_that_is_told_twice_the_last_counts() -> None:
    text = "nodename=n1\nCommand exited with non-zero status 5\nexitcode=1\nexitcode=5\n"
    assert facts(text) == {"nodename": "n1", "exitcode": "5"}


@pytest.mark.parametrize("url", ["", "http://ce.example/arex", "ce.example", "https:///arex"])
def test_a_url_that_is_none_of_an_a_rex_is_refused_by_name(url: str, tmp_path: Path) -> None:
    with pytest.raises(GridError, match="option url"):
        Arc(Grid(name="g", kind="arc", options={"url": url}), tmp_path)


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b'{"id": {"colour": 1}}', b'{"id": 1}'])
def test_a_damaged_record_of_jobs_is_an_error_that_names_it(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "arc.json").write_bytes(content)
    order = make_order("gb-x", "")
    ce = Grid(name="g", kind="arc", options={"url": "https://localhost:9/arex"})
    with pytest.raises(GridError, match=r"arc\.json cannot be read") as refused:
        Arc(ce, tmp_path).submit(order)
    assert refused.value.is_lasting
