"""Moves of replicas from one state to another (`moves.sql`)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from gridbot_server.storage.states import State
from gridbot_simulator.store.statements import Rows, Statements, listed, numbers
from gridbot_simulator.store.tables import (
    Job,
    Replica,
    StoredBot,
    StoredCopy,
    StoredEnd,
    StoredLease,
    Tables,
)

STATEMENTS = Statements("moves.sql")


@STATEMENTS.answers_to("add_copies")
def add_copies(tables: Tables, copies: str) -> Rows:
    """Queue copies, unless they were sent already or wait to be."""
    return [
        (item["bot"],)
        for item in listed(copies)
        if item["replica"] > 1 and not _was_sent(tables, _name(item))
        if tables.queue(
            StoredCopy(
                *_name(item), item["round"], item["why"], tables.now,
                item["prio"], item.get("pool"),
            )
        )
    ]  # fmt: skip


@STATEMENTS.answers_to("add_quorum_copies")
def add_quorum_copies(tables: Tables, leases: str) -> Rows:
    """Queue the other copies that a quorum needs."""
    return [
        (item["bot"],)
        for item in listed(leases)
        for replica in range(2, 2 + item["more"])
        if not _was_sent(tables, (item["bot"], item["seq"], replica))
        if tables.queue(
            StoredCopy(item["bot"], item["seq"], replica, item["round"], "quorum", tables.now)
        )
    ]


@STATEMENTS.answers_to("take_copies")
def take_copies(tables: Tables, copies: str) -> Rows:
    """Take copies that suit their hosts out of the queue; all are looked at before any goes."""
    taken: dict[Replica, StoredCopy] = {}
    for item in listed(copies):
        copy = tables.queues[item["bot"]].get(_name(item))
        if copy is not None and _may_go(tables, tables.bots[copy.bot], item):
            taken[copy.name] = copy
    for copy in taken.values():
        tables.unqueue(copy)
    return list(taken)


def _may_go(tables: Tables, bot: StoredBot, item: dict[str, Any]) -> bool:
    if bot.state != "running" or bot.held is not None:
        return False
    job = item["bot"], item["seq"]
    if job in tables.leases and any(
        _is_of(lease, item) and not tables.is_silent(lease.client)
        for lease in tables.leases[job].values()
    ):
        return False
    return bot.quorum == 1 or not any(
        end.how == State.SUCCESS and _is_of(end.lease, item) for end in tables.ends(*job)
    )


def _is_of(lease: StoredLease, item: dict[str, Any]) -> bool:
    is_owners = item["distinct_owners"] and lease.owner == item["owner"]
    return bool(lease.host == item["host"] or is_owners)


@STATEMENTS.answers_to("add_leases")
def add_leases(tables: Tables, leases: str) -> Rows:
    """Lease replicas of BOTs that run; return those that may not be leased."""
    refused = []
    for item in listed(leases):
        name, bot = _name(item), tables.bots[item["bot"]]
        can_go = bot.state == "running" and bot.held is None and 0 <= name[1] < bot.size
        if not can_go or tables.find_lease(*name) is not None:
            refused.append(name)
            continue
        tables.lease(
            StoredLease(
                *name, item["round"], item["why"], item["client"], item["host"], item["owner"],
                tables.now, tables.now + item["deadline_seconds"],
            )
        )  # fmt: skip
    return refused


@STATEMENTS.answers_to("unlease_ended")
def unlease_ended(tables: Tables, bots: str, seqs: str, replicas: str) -> Rows:
    """Take leases back of what has ended before."""
    over = [
        lease
        for name in zip(numbers(bots), numbers(seqs), numbers(replicas), strict=True)
        if tables.find_end(*name) and (lease := tables.find_lease(*name))
    ]
    for lease in over:
        tables.unlease(lease)
    return [lease.name for lease in over]


@STATEMENTS.answers_to("end_leases")
def end_leases(tables: Tables, reports: str, ends: Collection[str]) -> Rows:
    """End leases as their clients report; return the reports that end none."""
    refused = []
    for item in listed(reports):
        lease = tables.find_lease(*_name(item))
        if lease is None or lease.client != item["client"] or item["how"] not in ends:
            refused.append((*_name(item), item["client"]))
            continue
        end = StoredEnd(lease, item["how"], item["reason"], tables.now)
        _fill(end, item)
        tables.end(lease, end)
        tables.pending.append((lease.bot, lease.seq))
    return refused


@STATEMENTS.answers_to("take_late")
def take_late(tables: Tables, reports: str, before: Collection[str], after: str) -> Rows:
    """Take late successes."""
    rows = []
    for item in listed(reports):
        end = tables.find_end(*_name(item))
        if end is None or end.lease.client != item["client"] or end.how not in before:
            continue
        end.how, end.reason, end.ended_at, end.valid = after, "", tables.now, None
        _fill(end, item)
        tables.pending.append((end.lease.bot, end.lease.seq))
        rows.append((*end.lease.name, end.lease.client))
    return rows


def _fill(end: StoredEnd, report: dict[str, Any]) -> None:
    end.exit_code, end.stderr = report["exit_code"], report["stderr"]
    end.cpu_seconds, end.wall_seconds = report["cpu_seconds"], report["wall_seconds"]
    end.digest = bytes.fromhex(report["digest"])


@STATEMENTS.answers_to("deadline_passed")
def deadline_passed(tables: Tables, limit: int, how: str, reason: str) -> Rows:
    """End leases whose deadlines have passed."""
    return tables.unanswered(tables.overdue(limit), how, reason)


@STATEMENTS.answers_to("job_has_outcome")
def job_has_outcome(tables: Tables, jobs: str, how: str, reason: str) -> Rows:
    """End the leases of jobs that are over."""
    leases = [
        lease
        for job in _jobs(jobs)
        if job in tables.leases
        for lease in tables.leases[job].values()
    ]
    return tables.unanswered(leases, how, reason)


@STATEMENTS.answers_to("drop_copies_of_jobs")
def drop_copies_of_jobs(tables: Tables, jobs: str) -> Rows:
    """Drop the queued copies of jobs that are over."""
    copies = [
        copy
        for job in _jobs(jobs)
        if job in tables.waiting
        for copy in tables.waiting[job].values()
    ]
    for copy in copies:
        tables.unqueue(copy)
    return [(copy.bot,) for copy in copies]


def _was_sent(tables: Tables, name: Replica) -> bool:
    return tables.find_lease(*name) is not None or tables.find_end(*name) is not None


def _name(item: dict[str, Any]) -> Replica:
    return item["bot"], item["seq"], item["replica"]


def _jobs(text: str) -> list[Job]:
    return [(item["bot"], item["seq"]) for item in listed(text)]
