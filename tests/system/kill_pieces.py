"""Pieces of the three programs that keep files, each run in a child that `kill_points.cpp` watches.

A process of its own, which imports once and forks for each run; orders come as lines of JSON.
"""

from __future__ import annotations

import ctypes
import importlib
import io
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from gridbot.placement import module, serving
from gridbot.placement.ads import TransferRequest
from gridbot.placement.places import DataPlace
from gridbot.placement.queue import PlacementQueue
from gridbot_client import boot as machine_boot
from gridbot_client.activity import ActivityLog
from gridbot_client.agent import UNFINISHED, Room, Stage
from gridbot_client.net.allowance import UNLIMITED
from gridbot_client.net.sources import SourceClient
from gridbot_client.net.transport import Transport
from gridbot_client.protocol.messages import WorkRequest, decode_reply
from gridbot_client.storage import Folder
from gridbot_client.work.cache import Cache
from gridbot_client.work.confinement import Confinement, Plain
from gridbot_client.work.execution import ReplicaExecutor
from gridbot_client.work.images import Images
from gridbot_client.work.manifests import Manifests
from gridbot_client.work.places import ReplicaPlaces
from gridbot_client.work.processes import Census
from gridbot_client.work.provision import Provision
from gridbot_client.work.replicas import HeldReplicas
from gridbot_client.work.run_spans import RunSpans
from gridbot_client.work.runner import ProcessEnd, Runner
from gridbot_client.work.shared import SharedFolders
from gridbot_client.work.slots import SpareFolders
from gridbot_client.work.trust import Pins, Trust
from gridbot_server.errors import HashMismatch
from gridbot_server.storage.files.folder import FolderStore
from gridbot_server.storage.files.store import PARTIAL_LIFETIME, Content, Upload

_PART_BYTES = 40_000  # of an upload
_CENSUS = Census()  # knows the machine's other processes, so that each run need not look at them
_PR_SET_CHILD_SUBREAPER = 36
_SECONDS = 300.0  # until a piece that hangs is a failure
serving._LOOK_SECONDS = 0.05

# ------------------------------------------------------------------------------ the client


@dataclass(frozen=True)
class _AsIf:
    """Runs programs, and says that each took so many seconds."""

    runner: Runner
    seconds: float

    @property
    def confinement(self) -> Confinement:
        return self.runner.confinement

    def run(self, *args: Any, **options: Any) -> ProcessEnd:
        return replace(self.runner.run(*args, **options), wall_seconds=self.seconds)


def client(root: str, seconds: float, keeps_places: bool) -> None:
    """Take up what an earlier run left, ask for work, run it, push outputs and reports."""
    folder = Folder(Path(root))
    with folder.lock():
        identity = folder.identity()
        assert identity
        connect = partial(Transport, identity.url, identity.token)
        pins = Pins(identity.project_key, identity.project, frozenset(identity.trusts))
        manifests = Manifests(Trust(pins, time.time))
        runner = Runner(Plain(), _CENSUS)
        shared = SharedFolders(folder.shared, 1 << 20)
        places = ReplicaPlaces(folder.cells, keeps_cells=keeps_places)
        places.sweep(_CENSUS)
        executor = ReplicaExecutor(
            _AsIf(runner, seconds), Cache(folder.cache, 1 << 20), places,
            Provision(shared, runner, Images({}, allow_network=False)), connect,
            SourceClient(UNLIMITED),
        )  # fmt: skip
        activity = ActivityLog(lambda _: None, time.monotonic)
        spans = RunSpans(None, time.time)
        replicas = HeldReplicas(
            folder.slots, SpareFolders(folder.spare), Room(2, 1000), executor, activity, spans
        )
        replicas.recover(_CENSUS, manifests)
        replicas.start_ready()
        with connect() as transport:
            while _exchange(folder, transport, replicas, manifests):
                pass
        replicas.leave()
        places.close()


def _exchange(
    folder: Folder, transport: Transport, replicas: HeldReplicas, manifests: Manifests
) -> bool:
    """Make the next request once all that is held has ended; whether there is more to do."""
    busy = (*UNFINISHED, Stage.UPLOADING)
    with replicas.changed:
        assert replicas.changed.wait_for(
            lambda: not any(item.stage in busy for item in replicas.items()), _SECONDS
        )
    reports, holding, *_ = replicas.to_tell()
    request = folder.pending_request()
    if request is None or (reports and not request.reports):
        want = 0 if reports else 1  # so that each job has the folders of the one before it
        seqno = folder.next_seqno()
        request = WorkRequest(f"{os.urandom(16).hex()}", seqno, {}, want, holding, reports)
    reply = decode_reply(transport.rpc(folder.save_request(request)))
    manifests.take_in(reply.manifests)
    replicas.take_in(request.reports, reply, manifests)
    folder.request_answered()
    return bool(replicas.items() or request.reports)


