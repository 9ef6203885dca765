from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import Any

import pytest
from tests.boinc_captures import NAMES, captures
from tests.factories import make_ended
from tests.http.boinc_site import (
    BUNDLED,
    FIRST,
    Site,
    acks,
    lend,
    opened,
)

from gridbot_server.boinc.protocol.names import Lease, OutputName
from gridbot_server.boinc.protocol.tags import Section
from gridbot_server.boinc.session.intake import Intake
from gridbot_server.boinc.session.project import load
from gridbot_server.http.services import connection
from gridbot_server.overload.transfer_slots import Party, Slots
from gridbot_server.settings import Settings
from gridbot_server.storage import db
from gridbot_server.storage.files import FolderStore


@pytest.fixture
def site(settings: Settings, conn: db.Connection) -> Iterator[Site]:
    yield from opened(settings, conn)


# ------------------------------------------------------------------------------------------ uploads

TEXT = b"the answer is 42\n" * 1000


def upload(site: Site, lease: Lease, data: bytes = TEXT, come: int = 1 << 20, **told: Any) -> str:
    """Send a file from `offset` on, `come` bytes of it; the text of the answer."""
    head, rest = body_of(lease, data, **told)
    return site.post("file_upload_handler", head + rest[:come]).text


def body_of(lease: Lease, data: bytes, **told: Any) -> tuple[bytes, bytes]:
    """What is sent before the bytes of a file from `offset` on, and these."""
    name = NAMES.output(OutputName(lease, 0))
    most, offset = told.get("most", 100_000), told.get("offset", 0)
    certificate = told.get("certificate", NAMES.certificate(name, most))
    md5 = told.get("md5", hashlib.md5(data).hexdigest())
    head = (
        f"<data_server_request>\n<file_upload>\n<file_info>\n<name>{name}</name>\n"
        f"<xml_signature>\n{certificate}</xml_signature>\n<max_nbytes>{most}</max_nbytes>\n"
        f"</file_info>\n<nbytes>{len(data)}</nbytes>\n<md5_cksum>{md5}</md5_cksum>\n"
        f"<offset>{offset}</offset>\n<data>\n"
    )
    return head.encode(), data[offset:]


def arrived(site: Site, lease: Lease) -> int:
    name = NAMES.output(OutputName(lease, 0))
    body = f"<data_server_request>\n<get_file_size>{name}</get_file_size>\n</data_server_request>\n"
    found = re.search(r"<file_size>(\d+)<", site.post("file_upload_handler", body.encode()).text)
    assert found
    return int(found[1])


def status(answer: str) -> int:
    found = re.search(r"<status>(-?\d+)</status>", answer)
    assert found, answer
    return int(found[1])


def kept(site: Site) -> int:
    """How many files are in the store, whole or in part."""
    folders = (site.settings.files, site.settings.uploads)
    return sum(path.is_file() for folder in folders for path in folder.rglob("*"))


def outputs(site: Site) -> list[Any]:
    return site.rows("SELECT name, size, sha256 FROM output ORDER BY name")


def test_an_upload_goes_on_where_it_broke_off(site: Site) -> None:
    lease = lend(site)
    assert arrived(site, lease) == 0
    assert status(upload(site, lease, come=5000)) == 1
    assert arrived(site, lease) == 5000
    assert outputs(site) == []
    assert status(upload(site, lease, offset=5000)) == 0
    assert arrived(site, lease) == len(TEXT)
    assert outputs(site) == [("stdout", len(TEXT), hashlib.sha256(TEXT).digest())]
    assert status(upload(site, lease)) == 0


def test_an_upload_may_begin_anew_below_what_arrived(site: Site) -> None:
    lease = lend(site)
    upload(site, lease, come=5000)
    assert status(upload(site, lease, offset=1000)) == 0
    assert outputs(site) == [("stdout", len(TEXT), hashlib.sha256(TEXT).digest())]


