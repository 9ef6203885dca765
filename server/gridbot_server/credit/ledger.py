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


def grant(
    conn: Connection, replicas: Sequence[Valid], granted: Mapping[JobId, float]
) -> dict[JobId, float]:
    """Credit newly valid replicas; return what each of their jobs earns a replica.

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
    learn(worths, paces, replicas)
    amounts = {
        JobId(item.bot, item.seq): granted.get(JobId(item.bot, item.seq), worths[item.bot].credit)
        for item in replicas
    }
    _write(conn, worths, paces, replicas, amounts)
    return amounts


def learn(worths: dict[int, Worth], paces: dict[int, float], replicas: Iterable[Valid]) -> None:
    """Let each host vote once on each BOT, however many replicas it brings at a time."""
    times: dict[tuple[int, int], list[float]] = defaultdict(list)
    for item in replicas:
        times[item.bot, item.host].append(item.seconds)
    for (bot, host), seconds in sorted(times.items()):
        worths[bot], paces[host] = vote(worths[bot], paces[host], fmean(seconds))


def _write(
    conn: Connection,
    worths: Mapping[int, Worth],
    paces: Mapping[int, float],
    replicas: Sequence[Valid],
    amounts: Mapping[JobId, float],
) -> None:
    of_hosts: dict[int, float] = defaultdict(float)
    of_owners: dict[int, float] = defaultdict(float)
    for item in replicas:
        amount = amounts[JobId(item.bot, item.seq)]
        of_hosts[item.host] += amount
        of_owners[item.owner] += amount
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
    hosts = [{"host": id, "pace": paces[id], "credit": sum_} for id, sum_ in of_hosts.items()]
    owners = [{"owner": id, "credit": sum_} for id, sum_ in of_owners.items()]
    conn.execute(SQL["appraise"], {"bots": encode(bots)})
    granted = {"hosts": encode(hosts), "owners": encode(owners)}
    _grant_teams(conn, fetch(conn, _Member, SQL["grant"], granted), of_owners)


def _grant_teams(conn: Connection, members: Iterable[_Member], earned: Mapping[int, float]) -> None:
    """A team has what its members earn while they are in it."""
    of_teams: dict[int, float] = defaultdict(float)
    for owner, team in members:
        if team is not None:
            of_teams[team] += earned[owner]
    if of_teams:
        teams = [{"id": id, "credit": sum_} for id, sum_ in of_teams.items()]
        conn.execute(SQL["grant_teams"], {"teams": encode(teams)})
