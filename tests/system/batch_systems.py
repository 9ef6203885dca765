"""Real batch systems for tests, each in a folder of its own on loopback ports, ended by pid.

Here is what they share, and Slurm; Grid Engine has a module of its own.
"""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.system.deployment import eventually, free_port

SLURM_PACKAGES = "munge slurmctld slurmd slurm-client slurm-wlm-basic-plugins"


def need(programs: str, packages: str) -> None:
    """Skip the test where a program is missing; fail where nothing may be missing."""
    missing = [name for name in programs.split() if shutil.which(name, path=_path()) is None]
    if not missing:
        return
    reason = f"no {', '.join(missing)} here: apt-get install --no-install-recommends {packages}"
    if "CI" in os.environ:
        pytest.fail(reason)
    pytest.skip(reason)


def _path() -> str:
    return f"{os.environ['PATH']}:/usr/sbin:/sbin"


@contextmanager
def open_folder(name: str) -> Iterator[Path]:
    """Make a folder that every user can enter; nothing is left of it."""
    folder = Path(tempfile.mkdtemp(prefix=f"gridbot-{name}-", dir="/tmp"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def end(pid_file: Path, number: int = signal.SIGTERM, *, seconds: float = 15.0) -> None:
    """Signal the daemon that wrote a pid file, wait until it is gone, and insist."""
    try:
        pid = int(pid_file.read_text())
    except (FileNotFoundError, ValueError):
        return  # it never came so far
    with suppress(ProcessLookupError):
        os.kill(pid, number)
        try:
            eventually(lambda: not lives(pid), seconds=seconds, what=f"the end of {pid_file.name}")
        except AssertionError:
            os.kill(pid, signal.SIGKILL)
    pid_file.unlink(missing_ok=True)


def lives(pid: int) -> bool:
    """Tell whether a process is there and not merely unreaped."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def kill(is_ours: Callable[[int], bool]) -> None:
    """Kill the processes that daemons which were killed have left."""
    for pid in psutil.pids():
        # Others end meanwhile, or are not to be looked at.
        with suppress(OSError, psutil.Error):
            if pid != os.getpid() and is_ours(pid):
                os.kill(pid, signal.SIGKILL)


def call(
    *command: str, env: dict[str, str] | None = None, seconds: float = 60.0, code: int | None = 0
) -> str:
    """Run a program to its end and return what it printed."""
    done = subprocess.run(
        command,
        env={**os.environ, "PATH": _path(), "LC_ALL": "C", **(env or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds,
    )
    assert code is None or done.returncode == code, (command, done.stdout, done.stderr)
    return done.stdout


_SLURM_CONF = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
StateSaveLocation={folder}/state
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmdLogFile={folder}/slurmd.%n.log
SlurmdSpoolDir={folder}/spool.%n
SlurmdParameters=config_overrides
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SwitchType=switch/none
MailProg=/bin/true
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0,sched_min_interval=10000
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
# A node that was set down stays so until somebody resumes it.
ReturnToService=1
KillWait=2
SlurmdTimeout=10
"""


@dataclass
class Slurm:
    """One cluster: a controller and some nodes, all on this machine."""

    folder: Path
    nodes: tuple[str, ...]
    port: int = field(default_factory=free_port)

    @property
    def env(self) -> dict[str, str]:
        """What the clients need to find the cluster."""
        return {"SLURM_CONF": str(self.folder / "slurm.conf")}

    def run(self, *command: str, code: int | None = 0) -> str:
        """Run one of Slurm's own commands."""
        return call(*command, env=self.env, code=code)

    def start_controller(self) -> None:
        """Start the controller, which goes on where an earlier one was stopped."""
        self.run("slurmctld")

    def stop_controller(self) -> None:
        """Stop the controller; nodes and what runs on them stay."""
        end(self.folder / "slurmctld.pid")

    def start_node(self, name: str) -> None:
        """Start the daemon of one node."""
        self.run("slurmd", "-N", name)

    def kill_node(self, name: str) -> None:
        """End the daemon of a node as a power failure does."""
        end(self.folder / f"slurmd.{name}.pid", signal.SIGKILL)

    def set_node(self, name: str, state: str) -> None:
        """Set a node down, drained or back into service, as its operator does."""
        self.run("scontrol", "update", f"nodename={name}", f"state={state}", "reason=test")

    def idle_nodes(self) -> set[str]:
        """The nodes that wait for work."""
        lines = self.run("sinfo", "-h", "-N", "-o", "%N %T", code=None).splitlines()
        return {name for name, state in map(str.split, lines) if state == "idle"}

    def cancel_everything(self) -> None:
        """Take all jobs out, so that nothing of theirs outlives the daemons."""
        if not (self.folder / "slurmctld.pid").exists():
            return
        if jobs := set(self.run("squeue", "-h", "-a", "-o", "%A", code=None).split()):
            self.run("scancel", *jobs, code=None)
        eventually(
            lambda: not self.run("squeue", "-h", "-a", code=None).strip(), what="an empty queue"
        )

    def wait_idle(self) -> None:
        """Wait until every node can take a job."""
        eventually(lambda: self.idle_nodes() >= set(self.nodes), what="idle nodes")


@contextmanager
def slurm(
    folder: Path, *, nodes: int = 4, cpus: int = 2, gpus: int = 0, **settings: Any
) -> Iterator[Slurm]:
    """Start a cluster below `folder`, which every user can enter; end it with all that it runs.

    Partitions: `batch` (default, at most 60 minutes), whose jobs those of `urgent` preempt, and
    `short` (2 minutes).  A node's GPUs are device files of terminals.
    `settings` are lines of slurm.conf, which overrule those above.
    """
    need("munged slurmctld slurmd sbatch", SLURM_PACKAGES)
    made = Slurm(folder, tuple(f"n{number}" for number in range(1, nodes + 1)))
    if gpus:
        settings["GresTypes"] = "gpu"
        (folder / "gres.conf").write_text(f"Name=gpu File=/dev/tty[1-{gpus}]\n")
    _write_slurm_conf(made, cpus, gpus, settings)
    with ExitStack() as stack:
        conf = made.env["SLURM_CONF"]
        stack.callback(kill, lambda pid: psutil.Process(pid).environ().get("SLURM_CONF") == conf)
        stack.callback(end, folder / "munge" / "pid")
        _start_munge(folder / "munge")
        for name in made.nodes:
            stack.callback(end, folder / f"slurmd.{name}.pid")
        stack.callback(made.stop_controller)
        made.start_controller()
        for name in made.nodes:
            made.start_node(name)
        stack.callback(made.cancel_everything)
        made.wait_idle()
        yield made


def _write_slurm_conf(made: Slurm, cpus: int, gpus: int, settings: dict[str, Any]) -> None:
    host = socket.gethostname().partition(".")[0]
    lines = _SLURM_CONF.format(
        host=host, port=made.port, user=getpass.getuser(), folder=made.folder
    ).splitlines()
    kept = [line for line in lines if line.partition("=")[0] not in settings]
    kept += [f"{name}={value}" for name, value in settings.items()]
    for name in made.nodes:
        kept.append(
            f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={free_port()}"
            f" CPUs={cpus} RealMemory=4000" + (f" Gres=gpu:{gpus}" if gpus else "")
        )
        (made.folder / f"spool.{name}").mkdir()
    batch = "Nodes=ALL Default=YES MaxTime=60 PriorityTier=1"
    kept.append(f"PartitionName=batch {batch}")
    kept.append("PartitionName=urgent Nodes=ALL MaxTime=60 PriorityTier=10 PreemptMode=OFF")
    kept.append("PartitionName=short Nodes=ALL MaxTime=2 PriorityTier=1")
    (made.folder / "state").mkdir()
    (made.folder / "slurm.conf").write_text("\n".join(kept) + "\n")


def _start_munge(folder: Path) -> None:
    """Start an authentication daemon with a key, a socket and a log of its own."""
    folder.mkdir(mode=0o755)
    key = folder / "key"
    key.touch(mode=0o600)
    key.write_bytes(os.urandom(128))
    files = {"socket": "socket", "key-file": "key", "pid-file": "pid"}
    files |= {"log-file": "log", "seed-file": "seed"}
    options = [f"--{option}={folder / name}" for option, name in files.items()]
    call("munged", "--force", *options)
    eventually((folder / "socket").exists, what="munge's socket")


TORQUE_VARIABLE = "GRIDBOT_TEST_TORQUE"
_TORQUE_ADVICE = (
    f"{TORQUE_VARIABLE} names no folder with qsub, qstat and qdel of slurm-wlm-torque, which"
    " cannot be installed beside Grid Engine: apt-get install libslurm-perl libswitch-perl;"
    " apt-get download slurm-wlm-torque; dpkg -x slurm-wlm-torque_*.deb FOLDER"
)


def torque_wrappers(folder: Path) -> Path:
    """Make a folder with PBS's commands, which work on a Slurm cluster."""
    source = Path(os.environ.get(TORQUE_VARIABLE, "/nonexistent"))
    if not (source / "qsub").exists():
        if "CI" in os.environ:
            pytest.fail(_TORQUE_ADVICE)
        pytest.skip(_TORQUE_ADVICE)
    folder.mkdir()
    for name in ("qsub", "qstat", "qdel"):
        (folder / name).symlink_to(source / name)
    for name in ("sbatch", "scancel"):  # the wrappers look beside themselves
        (folder / name).symlink_to(str(shutil.which(name)))
    return folder
