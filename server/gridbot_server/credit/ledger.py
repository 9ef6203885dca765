"""Grants credit for valid replicas to hosts, owners and teams, in the verdicts' transaction.

A verdict is given once, and so is its credit: a crash undoes both, a repeated report or a second
look at the job finds the verdict there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple

from gridbot_server.credit.rule import TYPICAL_PACE, Worth, vote
from gridbot_server.storage import sql
from gridbot_server.storage.db import Connection
from gridbot_server.storage.rows import JobId, encode, fetch

SQL = sql.load("credit.sql")


@dataclass(frozen=True, slots=True)
class Valid:
    """A replica that was just judged valid; `seconds` from sending to report, by our clock."""

    bot: int
    seq: int
    host: int
    owner: int
    seconds: float


class _Appraisal(NamedTuple):
    """The worth of a BOT's jobs as it is known."""

    bot: int
    cpus: int
    limit_seconds: float
    seconds: float | None
    votes: int


class _Pace(NamedTuple):
    """How a host's times compare with those of others."""

    host: int
    pace: float


class _Member(NamedTuple):
    """An owner whom credit was granted, and the team that has a part in it."""

    owner: int
    team: int | None


@dataclass(frozen=True, slots=True)
class Payment:
    """What valid replicas earn, and how their hosts' paces change."""

    of_jobs: Mapping[JobId, float]  # a replica
    of_hosts: Mapping[int, float]
    of_owners: Mapping[int, float]
    pace_changes: Mapping[int, float]  # factors, by host


def appraise(
    conn: Connection, replicas: Sequence[Valid], granted: Mapping[JobId, float]
) -> Payment:
    """Learn what jobs are worth from newly valid replicas; return what these earn.

    `granted` holds the jobs that have an outcome: what comes late earns what the others did.
    The caller holds the rows of the BOTs.
    """
    bots = sorted({item.bot for item in replicas})
    worths = {
        item.bot: Worth(item.cpus, item.limit_seconds, item.seconds, item.votes)
        for item in fetch(conn, _Appraisal, SQL["appraisals"], {"bots": bots})
    }
    hosts = sorted({item.host for item in replicas})
    paces = dict.fromkeys(hosts, TYPICAL_PACE)
    known = fetch(conn, _Pace, SQL["paces"], {"hosts": hosts})
    paces |= {item.host: item.pace for item in known}
    before = dict(paces)
    learn(worths, paces, replicas)
    _keep_worths(conn, worths)
    return _payment(replicas, worths, granted, {host: paces[host] / before[host] for host in hosts})


def learn(worths: dict[int, Worth], paces: dict[int, float], replicas: Iterable[Valid]) -> None:
    """Let each host vote once on each BOT, however many replicas it brings at a time."""
    times: dict[tuple[int, int], list[float]] = defaultdict(list)
    for item in replicas:
        times[item.bot, item.host].append(item.seconds)
    for (bot, host), seconds in sorted(times.items()):
        worths[bot], paces[host] = vote(worths[bot], paces[host], fmean(seconds))


def _keep_worths(conn: Connection, worths: Mapping[int, Worth]) -> None:
    bots = [
        {
            "bot": bot,
            "cpus": worth.cpus,
            "limit_seconds": worth.limit_seconds,
            "seconds": worth.seconds,
            "votes": worth.votes,
        }
        for bot, worth in sorted(worths.items())
    ]
    conn.execute(SQL["appraise"], {"bots": encode(bots)})


def _payment(
    replicas: Iterable[Valid],
    worths: Mapping[int, Worth],
    granted: Mapping[JobId, float],
    pace_changes: Mapping[int, float],
) -> Payment:
    of_jobs: dict[JobId, float] = {}
    of_hosts: dict[int, float] = defaultdict(float)
    of_owners: dict[int, float] = defaultdict(float)
    for item in replicas:
        name = JobId(item.bot, item.seq)
        of_jobs[name] = amount = granted.get(name, worths[item.bot].credit)
        of_hosts[item.host] += amount
        of_owners[item.owner] += amount
    return Payment(of_jobs, of_hosts, of_owners, pace_changes)


def pay(conn: Connection, payment: Payment) -> None:
    """Credit hosts, owners and teams with a payment, in the transaction of its verdicts."""
    hosts = [
        {"host": id, "pace": payment.pace_changes[id], "credit": earned}
        for id, earned in payment.of_hosts.items()
    ]
    owners = [{"owner": id, "credit": earned} for id, earned in payment.of_owners.items()]
    granted = {"hosts": encode(hosts), "owners": encode(owners)}
    _grant_teams(conn, fetch(conn, _Member, SQL["grant"], granted), payment.of_owners)


def _grant_teams(conn: Connection, members: Iterable[_Member], earned: Mapping[int, float]) -> None:
    """A team has what its members earn while they are in it."""
    of_teams: dict[int, float] = defaultdict(float)
    for owner, team in members:
        if team is not None:
            of_teams[team] += earned[owner]
    if of_teams:
        teams = [{"id": id, "credit": sum_} for id, sum_ in of_teams.items()]
        conn.execute(SQL["grant_teams"], {"teams": encode(teams)})
