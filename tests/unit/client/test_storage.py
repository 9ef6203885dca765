from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gridbot_client.backoff import FailedRequests
from gridbot_client.protocol.messages import (
    INLINE_OUTPUT_BYTES,
    Assignment,
    FileRef,
    Manifest,
    ReplicaId,
    Report,
    SignedManifest,
    WorkRequest,
    manifest_id,
)
from gridbot_client.protocol.output_names import NamedOutput
from gridbot_client.storage import Folder, FolderBusy, Identity
from gridbot_client.work import outputs, spool
from gridbot_client.work.cache import Cache
from gridbot_client.work.outputs import OutputError
from gridbot_client.work.slots import (
    Moment,
    ReplicaSlot,
    RunRecord,
    SpareFolders,
    slot_of,
    slots_in,
)

IDENTITY = Identity("http://x", "secret", 7, "alice", "0" * 64, "1" * 64, ("2" * 64,))
MANIFEST = Manifest("alice", ("true",))
ID = ReplicaId(1, 2, 3)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    made = Folder(tmp_path / "client")
    made.make()
    return made


@pytest.fixture
def slot(folder: Folder) -> ReplicaSlot:
    made = slot_of(folder.slots, ID)
    text = MANIFEST.text()
    made.save_assignment(
        Assignment(ID, manifest_id(text), {"i": 1}, 60.0), SignedManifest(text, b"signature")
    )
    made.reset()
    made.stdout.write_bytes(b"out")
    made.stderr.write_bytes(b"")
    return made


def request(seqno: int) -> WorkRequest:
    return WorkRequest("key", seqno, {}, 1)


def test_two_clients_do_not_share_a_folder(folder: Folder) -> None:
    with folder.lock():
        assert folder.holder() == os.getpid()
        with (
            pytest.raises(FolderBusy, match=rf"pid {os.getpid()}\) uses .*--data DIR"),
            Folder(folder.path).lock(),
        ):
            pass
    assert folder.holder() is None


def test_the_token_is_for_the_owners_eyes(folder: Folder) -> None:
    folder.save_identity(IDENTITY)
    assert (folder.path / "client.json").stat().st_mode & 0o077 == 0
    assert folder.identity() == IDENTITY


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(spoilt=st.binary(max_size=50))
def test_a_spoilt_identity_falls_back_to_the_previous_one(folder: Folder, spoilt: bytes) -> None:
    folder.save_identity(IDENTITY)
    folder.save_identity(IDENTITY)
    (folder.path / "client.json").write_bytes(spoilt)
    assert folder.identity() == IDENTITY


def test_a_spoilt_identity_does_not_replace_the_good_copy(folder: Folder) -> None:
    folder.save_identity(IDENTITY)
    folder.save_identity(IDENTITY)
    (folder.path / "client.json").write_bytes(b"{")
    folder.save_identity(IDENTITY)
    (folder.path / "client.json").write_bytes(b"")
    assert folder.identity() == IDENTITY


def test_a_request_is_pending_until_it_is_answered(folder: Folder) -> None:
    folder.save_request(request(5))
    assert folder.pending_request() == request(5)
    folder.request_answered()
    assert folder.pending_request() is None


def test_sequence_numbers_rise_whatever_was_lost(folder: Folder) -> None:
    start = folder.next_seqno()
    folder.save_request(request(start))
    assert folder.next_seqno() == start + 1
    folder.request_answered()
    assert folder.next_seqno() == start + 1
    (folder.path / "answered.json").write_bytes(b"garbage")
    assert folder.next_seqno() >= start


@pytest.mark.parametrize("spoilt", [b"", b"[]", b'{"failures": "x"}', b"\xff"])
def test_a_spoilt_backoff_is_none(folder: Folder, spoilt: bytes) -> None:
    folder.save_backoff(FailedRequests(3, 9.0, "away"))
    assert folder.backoff() == FailedRequests(3, 9.0, "away")
    (folder.path / "backoff.json").write_bytes(spoilt)
    assert folder.backoff() == FailedRequests()


def test_a_slot_comes_back_as_it_was(folder: Folder, slot: ReplicaSlot) -> None:
    report = Report(ID, "error", "signal", -9, 1.0, 2.0, stdout="a", stderr="b")
    slot.save_run(RunRecord(2, 99, 5.0))
    slot.save_report(report, durable=True)
    (again,) = slots_in(folder.slots)
    found = again.assignment()
    assert found and found[0].args == {"i": 1} and found[1].signature == b"signature"
    assert again.report() == report
    assert again.run_record() == RunRecord(2, 99, 5.0)
    assert again.age_seconds() < 60


