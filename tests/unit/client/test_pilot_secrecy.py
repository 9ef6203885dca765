"""Claims about what a client's jobs, which run as the same user, may read of it."""

import inspect
import os
import subprocess
import sys
from contextlib import suppress
from typing import Any

import pytest

from gridbot_client.pilot import secrecy

# Root may read everything of everybody.
ORDINARY: dict[str, Any] = {"cwd": "/"}
if os.geteuid() == 0:
    ORDINARY |= {"user": 65534, "group": 65534, "extra_groups": []}


def python() -> str:
    """An interpreter that an ordinary user may start."""
    for path in (getattr(sys, "_base_executable", sys.executable), "/usr/bin/python3"):
        with suppress(OSError):
            if subprocess.run([path, "-c", "import ctypes"], **ORDINARY).returncode == 0:
                return str(path)
    pytest.skip("an ordinary user may start no Python here")


@pytest.mark.parametrize(("then", "is_read"), [("", True), ("hide()", False)])
@pytest.mark.parametrize("file", ["environ", "mem"])
def test_who_hides_is_not_read_by_others_of_its_user(file: str, then: str, is_read: bool) -> None:
    program = f"{inspect.getsource(secrecy)}\n{then}\nprint(flush=True)\ninput()\n"
    with subprocess.Popen(
        [python(), "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, **ORDINARY
    ) as process:
        assert process.stdin and process.stdout
        process.stdout.readline()
        test = f"exec 3< /proc/{process.pid}/{file}"
        done = subprocess.run(["/bin/sh", "-c", test], stderr=subprocess.DEVNULL, **ORDINARY)
        process.stdin.write(b"\n")
    assert (done.returncode == 0) is is_read


def test_what_it_starts_is_as_open_as_ever() -> None:
    starts = "import os, sys; os.execvp('sh', ['sh', '-c', sys.argv[1]])"
    program = f"{inspect.getsource(secrecy)}\nhide()\n{starts}"
    command = [python(), "-c", program, "exec 3< /proc/$$/environ && echo read"]
    assert subprocess.run(command, stdout=subprocess.PIPE, **ORDINARY).stdout == b"read\n"
