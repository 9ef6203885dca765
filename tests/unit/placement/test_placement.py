import hashlib
import json
import os
from pathlib import Path

import pytest

from gridbot.api.errors import BadInput
from gridbot.placement.ads import (
    ReleaseRequest,
    ReserveRequest,
    TransferRequest,
    requests_of,
)
from gridbot.placement.module import NotCopied, copy
from gridbot.placement.modules import call_of
from gridbot.placement.places import DataPlace, ProtocolPair, pair_for, pairs_of, place_of
from gridbot.placement.queue import DONE, FAILED, QUEUED, REMOVED, RUNNING, PlacementQueue


def request(source: str = "file:/a", destination: str = "ftp://h/b", alt: str = "") -> (
    TransferRequest
):  # fmt: skip
    return TransferRequest(place_of(source)[0], place_of(destination)[0], pairs_of(alt))


def test_a_failure_moves_to_the_next_pair_and_round_again() -> None:
    """Stork's manual: seven attempts with two alternates are g, f, h, g, f, h, g."""
    given, alternates = ProtocolPair("gsiftp", "file"), pairs_of("ftp-file, http-file")
    order = [pair_for(attempt, given, alternates).source for attempt in range(1, 8)]
    assert order == ["gsiftp", "ftp", "http", "gsiftp", "ftp", "http", "gsiftp"]


@pytest.mark.parametrize(
    ("url", "scheme", "endpoint"),
    [
        ("/tmp/a", "file", "file://"),
        ("a b", "file", "file://"),
        ("/data/12:30.log", "file", "file://"),
        ("run:1.tar", "file", "file://"),
        ("file:/tmp/a", "file", "file://"),
        ("ftp://user:pass@h:21/a", "ftp", "ftp://h:21"),
        ("s3://bucket/key", "s3", "s3://bucket"),
    ],
)
def test_urls_and_paths_are_places(url: str, scheme: str, endpoint: str) -> None:
    place, _ = place_of(url)
    assert (place.scheme, place.endpoint) == (scheme, endpoint)


def test_a_hash_behind_a_url_is_demanded_and_a_password_is_not_shown() -> None:
    digest = "0" * 64
    place, sha256 = place_of(f"http://user:secret@h/a#sha256={digest}")
    assert (place.url, sha256) == ("http://user:secret@h/a", digest)
    assert "secret" not in place.shown
    signed, _ = place_of("https://h/a?X-Amz-Signature=secret")
    assert signed.shown == "https://h/a?…"


@pytest.mark.parametrize(
    "url",
    ["", "http://", "a/", "s3://bucket/", "a#sha256=12", "file:/a\0b", "sftp://h/a#b", "ftp://h/?"],
)
def test_what_is_no_place_is_refused(url: str) -> None:
    with pytest.raises(BadInput):
        place_of(url)


@pytest.mark.parametrize("text", ["ftp", "ftp-", "-file", "f tp-file"])
def test_what_is_no_pair_of_protocols_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="pair of protocols"):
        pairs_of(text)


