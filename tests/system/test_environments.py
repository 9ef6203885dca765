"""What jobs share on a host: a directory travels as one archive, and is unpacked once."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tests.system.deployment import Deployment, eventually
from tests.unit.client.test_archives import contents, made

LIST = (
    "import json, os, pathlib; top = pathlib.Path('deps');"
    " print(json.dumps(sorted(str(p.relative_to(top)) for p in top.rglob('*'))))"
)
PYTHON = shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin") or "/usr/bin/python3"


def stdouts(server: Deployment, bot: int) -> list[str]:
    with server.session() as session:
        return [result.stdout for result in sorted(session.bot(bot).results(), key=lambda r: r.seq)]


def unpacked(server: Deployment, client: str) -> list[Path]:
    """The shared folders of a client, with their marks."""
    return sorted((server.folder / client / "shared").glob("*/mark.json"))


def test_jobs_see_a_directory_with_all_that_is_odd_in_it(running: Deployment) -> None:
    source = made(running.folder / "here" / "deps")
    running.client("first", "--cpus", "2")
    bot = running.submit(
        *("--range", "0:5", "--input", f"{source}=deps", "--", PYTHON, "-c", LIST, "{}")
    )
    running.wait(bot)
    assert [json.loads(text) for text in stdouts(running, bot)] == [sorted(contents(source))] * 5
    assert len(unpacked(running, "first")) == 1
    again = running.submit(
        *("--input", f"{source}=deps", "--", "sh", "-c", "deps/link; cat deps/.hidden/.f2py_f2cmap")
    )
    running.wait(again)
    assert stdouts(running, again) == ["dots"]
    assert len(unpacked(running, "first")) == 1


def test_no_job_writes_into_a_directory_and_the_next_one_sees_it_whole(running: Deployment) -> None:
    source = made(running.folder / "whole" / "deps")
    running.client("whole", "--cpus", "1")
    script = (
        "cat deps/secret; echo bad > deps/secret || echo refused; rm -r deps/.hidden; ls -A deps"
    )
    bot = running.submit(
        *("--range", "0:3", "--exit-codes", "any", "--input", f"{source}=deps"),
        *("--output", "stdout", "--output", "deps/*", "--", "sh", "-c", script, "{}"),
    )
    running.wait(bot)
    first, *others = stdouts(running, bot)
    assert "for its ownerrefused" in first
    assert ".hidden" in first
    assert others == [first, first]


def test_a_retry_brings_another_directory(running: Deployment) -> None:
    source = running.folder / "retry" / "deps"
    source.mkdir(parents=True)
    (source / "module.py").write_text("raise SystemExit(3)\n")
    running.client("retry", "--cpus", "1")
    bot = running.submit(
        *("--attempts", "1", "--input", f"{source}=deps", "--", PYTHON, "deps/module.py")
    )
    running.wait(bot)
    assert running.show(bot)["jobs_failed"] == 1
    (source / "module.py").write_text("print('mended')\n")
    running.run("bot", "retry", str(bot), "--input", f"{source}=deps")
    running.wait(bot)
    assert stdouts(running, bot) == ["mended\n"]


def test_a_client_that_was_killed_while_unpacking_begins_anew(running: Deployment) -> None:
    source = running.folder / "many" / "deps"
    source.mkdir(parents=True)
    for number in range(20_000):
        (source / str(number)).touch()
    running.client("killed", "--cpus", "1")
    bot = running.submit("--input", f"{source}=deps", "--", "sh", "-c", "ls deps | wc -l")
    eventually(lambda: list((running.folder / "killed" / "shared").glob("*/tree/1*")))
    running.kill_client("killed")
    running.client("killed", "--cpus", "1")
    running.wait(bot)
    assert stdouts(running, bot) == ["20000\n"]
    assert len(list((running.folder / "killed" / "shared").iterdir())) == 1
