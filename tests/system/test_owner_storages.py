"""Claims about outputs in a storage of their owner: real clients, and a server that is killed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.object_store import ENVIRONMENT, SECRET_KEY, SIGNER, ObjectStore, object_store
from tests.system.deployment import Deployment, eventually

from gridbot_server.storage.files.s3 import Bucket, BucketPlace

pytestmark = pytest.mark.timeout(400)
BIG = 400_000  # bytes: too many to travel in a report


@pytest.fixture
def peer(tmp_path: Path) -> Iterator[ObjectStore]:
    with object_store(tmp_path) as found:
        yield found


def objects(peer: ObjectStore) -> set[str]:
    """Names of all objects, without the storage's tag."""
    bucket = Bucket(BucketPlace.parse(peer.url("runs")), SIGNER)
    return {item.key.partition("/")[2] for item in bucket.objects("")}


def test_outputs_of_two_bots_with_a_quorum_reach_the_storage_though_the_server_is_killed(
    fresh: Deployment, peer: ObjectStore
) -> None:
    server = fresh
    server.configure(storage_endpoints=peer.endpoint)
    server.start()
    server.env.update(ENVIRONMENT)
    server.run("storage", "add", "lab", peer.url("runs"))
    script = f'yes "job $0" | head -c {BIG} > big'
    what = ("--quorum", "2", "--outputs-to", "lab", "--output", "big", "--range", "0:3")
    bots = [server.submit(*what, "--", "sh", "-c", script, "{}") for _ in range(2)]
    for name in ("one", "two"):
        server.client(name, "--cpus", "2")
    eventually(lambda: server.rows("SELECT FROM output LIMIT 1"), what="the first upload")
    server.crash()
    server.start()
    for bot in bots:
        server.wait(bot, 180)
    finals = {f"{bot}/{seq}/big" for bot in bots for seq in range(3)}
    eventually(lambda: objects(peer) >= finals, what="the outputs under their final names")
    eventually(lambda: all(server.show(bot)["unpublished"] == 0 for bot in bots),
               what="what counts as published")  # fmt: skip
    losers = [name for name in objects(peer) if name.startswith("incoming/")]
    assert len(losers) >= 2 * len(finals), "each job has two answers"
    with server.database() as conn:
        conn.execute("UPDATE incoming SET url_ends = now() - interval '1 day'")
    eventually(lambda: objects(peer) == finals, what="the end of the sweep")
    for bot in bots:
        lines = json.loads(server.run("bot", "results", str(bot), "--json"))["results"]
        places = {line["seq"]: line["outputs"]["big"]["place"] for line in lines}
        assert all(place.endswith(f"/{bot}/{seq}/big") for seq, place in places.items())
        folder = server.folder / f"outputs-{bot}"
        server.run("bot", "results", str(bot), "--to", str(folder))
        for seq in range(3):
            found = (folder / str(seq) / "big").read_bytes()
            assert (len(found), found[:6]) == (BIG, f"job {seq}\n".encode())
    assert list((server.data / "files").glob("??/*")) == []
    logs = [*server.settings.log.iterdir(), *server.folder.glob("*.log")]
    said = "".join(path.read_text(errors="replace") for path in logs)
    assert SECRET_KEY not in said
    assert "X-Amz-Signature" not in said
    assert json.loads(server.run("storage", "list", "--json"))["storages"][0]["error"] is None
