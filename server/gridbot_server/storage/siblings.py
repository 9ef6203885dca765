"""What must be known of a job's other replicas before a further copy is made, or sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from gridbot_server.storage import sql
from gridbot_server.storage.db import Connection
from gridbot_server.storage.rows import encode, fetch
from gridbot_server.storage.states import FAILURES, RELINQUISHED

SQL = sql.load("siblings.sql")


class _Sibling(NamedTuple):
    """A replica of a job: `place` is leased, silent, success or failed."""

    bot: int
    seq: int
    replica: int
    place: str
    host: int
    owner: int
    sent_at: float  # seconds since the epoch
    seen_at: float | None  # when its client was last heard of, if that holds it


class _Kind(NamedTuple):
    """The kind of hosts to which a job is bound."""

    bot: int
    seq: int
    kind: str


class _Host(NamedTuple):
    """What the ad of a replica's host says."""

    id: int
    name: str | None
    owner: str
    error_rate: float
    mean_turnaround: float | None
    jobs_today: int
    grid: str | None

    @property
    def attributes(self) -> dict[str, Any]:
        """As policies see them."""
        return {
            "Name": self.name,
            "Owner": self.owner,
            "ErrorRate": self.error_rate,
            "MeanTurnaround": self.mean_turnaround,
            "JobsToday": self.jobs_today,
            "Grid": self.grid,
            "IsPilot": self.grid is not None,
        }


def describe(
    conn: Connection, jobs: Sequence[tuple[int, int]]
) -> dict[tuple[int, int], dict[str, Any]]:
    """Return what is known of each job's replicas, those in progress with their hosts' statistics.

    `kind` is that of the hosts to which the job is bound, or None.  Hosts go with their owners:
    `holders` have a replica or an output of it, `failed` let it fail.  What silent clients have is
    among the replicas, and keeps no other client of their hosts from a copy.
    """
    listed = encode([{"bot": bot, "seq": seq} for bot, seq in jobs])
    values = {"jobs": listed, "relinquished": list(RELINQUISHED), "failures": list(FAILURES)}
    replicas = fetch(conn, _Sibling, SQL["siblings"], values)
    hosts = _hosts(conn, sorted({replica.host for replica in replicas}))
    details: dict[tuple[int, int], dict[str, Any]] = {
        job: {"holders": [], "failed": [], "replicas": [], "kind": None} for job in jobs
    }
    for bot, seq, kind in fetch(conn, _Kind, SQL["kinds"], values):
        details[bot, seq]["kind"] = kind
    for item in replicas:
        detail = details[item.bot, item.seq]
        whose = detail["failed" if item.place == "failed" else "holders"]
        if item.place != "silent" and [item.host, item.owner] not in whose:
            whose.append([item.host, item.owner])
        if item.seen_at is not None:
            detail["replicas"].append(
                {
                    "replica": item.replica,
                    "sent_at": item.sent_at,
                    "seen_at": item.seen_at,
                    "host": hosts.get(item.host, {}),
                }
            )
    return details


def _hosts(conn: Connection, hosts: Sequence[int]) -> dict[int, dict[str, Any]]:
    if not hosts:
        return {}
    found = fetch(conn, _Host, SQL["hosts"], {"hosts": list(hosts)})
    return {host.id: host.attributes for host in found}
