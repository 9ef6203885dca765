"""Which trace a BOT belongs to (W3C Trace Context), and the ids of the spans in it.

Ids of spans follow from what they tell of.  So each process knows the parents of its spans,
which others send, and nothing is shared but the trace of the BOT.
"""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple

HEADER = "traceparent"
MOST_TRACED_JOBS = 1_000_000  # of a BOT, each of which has four spans or more

# https://www.w3.org/TR/trace-context/#traceparent-header; later versions may go on at its end.
_FORM = re.compile(
    r"(?P<version>[0-9a-f]{2})-(?P<trace>[0-9a-f]{32})-(?P<span>[0-9a-f]{16})-(?P<flags>[0-9a-f]{2})"
    r"(?P<later>-[\x21-\x7e]*)?"
)
_LONGEST = 512  # characters that are read of it
_SAMPLED = 1


class Trace(NamedTuple):
    """A trace, and the span in it from which others follow."""

    id: bytes  # 16
    span: bytes  # 8

    def header(self) -> str:
        """As `traceparent`."""
        return f"00-{self.id.hex()}-{self.span.hex()}-{_SAMPLED:02x}"

    def span_of(self, what: str, seq: int, replica: int) -> bytes:
        """The id of the span that tells `what` of a replica."""
        told = f"{what} {seq} {replica}".encode()
        return hashlib.blake2b(self.id + self.span + told, digest_size=8).digest()


class TracedBot(NamedTuple):
    """The trace of a BOT: the span is that of its submission.  Its first jobs have spans."""

    trace: Trace
    jobs: int


def read_traceparent(text: str | None) -> Trace | None:
    """Read a `traceparent`.

    None if it is malformed, which the W3C says to ignore, or says that nobody records the trace.
    """
    if text is None or len(text) > _LONGEST:
        return None
    found = _FORM.fullmatch(text)
    if found is None or found["version"] == "ff" or (found["version"] == "00" and found["later"]):
        return None
    trace = Trace(bytes.fromhex(found["trace"]), bytes.fromhex(found["span"]))
    is_sampled = bool(int(found["flags"], 16) & _SAMPLED)
    return trace if is_sampled and any(trace.id) and any(trace.span) else None
