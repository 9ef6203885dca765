from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.factories import HOST, make_bot, make_host, make_lease
from tests.http.conftest import Person, Site
from tests.http.loopback import serve
from tests.http.test_gridbot_command import Run, refused, runner

from gridbot_client.protocol.manifest import LATEST, FileRef
from gridbot_client.protocol.messages import Manifest, ReplicaId, Resources
from gridbot_client.protocol.software import Unpacked


@pytest.fixture
def run(
    site: Site, alice: Person, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Run]:
    monkeypatch.chdir(tmp_path)
    with serve(site.app) as url:
        yield runner(url, alice, tmp_path)


def add_host(site: Site, owner: Person, name: str, **ad: Any) -> int:
    number = make_host(site.conn, owner.id, {**HOST, "Name": name, **ad})
    site.client_of(owner, host=number)
    return number


def big_bot(site: Site, owner: Person, **columns: Any) -> int:
    policy = "JobRequirements = Host.Memory >= 9000 && Host.NumCpus > 2;"
    return make_bot(site.conn, owner.id, jobs=5, **{"policy": policy, **columns})


def test_the_api_explains_a_bot_by_its_conditions(site: Site, alice: Person) -> None:
    add_host(site, alice, "alpha", Memory=7900)
    add_host(site, alice, "beta", Memory=16_000, NumCpus=2)
    found = alice("GET", f"/api/v1/bots/{big_bot(site, alice)}/explanation").json
    assert (found["hosts_known"], found["hosts_matching"], found["jobs_unsent"]) == (2, 0, 5)
    assert {item["text"]: item["only"] for item in found["conditions"]} == {
        "Host.Memory >= 9000": 1, "Host.NumCpus > 2": 1,
    }  # fmt: skip
    assert {miss["host"] for miss in found["nearest"]} == {"alpha", "beta"}
    assert found["changes"][0]["policy"].startswith("JobRequirements = Host.Memory >= 7900 &&")


def test_only_the_owner_of_a_host_and_operators_learn_its_name(
    site: Site, alice: Person, bob: Person, operator: Person
) -> None:
    number = add_host(site, bob, "hidden", Memory=1)
    path = f"/api/v1/bots/{big_bot(site, alice)}/explanation"
    assert alice("GET", path).json["nearest"][0]["host"] == f"host {number}"
    assert b"hidden" not in alice("GET", path).data
    assert operator("GET", path).json["nearest"][0]["host"] == "hidden"


def test_hosts_that_match_but_hold_all_they_may_are_said_to_be_full(
    site: Site, alice: Person
) -> None:
    bot = make_bot(site.conn, alice.id, jobs=3, policy="Concurrency = 1")
    client = site.client_of(alice).id
    make_lease(site.conn, ReplicaId(bot, 0, 0), client)
    found = alice("GET", f"/api/v1/bots/{bot}/explanation").json
    assert (found["hosts_matching"], found["hosts_full"], found["hosts_free"]) == (1, 1, 0)


def test_hosts_that_serve_another_bot_first_are_counted(
    site: Site, alice: Person, bob: Person
) -> None:
    site.client_of(alice, trusts=[alice.id, bob.id])
    bot = make_bot(site.conn, alice.id, jobs=3)
    make_bot(site.conn, bob.id, jobs=3, policy="Rank = 9", name="rival")
    make_bot(site.conn, bob.id, jobs=3, policy="Rank = ", name="no longer a policy")
    found = alice("GET", f"/api/v1/bots/{bot}/explanation")
    assert found.json["hosts_outranked"] == 1
    assert b"rival" not in found.data


def test_a_silent_host_is_told_from_one_that_asks(site: Site, alice: Person) -> None:
    site.client_of(alice)
    site.conn.execute("UPDATE client SET seen_at = now() - interval '1 hour'")
    found = alice("GET", f"/api/v1/bots/{make_bot(site.conn, alice.id)}/explanation").json
    assert found["verdict"].endswith("1 has not asked for work lately")


