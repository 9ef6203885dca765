"""How `scripts/boinc-replay` reads recorded requests and judges answers."""

from __future__ import annotations

from pathlib import Path

import pytest
from scripts.boinc_replay import captured, report
from scripts.boinc_replay.run import judge
from scripts.boinc_replay.wire import Answer


@pytest.mark.parametrize(
    ("status", "body", "way", "fault"),
    [
        (200, b"<scheduler_reply>\n<dont_use_dcf/>\n</scheduler_reply>\n", "mutated", ""),
        (200, b"<scheduler_reply>\n", "mutated", "no whole reply"),
        (
            200,
            b"<scheduler_reply>\n<dont_use_dcf/>\n</scheduler_reply>\n",
            "whole",
            "not acknowledged: j_ok_r0",
        ),
        (400, b"", "broken off", ""),
        (500, b"oops", "cut", "status 500"),
        (0, b"", "cut", "no answer"),
    ],
)
def test_a_bad_answer_is_found_out(status: int, body: bytes, way: str, fault: str) -> None:
    request = captured.Captured("x", "POST", captured.SCHEDULER)
    asked = b"<result>\n    <name>j_ok_r0</name>"
    found = judge(request, asked, way, Answer(status, body, 1.0))
    assert fault in found if fault else found == ""


def test_an_exception_in_a_log_is_found_out(tmp_path: Path) -> None:
    said = {
        "postgresql.log": "LOG:  ready\nERROR:  deadlock detected\n",
        "daemons.log": "INFO fine\nTraceback (most recent call last):\n",
        "feeder.log": "INFO nothing\nWARNING no errors\n",
        "gunicorn.log": "[17:00] [INFO] Booting worker\nreplica 1 was given to nobody\n",
    }
    for name, text in said.items():
        (tmp_path / name).write_text(text)
    found = [line.partition(":")[0] for line in report.exceptions(tmp_path, {})]
    assert found == ["daemons.log", "gunicorn.log", "postgresql.log"]
    assert report.exceptions(tmp_path, report.sizes(tmp_path)) == []


def test_recorded_requests_are_read_as_they_were_sent(tmp_path: Path) -> None:
    head = "User-Agent: x\nContent-Length: 3\n\n"
    (tmp_path / "1.txt").write_text(
        f"### 05:57\nPOST /ok/cgi HTTP/1.1\n{head}a\nb\n\n### REPLY 200"
    )
    (tmp_path / "2.txt").write_text(f"### 05:57\nPOST /x/cgi HTTP/1.1\n{head}a\nb\n\n### REPLY 200")
    (tmp_path / "3.txt").write_text("### 05:58\nGET /download/f HTTP/1.1\nHost: x\n\n\n\n### REPLY")
    found = [(item.method, item.path, item.body) for item in captured.read(tmp_path)]
    assert found == [("POST", "scheduler", b"a\nb"), ("GET", "download/f", b"")]
