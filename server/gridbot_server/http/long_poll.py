"""Long polls: a request that waits for news of a BOT, without a thread.

A view that has nothing new calls `wait_for_news`.  In a web process that raises `NoNews`; the event
loop keeps the connection (`web/long_polls.py`), and the view is run again from its beginning when
the BOT has news, or the time is over.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from gridbot_server.overload.transfer_slots import Party

# Proxies cut an answer that takes a minute.
MOST_SECONDS = 50

ANY_BOT = 0  # whose news tell that BOTs begin, grow, are held or end

_may_wait: ContextVar[bool] = ContextVar("may_wait", default=False)


class NoNews(BaseException):
    """A view has nothing new to tell.  No error: it passes those who handle errors."""

    def __init__(self, bot: int, until_end: bool, seconds: float, party: Party) -> None:
        super().__init__(bot)
        self.bot = bot
        self.until_end = until_end  # it waits for the BOT's end; else also for results
        self.seconds = seconds
        self.party = party


def wait_for_news(bot: int, seconds: float, party: Party, *, until_end: bool = False) -> None:
    """Have the view run again when the BOT has news; return if it must answer now.

    To be called without a database connection.
    """
    if seconds and _may_wait.get():
        raise NoNews(bot, until_end, seconds, party)


@contextmanager
def waiting_allowed(is_allowed: bool) -> Iterator[None]:
    """Say whether the view that is run may wait."""
    before = _may_wait.set(is_allowed)
    try:
        yield
    finally:
        _may_wait.reset(before)
