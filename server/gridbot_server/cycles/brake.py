"""The brake: holds BOTs whose first replicas all fail alike, or of which too many jobs fail.

A BOT is watched until a replica of it succeeds, or fails in another way than the others.  While it
is watched, its failures are counted in a row of `brake`.  So a BOT that works costs one write.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from gridbot_server.cycles.job import Decision, Job, Rules
from gridbot_server.storage import sql
from gridbot_server.storage.db import Connection
from gridbot_server.storage.rows import JobId, encode, fetch
from gridbot_server.storage.states import State

log = logging.getLogger(__name__)

SQL = sql.load("brake.sql")
CYCLES = sql.load("cycles.sql")

LEAST_REPLICAS, SHARE_OF_JOBS = 10, 0.01
ANY_NUMBER = "100%"  # of failed jobs: such a BOT is not watched


class Failing(NamedTuple):
    """Failures of a BOT, all alike."""

    bot: int
    reason: str
    exit_code: int | None
    line: str  # the last one of standard error, its numbers masked
    replicas: int
    voters: list[int]  # whose they are: hosts, or owners among strangers; two at most

    def joined(self, other: Failing) -> Failing | None:
        """These failures and others; None if they are not alike."""
        if (self.reason, self.exit_code, self.line) != (other.reason, other.exit_code, other.line):
            return None
        voters = list(dict.fromkeys((*self.voters, *other.voters)))[:2]
        return self._replace(replicas=self.replicas + other.replicas, voters=voters)

    def are_enough(self, jobs: int) -> bool:
        """Whether they are the first ones that hold a BOT of so many jobs."""
        return self.replicas >= max(LEAST_REPLICAS, SHARE_OF_JOBS * jobs)

    def why(self) -> str:
        """Why the BOT is held, for people."""
        code = "" if self.exit_code is None else f", exit code {self.exit_code}"
        line = f": {self.line}" if self.line else ""
        return f"its first {self.replicas} replicas all failed alike ({self.reason}{code}){line}"


class _Failure(NamedTuple):
    """A replica that failed."""

    bot: int
    reason: str
    exit_code: int | None
    line: str
    voter: int


class _Standing(NamedTuple):
    """How many jobs of a BOT have failed, and may."""

    id: int
    size: int
    failed: int
    max_failures: str | None


class _Voter(NamedTuple):
    """A voter of a BOT, beside whom others work for it."""

    bot: int
    voter: int


def is_too_many(failed: int, jobs: int, max_failures: str) -> bool:
    """Whether more jobs failed than a limit allows: a number, or a share such as `5%`."""
    share = max_failures.removesuffix("%")
    return failed > (jobs * float(share) / 100 if share != max_failures else int(share))


def follow(
    conn: Connection,
    jobs: Mapping[JobId, Job],
    decisions: Mapping[JobId, Decision],
    rules: Mapping[int, Rules],
) -> None:
    """Count what just failed, and hold the BOTs for which that is enough.

    The caller's transaction holds their rows.
    """
    watched = {name: job for name, job in jobs.items() if rules[name.bot].is_watched}
    limited = {
        name.bot
        for name, decision in decisions.items()
        if decision.failure is not None and rules[name.bot].max_failures is not None
    }
    failing = _count(conn, watched, decisions) if watched else {}
    for bot in _standing(conn, limited | failing.keys()):
        limit = bot.max_failures
        if limit is not None and is_too_many(bot.failed, bot.size, limit):
            most = f"and --max-failures is {limit}"
            _hold(conn, bot.id, f"{bot.failed} of its {bot.size} jobs failed, {most}")
        elif (
            bot.id in failing
            and failing[bot.id].are_enough(bot.size)
            and _have_witness(conn, failing[bot.id])
        ):
            _hold(conn, bot.id, failing[bot.id].why())


def _count(
    conn: Connection, watched: Mapping[JobId, Job], decisions: Mapping[JobId, Decision]
) -> dict[int, Failing]:
    """Count new failures of watched BOTs; return those BOTs of which nothing else is known."""
    working = {name.bot for name, job in watched.items() if _has_worked(job)}
    rows = [
        {**name._asdict(), "replica": item.replica, "voter": item.voter}
        for name, job in watched.items()
        for item in job.ended
        if name.bot not in working and item.how == State.ERROR and item.valid is None
        if item.replica in decisions[name].valid
    ]
    bots = sorted({name.bot for name in watched})
    failing = {item.bot: item for item in fetch(conn, Failing, SQL["failing"], {"bots": bots})}
    failures = fetch(conn, _Failure, SQL["failures"], {"replicas": encode(rows)}) if rows else []
    for item in failures:
        new = Failing(item.bot, item.reason, item.exit_code, item.line, 1, [item.voter])
        found = failing.get(item.bot, new._replace(replicas=0)).joined(new)
        if found is None:
            working.add(item.bot)
        else:
            failing[item.bot] = found
    if working:
        conn.execute(SQL["unwatch"], {"bots": sorted(working)})
    failing = {bot: item for bot, item in failing.items() if bot not in working}
    changed = {item.bot for item in failures} & failing.keys()
    if changed:
        remembered = [failing[bot]._asdict() for bot in sorted(changed)]
        conn.execute(SQL["remember"], {"failing": encode(remembered)})
    return failing


def _has_worked(job: Job) -> bool:
    """Whether a replica of the job's round has given an answer."""
    return any(item.how == State.SUCCESS and item.round == job.round for item in job.ended)


def _standing(conn: Connection, bots: Iterable[int]) -> list[_Standing]:
    wanted = sorted(bots)
    return fetch(conn, _Standing, SQL["standing"], {"bots": wanted}) if wanted else []


def _have_witness(conn: Connection, failing: Failing) -> bool:
    """Whether two saw it, or the only one who works for the BOT: others might do better."""
    if len(failing.voters) > 1:
        return True
    voters = [{"bot": failing.bot, "voter": failing.voters[0]}]
    return not fetch(conn, _Voter, CYCLES["others_work"], {"voters": encode(voters)})


def _hold(conn: Connection, bot: int, why: str) -> None:
    if conn.execute(SQL["hold"], {"bot": bot, "why": why}).rowcount:
        log.warning("BOT %d is held: %s", bot, why)
