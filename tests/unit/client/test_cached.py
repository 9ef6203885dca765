"""Claims about what a client tells of its cache."""

from __future__ import annotations

import hashlib
import json
import random
import uuid
from pathlib import Path

import pytest

from gridbot_client.protocol.cached import LEAST_BYTES, MAX_TOLD, cache_name, mark_of
from gridbot_client.protocol.messages import (
    FileRef,
    ProtocolError,
    WorkRequest,
    decode_request,
    encode_request,
)
from gridbot_client.work.cache import Cache
from gridbot_server.dispatch.wire import read_request

PLENTY = 1 << 40


def big(number: int, extra: int = 0) -> bytes:
    return random.Random(number).randbytes(64) + bytes(LEAST_BYTES + extra - 64)


def hold(cache: Cache, folder: Path, content: bytes, whose: str = "") -> str:
    """Let the cache have a file; the file's hash."""
    ref = FileRef("in", hashlib.sha256(content).hexdigest(), len(content))

    def fetch(_sha256: str, _size: int, part: Path) -> None:
        part.write_bytes(content)

    cache.put(ref, folder / "copy", fetch, whose)
    return ref.sha256


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "cache").mkdir()
    return tmp_path / "cache"


def request(cached: tuple[str, ...] | None) -> WorkRequest:
    return WorkRequest(uuid.uuid4().hex, 1, {}, 1, cached=cached)


def test_files_of_a_megabyte_and_more_are_told_and_smaller_ones_are_not(
    place: Path, tmp_path: Path
) -> None:
    cache = Cache(place, PLENTY)
    assert cache.marks() == ()
    hold(cache, tmp_path, bytes(LEAST_BYTES - 1))
    assert cache.marks() == ()
    assert cache.marks() == () == Cache(place, PLENTY).marks()
    large = hold(cache, tmp_path, bytes(LEAST_BYTES))
    assert cache.marks() == (mark_of(large),) == Cache(place, PLENTY).marks()


def test_of_many_files_the_largest_are_told(place: Path) -> None:
    names = [hashlib.sha256(b"%d" % number).hexdigest() for number in range(MAX_TOLD + 9)]
    for number, name in enumerate(names):
        with (place / name).open("wb") as file:
            file.truncate(LEAST_BYTES + number)
    with (place / f"{names[0]}.part").open("wb") as file:
        file.truncate(LEAST_BYTES + 10_000)
    assert set(Cache(place, PLENTY).marks()) == {mark_of(name) for name in names[9:]}


def test_a_file_that_was_evicted_is_told_no_more(place: Path, tmp_path: Path) -> None:
    cache = Cache(place, 2 * LEAST_BYTES)
    first, second, third = (hold(cache, tmp_path, big(number)) for number in range(3))
    assert mark_of(first) not in cache.marks()
    assert {mark_of(third)} <= set(cache.marks()) <= {mark_of(second), mark_of(third)}


def test_a_file_that_does_not_match_its_hash_any_more_is_told_no_more(
    place: Path, tmp_path: Path
) -> None:
    cache = Cache(place, PLENTY)
    name = hold(cache, tmp_path, big(1))
    (place / name).chmod(0o600)
    (place / name).write_bytes(b"other")

    def unreachable(_sha256: str, _size: int, _part: Path) -> None:
        raise ConnectionError

    with pytest.raises(ConnectionError):
        cache.put(FileRef("in", name, LEAST_BYTES), tmp_path / "copy", unreachable)
    assert cache.marks() == ()


def test_a_file_that_is_kept_for_one_owner_has_another_mark_for_others(
    place: Path, tmp_path: Path
) -> None:
    cache = Cache(place, PLENTY)
    name = hold(cache, tmp_path, big(1), whose="alice")
    assert cache.marks() == (mark_of(cache_name(name, "alice")),)
    assert not {mark_of(name), mark_of(cache_name(name, "bob"))} & set(cache.marks())


def test_a_client_with_no_news_of_its_cache_sends_not_a_byte_more() -> None:
    assert b"cached" not in encode_request(request(None))


@pytest.mark.parametrize("told", [None, (), (mark_of("a"), mark_of("b"))])
def test_a_request_carries_what_is_told(told: tuple[str, ...] | None) -> None:
    body = encode_request(request(told))
    assert decode_request(body).cached == read_request(body).cached == told


@pytest.mark.parametrize(
    "told", ["x", 7, ["0"], [7], ["A" * 16], [mark_of("a") + "0"], [mark_of("a")] * (MAX_TOLD + 1)]
)
def test_marks_beyond_their_bounds_are_refused(told: object) -> None:
    body = json.dumps({**json.loads(encode_request(request(None))), "cached": told}).encode()
    with pytest.raises(ProtocolError, match="cached"):
        read_request(body)
