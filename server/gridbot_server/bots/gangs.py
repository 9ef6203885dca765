"""Gangs, jobs that run together: what a BOT of them may be, and what may be done to parts of it."""

from __future__ import annotations

from collections.abc import Sequence

from gridbot_server.errors import Conflict, RequestError
from gridbot_server.models.requests import SubmissionRequest
from gridbot_server.storage import sql
from gridbot_server.storage.db import Connection
from gridbot_server.storage.rows import fetch_only_value

SQL = sql.load("gangs.sql")


def check(body: SubmissionRequest, size: int | None) -> None:
    """Make sure that a BOT can be one of gangs, if it asks for that; `size` is None if it is open.

    Raises RequestError.
    """
    if body.together == 1:
        return
    if body.quorum > 1 or body.known_answers:
        raise RequestError(
            f"together {body.together}: such jobs run on machines whose owners trust you, once:"
            " without a quorum, and without known answers"
        )
    if body.growing:
        raise RequestError(f"together {body.together}: a growing BOT has no gangs")
    if body.envelope is None:
        raise RequestError(
            f"together {body.together}: sign the BOT with your own key, as gridbot submit does"
        )
    if size is not None:
        check_size(body.together, size)


def check_size(together: int, size: int) -> None:
    """Make sure that jobs fill their gangs.  Raises RequestError."""
    if size % together:
        raise RequestError(f"together {together}: {size} jobs are not whole gangs of {together}")


def check_whole(conn: Connection, bot: int, jobs: Sequence[int] | None, what: str) -> None:
    """Make sure that these are all jobs of their gangs; None: all jobs.  Raises Conflict."""
    if jobs is None:
        return
    together = fetch_only_value(conn, int, SQL["together"], {"bot": bot})
    wanted = set(jobs)
    for job in sorted(wanted):
        first = job - job % together
        if not wanted.issuperset(range(first, first + together)):
            raise Conflict(
                f"job {job} of BOT {bot} runs together with others:"
                f" {what} all of {first} to {first + together - 1}"
            )
