"""Claims about inputs that clients fetch from URLs: real clients and servers, killed in between."""

from __future__ import annotations

import hashlib
import json
import signal
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
import requests
from tests.fakes.project_server import ProjectServer
from tests.fakes.source_server import Behaviour, SourceServer, breaks_off, source_server
from tests.object_store import SIGNER, object_store
from tests.system.deployment import Deployment, eventually
from tests.system.test_client import Clients, contents, only_report
from tests.system.test_client import clients as clients
from tests.system.test_client import server as server

from gridbot_client.protocol.messages import FileRef, Manifest

CONTENT = bytes(range(256)) * 20_000
SHA256 = hashlib.sha256(CONTENT).hexdigest()
REF = FileRef("data", SHA256, len(CONTENT))
FACTS = f"#sha256={SHA256}&size={len(CONTENT)}"
SUMMED = {"stdout": f"{SHA256}  data\n".encode()}


@pytest.fixture
def place() -> Iterator[SourceServer]:
    with source_server() as found:
        yield found


def summing(*urls: str, owner: str = "alice") -> Manifest:
    """A BOT whose job tells the hash of an input."""
    return Manifest(owner, ("sha256sum", "data"), inputs=(REF,), sources={"data": urls})


def test_the_next_source_is_asked_when_one_fails_and_the_server_for_nothing(
    server: ProjectServer, clients: Clients, place: SourceServer
) -> None:
    urls = [
        place.url + "/missing",
        place.file("/wrong", bytes(len(CONTENT))),
        place.file("/right", CONTENT),
        place.file("/never", CONTENT),
    ]
    (id,) = server.add(summing(*urls))
    clients.once()
    assert contents(only_report(server, id)) == SUMMED
    assert [path for path, _ in place.asked] == ["/missing", "/wrong", "/right"]
    assert server.downloads == []
    said = (clients.folder / "client.log").read_text()
    assert f"input data: {urls[0]}: HTTP 404" in said
    assert f"input data: {urls[1]}: it gives another content" in said


def test_the_servers_own_copy_is_the_last_source(
    server: ProjectServer, clients: Clients, place: SourceServer
) -> None:
    server.file("data", CONTENT)
    (id,) = server.add(summing(place.url + "/missing"))
    clients.once()
    assert contents(only_report(server, id)) == SUMMED
    assert [sha256 for sha256, _ in server.downloads] == [SHA256]


@pytest.mark.parametrize(
    ("content", "reason"), [(None, "input_unavailable"), (b"!" * len(CONTENT), "input_corrupt")]
)
def test_an_input_that_no_source_gives_fails_at_once_and_all_are_named(
    server: ProjectServer, clients: Clients, place: SourceServer, content: bytes | None, reason: str
) -> None:
    urls = [f"{place.url}/{name}" for name in ("a", "b")]
    if content is not None:
        place.files.update({"/a": content, "/b": content})
    (id,) = server.add(summing(*urls))
    clients.once()
    report = only_report(server, id)
    assert report.reason == reason
    assert all(url in report.stderr for url in urls) and "the server" in report.stderr
    assert len(place.asked) == 2


def test_a_job_of_strangers_fetches_from_no_private_address(
    server: ProjectServer, clients: Clients, place: SourceServer
) -> None:
    (id,) = server.add(summing(place.file("/data", CONTENT), owner="mallory"))
    clients.once()
    report = only_report(server, id)
    assert report.reason == "input_unavailable" and "no public address" in report.stderr
    assert place.asked == []


def test_jobs_fetch_inputs_of_their_own_and_a_content_only_once(
    server: ProjectServer, clients: Clients, place: SourceServer
) -> None:
    place.file("/one", CONTENT)
    manifest = Manifest(
        "alice", ("sha256sum", "{x}.dat"), {"x": "text"},
        sources={"{x}.dat": (f"{place.url}/{{x}}", f"{place.url}/one")},
    )  # fmt: skip
    for x in ("one", "two"):
        server.add(
            manifest, [{"x": x}], bot=len(x) + ord(x[0]), inputs=(replace(REF, name=f"{x}.dat"),)
        )
    clients.once("--cpus", "1")
    reports = [report for found in server.reports.values() for report in found]
    assert sorted(len(report.outputs) for report in reports) == [1, 1]
    assert [path for path, _ in place.asked] == ["/one"]


