"""Three nodes of PostgreSQL that replicate in quorum mode, and their manager, who promotes.

A commit is acknowledged once one of the two standbys has it.  The manager is a stand-in for Patroni
and its like: it fences the primary that failed, and promotes the standby that received most.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
from psycopg.conninfo import make_conninfo
from tests.process_tree import kill_tree, signal_tree
from tests.system.deployment import eventually, free_port

from gridbot_server.supervision.postgres import service_account
from gridbot_server.supervision.postgres_binaries import (
    ENVIRONMENT,
    Binaries,
    find_binaries,
    reachable_binaries,
)
from gridbot_server.supervision.processes import SystemAccount, as_account

USER = "gridbot"
_CONFIGURATION = """\
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
port = {port}
cluster_name = '{name}'
wal_level = replica
hot_standby = on
max_wal_senders = 10
wal_keep_size = 256MB
synchronous_standby_names = 'ANY 1 (one, two, three)'
primary_conninfo = '{primary}'
wal_receiver_timeout = 2s
wal_retrieve_retry_interval = 500ms
wal_sender_timeout = 5s
max_connections = 200
shared_buffers = 64MB
autovacuum_naptime = 15s
"""


@dataclass
class Node:
    """One of the three."""

    name: str
    folder: Path
    port: int
    binaries: Binaries
    account: SystemAccount | None
    process: subprocess.Popen[bytes] | None = None

    @property
    def dsn(self) -> str:
        """How to reach this node alone."""
        return make_conninfo("", host="127.0.0.1", port=self.port, dbname="postgres", user=USER)

    @property
    def cluster(self) -> Path:
        return self.folder / "cluster"

    def run(self, program: str, *arguments: str) -> None:
        """Run one of PostgreSQL's programs to its end."""
        done = subprocess.run(
            [self.binaries.directory / program, *arguments], capture_output=True, text=True,
            env=ENVIRONMENT, cwd=self.folder, **as_account(self.account),
        )  # fmt: skip
        assert done.returncode == 0, (program, done.stderr)

    def start(self) -> None:
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [self.binaries.directory / "postgres", "-D", self.cluster], env=ENVIRONMENT,
                stdout=log, stderr=log, cwd=self.folder, start_new_session=True,
                **as_account(self.account),
            )  # fmt: skip
        eventually(self.answers, what=f"node {self.name}")

    def answers(self) -> bool:
        with suppress(psycopg.OperationalError):
            psycopg.connect(self.dsn, connect_timeout=2).close()
            return True
        return False

    def ask(self, query: str) -> str:
        """The only value of a query, as text."""
        with psycopg.connect(self.dsn, connect_timeout=2, autocommit=True) as conn:
            (value,) = conn.execute(query.encode()).fetchone() or ("",)
        return str(value)

    def do(self, statement: str) -> None:
        """Run a statement."""
        with psycopg.connect(self.dsn, connect_timeout=2, autocommit=True) as conn:
            conn.execute(statement.encode())

    def signal(self, number: int) -> None:
        """Send a signal to all its processes at once."""
        if self.process is not None:
            signal_tree(self.process.pid, number)

    def end(self) -> None:
        """Let nothing of it be left."""
        if self.process is not None:
            kill_tree(self.process)
            self.process = None