# ------------------------------------------------------------------------------- the store


def store(root: str, contents: dict[str, str], told: str) -> None:
    """Take uploads in parts, from where they stand, and write a note; tell what is acknowledged.

    A collector looks for each content whether it may go, and finds that it is young.
    """
    kept = FolderStore(Path(root, "files"), Path(root, "uploads"))
    long_ago = datetime.fromtimestamp(0, UTC)
    assert list(kept.old(0, long_ago)) == []
    for sha256, path in contents.items():
        whole = Path(path).read_bytes()
        upload = Upload("test", sha256, len(whole))
        found: Content | int = kept.offset(upload) if kept.size(sha256) is None else 0
        while kept.size(sha256) is None and isinstance(found, int):
            body = io.BytesIO(whole[found : found + _PART_BYTES])
            try:
                found = kept.receive(upload, found, body.read)
            except HashMismatch:  # what a power cut left of it; as clients do, it starts over
                found = 0
        _tell(told, sha256)
        assert not kept.remove(sha256, long_ago)
    kept.write_note("note", "new")
    _tell(told, "note")
    kept.purge_partials(datetime.now(UTC) + PARTIAL_LIFETIME + timedelta(hours=1))


# --------------------------------------------------------------------------- the data copy


def copy(source: str, destination: str, sha256: str, boot: str, told: str) -> None:
    """Attempts of our own module, as a queue makes them, until one says that it is done."""
    machine_boot.BOOT_ID = Path(boot)
    places = DataPlace("file", source), DataPlace("file", destination)
    try:
        module.copy(*places, sha256)
    except module.WrongContent:  # what a power cut left of it
        module.copy(*places, sha256)
    _tell(told, "done")


def queue(root: str, source: str, copies: list[str], told: str) -> None:
    """Queue copies that are not queued yet, and run the queue until all are done."""
    kept = PlacementQueue(Path(root, "state", "queue"))
    there = {each.request.destination.rest for each in kept.all()}
    for destination in copies:
        if destination not in there:
            places = DataPlace("file", source), DataPlace("file", destination)
            kept.add(TransferRequest(*places))
            _tell(told, destination)
    with serving.locked(kept):
        numbers = [each.id for each in kept.all()]
        limits = serving.PlacementLimits(attempts=2)
        serving.serve(kept, limits, lambda _: None, lambda: serving.are_ended(kept, numbers))
    states = {each.state for each in kept.all()}
    assert states == {"done"}, [each.error for each in kept.all()]


def _tell(file: str, word: str) -> None:
    """Say that something is acknowledged, to one whom no crash reaches."""
    with open(file, "a") as said:
        said.write(f"{word}\n")


# ------------------------------------------------------------------------------- the rest

PIECES: dict[str, Callable[..., None]] = {
    "client": client, "store": store, "copy": copy, "queue": queue,
}  # fmt: skip


def _run(library: str, order: dict[str, Any]) -> int:
    """Run a piece in a child; return how often it changed a file, -1 if it was killed.

    It is -2 if it failed: standard error says how.
    """
    _CENSUS.under("/nowhere")
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            watch = ctypes.CDLL(library)
            watch.kill_points_count.restype = ctypes.c_long
            root, kept = order["watched"].encode(), order["kept"].encode()
            watch.kill_points_begin(root, kept, ctypes.c_long(order["at"]))
            PIECES[order["piece"]](**order["arguments"])
            os.write(writer, str(watch.kill_points_count()).encode())
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as said:
        count = said.read()
    _, status = os.waitpid(child, 0)
    _end_orphans()
    if os.WIFSIGNALED(status):
        return -1
    return int(count or -2)


def _end_orphans() -> None:
    """End what a killed piece has started, as the machine's crash would."""
    for process in psutil.Process().children(recursive=True):
        process.kill()
    with suppress(ChildProcessError):
        while True:
            os.wait()


def main(library: str) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    importlib.import_module("fsspec").filesystem("file")
    for line in sys.stdin:
        print(_run(library, json.loads(line)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
