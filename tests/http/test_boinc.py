from __future__ import annotations

import hashlib
import logging
import random
import re
from collections.abc import Iterator
from dataclasses import replace

import pytest
from scripts.boinc_replay.damage import cut, mutated
from tests.boinc_captures import FACTS, NAMES, captures, ours
from tests.factories import make_key, make_owner
from tests.http.boinc_site import (
    FIRST,
    GRAMMAR,
    MANIFEST,
    SECOND,
    Site,
    acks,
    hostid,
    lend,
    opened,
)
from werkzeug.test import TestResponse

from gridbot_client.protocol.messages import ReplicaId
from gridbot_server.boinc.application import code_keys, code_signatures
from gridbot_server.boinc.protocol.names import Lease, OutputName
from gridbot_server.boinc.protocol.tags import Grammar, Section, read
from gridbot_server.settings import Settings
from gridbot_server.storage import db
from gridbot_server.web.app import create_app


@pytest.fixture
def site(settings: Settings, conn: db.Connection) -> Iterator[Site]:
    yield from opened(settings, conn)


# -------------------------------------------------------------------------------------------- pages


def test_point_2_the_master_page_needs_no_database(settings: Settings) -> None:
    away = Settings(data=settings.data, dsn="host=/nonexistent dbname=none")
    app = create_app(away)
    app.extensions["gridbot"].pool.timeout = 0.1
    page = app.test_client().get("/boinc/")
    assert page.status_code == 200
    link = '\n<link rel="boinc_scheduler" href="http://127.0.0.1:8765/boinc/scheduler">\n'
    assert link in page.text
    down = app.test_client().post("/boinc/scheduler", data=b"<scheduler_request>")
    assert down.status_code == 200
    assert "<project_is_down/>" in down.text
    assert "<request_delay>60.0</request_delay>" in down.text
    app.extensions["gridbot"].close()


def test_point_1_a_server_that_no_client_can_attach_to_says_so(settings: Settings) -> None:
    app = create_app(Settings(data=settings.data, dsn=settings.dsn, bind="[::1]:8765"))
    answer = app.test_client().get("/boinc/")
    assert (answer.status_code, answer.json and answer.json["error"]) == (404, "NotFound")
    assert "its host must contain a dot" in answer.text


def made(answer: TestResponse) -> str:
    found = read(answer.text, Grammar(root="account_out", inside={"": frozenset({"account_out"})}))
    return found.text("authenticator")


def with_accounts(site: Site) -> Site:
    app = create_app(replace(site.settings, boinc_accounts=True))
    return replace(site, app=app)


ANN = "email_addr=ann%40example%2Ecom&passwd_hash=" + "0" * 32
WRONG = "email_addr=ann%40example%2Ecom&passwd_hash=" + "1" * 32


def test_accounts_are_made_by_operators_unless_they_let_everybody(site: Site) -> None:
    config = site.get("get_project_config.php").text
    assert "<account_creation_disabled/>" in config
    assert "<name>GridBot</name>" in config
    assert "<error_num>-208</error_num>" in site.get(f"create_account.php?{ANN}").text
    assert "<error_num>-136</error_num>" in site.get(f"lookup_account.php?{ANN}").text


def test_an_account_that_a_client_made_is_found_again_and_attaches(site: Site) -> None:
    opened = with_accounts(site)
    client = {"User-Agent": "BOINC client (x86_64-pc-linux-gnu 7.20.5)"}
    key = made(opened.get(f"create_account.php?{ANN}&user_name=Ann+B%2E", **client))
    assert re.fullmatch("[0-9a-f]{32}", key)
    again = opened.get(f"create_account.php?{ANN}&user_name=other", **client)
    assert made(again) == made(opened.get(f"lookup_account.php?{ANN}", **client)) == key
    reply = opened.ask(authenticator=key)
    assert hostid(reply) > 0
    assert reply.text("user_name") == "Ann B."
    ((scope,),) = site.rows("SELECT scope FROM token ORDER BY id DESC LIMIT 1")
    assert scope == "join"
    opened.app.extensions["gridbot"].close()


@pytest.mark.parametrize(
    ("page", "number"),
    [
        (f"create_account.php?{WRONG}&user_name=Ann", -137),
        (f"lookup_account.php?{WRONG}", -136),
        (f"lookup_account.php?{ANN.replace('ann', 'bob')}", -136),
        (f"create_account.php?{ANN.replace('%40', '')}&user_name=Ann", -205),
        (f"create_account.php?{ANN.replace('ann', 'bob')}&user_name=", -188),
        ("create_account.php", -205),
    ],
)
def test_an_account_that_cannot_be_says_why(site: Site, page: str, number: int) -> None:
    opened = with_accounts(site)
    opened.get(f"create_account.php?{ANN}&user_name=Ann")
    assert f"<error_num>{number}</error_num>" in opened.get(page).text
    assert site.rows("SELECT count(*) FROM boinc_account") == [(1,)]
    opened.app.extensions["gridbot"].close()


