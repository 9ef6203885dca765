"""Jobs in containers, by a real rootless Podman: what they see, and how they end."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.containers import Lender, image, needed
from tests.system.deployment import GRIDBOT, NO_COPIES, Deployment, eventually
from tests.system.test_environments import stdouts, unfit, unpacked, wheel
from tests.unit.client.test_archives import made

ROOT = Path(__file__).resolve().parents[2]
# As far from its starter as it gets; no other run of these tests has such sleepers.
SLEEPS = (f"{os.getpid()}1", f"{os.getpid()}2")
LEAVE = f"setsid sleep {SLEEPS[0]} & exec env -i sleep {SLEEPS[1]}"


@pytest.fixture
def lender(running: Deployment) -> Iterator[Lender]:
    """Its clients end as asked, so that Podman's own process ends, too."""
    needed("podman")
    made = Lender(running)
    yield made
    for name in made.pids:
        running.client_ends(f"lender/{name}", signal.SIGINT)


@pytest.fixture(scope="module")
def tiny(shared: Deployment) -> Path:
    return image(shared.folder / "tiny.tar")


def in_image(packed: Path, script: str, *options: str) -> list[str]:
    """Arguments that submit a shell's script; $0 is the job's value."""
    item = ["{}"] if "--range" in options else []
    return ["--image", str(packed), *options, "--", "sh", "-c", script, *item]


def sleepers() -> list[psutil.Process]:
    """Processes of `LEAVE`, whoever is their parent."""
    found = psutil.process_iter(["cmdline", "status"])
    return [one for one in found if set(one.info["cmdline"] or ()) & set(SLEEPS)]


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    yield
    assert sleepers() == []


def test_jobs_run_in_an_image_that_a_host_loads_once(
    running: Deployment, lender: Lender, tiny: Path
) -> None:
    lender.client("loads", "--cpus", "2")
    source = made(running.folder / "in-image" / "deps")
    script = (
        'cat /etc/said; echo " $FROM_IMAGE $OWN $0"; cat deps/.hidden/.f2py_f2cmap data;'
        " echo $0 > out.txt; echo x > /etc/x || echo x > deps/x || echo refused"
    )
    data = running.file("data", " data\n")
    bot = running.submit(
        *in_image(
            tiny, script, "--range", "0:4", "--input", f"{source}=deps", "--input", str(data),
            "--env", "OWN=a,b=c", "--output", "out.txt", "--output", "stdout",
        ),
    )  # fmt: skip
    running.wait(bot, 120.0)
    expected = [f"the image yes a,b=c {job}\ndots data\nrefused\n" for job in range(4)]
    assert stdouts(running, bot) == expected
    with running.session() as session:
        outputs = {result.seq: result.outputs["out.txt"] for result in session.bot(bot).results()}
        assert {seq: output.read() for seq, output in outputs.items()} == {
            seq: f"{seq}\n".encode() for seq in range(4)
        }
    assert len(unpacked(running, "lender/loads")) == 2
    other = running.submit(*in_image(tiny, "cat", "--stdin", "data", "--input", str(data)))
    running.wait(other, 120.0)
    assert stdouts(running, other) == [" data\n"]
    assert len(unpacked(running, "lender/loads")) == 2


def test_a_container_has_no_rights_and_nothing_of_the_machine(
    running: Deployment, lender: Lender, tiny: Path
) -> None:
    folder = lender.client("rights", "--cpus", "1")
    script = (
        f"id -u; cat /proc/self/status; ls {folder}; ls /home /root; cat {folder}/client.json"
        " || echo nothing"
    )
    bot = running.submit(*in_image(tiny, script))
    running.wait(bot, 120.0)
    (said,) = stdouts(running, bot)
    assert said.startswith("0\n")
    for line in ("CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1"):
        assert line in said
    assert said.endswith("\nslots\nnothing\n") or said.endswith("\ncells\nnothing\n")


@pytest.mark.parametrize(
    ("limit", "script", "reason"),
    [
        (("--time", "3"), LEAVE, "time_limit"),
        (("--memory", "50"), "awk 'BEGIN {{ s = 1; while (1) s = s s }}'", "memory_limit"),
        (("--disk", "20"), "dd if=/dev/zero of=/tmp/x bs=1M count=40; sleep 600", "disk_limit"),
    ],
    ids=["time", "memory", "disk"],  # the first script has numbers of this process
)
def test_limits_hold_in_containers(
    running: Deployment, lender: Lender, tiny: Path, limit: tuple[str, str], script: str,
    reason: str,
) -> None:  # fmt: skip
    lender.client("limits", "--cpus", "1")
    bot = running.submit(*in_image(tiny, script, *limit, "--attempts", "1"), policy=NO_COPIES)
    running.wait(bot, 120.0)
    ended = running.rows("SELECT reason FROM ended WHERE bot = %s", bot)
    assert ended == [(reason,)]


