"""What programs print is shown as text."""

import pytest

from gridbot_server.api.live import WatchedStream
from gridbot_server.console.printed import PrintedText, plain


@pytest.mark.parametrize(
    "content, shown",
    [
        (b"plain\ttext\n", "plain\ttext\n"),
        (b"\x1b[1;31mred\x1b[0m", "red"),
        (b"\x1b]0;a title\x07shown", "shown"),
        (b"\x1b]8;;https://example.org\x1b\\a link\x1b]8;;\x1b\\", "a link"),
        (b"\x1b(Bset", "set"),
        (b"10 %\r20 %\r\n", "10 %\n20 %\n"),
        (b"bell\x07 back\x08 nul\x00", "bell back nul"),
        (b"\xc2\x9b31m", "31m"),
        (b"no \xff UTF-8", "no \ufffd UTF-8"),
        ("half \u20ac".encode()[:-1], "half "),
        (b"half\x1b[3", "half"),
        (b"half\x1b]0;ti", "half"),
        (b"half\x1b", "half"),
        (b"<script>", "<script>"),
    ],
)
def test_what_is_meant_for_terminals_is_left_out(content: bytes, shown: str) -> None:
    assert plain(content) == shown


def test_a_text_whose_beginning_was_cut_begins_with_a_whole_line() -> None:
    cut = PrintedText.of(WatchedStream(1, "stdout", 100, b"31mend\nwhole\n"))
    assert (cut.before, cut.text) == (107, "whole\n")
    whole = PrintedText.of(WatchedStream(1, "stdout", 0, b"first\nsecond\n"))
    assert (whole.before, whole.text) == (0, "first\nsecond\n")
    without = PrintedText.of(WatchedStream(1, "stdout", 100, b"no end of a line"))
    assert (without.before, without.text) == (100, "no end of a line")
    long = PrintedText.of(WatchedStream(1, "stdout", 100, b"the end of a long line\n"))
    assert (long.before, long.text) == (100, "the end of a long line\n")
