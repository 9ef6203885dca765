"""Jobs whose derivation has an outcome already: reused, held, told of, and taken back."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from tests.factories import json_lines, make_failure, make_outcome, submission
from tests.http.conftest import Person, Site

from gridbot.api.origin import command_of
from gridbot_client.protocol.messages import ReplicaId
from gridbot_server.storage import invariants, sql


def submit(person: Person, **changes: Any) -> dict[str, Any]:
    answer = person("POST", "/api/v1/bots", json=submission(**changes))
    assert answer.status_code == 201, answer.json
    found: dict[str, Any] = answer.json
    return found


def finish(site: Site, person: Person, bot: int, seqs: range, text: str = "of {}") -> None:
    """Let a client of the person have run jobs, with their numbers as outputs."""
    client = site.client_of(person).id
    site.conn.execute("UPDATE bot SET fed = size WHERE id = %s", [bot])
    for seq in seqs:
        content = text.format(seq).encode()
        make_outcome(site.conn, ReplicaId(bot, seq, 1), client, {"stdout": content})
    site.conn.execute(
        "UPDATE bot SET state = 'done', ended_at = now() WHERE id = %s AND done + failed = size",
        [bot],
    )


def reused(person: Person, **changes: Any) -> int:
    return int(submit(person, reuse=True, **changes)["jobs_reused"])


def faults(site: Site, bot: int) -> list[str]:
    """What is not as it must be with a BOT; the first runs of these tests were no real ones."""
    found = invariants.check(site.conn, idle=False)
    return [v.name for v in found if any(bot in (e.get("id"), e.get("bot")) for e in v.examples)]


def results(person: Person, bot: int) -> list[tuple[int, str]]:
    lines = person("GET", f"/api/v1/bots/{bot}/results").data.splitlines()
    return sorted(
        (row["seq"], row["outputs"]["stdout"]["sha256"]) for row in map(json.loads, lines)
    )


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def upload(person: Person, content: bytes) -> dict[str, Any]:
    sha256 = hashlib.sha256(content).hexdigest()
    size = len(content)
    answer = person("PUT", f"/api/v1/blobs/{sha256}?size={size}&offset=0", data=content)
    assert answer.status_code in (200, 201), answer.json
    return {"name": "data", "sha256": sha256, "size": size}


def test_a_second_run_of_a_thousand_jobs_runs_none(site: Site, alice: Person) -> None:
    jobs = {"range": [0, 1000, 1]}
    first = submit(alice, jobs=jobs)["id"]
    finish(site, alice, first, range(1000))
    again = submit(alice, jobs=jobs, reuse=True, name="other", policy="Rank = 3;")
    assert (again["state"], again["jobs_reused"]) == ("done", 1000)
    assert results(alice, again["id"]) == results(alice, first)
    assert faults(site, again["id"]) == []
    state = alice("GET", f"/api/v1/bots/{again['id']}").json
    assert (state["jobs_done"], state["jobs_reused"], state["jobs_left"]) == (1000, 1000, 0)
    # A copy is as good a source, and what has run is asked for once.
    assert reused(alice, jobs=jobs) == 1000
    assert submit(alice, jobs=jobs)["jobs_reused"] == 0


def test_only_what_is_new_runs(site: Site, alice: Person) -> None:
    finish(site, alice, submit(alice)["id"], range(10))
    more = submit(alice, jobs={"range": [5, 15, 1]}, reuse=True)
    assert (more["state"], more["jobs_reused"]) == ("running", 5)
    waiting = site.conn.execute(
        "SELECT seq FROM job WHERE bot = %(bot)s AND NOT EXISTS (SELECT FROM outcome o"
        " WHERE (o.bot, o.seq) = (job.bot, job.seq)) ORDER BY seq",
        {"bot": more["id"]},
    ).fetchall()
    assert [seq for (seq,) in waiting] == [5, 6, 7, 8, 9]
    assert faults(site, more["id"]) == []


@pytest.mark.parametrize(
    ("changes", "count"),
    [
        ({"resources": {"memory_mb": 999}, "max_attempts": 7}, 10),
        ({"command": ["echo", "-n", "{i}"]}, 0),
        ({"outputs": ["stdout", "*.dat"]}, 0),
        ({"environment": {"A": "b"}}, 0),
        ({"exit_codes": [0, 1]}, 0),
        ({"image": "debian:12"}, 0),
        ({"platforms": ["linux-x86_64"]}, 0),
        ({"walls": {"level": 0, "network": True}}, 0),
        ({"quorum": 2}, 0),
        ({"policy": "Assurance = 0.99999;"}, 0),
    ],
)
def test_the_same_is_what_runs_the_same_and_is_as_sure(
    site: Site, alice: Person, changes: dict[str, Any], count: int
) -> None:
    finish(site, alice, submit(alice)["id"], range(10))
    assert reused(alice, **changes) == count


def test_nothing_is_reused_of_others_of_failures_and_of_what_has_not_ended(
    site: Site, alice: Person, bob: Person
) -> None:
    first = submit(alice)["id"]
    finish(site, alice, first, range(5))
    make_failure(site.conn, ReplicaId(first, 5, 1), site.client_of(alice).id, "exit_code")
    assert (reused(alice), reused(bob)) == (5, 0)
    alice("POST", f"/api/v1/bots/{first}/jobs/cancel", json={"jobs": [6]})
    finish(site, alice, first, range(7, 10))
    assert reused(alice) == 8


def test_files_and_numbers_count_by_content(site: Site, alice: Person) -> None:
    one, other = upload(alice, b"one"), upload(alice, b"other")
    shared = {"command": ["cat", "data"], "jobs": {"items": [{}]}}
    finish(site, alice, submit(alice, inputs=[one], **shared)["id"], range(1))
    assert reused(alice, inputs=[one], **shared) == 1
    assert reused(alice, inputs=[other], **shared) == 0
    own = {"job_inputs": [{"name": "data"}], "placeholders": {"i": "int"}}
    items = [{"args": {"i": 1}, "inputs": [one]}, {"args": {"i": 2}, "inputs": [one]}]
    finish(site, alice, submit(alice, jobs={"items": items}, **own)["id"], range(2))
    changed = [items[0], {"args": {"i": 2}, "inputs": [other]}]
    assert reused(alice, jobs={"items": changed}, **own) == 1
    texts = {"job_inputs": [{"name": "*"}], "placeholders": {"i": "text"}}
    assert reused(alice, jobs={"items": [{"args": {"i": "1"}, "inputs": [one]}]}, **texts) == 1


def test_streamed_and_appended_jobs_are_looked_up_as_well(site: Site, alice: Person) -> None:
    finish(site, alice, submit(alice)["id"], range(10))
    lines = json_lines([{"i": n} for n in range(8, 12)])
    kind = {"Content-Type": "application/jsonlines"}
    shape = {"jobs": {"stream": True}, "placeholders": {"i": "int"}, "reuse": True}
    streamed, growing = submit(alice, **shape)["id"], submit(alice, growing=True, **shape)["id"]
    for bot in (streamed, growing):
        answer = alice("POST", f"/api/v1/bots/{bot}/jobs?offset=0", data=lines, headers=kind)
        assert answer.status_code == 200, answer.json
    assert alice("POST", f"/api/v1/bots/{streamed}/start").json["jobs_reused"] == 2
    assert alice("GET", f"/api/v1/bots/{growing}").json["jobs_done"] == 2
    more = json_lines([{"i": 0}])
    alice("POST", f"/api/v1/bots/{growing}/jobs?offset=4", data=more, headers=kind)
    assert alice("GET", f"/api/v1/bots/{growing}").json["jobs_reused"] == 3
    assert faults(site, streamed) + faults(site, growing) == []


def test_an_outcome_without_its_files_is_none(site: Site, alice: Person) -> None:
    first = submit(alice)["id"]
    finish(site, alice, first, range(10))
    # Those of odd jobs lie in the store, but for one that is lost.
    site.conn.execute(
        "INSERT INTO blob (sha256, md5, size) SELECT sha256, sha256, size FROM output"
        " WHERE bot = %s AND seq %% 2 = 1 AND seq <> 9",
        [first],
    )
    site.conn.execute(
        "INSERT INTO blob_owner (sha256, owner) SELECT sha256, %s FROM blob", [alice.id]
    )
    site.conn.execute("UPDATE output SET content = NULL WHERE bot = %s AND seq %% 2 = 1", [first])
    assert reused(alice) == 9


def test_what_depends_on_a_file_runs_again_and_nothing_else(site: Site, alice: Person) -> None:
    raw = upload(alice, b"raw")
    first = {"command": ["make", "{i}"], "inputs": [raw], "jobs": {"range": [0, 2, 1]}}
    made = submit(alice, **first)["id"]
    finish(site, alice, made, range(2), "made {}")
    files = [upload(alice, f"made {n}".encode()) for n in range(2)]
    second = {
        "command": ["use", "{i}"], "placeholders": {"i": "int"}, "job_inputs": [{"name": "data"}],
        "jobs": {"items": [{"args": {"i": n}, "inputs": [files[n]]} for n in range(2)]},
    }  # fmt: skip
    used = submit(alice, **second)["id"]
    finish(site, alice, used, range(2), "used {}")
    third = submit(alice, **second, reuse=True)
    assert third["jobs_reused"] == 2
    answer = alice("POST", f"/api/v1/data/{sha('made 1')}/invalidate", json={})
    # Job 1 of each, and the copy of the second.
    assert answer.json == {"jobs": 3, "bots": [made, used, third["id"]]}
    again = alice("POST", f"/api/v1/data/{sha('made 1')}/invalidate", json={})
    assert again.json == {"jobs": 0, "bots": []}
    assert (reused(alice, **first), reused(alice, **second)) == (1, 1)
    assert alice("POST", f"/api/v1/data/{raw['sha256']}/invalidate", json={}).json["jobs"] == 5
    assert (reused(alice, **first), reused(alice, **second)) == (0, 0)


def test_the_origin_of_a_file_is_told_to_its_owner(site: Site, alice: Person, bob: Person) -> None:
    raw = upload(alice, b"raw")
    made = submit(alice, command=["make", "{i}"], inputs=[raw])["id"]
    finish(site, alice, made, range(10), "made {}")
    copy = submit(alice, command=["make", "{i}"], inputs=[raw], reuse=True)["id"]
    found = alice("GET", f"/api/v1/data/{sha('made 3')}").json
    assert [(job["bot"], job["job"], job["reused"]) for job in found["made_by"]] == [
        (copy, 3, {"bot": made, "job": 3}), (made, 3, None),
    ]  # fmt: skip
    job = found["made_by"][1]
    assert (job["command"], job["args"], job["inputs"]) == (["make", "3"], {"i": 3}, [raw])
    assert found["used_by"] == []
    used = alice("GET", f"/api/v1/data/{raw['sha256']}").json
    assert len(used["used_by"]) == 20
    for path in (sha("made 3"), raw["sha256"], "x" * 64):
        assert bob("GET", f"/api/v1/data/{path}").status_code == 404


def test_of_several_programs_the_origin_names_all(site: Site, alice: Person) -> None:
    rows = [
        {"where": "linux-x86_64", "command": ["make", "{i}"]},
        {"where": "darwin-arm64", "command": ["gmake", "-n", "{i}"]},
    ]
    platforms = [row["where"] for row in rows]
    bot = submit(alice, command=["make", "{i}"], programs=rows, platforms=platforms)["id"]
    finish(site, alice, bot, range(10), "made {}")
    (job,) = alice("GET", f"/api/v1/data/{sha('made 3')}").json["made_by"]
    assert job["programs"] == [
        {"where": "linux-x86_64", "command": ["make", "3"]},
        {"where": "darwin-arm64", "command": ["gmake", "-n", "3"]},
    ]
    assert alice("GET", f"/api/v1/bots/{bot}").json["programs"] == rows
    assert command_of(job) == "one of linux-x86_64: make 3; darwin-arm64: gmake -n 3"


def test_a_source_that_is_deleted_takes_nothing_from_its_copies(site: Site, alice: Person) -> None:
    first = submit(alice)["id"]
    finish(site, alice, first, range(10))
    second = submit(alice, reuse=True)["id"]
    before = results(alice, second)
    assert alice("DELETE", f"/api/v1/bots/{first}").status_code == 202
    assert (results(alice, second), len(before)) == (before, 10)
    assert reused(alice) == 10


@pytest.mark.parametrize("statement", ["unsign_by_project", "revoke_bots"])
def test_what_strangers_ran_stays_theirs_when_its_signature_is_taken_back(
    site: Site, alice: Person, statement: str
) -> None:
    bot = submit(alice, jobs={"range": [0, 11, 1]})["id"]
    finish(site, alice, bot, range(10))
    key = hashlib.sha256(b"key").digest()
    site.conn.execute(
        "UPDATE bot SET signature = 'signed', signed_with = 'key' WHERE id = %s", [bot]
    )
    assert reused(alice) == 0
    site.conn.execute(sql.load("signing.sql")[statement], {"subject": key})
    assert reused(alice) == 0
