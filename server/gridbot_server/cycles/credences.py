"""Who gave the answers of strangers, and what is known of them.

What a host has proven is looked up once for all that it answered a BOT, and judged once: hosts
answer several jobs at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from gridbot_server.cycles import job_rows
from gridbot_server.cycles.crews import CrewsAtWork, crews_at_work
from gridbot_server.cycles.job import Job, Rules
from gridbot_server.matching.assurance import AssuranceTerms, Credence
from gridbot_server.matching.track_record import TrackRecord, coin
from gridbot_server.matching.width import FULL
from gridbot_server.storage import sql
from gridbot_server.storage.db import Connection
from gridbot_server.storage.rows import JobId, encode, fetch, fetch_only_value
from gridbot_server.storage.states import State

SQL = sql.load("assurance.sql")

# Any constant will do that nothing else locks.
_ASSURANCE_LOCK = 7_216_004_885

Answer = tuple[JobId, int]  # a replica
_Answerer = tuple[int, int, int, int]  # a BOT, a host, its client, and whose that was then
_ANSWERER = ("bot", "host", "client", "owner")


class _Relied(NamedTuple):
    """A replica that a provisional outcome relies on, and what that knew when it was made."""

    bot: int
    seq: int
    replica: int
    is_due: bool
    due_at: datetime | None
    is_seasoned: bool
    is_canonical: bool


_UNRELIED = _Relied(0, 0, 0, is_due=False, due_at=None, is_seasoned=False, is_canonical=False)


class AnswererStanding(NamedTuple):
    """What is known of who gave answers to a BOT."""

    bot: int
    host: int
    client: int
    owner: int
    crew: str
    program: bytes
    is_vouched: bool
    streak: int
    caught: int
    crew_streak: int
    crew_caught: int
    is_full: bool  # its host's width, and its crew's: no answer widens them

    @property
    def record(self) -> TrackRecord:
        """What the host has proven."""
        return TrackRecord(self.streak, self.caught)

    @property
    def crew_record(self) -> TrackRecord:
        """What the host's crew has proven."""
        return TrackRecord(self.crew_streak, self.crew_caught)

    def credence(self, relied: _Relied, coin: float) -> Credence:
        """How far an answer may be believed."""
        return Credence(
            host=self.record,
            crew=self.crew_record,
            is_vouched=self.is_vouched,
            is_seasoned=relied.is_seasoned,
            is_due=relied.is_due,
            coin=coin,
        )


class Given(NamedTuple):
    """An answer, by whom, and when it was chosen among all that its host had open."""

    standing: AnswererStanding
    ended_at: datetime
    due_at: datetime | None


@dataclass(slots=True)
class Believed:
    """Who gave the answers of a batch's jobs, where strangers did."""

    answers: dict[Answer, Given] = field(default_factory=dict)  # by replica
    # By BOT, of jobs with several answers: to count them takes time.
    at_work: dict[int, CrewsAtWork] = field(default_factory=dict)


def take_turns(conn: Connection) -> str:
    """Let no other batch believe anybody until the caller's transaction ends.

    Return the secret of the coins.
    """
    return fetch_only_value(conn, str, SQL["take_turns"], {"lock": _ASSURANCE_LOCK})


def believe(
    conn: Connection, jobs: Mapping[JobId, Job], rules: Mapping[int, Rules], secret: str
) -> Believed:
    """Give jobs whose answers come from strangers the credence of each, and the coins.

    No other batch may do so at the same time (`take_turns`).
    """
    assured = {name: terms for name in jobs if (terms := rules[name.bot].terms)}
    if not assured:
        return Believed()
    believer = _Believer(
        secret,
        _standings(conn, {name: jobs[name] for name in assured}),
        _relied_on(conn, assured),
    )
    for name, terms in assured.items():
        believer.believe(name, jobs[name], terms)
    several = [name for name in assured if jobs[name].has_several_answers]
    at_work = {bot: crews_at_work(conn, bot) for bot in {name.bot for name in several}}
    for name in several:
        jobs[name].crews = at_work[name.bot].crews
    return Believed(believer.answers, at_work)


def _standings(conn: Connection, jobs: Mapping[JobId, Job]) -> dict[_Answerer, AnswererStanding]:
    asked = {
        (name.bot, item.host, item.client, item.voter)
        for name, job in jobs.items()
        for item in job.ended
        if item.how == State.SUCCESS
    }
    rows = [dict(zip(_ANSWERER, answerer, strict=True)) for answerer in asked]
    given = {"answerers": encode(rows), "full": FULL}
    found = fetch(conn, AnswererStanding, SQL["standings"], given) if rows else []
    return {(item.bot, item.host, item.client, item.owner): item for item in found}


def _relied_on(conn: Connection, names: Iterable[JobId]) -> dict[JobId, dict[int, _Relied]]:
    found: dict[JobId, dict[int, _Relied]] = {}
    for item in fetch(conn, _Relied, SQL["relied_on"], job_rows.listed(names)):
        found.setdefault(JobId(item.bot, item.seq), {})[item.replica] = item
    return found


class _Believer:
    """Gives answers their credence; those that are alike share one."""

    def __init__(
        self,
        secret: str,
        standings: Mapping[_Answerer, AnswererStanding],
        relied_on: Mapping[JobId, Mapping[int, _Relied]],
    ) -> None:
        self.answers: dict[Answer, Given] = {}
        self._secret = secret
        self._standings = standings
        self._relied_on = relied_on
        self._shared: dict[tuple[_Answerer, bool, bool, float], Credence] = {}

    def believe(self, name: JobId, job: Job, terms: AssuranceTerms) -> None:
        """Give a job's answers credence; coins only where they can matter: they take time."""
        if terms.is_explicit:
            job.coin = coin(self._secret, *name)
        relied_on = self._relied_on.get(name, {})
        for place, item in enumerate(job.ended):
            answerer = name.bot, item.host, item.client, item.voter
            standing = self._standings.get(answerer)
            if standing is None or item.how != State.SUCCESS:
                continue
            relied = relied_on.get(item.replica, _UNRELIED)
            drawn = coin(self._secret, *name, item.replica) if terms.quorum == 1 else 1.0
            alike = answerer, relied.is_seasoned, relied.is_due, drawn
            if (made := self._shared.get(alike)) is None:
                made = self._shared[alike] = standing.credence(relied, drawn)
            job.ended[place] = item._replace(credence=made)
            self.answers[name, item.replica] = Given(standing, item.ended_at, relied.due_at)
        if relied_on:
            listed = sorted((not item.is_canonical, item.replica) for item in relied_on.values())
            job.relied_on = tuple(replica for _, replica in listed)
