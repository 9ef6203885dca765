import csv
import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.factories import (
    make_bot,
    make_ended,
    make_failure,
    make_host,
    make_outcome,
)
from tests.http.conftest import Person, Site
from tests.http.loopback import serve

from gridbot.api import signing_key
from gridbot.cli import gridbot
from gridbot_client.protocol.messages import ReplicaId

Run = Callable[..., Result]


@pytest.fixture
def url(site: Site) -> Iterator[str]:
    with serve(site.app) as url:
        yield url


@pytest.fixture
def run(url: str, alice: Person, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    return runner(url, alice, tmp_path)


def runner(url: str, person: Person, home: Path) -> Run:
    environment = {
        "GRIDBOT_SERVER": url,
        "GRIDBOT_KEY": person.token,
        "XDG_CONFIG_HOME": str(home / "config"),
        "GRIDBOT_DATA": str(home / "data"),
    }

    def call(*arguments: object, given: str | None = None) -> Result:
        found = CliRunner(env=environment).invoke(gridbot, [*map(str, arguments)], input=given)
        assert found.exception is None or isinstance(found.exception, SystemExit), found.exception
        return found

    return call


def refused(found: Result) -> str:
    """The one line on stderr of an expected failure."""
    assert found.exit_code in range(1, 6)
    assert found.stdout == ""
    assert found.stderr.count("\n") == 1
    return found.stderr.removeprefix("gridbot: ").rstrip()


def table_in(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


def bot_with_results(site: Site, owner: Person, *stdouts: str) -> int:
    bot = make_bot(site.conn, owner.id, jobs=len(stdouts))
    client = site.client_of(owner).id
    for seq, text in enumerate(stdouts):
        make_outcome(site.conn, ReplicaId(bot, seq, 0), client, {"stdout": text.encode()})
    site.conn.execute("UPDATE bot SET state = 'done', ended_at = now() WHERE id = %s", [bot])
    return bot


def test_submit_says_the_number_the_match_and_the_next_step(run: Run) -> None:
    found = run("submit", "--range", "0:240", "--", "echo", "{}")
    assert found.stdout == "bot 1: 240 jobs\n"
    assert "no known host can run it now: " in found.stderr
    assert "to follow its progress: gridbot bot wait 1" in found.stderr


def test_json_is_one_document_and_nothing_else(run: Run) -> None:
    found = run("submit", "--json", "--", "echo")
    assert json.loads(found.stdout)["id"] == 1
    assert found.stderr == ""
    verbs = (
        "bot list",
        "bot show 1",
        "bot cancel 1",
        "bot results 1",
        "bot logs 1",
        "host list",
        "status",
    )
    for verb in verbs:
        assert isinstance(json.loads(run(*verb.split(), "--json").stdout), dict)


def test_a_bot_file_is_submitted_with_its_options(run: Run, site: Site, tmp_path: Path) -> None:
    (tmp_path / "BOT.toml").write_text(
        'name = "scan"\ncommand = ["p", "{x}"]\nitems = "p.csv"\ncpus = 2\ntime = "10m"\n'
    )
    (tmp_path / "p.csv").write_text("x\n1.5\n")
    assert run("submit", "BOT.toml", "--name", "mine").exit_code == 0
    bot = json.loads(run("bot", "show", "1", "--json").stdout)
    assert (bot["name"], bot["resources"]["cpus"], bot["resources"]["seconds"]) == ("mine", 2, 600)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("submit --range 0:2 -- p {thta}", "the command names {thta}, but the items have only {i}"),
        ("submit --items none.csv -- p", "none.csv: No such file or directory"),
        ("submit --input none.dat -- p", "input none.dat: No such file or directory"),
        ("submit --time soon -- p", "'soon' is not a duration; write 90s, 10m, 2h or 1d"),
        ("submit --quorum 4 --max-replicas 2 -- p", "max_replicas 2 is less than the quorum 4"),
        ("submit --range 0:99999999999 -- p", "the quota is 20,000,000 jobs in unfinished BOTs"),
        ("submit --validator x -- p", "unknown validator 'x'; known: "),
        ("submit none.toml", "none.toml: No such file or directory"),
        ("bot show 77", "there is no BOT 77"),
        ("user list", "operator"),
    ],
)
def test_an_expected_failure_is_one_line(run: Run, arguments: str, message: str) -> None:
    assert message in refused(run(*arguments.split()))


