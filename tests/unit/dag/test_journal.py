"""The journal: what it holds after a crash, and who may have it; HTCondor's reader and our log."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from gridbot.api.errors import GridbotError
from gridbot.dag.engine import events
from gridbot.dag.engine.engine import DagEngine
from gridbot.dag.event_log import record_of
from gridbot.dag.journal import VERSION, RunJournal, is_held
from gridbot.dag.language.reader import Reading


def test_a_torn_last_line_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "x.dag.journal"
    journal = RunJournal(path)
    journal.append([{"journal": VERSION}, {"event": "began"}])
    journal.close()
    whole = path.read_bytes()
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        again = RunJournal(path)
        assert len(again.documents) == whole[:cut].count(b"\n")
        again.append([{"journal": VERSION}])
        again.close()
        assert path.read_bytes().endswith(b"}\n")


def test_one_process_has_a_journal(tmp_path: Path) -> None:
    path = tmp_path / "x.dag.journal"
    journal = RunJournal(path)
    assert is_held(path)
    with pytest.raises(GridbotError, match="another process") as told:
        RunJournal(path)
    assert "dag run" not in str(told.value)  # flows have journals, too
    journal.close()
    assert not is_held(path)


@pytest.mark.skipif(
    importlib.util.find_spec("htcondor2") is None, reason="HTCondor's library is not here"
)
def test_htcondor_reads_our_event_log(tmp_path: Path) -> None:
    import htcondor2

    (tmp_path / "x.dag").write_text("JOB A a.sub\nSCRIPT PRE A p\nSCRIPT POST A q\nPRE_SKIP A 5")
    engine = DagEngine(Reading(base=tmp_path).read(["x.dag"]))
    state = engine.table.nodes["A"]
    state.cluster = 17
    happened = (
        events.NodeSubmitted("A", 17, 4),
        *(events.JobStarted("A", process) for process in range(4)),
        events.JobEnded("A", 0, 0),
        events.JobEnded("A", 1, 3),
        events.JobEnded("A", 2, -9),
        events.JobRemoved("A", 3, "cancelled by its owner"),
        events.ScriptEnded("A", "POST", 4),
        events.ScriptEnded("A", "PRE", 5),
    )
    log = tmp_path / "x.dag.nodes.log"
    log.write_text("".join(record_of(event, state, 1_800_000_000.0) for event in happened))
    read = list(htcondor2.JobEventLog(str(log)).events(stop_after=0))
    kinds = htcondor2.JobEventType
    assert [event.type for event in read] == [
        *[kinds.SUBMIT] * 4, *[kinds.EXECUTE] * 4, *[kinds.JOB_TERMINATED] * 3, kinds.JOB_ABORTED,
        kinds.POST_SCRIPT_TERMINATED, kinds.PRESKIP,
    ]  # fmt: skip
    assert [(event.cluster, event.proc) for event in read[:4]] == [(17, n) for n in range(4)]
    ended = read[8:11]
    assert [event.get("ReturnValue") for event in ended] == [0, 3, None]
    assert ended[2]["TerminatedBySignal"] == 9
