import hashlib
import threading
from dataclasses import replace
from typing import Any

import pytest
from tests.factories import json_lines, make_bot, signed, submission
from tests.http.conftest import Person, Site

from gridbot_client.protocol.messages import Manifest
from gridbot_client.protocol.signatures import manifest_statement, verify
from gridbot_server.signing import keys
from gridbot_server.web.app import create_app

EMPTY_TABLES = "SELECT (SELECT count(*) FROM bot), (SELECT count(*) FROM job)"


def _file(content: bytes, name: str = "data.txt") -> dict[str, Any]:
    return {"name": name, "sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}


def _upload(person: Person, content: bytes) -> None:
    sha256 = hashlib.sha256(content).hexdigest()
    answer = person("PUT", f"/api/v1/blobs/{sha256}?size={len(content)}&offset=0", data=content)
    assert answer.json["complete"]


def _jobs(site: Site, bot: int) -> list[Any]:
    query = "SELECT seq, args, inputs FROM job WHERE bot = %s ORDER BY seq"
    return site.conn.execute(query, [bot]).fetchall()


def test_a_range_becomes_a_job_per_number(site: Site, alice: Person) -> None:
    answer = alice("POST", "/api/v1/bots", json=submission(jobs={"range": [10, 0, -4]}))
    assert answer.status_code == 201
    assert answer.json["state"] == "running"
    assert answer.json["jobs_total"] == 3
    jobs = _jobs(site, answer.json["id"])
    assert jobs == [(0, {"i": 10}, None), (1, {"i": 6}, None), (2, {"i": 2}, None)]


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [([0, 5], 5), ([0, 5, 2], 3), ([0, 6, 2], 3), ([5, 0, -2], 3), ([-3, 3], 6), ([7, 8, 9], 1)],
)
def test_a_range_has_as_many_jobs_as_pythons(
    alice: Person, numbers: list[int], expected: int
) -> None:
    assert expected == len(range(*numbers))
    answer = alice("POST", "/api/v1/bots", json=submission(jobs={"range": numbers}))
    assert answer.json["jobs_total"] == expected


def test_items_become_jobs_with_or_without_inputs_of_their_own(site: Site, alice: Person) -> None:
    _upload(alice, b"one")
    items = [{"x": 0.5}, {"args": {"x": "1e-3"}, "inputs": [_file(b"one")]}]
    body = submission(command=["run", "-x={x}"], placeholders={"x": "real"}, jobs={"items": items})
    answer = alice("POST", "/api/v1/bots", json=body)
    assert answer.status_code == 201
    own = [{**_file(b"one"), "executable": False}]
    assert _jobs(site, answer.json["id"]) == [(0, {"x": 0.5}, None), (1, {"x": "1e-3"}, own)]


def test_what_the_clients_run_is_what_was_submitted(site: Site, alice: Person) -> None:
    _upload(alice, b"one")
    body = submission(
        inputs=[_file(b"one")], resources={"cpus": 2}, outputs=["out/*.txt"], quorum=2,
        policy="Rank = 7", platforms=["linux-x86_64"], max_output_bytes=1000, tail_threshold=3,
    )  # fmt: skip
    bot = alice("POST", "/api/v1/bots", json=body).json["id"]
    columns = "manifest, policy, quorum, tail_threshold, signature, name, submit_key"
    row = site.conn.execute(f"SELECT {columns} FROM bot WHERE id = %s", [bot]).fetchone()
    assert row is not None
    assert row[1:] == ("Rank = 7", 2, 3, None, "scan", body["submit_key"])
    manifest = Manifest.from_text(row[0])
    assert (manifest.owner, manifest.command) == ("alice", ("echo", "{i}"))
    assert (manifest.resources.cpus, manifest.resources.memory_mb) == (2, 512)
    assert manifest.inputs[0].sha256 == _file(b"one")["sha256"]
    assert (manifest.outputs, manifest.max_output_bytes) == (("out/*.txt",), 1000)
    assert manifest.platforms == ("linux-x86_64",)