@pytest.mark.parametrize("arguments", ["submit", "submit --cpus 0 -- p", "bot set 1", "bot show x"])
def test_wrong_usage_exits_with_2(run: Run, arguments: str) -> None:
    assert run(*arguments.split()).exit_code == 2


def test_a_wrong_policy_is_shown_with_a_caret(run: Run, site: Site, tmp_path: Path) -> None:
    (tmp_path / "p.ad").write_text("Rank = 1;\nDeadline = (2;\n")
    checked = run("policy", "check", "p.ad")
    assert checked.stderr.startswith("p.ad:2:14: error: ")
    assert checked.stderr.splitlines()[-1].endswith("^")
    assert (checked.exit_code, checked.stdout) == (1, "")
    submitted = run("submit", "--policy", "p.ad", "--", "p")
    changed = run("bot", "set", 1, "--policy", "p.ad")
    tried = run("policy", "eval", "p.ad")
    for found in (submitted, changed, tried):
        assert (found.exit_code, found.stdout, found.stderr) == (2, "", checked.stderr)


def test_a_suspended_bot_says_why_and_what_to_do(run: Run, site: Site, alice: Person) -> None:
    bot = make_bot(site.conn, alice.id)
    site.conn.execute("UPDATE bot SET suspended = 'its policy took too long' WHERE id = %s", [bot])
    said = f"its policy took too long: gridbot bot set {bot} --policy FILE"
    assert f"suspended  {said}\n" in run("bot", "show", bot).stdout
    explained = run("bot", "explain", bot).stdout
    assert f"suspended: {said}\n" in explained
    assert f"bot {bot}: the BOT is suspended until its policy is changed\n" in explained


def test_a_policy_that_is_no_text_is_refused_in_a_line(run: Run, tmp_path: Path) -> None:
    (tmp_path / "p.ad").write_bytes(b"Rank = \xff;")
    for verb in ("bot set 1 --policy p.ad", "submit --policy p.ad -- p"):
        assert refused(run(*verb.split())) == "policy p.ad: not UTF-8 text"


def test_a_misspelt_attribute_is_noted(run: Run, tmp_path: Path) -> None:
    (tmp_path / "p.ad").write_text("Rank = Host.Memry;\n")
    assert "did you mean Host.Memory?" in run("policy", "check", "p.ad").stderr
    assert "did you mean Host.Memory?" in run("submit", "--policy", "p.ad", "--", "p").stderr


def test_waiting_for_failed_jobs_exits_with_1_and_says_where_to_look(
    run: Run, site: Site, alice: Person
) -> None:
    bot = make_bot(site.conn, alice.id, jobs=2)
    make_failure(site.conn, ReplicaId(bot, 0, 0), site.client_of(alice).id, "exit_nonzero")
    site.conn.execute("UPDATE bot SET state = 'done'")
    found = run("bot", "wait", bot)
    assert found.exit_code == 1
    assert f"1 of 2 jobs failed; for the reasons: gridbot bot logs {bot} --summary" in found.stderr
    assert run("bot", "wait", bot, "--json").exit_code == 1


def test_waiting_for_a_good_bot_exits_with_0(run: Run, site: Site, alice: Person) -> None:
    bot = bot_with_results(site, alice, "1\n", "2\n")
    found = run("bot", "wait", bot)
    assert found.exit_code == 0
    assert found.stderr == f"bot {bot}: 2 of 2 jobs, done\n"


def test_the_page_of_a_bot_says_what_to_do_next(run: Run, site: Site, alice: Person) -> None:
    bot = bot_with_results(site, alice, "1\n")
    page = run("bot", "show", bot).stdout
    assert "1 of 1 job, done" in page
    assert f"gridbot bot results {bot} --to results-{bot}" in page
    assert "scan" in run("bot", "list").stdout


