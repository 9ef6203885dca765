"""What the transitioner and the other cycles ask (`cycles.sql`); samples are in `sampling.py`."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Sequence

from gridbot_server.matching.width import START
from gridbot_simulator.store.sampling import order_of
from gridbot_simulator.store.statements import Rows, Statements, listed
from gridbot_simulator.store.tables import DAY, Job, StoredBot, StoredOutcome, Tables

STATEMENTS = Statements("cycles.sql")

# Plans and locks are for PostgreSQL; unjudged replicas are those of strangers.
STATEMENTS.has_no_effect("plan_by_keys", "forget_unjudged")

_KEPT = 0.95  # of a host's averages, with each verdict
_LEAST_RATE = 1e-6
_MOST_WIDTH = 1024.0
_RECENT_RUNS, _USUAL = 100, 0.95


# ---------------------------------------------------------------------- the transitioner reads


@STATEMENTS.answers_to("take_pending")
def take_pending(tables: Tables, of: int, number: int, limit: int, left: Collection[int]) -> Rows:
    """Take wake-ups of a part of the BOTs."""
    taken, kept = list[Job](), list[Job]()
    for job in tables.pending:
        is_wanted = len(taken) < limit and job[0] % of == number and job[0] not in left
        (taken if is_wanted else kept).append(job)
    tables.pending = kept
    return taken


@STATEMENTS.answers_to("lock_bots")
def lock_bots(tables: Tables, bots: Sequence[int]) -> Rows:
    """The rules of BOTs."""
    return [
        (
            bot.id, bot.state, bot.owner, bot.manifest.resources.cpus, bot.quorum, bot.max_attempts,
            "exact", bot.failover_after, bot.max_replicas, False, None, False, bot.watched,
            bot.max_failures, 0, 1, bot.created_at,
        )
        for bot in _bots(tables, bots)
    ]  # fmt: skip


@STATEMENTS.answers_to("replicas")
def replicas(tables: Tables, jobs: str) -> Rows:
    """All replicas of jobs, and their outcomes."""
    rows: list[tuple[object, ...]] = []
    for job in ((item["bot"], item["seq"]) for item in listed(jobs)):
        for copy in tables.waiting[job].values() if job in tables.waiting else ():
            row = (*copy.name, copy.round, "queued", "", None, None, tables.now, 0, 0, 0, False)
            rows.append(row)
        for lease in tables.leases[job].values() if job in tables.leases else ():
            is_silent = tables.is_silent(lease.client)
            ended = (None, None, tables.now, 0, 0, 0)
            row = (*lease.name, lease.round, "leased", "", *ended, is_silent)
            rows.append(row)
        rows.extend(
            (
                *end.lease.name, end.lease.round, end.how, end.reason, end.digest, end.valid,
                end.ended_at, end.lease.host, end.lease.owner, end.lease.client, False,
            )
            for end in tables.ends(*job)
        )  # fmt: skip
        if outcome := tables.outcomes.get(job):
            canonical, reason = outcome.canonical or 0, outcome.reason or ""
            rows.append(
                (
                    *job, canonical, outcome.round, "outcome", reason, None, None, tables.now, 0,
                    0, 0, False,
                )
            )  # fmt: skip
    return rows


@STATEMENTS.answers_to("others_work")
def others_work(tables: Tables, voters: str) -> Rows:
    """Those voters beside whom somebody else holds a replica of the BOT."""
    asked = [(item["bot"], item["voter"]) for item in listed(voters)]
    return [
        (bot, voter)
        for bot, voter in asked
        if any(
            tables.voter(lease) != voter and not tables.is_silent(lease.client)
            for seq in tables.running[bot]
            for lease in tables.leases[bot, seq].values()
        )
    ]


@STATEMENTS.answers_to("credits")
def credits(tables: Tables, jobs: str) -> Rows:  # the statement's name
    """What finished jobs earned a replica."""
    asked = ((item["bot"], item["seq"]) for item in listed(jobs))
    return [(*job, tables.outcomes[job].credit) for job in asked if job in tables.outcomes]


# --------------------------------------------------------------------- the transitioner writes


@STATEMENTS.answers_to("judge")
def judge(tables: Tables, verdicts: str) -> Rows:
    """Give verdicts, once; what comes back is what is new."""
    rows = []
    for item in listed(verdicts):
        end = tables.find_end(item["bot"], item["seq"], item["replica"])
        if end is None or end.valid is not None:
            continue
        end.valid, lease = item["valid"], end.lease
        rows.append(
            (
                *lease.name, lease.client, lease.host, lease.owner, end.valid, end.reason,
                end.cpu_seconds or 0.0, end.ended_at - lease.sent_at, end.wall_seconds or 0.0,
                tables.now - end.ended_at, lease.sent_at if lease.why == "first" else None,
            )
        )  # fmt: skip
    return rows


@STATEMENTS.answers_to("tally_pilots")
def tally_pilots(tables: Tables, clients: str) -> None:
    """Count what pilots did."""
    for item in listed(clients):
        client = tables.clients.get(item["id"])
        if client is not None and client.grid is not None:
            client.jobs, client.failures = client.jobs + item["good"], client.failures + item["bad"]
            client.core_seconds += item["core_seconds"]
            client.failure = item["failure"] or client.failure


@STATEMENTS.answers_to("number_outcomes")
def number_outcomes(tables: Tables, bots: str) -> Rows:
    """Count outcomes, and say which numbers they get."""
    rows = []
    for item in listed(bots):
        bot = tables.bots[item["bot"]]
        rows.append((bot.id, bot.outcomes))
        bot.outcomes += item["done"] + item["failed"]
        bot.done, bot.failed = bot.done + item["done"], bot.failed + item["failed"]
    return rows


@STATEMENTS.answers_to("add_turnarounds")
def add_turnarounds(tables: Tables, bots: str) -> None:
    """Learn how long a BOT's replicas take."""
    for item in listed(bots):
        bot = tables.bots[item["bot"]]
        bot.turnaround_sum += item["seconds"]
        bot.turnaround_n += item["n"]
        bot.recent_runs = (item["runs"] + bot.recent_runs)[:_RECENT_RUNS]
        runs = sorted(bot.recent_runs)
        # The first of which that part is not greater.
        place = next(n for n in range(1, len(runs) + 1) if n >= _USUAL * len(runs))
        bot.usual_seconds = runs[place - 1]


