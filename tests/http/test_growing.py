import hashlib
import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from tests.factories import make_bot, make_lease, make_outcome, signed, submission
from tests.http.conftest import Person, Site
from tests.http.loopback import LosesReplies, serve

from gridbot.api.connection import Connection
from gridbot.api.errors import BadInput, Refused
from gridbot.api.results import OutputFile
from gridbot.api.session import Session
from gridbot_client.net.discovery import Endpoint
from gridbot_client.protocol.messages import ReplicaId
from gridbot_server.cycles import transitioner
from gridbot_server.storage import growing, invariants


@pytest.fixture
def network(site: Site) -> LosesReplies:
    return LosesReplies(site.app, [])


@pytest.fixture
def session(network: LosesReplies, alice: Person, tmp_path: Path) -> Any:
    with serve(network) as url, Session(Connection(Endpoint(url, alice.token))) as session:
        yield session


def args_of(site: Site, bot: int) -> list[dict[str, object]]:
    rows = site.conn.execute("SELECT args FROM job WHERE bot = %s ORDER BY seq", [bot])
    return [row[0] for row in rows]


def finish(site: Site, alice: Person, bot: int, seqs: range) -> None:
    client = site.client_of(alice).id
    site.conn.execute("UPDATE bot SET fed = size WHERE id = %s", [bot])
    for seq in seqs:
        make_outcome(site.conn, ReplicaId(bot, seq, 1), client, {})


def grown(alice: Person, jobs: int = 0) -> int:
    items = [{"i": n} for n in range(jobs)]
    body = submission(jobs={"items": items}, placeholders={"i": "int"}, growing=True)
    answer = alice("POST", "/api/v1/bots", json=body)
    assert answer.status_code == 201, answer.json
    return int(answer.json["id"])


def append(alice: Person, bot: int, query: str, *numbers: int) -> Any:
    data = "".join(f'{{"i": {n}}}\n' for n in numbers)
    headers = {"Content-Type": "application/jsonlines"}
    return alice("POST", f"/api/v1/bots/{bot}/jobs?{query}", data=data, headers=headers)


def test_a_bot_that_begins_without_jobs_runs_and_takes_some(site: Site, session: Session) -> None:
    bot = session.submit(["echo", "{i}"], items=[], growing=True)
    assert (bot.show().state, bot.show().growing, bot.show().jobs_total) == ("running", True, 0)
    assert bot.append([1, 2]) == range(2)
    assert bot.append(["x"]) == range(2, 3)
    assert args_of(site, bot.id) == [{"i": 1}, {"i": 2}, {"i": "x"}]
    assert bot.show().jobs_total == 3


def test_growing_without_items_means_none_yet(session: Session) -> None:
    bot = session.submit("hostname", growing=True)
    assert bot.show().jobs_total == 0
    assert bot.append([{}, {}]) == range(2)


def test_jobs_of_a_submission_and_appended_ones_are_numbered_on(
    site: Site, session: Session
) -> None:
    bot = session.submit(["echo", "{x}", "{y}"], items=[{"x": 1, "y": 0.10}], growing=True)
    assert bot.append([{"x": "a", "y": "b"}]) == range(1, 2)
    assert args_of(site, bot.id) == [{"x": 1, "y": "0.1"}, {"x": "a", "y": "b"}]


def test_an_appended_item_needs_a_value_for_each_column(session: Session) -> None:
    bot = session.submit(["echo", "{x}"], items=[], growing=True)
    with pytest.raises(BadInput, match=r"items\[0\] has no value for \{x\}"):
        bot.append([{"y": 1}])
    with pytest.raises(
        BadInput, match=r"items\[1\]: \[2\], a list, is neither a string nor a number"
    ):
        bot.append([{"x": 1}, {"x": [2]}])
    assert bot.show().jobs_total == 0