def test_ads_of_stork_are_read() -> None:
    found, notes = requests_of(
        """
        // two ads and their comments: ]
        [ dap_type = transfer; src_url = "ftp://a/x"; dest_url = "file:/tmp/x]";
          alt_protocols = "http-file, gsiftp-file"; arguments = "-p 4"; log = "u.log"; ]
        [ dap_type = "reserve"; dest_host = "h"; reserve_size = "100 MB"; duration = "2 hours";
          reserve_id = 3; ]
        /* the last ] one */
        [ dap_type = release; reserve_id = 3; dest_host = "h" ]
        """
    )
    transfer, reserve, release = found
    assert isinstance(transfer, TransferRequest)
    assert transfer.destination == DataPlace("file", "/tmp/x]")  # no file is made
    assert transfer.alternates == (ProtocolPair("http", "file"), ProtocolPair("gsiftp", "file"))
    assert transfer.arguments == "-p 4"
    assert isinstance(reserve, ReserveRequest)
    assert (reserve.megabytes, reserve.seconds) == (100, 7200)
    assert reserve.name == "3"
    assert release == ReleaseRequest("3")
    assert notes == ["ad 1: log has no effect here"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "there is no ad"),
        ("[ dap_type = transfer; ", "without its ]"),
        ("]", "without its ["),
        ("[ dap_type = stage; ]", "'stage' is not transfer"),
        ('[ dap_type = transfer; dest_url = "file:/a" ]', "src_url is missing"),
        ('[ dap_type = transfer; src_url = 1 + "a"; dest_url = "b" ]', "src_url"),
        ('[ dap_type = transfer; src_url = "a"; dest_url = "b"; colour = 1 ]', "colour is unknown"),
        ('[ dap_type = reserve; dest_host = "h"; reserve_size = "much" ]', "is not a size"),
        ("[ dap_type = release; ]", "reserve_id is missing"),
        (
            '[ dap_type = transfer; src_url = "a"; dest_url = "b"; arguments = "it\'s" ]',
            "No closing quotation",
        ),
        ("[ = ]", "ad 1"),
    ],
)
def test_ads_that_cannot_be_done_are_refused(text: str, why: str) -> None:
    with pytest.raises(BadInput, match=why.replace("[", r"\[")):
        requests_of(text)


def test_a_queue_survives_and_bounds_what_runs_at_once(tmp_path: Path) -> None:
    for number in range(3):
        PlacementQueue(tmp_path / "q").add(request(destination=f"ftp://h/{number}"))
    PlacementQueue(tmp_path / "q").add(request(destination="ftp://other/b"))
    queue = PlacementQueue(tmp_path / "q")
    assert [each.id for each in queue.start(at_once=9, per_endpoint=2)] == [1, 2]
    assert [each.id for each in queue.start(at_once=2, per_endpoint=9)] == []
    assert [each.state for each in queue.all()] == [RUNNING, RUNNING, QUEUED, QUEUED]
    assert (tmp_path / "q").stat().st_mode & 0o077 == 0


def test_a_destination_has_one_copy_at_a_time_by_whatever_protocol(tmp_path: Path) -> None:
    queue = PlacementQueue(tmp_path / "q")
    for destination in ("ftp://h/b", "ftp://h/b", "sftp://h/b"):
        queue.add(request(destination=destination))
    assert [each.id for each in queue.start(9, 9)] == [1]
    queue.succeeded(1, None, None)
    assert [each.id for each in queue.start(9, 9)] == [2]


def test_a_failed_attempt_waits_and_the_last_one_is_the_end(tmp_path: Path) -> None:
    now = [1000.0]
    queue = PlacementQueue(tmp_path / "q", lambda: now[0])
    number = queue.add(request(alt="http-file"))
    for attempt, pair in enumerate((ProtocolPair("file", "ftp"), ProtocolPair("http", "file")), 1):
        (found,) = queue.start(9, 9)
        assert found.pair == pair
        queue.failed(number, f"why {attempt}", most=2, pause=5)
        assert queue.start(9, 9) == []
        now[0] += 6
    found = queue.one(number)
    assert (found.state, found.attempts, found.error) == (FAILED, 2, "why 2")


def test_what_is_removed_stays_so_whatever_its_attempt_says(tmp_path: Path) -> None:
    queue = PlacementQueue(tmp_path / "q")
    number = queue.add(request())
    queue.start(9, 9)
    assert queue.remove(number).state == REMOVED
    queue.succeeded(number, 1, "x")
    queue.failed(number, "why", 9, 0)
    queue.interrupted(number)
    assert queue.one(number).state == REMOVED


def test_an_attempt_that_was_interrupted_does_not_count(tmp_path: Path) -> None:
    queue = PlacementQueue(tmp_path / "q")
    number = queue.add(request())
    queue.start(9, 9)
    queue.interrupted(number)
    (again,) = queue.start(9, 9)
    assert (again.id, again.attempts) == (number, 0)
    queue.succeeded(number, 5, "x")
    assert queue.one(number).state == DONE