def test_a_repeated_submission_finds_its_bot(site: Site, alice: Person, bob: Person) -> None:
    body = submission()
    first = alice("POST", "/api/v1/bots", json=body)
    again = alice("POST", "/api/v1/bots", json=body)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json == again.json
    assert site.conn.execute(EMPTY_TABLES).fetchone() == (1, 10)
    assert bob("POST", "/api/v1/bots", json=body).status_code == 201


def test_a_submit_key_does_not_stand_for_another_command(alice: Person) -> None:
    body = submission()
    bot = alice("POST", "/api/v1/bots", json=body).json["id"]
    answer = alice("POST", "/api/v1/bots", json={**body, "command": ["rm", "{i}"]})
    assert answer.status_code == 409
    assert f"made BOT {bot}, which runs another thing" in answer.json["detail"]
    assert (answer.json["error"], answer.json["bot"]) == ("SubmitKeyUsed", bot)


def test_equal_submissions_that_race_make_one_bot(site: Site, alice: Person) -> None:
    body, answers, barrier = submission(), [], threading.Barrier(4)

    def submit() -> None:
        barrier.wait(10)
        answers.append(alice("POST", "/api/v1/bots", json=body))

    threads = [threading.Thread(target=submit) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(answer.status_code for answer in answers) == [200, 200, 200, 201]
    assert len({answer.json["id"] for answer in answers}) == 1
    assert site.conn.execute(EMPTY_TABLES).fetchone() == (1, 10)


def test_a_policy_with_a_syntax_error_shows_the_place(site: Site, alice: Person) -> None:
    policy = "Rank = 1;\nJobRequirements = Host.Memory > ;"
    answer = alice("POST", "/api/v1/bots", json=submission(policy=policy))
    assert answer.status_code == 400
    assert answer.json["error"] == "PolicyError"
    assert answer.json["detail"].startswith("line 2, column 33: expected ")
    assert answer.json["pretty"].splitlines()[-1].strip() == "^"
    assert site.conn.execute(EMPTY_TABLES).fetchone() == (0, 0)


def test_a_misspelt_policy_is_an_error_and_a_misspelt_attribute_a_warning(alice: Person) -> None:
    answer = alice("POST", "/api/v1/bots", json=submission(policy="Deadlin = 3"))
    assert answer.status_code == 400
    assert answer.json["detail"].endswith("there is no policy Deadlin; did you mean Deadline?")
    warned = alice("POST", "/api/v1/bots", json=submission(policy="Rank = Host.Memry"))
    assert warned.status_code == 201
    assert "Host.Memry" in warned.json["warnings"][0]


REAL = {"placeholders": {"theta1": "real", "theta2": "real"}}
POINT = {"theta1": 0.1, "theta2": 0.2}


@pytest.mark.parametrize(
    ("changes", "detail"),
    [
        (
            {"command": ["p", "{thta1}"], "jobs": {"items": [POINT]}, **REAL},
            "command names {thta1}, but the items have only {theta1}, {theta2}",
        ),
        (
            {"command": ["p", "{thta1}"], "jobs": {"stream": True}, **REAL},
            "command names {thta1}, but the items have only {theta1}, {theta2}",
        ),
        ({"command": ["p", "{x}"]}, "command names {x}, but a range has only {i}"),
        (
            {"command": ["p", "{theta1}"], "jobs": {"items": [POINT, {"theta2": 1}]}, **REAL},
            "job 1: placeholder {theta1} has no value in this job's arguments",
        ),
        (
            {"command": ["p", "{theta1}"], "jobs": {"items": [{"theta1": "a b"}]}, **REAL},
            "job 0: placeholder {theta1} is of type real, got 'a b'",
        ),
        ({"command": ["p", "{"]}, "command: argument '{' has a single '{' at character 1"),
        ({"command": []}, "command: empty"),
        ({"command": ["a\x00b"]}, "command[0]: NUL characters and lone surrogates are not allowed"),
        ({"jobs": {"range": [5, 5]}}, "jobs.range: 5:5:1 has no jobs"),
        ({"jobs": {"range": [0, 5, 0]}}, "jobs.range: the step must not be 0"),
        ({"jobs": {"range": [0]}}, "jobs.range: expected [first, end] or [first, end, step]"),
        ({"jobs": {"range": [0, "5"]}}, "jobs.range[1]: expected a whole number, got '5'"),
        ({"jobs": {"range": [-(2**62), 2**62, 2**62]}}, "exceeds 64 bits"),
        ({"jobs": {"items": []}}, "jobs.items: empty; at least one job is needed"),
        ({"jobs": {}}, "jobs: expected exactly one of range, items and stream"),
        ({"jobs": {"items": [{"a": []}]}}, "job 0: args.a: expected a string"),
        ({"jobs": {"items": [{"args": {"i": 1}, "input": []}]}}, "job 0: unknown field input"),
        ({"inputs": [{**_file(b""), "name": "../x"}]}, "'../x' is not a usable file name"),
        ({"inputs": [_file(b"1"), _file(b"2")]}, "inputs: the name data.txt is given twice"),
        ({"inputs": [{"name": "x", "size": 1}]}, "inputs[0].sha256: missing"),
        ({"outputs": ["/etc/passwd"]}, "outputs[0]: '/etc/passwd' is not a usable file name"),
        ({"outputs": ["a/../b"]}, "outputs[0]: 'a/../b' is not a usable file name"),
        ({"outputs": ["{j}.csv"]}, "outputs names {j}, but"),
        ({"outputs": ["{i.csv"]}, "outputs: argument '{i.csv' has a single '{'"),
        (
            {"outputs": ["{i}.csv"], "jobs": {"range": [-1, 5]}},
            "outputs: output '{i}.csv': '-1.csv' is not a usable file name",
        ),
        (
            {"outputs": ["a"], "output_names": {"a": "../{i}"}, "jobs": {"range": [0, 5]}},
            "outputs: output '../{i}': '../0' is not a usable file name",
        ),
        (
            {
                "outputs": ["{i}.csv"],
                "placeholders": {"i": "text"},
                "jobs": {"items": [{"i": "a"}, {"i": "../b"}]},
            },
            "job 1: output '{i}.csv': '../b.csv' is not a usable file name",
        ),
        (
            {"outputs": ["a", "b"], "output_names": {"a": "x", "b": "x"}},
            "outputs: outputs 'a' and 'b' would both be 'x'",
        ),
        ({"output_names": {"gone": "x"}}, "output_names: 'gone' is none of the outputs"),
        ({"resources": {"memory_mb": 0}}, "resources.memory_mb: 0 is less than 1"),
        ({"resources": {"memory": 1}}, "resources.memory: unknown field"),
        ({"quorum": 11}, "quorum: 11 is greater than 10"),
        (
            {"max_output_bytes": 3_000_000, "outputs": ["stdout", "b"]},
            "max_output_bytes: 3000000 is more than 2 outputs can have: this server takes files of"
            " at most 1000000 bytes",
        ),
        (
            {"max_output_bytes": 3 << 20, "outputs": ["*"], "resources": {"disk_mb": 2}},
            "max_output_bytes: 3145728 is more than the disk of a job, 2 MB (resources.disk_mb)",
        ),
        ({"quorum": 6}, "max_replicas 5 is less than the quorum 6"),
        ({"validator": "fuzzy"}, "unknown validator 'fuzzy'; known: exact"),
        ({"validator": "numbers:rel=x"}, "validator numbers: rel=x is no number from 0 up"),
        ({"placeholders": {"i": "float"}}, "placeholders.i: "),
        ({"name": "a\nb"}, "name: control characters are not allowed"),
        ({"name": ""}, "name: empty"),
        ({"tail_sticky": 1}, "tail_sticky: expected true or false, got 1"),
        ({"polcy": ""}, "polcy: unknown field"),
    ],
)
def test_a_wrong_submission_is_told_what_is_wrong(
    site: Site, alice: Person, changes: dict[str, Any], detail: str
) -> None:
    answer = alice("POST", "/api/v1/bots", json=submission(**changes))
    assert answer.status_code == 400
    assert detail in answer.json["detail"]
    assert site.conn.execute(EMPTY_TABLES).fetchone() == (0, 0)


@pytest.mark.parametrize(
    ("data", "content_type", "status", "detail"),
    [
        (b"{", "application/json", 400, "the body is no JSON document: unexpected end of data"),
        (b"", "application/json", 400, "the body is no JSON document: "),
        (b"[]", "application/json", 400, "submit_key: missing"),
        (b"[1]", "application/json", 400, "body: expected an object, got [1]"),
        (b"[" * 100_000, "application/json", 400, "the body is no JSON document: "),
        (b'{"name": "\\ud800"}', "application/json", 400, "the body is no JSON document: "),
        (b"a=1", "application/x-www-form-urlencoded", 415, "did not attempt to load JSON data"),
    ],
)
def test_a_body_that_is_no_json_object_is_refused(
    alice: Person, data: bytes, content_type: str, status: int, detail: str
) -> None:
    answer = alice("POST", "/api/v1/bots", data=data, content_type=content_type)
    assert answer.status_code == status
    assert answer.json["detail"].startswith(detail)


def test_files_that_are_not_there_are_listed(site: Site, alice: Person) -> None:
    _upload(alice, b"there")
    inputs = [_file(b"there", "a"), _file(b"missing", "b")]
    answer = alice("POST", "/api/v1/bots", json=submission(inputs=inputs))
    assert answer.status_code == 409
    assert answer.json["missing"] == [_file(b"missing")["sha256"]]
    assert answer.json["detail"] == "not uploaded yet: b"
    assert site.conn.execute(EMPTY_TABLES).fetchone() == (0, 0)


def test_a_file_of_another_size_is_refused(alice: Person) -> None:
    _upload(alice, b"there")
    body = submission(inputs=[{**_file(b"there"), "size": 4}])
    answer = alice("POST", "/api/v1/bots", json=body)
    assert answer.status_code == 400
    assert answer.json["detail"] == "inputs: data.txt has 5 bytes, not 4"


def test_a_range_over_the_quota_is_refused_before_any_job_is_made(site: Site) -> None:
    carol = site.person("carol", max_jobs=100)
    assert carol("POST", "/api/v1/bots", json=submission()).status_code == 201
    answer = carol("POST", "/api/v1/bots", json=submission(jobs={"range": [0, 10**15]}))
    assert answer.status_code == 403
    assert answer.json["error"] == "QuotaExceeded"
    assert answer.json["detail"] == (
        "the quota is 100 jobs in unfinished BOTs: 10 are there,"
        " 1,000,000,000,000,000 more do not fit"
    )
    assert site.conn.execute(EMPTY_TABLES).fetchone() == (1, 10)
    site.conn.execute("UPDATE bot SET state = 'done'")
    assert (
        carol("POST", "/api/v1/bots", json=submission(jobs={"range": [0, 100]})).status_code == 201
    )


def test_chunks_append_where_the_last_one_ended(site: Site, alice: Person) -> None:
    body = submission(jobs={"stream": True}, placeholders={"i": "int"})
    opened = alice("POST", "/api/v1/bots", json=body).json
    assert (opened["state"], opened["jobs_total"]) == ("open", 0)
    path = f"/api/v1/bots/{opened['id']}"
    for offset in (0, 3):
        lines = json_lines([{"args": {"i": offset + k}} for k in range(3)])
        answer = alice("POST", f"{path}/jobs?offset={offset}", data=lines)
        assert answer.json == {"jobs_total": offset + 3, "first": offset}
    started = alice("POST", f"{path}/start").json
    assert (started["state"], started["jobs_total"]) == ("running", 6)
    assert [row[1] for row in _jobs(site, opened["id"])] == [{"i": i} for i in range(6)]
    assert alice("POST", f"{path}/start").json == started


def test_a_chunk_whose_reply_was_lost_is_not_added_twice(site: Site, alice: Person) -> None:
    body = submission(jobs={"stream": True}, placeholders={"i": "int"})
    bot = alice("POST", "/api/v1/bots", json=body).json["id"]
    chunk = json_lines([{"args": {"i": 1}}, {"args": {"i": 2}}])
    assert alice("POST", f"/api/v1/bots/{bot}/jobs?offset=0", data=chunk).status_code == 200
    again = alice("POST", f"/api/v1/bots/{bot}/jobs?offset=0", data=chunk)
    assert (again.status_code, again.json["jobs_total"]) == (409, 2)
    assert len(_jobs(site, bot)) == 2


def test_a_wrong_chunk_leaves_nothing(site: Site, alice: Person) -> None:
    body = submission(jobs={"stream": True}, placeholders={"i": "int"})
    bot = alice("POST", "/api/v1/bots", json=body).json["id"]
    path = f"/api/v1/bots/{bot}/jobs?offset=0"
    good = json_lines([{"args": {"i": 1}}])
    for line, detail in (
        (b"{", "job 1: no JSON document: "),
        (b'{"args": {"i": "x"}}', "job 1: placeholder {i} is of type int, got 'x'"),
        (b'{"args": {}}', "job 1: placeholder {i} has no value in this job's arguments"),
        (b'{"args": {"i": 1}, "inputs": 7}', "job 1: inputs: expected a list"),
    ):
        answer = alice("POST", path, data=good + line)
        assert answer.status_code == 400
        assert answer.json["detail"].startswith(detail)
    too_many = alice("POST", path, data=good * 20_001)
    assert (too_many.status_code, too_many.json["error"]) == (413, "TooLarge")
    assert alice("POST", path.split("?")[0], data=good).status_code == 400
    assert _jobs(site, bot) == []


def test_only_an_open_bot_takes_jobs(site: Site, alice: Person) -> None:
    bot = make_bot(site.conn, alice.id, jobs=2)
    lines = json_lines([{"args": {"i": 1}}])
    answer = alice("POST", f"/api/v1/bots/{bot}/jobs?offset=2", data=lines)
    assert answer.status_code == 409
    assert answer.json["detail"] == f"BOT {bot} takes no more jobs, it is running"


def test_the_quota_holds_for_chunks(site: Site) -> None:
    carol = site.person("carol", max_jobs=1)
    body = submission(jobs={"stream": True}, placeholders={"i": "int"})
    bot = carol("POST", "/api/v1/bots", json=body).json["id"]
    lines = json_lines([{"args": {"i": 1}}, {"args": {"i": 2}}])
    assert carol("POST", f"/api/v1/bots/{bot}/jobs?offset=0", data=lines).status_code == 403


def test_a_bot_without_jobs_does_not_start(alice: Person) -> None:
    bot = alice("POST", "/api/v1/bots", json=submission(jobs={"stream": True}, command=["x"])).json
    answer = alice("POST", f"/api/v1/bots/{bot['id']}/start")
    assert answer.status_code == 400
    assert answer.json["detail"] == f"BOT {bot['id']} has no jobs, add some first"


@pytest.mark.parametrize(
    ("signs", "scope", "is_signed"),
    [(True, "operator", True), (True, "user", False), (False, "operator", False)],
)
def test_the_server_signs_only_its_operators_bots_and_only_if_told_to(
    site: Site, operator: Person, signs: bool, scope: str, is_signed: bool
) -> None:
    app = create_app(replace(site.settings, sign_on_submit=signs))
    person = replace(site.key_of(operator, scope), app=app)
    bot = person("POST", "/api/v1/bots", json=submission()).json["id"]
    row = site.conn.execute("SELECT manifest, signature FROM bot WHERE id = %s", [bot]).fetchone()
    assert row is not None
    assert (row[1] is not None) == is_signed
    public = keys.public_bytes(site.settings.project_key_path)
    assert not is_signed or verify(public, manifest_statement(row[0]), row[1])
    assert person("GET", f"/api/v1/bots/{bot}").json["signed"] == is_signed
    app.extensions["gridbot"].close()


def test_submission_says_when_no_known_host_can_run_it(site: Site, alice: Person) -> None:
    def match(**changes: Any) -> Any:
        body = signed(site.conn, alice.id, submission(**changes))
        found = alice("POST", "/api/v1/bots", json=body).json["match"]
        return found["hosts_known"], found["hosts_matching"], found["reason"]

    nobody = "no client has asked for work in the last day; start one with: gridbot client start"
    assert match() == (0, 0, nobody)
    site.client_of(alice)
    assert match() == (1, 1, "")
    memory = "a job needs 9000 MB memory, the host has less (1 host)"
    assert match(resources={"memory_mb": 9000}) == (1, 0, memory)
    platform = "a job needs platform windows-x86_64, the host has another (1 host)"
    assert match(platforms=["windows-x86_64"]) == (1, 0, platform)
    policy = "the policy's condition Host.NumCpus > 64 is not satisfied (1 host)"
    assert match(policy="JobRequirements = Host.NumCpus > 64") == (1, 0, policy)
    concurrency = "the policy's condition Concurrency >= 1 is not satisfied (1 host)"
    assert match(policy="Concurrency = 0") == (1, 0, concurrency)


def test_a_bot_matches_clients_that_trust_the_key_that_signed_it(
    site: Site, alice: Person, bob: Person
) -> None:
    site.client_of(bob)
    body = signed(site.conn, alice.id, submission())
    first = alice("POST", "/api/v1/bots", json=body).json["match"]
    assert first["hosts_matching"] == 0
    assert "is signed by alice alone, whose key the client does not trust" in first["reason"]
    site.client_of(bob, trusts=[alice.id])
    second = alice("POST", "/api/v1/bots", json=signed(site.conn, alice.id, submission())).json[
        "match"
    ]
    assert (second["hosts_known"], second["hosts_matching"]) == (2, 1)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"exit_codes": [300]}, "exit_codes"),
        ({"exit_codes": "some"}, "exit_codes"),
        ({"environment": {"X": "{y}"}}, "environment names {y}, but a range has only {i}"),
        ({"environment": {"GRIDBOT_SLOT": ""}}, "one of the client's own"),
        ({"stdin": "data"}, "stdin: data is not the name of an input"),
        ({"stdin": "{y}"}, "stdin names {y}, but a range has only {i}"),
        ({"stdin": "../data"}, "stdin: '../data' is not a usable file name"),
    ],
)
def test_what_a_job_sees_is_checked_at_once(
    alice: Person, changes: dict[str, Any], why: str
) -> None:
    answer = alice("POST", "/api/v1/bots", json=submission(**changes))
    assert answer.status_code == 400
    assert why in answer.json["detail"]


def test_each_job_must_have_the_input_that_it_reads(alice: Person) -> None:
    _upload(alice, b"one")
    items = [{"args": {"i": n}, "inputs": [_file(b"one", f"{n}.txt")]} for n in (1, 2)]
    items.append({"args": {"i": 3}, "inputs": [_file(b"one", "4.txt")]})
    body = submission(jobs={"items": items}, placeholders={"i": "int"}, stdin="{i}.txt")
    answer = alice("POST", "/api/v1/bots", json=body)
    assert answer.json["detail"] == "job 2: stdin: 3.txt is not the name of an input"
    body["jobs"] = {"items": items[:2]}
    assert alice("POST", "/api/v1/bots", json=body).status_code == 201
