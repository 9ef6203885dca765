"""A real Grid Engine for tests, in a folder and namespaces of its own, ended by pid."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.system.batch_systems import call, end, kill, need
from tests.system.deployment import eventually, free_port

PACKAGES = "gridengine-master gridengine-exec gridengine-client"
_GRID_ENGINE_ADDRESS = "10.255.255.1"
# Grid Engine takes no host whose name leads to a loopback address, and its folders are built in:
# so it gets a network, a host name, an /etc/hosts and such folders of its own.
_NAMESPACE = """\
set -e
hostname gridhost
ip link set lo up
ip address add {address}/32 dev lo
mount --bind {folder}/hosts /etc/hosts
mount --bind {folder}/cell /var/lib/gridengine/default
mount --bind {folder}/spool /var/spool/gridengine
touch {folder}/is_mounted
exec sleep infinity
"""
_HOST = """\
hostname gridhost
load_scaling NONE
complex_values NONE
user_lists NONE
xuser_lists NONE
projects NONE
xprojects NONE
usage_scaling NONE
report_variables NONE
"""
_QUEUE = {
    "qname": "all.q",
    "hostlist": "gridhost",
    "seq_no": "0",
    # A busy machine is not a reason to start nothing.
    "load_thresholds": "NONE",
    "suspend_thresholds": "NONE",
    "nsuspend": "1",
    "suspend_interval": "00:05:00",
    "priority": "0",
    "min_cpu_interval": "00:05:00",
    "processors": "UNDEFINED",
    "qtype": "BATCH",
    "ckpt_list": "NONE",
    "pe_list": "smp",
    "rerun": "FALSE",
    "shell": "/bin/sh",
    **dict.fromkeys(("prolog", "epilog"), "NONE"),
    "shell_start_mode": "unix_behavior",
    **dict.fromkeys(("starter_method", "suspend_method", "resume_method"), "NONE"),
    "terminate_method": "NONE",
    "notify": "00:00:02",
    **dict.fromkeys(("owner_list", "user_lists", "xuser_lists", "subordinate_list"), "NONE"),
    **dict.fromkeys(("complex_values", "projects", "xprojects", "calendar"), "NONE"),
    "initial_state": "default",
    **{
        f"{letter}_{name}": "INFINITY"
        for name in ("rt", "cpu", "fsize", "data", "stack", "core", "rss", "vmem")
        for letter in "sh"
    },
    "h_rt": "01:00:00",
}
_PARALLEL = {
    "pe_name": "smp",
    "slots": "999",
    **dict.fromkeys(("user_lists", "xuser_lists", "start_proc_args", "stop_proc_args"), "NONE"),
    "allocation_rule": "$pe_slots",
    "control_slaves": "FALSE",
    "job_is_first_task": "TRUE",
    "urgency_slots": "min",
    "accounting_summary": "FALSE",
    "qsort_args": "NONE",
}
# Everything at once; qconf prints and takes these as lines of a name and a value.
_SCHEDULING = {"schedule_interval": "0:0:1", "flush_submit_sec": "1", "flush_finish_sec": "1"}
_GLOBAL = {
    "load_report_time": "00:00:02",
    "max_unheard": "00:00:10",
    "min_uid": "0",
    "min_gid": "0",
    "execd_spool_dir": "/var/spool/gridengine/execd",
    "reporting_params": "accounting=true reporting=false flush_time=00:00:01 joblog=false",
}
_GROUPS = 100


@dataclass
class GridEngine:
    """One master and one host, in namespaces of their own that process `keeper` holds."""

    folder: Path
    keeper: int
    ports: tuple[int, int] = field(default_factory=lambda: (free_port(), free_port()))
    first_group: int = field(default_factory=lambda: _GROUPS * secrets.randbelow(100_000) + 10**6)

    @property
    def configuration(self) -> dict[str, str]:
        """The cluster's configuration.

        It knows the processes of its jobs by their group ids, and kills them by these: another
        cluster of this machine must use others.
        """
        first = self.first_group
        return {**_GLOBAL, "gid_range": f"{first}-{first + _GROUPS - 1}"}

    @property
    def env(self) -> dict[str, str]:
        """What the clients need to find the master."""
        return {
            "SGE_ROOT": "/var/lib/gridengine",
            "SGE_CELL": "default",
            "SGE_QMASTER_PORT": str(self.ports[0]),
            "SGE_EXECD_PORT": str(self.ports[1]),
            "SGE_QMASTER_PIDFILE": str(self.pid_file("qmaster")),
            "SGE_EXECD_PIDFILE": str(self.pid_file("execd")),
        }

    def pid_file(self, name: str) -> Path:
        """Where a daemon writes its process id, in a folder that it may write to."""
        return self.folder / "spool" / f"{name}.pid"

    @property
    def entrance(self) -> list[str]:
        """What stands before a command that shall run inside."""
        return ["nsenter", f"--target={self.keeper}", "--mount", "--uts", "--net"]

    def run(self, *command: str, code: int | None = 0) -> str:
        """Run a command inside."""
        return call(*self.entrance, *command, env=self.env, code=code)

    def manage(self, *command: str, code: int | None = 0) -> str:
        """Run a command inside, as the manager of the cluster."""
        return self.run("runuser", "-u", "sgeadmin", "--", *command, code=code)

    def configure(self, option: str, name: str, text: str) -> None:
        """Hand qconf a configuration."""
        path = self.folder / name
        path.write_text(text)
        self.manage("qconf", option, str(path))

    def start_host(self) -> None:
        """Start the daemon that runs jobs."""
        # The daemons and the jobs' shepherds close all descriptors that they might have.
        self.run("sh", "-c", "ulimit -n 1024; exec sge_execd")
        eventually(self._is_ready, what="the queue")

    def kill_host(self) -> None:
        """End the daemon that runs jobs as a power failure does."""
        end(self.pid_file("execd"), signal.SIGKILL)

    def start_master(self) -> None:
        """Start the master, which goes on where an earlier one was stopped."""
        self.run("sh", "-c", "ulimit -n 1024; exec sge_qmaster")
        eventually(lambda: self.run("qconf", "-sh", code=None), what="the master")

    def stop_master(self) -> None:
        """Stop the master; what runs stays."""
        end(self.pid_file("qmaster"))

    def cancel_everything(self) -> None:
        """Take all jobs out, so that nothing of theirs outlives the daemons."""
        if not self.pid_file("qmaster").exists():
            return
        self.manage("qdel", "-u", "*", code=None)
        with suppress(AssertionError):
            eventually(self._is_empty, seconds=5.0)
        # A host that was away hears of it up to a minute later.
        self.manage("qdel", "-f", "-u", "*", code=None)
        eventually(self._is_empty, what="an empty queue")

    def _is_empty(self) -> bool:
        return not self.run("qstat", "-u", "*").strip()

    def _is_ready(self) -> bool:
        lines = self.run("qstat", "-f", "-q", "all.q", code=None).splitlines()
        queues = [line.split() for line in lines if line.startswith("all.q@")]
        return bool(queues) and all(len(words) == 5 and words[3] != "-NA-" for words in queues)


@contextmanager
def grid_engine(folder: Path, *, slots: int = 4) -> Iterator[GridEngine]:
    """Start a cluster of one host with data below `folder`; end it with all that it runs.

    Queue `all.q` lets jobs run for at most one hour; parallel environment `smp` gives slots on
    one host.
    """
    need("sge_qmaster sge_execd qsub qconf unshare nsenter ip", PACKAGES)
    with ExitStack() as stack:
        made = GridEngine(folder, stack.enter_context(_namespaces(folder)))
        for name in ("execd", "qmaster"):
            stack.callback(end, made.pid_file(name))
        _start_master(made)
        stack.callback(made.cancel_everything)
        _add_queue(made, slots)
        made.start_host()
        yield made


@contextmanager
def _namespaces(folder: Path) -> Iterator[int]:
    """Open the namespaces that a Grid Engine needs and give the process that holds them."""
    (folder / "hosts").write_text(f"127.0.0.1 localhost\n{_GRID_ENGINE_ADDRESS} gridhost\n")
    shutil.copytree("/var/lib/gridengine/default", folder / "cell", ignore_dangling_symlinks=True)
    shutil.copytree("/var/spool/gridengine", folder / "spool")
    for name in ("qmaster/job_scripts", "spooldb", "execd"):
        (folder / "spool" / name).mkdir(parents=True, exist_ok=True)
    call("chown", "-R", "sgeadmin:sgeadmin", str(folder / "cell"), str(folder / "spool"))
    script = _NAMESPACE.format(address=_GRID_ENGINE_ADDRESS, folder=folder)
    keeper = subprocess.Popen(
        ["unshare", "--mount", "--uts", "--net", "--propagation=private", "sh", "-c", script],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    inside = ""
    try:
        eventually(
            lambda: (folder / "is_mounted").exists() or keeper.poll() is not None,
            what="the namespaces",
        )
        if keeper.poll() is not None:
            assert keeper.stderr
            pytest.fail(f"Grid Engine needs namespaces of its own: {keeper.stderr.read()}")
        inside = os.readlink(f"/proc/{keeper.pid}/ns/mnt")
        yield keeper.pid
    finally:
        kill(lambda pid: os.readlink(f"/proc/{pid}/ns/mnt") == inside)
        keeper.communicate()


def _start_master(made: GridEngine) -> None:
    initialise = "/usr/share/gridengine/scripts/init_cluster"
    spool = "/var/spool/gridengine/spooldb"
    made.manage(initialise, "/var/lib/gridengine", "default", spool, "sgeadmin")
    # The master ends without a word if it cannot write this file.
    master = made.folder / "cell" / "common" / "act_qmaster"
    master.write_text("gridhost\n")
    shutil.chown(master, "sgeadmin", "sgeadmin")
    made.start_master()


def _add_queue(made: GridEngine, slots: int) -> None:
    made.manage("qconf", "-ah", "gridhost")
    made.manage("qconf", "-as", "gridhost")
    made.configure("-Ae", "host", _HOST)
    made.configure("-Ap", "parallel", _lines(_PARALLEL))
    scratch = made.folder / "tmp"
    scratch.mkdir()
    scratch.chmod(0o1777)
    made.configure("-Aq", "queue", _lines({**_QUEUE, "slots": str(slots), "tmpdir": str(scratch)}))
    made.configure("-Msconf", "scheduling", _changed(made.manage("qconf", "-ssconf"), _SCHEDULING))
    made.configure("-Mconf", "global", _changed(made.manage("qconf", "-sconf"), made.configuration))


def _lines(values: dict[str, str]) -> str:
    return "".join(f"{name} {value}\n" for name, value in values.items())


def _changed(text: str, values: dict[str, str]) -> str:
    """Replace lines of what qconf printed."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    kept = [line for line in lines if line.split()[0] not in values]
    return "\n".join(kept) + "\n" + _lines(values)
