import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.factories import make_bot, make_failure, make_host, make_outcome, make_output
from tests.http.conftest import Person, Site
from tests.http.loopback import LosesReplies, serve

from gridbot.api.connection import Connection
from gridbot.api.errors import BadInput, GridbotError, NotFound, PolicyError, Refused, ServerAway
from gridbot.api.session import Session
from gridbot.api.submission import Submission, prepare
from gridbot.reliable import OutOfTime, trying
from gridbot_client.net.discovery import Endpoint
from gridbot_client.protocol.messages import ReplicaId


@pytest.fixture
def network(site: Site) -> LosesReplies:
    return LosesReplies(site.app, [])


@pytest.fixture
def url(network: LosesReplies) -> Iterator[str]:
    with serve(network) as url:
        yield url


@pytest.fixture
def session(url: str, alice: Person) -> Iterator[Session]:
    with session_of(url, alice.token) as session:
        yield session


def session_of(url: str, key: str) -> Session:
    return Session(Connection(Endpoint(url, key)))


def args_of(site: Site, bot: int) -> list[dict[str, object]]:
    rows = site.conn.execute("SELECT args FROM job WHERE bot = %s ORDER BY seq", [bot])
    return [row[0] for row in rows]


def count(site: Site, table: str) -> int:
    row = site.conn.execute(f"SELECT count(*) FROM {table}".encode()).fetchone()
    assert row is not None
    return int(row[0])


def test_a_range_becomes_jobs(site: Site, session: Session) -> None:
    bot = session.submit(["echo", "{}"], items=range(3, 9, 2))
    assert args_of(site, bot.id) == [{"i": 3}, {"i": 5}, {"i": 7}]
    assert bot.show().state == "running"


