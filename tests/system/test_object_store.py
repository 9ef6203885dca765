"""A whole installation whose files are in an object store: SeaweedFS, killed in between."""

from __future__ import annotations

import getpass
import hashlib
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.certificates import certified
from tests.object_store import ENVIRONMENT, SECRET_KEY, ObjectStore, object_store
from tests.squid import Squid, squid
from tests.system.deployment import Deployment, deployment, eventually
from tests.system.stock_client import needs_boinc, stock_client

BIG = 40 << 20  # several parts


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with object_store(tmp_path_factory.mktemp("seaweedfs")) as found:
        yield found


@pytest.fixture(scope="module")
def shared(peer: ObjectStore) -> Iterator[Deployment]:
    with deployment() as server:
        server.env.update(ENVIRONMENT)
        server.configure(boinc_accounts=True)
        server.start("--files", peer.url("grid/bot"), "--sign-on-submit")
        yield server


def outputs_of(server: Deployment, bot: int) -> dict[int, bytes]:
    folder = server.folder / f"outputs-{bot}"
    server.run("bot", "results", str(bot), "--to", str(folder))
    return {int(path.parent.name): path.read_bytes() for path in folder.glob("*/copy")}


def copying_bot(server: Deployment, table: Path, jobs: int = 3) -> int:
    copies = ("--output", "copy", "--range", f"0:{jobs}", "--", "sh", "-c", "cat table > copy")
    return server.submit("--input", f"{table}=table", *copies)