@STATEMENTS.answers_to("add_outcomes")
def add_outcomes(tables: Tables, outcomes: str, done: str) -> Rows:
    """Give jobs their outcomes; count those that are done by BOT and grid."""
    for item in listed(outcomes):
        tables.outcomes[item["bot"], item["seq"]] = StoredOutcome(
            item["round"], item["canonical"], item["reason"], item["n"], item["credit"]
        )
    counts = Counter[tuple[int, str]]()
    for item in listed(done):
        counts[item["bot"], tables.grid(item["client"])] += item["jobs"]
    return [(*key, count) for key, count in counts.items()]


@STATEMENTS.answers_to("end_bots")
def end_bots(tables: Tables, bots: Sequence[int]) -> Rows:
    """End BOTs that have all outcomes."""
    over = [
        bot
        for bot in _bots(tables, bots)
        if bot.state == "running" and bot.done + bot.failed >= bot.size
    ]
    for bot in over:
        bot.state, bot.ended_at = "done", tables.now
    return [(bot.id,) for bot in over]


# ------------------------------------------------------------------------ hosts and crews


@STATEMENTS.answers_to("rate_hosts")
def rate_hosts(tables: Tables, hosts: str) -> None:
    """Let verdicts move the averages of hosts."""
    now = tables.now
    for item in listed(hosts):
        host = tables.hosts.get(item["id"])
        if host is None:
            continue
        good, bad = item["good"], item["bad"]
        kept, mean = _KEPT ** (good + bad), host.mean_turnaround
        host.width = min(_MOST_WIDTH, max(1.0, host.width * item["factor"] + item["growth"]))
        rate = host.error_rate * kept + (1 - kept) * bad / max(1, good + bad)
        host.error_rate = max(_LEAST_RATE, rate)
        if good:
            part, fresh = _KEPT**good, item["turnaround"] / good
            host.mean_turnaround = fresh if mean is None else mean * part + (1 - part) * fresh
        host.good, host.jobs_day = host.jobs_today(now) + good, int(now // DAY)
        host.cpu, host.recent_at = host.recent_cpu(now) + item["cpu"], now


@STATEMENTS.answers_to("crews")
def crews(tables: Tables, hosts: Sequence[int]) -> Rows:
    """Who answers for hosts, and whether its width is known."""
    found = [(host, tables.hosts[host].crew) for host in hosts if host in tables.hosts]
    return [(host, crew, crew in tables.crews) for host, crew in found]


@STATEMENTS.answers_to("meet_crews")
def meet_crews(tables: Tables, names: Sequence[str]) -> None:
    """Give crews the width of newcomers."""
    for name in names:
        tables.crews.setdefault(name, START)


@STATEMENTS.answers_to("widen_crews")
def widen_crews(tables: Tables, crews: str) -> None:
    """Change the widths of crews."""
    for item in listed(crews):
        if item["name"] in tables.crews:
            width = tables.crews[item["name"]] * item["factor"] + item["growth"]
            tables.crews[item["name"]] = min(_MOST_WIDTH, max(1.0, width))


# ------------------------------------------------------------------------- the other cycles


@STATEMENTS.answers_to("tails")
def tails(tables: Tables) -> Rows:
    """BOTs in their tail phase."""
    return [
        (
            bot.id, bot.name, bot.owner, tables.owners[bot.owner].name, False, bot.policy,
            bot.version, bot.max_replicas, bot.size, bot.done, bot.failed,
            bot.size - bot.first + bot.queued, bot.running, bot.tail, bot.created_at,
            bot.mean_turnaround,
        )
        for bot in tables.bots.values()
        if bot.state == "running" and bot.tail and bot.suspended is None and bot.held is None
    ]  # fmt: skip


@STATEMENTS.answers_to("running_jobs")
def running_jobs(tables: Tables, bot: int, most: int, chance: int, limit: int) -> Rows:
    """Sample jobs that run and have no copy queued."""
    order = order_of(chance)
    counted = (
        (seq, len(tables.leases[bot, seq]))
        for seq in tables.running[bot]
        if (bot, seq) not in tables.waiting
    )
    found = ((order(seq, count), seq) for seq, count in counted if count < most)
    return [(bot, seq) for _, seq in heapq.nsmallest(limit, found)]


@STATEMENTS.answers_to("next_replicas")
def next_replicas(tables: Tables, jobs: str) -> Rows:
    """The next replica of each job that runs and has no copy queued."""
    rows = []
    for job in ((item["bot"], item["seq"]) for item in listed(jobs)):
        is_over = job in tables.outcomes or tables.bots[job[0]].state != "running"
        if job not in tables.leases or job in tables.waiting or is_over:
            continue
        leases = tables.leases[job]
        last = max(max(leases), max(tables.ended.get(job, {0: None})))
        rows.append((*job, max(lease.round for lease in leases.values()), 1 + last))
    return rows


@STATEMENTS.answers_to("job_queue")
def job_queue(tables: Tables) -> Rows:
    """Count BOTs that run, and their jobs without an outcome."""
    running = [bot for bot in tables.bots.values() if bot.state == "running"]
    return [(len(running), sum(bot.size - bot.done - bot.failed for bot in running))]


@STATEMENTS.answers_to("last_contact")
def last_contact(tables: Tables) -> Rows:
    """How long ago any client was heard of."""
    seen = (client.seen_at for client in tables.clients.values())
    return [(float(tables.now - max(seen, default=tables.now)),)]


@STATEMENTS.answers_to("holders")
def holders(tables: Tables, after: int, limit: int) -> Rows:
    """Clients that hold replicas, in order."""
    found = (client for client, leases in tables.held.items() if leases and client > after)
    clients = (tables.clients[number] for number in heapq.nsmallest(limit, found))
    return [
        (
            client.id, client.seen_at, tables.now - client.seen_at, client.contact_seconds, False,
            client.silent_since is not None,
        )
        for client in clients
    ]  # fmt: skip


@STATEMENTS.answers_to("silence")
def silence(tables: Tables, clients: Sequence[int], seen_at: Sequence[float]) -> int:
    """Mark clients as silent, unless they have asked since, and wake their jobs."""
    woken = 0
    for number, seen in zip(clients, seen_at, strict=True):
        client = tables.clients[number]
        if client.seen_at != seen or client.silent_since is not None:
            continue
        client.silent_since = tables.now
        jobs = [(lease.bot, lease.seq) for lease in tables.held[number].values()]
        tables.pending += jobs
        woken += len(jobs)
    return woken


@STATEMENTS.answers_to("clock")
def clock(tables: Tables) -> Rows:
    """The time."""
    return [(tables.now,)]


def _bots(tables: Tables, bots: Sequence[int]) -> list[StoredBot]:
    return [tables.bots[number] for number in sorted(bots) if number in tables.bots]
