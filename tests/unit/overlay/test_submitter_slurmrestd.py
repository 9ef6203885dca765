"""Slurm's REST interface: what is asked of it, and what its later versions answer."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.orders import make_order

from gridbot_overlay.decide.model import Grid, PilotShape, PilotState
from gridbot_overlay.submitters import GridError
from gridbot_overlay.submitters.slurmrestd import Slurmrestd, given, job, said, sighting, version

# GET /slurm/v0.0.42/jobs of Slurm 24.11.5: the fields that are read.
LISTING = Path(__file__).parents[2] / "data" / "overlay" / "slurmrestd_jobs.json"
GIVEN = {"api": "v0.0.42", "url": "https://slurm.example.org:6820", "token": "/etc/token"}


def test_a_job_is_described_in_the_shapes_of_its_version() -> None:
    shape = PilotShape(cpus=4, memory_mb=3000, gpus=2, walltime_seconds=601)
    order = make_order("gb-x", shape=shape, owners=("alice", "b ob"), count=3)
    old, new = job(order, 2, "/logs/%j", 38), job(order, 2, "/logs/%j", 40)
    both = {
        "name": "gb-x+2", "comment": "gridbot for alice+b_ob", "tasks": 1, "cpus_per_task": 4,
        "current_working_directory": "/tmp", "standard_output": "/dev/null",
        "standard_error": "/logs/%j",
    }  # fmt: skip
    path = "/usr/local/bin:/usr/bin:/bin"
    assert old == both | {
        "memory_per_node": 3000, "time_limit": 11, "no_requeue": True, "gres": "gpu:2",
        "environment": {"PATH": path},
    }  # fmt: skip
    assert new == both | {
        "memory_per_node": {"set": True, "infinite": False, "number": 3000},
        "time_limit": {"set": True, "infinite": False, "number": 11},
        "requeue": False, "tres_per_node": "gres/gpu:2", "environment": [f"PATH={path}"],
    }  # fmt: skip


def test_directives_are_fields_of_a_job() -> None:
    assert given(("partition=long", "nice=100", 'licenses=["a=1"]', "qos=")) == {
        "partition": "long", "nice": 100, "licenses": ["a=1"], "qos": "",
    }  # fmt: skip
    for wrong in ("--partition=long", "partition", "=long"):
        with pytest.raises(GridError, match="is no field of a job"):
            given((wrong,))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"url": ""}, "option url must be that of a slurmrestd"),
        ({"url": "http://slurm.example.org:6820"}, "not 'http://slurm.example.org:6820'"),
        ({"url": "https://slurm.example.org/slurm"}, "option url must be that of a slurmrestd"),
        ({"token": ""}, "option token must name a file"),
        ({"api": "v0.0.x"}, "option api is no version such as v0.0.40: 'v0.0.x'"),
    ],
)
def test_a_wrong_option_is_refused_by_name(
    options: dict[str, str], words: str, tmp_path: Path
) -> None:
    grid = Grid(name="s", kind="slurmrestd", options={**GIVEN, **options})
    with pytest.raises(GridError, match=words) as error:
        Slurmrestd(grid, tmp_path)
    assert error.value.is_lasting


@pytest.mark.parametrize("content", [None, "", "two words", "a\nb", "x" * 9000])
def test_a_file_without_a_token_is_named(content: str | None, tmp_path: Path) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_text(content)
    grid = Grid(name="s", kind="slurmrestd", options={**GIVEN, "token": str(file)})
    with pytest.raises(GridError, match=str(file)) as error:
        Slurmrestd(grid, tmp_path).pilots("gb")
    assert error.value.is_lasting


def test_jobs_are_read_as_later_versions_show_them() -> None:
    rows = json.loads(LISTING.read_text())["jobs"]
    seen = [one for row in rows if (one := sighting(row, "gbaaaaaa"))]
    told = [(one.tag, one.index, one.state, one.reason, one.node, one.exit_code) for one in seen]
    assert told == [
        ("gbaaaaaan1", 0, PilotState.ENDED, "FAILED: NonZeroExitCode", "n1", 3),
        ("gbaaaaaan2", 0, PilotState.ENDED, "FAILED: RaisedSignal", "n1", -9),
        ("gbaaaaaan3", 0, PilotState.RUNNING, "", "n1", None),
        ("gbaaaaaan3", 1, PilotState.QUEUED, "Resources", "", None),
        ("gbaaaaaan3", 2, PilotState.ENDED, "CANCELLED: Priority", "", None),
    ]  # fmt: skip
    assert [sighting(row, "gbbbbbbb") for row in rows] == [None] * 5


@pytest.mark.parametrize(
    ("words", "state"),
    [
        (["COMPLETED", "COMPLETING"], PilotState.RUNNING),
        (["PENDING", "REQUEUE_HOLD"], PilotState.HELD),
        (["RUNNING", "A_NEW_FLAG"], PilotState.RUNNING),
        (["A_NEW_STATE"], PilotState.RUNNING),
        ([], PilotState.RUNNING),
        (None, PilotState.RUNNING),
    ],
)
def test_flags_say_more_than_states_and_no_pilot_disappears(words: Any, state: PilotState) -> None:
    seen = sighting({"job_id": 7, "name": "gb-x", "job_state": words}, "gb-")
    assert seen is not None
    assert seen.state is state


def test_errors_are_told_in_their_own_words() -> None:
    errors = [
        {"error": "Unspecified error", "description": 'Unknown key\n "bogus"'},
        {"error": "Invalid partition name specified", "error_code": 2000},
        {"error": "Invalid job id", "description": "unable to kill JobId=9: Invalid job id"},
        "no object", {},
    ]  # fmt: skip
    assert said({"errors": errors}).split("; ") == [
        'Unknown key "bogus": Unspecified error',
        "Invalid partition name specified",
        "unable to kill JobId=9: Invalid job id",
    ]
    assert (said({"errors": None}), said({})) == ("", "")


def test_a_version_is_a_number() -> None:
    assert (version("v0.0.38"), version("v0.0.44")) == (38, 44)
