"""What GRAM is asked, what is remembered of it, and what its answers mean."""

import base64
import gzip
import re
from ctypes.util import find_library
from pathlib import Path
from typing import Any

import pytest
from tests.orders import make_order

from gridbot_overlay.decide.model import Grid, PilotState
from gridbot_overlay.submitters import (
    KINDS,
    GridError,
    Submitter,
    gram_client,
    gram_jobs,
    gram_rsl,
)
from gridbot_overlay.submitters.commands import Commands
from gridbot_overlay.submitters.gram import GramAnswer, learn, sighting
from gridbot_overlay.submitters.gram_jobs import GramJob, Journal, Phase

CONTACT = "https://gate.example:40001/1/2/"


def make_job(**fields: Any) -> GramJob:
    return GramJob(
        **{"tag": "gb-1", "index": 0, "contact": CONTACT, "phase": Phase.COMMITTED, **fields}
    )


def test_a_pilot_is_asked_for_in_two_phases_and_restartable() -> None:
    rsl = gram_rsl.pilot(make_order("gb-1"), 0, "gb-1.0", "/logs/e")
    for relation in (
        "(two_phase=300)",
        "(save_state=yes)",
        "(max_wall_time=10)",
        '(stderr="/logs/e")',
    ):
        assert relation in rsl
    assert rsl.startswith("&(")


def test_the_script_travels_unseen_and_its_key_is_not_handed_on() -> None:
    order = make_order("gb-1", 'echo "$GRIDBOT_NATIVE_ID${GRIDBOT_SCRIPT-}${X509_USER_PROXY-}"')
    rsl = gram_rsl.pilot(order, 3, "gb-1.3", "")
    packed = re.search('"GRIDBOT_SCRIPT" "([^"]+)"', rsl)
    start = re.search('"-c" "((?:[^"]|"")+)"', rsl)
    assert packed
    assert start
    there = Commands(environment={"GRIDBOT_SCRIPT": packed[1], "X509_USER_PROXY": "/tmp/x"})
    assert there.run("sh", "-c", start[1].replace('""', '"')) == "gb-1.3\n"
    assert b"GRIDBOT_PILOT_INDEX=3" in gzip.decompress(base64.b64decode(packed[1]))


def test_the_operators_relations_replace_ours_however_they_are_spelt() -> None:
    order = make_order("gb-1", "x", "(maxMemory=7)", "(queue=long)")
    rsl = gram_rsl.pilot(order, 0, "gb-1.0", "")
    assert "max_memory" not in rsl
    assert rsl.endswith("(maxMemory=7)(queue=long)")


@pytest.mark.parametrize("directive", ["(two_phase=1)", "(saveState = no)", "( restart=x)"])
def test_what_the_protocol_needs_is_not_the_operators(directive: str) -> None:
    with pytest.raises(GridError, match="are ours") as caught:
        gram_rsl.pilot(make_order("gb-1", "x", directive), 0, "gb-1.0", "")
    assert caught.value.is_lasting


def test_a_test_asks_for_the_same_and_for_no_job() -> None:
    rsl = gram_rsl.test(make_order("check", "", "(queue=long)"))
    assert "(max_wall_time=10)" in rsl
    assert "(dry_run=yes)(queue=long)" in rsl
    assert "two_phase" not in rsl


def test_quotes_end_no_text() -> None:
    assert gram_rsl.restart('a"b') == '&(restart="a""b")'


def test_a_request_that_grams_messages_cannot_hold_is_refused() -> None:
    noise = "".join(f"{number * 2654435761 % 4294967296:08x}" for number in range(30_000))
    with pytest.raises(GridError, match="bytes") as caught:
        gram_rsl.pilot(make_order("gb-1", noise), 0, "gb-1.0", "")
    assert caught.value.is_lasting


@pytest.mark.parametrize(
    ("answer", "state", "reason", "phase"),
    [
        (GramAnswer(error=0, state=1), PilotState.QUEUED, "", Phase.COMMITTED),
        (GramAnswer(error=0, state=2), PilotState.RUNNING, "", Phase.COMMITTED),
        (GramAnswer(error=0, state=8), PilotState.ENDED, "", Phase.ENDED),
        (
            GramAnswer(error=0, state=4, failure=17, reason="bad"),
            PilotState.ENDED,
            "bad",
            Phase.ENDED,
        ),
        (
            GramAnswer(error=0, state=4, failure=8, reason="x"),
            PilotState.ENDED,
            "cancelled",
            Phase.ENDED,
        ),
        (
            GramAnswer(error=156, words="no such job"),
            PilotState.ENDED,
            "no such job",
            Phase.RELEASED,
        ),
        (GramAnswer(error=0, state=4096), PilotState.RUNNING, "", Phase.COMMITTED),
    ],
)
def test_what_a_job_manager_says_is_understood(
    answer: GramAnswer, state: PilotState, reason: str, phase: Phase
) -> None:
    job = make_job()
    learn(job, answer, 5.0)
    seen = sighting(job)
    assert (seen.state, seen.reason, job.phase) == (state, reason, phase)
    assert (seen.tag, seen.native_id, seen.index) == ("gb-1", "gb-1.0", 0)