def test_logs_cannot_move_the_cursor(run: Run, site: Site, alice: Person) -> None:
    bot = make_bot(site.conn, alice.id)
    make_ended(
        site.conn, ReplicaId(bot, 0, 0), site.client_of(alice).id, how="error",
        reason="exit_nonzero", exit_code=3, stderr="a\x1b[2Jb\u202e\n\tnext\n",
    )  # fmt: skip
    text = run("bot", "logs", bot, "--failed").stdout
    assert "job 0 replica 0 (first) on box: error (exit_nonzero), exit code 3" in text
    assert "  a\\x1b[2Jb\\u202e\n  \tnext\n" in text


def test_results_are_collected_once(run: Run, site: Site, alice: Person, tmp_path: Path) -> None:
    bot = bot_with_results(site, alice, "one\nmore\n", "=1+1\n", "-2.5\n")
    assert run("bot", "results", bot, "--to", "out").stdout == f"bot {bot}: 3 new results\n"
    assert (tmp_path / "out/0/stdout").read_text() == "one\nmore\n"
    rows = table_in(tmp_path / "out/results.csv")
    assert [row["i"] for row in rows] == ["0", "1", "2"]
    assert [row["stdout"] for row in rows] == ["one", "'=1+1", "-2.5"]
    before = (tmp_path / "out/results.csv").read_bytes()
    assert run("bot", "results", bot, "--to", "out").stdout == f"bot {bot}: 0 new results\n"
    assert (tmp_path / "out/results.csv").read_bytes() == before


def test_collecting_goes_on_where_it_was_broken_off(
    run: Run, site: Site, alice: Person, tmp_path: Path
) -> None:
    bot = make_bot(site.conn, alice.id, jobs=3)
    client = site.client_of(alice).id
    make_outcome(site.conn, ReplicaId(bot, 2, 0), client, {"stdout": b"c"})
    run("bot", "results", bot, "--to", "out")
    with (tmp_path / "out/results.csv").open("a") as table:
        table.write("half a li")
    make_outcome(site.conn, ReplicaId(bot, 0, 0), client, {"stdout": b"a"})
    assert "1 new" in run("bot", "results", bot, "--to", "out").stdout
    rows = table_in(tmp_path / "out/results.csv")
    assert [(row["seq"], row["stdout"]) for row in rows] == [("2", "c"), ("0", "a")]


def test_a_retry_begins_the_table_anew(run: Run, site: Site, alice: Person, tmp_path: Path) -> None:
    bot = make_bot(site.conn, alice.id)
    client = site.client_of(alice).id
    make_failure(site.conn, ReplicaId(bot, 0, 0), client, "time_limit")
    run("bot", "results", bot, "--to", "out")
    assert run("bot", "retry", bot, "--failed").stdout == f"bot {bot}: retrying 1 failed job\n"
    make_outcome(site.conn, ReplicaId(bot, 0, 1), client, {"stdout": b"a"})
    run("bot", "results", bot, "--to", "out")
    rows = table_in(tmp_path / "out/results.csv")
    assert [row["state"] for row in rows] == ["done"]


def test_a_retry_changes_limits_of_what_is_left(run: Run, site: Site, alice: Person) -> None:
    submitted = run("submit", "--range", "0:2", "--max-failures", "1", "--json", "--", "p", "{}")
    bot = json.loads(submitted.stdout)["id"]
    make_failure(site.conn, ReplicaId(bot, 0, 0), site.client_of(alice).id, "disk_limit")
    found = run("bot", "retry", bot, "--disk", "2GB", "--time", "90m", "--memory", "1GB")
    assert found.stdout == f"bot {bot}: retrying 1 failed job with version 2\n"
    shown = run("bot", "show", bot).stdout
    assert "resources  1 cpu, 1 GB memory, 2 GB disk, 90 m" in shown
    left = run("bot", "set", bot, "--memory", "3GB", "--attempts", "7")
    assert left.stdout == f"bot {bot}: changed\n"
    assert "1 cpu, 3 GB memory, 2 GB disk" in (shown := run("bot", "show", bot).stdout)
    assert "version    3" in shown
    again = run("bot", "retry", bot, "--time", "2h")
    assert "2 jobs left, which run version 4" in again.stdout
    assert "no job has failed" in run("bot", "retry", bot).stdout
    refusal = refused(run("bot", "retry", bot, "--max-output", "3GB"))
    assert "max_output of 3072 MB is more than disk, 2048 MB" in refusal


