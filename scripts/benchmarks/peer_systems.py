"""The same work on another system, in an environment of its own: prints seconds as JSON.

`peer_systems.py SYSTEM WORK COUNT CPUS`; the system has been started and used once before the time
is taken.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable

PROGRAMS = {"true": ["true"], "sleep": ["sleep", "0.1"]}


def _run(argv: list[str]) -> int:
    return subprocess.run(argv, check=True).returncode


def _dask(work: str, count: int, cpus: int) -> float:
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=cpus, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        client.submit(pow, 2, 3).result()
        began = time.perf_counter()
        if work == "pow":
            client.gather(client.map(pow, range(count), [2] * count))
        else:
            argv = [PROGRAMS[work]] * count
            client.gather(client.map(_run, argv, pure=False))
        return time.perf_counter() - began


def _joblib(work: str, count: int, cpus: int) -> float:
    from joblib import Parallel, delayed

    with Parallel(cpus) as parallel:
        parallel(delayed(pow)(2, 3) for _ in range(cpus))
        began = time.perf_counter()
        if work == "pow":
            parallel(delayed(pow)(number, 2) for number in range(count))
        else:
            parallel(delayed(_run)(PROGRAMS[work]) for _ in range(count))
        return time.perf_counter() - began


def _hyperqueue(work: str, count: int, cpus: int) -> float:
    from hyperqueue import Job, LocalCluster
    from hyperqueue.cluster import WorkerConfig

    with LocalCluster() as cluster:
        cluster.start_worker(WorkerConfig(cores=cpus))
        client = cluster.client()
        seconds = 0.0
        for number in (1, count):
            job = Job()
            for item in range(number):
                if work == "pow":
                    job.function(pow, args=(item, 2))
                else:
                    job.program(PROGRAMS[work])
            began = time.perf_counter()
            client.wait_for_jobs([client.submit(job)])
            seconds = time.perf_counter() - began
        return seconds


SYSTEMS: dict[str, Callable[[str, int, int], float]] = {
    "dask": _dask, "joblib": _joblib, "hyperqueue": _hyperqueue,
}  # fmt: skip

if __name__ == "__main__":
    system, work, count, cpus = sys.argv[1:]
    print(json.dumps(SYSTEMS[system](work, int(count), int(cpus))))
