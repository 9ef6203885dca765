"""`scripts/data-trial` at a small size: contents that go past the server while parts are killed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.system.batch_systems import need

CHECKOUT = Path(__file__).parents[2]

pytestmark = pytest.mark.timeout(900)


@pytest.mark.parametrize("name, lines", [("inputs", 6), ("outputs", 2)])
def test_all_that_the_trial_claims_is_met(name: str, lines: int) -> None:
    need("squid", "squid")
    ended = subprocess.run(
        [sys.executable, "-m", "scripts.data_trial.cli", name, "--json"],
        cwd=CHECKOUT, capture_output=True, text=True,
    )  # fmt: skip
    assert ended.returncode in (0, 1), ended.stderr
    claims = json.loads(ended.stdout)
    assert [claim for claim in claims if not claim["is_met"]] == []
    assert len(claims) == lines
