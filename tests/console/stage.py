"""A server's database with something to see on every page of the console."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from psycopg.types.json import Jsonb
from tests.factories import (
    HOST,
    make_bot,
    make_client,
    make_ended,
    make_failure,
    make_host,
    make_key,
    make_lease,
    make_outcome,
    make_owner,
)

from gridbot_client.protocol.messages import Manifest, ReplicaId
from gridbot_server.storage.db import Connection

POLICY = (
    "JobRequirements = Host.Memory > 4096 && Host.ErrorRat < 0.2;\n"
    "Rank = !Tail ? 1 : Host.JobsToday;\nConcurrency = 2 * Host.NumCpus;\n"
)
# The smallest picture that browsers show: one red pixel.
PICTURE = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108020000009077"
    "53de0000000c49444154789c63f8cfc0000003010100c9fe92ef0000000049454e44ae426082"
)


_NODE_WORDS = ("waiting", "running", "done", "failed", "futile")


@dataclass(frozen=True)
class Stage:
    """Who is there, and which BOTs."""

    operator_key: str
    user_key: str
    busy: int  # the user's BOT that runs, with all that a page can show
    held: int
    done: int
    others: int  # the operator's
    workflow: int = 0  # the user's run that goes on: jobs 40 of `busy` failed, job 46 runs
    large: int = 0  # the user's run of many nodes, which is not heard of


def make_stage(conn: Connection, hostile: str = "") -> Stage:
    """Fill a database; names, arguments and logs end with `hostile`."""
    ada = make_owner(conn, "ada")
    root = make_owner(conn, "root", operator=True)
    names = ("node17.cluster.example.org", "workstation", "laptop", f"attic{hostile}")
    hosts = [
        make_host(conn, ada, {**HOST, "Name": name, "Memory": 2048 << n}, error_rate=0.1 * n)
        for n, name in enumerate(names)
    ]
    clients = [make_client(conn, ada, host)[0] for host in hosts]
    _put_on_grid(conn, clients[0])
    conn.execute(
        "UPDATE client SET silent_since = now() - interval '4 minutes',"
        " seen_at = now() - interval '6 minutes' WHERE id = %s",
        [clients[3]],
    )
    busy = _busy(conn, ada, clients, hostile)
    held = make_bot(
        conn, ada, jobs=400, name="docking-screen", held="10 replicas failed alike: exit code 127"
    )
    done = make_bot(conn, ada, jobs=30, name="calibration", state="done", done=30)
    conn.execute(
        "UPDATE bot SET ended_at = now() - interval '2 hours',"
        " created_at = now() - interval '3 hours' WHERE id = %s",
        [done],
    )
    _server_history(conn)
    _notices_and_backup(conn, (ada, root), hostile)
    _news(conn, hostile)
    others = make_bot(conn, root, jobs=10, name="other-scan")
    make_client(conn, root, make_host(conn, root, {**HOST, "Name": "server-room"}, venue="work"))
    return Stage(
        make_key(conn, root, "operator"), make_key(conn, ada), busy, held, done, others,
        _workflow(conn, ada, busy, hostile), _large_workflow(conn, ada),
    )  # fmt: skip


def _workflow(conn: Connection, owner: int, bot: int, hostile: str) -> int:
    """Four nodes: one done, one failed, one at work, one that waits."""
    nodes = [
        _node("prepare", "done", 0, bot, 1),
        _node(f"fit-left{hostile}", "failed", 1, bot, 40, f"Job failed with status 3{hostile}"),
        _node("fit-right", "running", 1, bot, 46, jobs_waiting=1),
        _node("collect", "waiting", 2, None, None, f"waits for fit-left{hostile}, fit-right"),
    ]
    layers = [_layer(done=1), _layer(failed=1, running=1), _layer(waiting=1)]
    edges = [[0, 1], [0, 2], [1, 3], [2, 3]]
    graph = {"why": "", "layers": layers, "nodes": nodes, "edges": edges, "edges_total": 4}
    return _told(conn, owner, f"DAG linkage.dag{hostile}", graph, 0)


def _large_workflow(conn: Connection, owner: int) -> int:
    """Ten thousand nodes in three layers, of which the first 200 were told."""
    nodes = [_node(f"scan-{n:05}", "running" if n else "failed", 1, None, None) for n in range(200)]
    layers = [_layer(done=1), _layer(failed=1, running=199, waiting=9798), _layer(waiting=1)]
    graph = {"why": "", "layers": layers, "nodes": nodes, "edges": [], "edges_total": 0}
    return _told(conn, owner, "DAG large.dag", graph, 600)


def _node(
    name: str, state: str, layer: int, bot: int | None, job: int | None, why: str = "",
    jobs_waiting: int = 0,
) -> dict[str, object]:  # fmt: skip
    return {
        "name": name, "state": state, "layer": layer, "tries": 1, "why": why, "jobs": 1,
        "jobs_running": int(state == "running") - jobs_waiting, "jobs_waiting": jobs_waiting,
        "bot": bot, "job": job,
    }  # fmt: skip


def _layer(**counts: int) -> dict[str, int]:
    return {word: counts.get(word, 0) for word in _NODE_WORDS}


def _told(conn: Connection, owner: int, name: str, graph: dict[str, Any], silent: int) -> int:
    """A run that told how it is, so many seconds ago."""
    sums = [sum(layer[word] for layer in graph["layers"]) for word in _NODE_WORDS]
    found = conn.execute(
        "WITH made AS (INSERT INTO bot_group (owner, name) VALUES (%s, %s) RETURNING id)"
        " INSERT INTO workflow (bot_group, kind, name, state, seconds, eta_seconds,"
        " waiting, running, done, failed, futile, graph, told_at)"
        " SELECT id, 'dag', %s, 'running', 300, 900, %s, %s, %s, %s, %s, %s,"
        " now() - interval '1 second' * %s FROM made RETURNING bot_group",
        [owner, f"run-{silent}", name, *sums, Jsonb(graph), silent],
    ).fetchone()
    assert found is not None
    return int(found[0])


def _notices_and_backup(conn: Connection, owners: tuple[int, ...], hostile: str) -> None:
    """A mailbox that is not confirmed, a webhook that does not answer, and a backup."""
    conn.execute(
        "INSERT INTO notice_address (owner, url, secret, error)"
        " SELECT owner, url, 'x', 'it answered 500' || %s"
        " FROM unnest(%s::int[]) AS owner, unnest(%s::text[]) AS url",
        [hostile, list(owners), ["mailto:ada@example.org", "https://example.org/hook"]],
    )
    conn.execute(
        "INSERT INTO setting VALUES ('backup', json_build_object('made_at', now(),"
        " 'file', '/backups/monday.tar' || %s))",
        [hostile],
    )
    conn.execute(
        "INSERT INTO notice (address, what, dropped)"
        ' SELECT id, \'{"event": "server_well"}\', 3 FROM notice_address WHERE confirmed'
    )


def _put_on_grid(conn: Connection, client: int) -> None:
    conn.execute(
        "INSERT INTO told_grids (constructor, ads, drained, good_until)"
        """ VALUES ('tag', %s, '{"cluster": "", "island": "finish"}', now() + '1 day')""",
        [
            '{"cluster": {"PilotHours": 1203.5, "PilotHoursLeft": 796.5, "PilotHoursWasted": 41.25,'
            ' "Spent": 12.5, "BudgetLeft": 37.5}}'
        ],
    )
    conn.execute(
        "UPDATE client SET grid = 'cluster', pilot = 'tag.0', jobs = 40, failures = 2,"
        " core_seconds = 4000, expires_at = now() + interval '1 day',"
        " created_at = now() - interval '2 hours' WHERE id = %s",
        [client],
    )
    conn.execute(
        "INSERT INTO pilot_log (pilot, grid, native_id, node, how, exit_code, words)"
        " VALUES ('tag.1', 'cluster', '4711', 'node3', 'FAILED', 1, 'no space left on device')"
    )


def _busy(conn: Connection, owner: int, clients: list[int], hostile: str) -> int:
    manifest = Manifest(
        "ada", ("./linkage", "--theta", "{theta}", f"--label={hostile}"), {"theta": "real"}
    )
    bot = make_bot(
        conn, owner, jobs=60, name=f"linkage-scan{hostile}", manifest=manifest.text(),
        policy=POLICY, turnaround_sum=600.0, turnaround_n=10, tail=True,
    )  # fmt: skip
    args = [Jsonb({"theta": n / 60, "label": f"point {n}{hostile}"}) for n in range(60)]
    for seq, arguments in enumerate(args):
        values = [arguments, bot, seq]
        conn.execute("UPDATE job SET args = %s WHERE bot = %s AND seq = %s", values)
    now = datetime.now(UTC)
    for seq in range(40):
        outputs = {"stdout": f"LOD {seq}{hostile}\n".encode()}
        if seq == 3:
            outputs |= {"surface.png": PICTURE, f"page{hostile.replace('/', '')}.html": b"<b>x</b>"}
        make_outcome(conn, ReplicaId(bot, seq, 0), clients[seq % 3], outputs)
    conn.execute(
        "UPDATE outcome SET made_at = now() - interval '1 second' * (600 - 10 * seq)"
        " WHERE bot = %s",
        [bot],
    )
    for seq in (40, 41, 42):
        make_failure(conn, ReplicaId(bot, seq, 0), clients[1], "exit_nonzero")
    conn.execute(
        "UPDATE ended SET stderr = %s WHERE bot = %s AND how = 'error'",
        [f"Traceback:\n  File linkage.py, line 7\nValueError: theta is negative{hostile}", bot],
    )
    conn.execute(
        "UPDATE ended SET sent_at = ended_at - interval '1 second' * (40 + 3 * (seq %% 9))"
        " WHERE bot = %s",
        [bot],
    )
    make_ended(
        conn, ReplicaId(bot, 43, 0), clients[2], how="error", reason="time_limit",
        sent_at=now - timedelta(minutes=5), stderr="",
    )  # fmt: skip
    for n, seq in enumerate(range(43, 52)):
        make_lease(
            conn, ReplicaId(bot, seq, 1), clients[n % 4],
            sent_at=now - timedelta(seconds=20 + 17 * n),
        )  # fmt: skip
    conn.execute(
        "INSERT INTO shown_output (bot, seq, replica, stream, begins, content, shown_until)"
        " VALUES (%s, 46, 1, 'stderr', 70000, %s, now())",
        [bot, f"cut line\nstep 1\x1b[31m of 9{hostile}\n".encode() + b"\xff\x00\n" * 400],
    )
    conn.execute(
        "INSERT INTO bot_stat (bot, writer, name, value)"
        " VALUES (%(bot)s, 'test', 'sent_first', 52), (%(bot)s, 'test', 'sent_error', 1),"
        " (%(bot)s, 'test', 'back', 44)",
        {"bot": bot},
    )
    _history(conn, bot)
    return bot


def _news(conn: Connection, hostile: str) -> None:
    """What the project tells everybody."""
    conn.execute(
        "INSERT INTO project_news (title, text) VALUES (%(title)s, %(text)s)",
        {"title": f"New data{hostile}", "text": f"It comes on Monday.\nThanks{hostile}"},
    )


def _server_history(conn: Connection) -> None:
    """What was looked at and counted in the last half an hour."""
    conn.execute(
        "INSERT INTO server_history (step, at, name, label, is_sum, value)"
        " SELECT 60, date_trunc('minute', now()) - interval '1 minute' * (30 - n), name, label,"
        " name = 'requests', most * (1 + sin(n / 5.0)) / 2"
        " FROM generate_series(0, 29) AS n, (VALUES ('jobs_unsent', '', 400),"
        " ('replicas_running', '', 90), ('requests', 'work', 60), ('lag_seconds', 'transition', 1),"
        " ('lag_seconds', 'deadline', 0.4), ('hosts_working', 'cluster', 20),"
        " ('hosts_idle', 'cluster', 4), ('hosts_working', 'ice', 9)) AS x (name, label, most)"
    )
    conn.execute(
        "INSERT INTO bot_history (bot, step, at, grid, sent, done)"
        " SELECT 0, 60, at, grid, sum(sent), sum(done) FROM bot_history WHERE bot <> 0"
        " GROUP BY 3, 4"
    )


def _history(conn: Connection, bot: int) -> None:
    """Two grids that finish 40 jobs within half an hour, and a change of the policy."""
    conn.execute(
        "INSERT INTO bot_history (bot, step, at, grid, added, sent, succeeded, done,"
        " cpu_seconds)"
        " SELECT %(bot)s, 60, date_trunc('minute', now()) - interval '1 minute' * (30 - n), grid,"
        " CASE WHEN n = 0 AND grid = '' THEN 60 ELSE 0 END, 1, 1,"
        " CASE WHEN n %% 3 = 0 OR (n + length(grid)) %% 5 < 2 THEN 1 ELSE 0 END, 55"
        " FROM generate_series(0, 29) AS n, unnest(ARRAY['', 'cluster']) AS grid",
        {"bot": bot},
    )
    conn.execute(
        "UPDATE bot SET created_at = now() - interval '31 minutes',"
        " tail_since = now() - interval '9 minutes' WHERE id = %s",
        [bot],
    )
    conn.execute(
        "INSERT INTO policy_version (bot, n, policy, changed_by, changed_at)"
        " SELECT id, 1, 'Rank = 1;', owner, created_at FROM bot WHERE id = %(bot)s"
        " UNION ALL SELECT id, 2, policy, owner, now() - interval '17 minutes' FROM bot"
        " WHERE id = %(bot)s",
        {"bot": bot},
    )
