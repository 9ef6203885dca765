"""Claims about the cache that the pilots of one grid share: caches of two clients on one folder."""

from __future__ import annotations

import hashlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.full_disk import longest_file

from gridbot_client.protocol.messages import FileRef
from gridbot_client.work.cache import Cache
from gridbot_client.work.shared_cache import SharedCache

DATA = b"an input of many jobs"
PLENTY = 1 << 20
MIB = 1 << 20


def ref(content: bytes) -> FileRef:
    return FileRef("in", hashlib.sha256(content).hexdigest(), len(content))


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (made := tmp_path / "shared").mkdir(mode=0o700)
    return made


class Pilot:
    """A cache beside the shared one, and how often the server was asked."""

    def __init__(self, folder: Path, site: Path, most_bytes: int = PLENTY) -> None:
        (own := folder / "cache").mkdir(parents=True)
        self._target = folder / "in"
        self._cache = Cache(own, PLENTY, shared=SharedCache(site, most_bytes))
        self.downloads = 0

    def gets(self, content: bytes = DATA, whose: str = "") -> bytes:
        """What a job is given."""

        def fetch(sha256: str, size: int, part: Path) -> None:
            self.downloads += 1
            part.write_bytes(content)

        self._cache.put(ref(content), self._target, fetch, whose)
        return self._target.read_bytes()


def test_the_second_pilot_downloads_nothing(tmp_path: Path, site: Path) -> None:
    one, two = Pilot(tmp_path / "one", site), Pilot(tmp_path / "two", site)
    assert (one.gets(), two.gets()) == (DATA, DATA)
    assert (one.downloads, two.downloads) == (1, 0)


def spoilt(path: Path) -> None:
    path.write_bytes(b"!" * len(DATA))


def shorter(path: Path) -> None:
    path.write_bytes(DATA[:-1])


def longer(path: Path) -> None:
    path.write_bytes(DATA * 1000)


def a_link(path: Path) -> None:
    secret = path.parent.parent / "secret"
    secret.write_bytes(DATA)
    path.unlink()
    path.symlink_to(secret)


def a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def a_directory(path: Path) -> None:
    path.unlink()
    (path / "with" / "more").mkdir(parents=True)


