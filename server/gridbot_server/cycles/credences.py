"""Who gave the answers of strangers, and what is known of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from gridbot_server.cycles.crews import CrewsAtWork, crews_at_work
from gridbot_server.cycles.job import Job, Rules
from gridbot_server.matching.assurance import AssuranceTerms, Credence
from gridbot_server.matching.track_record import TrackRecord, coin
from gridbot_server.storage import sql
from gridbot_server.storage.db import Connection
from gridbot_server.storage.rows import JobId, encode, fetch, fetch_only_value

SQL = sql.load("assurance.sql")

Answer = tuple[JobId, int]  # a replica


class CredenceRow(NamedTuple):
    """A success, and what is known of those who gave it."""

    bot: int
    seq: int
    replica: int
    host: int
    ended_at: datetime
    crew: str
    program: bytes
    is_vouched: bool
    streak: int
    caught: int
    crew_streak: int
    crew_caught: int
    is_relied_on: bool
    is_due: bool
    due_at: datetime | None
    is_seasoned: bool
    is_canonical: bool

    @property
    def record(self) -> TrackRecord:
        """What the host has proven."""
        return TrackRecord(self.streak, self.caught)

    def credence(self, coin: float) -> Credence:
        """How far the answer may be believed."""
        return Credence(
            host=self.record,
            crew=TrackRecord(self.crew_streak, self.crew_caught),
            is_vouched=self.is_vouched,
            is_seasoned=self.is_seasoned,
            is_due=self.is_due,
            coin=coin,
        )


@dataclass(slots=True)
class Believed:
    """Who gave the answers of a batch's jobs, where strangers did."""

    answers: dict[Answer, CredenceRow] = field(default_factory=dict)  # by replica
    # By BOT, of jobs with several answers: to count them takes time.
    at_work: dict[int, CrewsAtWork] = field(default_factory=dict)


def believe(conn: Connection, jobs: Mapping[JobId, Job], rules: Mapping[int, Rules]) -> Believed:
    """Give jobs whose answers come from strangers the credence of each, and the coins."""
    assured = {name: terms for name in jobs if (terms := rules[name.bot].terms)}
    if not assured:
        return Believed()
    secret = fetch_only_value(conn, str, SQL["coins"])
    listed = {"jobs": encode([name._asdict() for name in assured])}
    rows = fetch(conn, CredenceRow, SQL["credences"], listed)
    found = {(JobId(row.bot, row.seq), row.replica): row for row in rows}
    for name, terms in assured.items():
        _believe_job(jobs[name], name, found, terms, secret)
    several = [name for name in assured if jobs[name].has_several_answers]
    at_work = {bot: crews_at_work(conn, bot) for bot in {name.bot for name in several}}
    for name in several:
        jobs[name].crews = at_work[name.bot].crews
    return Believed(found, at_work)


def _believe_job(
    job: Job,
    name: JobId,
    found: Mapping[Answer, CredenceRow],
    terms: AssuranceTerms,
    secret: str,
) -> None:
    """Give its answers credence; coins only where they can matter, because they take time."""
    if terms.is_explicit:
        job.coin = coin(secret, *name)
    relied_on = []
    for place, item in enumerate(job.ended):
        row = found.get((name, item.replica))
        if row is None:
            continue
        of_answer = coin(secret, *name, item.replica) if terms.quorum == 1 else 1.0
        job.ended[place] = item._replace(credence=row.credence(of_answer))
        if row.is_relied_on:
            relied_on.append((not row.is_canonical, item.replica))
    job.relied_on = tuple(replica for _, replica in sorted(relied_on))