def test_the_queue_of_an_explained_policy_is_the_real_one(site: Site, alice: Person) -> None:
    site.client_of(alice)
    policy = "JobRequirements = Queue.BOTsInQueue == 2 && Queue.JobsInQueue == 7"
    bot = make_bot(site.conn, alice.id, jobs=3, policy=policy)
    make_bot(site.conn, alice.id, jobs=4)
    assert alice("GET", f"/api/v1/bots/{bot}").json["match"]["hosts_matching"] == 1


@pytest.mark.parametrize("state", ["done", "cancelled"])
def test_a_bot_that_has_ended_is_explained_too(
    run: Run, site: Site, alice: Person, state: str
) -> None:
    add_host(site, alice, "alpha")
    bot = big_bot(site, alice, state=state)
    page = run("bot", "explain", bot).stdout
    assert page.startswith(f"bot {bot}: the BOT is {state}: it has no unsent jobs\n")
    assert "Host.Memory >= 9000: alpha has 8192" in page


def test_the_page_says_what_rejects_and_how_to_relax_it(
    run: Run, site: Site, alice: Person, tmp_path: Path
) -> None:
    add_host(site, alice, "alpha")
    bot = big_bot(site, alice)
    assert f"gridbot bot explain {bot}" in run("bot", "show", bot).stdout
    page = run("bot", "explain", bot).stdout
    assert "1. Host.Memory >= 8192 instead of Host.Memory >= 9000: 1 host more" in page
    line = next(line for line in page.splitlines() if line.startswith("gridbot bot explain"))
    first, second = line.split(" && ")
    arguments, file = first.split(" > ")
    (tmp_path / file).write_text(run(*arguments.split()[1:]).stdout)
    assert run(*second.split()[1:]).exit_code == 0
    assert "no problem: 1 host can run it" in run("bot", "explain", bot).stdout
    assert "no change 2; 1 change suggested" in refused(
        run("bot", "explain", big_bot(site, alice), "--change", 2)
    )


def test_a_resource_is_no_change_of_the_policy(run: Run, site: Site, alice: Person) -> None:
    add_host(site, alice, "alpha")
    manifest = Manifest("alice", ("p",), resources=Resources(memory_mb=9000)).text()
    bot = make_bot(site.conn, alice.id, manifest=manifest)
    change = f"gridbot bot set {bot} --memory 8192"
    assert f"({change})" in run("bot", "explain", bot).stdout
    message = refused(run("bot", "explain", bot, "--change", 1))
    assert message == f"change 1 is not a change of the policy: {change}"


def test_several_conditions_are_relaxed_together(run: Run, site: Site, alice: Person) -> None:
    add_host(site, alice, "alpha", NumCpus=2)
    bot = big_bot(site, alice)
    page = run("bot", "explain", bot).stdout
    assert "suggested changes of one condition" not in page
    changes = page.partition("suggested changes of several conditions together\n")[2].splitlines()
    assert changes[0] == (
        "  1. Host.Memory >= 8192 and Host.NumCpus >= 2 instead of"
        " Host.Memory >= 9000 and Host.NumCpus > 2: 1 host more"
    )
    change = json.loads(run("bot", "explain", bot, "--change", 1, "--json").stdout)
    assert (change["id"], change["change"], change["conditions"]) == (bot, 1, 2)
    assert run("bot", "explain", bot, "--change", 1).stdout == f"{change['policy']}\n"


def test_a_change_of_the_policy_tells_how_many_hosts_match_now(
    run: Run, site: Site, alice: Person, tmp_path: Path
) -> None:
    add_host(site, alice, "alpha")
    bot = big_bot(site, alice)
    for policy, told in {
        "Rank = 1": "1 of 1 known host can run it\n",
        "JobRequirements = Host.NumCpus > 64": (
            "no known host can run it now: the policy's condition Host.NumCpus > 64 is not"
            " satisfied (1 host)\n"
        ),
    }.items():
        (tmp_path / "p.ad").write_text(policy)
        found = run("bot", "set", bot, "--policy", "p.ad")
        assert (found.stdout, found.stderr) == (f"bot {bot}: changed\n", told)
    assert run("bot", "set", bot, "--name", "other").stderr == ""


