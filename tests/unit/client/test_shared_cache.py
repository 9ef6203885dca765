"""Claims about the cache that the pilots of one grid share: caches of two clients on one folder."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gridbot_client.protocol.messages import FileRef
from gridbot_client.work.cache import Cache
from gridbot_client.work.shared_cache import SharedCache

DATA = b"an input of many jobs"
PLENTY = 1 << 20


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


@pytest.mark.parametrize("attack", [spoilt, shorter, longer])
def test_a_wrong_file_is_removed_and_fetched_anew(
    tmp_path: Path, site: Path, attack: Callable[[Path], None]
) -> None:
    Pilot(tmp_path / "one", site).gets()
    (path,) = site.iterdir()
    attack(path)
    two, three = Pilot(tmp_path / "two", site), Pilot(tmp_path / "three", site)
    assert (two.gets(), three.gets()) == (DATA, DATA)
    assert (two.downloads, three.downloads) == (1, 0)


@pytest.mark.parametrize("attack", [a_link, a_pipe])
def test_what_is_no_plain_file_is_not_read(
    tmp_path: Path, site: Path, attack: Callable[[Path], None]
) -> None:
    Pilot(tmp_path / "one", site).gets()
    (path,) = site.iterdir()
    attack(path)
    two = Pilot(tmp_path / "two", site)
    assert (two.gets(), two.downloads) == (DATA, 1)


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
