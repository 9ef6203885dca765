"""Backups of a server, restored in its own place and elsewhere."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import stat
import subprocess
import tarfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from tests.system.deployment import NO_COPIES, Deployment, deployment, eventually

COPY = ("sh", "-c", "cat table > copy; echo {}")


def back_up(server: Deployment, name: str = "backup.tar") -> Path:
    path = server.folder / name
    server.run("server", "backup", str(path), "--data", str(server.data))
    return path


def restore(server: Deployment, archive: Path, code: int = 0) -> str:
    return server.run("server", "restore", str(archive), "--data", str(server.data), code=code)


def end_server(server: Deployment) -> None:
    """End the server, and leave its clients alone."""
    server.run("server", "stop", "--data", str(server.data))


def epoch_of(server: Deployment) -> int:
    """What the server tells everybody."""
    said = json.loads(server.run("server", "status", "--json", "--data", str(server.data)))
    return int(said["health"]["epoch"])


def contents(server: Deployment) -> dict[str, bytes | None]:
    """All files of a stopped server, but its logs and its lock."""
    passing = ("log", "run", "lock")
    return {
        str(path.relative_to(server.data)): path.read_bytes() if path.is_file() else None
        for path in server.data.rglob("*")
        if path.relative_to(server.data).parts[0] not in passing
    }


def test_an_old_backup_is_restored_under_a_client_that_works_on(fresh: Deployment) -> None:
    fresh.start()
    fresh.client("worker", "--cpus", "2")
    table = fresh.file("table", "1 2 3\n")
    with_files = ("--input", str(table), "--output", "copy", "--range", "0:3", "--", *COPY)
    done = fresh.submit(*with_files, policy=NO_COPIES)
    fresh.wait(done)
    gate = fresh.gate()
    going = fresh.submit("--range", "0:4", "--", *gate.command("echo $1"), policy=NO_COPIES)
    eventually(lambda: len(fresh.programs("worker")) == 2, what="two jobs")

    archive = back_up(fresh)
    lost = fresh.submit("--range", "0:2", "--", *gate.command("echo lost"), policy=NO_COPIES)
    epoch = epoch_of(fresh)
    end_server(fresh)
    assert "restored 2 BOTs and 1 files" in restore(fresh, archive)
    fresh.start()

    assert epoch_of(fresh) != epoch
    gate.open()
    fresh.wait(going)
    assert set(fresh.outcomes(going)) == {0, 1, 2, 3}
    with fresh.session() as session:
        copies = [result.outputs["copy"].read() for result in session.bot(done).results()]
    assert copies == [b"1 2 3\n"] * 3
    # What the lost BOT's number meant, no other BOT's does.
    new = fresh.submit("--range", "0:2", "--", "echo", "new {}", policy=NO_COPIES)
    assert new > lost
    fresh.wait(new)
    assert fresh.rows("SELECT count(*) FROM client") == [(1,)]
    assert "invariants hold" in fresh.run("server", "check", "--data", str(fresh.data))
    eventually(
        lambda: "was restored from a backup" in (fresh.folder / "worker.log").read_text(),
        what="the client's word",
    )


def test_a_server_moves_to_another_folder_with_its_keys(fresh: Deployment) -> None:
    fresh.start()
    fresh.client("worker")
    bot = fresh.submit("--range", "0:2", "--", "echo", "{}")
    fresh.wait(bot)
    archive = back_up(fresh)
    fresh.stop()
    with deployment() as other:
        restore(other, archive)
        other.start()
        assert other.operator_key == fresh.operator_key
        assert other.show(bot)["jobs_done"] == 2
        other.client("worker")
        other.wait(other.submit("--range", "0:2", "--", "echo", "{}"))


def copied(server: Deployment) -> Path:
    """A copy of a stopped server's database, as tools make it that know nothing of GridBot."""
    copy = server.folder / "copy"
    subprocess.run(["cp", "-a", server.data / "postgresql", copy], check=True)
    return copy