@pytest.mark.parametrize("name", ["assignment.json", "report.json", "run.json"])
@pytest.mark.parametrize("spoilt", [b"", b"{}", b"[1]", b"\x00" * 9])
def test_spoilt_slot_files_are_as_if_missing(slot: ReplicaSlot, name: str, spoilt: bytes) -> None:
    (slot.path / name).write_bytes(spoilt)
    assert slot.report() is None
    assert slot.run_record() == RunRecord()
    assert (slot.assignment() is None) == (name == "assignment.json")
    assert slot.age_seconds() < 60


def test_what_another_replica_left_in_a_folder_is_as_if_missing(
    folder: Folder, slot: ReplicaSlot
) -> None:
    slot.save_report(Report(ID, "success"), durable=False)
    slot.path.rename(another(folder).path)
    (found,) = slots_in(folder.slots)
    assert found.id != ID
    assert (found.assignment(), found.report()) == (None, None)


def test_a_spare_folder_that_is_not_empty_serves_nobody(folder: Folder) -> None:
    for name in ("1", "2"):
        (folder.spare / name / "work").mkdir(parents=True)
    (folder.spare / "1" / "checkpoint.json").touch()
    spares, slots = SpareFolders(folder.spare), [another(folder), slot_of(folder.slots, ID)]
    for slot in slots:
        spares.furnish(slot)
    assert [slot.path.exists() for slot in slots] == [True, False]
    assert os.listdir(slots[0].path) == ["work"]


def test_an_output_that_changed_after_its_commit_is_not_pushed(slot: ReplicaSlot) -> None:
    (slot.work / "large").write_bytes(b"a" * INLINE_OUTPUT_BYTES * 2)
    found = outputs.collect(slot, [NamedOutput("large", "large")], 1 << 20, ())
    report = Report(ID, "success", wall_seconds=2.0, outputs=found)
    spool.commit(slot, report)
    assert spool.recovered(slot) == report
    (slot.work / "large").write_bytes(b"a" * INLINE_OUTPUT_BYTES + b"\0" * INLINE_OUTPUT_BYTES)
    assert spool.recovered(slot) is None
    assert not slot.is_finished, "it would be said to wait for the server while it runs again"


def test_a_slot_goes_even_when_its_program_closed_it(slot: ReplicaSlot) -> None:
    inner = slot.work / "inner"
    inner.mkdir()
    (inner / "file").touch()
    inner.chmod(0)
    slot.remove()
    assert not slot.path.exists()


def another(folder: Folder) -> ReplicaSlot:
    return slot_of(folder.slots, ReplicaId(1, 2, 4))


def begin(slot: ReplicaSlot) -> None:
    text = MANIFEST.text()
    slot.save_assignment(Assignment(slot.id, manifest_id(text), {}, 9.0), SignedManifest(text))
    slot.reset()


def test_the_folders_of_an_ended_slot_serve_another_one_and_hold_nothing(
    folder: Folder, slot: ReplicaSlot
) -> None:
    slot.save_run(RunRecord(1))
    slot.save_report(Report(ID, "success"), durable=False)
    (slot.work / "tmp" / "left").mkdir()
    (slot.work / "left").touch()
    served = slot.work.stat().st_ino
    SpareFolders(folder.spare).take_back(slot)
    assert list(slots_in(folder.slots)) == []
    fresh = another(folder)
    SpareFolders(folder.spare).furnish(fresh)
    assert [slot.assignment() for slot in slots_in(folder.slots)] == [None]
    begin(fresh)
    assert fresh.work.stat().st_ino == served
    assert {path.name for path in fresh.path.rglob("*")} == {"assignment.json", "work", "tmp"}


def close(work: Path) -> None:
    work.chmod(0)


def mark(work: Path) -> None:
    os.setxattr(work, "user.mark", b"x")


def make_special(work: Path) -> None:
    work.chmod(0o3755)


@pytest.mark.parametrize("spoil", [close, mark, make_special, Path.rmdir])
def test_a_folder_that_a_task_changed_is_made_anew(
    folder: Folder, slot: ReplicaSlot, spoil: Callable[[Path], None]
) -> None:
    (slot.work / "tmp").rmdir()
    spoil(slot.work)
    spares, fresh = SpareFolders(folder.spare), another(folder)
    spares.take_back(slot)
    spares.furnish(fresh)
    begin(fresh)
    assert stat.S_IMODE(fresh.work.stat().st_mode) & 0o7700 == 0o700
    assert os.listxattr(fresh.work) == []
    assert [path.name for path in fresh.work.iterdir()] == ["tmp"]


