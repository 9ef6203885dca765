"""What the feeder asks: BOTs, ranges of unsent jobs, further copies (`feeder.sql` and others)."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Sequence
from datetime import timedelta

from gridbot_server.storage.states import State
from gridbot_simulator.store.statements import Rows, Statements, listed, numbers
from gridbot_simulator.store.tables import FeedRange, Job, StoredCopy, StoredEnd, Tables

STATEMENTS = Statements("feeder.sql")
PROOFS = Statements("job_proofs.sql")
SIBLINGS = Statements("siblings.sql")

_ACTIVE_SECONDS = 600.0  # as in `clients_active`
_LATELY_SECONDS = 300.0  # as in `siblings`


@STATEMENTS.answers_to("bots")
def bots(tables: Tables, most: int, only: str | None) -> Rows:
    """BOTs to be sent."""
    running = [
        bot
        for bot in tables.bots.values()
        if bot.state == "running" and bot.held is None and (only is None or bot.id in numbers(only))
    ]
    return [
        (
            bot.id, bot.version, bot.owner, bot.size, bot.size - bot.first, bot.queued, bot.running,
            bot.done, bot.failed, bot.tail, bot.created_at, bot.mean_turnaround,
            bot.usual_seconds if bot.turnaround_n else None, bot.fed, bot.tail_threshold,
            bot.tail_sticky, False, False, 1, False, bot.manifest_id, 0,
        )
        for bot in running[:most]
    ]  # fmt: skip


@STATEMENTS.answers_to("set_tail")
def set_tail(tables: Tables, tail: bool, bots: Sequence[int]) -> None:
    """Let BOTs enter their tail phase, or leave it."""
    for bot in (tables.bots[number] for number in bots):
        bot.tail = tail
        bot.tail_since = (bot.tail_since or tables.now) if tail else None


@STATEMENTS.answers_to("clients_active")
def clients_active(tables: Tables) -> Rows:
    """Count clients that were heard of lately."""
    since = tables.now - _ACTIVE_SECONDS
    return [(sum(client.seen_at > since for client in tables.clients.values()),)]


@STATEMENTS.answers_to("renew_ranges")
def renew_ranges(tables: Tables, machine: str, lifetime: timedelta) -> Rows:
    """Keep ranges, and take over those that nobody keeps."""
    rows = []
    for (bot, lo), found in tables.ranges.items():
        is_ours = found.machine == machine or found.expires_at < tables.now
        if is_ours and tables.bots[bot].state == "running":
            if found.machine != machine:
                tables.bots[bot].gathered = max(tables.bots[bot].gathered, found.hi)
            found.machine, found.expires_at = machine, tables.now + lifetime.total_seconds()
            rows.append((bot, lo, found.hi))
    return rows


@STATEMENTS.answers_to("drop_idle_ranges")
def drop_idle_ranges(tables: Tables) -> None:
    """Give up the ranges of BOTs that are over."""
    for key in [key for key in tables.ranges if tables.bots[key[0]].state in ("done", "cancelled")]:
        del tables.ranges[key]


@STATEMENTS.answers_to("claim_ranges")
def claim_ranges(tables: Tables, claims: str, machine: str, lifetime: timedelta) -> Rows:
    """Claim the next jobs of BOTs."""
    rows = []
    for item in sorted(listed(claims), key=lambda claim: claim["bot"]):
        bot = tables.bots[item["bot"]]
        if bot.state != "running" or bot.fed >= bot.size:
            continue
        lo, bot.fed = bot.fed, min(bot.fed + item["jobs"], bot.size)
        expires_at = tables.now + lifetime.total_seconds()
        tables.ranges[bot.id, lo] = FeedRange(bot.fed, machine, expires_at)
        rows.append((bot.id, lo, bot.fed))
    return rows


@STATEMENTS.answers_to("give_back_jobs")
def give_back_jobs(tables: Tables, given: str, machine: str) -> None:
    """Let what was claimed last be claimed again."""
    for item in listed(given):
        bot, upto = tables.bots[item["bot"]], item["upto"]
        ranges = {key: found for key, found in tables.ranges.items() if key[0] == bot.id}
        if bot.fed != item["fed"] or any(
            found.hi > upto and found.machine != machine for found in ranges.values()
        ):
            continue
        sent = [
            seq + 1
            for table in (tables.leases, tables.ended)
            for of, seq in table
            if of == bot.id and upto <= seq < bot.fed
        ]
        bot.fed = upto = max(upto, bot.gathered, *sent)
        for (number, lo), found in ranges.items():
            if lo >= upto:
                del tables.ranges[number, lo]
            else:
                found.hi = min(found.hi, upto)


@STATEMENTS.answers_to("range_jobs")
def range_jobs(tables: Tables, bot: int, lo: int, hi: int, most: int) -> Rows:  # noqa: ARG001
    """All jobs of a range."""
    return _texts(tables, ((bot, seq) for seq in range(lo, min(hi, tables.bots[bot].size))))


@STATEMENTS.answers_to("unsent_jobs")
def unsent_jobs(tables: Tables, bot: int, lo: int, hi: int, most: int) -> Rows:
    """Jobs of a range of which no copy was ever sent or queued."""
    jobs = ((bot, seq) for seq in range(lo, min(hi, tables.bots[bot].size)))
    seen = tables.leases, tables.ended, tables.waiting, tables.outcomes
    unsent = [job for job in jobs if not any(job in table for table in seen)]
    return _texts(tables, unsent[:most])


@STATEMENTS.answers_to("drop_sent_ranges")
def drop_sent_ranges(tables: Tables, ranges: str, machine: str) -> Rows:
    """Give up ranges whose jobs were all sent, queued or decided."""
    rows = []
    seen = tables.leases, tables.ended, tables.waiting, tables.outcomes
    for item in listed(ranges):
        bot, lo, hi = item["bot"], item["lo"], item["hi"]
        found = tables.ranges.get((bot, lo))
        if found is None or found.machine != machine:
            continue
        if all(any((bot, seq) in table for table in seen) for seq in range(lo, hi)):
            del tables.ranges[bot, lo]
            rows.append((bot, lo, hi))
    return rows


@STATEMENTS.answers_to("drop_range")
def drop_range(tables: Tables, bot: int, lo: int, machine: str) -> None:
    """Give up a range."""
    found = tables.ranges.get((bot, lo))
    if found is not None and found.machine == machine:
        del tables.ranges[bot, lo]


@STATEMENTS.answers_to("claim_copies")
def claim_copies(tables: Tables, claims: str, machine: str, lifetime: timedelta) -> Rows:
    """Claim waiting copies, what somebody waits for first."""
    found: list[StoredCopy] = []
    for item in listed(claims):
        free = [
            copy
            for copy in tables.queues[item["bot"]].values()
            if copy.not_before <= tables.now
            and (copy.machine is None or copy.claimed_until < tables.now)
        ]
        found += heapq.nsmallest(item["most"], free, key=lambda copy: (-copy.prio, copy.not_before))
    for copy in found:
        copy.machine, copy.claimed_until = machine, tables.now + lifetime.total_seconds()
    return [(*copy.name, copy.round, copy.why, copy.pool, copy.vain) for copy in found]


@STATEMENTS.answers_to("unclaim_copies")
def unclaim_copies(tables: Tables, copies: str, machine: str) -> None:
    """Return copies to the queue."""
    for item in listed(copies):
        copy = tables.queues[item["bot"]].get((item["bot"], item["seq"], item["replica"]))
        if copy is not None and copy.machine == machine:
            copy.machine, copy.claimed_until = None, 0.0
            copy.vain += item["vain"]


@STATEMENTS.answers_to("unclaim_all")
def unclaim_all(tables: Tables, machine: str) -> None:
    """Return all copies of a machine to the queue."""
    for queue in tables.queues.values():
        for copy in queue.values():
            if copy.machine == machine:
                copy.machine, copy.claimed_until = None, 0.0


@STATEMENTS.answers_to("was_sent")
def was_sent(tables: Tables, copies: str) -> Rows:
    """Of these replicas, those that were sent."""
    names = [(item["bot"], item["seq"], item["replica"]) for item in listed(copies)]
    return [
        *(name for name in names if tables.find_lease(*name) is not None),
        *(name for name in names if tables.find_end(*name) is not None),
    ]


# ------------------------------------------------------------------------- jobs and siblings


@PROOFS.answers_to("jobs")
def jobs(tables: Tables, jobs: str) -> Rows:
    """The texts of jobs."""
    return _texts(tables, ((item["bot"], item["seq"]) for item in listed(jobs)))


@PROOFS.answers_to("parts_of_range")
def parts_of_range(_tables: Tables, bot: int, lo: int, hi: int) -> Rows:  # noqa: ARG001
    """No job table is signed in parts."""
    return ()


@PROOFS.answers_to("parts_of_jobs")
def parts_of_jobs(_tables: Tables, jobs: str) -> Rows:  # noqa: ARG001
    """No job table is signed in parts."""
    return ()


@SIBLINGS.answers_to("siblings")
def siblings(
    tables: Tables, jobs: str, relinquished: Collection[str], failures: Collection[str]
) -> Rows:
    """The other replicas of jobs that matter to a further copy."""
    asked = [(item["bot"], item["seq"]) for item in listed(jobs)]
    rows: list[tuple[object, ...]] = []
    for job in asked:
        for lease in tables.leases[job].values() if job in tables.leases else ():
            client = tables.clients[lease.client]
            place = "leased" if client.silent_since is None else "silent"
            rows.append(
                (*lease.name, place, lease.host, lease.owner, lease.sent_at, client.seen_at)
            )
    for job in asked:
        for end in tables.ends(*job):
            is_answer = end.how == State.SUCCESS
            if is_answer or _failed_lately(tables, end, relinquished, failures):
                place, lease = "success" if is_answer else "failed", end.lease
                rows.append((*lease.name, place, lease.host, lease.owner, lease.sent_at, None))
    return rows


def _failed_lately(
    tables: Tables, end: StoredEnd, relinquished: Collection[str], failures: Collection[str]
) -> bool:
    """Whether a replica failed in the round of the copies that wait, not long ago."""
    if end.how not in failures or end.reason in relinquished:
        return False
    waiting = tables.waiting.get((end.lease.bot, end.lease.seq))
    is_late = end.ended_at > tables.now - _LATELY_SECONDS
    return bool(
        waiting and is_late and end.lease.round == max(copy.round for copy in waiting.values())
    )


@SIBLINGS.answers_to("hosts")
def hosts(tables: Tables, hosts: Sequence[int]) -> Rows:
    """What the ads of replicas' hosts say."""
    found = (tables.hosts[number] for number in hosts)
    return [
        (
            host.id, host.name, tables.owners[host.owner].name, host.error_rate,
            host.mean_turnaround, host.jobs_today(tables.now), host.grid,
        )
        for host in found
    ]  # fmt: skip


@SIBLINGS.answers_to("kinds")
def kinds(tables: Tables, jobs: str, relinquished: object, failures: object) -> Rows:  # noqa: ARG001
    """The kinds of hosts to which jobs are bound."""
    asked = ((item["bot"], item["seq"]) for item in listed(jobs))
    return [(*job, tables.kinds[job]) for job in asked if job in tables.kinds]


def _texts(tables: Tables, jobs: Iterable[Job]) -> Rows:
    return [(bot, seq, tables.bots[bot].arguments(seq), "[]", "") for bot, seq in jobs]
