"""One way to say things: nouns with verbs, several numbers, hosts by name, one page about all."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import Result
from tests.factories import make_bot, make_host, make_outcome
from tests.http.conftest import Person, Site
from tests.http.loopback import serve
from tests.http.test_gridbot_command import Run, refused, runner

from gridbot_client.protocol.messages import ReplicaId


def misused(found: Result) -> str:
    """What wrong usage is answered with."""
    assert (found.exit_code, found.stdout) == (2, "")
    return found.stderr


@pytest.fixture
def url(site: Site) -> Iterator[str]:
    with serve(site.app) as url:
        yield url


@pytest.fixture
def run(url: str, alice: Person, tmp_path: Path) -> Run:
    return runner(url, alice, tmp_path)


def test_a_plural_is_the_list_or_its_noun(run: Run, site: Site, alice: Person) -> None:
    bot = make_bot(site.conn, alice.id)
    site.client_of(alice, host=make_host(site.conn, alice.id))
    assert run("bots", "--json").stdout == run("bot", "list", "--json").stdout
    assert run("bots", "show", bot).stdout == run("bot", "show", bot).stdout
    assert json.loads(run("hosts", "--json").stdout)["hosts"][0]["name"] == "box"
    assert run("hosts", "show", "box").stdout == run("host", "show", "1").stdout


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("list", "bot list"), ("ls", "bot list"), ("ps", "bot list"), ("results", "bot results"),
     ("ban", "host ban"), ("statu", "status"), ("qsub", "submit")],
)  # fmt: skip
def test_what_other_systems_say_is_answered_with_ours(run: Run, typed: str, meant: str) -> None:
    found = run(typed)
    assert found.exit_code == 2
    assert f"No such command '{typed}'. Did you mean '{meant}'?" in found.stderr


def test_several_bots_are_changed_by_one_command(run: Run, site: Site, alice: Person) -> None:
    first, second = make_bot(site.conn, alice.id), make_bot(site.conn, alice.id)
    assert run("bot", "set", first, second, "--name", "both").exit_code == 0
    shown = json.loads(run("bot", "show", first, second, "--json").stdout)
    assert [bot["name"] for bot in shown["bots"]] == ["both", "both"]
    lines = run("bot", "cancel", first, second).stdout.splitlines()
    assert [line.partition(":")[0] for line in lines] == [f"bot {first}", f"bot {second}"]


def test_numbers_from_one_to_another_are_named_at_once(run: Run, site: Site, alice: Person) -> None:
    made = [make_bot(site.conn, alice.id) for _ in range(3)]
    listed = f"{made[0]}-{made[2]}"
    shown = json.loads(run("bot", "show", listed, made[1], "--json").stdout)
    assert [bot["id"] for bot in shown["bots"]] == made
    assert run("bot", "cancel", made[0], "--job", "0-0").stdout.endswith("1 job cancelled\n")
    for wrong in ("3-1", "1-", "-", "1-2-3", "0", "0-2", "1-9999999", "1.5"):
        assert wrong in misused(run("bot", "show", "--", wrong))


def test_several_bots_are_read_by_one_command(
    run: Run, site: Site, alice: Person, tmp_path: Path
) -> None:
    made = [make_bot(site.conn, alice.id) for _ in range(2)]
    client = site.client_of(alice).id
    for bot in made:
        make_outcome(site.conn, ReplicaId(bot, 0, 0), client, {"stdout": b"x\n"})
    for verb, *options in (("results",), ("logs",), ("logs", "--summary"), ("explain",)):
        found = json.loads(run("bot", verb, *made, *options, "--json").stdout)
        assert [item["id"] for item in found["bots"]] == made
    found = run("bot", "results", *made)
    assert found.stderr == "".join(f"bot {bot}:\n" for bot in made)
    assert len(found.stdout.splitlines()) == 2
    assert run("bot", "results", *made, "--to", tmp_path / "out").exit_code == 0
    assert {path.name for path in (tmp_path / "out").iterdir()} == {str(bot) for bot in made}
    assert "only one BOT" in misused(run("bot", "results", *made, "--csv", "table.csv"))
    assert "only one BOT" in misused(run("bot", "explain", *made, "--change", "1"))


def test_a_server_that_is_named_is_asked_without_a_key_too(run: Run) -> None:
    found = run("status", "--server", "http://127.0.0.1:9")
    assert found.exit_code == 3
    assert "server  cannot reach http://127.0.0.1:9: connection refused" in found.stdout
    assert "'grid.org' is not a URL" in run("status", "--server", "grid.org").stderr


def test_a_number_that_no_bot_can_have_is_not_sent(run: Run) -> None:
    found = run("bot", "show", "9" * 18)
    assert (found.exit_code, found.stderr) == (4, f"gridbot: there is no BOT {'9' * 18}\n")
    assert "9999999999999999999" in misused(run("bot", "append", "9" * 19, "x"))


def test_an_unknown_bot_keeps_no_other_from_the_change(run: Run, site: Site, alice: Person) -> None:
    bot = make_bot(site.conn, alice.id)
    found = run("bot", "cancel", "998", bot, "999")
    assert found.exit_code == 4
    assert found.stdout.startswith(f"bot {bot}: cancelled")
    assert "998" in found.stderr
    assert "999" in found.stderr


def test_jobs_are_those_of_one_bot(run: Run) -> None:
    assert "only one BOT" in misused(run("bot", "cancel", "1", "2", "--job", "0"))
    assert "only one BOT" in misused(run("bot", "retry", "1", "2", "--job", "0"))


def test_one_wait_ends_with_the_last_bot(run: Run, site: Site, alice: Person) -> None:
    bots = [make_bot(site.conn, alice.id) for _ in range(2)]
    assert run("bot", "cancel", *bots).exit_code == 0
    found = run("bot", "wait", *bots, "--json")
    assert found.exit_code == 1
    assert [bot["id"] for bot in json.loads(found.stdout)["bots"]] == bots
    assert found.stderr.count("was cancelled") == 2


def test_a_time_to_wait_has_a_unit(run: Run, site: Site, alice: Person) -> None:
    bot = make_bot(site.conn, alice.id)
    assert run("bot", "wait", bot, "--timeout", "0.1s").exit_code == 5
    assert "'soon' is not a duration; write 90s, 10m" in misused(
        run("bot", "wait", bot, "--timeout", "soon")
    )


def test_a_host_is_named_by_its_name_unless_two_have_it(
    run: Run, site: Site, alice: Person
) -> None:
    first = make_host(site.conn, alice.id)
    site.client_of(alice, host=first)
    assert run("host", "set", "box", "--venue", "work").stdout == f"host {first}: venue work\n"
    assert "there is no host boxx" in refused(run("host", "forget", "boxx"))
    second = make_host(site.conn, alice.id)
    said = refused(run("host", "forget", "box"))
    assert f"2 hosts are named box; give an ID: {first}, {second}" in said


def test_status_is_one_page_about_server_client_and_bots(
    run: Run, url: str, site: Site, alice: Person
) -> None:
    bot = make_bot(site.conn, alice.id)
    page = run("status").stdout
    assert page.startswith(f"server  {url}, version ")
    assert "client  not joined" in page
    assert any(line.split()[0] == str(bot) for line in page.splitlines())
    found = json.loads(run("status", "--json").stdout)
    assert (found["client"]["state"], found["bots"][0]["id"]) == ("not joined", bot)
    assert found["server"]["health"]["status"] in ("ok", "degraded")


def test_status_without_a_server_says_so_and_exits_with_3(run: Run) -> None:
    found = run("status", "--server", "http://127.0.0.1:9")
    assert found.exit_code == 3
    assert found.stdout.startswith("server  cannot reach http://127.0.0.1:9")
    assert "client  not joined" in found.stdout


def test_top_needs_a_terminal(run: Run) -> None:
    assert "top needs a terminal; for scripts: gridbot status --json" in misused(run("top"))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_each_shell(run: Run, shell: str) -> None:
    found = run("completion", shell)
    assert found.exit_code == 0
    assert "_GRIDBOT_COMPLETE" in found.stdout