def test_a_retry_replaces_sources_and_those_of_single_jobs_stay(
    run: Run, site: Site, alice: Person, tmp_path: Path
) -> None:
    (tmp_path / "table.csv").write_text(f"x,hash\na,{'1' * 64}\n")
    facts = f"#sha256={'0' * 64}&size=5"
    own = "http://host.example/{x}#sha256={hash}&size=1&name={x}.dat"
    given = ("--items", "table.csv", "--input", f"http://host.example/data{facts}", "--input", own)
    bot = json.loads(run("submit", *given, "--json", "--", "wc", "data").stdout)["id"]
    make_failure(site.conn, ReplicaId(bot, 0, 0), site.client_of(alice).id, "input_unavailable")
    found = run("bot", "retry", bot, "--input", f"http://mirror.example/data{facts}")
    assert found.stdout == f"bot {bot}: retrying 1 failed job with version 2\n"
    ((text,),) = site.conn.execute("SELECT manifest FROM bot WHERE id = %s", [bot]).fetchall()
    assert json.loads(text)["sources"] == {
        "data": ["http://mirror.example/data"], "{x}.dat": ["http://host.example/{x}"],
    }  # fmt: skip
    assert "stay as they are" in refused(run("bot", "retry", bot, "--input", own))
    (tmp_path / "data").write_text("here")
    assert "version 3" in run("bot", "retry", bot, "--input", "data").stdout
    ((text,),) = site.conn.execute("SELECT manifest FROM bot WHERE id = %s", [bot]).fetchall()
    assert json.loads(text)["sources"].keys() == {"{x}.dat"}


def test_the_limit_of_failures_is_given_shown_changed_and_lifted(run: Run) -> None:
    submitted = run("submit", "--range", "0:9", "--max-failures", "20%", "--json", "--", "p", "{}")
    bot = json.loads(submitted.stdout)["id"]
    assert "held if    more than 20% of its jobs fail\n" in run("bot", "show", bot).stdout
    run("bot", "set", bot, "--max-failures", "3")
    assert "held if    more than 3 of its jobs fail\n" in run("bot", "show", bot).stdout
    run("bot", "set", bot, "--max-failures", "never")
    assert "held if" not in run("bot", "show", bot).stdout
    for wrong in ("-1", "101%", "few"):
        assert wrong in refused(run("bot", "set", bot, f"--max-failures={wrong}"))


def test_a_directory_holds_one_bot(run: Run, site: Site, alice: Person) -> None:
    first, second = (bot_with_results(site, alice, "x") for _ in range(2))
    run("bot", "results", first, "--to", "out")
    message = refused(run("bot", "results", second, "--to", "out"))
    assert f"out holds results of bot {first} at http://127.0.0.1:" in message


@pytest.mark.parametrize("name", ["../../evil", "/tmp/evil", "a/../../evil", ".bashrc"])
def test_a_name_from_the_server_cannot_leave_the_directory(
    run: Run, site: Site, alice: Person, tmp_path: Path, name: str
) -> None:
    bot = make_bot(site.conn, alice.id)
    make_outcome(site.conn, ReplicaId(bot, 0, 0), site.client_of(alice).id, {name: b"evil"})
    assert "is not a usable file name" in refused(run("bot", "results", bot, "--to", "out"))
    assert not list(tmp_path.parent.rglob("*evil"))


