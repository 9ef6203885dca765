"""One job of HyperQueue on slots of this machine; the side of `pilots` that is in no cluster.

`python peer_slots.py FOLDER JOBS SECONDS SLOTS`: task I sleeps and prints its square into a file
of FOLDER; ends when all have ended, and fails if one did.
"""

from __future__ import annotations

import sys
from pathlib import Path

from hyperqueue import Job, LocalCluster
from hyperqueue.cluster import WorkerConfig


def main() -> None:
    """Run them."""
    folder, jobs, seconds, slots = sys.argv[1:]
    with LocalCluster() as cluster:
        cluster.start_worker(WorkerConfig(cores=int(slots)))
        job = Job()
        for number in range(int(jobs)):
            script = f"sleep {seconds}; echo $(({number} * {number}))"
            job.program(["sh", "-c", script], stdout=str(Path(folder) / str(number)))
        client = cluster.client()
        client.wait_for_jobs([client.submit(job)])


if __name__ == "__main__":
    main()