@pytest.mark.parametrize("place", ["work", "work/tmp"])
def test_a_link_in_the_place_of_a_folder_leads_nowhere(
    folder: Folder, slot: ReplicaSlot, place: str, tmp_path: Path
) -> None:
    precious = tmp_path / "home" / "precious"
    precious.mkdir(parents=True)
    (slot.work / "tmp").rmdir()
    if place == "work":
        slot.work.rmdir()
    (slot.path / place).symlink_to(precious.parent)
    spares, fresh = SpareFolders(folder.spare), another(folder)
    spares.take_back(slot)
    spares.furnish(fresh)
    begin(fresh)
    assert precious.is_dir()
    assert [path.is_symlink() for path in fresh.path.rglob("*")] == [False, False, False]


def test_a_start_finds_nothing_of_the_one_before(slot: ReplicaSlot) -> None:
    (slot.work / "left").touch()
    slot.reset()
    assert [path.name for path in slot.work.rglob("*")] == ["tmp"]
    assert not slot.stdout.exists()


def test_clock_changes_do_not_age_a_slot() -> None:
    then = Moment("boot", 100.0, 1e9)
    assert then.elapsed(Moment("boot", 130.0, 1e9 + 3e7)) == 30.0
    assert then.elapsed(Moment("other", 5.0, 1e9 - 3e7)) == 0.0
    assert then.elapsed(Moment("other", 5.0, 1e9 + 60)) == 60.0


# --- outputs


def collect(
    slot: ReplicaSlot, *names: str, most: int = 1 << 30, inputs: tuple[str, ...] = ()
) -> set[str]:
    wanted = [NamedOutput(name, name) for name in names]
    return {output.name for output in outputs.collect(slot, wanted, most, inputs)}


def test_what_is_renamed_comes_back_under_that_name_alone(slot: ReplicaSlot) -> None:
    (slot.work / "a.dat").write_text("A")
    (slot.work / "b.dat").write_text("B")
    wanted = [NamedOutput("*.dat", "*.dat"), NamedOutput("a.dat", "new/a-7.dat")]
    found = outputs.collect(slot, wanted, 100, ())
    assert {one.name: one.content for one in found} == {"new/a-7.dat": b"A", "b.dat": b"B"}
    with outputs.open_output(slot, "new/a-7.dat") as file:
        assert file.read() == b"A"