def test_clients_that_joined_after_the_backup_come_back_without_a_key(
    fresh: Deployment, private_directory: Path
) -> None:
    fresh.start()
    key = fresh.file("own.key", fresh.operator_key)
    archive = back_up(fresh)
    homeless = {"HOME": str(private_directory), "PATH": os.environ["PATH"]}  # no key is found there
    for name in ("late", "later"):
        data = str(fresh.folder / name)
        fresh.run("client", "join", fresh.url, "--key-file", str(key), "--data", data)
        fresh.client(name, env=homeless)
    key.unlink()
    gate = fresh.gate()
    lost = fresh.submit("--range", "0:2", "--", *gate.command("echo lost"), policy=NO_COPIES)
    operators = fresh.operator_key
    end_server(fresh)
    restore(fresh, archive)
    fresh.start()
    assert fresh.operator_key == operators
    eventually(lambda: fresh.rows("SELECT count(*) FROM client") == [(2,)], 240, "both clients")
    gate.open()
    new = fresh.submit("--range", "0:4", "--", "echo", "new {}", policy=NO_COPIES)
    assert new > lost
    fresh.wait(new)
    assert "invariants hold" in fresh.run("server", "check", "--data", str(fresh.data))


def test_a_database_that_was_restored_by_other_tools_is_refused_until_it_is_accepted(
    fresh: Deployment,
) -> None:
    fresh.start()
    fresh.stop()
    copy = copied(fresh)
    fresh.start()
    lost = fresh.submit("--", "true")
    fresh.stop()
    shutil.rmtree(fresh.data / "postgresql")
    copy.rename(fresh.data / "postgresql")
    data = ("--data", str(fresh.data))
    refused = fresh.run("server", "start", *data, code=1)
    assert "the database is older than its file store" in refused
    assert "gridbot server restore --in-place" in refused
    assert "give either the FILE of a backup, or --in-place" in fresh.run(
        "server", "restore", *data, code=2
    )
    fresh.run("server", "restore", "--in-place", *data)
    fresh.start()
    assert "stop the server first" in fresh.run("server", "restore", "--in-place", *data, code=1)
    assert fresh.submit("--", "true") > lost


def test_two_servers_of_one_database_need_one_file_store(dsn: str) -> None:
    with deployment(dsn) as one, deployment(dsn) as other:
        one.start()
        data = ("--data", str(other.data), "--bind", f"127.0.0.1:{other.port}", "--dsn", dsn)
        refused = other.run("server", "start", *data, code=1)
        assert "is not the file store of this database" in refused
        shutil.rmtree(other.data / "files")
        (other.data / "files").symlink_to(one.data / "files")
        other.run("server", "start", *data)


def test_a_store_that_goes_away_is_named_by_health(fresh: Deployment) -> None:
    fresh.start()
    (fresh.data / "files" / "store.json").rename(fresh.data / "aside.json")
    said = fresh.run("server", "status", "--data", str(fresh.data))
    assert "the file store is gone" in said
    (fresh.data / "aside.json").rename(fresh.data / "files" / "store.json")
    assert "gone" not in fresh.run("server", "status", "--data", str(fresh.data))


def test_a_file_that_the_server_lost_costs_no_attempt_and_is_named(fresh: Deployment) -> None:
    fresh.start()
    table = fresh.file("table", "1 2 3\n")
    with_file = ("--input", str(table), "--range", "0:3", "--attempts", "1", "--")
    bot = fresh.submit(*with_file, "cat", "table", policy=NO_COPIES)
    content = hashlib.sha256(table.read_bytes()).hexdigest()
    lost = fresh.data / "files" / content[:2] / content[2:]
    lost.unlink()
    fresh.client("worker", "--cpus", "1")
    eventually(lambda: fresh.show(bot)["state"] == "held", what="that it is held")
    assert f"the server has lost the file {content}" in fresh.show(bot)["held"]
    fresh.submit(*with_file, "true", policy=NO_COPIES)  # brings it again
    assert lost.exists()
    fresh.run("bot", "resume", str(bot))
    fresh.wait(bot)
    assert fresh.outcomes(bot).keys() == {0, 1, 2}
    failures = "SELECT count(*) FROM ended WHERE bot = %s AND how = 'error'"
    assert fresh.rows(failures, bot) == [(0,)]