STOCK = {
    "IsBoinc": True, "ClientVersion": "7.20.5", "Platforms": "linux-x86_64 linux-i686",
}  # fmt: skip


def add_stock_host(site: Site, owner: Person, name: str, **ad: Any) -> int:
    return add_host(site, owner, name, **STOCK, **ad)


def test_stock_clients_are_told_apart_and_why_they_get_nothing(
    run: Run, site: Site, alice: Person
) -> None:
    for name in ("alpha", "beta"):
        add_stock_host(site, alice, name)
    unsigned = make_bot(site.conn, alice.id)
    why = "the code signing key for BOINC clients is not on this server"
    unsuitable = make_bot(site.conn, alice.id, boinc_unsuitable=why)
    signed = make_bot(site.conn, alice.id, boinc="{}")
    assert "2 of 2 hosts are stock BOINC clients; the BOT is not signed" in (
        page := run("bot", "explain", unsigned).stdout
    )
    assert "no known host can run it now: the BOT is not signed for stock BOINC clients" in page
    assert f"gridbot app sign {unsigned} --boinc-key FILE (2 hosts)" in page
    add_host(site, alice, "gamma")
    page = run("bot", "explain", unsigned).stdout
    assert "no problem: 1 host can run it" in page
    assert (
        "2 of 3 hosts are stock BOINC clients; the BOT is not signed for stock BOINC clients:"
        f" gridbot app sign {unsigned} --boinc-key FILE\n"
    ) in page
    assert (
        f"unsuitable for stock BOINC clients: {why}\n" in run("bot", "explain", unsuitable).stdout
    )
    assert "2 of 3 hosts are stock BOINC clients, 2 of them can run it; the BOT is signed" in (
        run("bot", "explain", signed).stdout
    )
    match = alice("GET", f"/api/v1/bots/{signed}").json["match"]
    assert (match["hosts_stock"], match["hosts_stock_matching"]) == (2, 2)
    shown = run("bot", "show", unsigned).stdout
    assert "1 of 3 known hosts can run it, 0 of 2 stock BOINC clients" in shown


def test_a_program_of_boincs_api_is_explained_to_be_for_stock_clients(
    run: Run, site: Site, alice: Person
) -> None:
    program = FileRef("count", "1" * 64, 1, executable=True)
    manifest = Manifest(
        "alice", ("./count",), inputs=(program,), outputs=(), platforms=("linux-x86_64",),
        boinc_api=True,
    )  # fmt: skip
    add_host(site, alice, "gamma")
    bot = make_bot(site.conn, alice.id, manifest=manifest.text(), boinc="{}")
    page = run("bot", "explain", bot).stdout
    assert "made for BOINC's API: only BOINC clients run it" in page
    add_stock_host(site, alice, "alpha")
    assert "no problem: 1 host can run it" in run("bot", "explain", bot).stdout