def test_a_renamed_output_leaves_its_directory_by_no_link(
    slot: ReplicaSlot, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (slot.work / "a.dat").write_text("A")
    (slot.work / "new").symlink_to(outside)
    with pytest.raises(OutputError, match=r"'a\.dat' cannot become 'new/a'") as caught:
        outputs.collect(slot, [NamedOutput("a.dat", "new/a")], 100, ())
    assert caught.value.reason == "bad_output_name"
    assert list(outside.iterdir()) == []


def test_patterns_match_within_one_directory_and_spare_inputs(slot: ReplicaSlot) -> None:
    for name in ("a.dat", "b.dat", "in.dat", "sub/c.dat", ".hidden.dat"):
        (slot.work / name).parent.mkdir(exist_ok=True)
        (slot.work / name).write_text(name)
    assert collect(slot, "*.dat", inputs=("in.dat",)) == {"a.dat", "b.dat"}
    assert collect(slot, "*/*.dat", "in.dat", inputs=("in.dat",)) == {"sub/c.dat", "in.dat"}
    assert collect(slot, "nothing*", "stdout") == {"stdout"}


@pytest.mark.parametrize(
    "name", ["link", "folder", "fifo", "closed", "linked/passwd", "../run.json", "gone"]
)
def test_only_regular_files_of_the_slot_are_outputs(slot: ReplicaSlot, name: str) -> None:
    (slot.work / "link").symlink_to("/etc/passwd")
    (slot.work / "linked").symlink_to("/etc")
    (slot.work / "folder").mkdir()
    os.mkfifo(slot.work / "fifo")
    (slot.work / "closed").touch(mode=0o200)
    with pytest.raises(OutputError, match="is missing or not a regular file") as caught:
        collect(slot, name)
    assert caught.value.reason == "missing_output"
    assert collect(slot, "*", "*/*") == set()


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_a_stream_that_is_no_file_any_more_is_not_read(slot: ReplicaSlot, kind: str) -> None:
    slot.stdout.unlink()
    if kind == "link":
        slot.stdout.symlink_to("/etc/passwd")
    else:
        os.mkfifo(slot.stdout)
    assert outputs.tail(slot.stdout) == ""
    with pytest.raises(OSError, match=r"symbolic links|not a regular file"):
        outputs.open_output(slot, "stdout")
    with pytest.raises(OutputError, match="'stdout' is missing or not a regular file"):
        collect(slot, "stdout")


def test_too_many_bytes_are_not_returned(slot: ReplicaSlot) -> None:
    (slot.work / "a").write_bytes(b"x" * 100)
    with pytest.raises(OutputError, match="103 bytes in all, at most 102") as caught:
        collect(slot, "a", "stdout", most=102)
    assert caught.value.reason == "output_too_big"


def test_a_name_that_the_protocol_cannot_carry_is_an_error_of_the_replica(
    slot: ReplicaSlot,
) -> None:
    (slot.work / "a b").touch()
    with pytest.raises(OutputError, match="not a usable file name") as caught:
        collect(slot, "a*")
    assert caught.value.reason == "bad_output_name"


def test_small_outputs_travel_in_the_report(slot: ReplicaSlot) -> None:
    (slot.work / "big").write_bytes(b"x" * 20_000)
    wanted = [NamedOutput(name, name) for name in ("stdout", "big")]
    big, small = outputs.collect(slot, wanted, 1 << 20, ())
    assert big.content is None and big.size == 20_000
    assert small.content == b"out"


def test_the_end_of_a_log_is_kept(slot: ReplicaSlot) -> None:
    slot.stderr.write_bytes(b"\xff" + b"x" * 70_000 + b"the error")
    assert outputs.tail(slot.stderr).endswith("the error")
    assert len(outputs.tail(slot.stderr)) == 64 * 1024


# --- cache


def ref(content: bytes) -> FileRef:
    return FileRef("in", hashlib.sha256(content).hexdigest(), len(content))


def test_content_is_fetched_once_and_a_program_cannot_spoil_it(folder: Folder) -> None:
    fetched: list[str] = []

    def fetch(sha256: str, size: int, part: Path) -> None:
        fetched.append(sha256)
        part.write_bytes(b"input")

    cache, target = Cache(folder.cache, 1000), folder.path / "work" / "in"
    cache.put(ref(b"input"), target, fetch)
    target.write_bytes(b"spoilt by the program")
    cache.put(ref(b"input"), target, fetch)
    assert target.read_bytes() == b"input"
    (folder.cache / ref(b"input").sha256).chmod(0o600)
    (folder.cache / ref(b"input").sha256).write_bytes(b"spoilt on the disk")
    cache.put(ref(b"input"), target, fetch)
    assert target.read_bytes() == b"input"
    assert len(fetched) == 2


def test_the_hash_of_an_input_with_sources_gives_nobody_what_a_job_of_another_left(
    folder: Folder,
) -> None:
    fetched: list[str] = []
    cache, target, secret = Cache(folder.cache, 1000), folder.path / "in", ref(b"of bob's")

    def fetch(sha256: str, size: int, part: Path) -> None:
        fetched.append(part.name)
        part.write_bytes(b"of bob's")

    def no_source(sha256: str, size: int, part: Path) -> None:
        raise ConnectionError

    cache.put(secret, target, fetch)
    cache.put(secret, target, fetch, whose="bob")
    with pytest.raises(ConnectionError):
        cache.put(secret, target, no_source, whose="alice")
    cache.put(secret, target, no_source)
    cache.put(secret, target, no_source, whose="bob")
    assert len(set(fetched)) == 2, "nor is a partial file shared"


def test_a_change_that_forges_size_and_modification_time_is_seen(folder: Folder) -> None:
    def fetch(sha256: str, size: int, part: Path) -> None:
        part.write_bytes(b"honest")

    # The file is old enough to be known by its marks.
    cache = Cache(folder.cache, 1000, clock_ns=lambda: time.time_ns() + 60_000_000_000)
    target = folder.path / "in"
    source = folder.cache / ref(b"honest").sha256
    cache.put(ref(b"honest"), target, fetch)
    before = source.stat()
    source.chmod(0o600)
    source.write_bytes(b"FORGED")
    os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))
    cache.put(ref(b"honest"), target, fetch)
    assert target.read_bytes() == b"honest"


def test_the_cache_stays_within_its_bound_and_keeps_what_was_used_last(folder: Folder) -> None:
    contents = [bytes([n]) * 100 for n in range(8)]
    by_hash = {ref(content).sha256: content for content in contents}
    cache = Cache(folder.cache, 500)

    def fetch(sha256: str, size: int, part: Path) -> None:
        part.write_bytes(by_hash[sha256])

    for content in contents:
        for used in (contents[0], content):
            cache.put(ref(used), folder.path / "in", fetch)
    left = {path.name for path in folder.cache.iterdir()}
    assert len(left) <= 5
    assert {ref(contents[0]).sha256, ref(contents[-1]).sha256} <= left