def test_a_backup_that_adds_to_others_is_restored_with_them(fresh: Deployment) -> None:
    fresh.start()
    bots, archives = [], []
    for number in range(3):
        table = fresh.file(f"table{number}", f"{number}\n" * 10_000)
        bots.append(fresh.submit("--input", str(table), "--", "wc", table.name))
        archives.append(fresh.folder / f"{number}.tar")
        since = ("--since", str(archives[-2])) if number else ()
        where = (str(archives[-1]), "--data", str(fresh.data), *since)
        said = json.loads(fresh.run("server", "backup", *where, "--json"))
        assert (said["files"], said["missing"]) == (1, 0)
    fresh.stop()
    with deployment() as other:
        restore(other, archives[-1])
        other.start()
        for number in range(3):
            content = hashlib.sha256(f"{number}\n".encode() * 10_000).hexdigest()
            assert (other.data / "files" / content[:2] / content[2:]).exists()
        assert [other.show(bot)["jobs_total"] for bot in bots] == [1, 1, 1]
    with deployment() as other:
        shutil.copy(archives[0], archives[1])  # another one of that name
        assert "is not the backup that" in restore(other, archives[-1], code=1)
        archives[1].unlink()
        assert f"there is no file {archives[1]}" in restore(other, archives[-1], code=1)


def test_a_stopped_server_moves_to_another_folder(fresh: Deployment) -> None:
    fresh.start()
    bot = fresh.submit("--", "true")
    target = fresh.folder / "moved" / "server"
    moving = ("server", "move", str(target), "--data", str(fresh.data))
    assert "is already running" in fresh.run(*moving, code=1)
    fresh.stop()
    fresh.file("moved", "a file")
    assert "moved" in fresh.run(*moving, code=1)
    (fresh.folder / "moved").unlink()
    fresh.run(*moving)
    fresh.data.mkdir(exist_ok=True)
    full = ("server", "move", str(target), "--data", str(fresh.folder / "nothing"))
    assert "no server was ever started" in fresh.run(*full, code=1)
    fresh.data.rmdir()
    fresh.data, fresh.env["GRIDBOT_DATA"] = target, str(target.parent)
    fresh.start()
    assert fresh.show(bot)["jobs_total"] == 1


def test_what_was_there_is_moved_aside_and_only_we_can_read_a_backup(fresh: Deployment) -> None:
    fresh.start()
    archive = back_up(fresh)
    assert stat.S_IMODE(archive.stat().st_mode) == 0o600
    again = fresh.run("server", "backup", str(archive), "--data", str(fresh.data), code=1)
    assert f"{archive} is there already" in again
    refused = restore(fresh, archive, code=1)
    assert "is already running" in refused
    fresh.stop()
    before = fresh.operator_key
    said = json.loads(
        fresh.run("server", "restore", str(archive), "--data", str(fresh.data), "--json")
    )
    aside = Path(said["aside"])
    assert (aside / "operator.key").read_text().strip() == before
    assert (aside / "postgresql" / "PG_VERSION").exists()
    assert stat.S_IMODE(aside.stat().st_mode) == 0o700


@pytest.fixture(scope="module")
def stopped() -> Iterator[tuple[Deployment, Path]]:
    """A stopped server, and a backup of it."""
    with deployment() as made:
        made.start()
        archive = back_up(made)
        made.stop()
        yield made, archive


def members(archive: Path) -> list[tuple[tarfile.TarInfo, bytes]]:
    with tarfile.open(archive, "r:") as tar:
        return [(item, tar.extractfile(item).read()) for item in tar]  # type: ignore[union-attr]


