import hashlib
import io
import os
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gridbot_server.errors import HashMismatch, StoreFull, TooLarge, UploadBusy, WrongOffset
from gridbot_server.storage.files import Content, FolderStore, Upload
from gridbot_server.storage.files.partials import write_all

DATA = b"0123456789" * 1000


def _upload(data: bytes = DATA, purpose: str = "test") -> Upload:
    return Upload(purpose, hashlib.sha256(data).hexdigest(), len(data))


def _send(store: FolderStore, upload: Upload, data: bytes, offset: int = 0) -> Content | int:
    return store.receive(upload, offset, io.BytesIO(data).read)


def test_content_arrives_whole_under_both_hashes(store: FolderStore) -> None:
    content = _send(store, _upload(), DATA)
    expected = hashlib.sha256(DATA).digest(), hashlib.md5(DATA).digest(), len(DATA)
    assert content == Content(*expected)
    with store.open(_upload().sha256) as file:
        assert file.read() == DATA
    assert list(store.uploads.iterdir()) == []


def test_the_beginning_of_content_is_read_alone(store: FolderStore) -> None:
    found = store.put(9, io.BytesIO(b"beginning").read).sha256.hex()
    assert (store.beginning(found, 5), store.beginning(found, 99)) == (b"begin", b"beginning")
    assert store.beginning("0" * 64, 5) is None


def test_an_empty_file_is_content_too(store: FolderStore) -> None:
    assert isinstance(_send(store, _upload(b""), b""), Content)
    assert store.size(_upload(b"").sha256) == 0


@pytest.mark.parametrize("first", [0, 1, 5000, len(DATA) - 1, len(DATA)])
def test_an_upload_goes_on_where_it_broke_off(store: FolderStore, first: int) -> None:
    upload = _upload()
    with pytest.raises(ConnectionError):
        store.receive(upload, 0, _breaking(DATA[:first]))
    assert store.offset(upload) == first
    assert store.size(upload.sha256) is None
    again = FolderStore(store.root, store.uploads)  # as after a restart, or on another server
    assert isinstance(_send(again, upload, DATA[first:], offset=first), Content)


def _breaking(data: bytes) -> Callable[[int], bytes]:
    chunks = iter([data] if data else [])

    def read(_: int) -> bytes:
        for chunk in chunks:
            return chunk
        raise ConnectionError("the client is gone")

    return read


@pytest.mark.parametrize("offset", [0, 2, 4, 10_000])
def test_another_offset_is_told_the_right_one(store: FolderStore, offset: int) -> None:
    assert _send(store, _upload(), DATA[:3]) == 3
    with pytest.raises(WrongOffset) as error:
        _send(store, _upload(), b"x", offset=offset)
    assert error.value.extra == {"offset": 3}
    assert store.offset(_upload()) == 3


def test_a_body_that_never_ends_is_cut_at_the_announced_size(store: FolderStore) -> None:
    with pytest.raises(TooLarge):
        store.receive(_upload(), 0, lambda most: b"x" * most)
    assert store.offset(_upload()) <= len(DATA)


def test_wrong_content_is_discarded_and_can_be_sent_again(store: FolderStore) -> None:
    with pytest.raises(HashMismatch, match="discarded, start over"):
        _send(store, _upload(), b"x" * len(DATA))
    assert store.offset(_upload()) == 0
    assert store.size(_upload().sha256) is None
    assert isinstance(_send(store, _upload(), DATA), Content)


def test_a_part_that_another_process_spoilt_is_noticed(store: FolderStore) -> None:
    _send(store, _upload(), DATA[:5000])
    next(store.uploads.iterdir()).write_bytes(b"x" * 5000)
    with pytest.raises(HashMismatch):
        _send(store, _upload(), DATA[5000:], offset=5000)


def test_of_two_writers_the_second_is_told_to_come_back(store: FolderStore) -> None:
    is_reading, may_end = threading.Event(), threading.Event()
    chunks = iter([DATA, b""])

    def read(_: int) -> bytes:
        is_reading.set()
        assert may_end.wait(10)
        return next(chunks)

    first = threading.Thread(target=store.receive, args=(_upload(), 0, read))
    first.start()
    assert is_reading.wait(10)
    with pytest.raises(UploadBusy):
        _send(FolderStore(store.root, store.uploads), _upload(), DATA)
    may_end.set()
    first.join(10)
    assert store.size(_upload().sha256) == len(DATA)


def test_two_purposes_do_not_see_each_others_parts(store: FolderStore) -> None:
    _send(store, _upload(purpose="one"), DATA[:10])
    assert store.offset(_upload(purpose="two")) == 0
    assert isinstance(_send(store, _upload(purpose="two"), DATA), Content)
    assert isinstance(_send(store, _upload(purpose="one"), DATA[10:], offset=10), Content)


def test_a_link_is_neither_followed_nor_written_through(store: FolderStore, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(DATA)
    path = store.path(_upload().sha256)
    path.parent.mkdir()
    path.symlink_to(secret)
    with pytest.raises(OSError, match="symbolic"):
        store.open(_upload().sha256)
    _send(store, _upload(), DATA[:10])
    partial = next(store.uploads.iterdir())
    partial.unlink()
    partial.symlink_to(secret)
    with pytest.raises(OSError, match="symbolic"):
        _send(store, _upload(), b"x", offset=10)
    assert secret.read_bytes() == DATA


def test_a_full_disk_means_try_again_later() -> None:
    with open("/dev/full", "wb", buffering=0) as file, pytest.raises(StoreFull):
        write_all(file.fileno(), b"x")
    assert StoreFull.retry


def test_only_parts_to_which_nothing_came_for_a_day_are_purged(store: FolderStore) -> None:
    now = datetime.now(UTC)
    _send(store, _upload(purpose="old"), b"0")
    for partial in store.uploads.iterdir():
        os.utime(partial, times=((now - timedelta(days=1, seconds=1)).timestamp(),) * 2)
    _send(store, _upload(purpose="new"), b"01")
    assert store.purge_partials(now) == 1
    assert store.offset(_upload(purpose="old")) == 0
    assert store.offset(_upload(purpose="new")) == 2


def test_a_part_that_is_being_written_is_not_purged(store: FolderStore) -> None:
    def read(_: int) -> bytes:
        assert store.purge_partials(datetime.now(UTC) + timedelta(days=2)) == 0
        return b""

    assert store.receive(_upload(), 0, read) == 0
    assert len(list(store.uploads.iterdir())) == 1
