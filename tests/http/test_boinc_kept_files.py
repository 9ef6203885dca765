"""Claims about files that stock clients keep for later BOTs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import pytest
from tests.boinc_captures import NAMES
from tests.factories import make_lease
from tests.http.boinc_site import FIRST, Site, hostid, keep, opened

from gridbot_client.protocol.cached import MAX_TOLD
from gridbot_client.protocol.messages import FileRef, Manifest, ReplicaId
from gridbot_server.boinc.protocol.names import Names
from gridbot_server.boinc.protocol.request import MAX_KEPT_FILES
from gridbot_server.boinc.protocol.tags import Section
from gridbot_server.settings import Settings
from gridbot_server.storage import db

MB = 1 << 20
WEEK_SECONDS = 7 * 86_400
LARGE, SMALL = bytes(3 * MB), bytes(MB - 1)
INPUTS = {"data": LARGE, "note": SMALL}
MANIFEST = Manifest(
    "ann",
    ("cat", "data", "note", "{i}"),
    {"i": "int"},
    inputs=tuple(
        FileRef(name, hashlib.sha256(content).hexdigest(), len(content))
        for name, content in INPUTS.items()
    ),
)
DATA = NAMES.file(hashlib.sha256(LARGE).hexdigest())


@pytest.fixture
def site(settings: Settings, conn: db.Connection) -> Iterator[Site]:
    for made in opened(settings, conn):
        keep(conn, settings, INPUTS.values())
        yield made


def kept(name: str = DATA, size: float = len(LARGE), status: int = 1) -> str:
    """A file as a client lists it."""
    return (
        f"<file_info>\n<name>{name}</name>\n<nbytes>{size}</nbytes>\n"
        f"<status>{status}</status>\n</file_info>\n"
    )


class Volunteer:
    """A client that says what it kept."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self.number, self._asked = hostid(site.ask()), 0

    def ask(self, *files: str) -> list[Section]:
        """The jobs that it gets, some time after it asked last."""
        self._asked += 1
        self._site.conn.execute("UPDATE client SET seen_at = seen_at - interval '1 minute'")
        body = self._site.request(FIRST, hostid=self.number, rpc_seqno=self._asked).decode()
        said = body.replace("<app_versions>", "".join(files) + "<app_versions>", 1)
        return self._site.ask(body=said.encode()).all("result")

    def written(self) -> list[Any]:
        """When what it kept was last written down, and what."""
        query = "SELECT xmin, ctid, marks FROM client_cache WHERE client = %s"
        return self._site.rows(query, self.number)


def test_a_client_keeps_large_files_of_a_bot_for_a_week_and_small_ones_for_its_jobs(
    site: Site,
) -> None:
    client = hostid(site.ask())
    make_lease(site.conn, ReplicaId(site.bot(MANIFEST), 2, 1), client)
    files = {item.integer("nbytes"): item for item in site.ask().all("file_info")}
    assert files[len(LARGE)].flag("sticky")
    assert files[len(LARGE)].integer("sticky_lifetime") == WEEK_SECONDS
    assert [size for size, file in files.items() if file.flag("sticky")] == [len(LARGE)]
    assert len(SMALL) in files


def test_policies_see_what_a_client_keeps_until_it_keeps_it_no_more(site: Site) -> None:
    site.bot(MANIFEST, policy="JobRequirements = Host.CachedMB == 3; Concurrency = 1")
    with site.fed():
        client = Volunteer(site)
        assert client.ask() == []
        assert len(client.ask(kept())) == 1
        site.conn.execute("DELETE FROM lease")
        assert client.ask() == []
        assert client.ask(kept()) != []


@pytest.mark.parametrize(
    "said",
    [
        kept(Names(b"another server's secret").file(hashlib.sha256(LARGE).hexdigest())),
        kept("data"),
        kept("<name>" * 9),
        kept(DATA, size=MB - 1),
        kept(DATA, status=0),
        kept(DATA, status=-100),
        "<file_info>\n<name>" + DATA,
    ],
    ids=["foreign", "unknown", "no name", "small", "missing", "failed", "cut"],
)
def test_what_is_not_a_whole_large_file_of_this_server_counts_for_nothing(
    site: Site, said: str
) -> None:
    site.bot(MANIFEST, policy="JobRequirements = Host.CachedMB > 0")
    with site.fed():
        client = Volunteer(site)
        assert client.ask(said) == []
        assert client.ask(said, kept()) != []


def test_a_list_of_any_length_is_taken_in_part(site: Site) -> None:
    many = [kept(NAMES.file(f"{n:064x}"), size=2 * MB) for n in range(MAX_KEPT_FILES + 50)]
    client = Volunteer(site)
    client.ask(*many, kept())
    ((*_, marks),) = client.written()
    assert len(marks) == MAX_TOLD


def test_what_is_said_again_in_each_request_is_written_once(site: Site) -> None:
    client = Volunteer(site)
    client.ask()
    assert client.written() == []
    client.ask(kept())
    first = client.written()
    client.ask(kept())
    assert client.written() == first != []
