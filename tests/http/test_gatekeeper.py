"""Bounds of ARC's REST interface: who may ask, what is refused, and with which words."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit
from xml.etree import ElementTree

import pytest
import requests
from cryptography import x509
from tests.http.gatekeeper_site import (
    LIMITED,
    ArcPerson,
    GatekeeperSite,
    authority,
    proxy,
    user,
)
from tests.system.deployment import eventually

from gridbot.api.errors import BadInput
from gridbot.gatekeeper.files import ArcOutput
from gridbot.gatekeeper.owners import OwnerMap
from gridbot.gatekeeper.rest import GatekeeperLimits
from gridbot.gatekeeper.serving import ServingLimits
from gridbot.gatekeeper.states import ArcState, JobEnd

JOB = '&(executable=run.sh)(inputFiles=("run.sh" "")("data/in" ""))(stdout=o)'
ELSEWHERE = ["status", "info", "kill", "clean", "restart", "delegations"]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[GatekeeperSite]:
    made = GatekeeperSite(tmp_path, GatekeeperLimits(jobs=3, file_bytes=100))
    with made.serve():
        yield made


@pytest.fixture
def alice(site: GatekeeperSite) -> ArcPerson:
    return site.person(user(site.authority, "Alice"), "alice")


@pytest.fixture
def bob(site: GatekeeperSite) -> ArcPerson:
    return site.person(user(site.authority, "Bob"), "bob")


@pytest.fixture
def job(alice: ArcPerson) -> str:
    [made] = alice.submit(JOB)
    return str(made["id"])


def test_a_job_is_accepted_and_waits_for_its_files(
    site: GatekeeperSite, alice: ArcPerson, job: str
) -> None:
    assert alice.act("status", job) == [
        {"status-code": "200", "reason": "OK", "id": job, "state": "ACCEPTED"}
    ]
    kept = site.jobs.one("/O=Grid/CN=Alice", job)
    assert kept is not None
    assert kept.bot_owner is None
    assert site.files.missing(job, kept.description.inputs) == ["run.sh", "data/in"]
    for name in ("run.sh", "data/in"):
        path = f"/1.0/jobs/{job}/session/{name}"
        assert alice("PUT", path, data=b"text").status_code == 200
        assert alice("GET", path).content == b"text"
    assert site.files.missing(job, kept.description.inputs) == []
    assert (site.files.inputs(job) / "run.sh").stat().st_mode & 0o777 == 0o700
    assert (site.files.inputs(job) / "data/in").stat().st_mode & 0o777 == 0o600


def test_documents_come_in_xml_too(alice: ArcPerson, job: str) -> None:
    body = f"<jobs><job><id>{job}</id></job></jobs>"
    answer = alice("POST", "/1.0/jobs?action=info", data=body, headers={"Accept": "text/xml"})
    root = ElementTree.fromstring(answer.text)
    glue = "{http://schemas.ogf.org/glue/2009/03/spec_2.0_r1}"
    assert root.findtext("job/status-code") == "200"
    assert root.findtext(f"job/info_document/{glue}ComputingActivity/{glue}State") == (
        "arcrest:ACCEPTED"
    )
    assert alice("GET", "").json() == {"version": ["1.0"]}
    assert alice("GET", "/1.0/jobs").json() == {"job": [{"id": job, "state": "ACCEPTED"}]}
    assert alice("GET", "/1.0/jobs?state=RUNNING").json() == {"job": []}


def test_a_job_of_somebody_else_is_not_found(alice: ArcPerson, bob: ArcPerson, job: str) -> None:
    for action in ELSEWHERE:
        assert [item["status-code"] for item in bob.act(action, job)] == ["404"], action
    assert bob("GET", "/1.0/jobs").json() == {"job": []}
    for method, path in [
        ("GET", "session"), ("GET", "session/run.sh"), ("PUT", "session/run.sh"),
        ("PROPFIND", "session"), ("GET", "diagnose/description"),
    ]:  # fmt: skip
        answer = bob(method, f"/1.0/jobs/{job}/{path}", data=b"x" if method == "PUT" else None)
        assert (answer.status_code, answer.reason) == (404, "Job not found"), path
    assert [item["state"] for item in alice.act("status", job)] == ["ACCEPTED"]


def test_each_job_that_cannot_be_run_gets_its_reason(alice: ArcPerson) -> None:
    good, bad = alice.submit("+(&(executable=/bin/a))(&(executable=/bin/a)(queue=fast))")
    assert (good["status-code"], good["state"]) == ("201", "ACCEPTING")
    assert bad == {"status-code": "400", "reason": "queue fast: the only queue is gridbot"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("&(executable", "RSL, line 1, column 13: one of != >= <= = > < was expected"),
        ("&(executable =\n", "RSL, line 2, column 1: a value was expected, not 'the end'"),
        ("</ActivityDescriptions>", "not valid XML"),
        (b"\xff", "not UTF-8"),
        (b"", "was expected, not 'the end'"),
    ],
)
def test_what_is_no_description_is_refused_with_the_reason_in_the_status_line(
    alice: ArcPerson, text: str, words: str
) -> None:
    answer = alice("POST", "/1.0/jobs?action=new", data=text)
    assert answer.status_code == 400
    assert words in answer.reason
    assert words in answer.text
    assert alice("GET", "/1.0/jobs").json() == {"job": []}


def test_a_subject_has_no_more_jobs_than_are_kept_for_it(alice: ArcPerson, bob: ArcPerson) -> None:
    three = "+" + "(&(executable=/bin/a))" * 3
    alice.submit(three)
    answer = alice("POST", "/1.0/jobs?action=new", data="&(executable=/bin/a)")
    assert answer.status_code == 429
    assert "at most 3 are kept" in answer.reason
    assert len(bob.submit(three)) == 3


@pytest.mark.parametrize(
    ("name", "status", "words"),
    [
        ("other", 404, "no input of this name"),
        ("..%2f..%2fother", 404, "no input of this name"),
        ("%2e%2e/run.sh", 404, "no input of this name"),
        ("", 404, "no input of this name"),
    ],
)
def test_only_files_that_the_job_has_are_taken(
    alice: ArcPerson, job: str, name: str, status: int, words: str
) -> None:
    request = requests.Request("PUT", alice.site.url, data=b"x").prepare()
    request.url = f"{alice.site.url}/1.0/jobs/{job}/session/{name}"  # as it is
    with requests.Session() as session:
        answer = session.send(
            request, cert=str(alice.certificate), verify=str(alice.site.folder / "localhost.pem"),
            timeout=30.0,
        )  # fmt: skip
    assert (answer.status_code, words in answer.reason) == (status, True)


def test_files_outside_of_a_jobs_directory_are_not_read(
    site: GatekeeperSite, alice: ArcPerson, job: str
) -> None:
    assert alice("PUT", f"/1.0/jobs/{job}/session/run.sh", data=b"x").status_code == 200
    for name in ("..%2f..%2f..%2fowners.map", "%2fetc%2fpasswd", "data%2f..%2f..%2f..%2fx"):
        answer = alice("GET", f"/1.0/jobs/{job}/session/{name}")
        assert answer.status_code == 404, name


def test_content_is_bounded_and_arrives_whole_or_not_at_all(
    site: GatekeeperSite, alice: ArcPerson, job: str
) -> None:

    def parts() -> list[Path]:
        return list((site.folder / "files/parts").iterdir())

    path = f"/1.0/jobs/{job}/session/run.sh"
    assert alice("PUT", path, data=b"x" * 101).status_code == 413
    assert alice("POST", "/1.0/jobs?action=new", data=b"x" * (5 << 20)).status_code == 413
    target = f"{urlsplit(site.url).path}{path}"
    with raw(alice) as connection:
        head = f"PUT {target} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        connection.sendall(head.encode())
        assert connection.recv(4096).startswith(b"HTTP/1.1 411 a request must tell the length")
    with raw(alice) as connection:
        head = f"PUT {target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\n"
        connection.sendall(head.encode() + b"only this")
        eventually(parts, what="a part of the file")
    eventually(lambda: not parts(), what="the end of the part")
    assert alice("GET", path).status_code == 404


def raw(person: ArcPerson, source: str = "127.0.0.1") -> ssl.SSLSocket:
    """A connection that a test writes to as it likes."""
    context = ssl.create_default_context(cafile=str(person.site.folder / "localhost.pem"))
    context.load_cert_chain(person.certificate)
    return context.wrap_socket(plain(person.site, source), server_hostname="localhost")


def plain(site: GatekeeperSite, source: str = "127.0.0.1") -> socket.socket:
    """A connection without TLS."""
    return socket.create_connection(("127.0.0.1", urlsplit(site.url).port or 0), 30.0, (source, 0))


@pytest.mark.parametrize("is_cleaned", [False, True])
def test_a_file_that_comes_when_its_job_has_gone_on_is_not_taken(
    site: GatekeeperSite, alice: ArcPerson, job: str, is_cleaned: bool
) -> None:
    path = f"/1.0/jobs/{job}/session/run.sh"
    alice("PUT", path, data=b"old")
    target = f"{urlsplit(site.url).path}{path}"
    with raw(alice) as connection:
        head = f"PUT {target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\n"
        connection.sendall(head.encode() + b"ne")
        eventually(lambda: list((site.folder / "files/parts").iterdir()), what="a part")
        if is_cleaned:
            site.jobs.end(job, JobEnd(ArcState.FAILED, "it took too long"))
            assert [item["status-code"] for item in alice.act("clean", job)] == ["202"]
        else:
            site.jobs.move(job, ArcState.SUBMITTING)
        connection.sendall(b"w")
        assert connection.recv(4096).startswith(b"HTTP/1.1 403 run.sh: the job takes no more files")
    assert list((site.folder / "files/parts").iterdir()) == []
    if is_cleaned:
        assert not site.files.inputs(job).parent.exists()
    else:
        assert (site.files.inputs(job) / "run.sh").read_bytes() == b"old"


def test_a_full_disk_takes_no_jobs_and_no_files(tmp_path: Path) -> None:
    site = GatekeeperSite(tmp_path, free_bytes=1 << 60)
    with site.serve():
        alice = site.person(user(site.authority, "Alice"), "alice")
        answer = alice("POST", "/1.0/jobs?action=new", data=JOB)
        assert (answer.status_code, answer.reason) == (507, "the gatekeeper's disk is full")
        [job] = site.jobs.add("/O=Grid/CN=Alice", [JOB], 100)
        assert alice("PUT", f"/1.0/jobs/{job}/session/run.sh", data=b"x").status_code == 507


def test_one_address_does_not_hold_all_connections(tmp_path: Path) -> None:
    site = GatekeeperSite(tmp_path, serving=ServingLimits(of_address=2, handshake_seconds=600.0))
    with site.serve(), ExitStack() as idle:
        alice = site.person(user(site.authority, "Alice"), "alice")
        for _ in range(2):
            idle.enter_context(plain(site))
        assert is_closed(idle.enter_context(plain(site)))
        with raw(alice, "127.0.0.2") as connection:
            assert b" 200 " in asked(connection, site)
        idle.close()
        eventually(lambda: alice_gets_in(alice), what="the end of the idle connections")


def test_who_shows_no_certificate_takes_no_place_of_those_who_do(tmp_path: Path) -> None:
    site = GatekeeperSite(
        tmp_path, serving=ServingLimits(connections=1, handshakes=1, handshake_seconds=600.0)
    )
    with site.serve():
        alice = site.person(user(site.authority, "Alice"), "alice")
        with plain(site) as idle, plain(site) as second:
            assert is_closed(second)
            idle.sendall(b"no TLS")
            assert is_closed(idle)
        with raw(alice) as connection:
            assert b" 200 " in asked(connection, site)
            with plain(site), plain(site) as second:
                assert is_closed(second)
                assert b" 200 " in asked(connection, site)


def test_a_connection_that_sends_too_slowly_is_closed_whatever_length_it_names(
    tmp_path: Path,
) -> None:
    site = GatekeeperSite(
        tmp_path, serving=ServingLimits(step_seconds=1.0, handshake_seconds=600.0)
    )
    with site.serve():
        alice = site.person(user(site.authority, "Alice"), "alice")
        [job] = site.jobs.add("/O=Grid/CN=Alice", [JOB], 100)
        target = f"{urlsplit(site.url).path}/1.0/jobs/{job}/session/run.sh"
        with raw(alice) as connection:
            head = f"PUT {target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {1 << 30}\r\n\r\n"
            connection.sendall(head.encode())

            def is_cut() -> bool:
                try:
                    connection.sendall(b"x")
                except OSError:
                    return True
                return False

            eventually(is_cut, what="the end of the connection")


def is_closed(connection: socket.socket) -> bool:
    """Wait until the other side closes a connection."""
    try:
        while connection.recv(4096):
            pass
    except ConnectionError:
        pass
    return True


def asked(connection: ssl.SSLSocket, site: GatekeeperSite) -> bytes:
    """The whole answer to a request, on a connection that stays."""
    head = f"GET {urlsplit(site.url).path} HTTP/1.1\r\nHost: localhost\r\n\r\n"
    connection.sendall(head.encode())
    found = b""
    while not found.endswith(b"</versions>"):
        step = connection.recv(4096)
        assert step, found
        found += step
    return found


def alice_gets_in(alice: ArcPerson) -> bool:
    try:
        return alice("GET", "/1.0/jobs").status_code == 200
    except requests.exceptions.ConnectionError:
        return False


def test_a_client_that_closes_behind_its_request_is_heard(alice: ArcPerson, job: str) -> None:
    path = f"/1.0/jobs/{job}/session/run.sh"
    headers = {"Connection": "close"}
    assert alice("PUT", path, data=b"text", headers=headers).status_code == 200
    assert alice("GET", path, headers=headers).content == b"text"


def test_a_client_may_wait_to_be_asked_for_what_it_sends(alice: ArcPerson, job: str) -> None:
    target = f"{urlsplit(alice.site.url).path}/1.0/jobs/{job}/session/"
    head = "HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\n"
    with raw(alice) as connection:
        connection.sendall(f"PUT {target}run.sh {head}".encode())
        assert connection.recv(4096) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"x")
        assert connection.recv(4096).startswith(b"HTTP/1.1 200 OK")
        connection.sendall(f"PUT {target}other {head}".encode())
        assert connection.recv(4096).startswith(b"HTTP/1.1 404 ")


def test_a_job_that_is_submitted_takes_no_more_files(
    site: GatekeeperSite, alice: ArcPerson, job: str
) -> None:
    site.jobs.move(job, ArcState.SUBMITTING)
    answer = alice("PUT", f"/1.0/jobs/{job}/session/run.sh", data=b"x")
    assert (answer.status_code, answer.reason) == (
        403, "run.sh: the job has its files: SUBMITTING",
    )  # fmt: skip


def test_jobs_are_cleaned_once_they_have_ended_and_killed_before(
    site: GatekeeperSite, alice: ArcPerson, job: str
) -> None:
    [refused] = alice.act("clean", job)
    assert (refused["status-code"], "kill it first" in refused["reason"]) == ("505", True)
    assert [item["status-code"] for item in alice.act("kill", job)] == ["202"]
    assert [item["state"] for item in alice.act("status", job)] == ["KILLING"]
    site.files.keep(job, {"a/b": ArcOutput(4, lambda place: place.write_text("text"))})
    site.jobs.end(job, JobEnd(ArcState.FAILED, "the program exited with 3", 3))
    assert alice("GET", f"/1.0/jobs/{job}/session").json() == {"file": [], "dir": ["a"]}
    assert alice("GET", f"/1.0/jobs/{job}/session/a/b").text == "text"
    assert alice("HEAD", f"/1.0/jobs/{job}/session/a/b").headers["Content-Length"] == "4"
    assert alice("GET", f"/1.0/jobs/{job}/diagnose/failed").text == "the program exited with 3\n"
    assert alice("GET", f"/1.0/jobs/{job}/diagnose/diag").text == "exitcode=3\n"
    [info] = alice.act("info", job)
    assert info["info_document"]["ComputingActivity"]["ExitCode"] == 3
    assert [item["status-code"] for item in alice.act("kill", job)] == ["505"]
    assert [item["status-code"] for item in alice.act("clean", job)] == ["202"]
    assert [item["status-code"] for item in alice.act("clean", job)] == ["404"]
    assert alice("GET", f"/1.0/jobs/{job}/session").status_code == 404
    assert not site.files.inputs(job).parent.exists()


def test_while_the_jobs_cannot_be_read_clients_are_asked_to_come_later(
    site: GatekeeperSite, alice: ArcPerson, job: str
) -> None:
    (site.folder / "jobs.db").write_bytes(b"no database" * 1000)
    assert alice("GET", "/1.0/jobs").status_code == 503
    assert alice("POST", "/1.0/jobs?action=new", data=JOB).status_code == 503
    assert alice("PUT", f"/1.0/jobs/{job}/session/run.sh", data=b"x").status_code == 503


def test_an_action_is_about_a_bounded_number_of_jobs_each_once(alice: ArcPerson) -> None:
    numbers = [str(number) for number in range(1000)]
    found = [item["id"] for item in alice.act("status", "7", *numbers)]
    assert found == ["7", *numbers[:7], *numbers[8:]]
    told = "".join(f"<job><id>{number}</id></job>" for number in (*numbers, "one more"))
    for options in (
        {"json": {"job": [{"id": id} for id in (*numbers, "one more")]}},
        {"data": f"<jobs>{told}</jobs>", "headers": {"Content-Type": "application/xml"}},
    ):
        answer = alice("POST", "/1.0/jobs?action=kill", **options)
        assert (answer.status_code, answer.reason) == (
            413, "1001 jobs in one request, at most 1000",
        )  # fmt: skip


def test_an_id_that_is_no_text_is_refused(alice: ArcPerson) -> None:
    answer = alice("POST", "/1.0/jobs?action=status", json={"job": [{"id": "\ud800"}]})
    assert (answer.status_code, "surrogates not allowed" in answer.reason) == (400, True)


def test_a_delegation_is_asked_for_and_not_kept(alice: ArcPerson) -> None:
    answer = alice("POST", "/1.0/delegations?action=new")
    assert answer.status_code == 201
    assert x509.load_pem_x509_csr(answer.content).is_signature_valid
    assert answer.headers["Location"].startswith(f"{alice.site.url}/1.0/delegations/")
    path = answer.headers["Location"].removeprefix(alice.site.url)
    assert alice("PUT", path, data=b"a proxy").status_code == 200
    assert alice("POST", f"{path}?action=get").status_code == 404


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/2.0/jobs", 404), ("GET", "/1.0/nothing", 404), ("GET", "/1.0", 404),
        ("POST", "/1.0/jobs?action=dance", 501), ("POST", "/1.0/jobs", 501),
        ("GET", f"/1.0/jobs?{'a=b&' * 30}", 400),
        ("DELETE", "/1.0/jobs", 501), ("POST", "/1.0/jobs?action=status", 400),
    ],
)  # fmt: skip
def test_what_there_is_not_is_said(alice: ArcPerson, method: str, path: str, status: int) -> None:
    assert alice(method, path, data=b"").status_code == status


def test_a_proxy_is_its_user_and_nobody_else(site: GatekeeperSite, job: str) -> None:
    alice = user(site.authority, "Alice")
    assert site.person(proxy(alice), "p").act("status", job)[0]["state"] == "ACCEPTED"
    # A proxy's name begins with its user's: it is told by its issuer, not by that.
    robot = user(site.authority, "Alice", "12345")
    for credential, words in [
        (robot, "/O=Grid/CN=Alice/CN=12345 has no account here"),
        (proxy(robot), "/O=Grid/CN=Alice/CN=12345 has no account here"),
        (proxy(proxy(alice)), "/O=Grid/CN=Alice/CN=12345 has no account here"),
        (proxy(alice, LIMITED), "this certificate cannot be used here"),
        (user(site.authority, "x/CN=Alice"), "/O=Grid/CN=x\\/CN=Alice has no account here"),
    ]:
        answer = site.person(credential, "other")("GET", "/1.0/jobs")
        assert (answer.status_code, answer.reason) == (403, words)


def test_without_a_certificate_of_a_known_authority_there_is_no_answer(
    site: GatekeeperSite,
) -> None:
    with pytest.raises(requests.exceptions.ConnectionError):
        site.person(user(authority(), "Alice"), "forged")("GET", "/1.0/jobs")
    with pytest.raises(requests.exceptions.ConnectionError):
        requests.get(site.url, verify=str(site.folder / "localhost.pem"), timeout=30.0)


def test_a_line_that_is_removed_from_the_map_takes_effect_at_once(
    site: GatekeeperSite, alice: ArcPerson, bob: ArcPerson
) -> None:
    site.map.write_text('# only\n"/O=Grid/CN=Bob" bob/key\n')
    assert alice("GET", "/1.0/jobs").status_code == 403
    assert bob("GET", "/1.0/jobs").status_code == 200


def test_a_line_of_the_map_that_is_none_is_named(tmp_path: Path) -> None:
    path = tmp_path / "map"
    path.write_text("/O=Grid/CN=Alice alice/key\n")
    with pytest.raises(BadInput, match='map, line 1: expected "SUBJECT" FILE: /O=Grid'):
        OwnerMap(path).accounts()
    path.write_text('"/CN=Alice" alice/key\n"/CN=Bob" bob/key\n"/CN=Alice" bob/key\n')
    with pytest.raises(BadInput, match="map, line 3: /CN=Alice has a line above; keep one"):
        OwnerMap(path).accounts()


def test_while_the_map_cannot_be_read_clients_are_asked_to_come_later(
    site: GatekeeperSite, alice: ArcPerson
) -> None:
    site.map.write_text("no line of a map")
    answer = alice("GET", "/1.0/jobs")
    words = "the owner map cannot be read now: try later"
    assert (answer.status_code, answer.reason) == (503, words)
