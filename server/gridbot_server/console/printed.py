"""What programs print, as text that can be shown.  Pure."""

from __future__ import annotations

import codecs
import re
from typing import NamedTuple

from gridbot_server.api.live import WatchedStream

# What terminals obey: control sequences, commands with a text, other escapes; the last one of a
# text may have come in part.  Then all other control characters but tabs and ends of lines.
_OBEYED = re.compile(
    r"\x1b\[[0-?]*[ -/]*(?:[@-~]|\Z)"
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\|\Z)"
    r"|\x1b[ -/]*(?:[0-~]|\Z)"
    r"|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"
)


class PrintedText(NamedTuple):
    """The last of what a running replica printed to a stream."""

    replica: int
    stream: str
    before: int  # bytes of the stream that are not shown
    text: str

    @classmethod
    def of(cls, found: WatchedStream) -> PrintedText:
        """Return the text of a stream; where its beginning was cut, from a whole line on.

        A last line that is longer than what is kept is shown as far as it is here.
        """
        begins, content = found.begins, found.content
        if begins and (cut := content.find(b"\n", 0, -1) + 1):
            begins, content = begins + cut, content[cut:]
        return cls(found.replica, found.stream, begins, plain(content))


def plain(content: bytes) -> str:
    """Return the text of what was printed so far, without what is meant for terminals.

    A character at the end that has come in part is left out; what is no UTF-8 is marked.
    """
    text = codecs.getincrementaldecoder("utf-8")("replace").decode(content)
    return _OBEYED.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