def test_a_container_may_take_little_beside_its_runtime(
    running: Deployment, lender: Lender, tiny: Path
) -> None:
    lender.client("little", "--cpus", "2")
    bot = running.submit(*in_image(tiny, "sleep 2", "--range", "0:8", "--memory", "16"))
    running.wait(bot, 120.0)
    assert running.show(bot)["jobs_done"] == 8


def test_nothing_is_left_of_a_container_whose_bot_was_cancelled(
    running: Deployment, lender: Lender, tiny: Path
) -> None:
    lender.client("cancelled", "--cpus", "1")
    bot = running.submit(*in_image(tiny, LEAVE))
    eventually(lambda: len(sleepers()) >= 2, what="the container")
    running.run("bot", "cancel", str(bot))
    eventually(lambda: sleepers() == [], what="the container's end")


def test_nothing_is_left_of_a_container_whose_client_was_killed(
    running: Deployment, lender: Lender, tiny: Path
) -> None:
    lender.client("killed", "--cpus", "1")
    bot = running.submit(*in_image(tiny, LEAVE))
    eventually(lambda: len(sleepers()) >= 2, what="the container")
    running.client_ends("lender/killed", signal.SIGKILL)
    eventually(lambda: sleepers() == [], what="the container's end")
    running.run("bot", "cancel", str(bot))
    lender.client("killed", "--cpus", "1")
    again = running.submit(*in_image(tiny, "cat /etc/said"))
    running.wait(again, 120.0)
    assert stdouts(running, again) == ["the image"]


def test_a_container_that_outlives_client_and_warden_ends_with_the_next_client(
    running: Deployment, lender: Lender, tiny: Path
) -> None:
    lender.client("crashed", "--cpus", "1")
    bot = running.submit(*in_image(tiny, LEAVE))
    eventually(lambda: len(sleepers()) >= 2, what="the container")
    client = psutil.Process(lender.pids["crashed"])
    keepers = [one for one in client.children(recursive=True) if "python" in one.name()]
    for process in (client, *keepers):
        process.suspend()
    for process in (client, *keepers):
        process.kill()
    running.client_ends("lender/crashed")
    running.run("bot", "cancel", str(bot))
    lender.client("crashed", "--cpus", "1")
    eventually(lambda: sleepers() == [], what="the container's end")


def test_a_program_that_is_not_in_the_image_is_no_answer(
    running: Deployment, lender: Lender, tiny: Path
) -> None:
    lender.client("nowhere", "--cpus", "1")
    bot = running.submit(
        *("--image", str(tiny), "--exit-codes", "any", "--attempts", "1", "--", "there-is-none"),
        policy=NO_COPIES,
    )
    running.wait(bot, 120.0)
    assert running.rows("SELECT reason FROM ended WHERE bot = %s", bot) == [("not_executable",)]
    answers = running.submit(*in_image(tiny, "exit 127", "--exit-codes", "any"))
    running.wait(answers, 120.0)
    assert running.show(answers)["jobs_done"] == 1


def test_what_is_no_image_costs_one_replica(running: Deployment, lender: Lender) -> None:
    lender.client("broken", "--cpus", "2")
    packed = running.file("broken.tar", os.urandom(10_000))
    bot = running.submit(*in_image(packed, "true", "--range", "0:20"), policy=NO_COPIES)
    explained = eventually(lambda: unfit(running, bot), what="the explanation")
    assert "the host could not make the BOT's environment" in explained
    eventually(lambda: running.leases(bot) == [])
    reasons = running.rows("SELECT reason FROM ended WHERE bot = %s AND how = 'error'", bot)
    assert reasons == [("environment_failed",)]


