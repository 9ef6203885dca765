"""BOTs whose program is made for BOINC's API, as stock clients and their owners see them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.boinc_captures import NAMES, captures
from tests.factories import make_bot, make_key, make_lease, make_owner, submission
from tests.http.boinc_site import FIRST, SECOND, Site, acks, hostid, keep, opened
from tests.http.conftest import Person

from gridbot_client.protocol.messages import FileRef, Manifest, ReplicaId
from gridbot_server.boinc.application import code_keys
from gridbot_server.boinc.application.signed import SignedApplication, sign
from gridbot_server.boinc.protocol.names import Lease, OutputName
from gridbot_server.boinc.protocol.tags import Section
from gridbot_server.commands import first_start
from gridbot_server.settings import Settings
from gridbot_server.storage import db
from gridbot_server.storage.files import FolderStore
from gridbot_server.web.app import create_app

CONTENT = {"count": b"\x7fELF program", "factor.txt": b"3\n"}
INPUTS = tuple(
    FileRef(name, hashlib.sha256(data).hexdigest(), len(data), executable=name == "count")
    for name, data in CONTENT.items()
)
MOST = 1000
MANIFEST = Manifest(
    "ann",
    ("./count", "{i}", "a b"),
    {"i": "int"},
    inputs=INPUTS[::-1],
    outputs=("sum.txt", "trace.txt"),
    max_output_bytes=MOST,
    platforms=("linux-x86_64",),
    boinc_api=True,
)


@pytest.fixture
def site(settings: Settings, conn: db.Connection) -> Iterator[Site]:
    yield from opened(settings, conn)


def lent(site: Site) -> Lease:
    """A replica that a new client holds and does not know of."""
    client = hostid(site.ask())
    keep(site.conn, site.settings, CONTENT.values())
    bot = site.bot(MANIFEST)
    replica = ReplicaId(bot, 2, 1)
    make_lease(site.conn, replica, client)
    return Lease(replica, client)


def test_it_may_be_signed_away_from_the_server(site: Site) -> None:
    owner = make_owner(site.conn, MANIFEST.owner)
    keep(site.conn, site.settings, CONTENT.values())
    bot = make_bot(site.conn, owner, 3, manifest=MANIFEST.text())
    private = code_keys.load_private(site.settings.boinc_key_path)
    made = sign(MANIFEST, lambda ref: hashlib.md5(CONTENT[ref.name]).hexdigest(), private)
    ann = Person(site.app, make_key(site.conn, owner, "user"), owner, "ann")
    answer = ann("PUT", f"/api/v1/bots/{bot}/boinc", json=json.loads(made.text()))
    assert (answer.status_code, answer.json["signed_for_boinc"]) == (200, True), answer.json


def texts(parts: Sequence[Section], name: str) -> list[str]:
    return [part.text(name) for part in parts]


def test_the_program_is_the_main_program_and_all_have_their_own_names(site: Site) -> None:
    lent(site)
    answer = site.post("scheduler", site.request(FIRST)).text
    program, factor = (NAMES.file(ref.sha256) for ref in INPUTS)
    uses = (
        f"<file_ref>\n<file_name>{program}</file_name>\n<main_program/>\n</file_ref>\n"
        f"<file_ref>\n<file_name>{factor}</file_name>\n<open_name>factor.txt</open_name>\n"
        "<copy_file/>\n</file_ref>\n"
    )
    assert uses in answer
    assert '<command_line>2 "a b"</command_line>' in answer.replace("&quot;", '"')


def own_input(name: str) -> str:
    return json.dumps([{"name": name, "sha256": INPUTS[1].sha256, "size": INPUTS[1].size}])


@pytest.mark.parametrize(
    ("column", "value"),
    [("inputs", own_input(name)) for name in ("FACTOR.TXT", "init_data.xml", "libm.so.6")]
    + [("args", '{"i": "no number"}')],
)
def test_a_job_that_is_not_for_boinc_clients_keeps_no_others_from_them(
    site: Site, column: str, value: str
) -> None:
    lease = lent(site)
    wrong = lease.replica._replace(seq=1)
    site.conn.execute(
        f"UPDATE job SET {column} = %s::jsonb WHERE bot = %s AND seq = 1", [value, wrong.bot]
    )
    make_lease(site.conn, wrong, lease.client)
    assert texts(site.ask().all("workunit"), "name") == [NAMES.replica(lease)]


def test_what_came_by_another_server_is_looked_at_when_it_is_signed(site: Site) -> None:
    owner = make_owner(site.conn, MANIFEST.owner)
    keep(site.conn, site.settings, CONTENT.values())
    manifest = replace(MANIFEST, command=("./count", "{i}"), placeholders={"i": "text"})
    bot = make_bot(site.conn, owner, 3, manifest=manifest.text())
    site.conn.execute('UPDATE job SET args = \'{"i": "a\\"b"}\' WHERE seq = 2')
    site.conn.execute('UPDATE job SET args = \'{"i": "a"}\' WHERE seq < 2')
    private = code_keys.load_private(site.settings.boinc_key_path)
    made = sign(manifest, lambda ref: hashlib.md5(CONTENT[ref.name]).hexdigest(), private)
    ann = Person(site.app, make_key(site.conn, owner, "user"), owner, "ann")
    answer = ann("PUT", f"/api/v1/bots/{bot}/boinc", json=json.loads(made.text()))
    assert (answer.status_code, "cannot pass the word" in answer.json["detail"]) == (409, True)


def test_each_output_is_an_upload_of_its_own(site: Site) -> None:
    lease = lent(site)
    reply = site.ask()
    files = [part for part in reply.all("file_info") if "xml_signature" in part]
    names = [NAMES.output(OutputName(lease, number)) for number in range(2)]
    assert texts(files, "name") == names
    assert [part.integer("max_nbytes") for part in files] == [MOST, MOST]
    certificates = [part.raw("xml_signature") for part in files]
    assert all(map(NAMES.is_certificate, names, [MOST, MOST], certificates))


def upload(site: Site, lease: Lease, number: int, data: bytes) -> str:
    name = NAMES.output(OutputName(lease, number))
    head = (
        f"<data_server_request>\n<file_upload>\n<file_info>\n<name>{name}</name>\n"
        f"<xml_signature>\n{NAMES.certificate(name, MOST)}</xml_signature>\n"
        f"<max_nbytes>{MOST}</max_nbytes>\n</file_info>\n<nbytes>{len(data)}</nbytes>\n"
        f"<md5_cksum>{hashlib.md5(data).hexdigest()}</md5_cksum>\n<offset>0</offset>\n<data>\n"
    )
    return site.post("file_upload_handler", head.encode() + data).text


def report(site: Site, lease: Lease, *files: bytes) -> list[str]:
    name = NAMES.replica(lease)
    infos = "".join(
        f"<file_info>\n<name>{NAMES.output(OutputName(lease, number))}</name>\n"
        f"<nbytes>{len(data)}</nbytes>\n<md5_cksum>{hashlib.md5(data).hexdigest()}</md5_cksum>\n"
        "</file_info>\n"
        for number, data in enumerate(files)
    )
    stderr = "<![CDATA[\n<stderr_txt>\nits log\n</stderr_txt>\n]]>\n"
    told = (
        f"<result>\n<name>{name}</name>\n<state>5</state>\n<exit_status>0</exit_status>\n"
        f"<final_cpu_time>7.5</final_cpu_time>\n<stderr_out>\n{stderr}</stderr_out>\n"
        f"{infos}</result>\n"
    )
    body = captures()[SECOND].replace(b"<other_results>", f"{told}<other_results>".encode())
    return acks(site.ask(body=body, hostid=lease.client))


def test_a_success_brings_all_its_outputs_its_log_and_its_time(site: Site) -> None:
    lease, total, trace = lent(site), b"2340\n", b"x" * 900
    # The second anew: the last that came counts, and leaves the other one alone.
    for number, data in ((0, total), (1, b"old"), (1, trace)):
        assert "<status>0</status>" in upload(site, lease, number, data)
    assert report(site, lease, total, trace) == [NAMES.replica(lease)]
    assert site.rows("SELECT how, reason, stderr, cpu_seconds FROM ended") == [
        ("success", "", "its log", 7.5)
    ]
    kept = [(name, len(data), hashlib.sha256(data).digest()) for name, data in
            (("sum.txt", total), ("trace.txt", trace))]  # fmt: skip
    assert site.rows("SELECT name, size, sha256 FROM output ORDER BY name") == kept


def test_a_success_without_one_of_its_outputs_is_an_error(site: Site) -> None:
    lease, total = lent(site), b"2340\n"
    upload(site, lease, 0, total)
    report(site, lease, total)
    assert site.rows("SELECT how, reason FROM ended") == [("error", "missing_output")]


def test_outputs_come_to_no_more_than_a_replica_may_have(site: Site) -> None:
    lease = lent(site)
    assert "<status>0</status>" in upload(site, lease, 0, b"x" * 600)
    refused = upload(site, lease, 1, b"x" * 401)
    assert "<status>-1</status>" in refused
    assert "outputs of 1001 bytes, at most 1000" in refused
    store = FolderStore(site.settings.files, site.settings.uploads)
    assert store.beginning(hashlib.sha256(b"x" * 401).hexdigest(), 1) is None
    assert "<status>0</status>" in upload(site, lease, 1, b"x" * 400)


# ------------------------------------------------------------------------------------ its owner


@pytest.fixture
def operator(settings: Settings, conn: db.Connection) -> Iterator[Person]:
    first_start.prepare(settings)
    app = create_app(replace(settings, sign_on_submit=True))
    owner = make_owner(conn, "olga", operator=True)
    keep(conn, settings, CONTENT.values())
    conn.execute("INSERT INTO blob_owner (sha256, owner) SELECT sha256, %s FROM blob", [owner])
    yield Person(app, make_key(conn, owner, "operator"), owner, "olga")
    app.extensions["gridbot"].close()


def wanted(**changes: Any) -> dict[str, Any]:
    inputs = [
        {"name": ref.name, "sha256": ref.sha256, "size": ref.size, "executable": ref.executable}
        for ref in INPUTS
    ]
    return submission(
        command=["./count", "{x}"],
        placeholders={"x": "text"},
        inputs=inputs,
        outputs=["sum.txt"],
        platforms=["linux-x86_64"],
        boinc_api=True,
        **{"jobs": {"items": [{"x": "1"}, {"x": "2"}]}, **changes},
    )


def test_such_a_bot_is_signed_without_a_script(operator: Person, conn: db.Connection) -> None:
    bot = operator("POST", "/api/v1/bots", json=wanted()).json["id"]
    row = conn.execute("SELECT boinc FROM bot WHERE id = %s", [bot]).fetchone()
    assert row is not None
    signed = SignedApplication.from_text(row[0])
    assert signed.scripts == ("",)
    assert signed.signatures.keys() == {ref.sha256 for ref in INPUTS}


def test_a_job_that_boinc_clients_cannot_run_is_refused_at_submission(operator: Person) -> None:
    body = wanted(jobs={"items": [{"x": "1"}, {"x": 'say "no"'}]})
    answer = operator("POST", "/api/v1/bots", json=body)
    assert answer.status_code == 400
    assert "job 1: boinc_api: BOINC clients cannot pass the word" in answer.json["detail"]


def test_no_pilots_are_asked_for_it(operator: Person) -> None:
    assert operator("POST", "/api/v1/bots", json=wanted()).status_code == 201
    assert operator("GET", "/api/v1/overlay/demand").json["bots"] == []