def test_an_upload_cannot_begin_beyond_what_arrived(site: Site) -> None:
    lease = lend(site)
    answer = upload(site, lease, offset=1000)
    assert status(answer) == 1
    assert "0 bytes are here, not 1000" in answer


def test_damaged_bytes_are_asked_for_again_from_the_start(site: Site) -> None:
    lease = lend(site)
    assert status(upload(site, lease, md5="0" * 32)) == 1
    assert arrived(site, lease) == 0
    assert status(upload(site, lease)) == 0


@pytest.mark.parametrize("certificate", ["", "0" * 256])
def test_an_upload_without_our_certificate_is_refused(site: Site, certificate: str) -> None:
    answer = upload(site, lend(site), certificate=certificate)
    assert status(answer) == -1
    assert "its certificate is not ours" in answer
    assert outputs(site) == []


def test_who_has_no_certificate_takes_no_upload_slot(site: Site) -> None:
    lease, slots = lend(site), site.app.extensions["gridbot"].uploads
    for _ in range(site.settings.web_threads // 2):
        slots.take(Party())
    assert arrived(site, lease) == 0
    assert status(upload(site, lease, certificate="")) == -1
    answer = upload(site, lease)
    assert (status(answer), "too many transfers at once" in answer) == (1, True)
    slots.release(Party())
    assert status(upload(site, lease)) == status(upload(site, lease)) == 0


def test_uploads_of_one_host_leave_slots_to_others(site: Site) -> None:
    lease, slots = lend(site), site.app.extensions["gridbot"].uploads
    for _ in range(site.settings.web_threads // 2 // 4):
        slots.take(Party(f"client {lease.client}"))
    answer = upload(site, lease)
    assert (status(answer), "too many transfers of this client" in answer) == (1, True)
    slots.release(Party(f"client {lease.client}"))
    assert status(upload(site, lease)) == 0


def test_uploads_of_one_account_leave_slots_to_others(site: Site) -> None:
    lease, slots = lend(site), site.app.extensions["gridbot"].uploads
    ((owner,),) = site.rows("SELECT owner FROM client")
    for _ in range(site.settings.web_threads // 2 // 2):
        slots.take(Party(owner=f"owner {owner}"))
    answer = upload(site, lease)
    assert (status(answer), "too many transfers of this owner" in answer) == (1, True)
    slots.release(Party(owner=f"owner {owner}"))
    assert status(upload(site, lease)) == 0


def test_a_file_over_its_limit_is_refused(site: Site) -> None:
    answer = upload(site, lend(site), most=100)
    assert status(answer) == -1
    assert f"has {len(TEXT)} bytes, at most 100" in answer


def test_outputs_of_a_cancelled_bot_are_not_wanted(site: Site) -> None:
    lease = lend(site)
    site.conn.execute("UPDATE bot SET state = 'cancelled'")
    assert status(upload(site, lease)) == -1


def test_another_file_after_success_is_refused(site: Site) -> None:
    lease = lend(site)
    assert status(upload(site, lease)) == 0
    site.conn.execute("DELETE FROM lease")
    make_ended(site.conn, lease.replica, lease.client)
    assert status(upload(site, lease)) == 0
    answer = upload(site, lease, data=b"another")
    assert status(answer) == -1
    assert outputs(site) == [("stdout", len(TEXT), hashlib.sha256(TEXT).digest())]


def test_a_success_keeps_its_outputs_whatever_is_on_its_way(site: Site) -> None:
    lease, other = lend(site), b"another\n" * 1000
    assert status(upload(site, lease)) == 0
    head, rest = body_of(lease, other)

    def read(_: int) -> bytes:
        """The body's beginning, then its rest, once the success of the first file is reported."""
        nonlocal head, rest
        if head:
            chunk, head = head, b""
            return chunk
        if rest:
            report(site, lease, info(lease, TEXT))
        chunk, rest = rest, b""
        return chunk

    with site.app.app_context():
        project = load(site.conn, site.settings)
        store = FolderStore(site.settings.files, site.settings.uploads)
        intake = Intake(project, store, connection, Slots(1))
        answer = intake.answer(read, len(head) + len(rest))
    assert ended(site) == [("success", "")]
    assert status(answer) == -1
    assert "succeeded with another file" in answer
    assert outputs(site) == [("stdout", len(TEXT), hashlib.sha256(TEXT).digest())]


def test_a_replica_is_not_uploaded_anew_without_end(site: Site) -> None:
    lease = lend(site)
    for number in range(10):
        assert status(upload(site, lease, b"%d" % number)) == 0
    assert status(upload(site, lease, b"9")) == 0
    answer = upload(site, lease, b"10")
    assert (status(answer), "10 different files came already" in answer) == (-1, True)
    assert [row[1:] for row in outputs(site)] == [(1, hashlib.sha256(b"9").digest())]


def bundle(**members: bytes) -> bytes:
    lines = (f"{len(data)} {name}\n".encode() + data for name, data in members.items())
    return b"gridbot-outputs 1\n" + b"".join(lines)


def test_several_outputs_come_in_one_file(site: Site) -> None:
    lease = lend(site, BUNDLED)
    large = bytes(range(256)) * 100
    assert status(upload(site, lease, bundle(out=large, stdout=b"hello"))) == 0
    assert outputs(site) == [
        ("out", len(large), hashlib.sha256(large).digest()),
        ("stdout", 5, hashlib.sha256(b"hello").digest()),
    ]
    store = FolderStore(site.settings.files, site.settings.uploads)
    assert store.path(hashlib.sha256(large).hexdigest()).read_bytes() == large


@pytest.mark.parametrize("data", [b"no bundle", bundle(other=b"x"), bundle(stdout=b"x")[:-1]])
def test_a_file_that_is_no_bundle_of_the_outputs_is_refused(site: Site, data: bytes) -> None:
    lease, before = lend(site, BUNDLED), kept(site)
    assert status(upload(site, lease, data)) == -1
    assert outputs(site) == []
    assert kept(site) == before


# ------------------------------------------------------------------------------------------ reports


def report(site: Site, lease: Lease, files: str = "") -> Section:
    name = NAMES.replica(lease)
    told = (
        f"<result>\n<name>{name}</name>\n<state>5</state>\n<exit_status>0</exit_status>\n{files}"
        "</result>\n"
    )
    body = captures()[FIRST].replace(b"<other_results>", told.encode() + b"<other_results>")
    return site.ask(body=body)


def info(lease: Lease, data: bytes) -> str:
    name, md5 = NAMES.output(OutputName(lease, 0)), hashlib.md5(data).hexdigest()
    return (
        f"<file_info>\n<name>{name}</name>\n<nbytes>{len(data)}</nbytes>\n"
        f"<md5_cksum>{md5}</md5_cksum>\n</file_info>\n"
    )


def ended(site: Site) -> list[Any]:
    return site.rows("SELECT how, reason FROM ended")


def test_a_success_counts_with_its_upload(site: Site) -> None:
    lease = lend(site)
    upload(site, lease)
    assert acks(report(site, lease, info(lease, TEXT))) == [NAMES.replica(lease)]
    assert ended(site) == [("success", "")]


def test_point_14_a_success_whose_upload_is_missing_is_an_error(site: Site) -> None:
    lease = lend(site)
    assert acks(report(site, lease, info(lease, TEXT))) == [NAMES.replica(lease)]
    assert ended(site) == [("error", "missing_output")]


def test_point_16_a_repeated_report_is_acknowledged_and_changes_nothing(site: Site) -> None:
    lease = lend(site)
    upload(site, lease)
    report(site, lease, info(lease, TEXT))
    assert acks(report(site, lease)) == [NAMES.replica(lease)]
    assert ended(site) == [("success", "")]


def test_another_clients_replica_cannot_be_reported(site: Site) -> None:
    lease = lend(site)
    stranger = Lease(lease.replica, lease.client + 1)
    assert acks(report(site, stranger)) == [NAMES.replica(stranger)]
    assert ended(site) == []
