"""One big input for many clients, from an object store through the cache of their site."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path

import requests
from tests.object_store import SIGNER, ObjectStore, object_store
from tests.squid import Squid, squid
from tests.system.batch_systems import open_folder
from tests.system.deployment import NO_COPIES, Deployment, deployment, eventually

from gridbot_server.storage.files.s3 import Bucket, BucketPlace
from scripts.claims import Claim

from .content import Content
from .meter import Meter, meter

NAME = "inputs"
_STORE = "store.test"  # a name of the origin that the cache knows
_PATIENCE_SECONDS = 900.0
_URL_SECONDS = 6 * 3600
# What client/README.md asks of a cache for inputs; MB of one file, and of all.
_CACHE = """
maximum_object_size {one} MB
cache_dir ufs {{folder}}/cache {all} 4 4
collapsed_forwarding on
range_offset_limit none
quick_abort_min -1 KB
refresh_pattern . 1440 100% 10080
"""


@dataclass(frozen=True)
class Place:
    """A server, an object store and a cache; all that the first two send is counted."""

    server: Deployment
    store: ObjectStore
    cache: Squid
    front: Meter  # of the server
    origin: Meter  # of the store
    content: Content
    sha256: str
    clients: int
    url: str  # of the content, for those who ask the cache

    def start(self, number: int) -> None:
        """Start a client, which says by its CPUs which one it is."""
        key = str(self.server.settings.operator_key_path)
        self.server.client(
            f"c{number}", "--cpus", str(number), "--key-file", key,
            "--server", f"http://127.0.0.1:{self.front.port}",
            env={**self.server.env, "http_proxy": self.cache.url, "no_proxy": ""},
        )  # fmt: skip

    def reached(self) -> list[int]:
        """Bytes of unfinished downloads that clients have."""
        return [_size(part) for part in self.server.folder.glob("c*/cache/*.part")]

    def kept(self, sha256: str) -> list[Path]:
        """Whole files of this name in the clients' caches."""
        found = self.server.folder.glob(f"c*/cache/{sha256}*")
        return [path for path in found if path.suffix != ".part"]


@contextmanager
def _place(size: int, clients: int) -> Iterator[Place]:
    room = size // 1_000_000 + 100
    with (
        open_folder("store") as folder,
        object_store(folder, volumes=0) as store,
        deployment() as server,
        squid(_STORE, more=_CACHE.format(one=room, all=2 * room)) as cache,
        meter(server.port) as front,
        meter(store.ports["s3.port"]) as origin,
    ):
        server.start()
        content, path = Content.of(size), "/files/data"
        put, url = (
            SIGNER.presigned(method, f"{host}{path}", {}, {}, datetime.now(UTC), _URL_SECONDS)
            for method, host in (
                ("PUT", store.endpoint), ("GET", f"http://{_STORE}:{origin.port}")
            )
        )  # fmt: skip
        requests.put(put, data=content, timeout=_PATIENCE_SECONDS).raise_for_status()
        yield Place(server, store, cache, front, origin, content, content.sha256, clients, url)


def play(size: int, clients: int) -> list[Claim]:
    """Let all clients fetch it, while the server and a client are killed; then ask for a lie."""
    with _place(size, clients) as here:
        bot = _ran_through_kills(here)
        server, shown = here.server, f"{size / 1e6:.0f} MB x {clients} clients"
        (copies,) = server.rows("SELECT count(*) FROM blob")[0]
        with server.session() as session:
            (result,) = session.bot(bot).results()
        right = server.rows("SELECT FROM ended WHERE bot = %s AND valid", bot)
        is_right = result.stdout == f"{here.sha256}  data\n"
        times = here.origin.passed / size
        return [
            Claim(
                NAME, f"{shown}: from the server", "0 bytes",
                f"0 copies there; all its answers: {here.front.passed / 1000:.0f} kB"
                if not copies else f"{copies} copies there",
                not copies and here.front.passed < size,
            ),
            Claim(
                NAME, f"{shown}: from the store, with squid between", "once",
                f"{times:.4f} times", 1 <= times < 1.01,
            ),
            Claim(
                NAME, "server and a client killed at the half", f"{clients} right answers",
                f"{len(right) if is_right else 0}{_ends(server, bot)}",
                is_right and len(right) == clients,
            ),
            *_refusals(here),
        ]  # fmt: skip


