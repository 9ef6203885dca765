"""Reuse on a real server and client: what runs again, and what says so."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.system.deployment import NO_COPIES, Deployment

from gridbot import Flow, Session


@pytest.fixture
def session(
    running: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Session]:
    monkeypatch.chdir(tmp_path)
    running.client("worker", "--cpus", "4")
    with running.session() as made:
        yield made


def test_a_flow_that_runs_again_runs_only_what_depends_on_what_has_changed(
    session: Session, running: Deployment
) -> None:
    made = running.folder / "made"
    made.mkdir()

    def run(right: str) -> list[str]:
        """The outputs of the last step; all jobs note that they have run."""
        for file, text in (("left", "left\n"), ("right", right)):
            Path(file).write_text(text)
        flow = Flow("virtual", session, reuse=True, policy=NO_COPIES)
        copy = f'echo "$0" >> {made}/ran; cat "$0"'
        firsts = [
            flow.bot(["sh", "-c", copy, name], inputs=[name], name=name)
            for name in ("left", "right")
        ]
        # Too large to travel in a report.
        grow = f'echo over >> {made}/ran; cat "$0" > o; seq 20000 >> o'
        seconds = [
            flow.bot(["sh", "-c", grow, "{}"], one.outputs["stdout"], outputs=["o"], name="over")
            for one in firsts
        ]
        last = flow.bot(
            ["sh", "-c", f"echo last >> {made}/ran; head -qn1 */o"],
            inputs=[one.outputs["o"] for one in seconds],
            name="last",
        )
        flow.run()
        return sorted(last.results[0].stdout.split())

    def ran() -> list[str]:
        text = (made / "ran").read_text() if (made / "ran").exists() else ""
        (made / "ran").unlink(missing_ok=True)
        return sorted(text.split())

    assert (run("right\n"), ran()) == (["left", "right"], ["last", "left", "over", "over", "right"])
    assert (run("right\n"), ran()) == (["left", "right"], [])
    assert (run("wrong\n"), ran()) == (["left", "wrong"], ["last", "over", "right"])
    session.invalidate("left")
    assert (run("wrong\n"), ran()) == (["left", "wrong"], ["last", "left", "over"])
    running.run("server", "check", "--data", str(running.data))


def test_the_command_reuses_and_says_why_a_file_is_as_it_is(
    session: Session, running: Deployment, tmp_path: Path
) -> None:
    (tmp_path / "in.txt").write_text("five\n")
    command = ["submit", "--reuse", "--range", "0:20", "--wait", "--json", "--input", "in.txt"]
    command += ["--", "sh", "-c", "cat in.txt; echo $0", "{}"]

    def reused() -> int:
        return int(json.loads(running.run(*command))["jobs_reused"])

    assert (reused(), reused()) == (0, 20)
    number = session.bots()[0].id
    out = tmp_path / "out.txt"
    (seventh,) = (result for result in session.bot(number).results() if result.seq == 7)
    seventh.outputs["stdout"].save(out)
    told = running.run("data", "why", str(out)).splitlines()
    assert f"job 7 of BOT {number} (sh): sh -c 'cat in.txt; echo $0' 7" in told[0]
    assert (told[1][:8], told[1][-11:]) == ("  in.txt", "sent by you")
    crate = json.loads(running.run("data", "why", "--crate", str(out)))["@graph"]
    (action,) = (item for item in crate if item["@type"] == "CreateAction")
    named = {item["@id"]: item for item in crate}
    assert [named[item["@id"]]["name"] for item in action["object"]] == ["in.txt"]
    gone = running.run("data", "invalidate", str(out))
    assert gone.startswith("2 jobs of 2 BOTs not reused")
    assert reused() == 19
    assert "no job of yours" in running.run("data", "why", "f" * 64, code=4)