def test_without_a_directory_results_are_lines(run: Run, site: Site, alice: Person) -> None:
    bot = bot_with_results(site, alice, "one\nmore\n", "\x1b[31mtwo\n")
    lines = "0\ti=0\tdone\tone\n1\ti=1\tdone\t\\x1b[31mtwo\n"
    assert run("bot", "results", bot).stdout == lines
    document = json.loads(run("bot", "results", bot, "--json").stdout)
    assert [result["args"] for result in document["results"]] == [{"i": 0}, {"i": 1}]
    run("bot", "results", bot, "--csv", "t.csv")
    assert Path("t.csv").read_text().splitlines()[0].startswith("seq,i,state,reason,exit_code,host")


def test_a_running_bot_is_changed(run: Run, site: Site, alice: Person, tmp_path: Path) -> None:
    bot = make_bot(site.conn, alice.id)
    (tmp_path / "p.ad").write_text("Rank = Host.Memry;")
    found = run("bot", "set", bot, "--policy", "p.ad", "--tail-threshold", "5")
    assert (found.stdout, found.exit_code) == (f"bot {bot}: changed\n", 0)
    assert "did you mean Host.Memory?" in found.stderr
    document = json.loads(run("bot", "show", bot, "--json").stdout)
    assert (document["policy"], document["tail_threshold"]) == ("Rank = Host.Memry;", 5)
    run("bot", "set", bot, "--tail-threshold", "auto")
    assert json.loads(run("bot", "show", bot, "--json").stdout)["tail_threshold"] is None


def test_a_priority_is_given_and_changed(run: Run) -> None:
    submitted = run("submit", "--range", "0:9", "--priority", "5", "--json", "--", "p", "{}")
    bot = json.loads(submitted.stdout)["id"]
    for priority in (5, -1):
        document = json.loads(run("bot", "show", bot, "--json").stdout)
        assert document["policy"] == f"Rank = {priority};\n"
        run("bot", "set", bot, "--priority", "-1")


def test_a_bot_is_cancelled(run: Run, site: Site, alice: Person) -> None:
    bot = make_bot(site.conn, alice.id, jobs=3)
    assert run("bot", "cancel", bot).stdout == f"bot {bot}: cancelled, 3 of 3 jobs were not run\n"
    assert f"bot {bot} was cancelled" in run("bot", "wait", bot).stderr
    done = make_bot(site.conn, alice.id, jobs=2, state="done")
    assert run("bot", "cancel", done).stdout == f"bot {done}: already ended, done\n"


def test_logs_that_are_not_there_say_of_what_there_are_none(
    run: Run, site: Site, alice: Person
) -> None:
    bot = bot_with_results(site, alice, "one\n")
    assert run("bot", "logs", bot, "--failed").stderr == f"bot {bot}: no replica has failed\n"
    of_job = f"bot {bot}: no replica of job 9 has ended yet\n"
    assert run("bot", "logs", bot, "--job", "9").stderr == of_job


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (("bot", "list"), 0),
        (("app", "nothing"), 2),
        (("submit", "--memory", "much", "--", "true"), 2),
        (("submit", "--items", "missing.csv", "--", "true"), 2),
        (("bot", "list", "--server", "http://127.0.0.1:9"), 3),
        (("bot", "show", "999"), 4),
        (("bot", "retry", "999"), 4),
        (("bot", "wait", "{bot}", "--timeout", "0.1"), 5),
    ],
)
def test_a_script_can_tell_failures_apart(
    run: Run, site: Site, alice: Person, command: tuple[str, ...], code: int
) -> None:
    bot = make_bot(site.conn, alice.id)
    assert run(*(word.format(bot=bot) for word in command)).exit_code == code


