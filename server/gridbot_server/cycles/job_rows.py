"""Reads what decisions need: the rules of BOTs, whose rows it locks, and jobs as they are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import NamedTuple

from gridbot_server.cycles import brake
from gridbot_server.cycles.attempts import lone_voters
from gridbot_server.cycles.job import Ended, Job, Rules
from gridbot_server.cycles.quorum import Compared, Pair
from gridbot_server.matching.assurance import terms_of
from gridbot_server.storage import sql
from gridbot_server.storage.db import Connection
from gridbot_server.storage.rows import JobId, encode, fetch
from gridbot_server.storage.states import JOB_CANCELLED, State
from gridbot_server.validators.spec import UnknownValidator, Validator, parse

SQL = sql.load("cycles.sql")
COMPARISONS = sql.load("comparisons.sql")
KNOWN = sql.load("known_answers.sql")


class _BotRules(NamedTuple):
    """What a BOT says of how its jobs are judged, and its state."""

    id: int
    state: str
    owner: int
    cpus: int
    quorum: int
    max_attempts: int
    validator: str
    failover_after: int | None
    max_replicas: int
    among_strangers: bool
    assurance: float | None
    has_known_answers: bool
    watched: bool
    max_failures: str | None
    first_round: int
    together: int
    created_at: float


class _Replica(NamedTuple):
    """A replica of a job, or with `how` = outcome the canonical one, 0 if the job failed."""

    bot: int
    seq: int
    replica: int
    round: int
    how: str
    reason: str
    digest: bytes | None
    valid: bool | None
    ended_at: datetime
    host: int
    owner: int
    client: int
    is_silent: bool  # its client is

    def ended(self, *, among_strangers: bool) -> Ended:
        """As `decide` sees what has ended.  Among strangers, the machines of one count as one."""
        return Ended(
            replica=self.replica,
            round=self.round,
            how=self.how,
            reason=self.reason,
            digest=self.digest,
            valid=self.valid,
            ended_at=self.ended_at,
            voter=self.owner if among_strangers else self.host,
            client=self.client,
            host=self.host,
        )


class _Voter(NamedTuple):
    """A voter of a BOT, beside whom others work for it."""

    bot: int
    voter: int


class _Comparison(NamedTuple):
    """Two answers of a job whose contents were compared."""

    bot: int
    seq: int
    one: bytes
    other: bytes
    verdict: str
    why: str


class _KnownAnswer(NamedTuple):
    """The digest of an answer that the owner of a BOT knows."""

    bot: int
    seq: int
    digest: bytes


class _Credit(NamedTuple):
    """What a finished job earned a replica."""

    bot: int
    seq: int
    credit: float


class NewerValidator(Exception):
    """A validator that a newer server knows; its BOT's wake-ups are left to that."""

    def __init__(self, bot: int, error: UnknownValidator) -> None:
        super().__init__(f"BOT {bot}: {error}")
        self.bot = bot


def lock_bots(conn: Connection, bots: Iterable[int]) -> dict[int, Rules]:
    """Return the rules of those BOTs that run or ran to their end; cancelled ones are left out."""
    return {
        bot.id: Rules(
            bot.quorum,
            bot.max_attempts,
            _validator(bot),
            bot.failover_after,
            owner=bot.owner,
            cpus=bot.cpus,
            among_strangers=bot.among_strangers,
            terms=terms_of(bot.assurance, bot.quorum, bot.among_strangers),
            has_known_answers=bot.has_known_answers,
            max_replicas=bot.max_replicas,
            is_watched=bot.watched and bot.max_failures != brake.ANY_NUMBER,
            max_failures=bot.max_failures,
            first_round=bot.first_round,
            together=bot.together,
            created_at=bot.created_at,
        )
        for bot in fetch(conn, _BotRules, SQL["lock_bots"], {"bots": list(bots)})
        if bot.state in ("running", "done")
    }


def _validator(bot: _BotRules) -> Validator:
    try:
        return _parsed(bot.validator)
    except UnknownValidator as error:
        raise NewerValidator(bot.id, error) from None