def test_a_reals_digits_arrive_unchanged(site: Site, session: Session, tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("x,n,t\n0.10,1,a\n1e-300,2,b\n")
    bot = session.submit("p {x} {n} {t}", items=tmp_path / "p.csv")
    assert args_of(site, bot.id) == [
        {"x": "0.10", "n": 1, "t": "a"},
        {"x": "1e-300", "n": 2, "t": "b"},
    ]


def test_on_its_own_machine_a_server_is_asked_here_and_called_by_its_name(
    url: str, alice: Person
) -> None:
    public = "https://grid.invalid"
    with Session(Connection(Endpoint(public, alice.token, local_url=url))) as session:
        assert session.bots() == []
        assert session.connection.url == public
        assert repr(session.bot(1)) == f"<Bot 1 at {public}>"
    stranger = Session(Connection(Endpoint(public, "no key", local_url=url)))
    with stranger, pytest.raises(Refused, match=f"^{public} rejects the key"):
        stranger.bots()


def test_without_items_it_is_one_job(site: Site, session: Session) -> None:
    assert args_of(site, session.submit("hostname").id) == [{}]


def test_a_lost_reply_does_not_double_the_bot(
    site: Site, session: Session, network: LosesReplies
) -> None:
    network.lose = [("POST", "/bots")]
    bot = session.submit("echo {}", items=range(5))
    assert network.seen.count(("POST", "/api/v1/bots")) == 2
    assert count(site, "bot") == 1
    assert bot.show().jobs_total == 5


def test_a_submission_waits_for_a_server_that_is_away_and_says_so(
    site: Site, alice: Person
) -> None:
    away = threading.Event()
    with serve(site.app) as url:
        session = session_of(url, alice.token)
        session.signer()

    def submit() -> None:
        with session:
            session.submit("echo {}", items=range(5), told=lambda error: away.set())

    thread = threading.Thread(target=submit)
    thread.start()
    assert away.wait(20)
    assert count(site, "bot") == 0
    with serve(site.app, port=int(url.rpartition(":")[2])):
        thread.join(30)
    assert count(site, "bot") == 1


def test_lost_replies_do_not_double_streamed_jobs(
    site: Site, session: Session, network: LosesReplies, tmp_path: Path
) -> None:
    (tmp_path / "lines").write_text("".join(f"line {n}\n" for n in range(45_000)))
    network.lose = [("POST", "/jobs"), ("POST", "/start"), ("POST", "/bots")]
    bot = session.submit("echo {}", items=tmp_path / "lines")
    assert network.lose == []
    assert args_of(site, bot.id) == [{"i": f"line {n}"} for n in range(45_000)]
    assert bot.show().state == "running"


class Interrupted(Exception):
    """The scientist's machine went away."""


def test_a_submission_that_was_broken_off_goes_on(
    site: Site, session: Session, tmp_path: Path
) -> None:
    (tmp_path / "lines").write_text("".join(f"{n}\n" for n in range(20_003)))

    def interrupt(what: str, done: int, total: int) -> None:
        raise Interrupted

    with pytest.raises(Interrupted):
        session.submit("echo {}", tmp_path / "lines", progress=interrupt, idempotency_key="mine")
    assert (count(site, "bot"), count(site, "job")) == (1, 20_000)
    bot = session.submit("echo {}", items=tmp_path / "lines", idempotency_key="mine")
    assert count(site, "bot") == 1
    assert args_of(site, bot.id) == [{"i": n} for n in range(20_003)]
    assert bot.show().state == "running"


def test_jobs_are_not_signed_for_a_bot_that_this_key_did_not_sign(
    site: Site, session: Session, alice: Person, tmp_path: Path
) -> None:
    (tmp_path / "lines").write_text("x\n" * 20_001)
    submission = Submission(command="echo {}", items=tmp_path / "lines", idempotency_key="mine")
    body = {**prepare(submission).body, "jobs": {"stream": True}}
    assert alice("POST", "/api/v1/bots", json=body).status_code == 201
    with pytest.raises(GridbotError, match="another BOT under this idempotency key"):
        session.submit("echo {}", items=tmp_path / "lines", idempotency_key="mine")
    assert count(site, "job") == 0


def test_a_next_version_is_signed_only_of_what_this_key_had_signed(
    site: Site, session: Session, tmp_path: Path
) -> None:
    (tmp_path / "data").write_text("second")
    bot = session.submit("cat {i}", items=[f"n{n}" for n in range(70)])
    assert count(site, "job_part") == 2
    assert bot.retry(inputs=["data"], base=tmp_path, memory="1GB", time="2h") == 0
    state = bot.show()
    resources = state.document["resources"]
    assert (state.version, resources["memory_mb"], resources["seconds"]) == (2, 1024, 7200)
    site.conn.execute("UPDATE job_part SET leaves = leaves || leaves, size = 12 WHERE first = 64")
    with pytest.raises(Refused, match="jobs 64 to 75 were not signed with this key"):
        bot.retry(memory="2GB")
    site.conn.execute("UPDATE bot SET manifest = replace(manifest, 'cat', 'rm')")
    with pytest.raises(Refused, match="was signed with another key"):
        bot.retry(memory="2GB")
    assert bot.show().version == 2


def test_files_of_single_jobs_are_not_replaced(session: Session, tmp_path: Path) -> None:
    (tmp_path / "a.dat").touch()
    bot = session.submit("cat {x}.dat", items=[{"x": "a"}], inputs=["{x}.dat"], base=tmp_path)
    with pytest.raises(BadInput, match="files of single jobs stay"):
        bot.retry(inputs=["{x}.dat"], base=tmp_path)
    with pytest.raises(Refused, match="job 0 has a file of its own"):
        bot.retry(inputs=["a.dat"], base=tmp_path)


def test_a_growing_bot_takes_jobs_for_the_version_that_another_program_made(
    site: Site, session: Session
) -> None:
    bot = session.submit("echo {i}", growing=True)
    bot.append([1, 2])
    session.bot(bot.id).retry(memory="1GB")
    assert bot.append([3]) == range(2, 3)
    assert count(site, "job_part") == 2
    bot.retry(memory="2GB")
    assert bot.append([4]) == range(3, 4)


def test_one_key_is_one_bot(site: Site, session: Session) -> None:
    bots = {session.submit("echo {}", items=range(2), idempotency_key="run 7").id for _ in range(2)}
    assert len(bots) == count(site, "bot") == 1


def test_a_cancelled_bot_takes_no_more_jobs(
    site: Site, session: Session, network: LosesReplies, tmp_path: Path
) -> None:
    (tmp_path / "lines").write_text("x\n" * 40_001)

    def cancel(what: str, done: int, total: int) -> None:
        site.conn.execute("UPDATE bot SET state = 'cancelled'")

    with pytest.raises(Refused, match="takes no more jobs, it is cancelled"):
        session.submit("echo {}", items=tmp_path / "lines", progress=cancel)


def test_a_file_is_sent_once_and_from_where_it_stopped(
    site: Site, session: Session, alice: Person, network: LosesReplies, tmp_path: Path
) -> None:
    content = bytes(range(256)) * 1000
    (tmp_path / "data").write_bytes(content)
    ref = prepare(Submission(command="p", inputs=["data"], base=tmp_path)).files[0].ref
    path = f"/api/v1/blobs/{ref.sha256}?size={ref.size}&offset=0"
    assert alice("PUT", path, data=content[:1000]).json["offset"] == 1000
    progress: list[tuple[str, int, int]] = []
    for _ in range(2):
        session.submit(
            "p", inputs=["data"], base=tmp_path, progress=lambda *told: progress.append(told)
        )
    assert progress[0] == ("uploading files", 1000, 256_000)
    assert len([method for method, _ in network.seen if method == "PUT"]) == 1
    assert alice("GET", f"/files/{ref.sha256}").data == content


def test_an_empty_file_is_sent(session: Session, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert session.submit("p", inputs=["empty"], base=tmp_path).show().jobs_total == 1


def test_jobs_have_files_of_their_own(site: Site, session: Session, tmp_path: Path) -> None:
    for n in range(3):
        (tmp_path / f"{n}.dat").write_text(str(n % 2))
    session.submit("p", items=range(3), inputs=["{i}.dat"], base=tmp_path)
    inputs = [row[0][0] for row in site.conn.execute("SELECT inputs FROM job ORDER BY seq")]
    assert [ref["name"] for ref in inputs] == ["0.dat", "1.dat", "2.dat"]
    assert count(site, "blob") == 2


def test_nothing_is_made_when_a_jobs_file_is_missing(
    site: Site, session: Session, network: LosesReplies, tmp_path: Path
) -> None:
    (tmp_path / "0.dat").touch()
    with pytest.raises(BadInput, match=r"item 1 of the range: input 1.dat: No such file"):
        session.submit("p", items=range(2), inputs=["{i}.dat"], base=tmp_path)
    assert network.seen == []


def test_the_match_is_told_at_once(site: Site, session: Session, alice: Person) -> None:
    site.client_of(alice, host=make_host(site.conn, alice.id))
    assert session.submit("p").submitted["match"]["hosts_matching"] == 1
    unable = session.submit("p", cpus=64).submitted["match"]
    assert (unable["hosts_known"], unable["hosts_matching"]) == (1, 0)
    assert unable["reason"]


def test_the_servers_refusal_is_told_as_it_is(site: Site, session: Session) -> None:
    site.conn.execute("UPDATE owner SET max_jobs = 10")
    with pytest.raises(Refused, match="the quota is 10 jobs"):
        session.submit("echo {}", items=range(11))
    assert count(site, "bot") == 0


def test_a_wrong_key_is_refused(url: str) -> None:
    with session_of(url, "wrong") as session, pytest.raises(Refused, match="rejects the key"):
        session.bots()


def test_another_owners_bot_is_not_there(site: Site, session: Session, bob: Person) -> None:
    bot = session.bot(make_bot(site.conn, bob.id))
    for call in (bot.show, bot.cancel, bot.retry, lambda: list(bot.results())):
        with pytest.raises(NotFound, match=f"there is no BOT {bot.id}"):
            call()


def test_a_server_that_is_not_there_is_said_within_seconds() -> None:
    began = time.monotonic()
    away = pytest.raises(ServerAway, match=r"cannot reach http://127.0.0.1:9: .*refused")
    with session_of("http://127.0.0.1:9", "key") as session, away:
        session.bots()
    assert time.monotonic() - began < 30


def test_who_waits_for_a_bot_has_no_more_time_than_the_limit_around(session: Session) -> None:
    bot = session.submit("echo {}", items=range(3))
    for wait in (bot.wait, lambda: list(bot.results(follow=True))):
        with pytest.raises(OutOfTime):
            trying(for_=0.5)(wait)()


def test_results_carry_arguments_outputs_and_reasons(
    site: Site, session: Session, alice: Person, tmp_path: Path
) -> None:
    (tmp_path / "p.csv").write_text("x\n0.10\n2\n")
    bot = session.submit("p {x}", items=tmp_path / "p.csv")
    client = site.client_of(alice).id
    make_outcome(site.conn, ReplicaId(bot.id, 1, 0), client, {"stdout": b"two\n", "a/b": b"\0"})
    make_failure(site.conn, ReplicaId(bot.id, 0, 0), client, "exit_nonzero")
    done, failed = bot.results()
    assert (done.seq, done.state, done.stdout, done.exit_code) == (1, "done", "two\n", 0)
    assert (failed.seq, failed.state, failed.reason) == (0, "failed", "exit_nonzero")
    assert failed.args["x"] == 0.1
    assert str(failed.args["x"]) == "0.10"
    assert done.outputs["a/b"].save(tmp_path / "saved").read_bytes() == b"\0"
    assert [result.n for result in bot.results(after=done.n)] == [failed.n]


def test_a_frame_has_a_row_per_job(site: Site, session: Session, alice: Person) -> None:
    items = [{"x": "0.10", "state": "u"}, {"x": "2", "state": "v"}]
    bot = session.submit("p {x} {state}", items=items)
    client = site.client_of(alice).id
    make_outcome(site.conn, ReplicaId(bot.id, 1, 0), client, {"stdout": b"two\n"})
    make_failure(site.conn, ReplicaId(bot.id, 0, 0), client, "exit_nonzero")
    frame = bot.frame()
    assert list(frame.columns) == [
        "state", "x", "job", "state_", "seconds", "host", "exit_code", "reason", "version",
        "stdout",
    ]  # fmt: skip
    assert frame["version"].tolist() == [1, 1]
    assert frame["x"].tolist() == [0.1, 2.0]
    assert frame["state"].tolist() == ["u", "v"]
    assert frame["state_"].tolist() == ["failed", "done"]
    assert frame["reason"].tolist() == ["exit_nonzero", ""]
    assert frame["stdout"].tolist()[1] == "two\n"
    assert frame["exit_code"][1] == 0
    assert set(frame["host"]) == {"box"}  # of the job that failed, too
    empty = session.submit("p", items=range(3)).frame()
    assert (len(empty), list(empty.columns)[:3]) == (0, ["i", "job", "state"])


@pytest.mark.parametrize(
    ("name", "content", "records"),
    [
        ("out.json", b'{"e": 1.5, "ok": true}', [{"e": 1.5, "ok": True}]),
        ("out.json", b'[{"k": 1}, {"k": 2}]', [{"k": 1}, {"k": 2}]),
        ("out.csv", b"k,name\r\n1,a\r\n2.5,\"b,c\"\r\n", [{"k": 1, "name": "a"},
                                                         {"k": 2.5, "name": "b,c"}]),
        ("stdout", b"0.25\n", [{"stdout": 0.25}]),
    ],
)  # fmt: skip
def test_a_frame_has_the_records_of_an_output(
    site: Site, session: Session, alice: Person, name: str, content: bytes,
    records: list[dict[str, object]],
) -> None:  # fmt: skip
    bot = session.submit("p {i}", items=[7], outputs=[name])
    replica = ReplicaId(bot.id, 0, 0)
    make_outcome(site.conn, replica, site.client_of(alice).id, {name: content})
    frame = bot.frame(name)
    found = frame[["i", *records[0]]].to_dict("records")
    assert found == [{"i": 7, **record} for record in records]


@pytest.mark.parametrize(
    ("name", "content", "fault"),
    [
        ("stdout", b"{", "stdout: Expecting"),
        ("stdout", b"\xff", "stdout: 'utf-8' codec"),
        ("stdout", None, "no output stdout"),
        ("t.csv", b"", "t.csv: no line that names the columns"),
        ("t.csv", b"a,b\n1\n", "t.csv: line 2: 1 field, but the first line names 2 columns"),
    ],
)
def test_a_frame_says_which_output_cannot_be_read(
    site: Site, session: Session, alice: Person, name: str, content: bytes | None, fault: str
) -> None:
    bot = session.submit("p", outputs=[name])
    outputs = {} if content is None else {name: content}
    make_outcome(site.conn, ReplicaId(bot.id, 0, 0), site.client_of(alice).id, outputs)
    (row,) = bot.frame(name).to_dict("records")
    assert row["reason"].startswith(fault)


def test_a_notebook_shows_a_bar(session: Session) -> None:
    bot = session.submit("echo {}", items=range(3), name="a<b")
    html = bot._repr_html_()
    assert '<progress value="0" max="3">' in html
    assert "3 unsent of 3 jobs" in html
    assert "a&lt;b" in html


def test_a_large_output_is_fetched_when_asked_for(
    site: Site, session: Session, alice: Person, tmp_path: Path
) -> None:
    content = b"x" * 300_000
    (tmp_path / "big").write_bytes(content)
    bot = session.submit("p", inputs=["big"], base=tmp_path)  # which puts it into the store
    replica = ReplicaId(bot.id, 0, 0)
    make_outcome(site.conn, replica, site.client_of(alice).id, {})
    make_output(site.conn, replica, "big", content)
    site.conn.execute("UPDATE output SET content = NULL")
    (result,) = bot.results()
    assert not result.outputs["big"].is_here
    assert result.outputs["big"].read() == content


def test_a_damaged_output_is_not_taken(site: Site, session: Session, alice: Person) -> None:
    bot = session.bot(make_bot(site.conn, alice.id))
    make_outcome(site.conn, ReplicaId(bot.id, 0, 0), site.client_of(alice).id, {"stdout": b"good"})
    site.conn.execute("UPDATE output SET content = 'evil'")
    (result,) = bot.results()
    with pytest.raises(ServerAway, match="stdout: the content does not match its hash"):
        result.stdout  # noqa: B018


def test_results_go_on_through_a_restart_of_the_server(site: Site, alice: Person) -> None:
    bot = make_bot(site.conn, alice.id, jobs=2)
    client = site.client_of(alice).id
    make_outcome(site.conn, ReplicaId(bot, 0, 0), client, {})
    away = threading.Event()
    found: list[int] = []

    def follow(url: str) -> None:
        with session_of(url, alice.token) as session:
            results = session.bot(bot).results(follow=True, told=lambda error: away.set())
            found.extend(result.seq for result in results)

    with serve(site.app) as url:
        thread = threading.Thread(target=follow, args=[url])
        thread.start()
    assert away.wait(20)
    make_outcome(site.conn, ReplicaId(bot, 1, 0), client, {})
    site.conn.execute("UPDATE bot SET state = 'done', ended_at = now()")
    with serve(site.app, port=int(url.rpartition(":")[2])):
        thread.join(30)
    assert found == [0, 1]


def test_waiting_ends_with_the_bot_or_with_patience(
    site: Site, session: Session, alice: Person
) -> None:
    bot = session.bot(make_bot(site.conn, alice.id))
    with pytest.raises(
        TimeoutError, match=r"bot \d+ has 0 of 1 job finished after 0.1 s; it keeps running"
    ):
        bot.wait(timeout="0.1s")
    with pytest.raises(BadInput, match="'soon' is not a duration"):
        bot.wait(timeout="soon")
    bot.cancel()
    assert bot.wait().state == "cancelled"


def test_what_is_no_number_of_a_bot_is_refused(session: Session) -> None:
    with pytest.raises(BadInput, match="'last' is no number of a BOT"):
        session.bot("last")  # type: ignore[arg-type]
    for number in (0, 2**70):
        with pytest.raises(NotFound, match=f"there is no BOT {number}"):
            session.bot(number)


def test_failed_jobs_are_retried(site: Site, session: Session, alice: Person) -> None:
    bot = session.bot(make_bot(site.conn, alice.id, jobs=2))
    make_failure(site.conn, ReplicaId(bot.id, 0, 0), site.client_of(alice).id, "time_limit")
    assert [entry["reason"] for entry in bot.logs(failed=True)] == ["time_limit"]
    assert bot.retry() == 1
    assert bot.show().round == 1


def test_a_policy_is_replaced_or_refused_with_the_place(
    site: Site, session: Session, alice: Person
) -> None:
    bot = session.bot(make_bot(site.conn, alice.id))
    bot.set(policy="Rank = Host.Memory;", attempts=7)
    assert bot.show().document["policy"] == "Rank = Host.Memory;"
    with pytest.raises(PolicyError, match="line 1, column 8") as error:
        bot.set(policy="Rank = ;")
    assert error.value.pretty.splitlines()[1] == "  Rank = ;"