def test_all_jobs_of_a_growing_bot_are_signed(site: Site, session: Session) -> None:
    bot = session.submit(["echo", "{i}"], items=[1], growing=True)
    bot.append(range(70))
    query = "SELECT first, size, signature IS NOT NULL FROM job_part WHERE bot = %s ORDER BY first"
    assert site.conn.execute(query, [bot.id]).fetchall() == [
        (0, 1, True), (1, 64, True), (65, 6, True),
    ]  # fmt: skip
    assert invariants.check(site.conn, idle=True) == []


def test_appended_jobs_have_files_of_their_own(
    site: Site, session: Session, tmp_path: Path
) -> None:
    for n in range(3):
        (tmp_path / f"{n}.dat").write_text(f"content {n}")
    options: dict[str, Any] = {"inputs": ["{i}.dat"], "base": tmp_path, "growing": True}
    bot = session.submit(["cat", "{i}.dat"], items=[0], **options)
    bot.append([1])
    elsewhere = session.bot(bot.id)
    elsewhere.append([2], inputs=["{i}.dat"], base=tmp_path)
    rows = site.conn.execute("SELECT inputs FROM job WHERE bot = %s ORDER BY seq", [bot.id])
    assert [[ref["name"] for ref in row[0]] for row in rows] == [["0.dat"], ["1.dat"], ["2.dat"]]
    with pytest.raises(BadInput, match=r"input 7\.dat: No such file"):
        bot.append([7])


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_a_lost_reply_appends_no_job_twice(
    site: Site, network: LosesReplies, session: Session, lost: int
) -> None:
    bot = session.submit(["echo", "{i}"], items=[], growing=True)
    bot.append([0])
    network.lose += [("POST", f"/bots/{bot.id}/jobs")] * lost
    assert bot.append([1]) == range(1, 2)
    assert bot.append([1]) == range(2, 3)
    assert args_of(site, bot.id) == [{"i": 0}, {"i": 1}, {"i": 1}]


def test_two_who_append_at_once_both_keep_their_jobs(site: Site, session: Session) -> None:
    one = session.submit(["echo", "{i}"], items=[], growing=True)
    other = session.bot(one.id)
    assert other.append(["same"]) == range(1)
    assert one.append(["same"]) == range(1, 2)
    assert other.append(["same"]) == range(2, 3)
    assert args_of(site, one.id) == [{"i": "same"}] * 3


def test_an_append_at_an_offset_changes_nothing_when_repeated(site: Site, session: Session) -> None:
    bot = session.submit(["echo", "{i}"], items=[], growing=True)
    for _ in range(2):
        assert bot.append(["a", "b"], offset=0) == range(2)
    assert bot.append(["c"], offset=2) == range(2, 3)
    assert session.bot(bot.id).append(["b"], offset=1) == range(1, 2)
    with pytest.raises(Refused, match=f"BOT {bot.id} has 3 jobs, not 1"):
        bot.append(["other"], offset=1)
    bot.close()
    assert bot.append(["a", "b"], offset=0) == range(2)
    assert len(args_of(site, bot.id)) == 3


def test_a_repeated_request_is_known_by_its_key(alice: Person) -> None:
    bot, key = grown(alice, 1), uuid.uuid4()
    for _ in range(2):
        assert append(alice, bot, f"offset=1&key={key}", 7).json == {"jobs_total": 2, "first": 1}
    append(alice, bot, "offset=2", 8)
    assert append(alice, bot, f"offset=1&key={key}", 7).json == {"jobs_total": 3, "first": 1}
    other = append(alice, bot, "offset=1&key=another", 7)
    assert (other.status_code, other.json["jobs_total"]) == (409, 3)
    assert append(alice, bot, "offset=1&key=a_b", 7).status_code == 400


