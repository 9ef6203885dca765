"""Claims about what account managers see and change of an account."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

import pytest
from tests.factories import make_key, make_owner
from tests.http.boinc_site import FIRST, SECOND, Site, hostid, opened

from gridbot_server.boinc.protocol.pages import password_hash
from gridbot_server.settings import Settings
from gridbot_server.storage import db

EMAIL, PASSWORD = "ann@example.com", "right"
MANAGER = {"User-Agent": "libcurl/7.88"}
CLIENT = {"User-Agent": "BOINC client (x86_64-pc-linux-gnu 7.20.5)"}
PREFERENCES = """<global_preferences>
<run_on_batteries>0</run_on_batteries>
<run_if_user_active>1</run_if_user_active>
<max_ncpus_pct>50</max_ncpus_pct>
<ram_max_used_busy_pct>40</ram_max_used_busy_pct>
<ram_max_used_idle_pct>80</ram_max_used_idle_pct>
<disk_max_used_gb>20</disk_max_used_gb>
<start_hour>22</start_hour>
<end_hour>7</end_hour>
<day_prefs>
<day_of_week>0</day_of_week>
<start_hour>24</start_hour>
<end_hour>0</end_hour>
</day_prefs>
<venue name="work">
<run_on_batteries>1</run_on_batteries>
<run_if_user_active>0</run_if_user_active>
<idle_time_to_run>5</idle_time_to_run>
<max_bytes_sec_down>1048576</max_bytes_sec_down>
</venue>
</global_preferences>
"""
SHARES = """<project_preferences>
<resource_share>70</resource_share>
<venue name="work">
<resource_share>20</resource_share>
</venue>
</project_preferences>
"""


@pytest.fixture
def site(settings: Settings, conn: db.Connection) -> Iterator[Site]:
    """A server on which Ann has made an account."""
    for made in opened(replace(settings, boinc_accounts=True, web_workers=1), conn):
        ask(made, "create_account", user_name="Ann", **_shown())
        yield made


def _shown(password: str = PASSWORD) -> dict[str, str]:
    return {"email_addr": EMAIL, "passwd_hash": password_hash(EMAIL, password)}


def ask(site: Site, page: str, **values: str) -> str:
    return ask_as(site, {}, page, **values)


def ask_as(site: Site, headers: Mapping[str, str], page: str, **values: str) -> str:
    query = "&".join(f"{name}={quote(value, safe='')}" for name, value in values.items())
    return site.get(f"{page}.php?{query}", **headers).text


def key_of(site: Site, headers: Mapping[str, str] = MANAGER) -> str:
    """What an account manager, or a client, is told."""
    found = re.search(r"<authenticator>(\w+)", ask_as(site, headers, "lookup_account", **_shown()))
    assert found
    return found[1]


def info(site: Site, key: str) -> str:
    return ask(site, "am_get_info", account_key=key)


def value(text: str, name: str) -> str:
    found = re.search(f"<{name}>([^<]*)</{name}>", text)
    assert found, f"{name} in {text}"
    return found[1]


def attach(site: Site, key: str) -> int:
    return hostid(site.ask(FIRST, authenticator=key))


def test_a_client_is_told_a_key_that_only_attaches(site: Site) -> None:
    joining, own = key_of(site, CLIENT), key_of(site)
    assert joining != own
    assert attach(site, joining) > 0
    for page in ("am_get_info", "am_set_info", "am_set_host_info"):
        answer = ask(site, page, account_key=joining, name="Eve", hostid="1", venue="work")
        assert value(answer, "error_num") == "-136"
    assert value(info(site, own), "name") == "Ann"


def test_a_manager_is_told_the_account_and_a_key_for_machines(site: Site) -> None:
    own = key_of(site)
    told = info(site, own)
    assert "<success/>" in told
    weak = value(told, "weak_auth")
    assert weak not in (own, key_of(site, CLIENT))
    assert value(info(site, own), "weak_auth") == weak
    assert value(info(site, weak), "error_num") == "-136"
    assert attach(site, weak) > 0
    assert value(told, "show_hosts") == "0"
    assert value(told, "resource_share") == "100"


def test_what_a_manager_sets_reaches_clients(site: Site) -> None:
    own = key_of(site)
    machine = attach(site, key_of(site, CLIENT))
    answer = ask(
        site, "am_set_info", account_key=own, name="Ann B", global_prefs=PREFERENCES,
        project_prefs=SHARES, show_hosts="1", country="Austria",
    )  # fmt: skip
    assert "<am_set_info_reply>\n<success/>" in answer
    done = ask(site, "am_set_host_info", account_key=own, hostid=f"{machine}", venue="work")
    assert "<success/>" in done
    joining = key_of(site, CLIENT)
    request = site.request(SECOND, authenticator=joining, hostid=machine)
    reply = site.post("scheduler", request).text
    assert value(reply, "user_name") == "Ann B"
    assert value(reply, "host_venue") == "work"
    assert '<resource_share>70</resource_share>\n<venue name="work">\n<resource_share>20' in reply
    assert "<max_ncpus_pct>50</max_ncpus_pct>" in reply
    (kept,) = site.rows("SELECT preferences FROM owner WHERE preferences <> '{}'")[0]
    assert kept == {
        "default": {
            "on-battery": "no",
            "cpu-share": "50",
            "memory-when-idle": "80",
            "memory-in-use": "40",
            "disk": "20971520.000KB",
            "hours": "22:00-07:00",
            "days": "mon,tue,wed,thu,fri,sat",
        },
        "work": {"idle-minutes": "5", "download-rate": "1024.000KB"},
    }
    told = info(site, own)
    assert (value(told, "name"), value(told, "show_hosts")) == ("Ann+B", "1")


def test_what_was_told_says_the_same_when_it_is_set_again(site: Site) -> None:
    own = key_of(site)
    ask(site, "am_set_info", account_key=own, global_prefs=PREFERENCES, project_prefs=SHARES)
    told = info(site, own)
    parts = {
        name: re.findall(f"(<{tag}>.*</{tag}>)", told, re.DOTALL)[0]
        for name, tag in (
            ("global_prefs", "global_preferences"),
            ("project_prefs", "project_preferences"),
        )
    }
    ask(site, "am_set_info", account_key=own, **parts)
    again = re.sub("<mod_time>.*</mod_time>", "", info(site, own))
    assert again == re.sub("<mod_time>.*</mod_time>", "", told)


def test_a_machine_that_attaches_later_is_at_the_venue_of_its_account(site: Site) -> None:
    own = key_of(site)
    ask(site, "am_set_info", account_key=own, venue="school")
    assert value(info(site, own), "venue") == "school"
    attach(site, key_of(site, CLIENT))
    assert site.rows("SELECT venue FROM host") == [("school",)]


def test_a_manager_joins_and_leaves_teams(site: Site) -> None:
    own = key_of(site)
    founder = make_owner(site.conn, "founder")
    ((team,),) = site.rows(
        "INSERT INTO team (name, founder) VALUES ('Owls', %s) RETURNING id", founder
    )
    ask(site, "am_set_info", account_key=own, teamid=f"{team}")
    assert value(info(site, own), "teamid") == f"{team}"
    assert "<teamfounder/>" not in info(site, own)
    ask(site, "am_set_info", account_key=own, teamid="0")
    assert value(info(site, own), "teamid") == "0"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("global_prefs", "<global_preferences>"),
        ("global_prefs", "x" * 1000),
        (
            "global_prefs",
            "<global_preferences>" + "<venue name='x'>" * 50 + "</global_preferences>",
        ),
        (
            "global_prefs",
            "<global_preferences><start_hour>24</start_hour></global_preferences>",
        ),
        ("project_prefs", "<project_preferences><resource_share>-1</resource_share>"),
        (
            "project_prefs",
            "<project_preferences><resource_share>nan</resource_share></project_preferences>",
        ),
        ("name", "a\nb"),
        ("teamid", "77"),
        ("teamid", "9" * 5000),
        ("venue", "moon"),
        ("email_addr", "eve@example.com"),
        ("password_hash", "0" * 32),
    ],
)
def test_what_cannot_be_is_named_and_changes_nothing(site: Site, name: str, text: str) -> None:
    own = key_of(site)
    before = info(site, own)
    good = {"show_hosts": "1", "project_prefs": SHARES}
    answer = ask(site, "am_set_info", account_key=own, **{**good, name: text})
    assert value(answer, "error_num") == "-1"
    assert info(site, own) == before


def test_changes_that_cannot_be_do_not_shut_a_manager_out(site: Site) -> None:
    own = key_of(site)
    for _ in range(50):
        assert value(ask(site, "am_set_info", account_key=own, venue="moon"), "error_num") == "-1"
    assert "<success/>" in ask(site, "am_set_info", account_key=own, venue="work")


def test_what_boinc_has_no_word_for_outlives_what_a_manager_sets(site: Site) -> None:
    own = key_of(site)
    ask(site, "am_set_info", account_key=own, global_prefs=PREFERENCES)
    ours = json.dumps({"work": {"hours": "1-2", "give-back-minutes": "30"}})
    site.conn.execute(
        "UPDATE owner SET preferences = preferences || %s WHERE preferences <> '{}'", [ours]
    )
    assert "<success/>" in ask(site, "am_set_info", account_key=own, global_prefs=PREFERENCES)
    ((kept,),) = site.rows(
        "SELECT preferences->'work' FROM owner WHERE preferences->'work'->>'on-battery' IS NULL"
        " AND preferences <> '{}'"
    )
    assert kept["give-back-minutes"] == "30"
    assert "hours" not in kept


def test_a_revoked_key_takes_its_weak_key_with_it_and_is_not_told_again(site: Site) -> None:
    own = key_of(site)
    weak = value(info(site, own), "weak_auth")
    assert attach(site, weak) > 0
    ((number,),) = site.rows("SELECT id FROM token WHERE scope = 'account'")
    operator = make_key(site.conn, make_owner(site.conn, "olga", operator=True), "operator")
    answer = site.app.test_client().delete(
        f"/api/v1/tokens/{number}", headers={"Authorization": f"Bearer {operator}"}
    )
    assert answer.status_code == 200
    assert "<userid>" not in site.post("scheduler", site.request(FIRST, authenticator=weak)).text
    assert value(ask(site, "lookup_account", **_shown()), "error_num") == "-155"
    assert attach(site, key_of(site, CLIENT)) > 0


def test_a_weak_key_of_a_key_that_expires_expires_with_it(site: Site) -> None:
    ann = site.rows("SELECT owner FROM boinc_account")[0][0]
    lent = make_key(site.conn, ann, "user", expires_at=datetime.now(UTC) + timedelta(hours=1))
    weak = value(info(site, lent), "weak_auth")
    assert attach(site, weak) > 0
    site.conn.execute("UPDATE token SET expires_at = expires_at - interval '2 hours'")
    assert "<userid>" not in site.post("scheduler", site.request(FIRST, authenticator=weak)).text


def test_another_accounts_machine_is_not_found(site: Site) -> None:
    machine = attach(site, site.key)
    own = key_of(site)
    for number in (f"{machine}", "0", "-1", "x", "9" * 40, ""):
        answer = ask(site, "am_set_host_info", account_key=own, hostid=number, venue="work")
        assert value(answer, "error_num") == "-136"
    assert site.rows("SELECT venue FROM host") == [("",)]


def test_without_a_password_only_the_existence_of_an_account_is_told(site: Site) -> None:
    assert "<success/>" in ask(site, "lookup_account", email_addr=EMAIL)
    nobody = ask(site, "lookup_account", email_addr="bob@example.com")
    assert value(nobody, "error_num") == "-136"
    answers = [ask(site, "lookup_account", email_addr=f"u{i}@example.com") for i in range(35)]
    assert value(answers[-1], "error_num") == "-183"


def test_the_accounts_own_key_enters_the_console_and_reads_no_files(site: Site) -> None:
    headers = {"Authorization": f"Bearer {key_of(site)}"}
    web = site.app.test_client()
    changed = web.patch("/api/v1/volunteer", json={"public": True}, headers=headers)
    assert changed.json and changed.json["public"]
    assert web.get("/api/v1/bots", headers=headers).status_code == 403
    joining = {"Authorization": f"Bearer {key_of(site, CLIENT)}"}
    refused = web.patch("/api/v1/volunteer", json={"public": False}, headers=joining)
    assert refused.status_code == 403


def test_a_scientists_key_manages_an_account_as_well(site: Site) -> None:
    pia = make_owner(site.conn, "pia")
    key = make_key(site.conn, pia, "user")
    assert value(info(site, key), "name") == "pia"
    assert attach(site, value(info(site, key), "weak_auth")) > 0


def test_managers_offer_pages_of_the_project(site: Site) -> None:
    reply = site.post("scheduler", site.request(FIRST)).text
    (urls,) = re.findall("<gui_urls>(.*)</gui_urls>", reply, re.DOTALL)
    assert re.findall("<url>.*/(.*)</url>", urls) == ["account", "machines"]