def test_an_operator_adds_people_and_keys(
    url: str, site: Site, operator: Person, tmp_path: Path
) -> None:
    run = runner(url, operator, tmp_path)
    assert run("user", "add", "carol", "--max-jobs", "10").exit_code == 0
    assert "there is a user carol already" in refused(run("user", "add", "carol"))
    assert "carol" in run("user", "list").stdout
    made = json.loads(run("token", "create", "carol", "--expires", "1d", "--json").stdout)
    assert (
        runner(url, Person(site.app, made["token"], 0, ""), tmp_path)("bot", "list").exit_code == 0
    )
    assert run("token", "revoke", made["id"]).exit_code == 0
    listed = run("token", "list").stdout
    assert "carol" in listed
    assert made["token"] not in listed
    carol = runner(url, Person(site.app, made["token"], 0, ""), tmp_path)
    assert "rejects the key" in refused(carol("bot", "list"))


def test_hosts_are_listed(run: Run, site: Site, alice: Person) -> None:
    site.client_of(alice, host=make_host(site.conn, alice.id))
    header, row = run("host", "list").stdout.splitlines()
    assert header.split()[:4] == ["id", "name", "owner", "cpus"]
    assert row.split()[1:5] == ["box", "alice", "4", "8192"]


def test_login_keeps_the_key_for_its_owner_only(
    run: Run, url: str, alice: Person, tmp_path: Path
) -> None:
    found = run("login", url, given=f"{alice.token}\n")
    assert found.exit_code == 0, found.stderr
    path = tmp_path / "config/gridbot/login.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    environment = {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    nothing = {"GRIDBOT_SERVER": None, "GRIDBOT_KEY": None}
    assert CliRunner(env={**environment, **nothing}).invoke(gridbot, ["bot", "list"]).exit_code == 0
    assert "rejects the key" in refused(run("login", url, "--key", "wrong"))
    key = tmp_path / "alice.key"
    key.write_text(f"{alice.token}\n")
    said = run("login", url, "--key-file", str(key)).stdout
    assert said.startswith(f"logged in at {url} as alice\nyour BOTs are signed with the key ")
    assert json.loads(path.read_text())["key"] == alice.token