# -------------------------------------------------------------------------------------------- hosts


def test_point_8_a_host_is_told_its_number_only_when_it_has_none(site: Site) -> None:
    given = hostid(site.ask())
    assert given > 0
    assert "hostid" not in site.ask(SECOND, hostid=given)


def test_a_client_that_forgot_its_number_is_known_again(site: Site) -> None:
    given = hostid(site.ask())
    site.ask(SECOND, hostid=given, rpc_seqno=5)
    assert hostid(site.ask()) == given
    assert "hostid" not in site.ask(SECOND, hostid=given, rpc_seqno=0)


def test_a_client_with_another_name_on_the_same_machine_is_known_again(site: Site) -> None:
    given = hostid(site.ask())
    assert hostid(site.ask(host_cpid="f" * 32, allow_multiple_clients=0)) == given
    assert hostid(site.ask(host_cpid="a" * 32, allow_multiple_clients=1)) != given


def test_another_processor_makes_another_host(site: Site) -> None:
    given = hostid(site.ask())
    assert hostid(site.ask(p_model="another")) != given


def test_a_copied_client_becomes_another_host_and_gives_up_what_it_copied(site: Site) -> None:
    bot = site.bot(MANIFEST)
    given = hostid(site.ask())
    site.ask(SECOND, hostid=given, rpc_seqno=5)
    name = NAMES.replica(Lease(ReplicaId(bot, 0, 1), given))
    held = f"<other_results><other_result><name>{name}</name></other_result></other_results>"
    body = captures()[SECOND].replace(b"</scheduler_request>", held.encode())
    body = re.sub(rb"<other_results>\s*<.*?</other_results>", b"", body, count=1, flags=re.S)
    copied = site.ask(SECOND, body + b"</scheduler_request>", hostid=given, rpc_seqno=4)
    assert hostid(copied) not in (0, given)
    assert name in [item.text("name") for item in copied.all("result_abort")]


def test_another_persons_host_is_not_taken_over(site: Site) -> None:
    given = hostid(site.ask())
    other = make_key(site.conn, make_owner(site.conn, "other"), "join")
    assert hostid(site.ask(SECOND, hostid=given, authenticator=other)) not in (0, given)


@pytest.mark.parametrize("key", ["", "wrong", "1_" + "0" * 32])
def test_a_bad_key_is_told_to_stay_away_for_a_day(site: Site, key: str) -> None:
    reply = site.ask(authenticator=key)
    assert reply.number("request_delay") == 86_400
    assert "hostid" not in reply
    assert site.rows("SELECT count(*) FROM client") == [(0,)]


@pytest.mark.parametrize("scope", ["operator", "user", "pilot"])
def test_a_key_that_can_do_more_than_join_attaches_nothing(site: Site, scope: str) -> None:
    owner = make_owner(site.conn, "olga")
    pilot = {"grid": "g", "serves": [owner], "tag": "t", "pilots": 1} if scope == "pilot" else {}
    key = make_key(site.conn, owner, scope, **pilot)
    answer = site.post("scheduler", site.request(FIRST, authenticator=key)).text
    assert "gridbot token create NAME --scope join" in answer
    assert "<hostid>" not in answer
    assert site.rows("SELECT count(*) FROM client") == [(0,)]


def test_an_account_that_anybody_made_attaches_few_hosts_at_once(site: Site) -> None:
    opened = with_accounts(site)
    own = made(opened.get(f"create_account.php?{ANN}&user_name=Ann"))

    def attach(number: int, key: str) -> Section:
        name = f"{number:032}"
        return opened.ask(authenticator=key, host_cpid=name, domain_name=name)

    assert all(hostid(attach(number, own)) for number in range(50))
    late = attach(50, own)
    assert ("hostid" in late, "project_is_down" in late) == (False, True)
    assert hostid(attach(1, own)) > 0
    assert all(hostid(attach(number, site.key)) for number in range(51))
    opened.app.extensions["gridbot"].close()


def test_a_revoked_host_gets_nothing_whatever_it_counts(site: Site) -> None:
    given = hostid(site.ask())
    site.conn.execute("UPDATE client SET revoked_at = now()")
    for answer in (site.ask(SECOND, hostid=given, rpc_seqno=0), site.ask()):
        assert answer.number("request_delay") == 86_400
    assert site.rows("SELECT count(*) FROM client") == [(1,)]