def test_a_closed_bot_takes_no_jobs_and_ends_with_those_it_has(
    site: Site, alice: Person, session: Session
) -> None:
    bot = session.submit(["echo", "{i}"], items=[1, 2], growing=True)
    assert (bot.close().state, bot.close().growing) == ("running", False)
    with pytest.raises(Refused, match=f"BOT {bot.id} takes no more jobs, it was closed by its own"):
        bot.append([3])
    finish(site, alice, bot.id, range(2))
    site.conn.execute("UPDATE bot SET state = 'done', ended_at = now() WHERE id = %s", [bot.id])
    assert bot.close().state == "done"
    assert bot.show().document["closed"] == "by its owner"


def test_closing_ends_a_bot_whose_jobs_are_all_finished(
    site: Site, alice: Person, session: Session
) -> None:
    bot = session.submit(["echo", "{i}"], items=[1, 2], growing=True)
    finish(site, alice, bot.id, range(2))
    assert bot.show().state == "running"
    assert bot.close().state == "done"


def test_a_bot_without_jobs_can_be_closed(site: Site, session: Session) -> None:
    empty = session.submit(["echo", "{i}"], items=[], growing=True)
    assert (empty.close().state, empty.show().jobs_total) == ("done", 0)
    assert invariants.check(site.conn, idle=True) == []


def test_a_cancelled_bot_grows_no_more(site: Site, session: Session) -> None:
    bot = session.submit(["echo", "{i}"], items=[1], growing=True)
    bot.cancel()
    with pytest.raises(Refused, match=f"BOT {bot.id} takes no more jobs, it is cancelled"):
        bot.append([3])
    assert (bot.close().state, bot.show().growing) == ("cancelled", False)


def test_an_open_bot_is_not_closed_and_others_stay_as_they_are(alice: Person) -> None:
    open_ = alice(
        "POST", "/api/v1/bots", json=submission(command=["x"], jobs={"stream": True})
    ).json["id"]
    answer = alice("POST", f"/api/v1/bots/{open_}/close")
    assert (answer.status_code, answer.json["detail"]) == (
        409, f"BOT {open_} is open: its submission is not complete",
    )  # fmt: skip
    plain = alice("POST", "/api/v1/bots", json=submission()).json["id"]
    assert alice("POST", f"/api/v1/bots/{plain}/close").json["state"] == "running"
    assert alice("GET", f"/api/v1/bots/{plain}").json["closed"] is None


def test_a_range_does_not_grow(alice: Person) -> None:
    answer = alice("POST", "/api/v1/bots", json=submission(growing=True))
    assert answer.status_code == 400
    assert answer.json["detail"] == "jobs.range: a range does not grow; send its jobs as items"


def test_a_range_of_a_growing_submission_becomes_items(site: Site, session: Session) -> None:
    bot = session.submit(["echo", "{}"], items=range(3), growing=True)
    bot.append(range(3, 5))
    assert args_of(site, bot.id) == [{"i": n} for n in range(5)]


