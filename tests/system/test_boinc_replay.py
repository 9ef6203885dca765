"""A small share of `scripts/boinc-replay`: captured requests, whole and damaged, really sent."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace

import pytest
from scripts.boinc_replay import captured, report
from scripts.boinc_replay.hosts import Project, ours, replicas
from scripts.boinc_replay.report import Summary
from scripts.boinc_replay.run import Amount, run
from scripts.boinc_replay.wire import Wire
from tests.boinc_captures import captures
from tests.system.deployment import Deployment, deployment

FIRST = "run1_003_ok"
OPTIONS = ("--sign-on-submit", "--boinc-accounts", "--behind-proxy")


@pytest.fixture(scope="module")
def server() -> Iterator[Deployment]:
    with deployment() as made:
        made.start(*OPTIONS, "--project-name", "Replayed & whole")
        yield made


@pytest.fixture(scope="module")
def project(server: Deployment) -> Project:
    server.submit("--range", "1:20000", "--time", "10m", "--output", "stdout", "--", "echo", "{}")
    owner = json.loads(server.run("user", "list", "--json"))["owners"][0]["name"]
    made = server.run("token", "create", owner, "--scope", "join", "--json")
    return Project("/boinc/", json.loads(made)["token"], captures()[FIRST])


@pytest.fixture
def wire(server: Deployment) -> Iterator[Wire]:
    made = Wire("127.0.0.1", server.port)
    yield made
    made.close()


def test_every_request_is_answered_and_damage_leaves_nothing_in_the_log(
    server: Deployment, project: Project
) -> None:
    summary, requests, logs = Summary(), captured.kept(), server.settings.log
    before = report.sizes(logs)
    amount = Amount(cuts=4, mutations=16, seed=20)
    for sent in run(project, lambda: Wire("127.0.0.1", server.port), requests, amount, jobs=4):
        summary.add(sent)
    assert summary.requests == len(requests) * amount.requests
    assert summary.faults == []
    assert report.exceptions(logs, before) == []


def test_section_9_a_request_for_one_second_may_be_given_fifteen_jobs(
    project: Project, wire: Wire
) -> None:
    assert b"<cpu_req_secs>1.000000</cpu_req_secs>" in project.first
    assert len(project.host(wire, 15).names) >= 15


def test_real_names_bring_a_report_and_an_upload_to_where_they_count(
    server: Deployment, project: Project, wire: Wire
) -> None:
    requests = {item.name: item for item in captured.kept()}
    upload, told = requests["run1_021_up_file_upload_handler"], requests["run1_041_ok"]
    host = project.host(wire, replicas(told))
    names = re.findall(rb"\w+_r0", told.body)
    only = replace(upload, body=upload.body.replace(b"j_ok_r0", names[0]))
    stored = wire.ask("POST", "/boinc/file_upload_handler", ours(only, project, host))
    assert b"<status>0</status>" in stored.body
    wire.ask("POST", "/boinc/scheduler", ours(told, project, host))
    query = "SELECT how, count(*) FROM ended WHERE client = %s GROUP BY how"
    assert dict(server.rows(query, host.id)) == {"error": 15}
    size = "SELECT size FROM boinc_upload u JOIN ended USING (bot, seq, replica) WHERE client = %s"
    assert server.rows(size, host.id) == [(14,)]


def test_the_options_of_the_start_are_what_clients_are_told(wire: Wire) -> None:
    page = wire.ask("GET", "/boinc/get_project_config.php").body.decode()
    assert "<name>Replayed &amp; whole</name>" in page
    assert "account_creation_disabled" not in page


def test_the_options_stay_until_they_are_taken_back(server: Deployment) -> None:
    server.stop()
    server.start()
    assert server.settings.project_name == "Replayed & whole"
    assert server.settings.boinc_accounts
    server.stop()
    server.start("--project-name", "", "--no-boinc-accounts")
    assert server.settings.project_name == "GridBot"
    assert not server.settings.boinc_accounts