def test_a_banned_host_is_told_why_and_asks_again_in_a_day(site: Site) -> None:
    given = hostid(site.ask())
    site.conn.execute("UPDATE host SET banned_at = now(), banned_why = 'forged answers'")
    site.conn.execute("UPDATE client SET revoked_at = now()")
    for body in (site.request(SECOND, hostid=given, rpc_seqno=0), site.request(FIRST)):
        text = site.post("scheduler", body).text
        assert "<request_delay>86400</request_delay>" in text
        assert '<message priority="notice">this machine is banned: forged answers</message>' in text
        assert "<hostid>" not in text
    assert site.rows("SELECT count(*) FROM client") == [(1,)]


def test_a_hosts_ad_is_kept_under_the_names_of_native_clients(site: Site) -> None:
    site.ask()
    ((ad,),) = site.rows("SELECT ad FROM host")
    assert ad["IsBoinc"] is True
    assert (ad["Platform"], ad["ClientVersion"]) == ("linux-x86_64", "7.20.5")


# --------------------------------------------------------------------------------------------- work


def test_a_lost_replica_is_sent_again_with_all_that_it_needs(site: Site) -> None:
    lease = lend(site)
    reply = site.ask()
    (result,), (unit,) = reply.all("result"), reply.all("workunit")
    assert result.text("name") == unit.text("name") == NAMES.replica(lease)
    assert unit.text("command_line").endswith(":2 .")
    script, output = reply.all("file_info")
    fetched = site.get("download/" + script.text("name"))
    assert hashlib.md5(fetched.data).hexdigest() == script.text("md5_cksum")
    assert len(fetched.data) == script.integer("nbytes")
    key = code_keys.parse_public(reply.raw("code_sign_key"))
    assert code_signatures.is_signed(key, script.text("md5_cksum"), script.raw("file_signature"))
    rest = site.get("download/" + script.text("name"), Range="bytes=100-")
    assert (rest.status_code, rest.data) == (206, fetched.data[100:])
    assert output.text("name") == NAMES.output(OutputName(lease, 0))


def test_nothing_is_lost_when_the_client_does_not_tell_all_that_it_holds(site: Site) -> None:
    lend(site)
    silent = captures()[FIRST].replace(b"<other_results>\n</other_results>\n", b"")
    assert site.ask(body=silent).all("result") == []
    assert site.ask().all("result") != []


def test_a_client_with_another_projects_key_gets_no_work_and_no_second_key(site: Site) -> None:
    lease = lend(site)
    foreign = captures()[SECOND].decode()
    reply = site.ask(body=foreign.encode(), hostid=lease.client)
    assert reply.all("result") == []
    assert reply.raw("code_sign_key") == ""
    text = site.post("scheduler", site.request(SECOND, hostid=lease.client, rpc_seqno=9)).text
    assert '<message priority="notice">This client trusts another project' in text
    assert "trusts another project" not in site.post("scheduler", site.request(FIRST)).text


@pytest.mark.parametrize("name", ["", "nothing", "gb_" + "0" * 64 + "_" + "a" * 24])
def test_a_file_is_sent_only_by_a_name_of_ours(site: Site, name: str) -> None:
    assert site.get(f"download/{name}").status_code == 404


# --------------------------------------------------------------------------------------- the replay


def is_whole(answer: TestResponse) -> bool:
    text = answer.text
    return text.startswith("<scheduler_reply>") and text.endswith("</scheduler_reply>\n")


@pytest.mark.parametrize("capture", FACTS)
def test_point_17_every_captured_request_is_answered_and_every_name_acknowledged(
    site: Site, capture: str, caplog: pytest.LogCaptureFixture
) -> None:
    answer = site.post("scheduler", site.request(capture, ours(capture)))
    assert answer.status_code == 200
    assert is_whole(answer)
    names = re.findall(r"<result>\s*<name>([^<]+)", ours(capture).decode())
    assert sorted(acks(read(answer.text, GRAMMAR))) == sorted(set(names))
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_damaged_requests_are_answered_too(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    chance = random.Random(4)
    for capture in FACTS:
        whole = site.request(capture, ours(capture))
        damaged = [cut(whole, chance) for _ in range(5)]
        damaged += [damaged_at_will(whole, chance) for _ in range(10)]
        for body in damaged:
            answer = site.post("scheduler", body)
            assert answer.status_code == 200, body
            assert is_whole(answer), body
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


def damaged_at_will(body: bytes, chance: random.Random) -> bytes:
    # Else nearly all of them end at the key already.
    key = re.search(rb"<authenticator>[^<]*</authenticator>\n", body)
    return b"<scheduler_request>\n" + (key[0] if key else b"") + mutated(body, chance)