def test_a_long_submission_that_grows_is_continued_by_its_key(
    site: Site, network: LosesReplies, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gridbot.api.sending.CHUNK_JOBS", 2)
    network.lose += [("POST", "/jobs")]
    options: dict[str, Any] = {"growing": True, "idempotency_key": "once"}
    bot = session.submit(["echo", "{i}"], items=list("abcde"), **options)
    again = session.submit(["echo", "{i}"], items=list("abcde"), **options)
    assert again.id == bot.id
    assert again.append(["f"]) == range(5, 6)
    assert [item["i"] for item in args_of(site, bot.id)] == list("abcdef")


def test_appended_jobs_count_against_the_quota(site: Site, alice: Person) -> None:
    bot = grown(alice, 2)
    site.conn.execute("UPDATE owner SET max_jobs = 3 WHERE id = %s", [alice.id])
    assert append(alice, bot, "offset=2", 1, 2).status_code == 403
    assert append(alice, bot, "offset=2", 1).json == {"jobs_total": 3, "first": 2}


def test_an_appended_job_that_does_not_fit_the_command_changes_nothing(
    site: Site, alice: Person
) -> None:
    bot = grown(alice, 1)
    headers = {"Content-Type": "application/jsonlines"}
    data = '{"i": 1}\n{"j": 2}\n'
    path = f"/api/v1/bots/{bot}/jobs?offset=1"
    answer = alice("POST", path, data=data, headers=headers)
    assert answer.status_code == 400
    assert "job 2: placeholder {i} has no value" in answer.json["detail"]
    assert len(args_of(site, bot)) == 1


def test_a_bot_that_was_not_submitted_as_growing_takes_no_jobs(alice: Person) -> None:
    bot = alice("POST", "/api/v1/bots", json=submission()).json["id"]
    answer = append(alice, bot, "offset=10", 1)
    assert answer.status_code == 409
    assert answer.json["detail"] == f"BOT {bot} takes no more jobs, it is running"


def test_only_the_key_that_signed_a_bot_appends(
    site: Site, session: Session, tmp_path: Path
) -> None:
    bot = session.submit(["echo", "{i}"], items=[], growing=True)
    site.conn.execute("UPDATE bot SET owner_signature = %s WHERE id = %s", [bytes(64), bot.id])
    with pytest.raises(Refused, match=f"bot {bot.id} was signed with another key"):
        session.bot(bot.id).append([1])


def test_an_idle_growing_bot_is_closed_after_long_and_says_so(
    site: Site, alice: Person, session: Session
) -> None:
    idle, busy, used = (
        session.submit(["echo", "{i}"], items=items, growing=True) for items in ([1], [1], [1])
    )
    finish(site, alice, idle.id, range(1))
    finish(site, alice, used.id, range(1))
    site.conn.execute("UPDATE bot SET grown_at = now() - interval '31 days'")
    site.conn.execute(
        "UPDATE outcome SET made_at = now() - interval '31 days' WHERE bot = %s", [idle.id]
    )
    assert (growing.close_idle(site.conn), growing.close_idle(site.conn)) == (1, 0)
    assert [item.show().state for item in (idle, busy, used)] == ["done", "running", "running"]
    why = "by the server, 30 days after its last job"
    assert idle.show().document["closed"] == why
    with pytest.raises(Refused, match=f"BOT {idle.id} takes no more jobs, it was closed {why}"):
        idle.append([2])


def test_results_go_on_while_the_bot_is_open(site: Site, alice: Person, session: Session) -> None:
    bot = session.submit(["echo", "{i}"], items=[], growing=True)
    results = bot.results(follow=True)
    seen = []
    for n in range(3):
        (seq,) = bot.append([n])
        finish(site, alice, bot.id, range(seq, seq + 1))
        result = next(results)
        seen.append((result.seq, result.args["i"], result.state))
    assert seen == [(0, 0, "done"), (1, 1, "done"), (2, 2, "done")]
    bot.close()
    assert next(results, None) is None
    assert transitioner.run_once(site.conn) == 0
    assert bot.show().state == "done"


def test_a_bot_whose_parts_another_signed_is_refused(site: Site, alice: Person) -> None:
    body = signed(
        site.conn,
        alice.id,
        submission(jobs={"stream": True}, growing=True, placeholders={"i": "int"}),
    )
    bot = alice("POST", "/api/v1/bots", json=body).json["id"]
    answer = append(alice, bot, "offset=0", 1)
    assert (answer.status_code, "not signed" in answer.json["detail"]) == (400, True)


def test_single_jobs_are_cancelled_and_the_results_say_so(
    site: Site, alice: Person, session: Session
) -> None:
    bot = session.submit(["echo", "{i}"], items=[0, 1, 2], growing=True)
    finish(site, alice, bot.id, range(1))
    assert bot.cancel(jobs=[0, 2]).document["cancelled"] == [2]
    state = bot.cancel(jobs=[2])
    assert (state.jobs_failed, state.jobs_cancelled, state.document["cancelled"]) == (1, 1, [])
    found = {item.seq: (item.state, item.reason) for item in bot.results()}
    assert found == {0: ("done", ""), 2: ("failed", "cancelled")}
    assert bot.show().document["replicas"]["made"] == 0
    assert (bot.retry(), bot.cancel(jobs=[]).document["cancelled"]) == (0, [])
    with pytest.raises(Refused, match=f"jobs: BOT {bot.id} has 3 jobs, and no job 3"):
        bot.cancel(jobs=[1, 3])
    assert [entry["how"] for entry in bot.logs(seq=2)] == ["cancelled"]


def stored_output(site: Site, alice: Person, session: Session, content: bytes) -> OutputFile:
    """An output that its client has uploaded as a file."""
    bot, client = make_bot(site.conn, alice.id), site.client_of(alice)
    replica = ReplicaId(bot, 0, 1)
    make_lease(site.conn, replica, client.id)
    sha256 = hashlib.sha256(content).hexdigest()
    url = f"/uploads/{bot}/0/1/stdout?sha256={sha256}&size={len(content)}&offset=0"
    assert client("PUT", url, data=content).json["complete"]
    site.conn.execute("DELETE FROM lease")
    make_outcome(site.conn, replica, client.id, {})
    (result,) = session.bot(bot).results()
    return result.outputs["stdout"]


def test_an_output_of_a_job_is_an_input_of_others_without_being_sent(
    site: Site, alice: Person, session: Session, network: LosesReplies
) -> None:
    found = stored_output(site, alice, session, b"large enough to be a file")
    assert not found.is_here
    network.seen.clear()
    bot = session.submit(["cat", "stdout", "{i}"], items=[1], inputs=[found], job_inputs=["*.dat"])
    growing_bot = session.submit(["cat", "x.dat"], items=[], growing=True, job_inputs=["*.dat"])
    growing_bot.append([{}], inputs=[found.named("x.dat")])
    assert {method for method, path in network.seen if "/blobs/" in path} == {"HEAD"}
    assert not any("/outputs/" in path for _, path in network.seen)
    manifest = json.loads(session.connection.get(f"/bots/{bot.id}/manifest")["text"])
    assert [(ref["name"], ref["sha256"]) for ref in manifest["inputs"]] == [
        ("stdout", found.sha256),
    ]  # fmt: skip
    row = site.conn.execute("SELECT inputs FROM job WHERE bot = %s", [growing_bot.id]).fetchone()
    assert row is not None
    assert [(ref["name"], ref["sha256"]) for ref in row[0]] == [("x.dat", found.sha256)]


def test_a_small_output_that_came_with_its_result_becomes_a_file(
    site: Site, alice: Person, session: Session
) -> None:
    bot, client = make_bot(site.conn, alice.id), site.client_of(alice)
    make_outcome(site.conn, ReplicaId(bot, 0, 1), client.id, {"small": b"content"})
    (result,) = session.bot(bot).results()
    session.submit(["cat", "small"], inputs=[result.outputs["small"]])
    query = "SELECT size FROM blob JOIN blob_owner USING (sha256) WHERE owner = %s"
    assert site.conn.execute(query, [alice.id]).fetchone() == (7,)


def test_nobody_uses_an_output_of_another_person(
    site: Site, alice: Person, bob: Person, session: Session, network: LosesReplies
) -> None:
    found = stored_output(site, alice, session, b"secret")
    with (
        serve(network) as url,
        Session(Connection(Endpoint(url, bob.token))) as other,
        pytest.raises(Refused, match="the server does not have this output any more"),
    ):
        other.submit(["cat", "stdout"], inputs=[found])
    assert not site.conn.execute("SELECT 1 FROM bot WHERE owner = %s", [bob.id]).fetchone()


def test_a_file_whose_name_the_bot_did_not_expect_is_refused(
    site: Site, alice: Person, session: Session
) -> None:
    found = stored_output(site, alice, session, b"content")
    bot = session.submit(["cat", "x.dat"], items=[], growing=True, job_inputs=["x.dat"])
    with pytest.raises(Refused, match="job_inputs allow no job to have a file stdout"):
        bot.append([{}], inputs=[found])