def test_a_killed_client_goes_on_where_it_was(
    server: ProjectServer, clients: Clients, place: SourceServer
) -> None:
    (id,) = server.add(summing(place.behaves("/data", halts(place))))
    client = clients.start("--once")

    def parts() -> list[Path]:
        found = (clients.folder / "cache").glob(f"{SHA256}*.part")
        return [part for part in found if part.stat().st_size > 1_000_000]

    (part,) = eventually(parts, what="half of it")
    client.send_signal(signal.SIGKILL)
    client.communicate()
    kept = part.stat().st_size
    place.odd.clear()
    place.file("/data", CONTENT)
    clients.once()
    assert contents(only_report(server, id)) == SUMMED
    assert place.ranges("/data")[-1] == f"bytes={kept}-"


def halts(place: SourceServer) -> Behaviour:
    """Behaviour of a path that gives the half, and then nothing."""
    half = breaks_off(CONTENT, len(CONTENT) // 2)

    def answer(handler: BaseHTTPRequestHandler, _: SourceServer) -> None:
        half(handler, place)
        place.is_over.wait()

    return answer


def test_a_submitted_url_is_fetched_past_the_server_which_may_be_killed_meanwhile(
    running: Deployment, place: SourceServer
) -> None:
    url = place.behaves("/data", halts(place))
    place.file("/mirror", CONTENT)
    bot = running.submit("--input", f"{url}{FACTS} {place.url}/mirror", "--", "sha256sum", "data")
    running.client("worker", "--cpus", "1")
    eventually(lambda: place.ranges("/data"), what="a request to the source")
    running.crash()
    place.is_over.set()  # the connection breaks off, and the mirror has the rest
    eventually(lambda: place.ranges("/mirror"), what="a request to the mirror")
    running.start()
    running.wait(bot)
    with running.session() as session:
        (result,) = session.bot(bot).results()
    assert result.stdout == f"{SHA256}  data\n"
    assert running.rows("SELECT count(*) FROM blob") == [(0,)]
    assert place.ranges("/mirror")[0].startswith("bytes=")


def test_a_table_has_urls_hashes_and_sizes_of_the_jobs_own_inputs(
    running: Deployment, place: SourceServer
) -> None:
    lines = ["path,hash,bytes"]
    for number in range(3):
        content = str(number).encode() * 1000
        place.file(f"/run-{number}", content)
        lines.append(f"run-{number},{hashlib.sha256(content).hexdigest()},{len(content)}")
    table = running.file("table.csv", "\n".join(lines))
    given = f"{place.url}/{{path}}#sha256={{hash}}&size={{bytes}}&name={{path}}.txt"
    bot = running.submit("--items", str(table), "--input", given, "--", "wc", "-c", "{path}.txt")
    running.client("worker", "--cpus", "1")
    running.wait(bot)
    with running.session() as session:
        found = [result.stdout for result in session.bot(bot).results()]
    assert sorted(found) == [f"1000 run-{number}.txt\n" for number in range(3)]


def test_a_source_may_be_an_object_store_by_a_signed_url_and_hash_prints_the_input(
    running: Deployment, tmp_path: Path
) -> None:
    content = CONTENT[1:]  # which no cache has
    sha256 = hashlib.sha256(content).hexdigest()
    with object_store(tmp_path) as store:
        address = f"{store.endpoint}/files/data"
        now = datetime.now(UTC)
        put = SIGNER.presigned("PUT", address, {}, {}, now, 600)
        requests.put(put, data=content, timeout=60).raise_for_status()
        url = SIGNER.presigned("GET", address, {}, {}, now, 600)
        given = running.run("data", "hash", url).strip()
        assert given == f"{url}#sha256={sha256}&size={len(content)}"
        bot = running.submit("--input", given, "--", "sha256sum", "data")
        running.client("worker", "--cpus", "1")
        running.wait(bot)
    with running.session() as session:
        (result,) = session.bot(bot).results()
    assert result.stdout == f"{sha256}  data\n"


def test_the_owner_hears_why_no_source_gave_an_input(
    running: Deployment, place: SourceServer
) -> None:
    url = place.url + "/missing"
    facts = f"#sha256={'0' * 64}&size=1&name=data"
    bot = running.submit("--input", url + facts, "--", "cat", "data")
    running.client("worker", "--cpus", "1")
    running.run("bot", "wait", str(bot), code=1)
    logs = json.loads(running.run("bot", "logs", str(bot), "--json"))["logs"]
    assert {log["reason"] for log in logs} == {"input_unavailable"}
    assert all(f"{url}: HTTP 404" in log["stderr"] for log in logs)
