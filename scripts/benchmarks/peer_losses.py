"""What another system loses by a kill -9, in an environment of its own: prints JSON.

`peer_losses.py SYSTEM VICTIM COUNT`: COUNT jobs of 0.1 s on two workers; VICTIM is killed in their
midst and, where the system has a way to do so, started again.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

KILL_AFTER_SECONDS = 1.5
PATIENCE_SECONDS = 60.0
JOB = ["sleep", "0.1"]


def _run(_: int) -> int:
    return subprocess.run(JOB, check=True).returncode


def _dask(victim: str, count: int) -> int:
    """Scheduler and workers are processes of their own; the worker's nanny starts it again."""
    from distributed import Client

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])

    def start(*arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "dask", *arguments, "--no-dashboard"],
            stderr=subprocess.DEVNULL,
        )

    scheduler = ["scheduler", "--host", "127.0.0.1", "--port", port]
    worker = ["worker", f"tcp://127.0.0.1:{port}", "--nthreads", "1"]
    processes = [start(*scheduler), start(*worker), start(*worker)]
    try:
        with Client(f"tcp://127.0.0.1:{port}", timeout=PATIENCE_SECONDS) as client:
            client.wait_for_workers(2, timeout=PATIENCE_SECONDS)
            futures = client.map(_run, range(count), pure=False)
            time.sleep(KILL_AFTER_SECONDS)
            if victim == "server":
                processes[0].kill()
                processes[0].wait()
                processes[0] = start(*scheduler)
            else:
                os.kill(_children(processes[1].pid)[-1], signal.SIGKILL)
            _until(lambda: all(future.done() for future in futures))
            return sum(future.status == "finished" for future in futures)
    finally:
        for process in processes:
            process.terminate()


def _joblib(victim: str, count: int) -> int:
    """The caller is the server."""
    from joblib import Parallel, delayed

    def kill() -> None:
        os.kill(os.getpid() if victim == "server" else _workers()[0], signal.SIGKILL)

    known = 0
    with Parallel(2, return_as="generator_unordered") as parallel:
        list(parallel(delayed(pow)(2, 3) for _ in range(2)))
        threading.Timer(KILL_AFTER_SECONDS, kill).start()
        with suppress(Exception):
            for _ in parallel(delayed(_run)(number) for number in range(count)):
                known += 1
    return known


def _hyperqueue(_victim: str, count: int) -> int:
    """With the package from PyPI, server and workers are threads of the caller."""
    from hyperqueue import Job, LocalCluster
    from hyperqueue.cluster import WorkerConfig

    with LocalCluster() as cluster:
        cluster.start_worker(WorkerConfig(cores=2))
        client, job = cluster.client(), Job()
        for _ in range(count):
            job.program(JOB)
        threading.Timer(KILL_AFTER_SECONDS, os.kill, (os.getpid(), signal.SIGKILL)).start()
        client.wait_for_jobs([client.submit(job)])
    return count


def _children(process: int) -> list[int]:
    tasks = Path(f"/proc/{process}/task").glob("*/children")
    return sorted(int(child) for task in tasks for child in task.read_text().split())


def _workers() -> list[int]:
    """The children that run Python and are no resource tracker."""
    return [
        child
        for child in _children(os.getpid())
        if b"loky.backend.popen" in Path(f"/proc/{child}/cmdline").read_bytes()
    ]


def _until(fact: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not fact() and time.monotonic() < end:
        time.sleep(0.1)


SYSTEMS = {"dask": _dask, "joblib": _joblib, "hyperqueue": _hyperqueue}

if __name__ == "__main__":
    system, victim, count = sys.argv[1:]
    print(json.dumps(SYSTEMS[system](victim, int(count))))