def test_one_host_alone_is_explained(run: Run, site: Site, alice: Person, bob: Person) -> None:
    stock = add_stock_host(site, alice, "alpha", Memory=100)
    add_host(site, alice, "beta")
    hidden = add_host(site, bob, "hidden")
    bot = make_bot(site.conn, alice.id)
    lines = run("bot", "explain", bot, "--host", "alpha").stdout.splitlines()
    assert lines[:2] == [
        f"bot {bot}: alpha cannot run it now: a job needs 512 MB memory, the host has less; the BOT"
        f" is not signed for stock BOINC clients: gridbot app sign {bot} --boinc-key FILE",
        f"host {stock}: BOINC 7.20.5, linux-x86_64",
    ]
    assert "  512 MB memory: alpha has 100" in lines
    site.conn.execute("UPDATE bot SET boinc = '{}'")
    site.conn.execute("UPDATE host SET ad = ad || %s", ['{"Platforms": "windows-x86_64"}'])
    page = run("bot", "explain", bot, "--host", stock).stdout
    assert "a job needs BOINC platform linux-x86_64 or " in page
    free = run("bot", "explain", bot, "--host", "beta").stdout
    assert "no problem: beta can run it, and may get a job at the next request" in free
    other = run("bot", "explain", bot, "--host", hidden).stdout
    assert f"host {hidden} cannot run it now: the BOT is signed by alice alone" in other
    assert "hidden" not in other
    for name in ("hidden", "nobody", "999"):
        message = refused(run("bot", "explain", bot, "--host", name))
        assert message == f"no host '{name}' of which you may know has asked for work"
    add_host(site, alice, "beta")
    assert "several hosts are called 'beta'; give a number" in refused(
        run("bot", "explain", bot, "--host", "beta")
    )
    assert alice("GET", f"/api/v1/bots/{bot}/explanation?host=a%00b").status_code == 400


def test_a_host_that_was_silent_for_days_is_explained_when_it_is_named(
    run: Run, site: Site, alice: Person
) -> None:
    add_host(site, alice, "alpha")
    site.conn.execute("UPDATE client SET seen_at = now() - interval '3 days'")
    bot = make_bot(site.conn, alice.id)
    assert "no client has asked for work in the last day" in run("bot", "explain", bot).stdout
    page = run("bot", "explain", bot, "--host", "alpha").stdout
    assert "alpha can run it, but gets no job now: it has not asked for work lately" in page


def test_submit_and_show_say_whether_boinc_clients_can_run_it(
    run: Run, site: Site, alice: Person
) -> None:
    found = run("submit", "--json", "--", "echo")
    document = json.loads(found.stdout)
    assert (document["signed_for_boinc"], document["boinc_unsuitable"]) == (False, None)
    assert document["boinc_url"] == f"{site.settings.url}/boinc/"
    bot = document["id"]
    assert "BOINC" not in run("submit", "--", "echo").stderr
    shown = run("bot", "show", bot).stdout
    assert (
        f"BOINC      not signed for stock BOINC clients: gridbot app sign {bot} --boinc-key FILE\n"
        in shown
    )
    site.conn.execute("UPDATE bot SET boinc = '{}'")
    assert "BOINC      signed for stock BOINC clients\n" in run("bot", "show", bot).stdout


def test_a_policy_is_tried_on_a_host_that_gets_nothing_for_other_reasons(
    run: Run, site: Site, alice: Person
) -> None:
    add_stock_host(site, alice, "alpha")
    add_host(site, alice, "beta")
    bot = big_bot(site, alice)
    tried = ("policy", "eval", "true", "--bot", bot, "--host")
    assert run(*tried, "alpha").stderr == (
        "note: the host gets no job of this BOT, whatever the policy: the BOT is not signed for"
        f" stock BOINC clients: gridbot app sign {bot} --boinc-key FILE\n"
    )
    assert len(json.loads(run(*tried, "alpha", "--json").stdout)["refused"]) == 1
    assert run(*tried, "beta").stderr == ""


def test_the_list_of_hosts_names_their_clients(run: Run, site: Site, alice: Person) -> None:
    add_stock_host(site, alice, "alpha")
    add_host(site, alice, "beta", ClientVersion="0.4")
    lines = run("host", "list").stdout.splitlines()
    assert any("alpha" in line and "BOINC 7.20.5" in line for line in lines)
    assert any("beta" in line and "GridBot 0.4" in line for line in lines)


def test_explain_json_is_the_servers_document(run: Run, site: Site, alice: Person) -> None:
    bot = big_bot(site, alice)
    assert json.loads(run("bot", "explain", bot, "--json").stdout)["id"] == bot


