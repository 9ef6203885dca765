"""Claims about inputs with sources: what jobs of others have of them, and the server's copy."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.fakes.source_server import SourceServer, breaks_off, source_server

from gridbot.api.packing import pack
from gridbot_client.backoff import BackOff
from gridbot_client.net.sources import SourceClient
from gridbot_client.net.transport import CorruptDownload, RequestRefused, Transport
from gridbot_client.protocol.manifest import FileRef, Manifest
from gridbot_client.protocol.messages import Assignment, ReplicaId
from gridbot_client.work.cache import Cache
from gridbot_client.work.execution import ReplicaExecutor
from gridbot_client.work.places import SharedHere
from gridbot_client.work.provision import Provision
from gridbot_client.work.runner import ReplicaProgram, Stop
from gridbot_client.work.shared import SharedFolders
from gridbot_client.work.sourcing import JobSources

CONTENT = b"x" * 100_000
HASH = hashlib.sha256(CONTENT).hexdigest()
REF = FileRef("data", HASH, len(CONTENT))


@pytest.fixture
def place() -> Iterator[SourceServer]:
    with source_server() as found:
        yield found


def sources_of(*urls: str, owner: str = "alice") -> JobSources:
    manifest = Manifest(owner, ("true",), inputs=(REF,), sources={"data": urls})
    assignment = Assignment(ReplicaId(1, 0, 0), "", {}, 60.0)
    return JobSources.of(SourceClient(), manifest, assignment, Stop(), is_stranger=False)


class Server:
    """The project's server, which goes on behind what a partial file holds."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.begun: list[int] = []

    def download(self, sha256: str, size: int, part: Path) -> None:
        part.touch()
        self.begun.append(part.stat().st_size)
        with part.open("ab") as file:
            file.write(self.content[part.stat().st_size :])
        if hashlib.sha256(part.read_bytes()).hexdigest() != sha256:
            part.unlink()
            raise CorruptDownload("another hash")


def test_the_servers_copy_is_not_blamed_for_what_a_bad_source_gave_before(
    place: SourceServer, tmp_path: Path
) -> None:
    bad = place.behaves("/bad", breaks_off(b"!" * len(CONTENT), 50_000))
    server, part = Server(CONTENT), tmp_path / "part"
    sources_of(bad).download("data", cast(Transport, server), HASH, len(CONTENT), part)
    assert part.read_bytes() == CONTENT
    assert len(server.begun) == 2 and server.begun[1] == 0


def test_a_server_that_gives_another_content_is_not_asked_again_at_once(
    place: SourceServer, tmp_path: Path
) -> None:
    server, part = Server(b"!" * len(CONTENT)), tmp_path / "part"
    with pytest.raises(CorruptDownload):
        sources_of(place.url + "/none").download(
            "data", cast(Transport, server), HASH, len(CONTENT), part
        )
    assert server.begun == [0]


def test_an_input_with_sources_is_kept_for_its_owner_alone() -> None:
    sources = sources_of("http://host/", owner="bob")
    assert (sources.whose("data"), sources.whose("other")) == ("bob", "")


def test_a_directory_with_sources_is_not_shown_to_jobs_of_others(tmp_path: Path) -> None:
    """Also if a job of somebody who had it has left it on this host."""
    source, fetched = tmp_path / "source", list[str]()
    source.mkdir()
    (source / "secret").write_bytes(b"of bob's")
    packed = pack(source, "folder")
    content = packed.part(0, packed.ref.size)
    (tmp_path / "shared").mkdir()
    runner: Any = SimpleNamespace(confinement=SimpleNamespace(keeps_cells=False))
    provision = Provision(SharedFolders(tmp_path / "shared", 1 << 20), runner, cast(Any, None))

    def equip(owner: str, sources: dict[str, tuple[str, ...]]) -> None:
        def fetch(ref: FileRef, target: Path) -> None:
            fetched.append(owner)
            target.write_bytes(content)

        manifest = Manifest(
            owner, ("true",), inputs=(packed.ref,), sources=sources,
            archives={"folder": packed.unpacked},
        )  # fmt: skip
        slot = SimpleNamespace(path=tmp_path, work=tmp_path / "work")
        with ExitStack() as leases:
            shared = SharedHere()
            shared.leases = leases
            here: Any = SimpleNamespace(slot=slot, shared=shared)
            program = ReplicaProgram(("true",))
            provision.equip(
                program, owner, manifest, here, fetch, Stop(), is_stranger=True
            )  # fmt: skip

    for owner in ("bob", "alice"):  # who have both sent it to the server
        equip(owner, {})
    assert fetched == ["bob"]
    for owner in ("alice", "alice"):  # who names its hash
        equip(owner, {"folder": ("http://host/",)})
    assert fetched == ["bob", "alice"]


@pytest.mark.parametrize("adds", [True, False])
def test_a_source_that_breaks_off_again_and_again_is_asked_while_it_adds_something(
    place: SourceServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, adds: bool
) -> None:
    def breaks(handler: BaseHTTPRequestHandler, _: SourceServer) -> None:
        begun = int(handler.headers.get("Range", "bytes=0-")[6:-1])
        end = begun + 8192 if adds or not begun else begun
        handler.send_response(206 if begun else 200)
        handler.send_header("Content-Length", str(len(CONTENT) - begun))
        handler.send_header("Content-Range", f"bytes {begun}-{len(CONTENT) - 1}/{len(CONTENT)}")
        handler.end_headers()
        handler.wfile.write(CONTENT[begun:end])
        handler.close_connection = True

    def refuse(sha256: str, size: int, part: Path) -> None:
        raise RequestRefused(404, "it has none")

    monkeypatch.setattr("gridbot_client.work.execution.REQUESTS", BackOff(least=0.0))
    (tmp_path / "cache").mkdir()
    nobody: Any = SimpleNamespace(download=refuse)
    executor = ReplicaExecutor(
        nobody, Cache(tmp_path / "cache", 1 << 20), nobody, nobody, nobody, SourceClient()
    )
    target, sources = tmp_path / "in", sources_of(place.behaves("/breaks", breaks))
    if adds:
        executor._fetch_one(REF, target, nobody, Stop(), sources)
        assert target.read_bytes() == CONTENT
    else:
        with pytest.raises(Exception, match="it was interrupted"):
            executor._fetch_one(REF, target, nobody, Stop(), sources)
    assert len(place.asked) == (13 if adds else 8)
