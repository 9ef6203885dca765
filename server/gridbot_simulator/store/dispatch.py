"""What a batch of host requests asks: who asks, what they hold, what BOTs say (`dispatch.sql`)."""

from __future__ import annotations

from collections.abc import Sequence

from gridbot_server.matching.width import START
from gridbot_server.storage.states import State
from gridbot_simulator.store.statements import Rows, Statements, listed, numbers
from gridbot_simulator.store.tables import Tables

STATEMENTS = Statements("dispatch.sql")
BANS = Statements("bans.sql")
LIVE_OUTPUT = Statements("live_output.sql")
SUSPENSION = Statements("suspension.sql")

# Locks and messages are for several processes; here is one.
STATEMENTS.has_no_effect("lock_hosts", "tell_of_reports")


@STATEMENTS.answers_to("bots")
def bots(tables: Tables, bots: Sequence[int]) -> Rows:
    """Versions of BOTs, with their owners."""
    found = (tables.bots[bot] for bot in bots if bot in tables.bots)
    return [
        (
            bot.id, bot.version, bot.name, tables.owners[bot.owner].name, bot.owner,
            tables.owners[bot.owner].share, bot.policy, bot.text, None, bytes(64), None, bot.quorum,
            False, bot.suspended is not None, None, b"", 0, 0, None, None, None, False,
            None, 0,
        )
        for bot in found
    ]  # fmt: skip


@STATEMENTS.answers_to("introductions")
def introductions(_tables: Tables, owners: Sequence[int]) -> Rows:  # noqa: ARG001
    """No key has been replaced by another one."""
    return ()


@STATEMENTS.answers_to("clients")
def clients(tables: Tables, requests: str) -> Rows:
    """Who asks, as it was before this request; from now on, as it is with it."""
    now = tables.now
    asked = [
        (tables.by_token[token], request)
        for request in listed(requests)
        if (token := bytes.fromhex(request["hash"])) in tables.by_token
    ]
    rows = []
    for client, request in sorted(asked, key=lambda found: found[0].id):
        host = tables.hosts[client.host]
        rows.append(
            (
                client.hash, client.id, client.host, client.owner, tables.owners[client.owner].name,
                list(client.accepts), list(client.trusts), client.grid, client.dedicated, "",
                client.seqno, client.last_key, host.error_rate, host.mean_turnaround,
                host.jobs_today(now), host.recent_cpu(now), host.width, host.crew,
                tables.crews.get(host.crew, START), 0,
            )
        )  # fmt: skip
        if request["seqno"] > client.seqno:
            client.seqno, client.last_key = request["seqno"], request["key"]
        client.seen_at, client.silent_since = now, None
        client.contact_seconds = request["contact"]
    return rows


@STATEMENTS.answers_to("caches")
def caches(tables: Tables, clients: str) -> Rows:
    """What clients said that they hold."""
    return [(client, tables.clients[client].cached) for client in numbers(clients)]


@STATEMENTS.answers_to("leases")
def leases(tables: Tables, clients: str) -> Rows:
    """What clients hold."""
    return [
        (client, *lease.name, lease.round, lease.deadline - tables.now)
        for client in numbers(clients)
        if client in tables.held
        for lease in tables.held[client].values()
    ]


@STATEMENTS.answers_to("not_wanted")
def not_wanted(tables: Tables, held: str) -> Rows:
    """Of replicas without a lease, those whose answer could no longer count."""
    rows = []
    for item in listed(held):
        name = item["bot"], item["seq"], item["replica"]
        bot, end = tables.bots.get(name[0]), tables.find_end(*name)
        is_over = bot is None or bot.state != "running" or name[:2] in tables.outcomes
        if is_over or (end is not None and end.how == State.CANCELLED):
            rows.append(name)
    return rows


@STATEMENTS.answers_to("release_copies")
def release_copies(tables: Tables, copies: str) -> int:
    """Let the feeder put refused copies in again."""
    found = [
        copy
        for item in listed(copies)
        if (copy := tables.queues[item["bot"]].get((item["bot"], item["seq"], item["replica"])))
    ]
    for copy in found:
        copy.machine, copy.claimed_until = None, 0.0
    return len(found)


@STATEMENTS.answers_to("describe_hosts")
def describe_hosts(tables: Tables, hosts: str) -> None:
    """Keep the names of hosts: policies see nothing else of an ad that is kept."""
    for item in listed(hosts):
        name = item["ad"].get("Name")
        tables.hosts[item["id"]].name = None if name is None else str(name)


@STATEMENTS.answers_to("bind_kinds")
def bind_kinds(tables: Tables, jobs: str) -> None:
    """The first replica binds its job."""
    for item in listed(jobs):
        tables.kinds.setdefault((item["bot"], item["seq"]), item["kind"])


@BANS.answers_to("bans")
def bans(_tables: Tables, hashes: Sequence[bytes]) -> Rows:  # noqa: ARG001
    """No host is banned."""
    return ()


@LIVE_OUTPUT.answers_to("followed_clients")
def followed_clients(_tables: Tables) -> Rows:
    """Nobody follows what simulated jobs print."""
    return ()


@SUSPENSION.answers_to("suspend")
def suspend(tables: Tables, bot: int, version: int, why: str) -> int:
    """Suspend a BOT as of a version."""
    found = tables.bots[bot]
    if found.version != version or found.suspended is not None:
        return 0
    found.suspended, found.version = why, found.version + 1
    return 1
