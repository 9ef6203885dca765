"""Prometheus' own tool, which judges metrics and questions."""

import os
import shutil
import subprocess

import pytest


def promtool(*arguments: str, text: str = "") -> str:
    """Run promtool; return all that it says.  Skips where it is missing, except with `CI` set."""
    if shutil.which("promtool") is None:
        missing = "promtool is missing: apt-get install prometheus"
        pytest.fail(missing) if os.environ.get("CI") else pytest.skip(missing)
    done = subprocess.run(
        ["promtool", *arguments], input=text, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr
