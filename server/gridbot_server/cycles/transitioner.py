"""The transitioner: takes jobs that need a decision, in batches, and applies what `decide` says.

Validation and assimilation are part of it: verdicts, the canonical replica, the outcome and the
BOT's end are written in the one transaction that consumes the wake-ups.  Contents are compared
beside it (`comparing.py`): a job whose answers need that is woken again when it is done.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from functools import lru_cache
from heapq import nlargest
from operator import attrgetter
from typing import Any, NamedTuple

import psycopg

from gridbot_server import metrics
from gridbot_server.credit import ledger
from gridbot_server.credit.ledger import Valid
from gridbot_server.cycles import brake, credences, gangs, reputation, widths
from gridbot_server.cycles.attempts import lone_voters
from gridbot_server.cycles.job import Decision, Ended, Job, Rules
from gridbot_server.cycles.quorum import Compared, Pair
from gridbot_server.cycles.transition import decide
from gridbot_server.history import notable
from gridbot_server.matching import width
from gridbot_server.matching.assurance import terms_of
from gridbot_server.storage import moves, sql
from gridbot_server.storage.counters import CYCLES, Counters
from gridbot_server.storage.db import Connection
from gridbot_server.storage.rows import JobId, encode, fetch
from gridbot_server.storage.states import JOB_CANCELLED, RELINQUISHED, Event, State
from gridbot_server.validators.spec import UnknownValidator, Validator, parse

log = logging.getLogger(__name__)

SQL = sql.load("cycles.sql")
COMPARISONS = sql.load("comparisons.sql")
KNOWN = sql.load("known_answers.sql")

# What somebody has waited for already goes out before other copies.
PRIORITY = {"error": 1, "expired": 1}

# Errors that say nothing of the jobs of a batch.
_NOT_OURS = (psycopg.OperationalError, psycopg.InterfaceError, MemoryError)
_ERROR_LENGTH = 500  # characters that are kept of an error

# Reasons of replicas whose client did not end them.
NOT_ENDED = frozenset((Event.DEADLINE_PASSED, *RELINQUISHED))


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
    voter: int
    is_silent: bool  # its client is

    @property
    def ended(self) -> Ended:
        """As `decide` sees what has ended."""
        return Ended(
            replica=self.replica,
            round=self.round,
            how=self.how,
            reason=self.reason,
            digest=self.digest,
            valid=self.valid,
            ended_at=self.ended_at,
            voter=self.voter,
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


_RECENT_RUNS = 100  # of a BOT, by which the time of its replicas is known


class _Verdict(NamedTuple):
    """A verdict that was just given."""

    bot: int
    seq: int
    replica: int
    client: int
    host: int
    owner: int
    valid: bool
    reason: str
    cpu_seconds: float
    turnaround: float  # seconds from sending to report, by our clock
    wall_seconds: float  # that it ran, by the host's clock
    lag: float  # seconds since it ended
    waited: float | None  # seconds from its BOT's submission to sending; null: no first copy


_REPLICA = ("bot", "seq", "replica")
_SLOW = (*_REPLICA, "host", "client", "wall_seconds", "cpu_seconds")


class _Numbered(NamedTuple):
    """The last number that a BOT had given to an outcome."""

    bot: int
    last: int


class _Outcomes(NamedTuple):
    """How many jobs of a BOT are done, on a grid, or failed."""

    bot: int
    grid: str
    are_done: bool
    jobs: int


class _NewerValidator(Exception):
    """A validator that a newer server knows; its BOT's wake-ups are left to that."""

    def __init__(self, bot: int, error: UnknownValidator) -> None:
        super().__init__(f"BOT {bot}: {error}")
        self.bot = bot


