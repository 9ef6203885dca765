"""Claims about fetching from sources, over real connections to a server that is anybody's."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fakes.source_server import (
    SourceServer,
    breaks_off,
    drips,
    give,
    leads,
    source_server,
)

from gridbot_client.net.allowance import TransferAllowance, TransferLimits
from gridbot_client.net.sources import SourceClient, SourceFailed, SourceTerms
from gridbot_client.net.transport import ServerUnavailable
from gridbot_client.protocol.fields import ProtocolError
from gridbot_client.protocol.sources import check_url

CONTENT = bytes(range(256)) * 20_000  # several parts
HASH = hashlib.sha256(CONTENT).hexdigest()
HERE = SourceTerms(may_be_private=True)
HEAD = b"HTTP/1.1 200 OK\r\n"


@pytest.fixture
def place() -> Iterator[SourceServer]:
    with source_server() as found:
        yield found


def fetch(url: str, part: Path, terms: SourceTerms = HERE, patience: float = 30.0) -> None:
    client = SourceClient(patience_seconds=patience)
    client.download(url, HASH, len(CONTENT), part, terms)


def failure(
    url: str, part: Path, terms: SourceTerms = HERE, patience: float = 30.0
) -> SourceFailed:
    with pytest.raises(SourceFailed) as caught:
        fetch(url, part, terms, patience)
    assert url in str(caught.value)
    return caught.value


def test_a_content_that_broke_off_is_completed_from_another_source(
    place: SourceServer, tmp_path: Path
) -> None:
    part, done = tmp_path / "part", 3_000_000
    broken = place.behaves("/broken", breaks_off(CONTENT, done))
    assert failure(broken, part).may_pass
    kept = part.stat().st_size
    assert done - (16 << 10) <= kept <= done
    fetch(place.file("/whole", CONTENT), part)
    assert part.read_bytes() == CONTENT
    assert place.ranges("/whole") == [f"bytes={kept}-"]


def test_a_source_that_knows_no_ranges_gives_the_whole_again(
    place: SourceServer, tmp_path: Path
) -> None:
    part = tmp_path / "part"
    part.write_bytes(CONTENT[:1000])
    fetch(place.behaves("/plain", lambda handler, _: give(handler, CONTENT)), part)
    assert part.read_bytes() == CONTENT


def test_another_content_is_refused_and_nothing_of_it_is_kept(
    place: SourceServer, tmp_path: Path
) -> None:
    part = tmp_path / "part"
    error = failure(place.file("/other", CONTENT[:-1] + b"!"), part)
    assert error.is_wrong and not error.may_pass and HASH in str(error)
    assert part.stat().st_size == 0


def test_a_good_source_is_not_blamed_for_what_a_bad_one_gave_before(
    place: SourceServer, tmp_path: Path
) -> None:
    part = tmp_path / "part"
    part.write_bytes(b"!" * 1000)
    fetch(place.file("/good", CONTENT), part)
    assert part.read_bytes() == CONTENT
    assert place.ranges("/good") == ["bytes=1000-", ""]


@pytest.mark.parametrize("content", [CONTENT + b"!", CONTENT[:-1]])
def test_another_size_is_refused_before_anything_is_fetched(
    place: SourceServer, tmp_path: Path, content: bytes
) -> None:
    part = tmp_path / "part"
    error = failure(place.file("/other", content), part)
    assert f"has {len(content)} bytes, not {len(CONTENT)}" in str(error) and error.is_wrong
    assert part.stat().st_size == 0


def test_of_an_endless_content_no_more_is_taken_than_is_wanted(
    place: SourceServer, tmp_path: Path
) -> None:
    part = tmp_path / "part"
    endless = HEAD + b"\r\n" + b"y" * (len(CONTENT) + 100_000)
    failure(place.behaves("/endless", drips(endless)), part)
    assert part.stat().st_size == 0


@pytest.mark.parametrize("head", [HEAD + b"X-Long: ", HEAD + b"Content-Length: 8192\r\n\r\n"])
def test_a_source_that_sends_its_head_or_its_body_too_slowly_is_left(
    place: SourceServer, tmp_path: Path, head: bytes
) -> None:
    url, part = place.behaves("/slow", drips(head)), tmp_path / "part"
    client = SourceClient(patience_seconds=0.5)
    with pytest.raises(SourceFailed, match="too slow") as caught:
        client.download(url, HASH, 8192, part, HERE)
    assert caught.value.may_pass


def test_what_comes_compressed_is_refused_and_never_unpacked(
    place: SourceServer, tmp_path: Path
) -> None:
    packed = gzip.compress(b"\0" * 10_000_000)
    url = place.behaves(
        "/packed", lambda handler, _: give(handler, packed, Content_Encoding="gzip")
    )
    part = tmp_path / "part"
    assert "compressed (gzip)" in str(failure(url, part))
    assert part.stat().st_size == 0
    assert place.headers[-1]["Accept-Encoding"] == "identity"


def test_redirections_are_followed_a_few_times(place: SourceServer, tmp_path: Path) -> None:
    place.file("/there", CONTENT)
    part = tmp_path / "part"
    fetch(place.behaves("/here", leads("/there")), part)
    assert part.read_bytes() == CONTENT
    round_and_round = failure(place.behaves("/round", leads("/round")), tmp_path / "other")
    assert "more than 5 redirections" in str(round_and_round)


@pytest.mark.parametrize(
    "target",
    ["file:///etc/passwd", "ftp://host/x", "http://user:secret@host/x", "http://a b/"],
)
def test_a_redirection_to_no_usable_url_is_not_followed(
    place: SourceServer, tmp_path: Path, target: str
) -> None:
    error = failure(place.behaves("/away", leads(target)), tmp_path / "part")
    assert "not a usable URL" in str(error) and not error.may_pass


def test_work_of_strangers_reaches_no_private_address(place: SourceServer, tmp_path: Path) -> None:
    url = place.file("/secret", CONTENT)
    named = url.replace("127.0.0.1", "localhost")
    for address in (url, named):
        error = failure(address, tmp_path / "part", SourceTerms())
        assert "no public address" in str(error) and not error.may_pass
    assert place.asked == []


def test_a_proxy_is_asked_but_for_names_that_mean_private_addresses_here(
    place: SourceServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", place.url)
    monkeypatch.delenv("NO_PROXY", raising=False)
    there = "http://data.invalid/file"
    place.files[there] = CONTENT
    fetch(there, tmp_path / "part", SourceTerms())
    assert place.ranges(there) == [""]
    for private in ("http://10.0.0.1/", "http://169.254.169.254/", "http://localhost:1/"):
        assert "no public address" in str(failure(private, tmp_path / "other", SourceTerms()))
    slow = "http://slow.invalid/file"
    place.odd[slow] = drips(HEAD + b"X-Long: ")
    assert "too slow" in str(failure(slow, tmp_path / "other", SourceTerms(), patience=0.5))


def test_no_secret_of_the_machine_is_sent_along(
    place: SourceServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password mine")
    monkeypatch.setenv("NETRC", str(netrc))
    fetch(place.file("/whole", CONTENT), tmp_path / "part")
    assert not {"Authorization", "Cookie"} & place.headers[-1].keys()


def test_what_the_owner_lets_nobody_transfer_waits(place: SourceServer, tmp_path: Path) -> None:
    allowance = TransferAllowance()
    allowance.limits = TransferLimits(obstacle="it is night")
    with pytest.raises(ServerUnavailable, match="it is night"):
        SourceClient(allowance).download(
            place.file("/whole", CONTENT), HASH, len(CONTENT), tmp_path / "part", HERE
        )


def test_a_source_is_measured(place: SourceServer) -> None:
    url = place.file("/whole", CONTENT)
    assert SourceClient().measure(url, HERE) == (HASH, len(CONTENT))


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd", "ftp://host/x", "s3://bucket/key", "http://", "http:///x",
        "http://user:secret@host/", "http://host/a b", "http://host/a\nHost: other",
        "http://host\\@10.0.0.1/", "http://host/#part", "http://host:99999/", "http://hóst/",
        "http://host/" + "x" * 2000, "http://host/\x00", "host/path", "http://host/{x}",
        "http://[::::]/", "http://[1.2.3.4]/",
    ],
)  # fmt: skip
def test_a_url_that_programs_might_read_differently_is_refused(url: str) -> None:
    with pytest.raises(ProtocolError, match=r"^input a: .* is not a usable URL"):
        check_url(url, "input a")


@pytest.mark.parametrize(
    "url",
    ["http://host", "https://host/a?b=c&d=%20", "http://[::1]:80/x", "https://h.org:443/~a/(b)"],
)
def test_plain_urls_are_usable(url: str) -> None:
    assert check_url(url, "input a") == url