def _ends(server: Deployment, bot: int) -> str:
    """How its other replicas ended, as part of a sentence; nothing where all were right."""
    query = (
        "SELECT how, reason, count(*) FROM ended WHERE bot = %s AND valid IS NOT TRUE"
        " GROUP BY how, reason ORDER BY 3 DESC"
    )
    return "".join(
        f", {count} {how} {reason}".rstrip() for how, reason, count in server.rows(query, bot)
    )


def _ran_through_kills(here: Place) -> int:
    """Submit a job whose answer takes all clients; kill while each has a part of its input."""
    server, size = here.server, here.content.size
    given = f"{here.url}#sha256={here.sha256}&size={size}&name=data"
    bot = server.submit(
        "--quorum", str(here.clients), "--max-replicas", str(2 * here.clients),
        "--disk", f"{(size >> 20) + 100}MB", "--input", given, "--", "sha256sum", "data",
        policy=NO_COPIES,
    )  # fmt: skip
    here.origin.hold_at(size // 2)
    for number in range(1, here.clients + 1):
        here.start(number)
    eventually(
        lambda: [part > size // 4 for part in here.reached()] == [True] * here.clients,
        _PATIENCE_SECONDS, "a part of the input at each client",
    )  # fmt: skip
    server.crash()
    server.kill_client("c1")
    server.start()
    here.start(1)
    here.origin.go_on()
    server.wait(bot, _PATIENCE_SECONDS)
    return bot


def _refusals(here: Place) -> Iterator[Claim]:
    """Who takes the content for another one."""
    server, wrong, size = here.server, "0" * 64, here.content.size
    bots = [
        server.submit(
            "--input", f"{here.url}#sha256={wrong}&size={size}&name=data", "--", "true",
            policy=f"JobRequirements = Host.NumCpus == {number}; {NO_COPIES}",
        )
        for number in range(1, here.clients + 1)
    ]  # fmt: skip
    query = "SELECT DISTINCT client FROM ended WHERE bot = ANY(%s) AND reason = 'input_corrupt'"
    eventually(
        lambda: len(server.rows(query, bots)) == here.clients, _PATIENCE_SECONDS, "all refusals"
    )
    ran = server.rows("SELECT FROM ended WHERE bot = ANY(%s) AND how = 'success'", bots)
    kept = here.kept(wrong)
    yield Claim(
        NAME, "an input of another hash: clients that refuse it", f"{here.clients}; no job runs",
        f"{here.clients}; {len(ran)} jobs ran, {len(kept)} caches have it", not ran and not kept,
    )  # fmt: skip
    status = _sent_to_server(server, wrong)
    yield Claim(
        NAME, "the same, sent to the server", "refused", f"HTTP {status}",
        HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR
        and not server.rows("SELECT FROM blob"),
    )  # fmt: skip
    is_taken = Bucket(BucketPlace.parse(here.store.url("lies")), SIGNER).takes_lies("lie")
    told = "taken" if is_taken else "refused"
    yield Claim(NAME, "the same, sent to the store", "refused", told, not is_taken)


def _sent_to_server(server: Deployment, sha256: str) -> int:
    answer = requests.put(
        f"{server.url}/api/v1/blobs/{sha256}", params={"size": 1000, "offset": 0},
        data=bytes(1000), headers={"Authorization": f"Bearer {server.operator_key}"}, timeout=60,
    )  # fmt: skip
    return answer.status_code


def _size(path: Path) -> int:
    with suppress(FileNotFoundError):  # it has become whole
        return path.stat().st_size
    return 0