def test_reservations_share_the_space_until_they_expire(tmp_path: Path) -> None:
    now = [0.0]
    queue = PlacementQueue(tmp_path / "q", lambda: now[0])
    first = queue.reserve("file://", 60, seconds=100, free=100)
    with pytest.raises(BadInput, match="60 MB of them reserved"):
        queue.reserve("file://", 60, seconds=100, free=100)
    queue.reserve("ftp://h", 60, seconds=100, free=100)
    queue.release(first)
    with pytest.raises(BadInput, match="no reservation"):
        queue.release(first)
    second = queue.reserve("file://", 60, seconds=100, free=100)
    named = queue.reserve("/other", 1, seconds=100, free=100, name="mine")
    with pytest.raises(BadInput, match="a reservation with the id mine"):
        queue.reserve("/other", 1, seconds=100, free=100, name="mine")
    assert queue.reservation_named("mine") == named
    now[0] = 101
    with pytest.raises(BadInput, match="no reservation with the id mine"):
        queue.reservation_named("mine")
    assert queue.reservations() == []
    assert queue.reserve("file://", 100, seconds=100, free=100) > second


def test_a_file_that_is_no_queue_is_told(tmp_path: Path) -> None:
    (tmp_path / "q").write_text("something else, longer than a header of SQLite" * 9)
    with pytest.raises(BadInput, match="not a database"):
        PlacementQueue(tmp_path / "q")


def test_a_copy_goes_on_from_what_an_earlier_attempt_wrote(tmp_path: Path) -> None:
    content = os.urandom(3_000_000)
    sha256 = hashlib.sha256(content).hexdigest()
    source, destination = tmp_path / "a", tmp_path / "deep" / "b"
    source.write_bytes(content)
    destination.parent.mkdir()
    name = hashlib.sha256(sha256.encode()).hexdigest()[:12]
    (tmp_path / "deep" / f"b.{name}.part").write_bytes(content[:2_000_000])
    found = copy(DataPlace("file", str(source)), DataPlace("file", str(destination)), sha256)
    assert (found.bytes, found.sha256) == (len(content), sha256)
    assert destination.read_bytes() == content
    assert os.listdir(tmp_path / "deep") == ["b"]


def test_a_part_with_another_content_is_found_out_and_removed(tmp_path: Path) -> None:
    content = b"x" * 1000
    sha256 = hashlib.sha256(content).hexdigest()
    (tmp_path / "a").write_bytes(content)
    name = hashlib.sha256(sha256.encode()).hexdigest()[:12]
    (tmp_path / f"b.{name}.part").write_bytes(b"y" * 500)
    places = DataPlace("file", str(tmp_path / "a")), DataPlace("file", str(tmp_path / "b"))
    with pytest.raises(NotCopied, match="SHA-256"):
        copy(*places, sha256)
    assert os.listdir(tmp_path) == ["a"]
    assert copy(*places, sha256).bytes == 1000


def test_what_was_there_stays_until_the_copy_is_whole(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"new")
    (tmp_path / "b").write_bytes(b"old")
    places = DataPlace("file", str(tmp_path / "a")), DataPlace("file", str(tmp_path / "b"))
    with pytest.raises(NotCopied):
        copy(*places, "0" * 64)
    assert (tmp_path / "b").read_bytes() == b"old"
    copy(*places)
    assert (tmp_path / "b").read_bytes() == b"new"


def test_a_module_of_the_user_comes_before_ours(tmp_path: Path) -> None:
    queue = PlacementQueue(tmp_path / "q")
    number = queue.add(request(destination="srb://h/b"))
    ours = call_of(queue.one(number), {})
    assert ours.argv[1:] == ["-P", "-m", "gridbot.placement.module"]
    assert json.loads(ours.given) == ["file:/a", "srb://h/b", ""]
    module = tmp_path / "stork.transfer.file-srb"
    module.touch(mode=0o700)
    for variable in ("GRIDBOT_DATA_MODULES", "STORK_MODULE_DIR"):
        found = call_of(queue.one(number), {variable: str(tmp_path)})
        assert found.argv == [str(module), "file:/a", "srb://h/b"]
