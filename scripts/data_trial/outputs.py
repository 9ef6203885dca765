"""Many big outputs for a storage of their owner, of which some are not the canonical ones."""

from __future__ import annotations

import hashlib
import time

from tests.object_store import ENVIRONMENT, SIGNER, ObjectStore, object_store
from tests.system.batch_systems import open_folder
from tests.system.deployment import Deployment, deployment, eventually

from gridbot_server.storage.files.s3 import Bucket, BucketPlace
from scripts.claims import Claim

_PATIENCE_SECONDS = 900.0
_SWEEP_SECONDS = 600.0  # the goal, from the end of the URLs on
_CLIENTS = 3
NAME = "outputs"
_FILE = "big"


def play(jobs: int, size: int) -> list[Claim]:
    """Run jobs whose outputs go to the storage, a tenth of them twice, while parts are killed."""
    with (
        open_folder("store") as folder,
        object_store(folder, volumes=0) as store,
        deployment() as server,
    ):
        server.configure(storage_endpoints=store.endpoint)
        server.start()
        server.env.update(ENVIRONMENT)
        server.run("storage", "add", "lab", store.url("runs"))
        twice = max(1, jobs // 10)
        bots = {_submitted(server, jobs - twice, size, 1): jobs - twice}
        bots[_submitted(server, twice, size, 2)] = twice
        _killed_meanwhile(server, bots)
        finals = {f"{bot}/{seq}/{_FILE}" for bot, count in bots.items() for seq in range(count)}
        eventually(lambda: _objects(store).keys() >= finals, _PATIENCE_SECONDS, "the final names")
        others = len(_objects(store)) - len(finals)
        seconds = _swept(server, store, finals)
        found = _objects(store)
        right = [name for name in finals if found.get(name) == _sha256(name, size)]
        left = found.keys() - finals
        return [
            Claim(
                NAME, f"{jobs} x {size / 1e6:.0f} MB through kills: right under final names",
                str(jobs), str(len(right)), len(right) == jobs,
            ),
            Claim(
                NAME, f"objects under other names, {others} before the sweep", "0 in 600 s",
                f"{len(left)} after {seconds:.0f} s", others > len(finals) and not left,
            ),
        ]  # fmt: skip


def _submitted(server: Deployment, jobs: int, size: int, quorum: int) -> int:
    script = f'yes "$0" | head -c {size} > {_FILE}'
    return server.submit(
        "--quorum", str(quorum), "--outputs-to", "lab", "--output", _FILE, "--range", f"0:{jobs}",
        "--max-output", f"{(size >> 20) + 1}MB",
        "--", "sh", "-c", script, "{}",
    )  # fmt: skip


def _killed_meanwhile(server: Deployment, bots: dict[int, int]) -> None:
    """Wait for all BOTs; kill the server after a third of the jobs, a client after two."""
    jobs = sum(bots.values())

    def done(most: int) -> bool:
        return len(server.rows("SELECT FROM outcome")) >= most

    for number in range(_CLIENTS):
        server.client(f"c{number}", "--cpus", "1")
    eventually(lambda: done(jobs // 3), _PATIENCE_SECONDS, "a third of the jobs")
    server.crash()
    server.start()
    eventually(lambda: done(2 * jobs // 3), _PATIENCE_SECONDS, "two thirds of the jobs")
    server.kill_client("c0")
    server.client("c0", "--cpus", "1")
    for bot in bots:
        server.wait(bot, _PATIENCE_SECONDS)


def _swept(server: Deployment, store: ObjectStore, finals: set[str]) -> float:
    """End the URLs that are good for an hour; seconds until the sweep has left the final names."""
    with server.database() as conn:
        conn.execute("UPDATE incoming SET url_ends = now() - interval '1 day'")
    begun = time.monotonic()
    while _objects(store).keys() != finals and time.monotonic() - begun < _SWEEP_SECONDS:
        time.sleep(1.0)
    return time.monotonic() - begun


def _objects(store: ObjectStore) -> dict[str, str]:
    """SHA-256 of all objects, which the store has checked, by name without the storage's tag."""
    bucket = Bucket(BucketPlace.parse(store.url("runs")), SIGNER)
    found = (bucket.head(item.key, with_checksum=True) for item in bucket.objects(""))
    return {item.key.partition("/")[2]: item.sha256 for item in found if item}


def _sha256(name: str, size: int) -> str:
    """What the output of a job is."""
    line = f"{name.split('/')[1]}\n".encode()
    block, digest = line * ((1 << 20) // len(line)), hashlib.sha256()
    for done in range(0, size, len(block)):
        digest.update(block[: size - done])
    return digest.hexdigest()
