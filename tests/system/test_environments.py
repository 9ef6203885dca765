"""What jobs share on a host: a directory travels as one archive, and is unpacked once."""

from __future__ import annotations

import hashlib
import json
import shutil
import tarfile
import zipfile
from pathlib import Path

import pytest
from tests.system.deployment import NO_COPIES, Deployment, eventually
from tests.unit.client.test_archives import contents, made

LIST = (
    "import json, os, pathlib; top = pathlib.Path('deps');"
    " print(json.dumps(sorted(str(p.relative_to(top)) for p in top.rglob('*'))))"
)
PYTHON = shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin") or "/usr/bin/python3"


# A package without code of its own but a program.
WHEEL = {
    "tiny.py": "def main():\n    print('tiny', __import__('sys').version_info[0])\n",
    "tiny-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n",
    "tiny-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "tiny-1.0.dist-info/entry_points.txt": "[console_scripts]\ntiny = tiny:main\n",
    "tiny-1.0.dist-info/RECORD": "",
}


def wheel(folder: Path) -> Path:
    """Write a wheel, as pip installs it; return the requirements beside it that name it."""
    folder.mkdir()
    path = folder / "tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as file:
        for name, text in WHEEL.items():
            file.writestr(zipfile.ZipInfo(name), text)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    requirements = folder / "requirements.txt"
    requirements.write_text(f"--no-index\n./{path.name} --hash=sha256:{digest}\n")
    return requirements


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


# --- requirements


def with_requirements(requirements: Path, *command: str) -> list[str]:
    packed = requirements.parent / "tiny-1.0-py3-none-any.whl"
    return [
        *("--requirements", f"{requirements}", "--input", f"{packed}={packed.name}"),
        *("--", *command),
    ]


def test_requirements_are_installed_once_and_are_on_the_path(running: Deployment) -> None:
    requirements = wheel(running.folder / "wheels")
    running.client("pip", "--cpus", "2")
    bot = running.submit("--range", "0:4", *with_requirements(requirements, "tiny", "{}"))
    running.wait(bot, 300.0)
    assert stdouts(running, bot) == ["tiny 3\n"] * 4
    assert len(unpacked(running, "pip")) == 1
    import_ = "import tiny, os; os.open(tiny.__file__, os.O_WRONLY)"
    other = running.submit(
        *("--exit-codes", "1", *with_requirements(requirements, "python", "-c", import_))
    )
    running.wait(other)
    assert running.show(other)["jobs_done"] == 1
    assert len(unpacked(running, "pip")) == 1


def test_a_host_that_cannot_build_says_so_once_and_gets_no_more_of_the_bot(
    running: Deployment,
) -> None:
    requirements = wheel(running.folder / "broken")
    requirements.write_text("--no-index\nthere-is-none==7\n")
    running.client("broken", "--cpus", "2")
    bot = running.submit(
        *("--range", "0:50", *with_requirements(requirements, "tiny", "{}")), policy=NO_COPIES
    )
    explained = eventually(lambda: unfit(running, bot), what="the explanation")
    assert "the host could not make the BOT's environment" in explained
    eventually(lambda: running.leases(bot) == [])
    reasons = running.rows("SELECT reason FROM ended WHERE bot = %s AND how = 'error'", bot)
    assert reasons == [("environment_failed",)]
    logs = running.run("bot", "logs", str(bot))
    assert "No matching distribution found for there-is-none==7" in logs
    wheel(running.folder / "mended")
    mended = running.folder / "mended" / "requirements.txt"
    running.run("bot", "retry", str(bot), "--input", f"{mended}=requirements.txt")
    running.wait(bot, 300.0)
    assert running.show(bot)["jobs_done"] == 50


def unfit(server: Deployment, bot: int) -> str:
    said = server.run("bot", "explain", str(bot))
    return said if "could not make" in said else ""


# --- conda-pack


@pytest.fixture
def conda(running: Deployment) -> Path:
    """An archive as conda-pack makes it, whose programs learn their place when it is unpacked."""
    top = running.folder / "conda"
    (top / "bin").mkdir(parents=True)
    (top / "conda-meta").mkdir()
    (top / "conda-meta" / "history").touch()
    (top / "bin" / "hello").write_text("#!/bin/sh\necho PLACE $CONDA_PREFIX\n")
    (top / "bin" / "conda-unpack").write_text(
        '#!/bin/sh\nhere=$(dirname "$(dirname "$0")")\nsed -i "s:PLACE:$here:" "$here/bin/hello"\n'
    )
    for path in (top / "bin").iterdir():
        path.chmod(0o755)
    packed = running.folder / "environment.tar.gz"
    with tarfile.open(packed, "w:gz") as tar:
        tar.add(top, ".")
    return packed


def test_an_archive_of_conda_pack_is_made_to_know_its_place(
    running: Deployment, conda: Path
) -> None:
    running.client("conda", "--cpus", "2")
    bot = running.submit("--range", "0:3", "--conda-pack", str(conda), "--", "hello", "{}")
    running.wait(bot)
    (place,) = [path.parent / "tree" for path in unpacked(running, "conda")]
    assert stdouts(running, bot) == [f"{place} {place}\n"] * 3
