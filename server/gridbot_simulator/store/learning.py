"""Counters, credit and the brake (`counters.sql`, `credit.sql`, `brake.sql`)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gridbot_simulator.store.statements import Rows, Statements, listed
from gridbot_simulator.store.tables import Appraisal, Brake, Tables

COUNTERS = Statements("counters.sql")
CREDIT = Statements("credit.sql")
BRAKE = Statements("brake.sql")
NOTABLE = Statements("notable.sql")

# For people; no decision reads them.
NOTABLE.has_no_effect("add_examples", "add_slowest")

_NUMBER = re.compile("0x[0-9a-fA-F]+|[0-9]+")
_MOST_SAID, _MOST_LINE = 4000, 300


@COUNTERS.answers_to("count")
def count(tables: Tables, writer: str, counters: str) -> None:  # noqa: ARG001
    """Add to the counters of BOTs, whoever writes."""
    for item in listed(counters):
        tables.bots[item["bot"]].counts[item["name"]] += item["value"]


@COUNTERS.answers_to("count_and_note")
def count_and_note(tables: Tables, writer: str, counters: str, happened: str) -> None:  # noqa: ARG001
    """Add to the counters; the history is for people."""
    count(tables, writer, counters)


@CREDIT.answers_to("appraisals")
def appraisals(tables: Tables, bots: Sequence[int]) -> Rows:
    """The worth of BOTs' jobs as it is known."""
    rows = []
    for bot in bots:
        resources = tables.bots[bot].manifest.resources
        new = Appraisal(resources.cpus, resources.seconds, None, 0)
        known = tables.appraisals.get(bot, new)
        rows.append((bot, known.cpus, known.limit_seconds, known.seconds, known.votes))
    return rows


@CREDIT.answers_to("paces")
def paces(tables: Tables, hosts: Sequence[int]) -> Rows:
    """How hosts' times compare with those of others."""
    return [(host, tables.paces[host]) for host in hosts if host in tables.paces]


@CREDIT.answers_to("appraise")
def appraise(tables: Tables, bots: str) -> None:
    """Keep the worth of BOTs' jobs."""
    for item in listed(bots):
        fresh = Appraisal(item["cpus"], item["limit_seconds"], item["seconds"], item["votes"])
        known = tables.appraisals.setdefault(item["bot"], fresh)
        known.seconds, known.votes = item["seconds"], item["votes"]


@CREDIT.answers_to("grant")
def grant(tables: Tables, hosts: str, owners: str) -> Rows:
    """Keep hosts' paces, and what they and their owners have earned."""
    for item in listed(hosts):
        tables.paces[item["host"]] = tables.paces.get(item["host"], 1.0) * item["pace"]
        tables.credit[item["host"]] += item["credit"]
    for item in listed(owners):
        tables.owners_credit[item["owner"]] += item["credit"]
    return [(item["owner"], None) for item in listed(owners)]


@BRAKE.answers_to("failures")
def failures(tables: Tables, replicas: str) -> Rows:
    """How replicas failed."""
    found = [
        (end, item["voter"])
        for item in listed(replicas)
        if (end := tables.find_end(item["bot"], item["seq"], item["replica"])) is not None
    ]
    found.sort(key=lambda pair: (pair[0].lease.bot, pair[0].ended_at))
    return [
        (end.lease.bot, end.reason, end.exit_code, _last_line(end.stderr or ""), voter)
        for end, voter in found
    ]


def _last_line(said: str) -> str:
    last = re.split(r"[\r\n]", said[-_MOST_SAID:].rstrip(" \t\r\n"))[-1]
    return _NUMBER.sub("#", last)[-_MOST_LINE:]


@BRAKE.answers_to("failing")
def failing(tables: Tables, bots: Sequence[int]) -> Rows:
    """What is remembered of BOTs whose replicas all failed alike."""
    return [
        (bot, known.reason, known.exit_code, known.line, known.replicas, list(known.voters))
        for bot in bots
        if (known := tables.brakes.get(bot)) is not None
    ]


@BRAKE.answers_to("remember")
def remember(tables: Tables, failing: str) -> None:
    """Remember how BOTs fail."""
    for item in listed(failing):
        fresh = Brake(
            item["reason"], item["exit_code"], item["line"], item["replicas"], item["voters"]
        )
        known = tables.brakes.setdefault(item["bot"], fresh)
        known.replicas, known.voters = item["replicas"], item["voters"]


@BRAKE.answers_to("unwatch")
def unwatch(tables: Tables, bots: Sequence[int]) -> None:
    """Watch BOTs no more."""
    for bot in bots:
        tables.brakes.pop(bot, None)
        tables.bots[bot].watched = False


@BRAKE.answers_to("standing")
def standing(tables: Tables, bots: Sequence[int]) -> Rows:
    """How many jobs of BOTs have failed, and may."""
    found = (tables.bots[bot] for bot in bots)
    return [(bot.id, bot.size, bot.failed, bot.max_failures) for bot in found]


@BRAKE.answers_to("hold")
def hold(tables: Tables, bot: int, why: str) -> int:
    """Hold a BOT."""
    found = tables.bots[bot]
    if found.state != "running" or found.held is not None:
        return 0
    found.held, found.version = why, found.version + 1
    return 1
