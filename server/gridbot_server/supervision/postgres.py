"""The embedded PostgreSQL: finds its programs, makes its cluster, starts and stops it.

Only processes of the user that runs gridbot can connect: a unix socket in a private directory,
checked again by `peer`.  There is no TCP port and no password.
"""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import psutil
from psycopg import pq

from gridbot_server.storage import embedded
from gridbot_server.storage.disk import make_directory, write_atomically
from gridbot_server.storage.embedded import DATABASE, PORT, SOCKET_NAME, USER, PostgresError
from gridbot_server.supervision.log_rotation import open_log
from gridbot_server.supervision.postgres_binaries import (
    ENVIRONMENT,
    Binaries,
    can_execute,
    find_binaries,
    reachable_binaries,
    run_program,
)
from gridbot_server.supervision.processes import Child, SystemAccount, spawn, stop_group, wait_gone

CREATE_DATABASE = f"CREATE DATABASE {DATABASE}\n"
INITDB_OPTIONS = (
    *("--username", USER, "--encoding", "UTF8", "--locale", "C"),
    *("--auth", "peer", "--data-checksums"),
)
# A fast shutdown writes a checkpoint; an immediate one leaves that to the next start.
STOP_SIGNALS = ((signal.SIGINT, 60.0), (signal.SIGQUIT, 10.0))

CONFIGURATION = """\
# Written by gridbot at each start; to change a setting use ALTER SYSTEM.
data_directory = '{cluster}'
hba_file = '{directory}/pg_hba.conf'
ident_file = '{directory}/pg_ident.conf'
listen_addresses = ''
port = {port}
unix_socket_directories = '"{socket}"'
unix_socket_permissions = 0700
max_connections = 120

shared_buffers = {shared_mb}MB
wal_buffers = 16MB
max_wal_size = 8GB
checkpoint_timeout = 15min
synchronous_commit = on
commit_delay = 0
fsync = {fsync}
jit = off

# Leases come and go: small tables that change all the time.
autovacuum_naptime = 15s
autovacuum_vacuum_scale_factor = 0.05
autovacuum_analyze_scale_factor = 0.05
autovacuum_vacuum_cost_limit = 1000
# A frozen process must not keep its locks, nor vacuum from its work, for ever.
idle_in_transaction_session_timeout = 60s

timezone = 'UTC'
log_timezone = 'UTC'
log_line_prefix = '%m [%p] '
"""