@dataclass
class Trio:
    """The three nodes; `primary` is the one that takes writes."""

    nodes: list[Node]
    primary: Node
    cut_off: list[Node] = field(default_factory=list)

    @property
    def dsn(self) -> str:
        """As a server is given it: all hosts, of which it wants the one that takes writes."""
        ports = ",".join(str(node.port) for node in self.nodes)
        hosts = ",".join("127.0.0.1" for _ in self.nodes)
        return make_conninfo("", host=hosts, port=ports, dbname="gridbot", user=USER,
                             target_session_attrs="read-write")  # fmt: skip

    def configure(self, node: Node) -> None:
        """Write the configuration of a node, which follows the primary if it is a standby."""
        text = _CONFIGURATION.format(port=node.port, name=node.name, primary=self._primary_of(node))
        (node.cluster / "postgresql.auto.conf").write_text("")
        (node.cluster / "postgresql.conf").write_text(text)
        (node.cluster / "pg_hba.conf").write_text(
            "host all all 127.0.0.1/32 trust\nhost replication all 127.0.0.1/32 trust\n"
        )

    def _primary_of(self, node: Node) -> str:
        """How a standby reaches the primary."""
        port = self.primary.port
        return f"host=127.0.0.1 port={port} user={USER} application_name={node.name}"

    def join(self, node: Node) -> None:
        """Make a node a standby of the primary, from a copy of it."""
        shutil.rmtree(node.cluster, ignore_errors=True)
        # A copy may stand still for longer than a standby, on a busy machine.
        source = make_conninfo("", host="127.0.0.1", port=self.primary.port, user=USER,
                               options="-c wal_sender_timeout=60s")  # fmt: skip
        node.run("pg_basebackup", "-d", source, "-D", str(node.cluster), "-X", "stream",
                 "-c", "fast")  # fmt: skip
        (node.cluster / "standby.signal").touch()
        self.configure(node)
        node.start()

    def standbys(self) -> list[Node]:
        return [node for node in self.nodes if node is not self.primary]

    def has_quorum(self) -> bool:
        """Whether both standbys follow the primary."""
        query = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'"
        with suppress(psycopg.OperationalError):
            return self.primary.ask(query) == "2"
        return False

    def kill(self) -> None:
        """The primary's machine loses power."""
        self.primary.end()

    def freeze(self) -> None:
        """Nothing of the primary runs any more, but its connections stay."""
        self.primary.signal(signal.SIGSTOP)

    def cut(self) -> None:
        """No packet reaches the primary, or comes from it.  Only in a network of our own."""
        self.cut_off.append(self.primary)
        _filter("-A", self.primary.port)

    def fail_over(self) -> Node:
        """Fence the primary, where it can be reached, and promote another; return the old one."""
        old = self.primary
        if old not in self.cut_off:
            old.end()
        others = self.standbys()
        eventually(lambda: not any(map(_receives, others)), what="the end of the stream")
        self.primary = max(others, key=_received)
        self.primary.ask("SELECT pg_promote(true, 60)")
        for node in others:
            if node is not self.primary:
                node.do(f"ALTER SYSTEM SET primary_conninfo = '{self._primary_of(node)}'")
                node.do("SELECT pg_reload_conf()")
        return old

    def heal(self, old: Node) -> None:
        """Let the old primary come back as a standby."""
        old.end()
        if old in self.cut_off:
            self.cut_off.remove(old)
            _filter("-D", old.port)
        self.join(old)
        eventually(self.has_quorum, 120, "two standbys")


def _receives(node: Node) -> bool:
    return node.ask("SELECT count(*) FROM pg_stat_wal_receiver WHERE status = 'streaming'") != "0"


def _received(node: Node) -> int:
    return int(node.ask("SELECT pg_wal_lsn_diff(pg_last_wal_receive_lsn(), '0/0')::bigint"))


def _filter(change: str, port: int) -> None:
    for side in ("--dport", "--sport"):
        subprocess.run(
            ["iptables", change, "INPUT", "-p", "tcp", side, str(port), "-j", "DROP"], check=True
        )


@contextmanager
def trio(folder: Path) -> Iterator[Trio]:
    """Start three nodes with an empty database `gridbot`; other users may enter the folder."""
    account = service_account(folder / "none")
    binaries = find_binaries()
    if account:
        binaries = reachable_binaries(binaries, account, folder / "bin")
    nodes = []
    for name in ("one", "two", "three"):
        (folder / name).mkdir()
        if account:
            os.chown(folder / name, account.uid, account.gid)
        nodes.append(Node(name, folder / name, free_port(), binaries, account))
    made = Trio(nodes, nodes[0])
    try:
        first = nodes[0]
        first.run("initdb", "-D", str(first.cluster), "-U", USER, "--auth=trust", "-E", "UTF8",
                  "--locale=C")  # fmt: skip
        made.configure(first)
        first.start()
        for node in nodes[1:]:
            made.join(node)
        eventually(made.has_quorum, what="two standbys")
        first.do("CREATE DATABASE gridbot")
        yield made
    finally:
        for node in nodes:
            node.signal(signal.SIGCONT)
            node.end()