def test_several_policies_are_checked_at_once(run: Run, tmp_path: Path) -> None:
    (tmp_path / "good.ad").write_text("Rank = Host.Memory;\n")
    (tmp_path / "doubtful.ad").write_text("Rank = Host.Memry;\n")
    found = run("policy", "check", "good.ad", "doubtful.ad", "-", given="Rank = ;")
    assert found.exit_code == 1
    assert found.stdout == "good.ad: no problems found\n"
    assert "doubtful.ad:1:8: warning: Host.Memry is not published" in found.stderr
    assert "standard input:1:8: error: expected an expression, found ';'" in found.stderr
    assert run("policy", "check", "good.ad", "doubtful.ad").exit_code == 0
    assert run("policy", "check", "doubtful.ad", "--strict").exit_code == 1
    document = json.loads(run("policy", "check", "good.ad", "doubtful.ad", "--json").stdout)
    findings = [item["findings"] for item in document["files"]]
    assert (findings[0], findings[1][0]["severity"]) == ([], "warning")


def test_an_expression_is_evaluated_on_this_machine_with_what_is_set(run: Run) -> None:
    text = 'Host.Memory > 4096 && Host.OpSys == "plan9" && Tail && Job.Replica1.Host.ErrorRate < 1'
    settings = (
        "Host.Memory=8192",
        "host.opsys=Plan9",
        "Tail=true",
        "Job.Replica1.Host.ErrorRate=0.5",
    )
    options = [option for setting in settings for option in ("--set", setting)]
    document = json.loads(run("policy", "eval", text, *options, "--json").stdout)
    assert document["values"][0]["value"] == "true"
    lines = run("policy", "eval", text, "--set", "Host.Memory=1024").stdout.splitlines()
    assert lines[0].split() == ["expression", "false"]
    assert lines[2].split() == ["Host.Memory", ">", "4096", "false", "<-", "decides"]
    assert lines[3].split() == ["Host.Memory", "1024"]


def test_the_policies_of_a_file_are_evaluated_on_a_known_host(
    run: Run, site: Site, alice: Person, tmp_path: Path
) -> None:
    number = add_host(site, alice, "alpha", Memory=7900)
    (tmp_path / "p.ad").write_text("Big = Host.Memory > 8000; JobRequirements = Big;")
    for name in ("alpha", str(number)):
        lines = run("policy", "eval", "p.ad", "--host", name).stdout.splitlines()
        assert lines[0].split() == ["JobRequirements", "false"]
        assert ["Host.Memory", "7900"] in [line.split() for line in lines]
    assert "--host gamma: no such file and no such host; known hosts: alpha" in refused(
        run("policy", "eval", "1", "--host", "gamma")
    )


def test_a_bots_own_policy_is_evaluated_on_ads_from_files(
    run: Run, site: Site, alice: Person, tmp_path: Path
) -> None:
    bot = big_bot(site, alice)
    (tmp_path / "json.ad").write_text('{"Memory": 9000, "NumCpus": 4}')
    (tmp_path / "classad.ad").write_text("[ Memory = 9 * 1000; NumCpus = 4 ]")
    for file in ("json.ad", "classad.ad"):
        found = json.loads(run("policy", "eval", "--bot", bot, "--host", file, "--json").stdout)
        assert [(item["name"], item["value"]) for item in found["values"]][:3] == [
            ("JobRequirements", "true"), ("Rank", "0"), ("Concurrency", "8"),
        ]  # fmt: skip
    assert (
        json.loads(run("policy", "eval", "JobsTotal", "--bot", bot, "--json").stdout)["values"][0][
            "value"
        ]
        == "5"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["1 +"], "expression:1:4: error: expected an expression"),
        (["Deadlin = 3"], "there is no policy Deadlin; did you mean Deadline?"),
        (["none.ad"], "none.ad: No such file or directory"),
        (
            ["1", "--set", "Host.Memory"],
            "--set 'Host.Memory': write AD.NAME=VALUE, such as Host.Memory=2048",
        ),
        (["1", "--set", "Grid.Name=x"], "Grid is not one of Host, BOT, Queue, Job"),
        (["1", "--set", "Speed=3"], "Speed: unknown attribute; write Host.Speed=… or BOT.Speed=…"),
        (["1", "--host", "broken.ad"], "broken.ad: line 1, column "),
        (["1", "--bot", "nobody"], "--bot 'nobody': neither a file nor a number"),
    ],
)
def test_what_cannot_be_evaluated_is_said(
    run: Run, tmp_path: Path, arguments: list[str], message: str
) -> None:
    (tmp_path / "broken.ad").write_text("[ Memory = ")
    found = run("policy", "eval", *arguments)
    assert (found.exit_code, found.stdout) == (2, "")
    assert message in found.stderr