def test_a_runtime_that_cannot_start_containers_costs_one_replica(
    running: Deployment, lender: Lender, tiny: Path
) -> None:
    fake = running.folder / "broken" / "podman"
    fake.parent.mkdir()
    real = needed("podman")
    fake.write_text(
        '#!/bin/sh\nfor word; do test "$word" = run && { echo broken >&2; exit 125; }; done\n'
        f'exec {real} "$@"\n'
    )
    fake.chmod(0o755)
    lender.client("failing", "--cpus", "1", PATH=f"{fake.parent}:/usr/bin:/bin:/usr/sbin:/sbin")
    bot = running.submit(*in_image(tiny, "true", "--range", "0:20"), policy=NO_COPIES)
    eventually(lambda: unfit(running, bot), what="the explanation")
    eventually(lambda: running.leases(bot) == [])
    reasons = running.rows("SELECT reason FROM ended WHERE bot = %s AND how = 'error'", bot)
    assert reasons == [("container_failed",)]


def test_a_host_without_a_runtime_gets_none_and_explain_says_so(
    running: Deployment, lender: Lender, tiny: Path
) -> None:
    lender.client("without", "--cpus", "1", PATH="/nowhere")
    bot = running.submit(*in_image(tiny, "cat /etc/said"))
    plain = running.submit("--", "/bin/echo", "plain")
    running.wait(plain)
    said = running.run("bot", "explain", str(bot))
    assert "containers of tiny.tar, and the host has no Podman or Apptainer" in said
    assert running.leases(bot) == []
    lender.client("with", "--cpus", "1")
    running.wait(bot, 120.0)
    assert stdouts(running, bot) == ["the image"]


def test_many_short_containers_at_once_all_end_well(
    running: Deployment, lender: Lender, tiny: Path
) -> None:
    lender.client("many", "--cpus", "4")
    bot = running.submit(*in_image(tiny, "echo $0", "--range", "0:40"), policy=NO_COPIES)
    running.wait(bot, 240.0)
    assert stdouts(running, bot) == [f"{job}\n" for job in range(40)]
    assert running.rows("SELECT count(*) FROM ended WHERE bot = %s AND how <> 'success'", bot) == [
        (0,)
    ]


# --- Apptainer: a stand-in, which takes its options and runs programs in the machine's own files


def test_a_sif_file_goes_to_apptainer_as_it_is(running: Deployment, lender: Lender) -> None:
    needed("unshare")
    fakes = f"{ROOT / 'tests' / 'fakes' / 'bin'}:/usr/bin:/bin"
    lender.client("apptainer", "--cpus", "1", PATH=fakes)
    packed = running.file("tool.sif", "an image of Apptainer's")
    source = made(running.folder / "in-sif" / "deps")
    script = 'cat "$APPTAINER_CONTAINER"; echo " $OWN $GRIDBOT_SEQ"; test "$HOME" = "$PWD"; echo $?'
    bot = running.submit(
        *in_image(packed, script, "--env", "OWN=a,b=c", "--input", f"{source}=deps")
    )
    running.wait(bot, 120.0)
    assert stdouts(running, bot) == ["an image of Apptainer's a,b=c 0\n0\n"]
    ends = running.submit(*in_image(packed, LEAVE, "--time", "2", "--attempts", "1"))
    running.wait(ends, 120.0)
    reasons = running.rows("SELECT DISTINCT reason FROM ended WHERE bot = %s", ends)
    assert reasons == [("time_limit",)]


# --- what the README says


def test_the_examples_of_the_readme_run_as_they_stand(running: Deployment) -> None:
    needed("podman")
    here = running.folder / "science"
    requirements = wheel(here)
    requirements.write_text("tiny==1.0\n")
    own = {**running.env, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(here)}
    running.client("readme", "--cpus", "2", env=own)
    (here / "deps").mkdir()
    (here / "deps" / "tiny.py").touch()
    (here / "point.py").write_text("import sys, tiny; print('point', sys.argv[1])\n")
    (here / "point.sh").write_text("cat /etc/said; echo $1\n")
    image(here / "tool.tar", "point ")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    section = readme.partition("## My job needs Python packages")[2].partition("\n## ")[0]
    commands = [line for line in section.splitlines() if line.startswith("    gridbot submit")]
    assert len(commands) == 3, commands
    for command in commands:
        submit, *others = [word.replace("0:100", "0:2") for word in shlex.split(command)[1:]]
        done = subprocess.run(
            [*GRIDBOT, submit, "--json", *others], cwd=here, env=running.env, capture_output=True,
            text=True, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        bot = json.loads(done.stdout)["id"]
        running.wait(bot, 240.0)
        logs = running.run("bot", "logs", str(bot))
        assert stdouts(running, bot) == ["point 0\n", "point 1\n"], logs
    running.client_ends("readme", signal.SIGINT)