_parsed = lru_cache(maxsize=1000)(parse)


def load(
    conn: Connection,
    alone: Sequence[JobId],
    together: Sequence[JobId],
    rules: Mapping[int, Rules],
) -> dict[JobId, Job]:
    """Return jobs as they are now, with what else their decisions depend on.

    Those `alone` are decided one by one, those `together` as gangs.
    """
    jobs = _with_replicas(conn, [*alone, *together], rules)
    _doubt(conn, {name: jobs[name] for name in alone}, rules)
    _recall_known(conn, jobs, rules)
    _recall_comparisons(conn, jobs, rules)
    return jobs


def _with_replicas(
    conn: Connection, ids: Sequence[JobId], rules: Mapping[int, Rules]
) -> dict[JobId, Job]:
    jobs = {name: Job(rules[name.bot].first_round) for name in ids}
    for item in fetch(conn, _Replica, SQL["replicas"], listed(ids)):
        job = jobs[JobId(item.bot, item.seq)]
        job.round = max(job.round, item.round)
        match item.how:
            case State.QUEUED:
                job.queued.append(item.replica)
            case State.LEASED:
                job.leased.append(item.replica)
                if item.is_silent:
                    job.silent.append(item.replica)
            case "outcome":
                job.canonical, job.has_outcome = item.replica or None, True
                job.is_cancelled = item.reason == JOB_CANCELLED
            case _:
                job.ended.append(item.ended(among_strangers=rules[item.bot].among_strangers))
    return jobs


def earned(conn: Connection, ids: Sequence[JobId]) -> dict[JobId, float]:
    """Return what finished jobs earned a replica."""
    if not ids:
        return {}
    found = fetch(conn, _Credit, SQL["credits"], listed(ids))
    return {JobId(item.bot, item.seq): item.credit for item in found}


def listed(ids: Iterable[JobId]) -> dict[str, str]:
    """The jobs as statements take them."""
    return {"jobs": encode([{"bot": bot, "seq": seq} for bot, seq in ids])}


def _doubt(conn: Connection, jobs: Mapping[JobId, Job], rules: Mapping[int, Rules]) -> None:
    """Note the lone reporters by whom a job would be given up although others work for its BOT."""
    lone = {
        name: lone_voters(job, rules[name[0]])
        for name, job in jobs.items()
        if len(job.ended) >= rules[name[0]].max_attempts
    }
    asked = sorted({_Voter(job.bot, voter) for job, voters in lone.items() for voter in voters})
    if not asked:
        return
    voters_of_bots = {"voters": encode([item._asdict() for item in asked])}
    doubted = set(fetch(conn, _Voter, SQL["others_work"], voters_of_bots))
    for name, voters in lone.items():
        jobs[name].doubted = {voter for voter in voters if _Voter(name.bot, voter) in doubted}


def _recall_known(conn: Connection, jobs: Mapping[JobId, Job], rules: Mapping[int, Rules]) -> None:
    """Note the answers that owners of BOTs know."""
    asked = [name for name in jobs if rules[name.bot].has_known_answers]
    if asked:
        for item in fetch(conn, _KnownAnswer, KNOWN["known"], listed(asked)):
            jobs[JobId(item.bot, item.seq)].known = item.digest


def _recall_comparisons(
    conn: Connection, jobs: Mapping[JobId, Job], rules: Mapping[int, Rules]
) -> None:
    """Note what came of comparing contents, for the jobs that may need it."""
    asked = [
        name
        for name, job in jobs.items()
        if rules[name.bot].validator.reads_contents and (len(job.ended) > 1 or job.known)
    ]
    if not asked:
        return
    known: dict[JobId, dict[Pair, Compared]] = defaultdict(dict)
    for item in fetch(conn, _Comparison, COMPARISONS["known"], listed(asked)):
        found = Compared(item.verdict, item.why)
        known[JobId(item.bot, item.seq)][Pair(item.one, item.other)] = found
    for name, compared in known.items():
        jobs[name].compared = compared