def test_an_expression_may_be_longer_than_a_file_name(run: Run) -> None:
    text = " + ".join(["1"] * 400)
    document = json.loads(run("policy", "eval", text, "--json").stdout)
    assert document["values"][0]["value"] == "400"
    assert "--host hhh" in refused(run("policy", "eval", "1", "--host", "h" * 5000))


@pytest.mark.parametrize("depth", [300, 900, 50_000])
def test_an_ad_that_is_nested_too_deep_is_refused_or_read(
    run: Run, tmp_path: Path, depth: int
) -> None:
    (tmp_path / "deep.json").write_text('{"a": ' * depth + "1" + "}" * depth)
    found = run("policy", "eval", "true", "--host", "deep.json")
    if depth > 300:
        assert refused(found) == "deep.json: not an ad: nested too deep"
    else:
        assert found.stdout.split() == ["expression", "true", "true", "true"]


def test_a_bot_has_the_same_ad_on_the_server_and_where_its_owner_tries_a_policy(
    run: Run, site: Site, alice: Person
) -> None:
    add_host(site, alice, "alpha")
    text = "BOT.Age >= 0 && BOT.Age < 600 && !BOT.Signed && BOT.JobsLeft + BOT.JobsUnsent == 10"
    bot = big_bot(site, alice, policy=f"JobRequirements = {text}")
    assert alice("GET", f"/api/v1/bots/{bot}").json["match"]["hosts_matching"] == 1
    document = json.loads(run("policy", "eval", text, "--bot", bot, "--json").stdout)
    assert document["values"][0]["value"] == "true"


def test_a_host_that_tells_no_name_is_still_its_owners(site: Site, alice: Person) -> None:
    number = add_host(site, alice, "alpha")
    site.conn.execute("UPDATE host SET ad = ad - 'Name'")
    bot = big_bot(site, alice, policy='JobRequirements = Host.Owner == "x"')
    found = alice("GET", f"/api/v1/bots/{bot}/explanation").json
    assert found["nearest"][0]["host"] == f"host {number}"
    assert found["nearest"][0]["fails"][0]["text"] == 'Host.Owner == "x"'


def test_a_kind_of_which_there_is_no_second_host_is_named(site: Site, alice: Person) -> None:
    add_host(site, alice, "intel", CpuVendor="GenuineIntel")
    add_host(site, alice, "amd", CpuVendor="AuthenticAMD")
    policy = "HomogeneousBy = Host.CpuVendor;"
    bot = make_bot(site.conn, alice.id, jobs=2, quorum=2, policy=policy)
    site.conn.execute(
        "INSERT INTO requeue (bot, seq, replica, round, why) VALUES (%s, 0, 2, 0, 'quorum')", [bot]
    )
    site.conn.execute("INSERT INTO job_kind VALUES (%s, 0, '\"GenuineIntel\"')", [bot])
    found = alice("GET", f"/api/v1/bots/{bot}/explanation").json
    assert found["homogeneous"] == [{"kind": '"GenuineIntel"', "copies": 1, "hosts": 1}]
    assert (
        '1 further replica must go to another host with HomogeneousBy = "GenuineIntel",'
        " of which 1 host can run it"
    ) in found["verdict"]
    add_host(site, alice, "another", CpuVendor="GenuineIntel")
    found = alice("GET", f"/api/v1/bots/{bot}/explanation").json
    assert "HomogeneousBy" not in found["verdict"]
    change = alice("PATCH", f"/api/v1/bots/{bot}", json={"policy": ""})
    assert change.status_code == 200
    found = alice("GET", f"/api/v1/bots/{bot}/explanation").json
    assert found["homogeneous"] == []