def a_socket(path: Path) -> None:
    path.unlink()
    folder = os.open(path.parent, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(f"/proc/self/fd/{folder}/{path.name}")  # the whole path is too long
    os.close(folder)


def closed(path: Path) -> None:
    path.chmod(0)


NO_ROOT = pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")


@pytest.mark.parametrize(
    "attack",
    [
        *(spoilt, shorter, longer, a_link, a_pipe, a_directory, a_socket),
        pytest.param(closed, marks=NO_ROOT),
    ],
)
def test_what_is_not_the_right_file_is_removed_and_fetched_anew(
    tmp_path: Path, site: Path, attack: Callable[[Path], None]
) -> None:
    Pilot(tmp_path / "one", site).gets()
    (path,) = site.iterdir()
    attack(path)
    two, three = Pilot(tmp_path / "two", site), Pilot(tmp_path / "three", site)
    before = os.listdir("/proc/self/fd")
    assert (two.gets(), three.gets()) == (DATA, DATA)
    assert (two.downloads, three.downloads) == (1, 0)
    assert len(os.listdir("/proc/self/fd")) == len(before), "a descriptor stays open"


def test_what_an_interrupted_download_left_stays_where_the_shared_file_is_wrong(
    tmp_path: Path, site: Path
) -> None:
    (part := tmp_path / "in.part").write_bytes(DATA[:5])
    (site / "in").write_bytes(b"!" * len(DATA))
    assert not SharedCache(site, PLENTY).take("in", ref(DATA), part)
    assert part.read_bytes() == DATA[:5]
    assert set(tmp_path.iterdir()) == {part, site}


def test_a_copy_that_fails_in_the_middle_leaves_nothing_that_a_download_continues(
    tmp_path: Path, site: Path
) -> None:
    content, part = bytes(2 * MIB), tmp_path / "in.part"
    part.write_bytes(content[:5])
    (site / "in").write_bytes(content)
    with longest_file(MIB + 1):
        assert not SharedCache(site, 4 * MIB).take("in", ref(content), part)
    assert part.read_bytes() == content[:5]
    assert set(tmp_path.iterdir()) == {part, site}
    assert SharedCache(site, 4 * MIB).take("in", ref(content), part)
    assert part.read_bytes() == content


@contextmanager
def in_the_middle(site: Path, content: bytes, most_bytes: int) -> Iterator[None]:
    """While a pilot that puts a file there has read all of it but the last bytes."""
    source = site.parent / "source"
    os.mkfifo(source)
    giver = threading.Thread(
        target=SharedCache(site, most_bytes).give,
        args=(ref(content).sha256, ref(content), source),
    )
    giver.start()
    with source.open("wb", buffering=0) as written:  # it reads by now
        written.write(content[:-1])
        try:
            yield
        finally:
            written.write(content[-1:])
    giver.join()


def names(*contents: bytes) -> set[str]:
    return {ref(content).sha256 for content in contents}


def test_pilots_that_start_at_once_leave_what_is_there(tmp_path: Path, site: Path) -> None:
    first, second, content = b"1" * MIB, b"2" * MIB, b"3" * 2 * MIB
    cache = SharedCache(site, 4 * MIB)
    for age, held in enumerate((first, second)):
        (source := tmp_path / "held").write_bytes(held)
        cache.give(ref(held).sha256, ref(held), source)
        os.utime(site / ref(held).sha256, (1000 + age, 1000 + age))
    with in_the_middle(site, content, 4 * MIB):
        for name in ("one", "two", "three"):
            pilot = Pilot(tmp_path / name, site, 4 * MIB)
            assert (pilot.gets(content), pilot.downloads) == (content, 1)
            found = {path.name for path in site.iterdir()}
            assert names(first, second) < found
            assert not names(content) & found, "one puts it there, the others do not"
    assert {path.name for path in site.iterdir()} == names(first, second, content)
    assert not any(path.stat().st_mode & 0o077 for path in site.iterdir()), "others may read"
    last = Pilot(tmp_path / "last", site, 4 * MIB)
    assert (last.gets(content), last.downloads) == (content, 0)


def test_a_copy_in_progress_is_not_evicted_nor_is_anything_in_vain(
    tmp_path: Path, site: Path
) -> None:
    held, content, other = b"1" * (MIB // 2), b"2" * 2 * MIB, b"3" * 2 * MIB
    Pilot(tmp_path / "one", site, 3 * MIB).gets(held)
    with in_the_middle(site, content, 3 * MIB):
        two = Pilot(tmp_path / "two", site, 3 * MIB)
        assert (two.gets(other), two.downloads) == (other, 1)
    assert {path.name for path in site.iterdir()} == names(held, content)


@pytest.mark.parametrize("written", [1000, 1 << 40])
def test_a_copy_that_nobody_writes_any_more_keeps_no_file_out(
    tmp_path: Path, site: Path, written: int
) -> None:
    content = b"1" * 2 * MIB
    with in_the_middle(site, content, 4 * MIB):
        (half,) = site.iterdir()
        os.utime(half, (written, written))
        Pilot(tmp_path / "one", site, 4 * MIB).gets(content)
        assert {path.name for path in site.iterdir()} == names(content)
    two = Pilot(tmp_path / "two", site, 4 * MIB)
    assert (two.gets(content), two.downloads) == (content, 0)


def test_a_pilot_whose_clock_is_ahead_of_the_file_systems_leaves_copies_in_progress(
    tmp_path: Path, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content, an_hour_on = b"1" * 2 * MIB, time.time() + 3600
    monkeypatch.setattr(time, "time", lambda: an_hour_on)
    with in_the_middle(site, content, 4 * MIB):
        Pilot(tmp_path / "one", site, 4 * MIB).gets(content)
        assert not names(content) & {path.name for path in site.iterdir()}
    assert {path.name for path in site.iterdir()} == names(content)


def test_a_file_that_one_owners_sources_gave_is_given_to_no_other(
    tmp_path: Path, site: Path
) -> None:
    one, two = Pilot(tmp_path / "one", site), Pilot(tmp_path / "two", site)
    one.gets(whose="bob")
    two.gets(whose="alice")
    assert two.downloads == 1
    assert Pilot(tmp_path / "three", site).gets(whose="bob") == DATA


def test_it_keeps_within_its_size_and_what_was_used_last(tmp_path: Path, site: Path) -> None:
    contents = [bytes([number]) * 100 for number in range(4)]
    one = Pilot(tmp_path / "one", site, most_bytes=300)
    for age, content in enumerate(contents[:3]):
        one.gets(content)
        os.utime(site / ref(content).sha256, (1000 + age, 1000 + age))
    assert Pilot(tmp_path / "two", site, 300).gets(contents[0]) == contents[0]  # used again
    one.gets(contents[3])
    assert {path.name for path in site.iterdir()} == {
        ref(contents[number]).sha256 for number in (0, 2, 3)
    }
    one.gets(bytes(301))
    assert len(list(site.iterdir())) == 3, "what never fits takes no room"


@pytest.mark.parametrize("mode", [0o770, 0o777])
def test_a_folder_that_others_may_change_is_not_used(tmp_path: Path, site: Path, mode: int) -> None:
    site.chmod(mode)
    one, two = Pilot(tmp_path / "one", site), Pilot(tmp_path / "two", site)
    assert (one.gets(), two.gets()) == (DATA, DATA)
    assert (one.downloads, two.downloads, list(site.iterdir())) == (1, 1, [])


def test_a_folder_that_is_gone_costs_no_job(tmp_path: Path, site: Path) -> None:
    site.rmdir()
    one = Pilot(tmp_path / "one", site)
    assert (one.gets(), one.downloads) == (DATA, 1)