def changed(archive: Path, name: str, items: list[tuple[tarfile.TarInfo, bytes]]) -> Path:
    target = archive.with_name(name)
    with tarfile.open(target, "w") as tar:
        for item, content in items:
            item.size = len(content)
            tar.addfile(item, io.BytesIO(content))
    return target


def named(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    item = tarfile.TarInfo(name)
    item.type, item.linkname = kind, link
    return item


@pytest.mark.parametrize(
    "name", ["../operator.key", "/etc/passwd", "files/../x", "settings/endpoint.json", "files/ab/c"]
)
def test_an_archive_with_other_names_is_refused(
    stopped: tuple[Deployment, Path], name: str
) -> None:
    server, archive = stopped
    evil = changed(archive, "evil.tar", [*members(archive), (named(name), b"x")])
    before = contents(server)
    assert "is no part of a backup" in restore(server, evil, code=1)
    assert contents(server) == before


def test_an_archive_with_a_link_is_refused(stopped: tuple[Deployment, Path]) -> None:
    server, archive = stopped
    link = named("settings/project.pub", tarfile.SYMTYPE, "/etc/passwd")
    evil = changed(archive, "link.tar", [*members(archive), (link, b"")])
    assert "is no part of a backup" in restore(server, evil, code=1)


def test_a_backup_that_was_cut_off_is_refused_and_changes_nothing(
    stopped: tuple[Deployment, Path],
) -> None:
    server, archive = stopped
    before = contents(server)
    whole = archive.read_bytes()
    for part in (0, 100, 5000, len(whole) // 2, len(whole) - 20_000):
        cut = archive.with_name("cut.tar")
        cut.write_bytes(whole[:part])
        restore(server, cut, code=1)
    assert "is not whole" in restore(
        server, changed(archive, "endless.tar", members(archive)[:-1]), code=1
    )
    assert "there is no file" in restore(server, archive.with_name("absent.tar"), code=1)
    other = members(archive)
    other[0] = (other[0][0], json.dumps({"format": 99, "release": "9.0"}).encode())
    assert "has format 99" in restore(server, changed(archive, "later.tar", other), code=1)
    assert contents(server) == before


def test_what_a_killed_server_left_running_is_not_moved_away(fresh: Deployment) -> None:
    fresh.start()
    archive = back_up(fresh)
    supervisor = psutil.Process(fresh.supervisor)
    supervisor.kill()
    supervisor.wait()
    assert "a killed server left processes running" in restore(fresh, archive, code=1)
    fresh.stop()
    restore(fresh, archive)
    fresh.start()


def test_a_restore_that_was_killed_while_it_moved_things_is_made_again(fresh: Deployment) -> None:
    fresh.start()
    archive = back_up(fresh)
    fresh.stop()
    (fresh.data / "restoring").mkdir()  # as a restore leaves it that was killed then
    shutil.move(fresh.data / "operator.key", fresh.data / "restoring")
    refused = fresh.run("server", "start", "--data", str(fresh.data), code=1)
    assert "was cut off: run gridbot server restore again" in refused
    restore(fresh, archive)
    fresh.start()
    assert fresh.run("bot", "list").startswith("no BOTs")


@pytest.fixture
def empty(postgres: str) -> Iterator[str]:
    """Connection string of a database without tables."""
    name = f"gridbot_test_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(postgres, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        yield make_conninfo(postgres, dbname=name)
        drop = sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name))
        admin.execute(drop)


def test_a_database_of_ones_own_is_restored_into_an_empty_one(dsn: str, empty: str) -> None:
    with deployment(dsn) as server:
        server.start()
        server.client("worker")
        bot = server.submit("--range", "0:2", "--", "echo", "{}")
        server.wait(bot)
        archive = back_up(server)
        server.stop()
        refused = restore(server, archive, code=1)
        assert "tables already: name an empty one with --dsn" in refused
        data = ("--data", str(server.data))
        server.run("server", "restore", str(archive), *data, "--dsn", empty)
        server.run("server", "start", *data)
        assert server.settings.dsn == empty
        assert server.show(bot)["jobs_done"] == 2
