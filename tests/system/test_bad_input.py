from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.system.bare_client import BareClient
from tests.system.deployment import Deployment, eventually
from tests.system.relay import Relay, Spoil, faithful, relay

from gridbot_client.protocol.messages import encode_request

# Larger than what travels inside a report or a result.
LARGE = random.Random(42).randbytes(200_000)


@contextmanager
def nothing_made(server: Deployment) -> Iterator[None]:
    """Fail if a BOT, a job or a file has come into being in between."""
    query = "SELECT (SELECT count(*) FROM bot), (SELECT count(*) FROM job), count(*) FROM blob"
    before = server.rows(query)
    yield
    assert server.rows(query) == before


def one_line(text: str) -> str:
    assert text.count("\n") == 1, text
    return text


# --- submissions


@pytest.fixture
def wide(running: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal that has room for a message with a long path in one line."""
    monkeypatch.setitem(running.env, "COLUMNS", "400")


@pytest.mark.usefixtures("wide")
def test_a_policy_with_a_syntax_error_is_shown_with_its_place(running: Deployment) -> None:
    policy = running.file("bad.ad", "Rank = 1;\nDeadline = 60 * ;\n")
    options = ("--policy", str(policy), "--range", "0:3", "--", "true")
    with nothing_made(running):
        said = running.run("submit", *options, code=2)
    assert said == (
        f"{policy}:2:17: error: expected an expression, found ';'\n"
        "  Deadline = 60 * ;\n"
        "                  ^\n"
    )


@pytest.mark.usefixtures("wide")
def test_a_bad_policy_does_not_replace_a_good_one(running: Deployment) -> None:
    bot = running.submit("--range", "0:3", "--", "true", policy="JobRequirements = false;")
    policy = running.file("bad.ad", "Rank = = 1;")
    said = running.run("bot", "set", str(bot), "--policy", str(policy), code=2)
    assert said == (
        f"{policy}:1:8: error: expected an expression, found '='; write == to compare\n"
        "  Rank = = 1;\n"
        "         ^\n"
    )
    shown = running.show(bot)
    assert (shown["policy"], shown["policy_version"]) == ("JobRequirements = false;", 1)


def test_a_missing_input_file_stops_the_whole_submission(running: Deployment) -> None:
    there, absent = running.file("there.dat", LARGE), running.folder / "absent.dat"
    inputs = ("--input", str(there), "--input", str(absent))
    with nothing_made(running):
        said = one_line(running.run("submit", *inputs, "--", "true", code=2))
    assert said == f"gridbot: input {absent}: No such file or directory\n"


def test_an_unknown_column_is_named_beside_those_that_there_are(running: Deployment) -> None:
    items = running.file("points.csv", "theta1,theta2\n0.1,0.2\n0.3,0.4\n")
    options = ("--items", str(items), "--", "echo", "{thta1}")
    with nothing_made(running):
        said = one_line(running.run("submit", *options, code=2))
    assert "thta1" in said and "{theta1}, {theta2}" in said


def test_a_range_over_the_quota_is_refused_and_one_within_it_is_not(running: Deployment) -> None:
    carol = running.add_user("carol", "--max-jobs", "10")
    with nothing_made(running):
        said = one_line(running.run("submit", "--range", "0:11", "--", "true", code=4, key=carol))
    assert "the quota is 10 jobs in unfinished BOTs: 0 are there, 11 more do not fit" in said
    running.submit("--range", "0:7", "--", "true", key=carol)
    with nothing_made(running):
        said = one_line(running.run("submit", "--range", "0:4", "--", "true", code=4, key=carol))
    assert "7 are there, 4 more do not fit" in said
    running.submit("--range", "0:3", "--", "true", key=carol)


# --- downloads


def truncated(body: bytes) -> bytes:
    return body[: len(body) // 2]


def corrupted(body: bytes) -> bytes:
    return body[:1000] + bytes([body[1000] ^ 1]) + body[1001:]


def spoil(part: str, change: Callable[[bytes], bytes], times: int) -> Spoil:
    """Change the first replies to requests whose path has that part."""
    left = [change] * times

    def spoiled(path: str, body: bytes) -> bytes:
        return left.pop()(body) if part in path and left else body

    return spoiled


def start_client(server: Deployment, network: Relay, name: str) -> Path:
    """Start a client behind a bad network and return its folder."""
    key = str(server.settings.operator_key_path)
    server.client(name, "--cpus", "1", "--server", network.url, "--key-file", key)
    return server.folder / name


@pytest.mark.parametrize("change", [truncated, corrupted])
def test_an_input_that_arrives_spoilt_is_fetched_again(
    running: Deployment, change: Callable[[bytes], bytes]
) -> None:
    data = running.file("data", LARGE)
    with relay(running.port) as network:
        network.spoil = spoil("/files/", change, times=1)
        start_client(running, network, change.__name__)
        bot = running.submit("--input", str(data), "--", "sha256sum", "data")
        running.wait(bot)
    with running.session() as session:
        (result,) = session.bot(bot).results()
    assert result.stdout == f"{hashlib.sha256(LARGE).hexdigest()}  data\n"
    assert running.made(bot) == {"first": 1}


def test_an_input_that_stays_corrupt_never_reaches_a_program(running: Deployment) -> None:
    data = running.file("data", LARGE)
    with relay(running.port) as network:
        network.spoil = spoil("/files/", corrupted, times=1000)
        client = start_client(running, network, "unlucky")
        options = ("--input", str(data), "--attempts", "1")
        bot = running.submit(*options, "--", "sha256sum", "data")
        said = running.run("bot", "wait", str(bot), code=1)
    assert said.endswith(f"1 of 1 job failed; for the reasons: gridbot bot logs {bot} --summary\n")
    (log,) = json.loads(running.run("bot", "logs", str(bot), "--json"))["logs"]
    assert (log["reason"], log["stdout"]) == ("input_corrupt", "")
    assert "does not match this hash" in log["stderr"]
    assert list((client / "cache").iterdir()) == []


@pytest.mark.parametrize(
    ("change", "complaint"),
    [(truncated, "the connection broke during download"), (corrupted, "does not match its hash")],
)
def test_a_result_that_arrives_spoilt_is_not_kept(
    running: Deployment, tmp_path: Path, change: Callable[[bytes], bytes], complaint: str
) -> None:
    data = running.file("data", LARGE)
    running.client(f"sends {change.__name__}", "--cpus", "1")
    bot = running.submit("--input", str(data), "--output", "copy", "--", "cp", "data", "copy")
    running.wait(bot)
    key = str(running.settings.operator_key_path)
    with relay(running.port) as network:
        where = ("--server", network.url, "--key-file", key)
        collect = ("bot", "results", str(bot), "--to", str(tmp_path / "to"), *where)
        network.spoil = spoil("/outputs/", change, times=1000)
        assert complaint in one_line(running.run(*collect, code=3))
        assert list((tmp_path / "to" / "0").iterdir()) == []
        network.spoil = faithful
        assert running.run(*collect) == f"bot {bot}: 1 new result\n"
    assert (tmp_path / "to" / "0" / "copy").read_bytes() == LARGE


# --- uploads


def test_outputs_over_their_limit_fail_the_job(running: Deployment) -> None:
    running.client("client", "--cpus", "1")
    command = ("sh", "-c", "head -c 1100000 /dev/zero > big")
    options = ("--output", "big", "--max-output", "1", "--attempts", "1")
    bot = running.submit(*options, "--", *command)
    said = running.run("bot", "wait", str(bot), code=1)
    assert said.endswith(f"1 of 1 job failed; for the reasons: gridbot bot logs {bot} --summary\n")
    (log,) = json.loads(running.run("bot", "logs", str(bot), "--json"))["logs"]
    assert log["reason"] == "output_too_big"
    assert "outputs of 1100000 bytes in all, at most 1048576" in log["stderr"]
    assert running.rows("SELECT * FROM output WHERE bot = %s", bot) == []


@pytest.mark.parametrize(
    ("announced", "complaint"),
    [
        (1_100_000, "output.dat has 1100000 bytes and the replica's other outputs 0"),
        (10, "1100000 bytes from 0 on go past the 10 announced"),
    ],
)
def test_an_upload_over_the_limit_is_refused(
    running: Deployment, announced: int, complaint: str
) -> None:
    bot = running.submit("--output", "output.dat", "--max-output", "1", "--", "true")
    client = running.bare_client("greedy")
    (item,) = eventually(lambda: client.ask().assignments, what="a replica")
    body = bytes(1_100_000)
    address = f"/uploads/{bot}/0/{item.id.replica}/output.dat?offset=0"
    query = f"&sha256={hashlib.sha256(body).hexdigest()}&size={announced}"
    with nothing_made(running):
        answer = client.call("PUT", address + query, body)
    assert answer.status_code == 413
    assert complaint in answer.json()["detail"]
    assert running.rows("SELECT * FROM output WHERE bot = %s", bot) == []


# --- other people


def test_a_wrong_key_is_refused_everywhere(running: Deployment) -> None:
    refusal = f"{running.url} rejects the key: "
    with nothing_made(running):
        for command in (["bots"], ["submit", "--range", "0:3", "--", "true"]):
            assert refusal in one_line(running.run(*command, code=4, key="wrong"))
    clients = running.rows("SELECT count(*) FROM client")
    folder = running.folder / "stranger"
    said = running.run("client", "run", "--data", str(folder), code=4, key="wrong")
    assert one_line(said).endswith("the key is unknown, expired or revoked\n")
    assert running.rows("SELECT count(*) FROM client") == clients
    stranger = BareClient(running.url, "wrong")
    answer = stranger.call("POST", "/rpc", encode_request(stranger.request()))
    assert answer.status_code == 401
    assert answer.json()["detail"] == "this client's token is unknown, expired or revoked"


def test_another_users_bot_looks_as_if_it_were_not_there(running: Deployment) -> None:
    alice, bob = running.add_user("alice"), running.add_user("bob")
    bot = running.submit("--range", "0:3", "--", "true", key=alice)
    to = running.folder / "stolen"
    for verb in (
        ["show"],
        ["wait"],
        ["cancel"],
        ["retry"],
        ["logs"],
        ["results"],
        ["results", "--to", str(to)],
        ["set", "--name", "mine"],
    ):
        said = running.run("bot", *verb, str(bot), code=4, key=bob)
        assert said == f"gridbot: there is no BOT {bot}\n"
    assert not to.exists()
    assert json.loads(running.run("bots", "--json", key=bob)) == {"bots": []}
    shown = json.loads(running.run("bot", "show", str(bot), "--json", key=alice))
    assert (shown["state"], shown["name"], shown["jobs_total"]) == ("running", "true", 3)