def run_once(conn: Connection, limit: int = 2000) -> int:
    """Settle up to `limit` wake-ups; return how many there were.

    All in one transaction: a crash leaves them all to be settled again.  The wake-ups of a BOT
    with an unknown validator are kept: a server that knows it settles them.  A job at which this
    program fails is found by ever smaller batches, and set aside, so that it holds up no other.
    """
    left: list[int] = []
    while True:
        woken: list[JobId] = []
        verdicts: list[_Verdict] = []
        try:
            with conn.transaction():
                woken = fetch(conn, JobId, SQL["take_pending"], {"limit": limit, "left": left})
                if woken:
                    conn.execute(SQL["plan_by_keys"])
                    verdicts = _settle(conn, sorted(set(woken)))
            _observe(verdicts)  # once they stand
            return len(woken)
        except _NewerValidator as error:
            _complain(str(error))
            left.append(error.bot)
        except _NOT_OURS:
            raise
        except Exception as error:
            if not woken:
                raise
            if len(set(woken)) == 1:
                _set_aside(conn, woken[0], error)
                return 1
            limit = max(1, min(limit, len(woken)) // 2)


def try_again(conn: Connection) -> None:
    """Wake the jobs that were set aside: this program may be a newer one."""
    conn.execute(SQL["try_again"])


def _set_aside(conn: Connection, job: JobId, error: Exception) -> None:
    log.error(
        "job %d of BOT %d is set aside: it cannot be decided", job.seq, job.bot, exc_info=error
    )
    said = f"{type(error).__name__}: {error}".replace("\0", "")[:_ERROR_LENGTH]
    conn.execute(SQL["set_aside"], {**job._asdict(), "error": said})


@lru_cache(maxsize=1000)
def _complain(error: str) -> None:
    """Log an error that comes again in each pass, once."""
    log.error("%s: its jobs stay undecided until this server is updated", error)


def _settle(conn: Connection, ids: Sequence[JobId]) -> list[_Verdict]:
    """Decide jobs, in the caller's transaction; return the verdicts on their replicas."""
    rules = _lock_bots(conn, {bot for bot, _ in ids})
    of_gangs = gangs.gangs_of(ids, rules)
    gangs.lock(conn, of_gangs)
    together = [name for gang in of_gangs for name in gangs.members(gang, rules)]
    alone = [name for name in ids if name.bot in rules and rules[name.bot].together == 1]
    jobs = _load(conn, [*alone, *together], rules)
    _doubt(conn, {name: jobs[name] for name in alone}, rules)
    _recall_known(conn, jobs, rules)
    _recall_comparisons(conn, jobs, rules)
    believed = credences.believe(conn, jobs, rules)
    decisions = {name: decide(jobs[name], rules[name.bot]) for name in alone}
    for gang in of_gangs:
        members = {name: jobs[name] for name in gangs.members(gang, rules)}
        decisions |= gangs.decide_gang(members, rules[gang.bot])
    counters = Counters()
    gangs.follow(conn, of_gangs, jobs, decisions, rules, counters)
    verdicts = _judge(conn, decisions, rules)
    valid = [
        Valid(item.bot, item.seq, item.host, item.owner, item.turnaround)
        for item in verdicts
        if item.valid
    ]
    widths.forget(conn, jobs, decisions, rules)
    given = _earned(conn, [name for name, job in jobs.items() if job.has_outcome])
    credit = ledger.grant(conn, valid, given) if valid else {}
    _finish(conn, jobs, decisions, credit, counters)
    reputation.follow(conn, jobs, decisions, rules, believed, counters)
    brake.follow(conn, jobs, decisions, rules)
    _add_copies(conn, jobs, decisions, counters)
    _ask_comparisons(conn, decisions)
    counters.write(conn, CYCLES)
    return verdicts


def _lock_bots(conn: Connection, bots: Iterable[int]) -> dict[int, Rules]:
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
        )
        for bot in fetch(conn, _BotRules, SQL["lock_bots"], {"bots": list(bots)})
        if bot.state in ("running", "done")
    }


def _validator(bot: _BotRules) -> Validator:
    try:
        return _parsed(bot.validator)
    except UnknownValidator as error:
        raise _NewerValidator(bot.id, error) from None


_parsed = lru_cache(maxsize=1000)(parse)


def _load(conn: Connection, ids: Sequence[JobId], rules: Mapping[int, Rules]) -> dict[JobId, Job]:
    """Return the jobs as they are now."""
    jobs = {name: Job(rules[name.bot].first_round) for name in ids}
    for item in fetch(conn, _Replica, SQL["replicas"], _listed(ids)):
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
                job.ended.append(item.ended)
    return jobs


def _earned(conn: Connection, ids: Sequence[JobId]) -> dict[JobId, float]:
    """Return what finished jobs earned a replica."""
    if not ids:
        return {}
    found = fetch(conn, _Credit, SQL["credits"], _listed(ids))
    return {JobId(item.bot, item.seq): item.credit for item in found}


def _listed(ids: Sequence[JobId]) -> dict[str, str]:
    return {"jobs": encode([job._asdict() for job in ids])}


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
    listed = {"voters": encode([item._asdict() for item in asked])}
    doubted = set(fetch(conn, _Voter, SQL["others_work"], listed))
    for name, voters in lone.items():
        jobs[name].doubted = {voter for voter in voters if _Voter(name.bot, voter) in doubted}


