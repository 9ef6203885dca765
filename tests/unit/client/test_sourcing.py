"""Claims about inputs with sources: what jobs of others have of them, and the server's copy."""

from __future__ import annotations

import hashlib
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from gridbot.api.packing import pack
from gridbot_client.net.sources import SourceClient
from gridbot_client.protocol.manifest import FileRef, Manifest
from gridbot_client.protocol.messages import Assignment, ReplicaId
from gridbot_client.work.places import SharedHere
from gridbot_client.work.provision import Provision
from gridbot_client.work.runner import ReplicaProgram, Stop
from gridbot_client.work.shared import SharedFolders
from gridbot_client.work.sourcing import JobSources

CONTENT = b"x" * 100_000
HASH = hashlib.sha256(CONTENT).hexdigest()
REF = FileRef("data", HASH, len(CONTENT))


def sources_of(*urls: str, owner: str = "alice") -> JobSources:
    manifest = Manifest(owner, ("true",), inputs=(REF,), sources={"data": urls})
    assignment = Assignment(ReplicaId(1, 0, 0), "", {}, 60.0)
    return JobSources.of(SourceClient(), manifest, assignment, Stop(), is_stranger=False)


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
