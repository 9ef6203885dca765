"""Claims about BOTs with several programs: what a submission may say, and who gets them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.factories import HOST, make_bot, make_host
from tests.http.conftest import Person, Site

from gridbot_client.protocol.manifest import CHOOSING
from gridbot_client.protocol.messages import Manifest
from gridbot_client.protocol.programs import HostProgram

ROWS = (
    HostProgram("linux-x86_64", ("cpu", "{i}")),
    HostProgram("linux-x86_64 cpus=16", ("many", "{i}")),
    HostProgram("linux-x86_64 gpu=nvidia cuda>=11", ("cuda", "{i}")),
    HostProgram("darwin-arm64", ("mac", "{i}")),
)


def asked(**changes: Any) -> dict[str, Any]:
    rows = [{"where": row.where, "command": list(row.command)} for row in ROWS]
    return {
        "submit_key": "k", "name": "n", "command": list(ROWS[0].command),
        "platforms": ["linux-x86_64", "darwin-arm64"], "jobs": {"range": [0, 2]},
        "programs": rows, **changes,
    }  # fmt: skip


def bot_of(site: Site, owner: Person, *rows: HostProgram, **fields: Any) -> int:
    platforms = tuple(dict.fromkeys(row.selector.platform for row in rows))
    manifest = Manifest(
        owner.name, rows[0].command, {"i": "int"}, platforms=platforms, programs=rows, **fields
    )
    return make_bot(site.conn, owner.id, manifest=manifest.text())


def matching(site: Site, owner: Person, bot: int, **ad: Any) -> tuple[int, str]:
    """How many hosts match, once there is one with this ad, and the verdict."""
    known = {**HOST, "ManifestVersion": CHOOSING, "Platform": "linux-x86_64", **ad}
    site.client_of(owner, host=make_host(site.conn, owner.id, known))
    found = owner("GET", f"/api/v1/bots/{bot}/explanation").json
    return found["hosts_matching"], found["verdict"]


def test_a_submission_with_a_table_is_taken(site: Site, alice: Person) -> None:
    answer = alice("POST", "/api/v1/bots", json=asked())
    assert answer.status_code == 201
    ((text,),) = site.conn.execute("SELECT manifest FROM bot").fetchall()
    assert Manifest.from_text(text).programs == ROWS


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"programs": [{"where": "linux", "command": ["x"]}]}, "'linux' is no platform"),
        ({"programs": [{"where": "linux-x86_64", "command": []}]}, "command"),
        (
            {"programs": [{"where": "linux-x86_64", "command": ["x", "{y}"]}], "command": ["x"]},
            "names {y}",
        ),
        ({"command": ["other", "{i}"]}, "command: with programs, it is that of the first"),
        ({"platforms": ["linux-x86_64"]}, "platforms: with programs"),
        ({"resident": 1}, "resident"),
        (
            {"programs": [{"where": "linux-x86_64", "command": ["cpu", "{i}"], "inputs": ["x"]}]},
            "x is not the name of an input",
        ),
        (
            {
                "programs": [{"where": "linux-x86_64", "command": ["cat"], "inputs": ["x"]}],
                "command": ["cat"],
                "platforms": ["linux-x86_64"],
                "inputs": [{"name": "x", "sha256": "0" * 64, "size": 1}],
                "stdin": "{f}",
                "placeholders": {"f": "text"},
                "jobs": {"items": [{"f": "x"}]},
            },
            "job 0: stdin: x is not the name of an input for all hosts",
        ),
    ],
)
def test_a_wrong_table_is_refused_and_nothing_is_kept(
    site: Site, alice: Person, changes: dict[str, Any], told: str
) -> None:
    answer = alice("POST", "/api/v1/bots", json=asked(**changes))
    assert answer.status_code == 400
    assert told in str(answer.json)
    assert site.conn.execute("SELECT count(*) FROM bot").fetchone() == (0,)


def test_a_client_that_does_not_know_tables_gets_no_such_bot_and_is_told_why(
    site: Site, alice: Person
) -> None:
    bot = bot_of(site, alice, *ROWS)
    count, verdict = matching(site, alice, bot, ManifestVersion=CHOOSING - 1)
    assert (count, "the client is too old" in verdict) == (0, True)
    assert matching(site, alice, bot)[0] == 1


def test_a_bot_that_has_no_program_for_any_host_says_so(site: Site, alice: Person) -> None:
    bot = bot_of(site, alice, HostProgram("windows-x86_64", ("x",)), ROWS[3])
    count, verdict = matching(site, alice, bot)
    assert count == 0
    assert "a job needs platform windows-x86_64 or darwin-arm64, the host has another" in verdict


def test_a_host_must_meet_the_conditions_of_one_program_at_least(site: Site, alice: Person) -> None:
    bot = bot_of(site, alice, ROWS[2])
    gpu = {"NumGpus": 1, "NumNvidiaGpus": 1, "GpuVendor": "NVIDIA", "CudaVersion": 10.2}
    assert matching(site, alice, bot)[0] == 0
    assert matching(site, alice, bot, **gpu)[0] == 0
    assert matching(site, alice, bot, **{**gpu, "CudaVersion": 12.0})[0] == 1


def test_a_row_without_gpu_runs_where_the_bots_gpus_are_not(site: Site, alice: Person) -> None:
    bot = bot_of(site, alice, ROWS[0], ROWS[2])
    assert matching(site, alice, bot)[0] == 1