def _recall_known(conn: Connection, jobs: Mapping[JobId, Job], rules: Mapping[int, Rules]) -> None:
    """Note the answers that owners of BOTs know."""
    asked = [name for name in jobs if rules[name.bot].has_known_answers]
    if asked:
        for item in fetch(conn, _KnownAnswer, KNOWN["known"], _listed(asked)):
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
    for item in fetch(conn, _Comparison, COMPARISONS["known"], _listed(asked)):
        found = Compared(item.verdict, item.why)
        known[JobId(item.bot, item.seq)][Pair(item.one, item.other)] = found
    for name, compared in known.items():
        jobs[name].compared = compared


def _ask_comparisons(conn: Connection, decisions: Mapping[JobId, Decision]) -> None:
    rows = [
        {**name._asdict(), "one": pair.one.hex(), "other": pair.other.hex()}
        for name, decision in decisions.items()
        for pair in decision.compare
    ]
    if rows:
        conn.execute(COMPARISONS["ask"], {"comparisons": encode(rows)})


def _judge(
    conn: Connection, decisions: Mapping[JobId, Decision], rules: Mapping[int, Rules]
) -> list[_Verdict]:
    """Write the verdicts, and count each new one for its host and BOT, once; return these."""
    rows = [
        {"bot": bot, "seq": seq, "replica": replica, "valid": valid}
        for (bot, seq), decision in decisions.items()
        for replica, valid in decision.valid.items()
    ]
    if not rows:
        return []
    verdicts = fetch(conn, _Verdict, SQL["judge"], {"verdicts": encode(rows)})
    if verdicts:
        _tally_pilots(conn, verdicts, rules)
        changes = _width_changes(verdicts, rules)
        _rate_hosts(conn, verdicts, changes)
        widths.widen_crews(conn, changes)
        _add_turnarounds(conn, verdicts)
        _remember(conn, verdicts)
    return verdicts


def _tally_pilots(
    conn: Connection, verdicts: Iterable[_Verdict], rules: Mapping[int, Rules]
) -> None:
    """Count what clients did and for how long, for those that are pilots.

    A replica that never came back is nobody's failure.
    """
    clients: dict[int, dict[str, Any]] = defaultdict(
        lambda: {"good": 0, "bad": 0, "core_seconds": 0.0, "failure": ""}
    )
    for item in verdicts:
        clients[item.client]["core_seconds"] += item.wall_seconds * rules[item.bot].cpus
        if item.valid:
            clients[item.client]["good"] += 1
        elif item.reason not in NOT_ENDED:
            clients[item.client]["bad"] += 1
            clients[item.client]["failure"] = item.reason
    if clients:
        rows = [{"id": client, **tally} for client, tally in sorted(clients.items())]
        conn.execute(SQL["tally_pilots"], {"clients": encode(rows)})


def _width_changes(
    verdicts: Iterable[_Verdict], rules: Mapping[int, Rules]
) -> dict[int, width.WidthChange]:
    """What verdicts on work for strangers do to the widths of hosts.

    What a grid or its host's user took back says nothing of the host.
    """
    changes: dict[int, width.WidthChange] = {}
    for item in verdicts:
        bot = rules[item.bot]
        if bot.among_strangers and bot.owner != item.owner and item.reason not in RELINQUISHED:
            is_wrong = not item.valid and not item.reason
            changes[item.host] = changes.get(item.host, width.WidthChange()).after(
                valid=item.valid, failed=not (item.valid or is_wrong), wrong=is_wrong
            )
    return changes


def _rate_hosts(
    conn: Connection, verdicts: Iterable[_Verdict], changes: Mapping[int, width.WidthChange]
) -> None:
    hosts: dict[int, dict[str, Any]] = defaultdict(
        lambda: {"good": 0, "bad": 0, "cpu": 0.0, "turnaround": 0.0}
    )
    for item in verdicts:
        rating = hosts[item.host]
        rating["good" if item.valid else "bad"] += 1
        if item.valid:
            rating["cpu"] += item.cpu_seconds
            rating["turnaround"] += item.turnaround
    unchanged = width.WidthChange()
    rows = [
        {"id": host, **rating, **asdict(changes.get(host, unchanged))}
        for host, rating in hosts.items()
    ]
    conn.execute(SQL["rate_hosts"], {"hosts": encode(rows)})


def _add_turnarounds(conn: Connection, verdicts: Iterable[_Verdict]) -> None:
    valid: dict[int, list[_Verdict]] = defaultdict(list)
    for item in verdicts:
        if item.valid:
            valid[item.bot].append(item)
    if valid:
        sums = [
            {
                "bot": bot,
                "seconds": sum(item.turnaround for item in found),
                "n": len(found),
                "runs": [item.wall_seconds for item in found[:_RECENT_RUNS]],
            }
            for bot, found in valid.items()
        ]
        conn.execute(SQL["add_turnarounds"], {"bots": encode(sums)})