class Postgres:
    """One cluster below a server's data directory."""

    def __init__(self, data: Path, *, durable: bool = True) -> None:
        self.data = data.absolute()
        self.cluster = self.data / "postgresql"
        self._run = self.data / "run"
        self._configuration = self._run / "postgresql-conf"
        self._durable = durable  # False only where a power cut may lose everything: in tests
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def dsn(self) -> str:
        """The connection string; valid until the server is stopped."""
        return embedded.dsn(self.data)

    def prepare(self) -> Child:
        """Make what is missing; return what to run, which first stops what a killed parent left."""
        account = service_account(self.cluster)
        make_directory(self.data)
        make_directory(self._run)
        binaries = find_binaries(self._major())
        if account:
            check_reachable(self.data, account)
            binaries = reachable_binaries(binaries, account, self.data / "postgresql-bin")
        if not self.cluster.exists():
            self._make_cluster(binaries, account)
        self._configure(account)
        return self._child(binaries, account)

    def start(self, log: Path) -> subprocess.Popen[bytes]:
        """Start the server as a child of this process; `wait_ready` tells when it serves."""
        child = self.prepare()
        with open_log(log) as output:
            self._process = spawn(child, output, int)
        return self._process

    def wait_ready(self, process: subprocess.Popen[bytes], timeout: float = 30) -> None:
        """Wait until it takes connections.

        Recovery after a crash may last long and is no failure while the postmaster lives, so
        `timeout` (seconds) counts only while it does not even refuse.
        """
        deadline = time.monotonic() + timeout
        while (answer := pq.PGconn.ping(self.dsn.encode())) != pq.Ping.OK:
            if (code := process.poll()) is not None:
                raise PostgresError(f"postgresql ended with code {code} before it was ready")
            if answer == pq.Ping.REJECT:
                deadline = time.monotonic() + timeout
            elif time.monotonic() > deadline:
                raise PostgresError(f"postgresql does not answer after {timeout:g} s")
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.05)

    def stop(self) -> None:
        """Stop what `start` started: fast, then immediately; clients are disconnected."""
        if self._process:
            stop_group(self._process.pid, STOP_SIGNALS)
            self._process.wait()
        self.release()

    def release(self) -> None:
        """Remove the socket's directory if it had to be outside the data directory."""
        record = embedded.socket_record(self.data)
        if record.exists():
            shutil.rmtree(record.read_text(), ignore_errors=True)
            record.unlink()

    def stop_leftovers(self) -> None:
        """Stop every process that still runs on this cluster; drop lock files that name others.

        PostgreSQL itself refuses to start when the pid in such a file belongs to any
        process of its user, which after a reboot it may.
        """
        _end((p for p in self._leftovers() if p.pid == self._recorded_pid()), signal.SIGINT, 30)
        _end(self._leftovers(), signal.SIGQUIT, 5)
        _end(self._leftovers(), signal.SIGKILL, 10)
        pid = self._recorded_pid()
        if pid and psutil.pid_exists(pid):
            (self.cluster / "postmaster.pid").unlink()
            (embedded.socket_directory(self.data) / f"{SOCKET_NAME}.lock").unlink(missing_ok=True)

    def _leftovers(self) -> list[psutil.Process]:
        # Every process of PostgreSQL stays in its cluster's directory.
        cluster, found = str(self.cluster.resolve()), []
        for process in psutil.process_iter(["name"]):
            with suppress(psutil.Error):
                if process.info["name"] == "postgres" and process.cwd() == cluster:
                    found.append(process)
        return found

    def _recorded_pid(self) -> int | None:
        path = self.cluster / "postmaster.pid"
        first = path.read_text().partition("\n")[0] if path.exists() else ""
        return int(first) if first.isdigit() else None

    def _major(self) -> int | None:
        version = self.cluster / "PG_VERSION"
        return int(version.read_text()) if version.exists() else None

    def _make_cluster(self, binaries: Binaries, account: SystemAccount | None) -> None:
        fresh = self.data / "postgresql.new"
        if fresh.exists():
            shutil.rmtree(fresh)  # a start that was killed half-way
        _make_private(fresh, account)
        initdb = [str(binaries.directory / "initdb"), "--pgdata", str(fresh), *INITDB_OPTIONS]
        run_program([*initdb, *([] if self._durable else ["--no-sync"])], account)
        single = [str(binaries.directory / "postgres"), "--single", "-D", str(fresh), "postgres"]
        run_program(single, account, CREATE_DATABASE)
        fresh.rename(self.cluster)

    def _configure(self, account: SystemAccount | None) -> None:
        """Write the configuration where only we can write and make the socket's directory."""
        make_directory(self._configuration, 0o755)
        client = _user_name(os.geteuid())
        text = CONFIGURATION.format(
            cluster=_quoted(self.cluster),
            directory=_quoted(self._configuration),
            socket=_quoted(self._make_socket_directory(account)),
            port=PORT,
            shared_mb=shared_buffers_mb(_memory_bytes()),
            fsync="on" if self._durable else "off",
        )
        for name, content in {
            "postgresql.conf": text,
            "pg_hba.conf": f"local all {USER} peer map=gridbot\n",
            "pg_ident.conf": f'gridbot "{client}" {USER}\n',
        }.items():
            write_atomically(self._configuration / name, content, 0o644)

    def _child(self, binaries: Binaries, account: SystemAccount | None) -> Child:
        configuration = self._configuration / "postgresql.conf"
        return Child(
            name="postgresql",
            argv=[str(binaries.directory / "postgres"), "-c", f"config_file={configuration}"],
            env=ENVIRONMENT,
            directory=self.data,
            account=account,
            stop_signals=STOP_SIGNALS,
            before=self.stop_leftovers,
        )

    def _make_socket_directory(self, account: SystemAccount | None) -> Path:
        if not embedded.fits_socket(self._run / "postgresql"):
            self.release()  # never trust what lies under that name in /tmp by now
            elsewhere = tempfile.mkdtemp(prefix="gridbot-", dir="/tmp")
            write_atomically(embedded.socket_record(self.data), elsewhere)
        directory = embedded.socket_directory(self.data)
        _make_private(directory, account)
        return directory


def service_account(cluster: Path) -> SystemAccount | None:
    """Return the user as whom PostgreSQL runs when we are root, which it refuses to be.

    An existing cluster stays with its owner.
    """
    if os.geteuid() != 0:
        return None
    if cluster.exists() and (owner := cluster.stat().st_uid):
        entry = pwd.getpwuid(owner)
        return SystemAccount(entry.pw_name, entry.pw_uid, entry.pw_gid)
    for name in ("postgres", "nobody"):
        with suppress(KeyError):
            entry = pwd.getpwnam(name)
            return SystemAccount(name, entry.pw_uid, entry.pw_gid)
    raise PostgresError(
        "PostgreSQL does not run as root and there is neither a user postgres nor nobody:"
        " start gridbot as another user, or use a server by --dsn"
    )


def check_reachable(directory: Path, account: SystemAccount) -> None:
    """Raise the error that names the first directory which `account` cannot enter."""
    for part in [*reversed(directory.resolve().parents), directory]:
        if not can_execute(part, account):
            raise PostgresError(
                f"PostgreSQL runs as user {account.name}, who cannot enter {part}: choose another"
                f" directory by --data, or allow it by chmod o+x {part}"
            )


def shared_buffers_mb(memory_bytes: int) -> int:
    """Return a quarter of the memory, at most 1 GB."""
    return max(16, min(1024, memory_bytes // 4 >> 20))


def _memory_bytes() -> int:
    """Return the machine's memory, or a container's share of it."""
    total, limit = psutil.virtual_memory().total, Path("/sys/fs/cgroup/memory.max")
    allowed = limit.read_text().strip() if limit.exists() else "max"
    return min(total, int(allowed)) if allowed.isdigit() else total


def _make_private(directory: Path, account: SystemAccount | None) -> None:
    directory.mkdir(exist_ok=True)
    directory.chmod(0o700)
    if account:
        os.chown(directory, account.uid, account.gid)


def _end(processes: Iterable[psutil.Process], number: int, seconds: float) -> None:
    asked = list(processes)
    for process in asked:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)
    wait_gone(asked, seconds)


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        raise PostgresError(
            f"uid {uid} has no name in /etc/passwd, so PostgreSQL cannot tell who connects:"
            " give it one, or use a server by --dsn"
        ) from None


def _quoted(path: Path) -> str:
    return str(path).replace("\\", "\\\\").replace("'", "''")