def test_a_client_that_does_not_know_exit_codes_gets_no_such_bot_and_is_told_why(
    site: Site, alice: Person
) -> None:
    manifest = Manifest(alice.name, ("grep", "x"), exit_codes=(0, 1)).text()
    bot = make_bot(site.conn, alice.id, manifest=manifest)
    add_host(site, alice, "old")
    why = "the client is too old for the BOT's exit codes, environment, standard input, directories"
    found = alice("GET", f"/api/v1/bots/{bot}/explanation").json
    assert found["hosts_matching"] == 0
    assert why in found["verdict"]
    add_host(site, alice, "new", ManifestVersion=3)
    assert alice("GET", f"/api/v1/bots/{bot}/explanation").json["hosts_matching"] == 1


def test_a_client_that_does_not_know_archives_gets_no_bot_with_a_directory(
    site: Site, alice: Person
) -> None:
    deps = FileRef("deps", "a" * 64, 10)
    manifest = Manifest(
        alice.name, ("ls", "deps"), inputs=(deps,), archives={"deps": Unpacked(5, 1)}
    ).text()
    bot = make_bot(site.conn, alice.id, manifest=manifest)
    add_host(site, alice, "old", ManifestVersion=3)
    assert alice("GET", f"/api/v1/bots/{bot}/explanation").json["hosts_matching"] == 0
    add_host(site, alice, "new", ManifestVersion=4)
    assert alice("GET", f"/api/v1/bots/{bot}/explanation").json["hosts_matching"] == 1


def test_a_client_that_does_not_know_sources_gets_no_bot_with_one_and_is_told_why(
    site: Site, alice: Person
) -> None:
    data = FileRef("data", "a" * 64, 10)
    manifest = Manifest(
        alice.name, ("wc", "data"), inputs=(data,), sources={"data": ("http://host.example/x",)}
    )
    bot = make_bot(site.conn, alice.id, manifest=manifest.text())
    add_host(site, alice, "old", ManifestVersion=LATEST - 1)
    found = alice("GET", f"/api/v1/bots/{bot}/explanation").json
    assert (found["hosts_matching"], "inputs from URLs" in found["verdict"]) == (0, True)
    add_host(site, alice, "new", ManifestVersion=LATEST)
    assert alice("GET", f"/api/v1/bots/{bot}/explanation").json["hosts_matching"] == 1


@pytest.mark.parametrize(
    ("image", "runtimes", "words"),
    [
        ("tool.tar", "podman", "containers of tool.tar, and the host has no Podman or Apptainer"),
        ("tool.tar", "apptainer", "no Podman or Apptainer"),
        ("tool.sif", "podman apptainer", "tool.sif, and the host has no Apptainer"),
        ("docker.io/library/python:3.12", "podman", "no Podman or Apptainer"),
    ],
)
def test_a_bot_in_an_image_goes_to_hosts_with_a_runtime_for_it(
    site: Site, alice: Person, image: str, runtimes: str, words: str
) -> None:
    files = () if "/" in image else (FileRef(image, "a" * 64, 10),)
    manifest = Manifest(alice.name, ("p",), inputs=files, image=image).text()
    bot = make_bot(site.conn, alice.id, manifest=manifest)
    add_host(site, alice, "without", ManifestVersion=4)
    add_host(site, alice, "other", ManifestVersion=4, Containers="docker")
    if image.endswith(".sif"):
        add_host(site, alice, "podman", ManifestVersion=4, Containers="podman")
    add_stock_host(site, alice, "stock")
    found = alice("GET", f"/api/v1/bots/{bot}/explanation").json
    assert found["hosts_matching"] == 0
    assert words in found["verdict"]
    add_host(site, alice, "with", ManifestVersion=4, Containers=runtimes)
    assert alice("GET", f"/api/v1/bots/{bot}/explanation").json["hosts_matching"] == 1