def test_a_manager_that_does_not_answer_changes_nothing_but_the_reason() -> None:
    job = make_job(state=2)
    learn(job, GramAnswer(error=79, words="connecting failed"), 5.0)
    assert (sighting(job).state, sighting(job).reason) == (PilotState.RUNNING, "connecting failed")


@pytest.mark.parametrize("failure", [130, 131])
def test_a_job_whose_manager_was_stopped_is_not_taken_for_failed(failure: int) -> None:
    assert GramAnswer(error=0, state=4, failure=failure).is_without_manager


def test_a_cancelled_job_that_its_site_forgot_is_still_cancelled() -> None:
    job = make_job(is_cancelled=True)
    learn(job, GramAnswer(error=156, words="no such job"), 5.0)
    assert sighting(job).reason == "cancelled"


def test_the_journal_gives_back_what_was_written_by_prefix(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "jobs")
    jobs = [make_job(), make_job(index=1, phase=Phase.REQUESTED), make_job(tag="other")]
    with journal.locked():
        journal.write(jobs)
        assert journal.read("gb-") == jobs[:2]
        assert journal.read() == jobs


def test_a_submission_is_forgotten_a_day_after_its_last_job_ended(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "jobs")
    ended = {"phase": Phase.RELEASED, "changed_at": 1000.0}
    jobs = [make_job(**ended), make_job(tag="gb-2", **ended), make_job(tag="gb-2", index=1)]
    with journal.locked():
        journal.write(jobs)
        journal.forget(jobs, 1000.0 + 86_000)
        assert journal.read() == jobs
        journal.forget(jobs, 1000.0 + 87_000)
        assert {job.tag for job in journal.read()} == {"gb-2"}


def test_nobody_uses_a_journal_while_another_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gram_jobs, "_LOCK_SECONDS", 0)
    one, other = Journal(tmp_path / "jobs"), Journal(tmp_path / "jobs")
    with one.locked(), pytest.raises(GridError, match="another process") as caught, other.locked():
        pass
    assert not caught.value.is_lasting
    with other.locked():
        assert other.read() == []


def test_a_grid_without_a_gatekeeper_is_refused(tmp_path: Path) -> None:
    with pytest.raises(GridError, match="contact") as caught:
        KINDS["gram"](Grid(name="g", kind="gram"), tmp_path)
    assert caught.value.is_lasting


@pytest.mark.skipif(
    find_library("globus_gram_client") is not None, reason="the Globus Toolkit is installed here"
)
def test_without_the_client_library_it_is_named_and_nothing_is_taken_for_an_empty_list(
    tmp_path: Path,
) -> None:
    submitter = KINDS["gram"](
        Grid(name="g", kind="gram", options={"contact": "gate.example"}), tmp_path
    )
    with pytest.raises(GridError, match="GRAM client library is needed") as caught:
        submitter.submit(make_order("gb-1"))
    assert caught.value.is_lasting
    assert [finding.what for finding in submitter.check() if not finding.is_good] == [
        "proxy",
        "gatekeeper",
    ]


# Stands for the client library: a site whose managers are silent, but for that of `fine`, and that
# takes none of them up again.
_SITE = """\
import json, sys
SILENT, REFUSED = {"error": 79, "words": "no answer"}, {"error": 119, "words": "disk is full"}
for do in (found := json.load(sys.stdin)):
    fine = {"error": 0, "state": 2} if "fine" in do.get("contact", "") else SILENT
    do.update(answer=REFUSED if do["do"] == "request" else fine)
json.dump([do["answer"] for do in found], sys.stdout)
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Submitter:
    program = tmp_path / "site.py"
    program.write_text(_SITE)
    monkeypatch.setattr(gram_client, "__file__", str(program))
    grid = Grid(name="g", kind="gram", options={"contact": "gate.example"})
    return KINDS["gram"](grid, tmp_path / "grid")


@pytest.mark.parametrize("contacts", [["https://fine", "https://lost"], ["https://lost"]])
def test_a_job_whose_manager_cannot_be_restarted_hides_no_other(
    site: Submitter, tmp_path: Path, contacts: list[str]
) -> None:
    journal = Journal(tmp_path / "grid" / "jobs")
    with journal.locked():
        journal.write(
            make_job(index=index, contact=contact, state=2)
            for index, contact in enumerate(contacts)
        )
    seen = site.pilots("gb-")
    assert [pilot.state for pilot in seen] == [PilotState.RUNNING] * len(contacts)
    assert seen[-1].reason == "disk is full"
    with pytest.raises(GridError, match="disk is full"):
        site.cancel([seen[-1].native_id])