def test_who_logs_in_by_the_key_of_a_servers_folder_signs_by_that_folders_key(
    run: Run, url: str, alice: Person, tmp_path: Path
) -> None:
    folder = tmp_path / "elsewhere"
    own = signing_key.ensure(folder / "signing.key")
    key = folder / "operator.key"
    key.write_text(alice.token)
    assert own.fingerprint in run("login", url, "--key-file", str(key)).stdout
    environment = {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    nothing = {"GRIDBOT_SERVER": None, "GRIDBOT_KEY": None}
    logged_in = CliRunner(env={**environment, **nothing})
    submitted = logged_in.invoke(gridbot, ["submit", "--range", "0:2", "--", "true"])
    assert submitted.exit_code == 0, submitted.stderr
    assert own.fingerprint[:16] in logged_in.invoke(gridbot, ["key", "list"]).stdout


def test_an_application_is_signed_where_the_key_is(
    run: Run, site: Site, alice: Person, tmp_path: Path
) -> None:
    bot = make_bot(site.conn, alice.id)
    key = site.settings.project_key_path
    found = run("app", "sign", bot, "--yes", "--project-key", key)
    assert found.stdout == f"bot {bot}: signed\n"
    assert "command echo '{i}'" in found.stderr
    assert json.loads(run("bot", "show", bot, "--json").stdout)["signed"] is True
    other = tmp_path / "other.key"
    other.write_text("no key")
    message = refused(run("app", "sign", bot, "--yes", "--project-key", other))
    assert "holds no private key in PEM form" in message


def test_an_interrupted_wait_says_that_the_bot_goes_on(url: str, site: Site, alice: Person) -> None:
    bot = make_bot(site.conn, alice.id)
    waiting = subprocess.Popen(
        [sys.executable, "-c", "from gridbot.cli import main; main()", "bot", "wait", str(bot)],
        env={**os.environ, "GRIDBOT_SERVER": url, "GRIDBOT_KEY": alice.token},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert waiting.stderr is not None
    assert waiting.stderr.readline().startswith(f"bot {bot}: 0 of 1 job,")
    waiting.send_signal(2)
    _, message = waiting.communicate(timeout=20)
    assert message.strip() == f"gridbot: interrupted; the BOT keeps running: gridbot bot wait {bot}"
    assert waiting.returncode == 1


def test_a_growing_bot_on_the_command_line(run: Run, tmp_path: Path) -> None:
    submitted = run("submit", "--growing", "--", "echo", "{}")
    assert submitted.stdout == "bot 1: 0 jobs\n"
    assert "after the last one: gridbot bot close 1" in submitted.stderr
    assert run("bot", "append", 1, "a", "b").stdout == "bot 1: jobs 0 to 1 appended\n"
    assert run("bot", "append", 1, "--range", "5:6").stdout == "bot 1: job 2 appended\n"
    (tmp_path / "lines").write_text("x\ny\n")
    for _ in range(2):
        again = run("bot", "append", 1, "--each-line", "lines", "--offset", 3, "--json")
        assert json.loads(again.stdout) == {"id": 1, "first": 3, "appended": 2}
    assert "growing" in run("bot", "list").stdout
    shown = run("bot", "show", 1).stdout
    assert "of alice, running and growing" in shown
    assert "gridbot bot append 1 ITEM, or gridbot bot close 1" in shown
    cancelled = run("bot", "cancel", 1, "--job", 0, "--job", 4)
    assert cancelled.stdout == "bot 1: 2 jobs cancelled\n"
    again = run("bot", "cancel", 1, "--job", 0, "--job", 1)
    assert again.stdout == "bot 1: 1 job cancelled, 1 job had ended before\n"
    assert run("bot", "close", 1).stdout == "bot 1: closed, running, 2 jobs left\n"
    assert "closed by its owner" in run("bot", "show", 1).stdout
    late = refused(run("bot", "append", 1, "late"))
    assert late == "BOT 1 takes no more jobs, it was closed by its owner"


def test_append_needs_one_source_of_jobs(run: Run) -> None:
    run("submit", "--growing", "--", "echo", "{}")
    for wrong in ((), ("a", "--range", "0:2")):
        found = run("bot", "append", 1, *wrong)
        assert found.exit_code == 2
        assert "give either items or one of --items, --each-line and --range" in found.stderr


def test_an_idle_growing_bot_explains_itself(run: Run) -> None:
    run("submit", "--growing", "--", "echo", "{}")
    said = run("bot", "explain", 1).stdout
    assert "the BOT is growing: it has no unsent jobs until some are appended" in said


def test_what_a_job_sees_on_the_command_line(run: Run, site: Site, tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("1")
    (tmp_path / "BOT.toml").write_text(
        'command = ["cat"]\neach_line = "names"\ninput = ["{i}.txt"]\nstdin = "{i}.txt"\n'
        'env = ["X=a=b", "Y={i}"]\nexit_codes = "0, 3"\n'
    )
    (tmp_path / "names").write_text("one\n")
    assert run("submit", "BOT.toml").exit_code == 0
    text = site.conn.execute("SELECT manifest FROM bot").fetchone()
    assert text is not None
    manifest = json.loads(text[0])
    assert (manifest["version"], manifest["stdin"]) == (3, "{i}.txt")
    assert manifest["environment"] == {"X": "a=b", "Y": "{i}"}
    assert manifest["exit_codes"] == [0, 3]


@pytest.mark.parametrize(
    ("option", "value", "why"),
    [
        ("--exit-codes", "some", "exit codes 'some': write numbers such as 0,1,3 or any"),
        ("--exit-codes", "256", "exit_codes: expected numbers from 0 to 255, got int '256'"),
        ("--env", "X", "environment variable 'X': write NAME=VALUE"),
        ("--env", "GRIDBOT_SLOT=", "environment: 'GRIDBOT_SLOT' is no name of a variable"),
        ("--env", "X={y}", "the environment names {y}, but there are no items"),
    ],
)
def test_wrong_wishes_are_refused_here(run: Run, option: str, value: str, why: str) -> None:
    assert refused(run("submit", option, value, "--", "true")).startswith(why)