def _observe(verdicts: Sequence[_Verdict]) -> None:
    """Let the metrics know how long replicas waited, ran, and were not judged."""
    metrics.VERDICT_LAG.observe_all(max(0.0, item.lag) for item in verdicts)
    metrics.JOB_SECONDS.observe_all(item.wall_seconds for item in verdicts if item.valid)
    metrics.QUEUE_WAIT.observe_all(
        max(0.0, item.waited) for item in verdicts if item.waited is not None
    )


def _remember(conn: Connection, verdicts: Iterable[_Verdict]) -> None:
    """Keep an example of each failure, and the slowest jobs."""
    examples: dict[tuple[int, str], _Verdict] = {}
    longest: dict[tuple[int, int], _Verdict] = {}  # of the answers of each job that agree
    for item in verdicts:
        if item.valid:
            job = item.bot, item.seq
            longest[job] = max(longest.get(job, item), item, key=attrgetter("wall_seconds"))
        elif item.reason and item.reason not in NOT_ENDED:
            examples[item.bot, item.reason] = item
    if examples:
        notable.keep_examples(conn, _picked(_REPLICA, examples.values()))
    of_bots: dict[int, list[_Verdict]] = defaultdict(list)
    for item in longest.values():
        of_bots[item.bot].append(item)
    if of_bots:
        slowest = [
            item
            for found in of_bots.values()
            for item in nlargest(notable.SLOWEST, found, key=attrgetter("wall_seconds"))
        ]
        notable.keep_slowest(conn, _picked(_SLOW, slowest))


def _picked(names: Sequence[str], items: Iterable[_Verdict]) -> list[dict[str, Any]]:
    return [{name: getattr(item, name) for name in names} for item in items]


def _finish(
    conn: Connection,
    jobs: Mapping[JobId, Job],
    decisions: Mapping[JobId, Decision],
    credit: Mapping[JobId, float],
    counters: Counters,
) -> None:
    """Give jobs their outcome, drop their other replicas, and end BOTs that have all outcomes."""
    finished = {name: item for name, item in decisions.items() if item.finishes}
    if finished:
        _add_outcomes(conn, jobs, finished, credit, counters)
        conn.execute(SQL["end_bots"], {"bots": sorted({bot for bot, _ in finished})})
    over = [name for name in decisions if name in finished or jobs[name].has_outcome]
    surplus = [name for name in over if jobs[name].leased or jobs[name].queued]
    if surplus:
        listed = _listed(surplus)
        # Copies first: one that is just being sent has become a lease when we have waited for it.
        moves.drop_copies(conn, "drop_copies_of_jobs", listed, counters)
        moves.end_unanswered(conn, Event.JOB_HAS_OUTCOME, listed, counters)


def _add_outcomes(
    conn: Connection,
    jobs: Mapping[JobId, Job],
    finished: Mapping[JobId, Decision],
    credit: Mapping[JobId, float],
    counters: Counters,
) -> None:
    done = Counter(bot for (bot, _), item in finished.items() if item.failure is None)
    failed = Counter(bot for (bot, _), item in finished.items() if item.failure is not None)
    bots = [
        {"bot": bot, "done": done[bot], "failed": failed[bot]} for bot in sorted({*done, *failed})
    ]
    numbered = fetch(conn, _Numbered, SQL["number_outcomes"], {"bots": encode(bots)})
    last = {item.bot: item.last for item in numbered}
    rows = []
    for name, decision in finished.items():
        last[name.bot] += 1
        rows.append(
            {
                **name._asdict(),
                "round": jobs[name].round,
                "canonical": decision.canonical,
                "reason": decision.failure,
                "n": last[name.bot],
                "credit": credit.get(name, 0.0),
            }
        )
    for item in fetch(conn, _Outcomes, SQL["add_outcomes"], {"outcomes": encode(rows)}):
        counters.note(item.bot, item.grid, "done" if item.are_done else "failed", item.jobs)


def _add_copies(
    conn: Connection,
    jobs: Mapping[JobId, Job],
    decisions: Mapping[JobId, Decision],
    counters: Counters,
) -> None:
    rows = [
        {
            **name._asdict(),
            "replica": jobs[name].last_replica + copy,
            "round": jobs[name].round,
            "why": decision.why,
            "prio": PRIORITY.get(decision.why, 0),
            "pool": decision.pool,
        }
        for name, decision in decisions.items()
        for copy in range(1, decision.copies + 1)
    ]
    if rows:
        moves.add_copies(conn, rows, counters)
