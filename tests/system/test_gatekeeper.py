"""Stock clients of ARC submit through a gatekeeper that is killed: each job runs once."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.system.arc_clients import ArcUser, Gatekeeper, gatekeeper
from tests.system.batch_systems import open_folder
from tests.system.deployment import Deployment, eventually

# GRIDBOT_TEST_ARC_JOBS=100 is the whole trial, which takes some minutes.
JOBS = int(os.environ.get("GRIDBOT_TEST_ARC_JOBS", "4"))
SCRIPT = """#!/bin/sh
while test -e "$1"; do sleep 0.05; done
cat >out/copy
echo "$2 $GREETING"
echo "to stderr" >&2
"""


@pytest.fixture
def arc(running: Deployment) -> Iterator[tuple[Gatekeeper, ArcUser]]:
    with open_folder("gatekeeper") as folder, gatekeeper(running, folder) as made:
        yield made


def test_each_job_runs_once_whenever_the_gatekeeper_is_killed(
    running: Deployment, arc: tuple[Gatekeeper, ArcUser]
) -> None:
    keeper, user = arc
    running.client("laptop")
    gate = running.gate()
    (user.home / "run.sh").write_text("#!/bin/sh\nmkdir out\n" + SCRIPT.partition("\n")[2])
    number = dict[str, int]()
    for index in range(JOBS):
        (user.home / "in.txt").write_text(f"input {index}\n")
        xrsl = (
            f'&(executable=run.sh)(arguments="{gate.path}" {index})(stdin=in.txt)'
            '(inputFiles=(run.sh "")(in.txt ""))(outputFiles=(out/copy ""))(stdout=o.txt)'
            f'(stderr=e.txt)(environment=(GREETING "{{hello}}"))(jobName=job{index})(wallTime=60)'
        )
        # Both ways: to an address, and to what its description of itself says.
        number[user.submit(keeper.url, xrsl, *(("-Q", "NONE") if index % 2 else ()))] = index
        if index in (JOBS // 3, 2 * JOBS // 3):
            keeper.kill_and_start()
    eventually(lambda: "Running" in user.states().values(), what="a running job")
    keeper.kill_and_start()
    gate.open()
    eventually(
        lambda: set(user.states().values()) == {"Finished"}, 60.0 + 3.0 * JOBS, what="their ends"
    )
    keeper.kill_and_start()

    with running.session() as session:
        made = session.bots(limit=10_000)
    assert sorted(bot.name for bot in made) == sorted(f"job{index}" for index in range(JOBS))
    for job, index in number.items():
        user.run("arcget", job)
        found = user.home / job.rpartition("/")[2]
        names = {str(path.relative_to(found)) for path in found.rglob("*") if path.is_file()}
        assert names == {"out/copy", "o.txt", "e.txt"}
        assert (found / "out/copy").read_text() == f"input {index}\n"
        assert (found / "o.txt").read_text() == f"{index} {{hello}}\n"
        assert (found / "e.txt").read_text() == "to stderr\n"
    assert "No jobs" in user.run("arcstat", "-a", code=1)  # arcget has cleaned them
    assert list((keeper.folder / "gatekeeper/files").iterdir()) == [
        keeper.folder / "gatekeeper/files/parts"
    ]


def test_jobs_fail_are_killed_and_cleaned(
    running: Deployment, arc: tuple[Gatekeeper, ArcUser]
) -> None:
    keeper, user = arc
    running.client("laptop")
    failed = user.submit(
        keeper.url,
        '&(executable=/bin/sh)(arguments="-c" "echo oh; echo no >&2; exit 3")(stdout=o)(join=yes)',
    )
    killed = user.submit(keeper.url, "&(executable=/bin/sleep)(arguments=600)(jobName=k)")
    eventually(lambda: user.states().get(killed) == "Running", what="a running job")
    user.run("arckill", killed)
    eventually(
        lambda: user.states() == {failed: "Failed", killed: "Killed"}, what="the ends of both"
    )
    assert "Exit Code: 3" in user.run("arcstat", "-l", failed)
    assert user.run("arccat", failed) == "oh\nno\n"
    user.run("arcclean", "-a")
    assert "No jobs" in user.run("arcstat", "-a", code=1)


def test_what_cannot_be_run_here_is_refused_with_its_reason(
    arc: tuple[Gatekeeper, ArcUser],
) -> None:
    keeper, user = arc
    said = user.run(
        "arcsub", "-C", keeper.url, "-T", "arcrest", "-Q", "NONE", "-d", "INFO",
        "-e", "&(executable=/bin/true)(queue=fast)", code=1,
    )  # fmt: skip
    assert "queue fast: the only queue is gridbot" in said
    assert keeper.kill(signal.SIGTERM) == 0
    assert Path(keeper.folder / "gatekeeper.log").read_text().count("Traceback") == 0
    keeper.start()