def test_files_go_to_the_store_and_come_from_it_past_the_server(
    running: Deployment, peer: ObjectStore
) -> None:
    content = bytes(range(256)) * (BIG // 256)
    bot = copying_bot(running, running.file("big", content), jobs=1)
    running.client("worker", "--cpus", "1")
    running.wait(bot, 120)
    assert outputs_of(running, bot) == {0: content}
    assert list((running.data / "files").iterdir()) == []
    assert list((running.data / "uploads").iterdir()) == []
    said = "".join(path.read_text(errors="replace") for path in running.settings.log.iterdir())
    said += (running.folder / "worker.log").read_text() + running.settings.files.name
    assert SECRET_KEY not in said + (running.data / "settings.json").read_text()
    assert "X-Amz-Signature" not in said


def test_a_store_that_is_killed_costs_time_and_no_result(
    running: Deployment, peer: ObjectStore
) -> None:
    content = b"0123456789abcdef" * 20_000
    gate = running.gate()
    script = gate.command("cat table > copy")
    table = running.file("table", content)
    bot = running.submit(
        "--input", f"{table}=table", "--output", "copy", "--range", "0:4", "--", *script
    )
    running.client("worker", "--cpus", "2")
    eventually(lambda: len(running.programs("worker")) == 2, what="two jobs")
    peer.kill()
    gate.open()
    eventually(lambda: not running.programs("worker"), what="the end of the jobs")
    health = json.loads(running.run("server", "status", "--json", "--data", str(running.data)))
    assert "the object store" in str(health["health"]["trouble"])
    peer.start()
    running.wait(bot, 240)
    assert outputs_of(running, bot) == dict.fromkeys(range(4), content)


@needs_boinc
def test_a_stock_client_fetches_from_the_store_and_sends_through_the_server(
    running: Deployment,
) -> None:
    content = b"of a volunteer\n" * 50_000
    bot = copying_bot(running, running.file("table", content), jobs=2)
    with stock_client(running, cpus=2) as client:
        client.listens()
        made = client.command(
            "--create_account", client.url, "ann@example.com", "a password", "Ann"
        )
        found = re.search("account key: ([0-9a-f]{32})", made)
        assert found, made
        client.attach(found[1])
        running.wait(bot, 240)
    assert outputs_of(running, bot) == dict.fromkeys(range(2), content)


def test_a_restore_goes_on_with_the_objects_of_its_backup_and_names_those_that_are_gone(
    running: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = b"kept in the store\n" * 20_000
    bot = copying_bot(running, running.file("table", content), jobs=2)
    spoilt = b"to be lost\n" * 20_000
    other = copying_bot(running, running.file("spoilt", spoilt), jobs=1)
    running.client("worker", "--cpus", "2")
    running.wait(bot, 120)
    running.wait(other, 120)
    running.kill_clients()
    archive = running.folder / "backup.tar"
    arguments = ("server", "backup", str(archive), "--data", str(running.data), "--json")
    told = json.loads(running.run(*arguments))
    assert (told["files"], told["missing"]) == (0, 0)
    assert told["objects"] > 0
    assert archive.stat().st_size < 5_000_000
    text = archive.read_bytes()
    assert SECRET_KEY.encode() not in text
    running.run("server", "stop", "--data", str(running.data))
    lost = hashlib.sha256(spoilt).hexdigest()
    with monkeypatch.context() as patched:
        for name, value in ENVIRONMENT.items():
            patched.setenv(name, value)
        assert running.settings.open_store().remove(lost, datetime.max.replace(tzinfo=UTC))
    restored = running.run("server", "restore", str(archive), "--data", str(running.data), "--json")
    (missing,) = json.loads(restored)["missing"]
    assert missing == {
        "sha256": lost,
        "bytes": len(spoilt),
        "owners": [getpass.getuser()],
        "bots": [other],
    }
    running.start()
    assert outputs_of(running, bot) == dict.fromkeys(range(2), content)


def test_a_bucket_of_another_server_is_refused(running: Deployment, peer: ObjectStore) -> None:
    with deployment() as other:
        other.env.update(ENVIRONMENT)
        where = ("--data", str(other.data), "--bind", f"127.0.0.1:{other.port}")
        files = ("--files", peer.url("grid/bot"))
        said = other.run("server", "start", *where, *files, code=1)
    assert "is the file store of another database" in said


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_store_behind_the_sites_proxy_is_reached_from_a_server_that_is_not(
    fresh: Deployment, tmp_path: Path, scheme: str
) -> None:
    name, content = "store.test", b"past the proxy\n" * 50_000  # only the proxy knows the name
    certificate = certified(tmp_path, name)
    with object_store(tmp_path, certificate) as store, squid(name) as proxy:
        public = f"{scheme}://{name}:{store.ports[_PORTS[scheme]]}"
        start(fresh, f"{store.url('grid')}&public={public}")
        fresh.env.update(
            {f"{scheme}_proxy": proxy.url, "REQUESTS_CA_BUNDLE": str(certificate), "no_proxy": ""}
        )
        bot = copying_bot(fresh, fresh.file("table", content), jobs=1)
        fresh.client("worker", "--cpus", "1")
        fresh.wait(bot, 120)
        assert outputs_of(fresh, bot) == {0: content}
        wanted = {("GET", public), ("PUT", public)}
        if scheme == "https":
            wanted = {("CONNECT", public.removeprefix("https://"))}
        eventually(lambda: places(proxy) == wanted, what="these requests alone")


def test_no_proxy_is_asked_for_a_store_on_the_same_machine(
    fresh: Deployment, peer: ObjectStore
) -> None:
    content = b"without a proxy\n" * 50_000
    with squid() as proxy:
        start(fresh, peer.url("near"))
        fresh.env.update({"http_proxy": proxy.url, "no_proxy": ""})
        bot = copying_bot(fresh, fresh.file("table", content), jobs=1)
        fresh.client("worker", "--cpus", "1")
        fresh.wait(bot, 120)
        assert outputs_of(fresh, bot) == {0: content}
        assert proxy.asked == []


def places(proxy: Squid) -> set[tuple[str, str]]:
    """The methods that a proxy was asked for, and the hosts."""
    return {(method, url.partition("/files/")[0]) for _, method, url in proxy.asked}


_PORTS = {"http": "s3.port", "https": "s3.port.https"}


def start(server: Deployment, files: str) -> None:
    """Start a server with its files at such a place; what runs later has none of its keys."""
    before = dict(server.env)
    server.env.update(ENVIRONMENT)
    server.start("--files", files)
    server.env = before
