"""Pages of a long answer: as large as is fast, as small as memory wants."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar


class Row(Protocol):
    """A row of a page: `n` is the cursor, which several rows may share."""

    @property
    def n(self) -> int:
        """The place in the order."""

    @property
    def content(self) -> bytes | None:
        """What may be large."""


R = TypeVar("R", bound=Row)

FIRST_PAGE, LARGEST_PAGE = 50, 2000
# Rows with outputs inside can be large: pages grow while they stay well below this.
PAGE_BYTES = 8 << 20


def by_cursor(fetch: Callable[[int, int], list[R]], after: int, limit: int) -> Iterator[list[R]]:
    """Yield pages until one is empty; `fetch(after, count)` gives those behind the cursor."""
    count = FIRST_PAGE
    while limit > 0:
        page = fetch(after, min(count, limit))
        if not page:
            return
        yield page
        limit -= len({row.n for row in page})
        after = page[-1].n
        count = next_count(count, sum(len(row.content or b"") for row in page))


def next_count(count: int, content_bytes: int) -> int:
    """Return how many to ask for after a page of `count` that held so many bytes."""
    if content_bytes > PAGE_BYTES:
        return max(1, count // 2)
    if content_bytes * 4 < PAGE_BYTES:
        return min(LARGEST_PAGE, count * 4)
    return count