def lease_to_silent(site: Site, owner: Person, bot: int, name: str, jobs: int) -> int:
    """Add a host that has jobs of a BOT and went silent; return its number."""
    host = make_host(site.conn, owner.id, {**HOST, "Name": name})
    client = site.client_of(owner, host=host).id
    for seq in range(jobs):
        make_lease(site.conn, ReplicaId(bot, seq, 1), client)
    site.conn.execute(
        "UPDATE client SET silent_since = now(), seen_at = now() - interval '6 min' WHERE id = %s",
        [client],
    )
    return host


def test_jobs_of_silent_hosts_are_named_and_not_counted_as_running(
    run: Run, site: Site, alice: Person
) -> None:
    bot = make_bot(site.conn, alice.id, jobs=8)
    host = lease_to_silent(site, alice, bot, "vm", jobs=4)
    said = run("bot", "explain", bot).stdout
    assert (
        f"; 4 jobs were sent to vm, silent for 6 min, and wait for another client:"
        f" gridbot host forget {host}, if it does not come back" in said
    )
    assert "vm can run it, but" in run("bot", "explain", bot, "--host", "vm").stdout
    shown = json.loads(run("bot", "show", bot, "--json").stdout)
    assert (shown["jobs_running"], shown["jobs_silent"]) == (0, 4)
    assert shown["replicas"]["running"] == 0
    assert "0 in progress, 4 unsent, 4 with silent hosts" in run("bot", "show", bot).stdout
    assert "silent    since " in run("host", "show", host).stdout


def test_a_job_that_another_host_has_too_is_not_silent(site: Site, alice: Person) -> None:
    bot = make_bot(site.conn, alice.id, jobs=2)
    lease_to_silent(site, alice, bot, "vm", jobs=2)
    make_lease(site.conn, ReplicaId(bot, 0, 2), site.client_of(alice).id)
    shown = alice("GET", f"/api/v1/bots/{bot}").json
    assert (shown["jobs_running"], shown["jobs_silent"]) == (1, 1)
    (told,) = alice("GET", f"/api/v1/bots/{bot}/explanation").json["silent"]
    assert told["jobs"] == 1


def test_a_silent_host_of_another_person_has_no_name(
    site: Site, alice: Person, bob: Person
) -> None:
    bot = make_bot(site.conn, alice.id, jobs=2)
    host = lease_to_silent(site, bob, bot, "hidden", jobs=1)
    found = alice("GET", f"/api/v1/bots/{bot}/explanation")
    assert f"; 1 job was sent to host {host}, silent for 6 min" in found.json["verdict"]
    assert b"hidden" not in found.data


def test_no_time_is_foretold_while_all_that_runs_is_silent(site: Site, alice: Person) -> None:
    bot = make_bot(site.conn, alice.id, jobs=8, done=1)
    site.conn.execute(
        "INSERT INTO outcome (bot, seq, round, canonical, n, made_at)"
        " VALUES (%s, 7, 0, 1, 1, now() - interval '10 s')",
        [bot],
    )
    client = site.client_of(alice).id
    make_lease(site.conn, ReplicaId(bot, 0, 1), client)
    path = f"/api/v1/bots/{bot}"
    assert alice("GET", path).json["eta_seconds"] > 0
    site.conn.execute("UPDATE client SET silent_since = now() WHERE id = %s", [client])
    assert alice("GET", path).json["eta_seconds"] is None
