"""Files between five protocols, through failures and kills; the servers are rclone's."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from tests import rclone
from tests.system.deployment import eventually

from gridbot.placement.ads import TransferRequest
from gridbot.placement.places import DataPlace, ProtocolPair, pair_for, pairs_of, place_of
from gridbot.placement.queue import DONE, PlacementQueue

GRIDBOT = Path(sys.executable).with_name("gridbot")
EACH = 10  # placements of each protocol
KILLS = 5

# A module of somebody else: it fails one time in five, and otherwise does as ours does. Its
# alternate protocols are ours with another name, because the servers have different ports.
MODULE = f"""#!{sys.executable}
import hashlib, io, json, os, sys
job, name = os.environ["STORK_JOBID"], os.path.basename(sys.argv[0]).removeprefix("stork.transfer.")
def note(word):
    with open(os.environ["NOTES"], "a") as notes:
        notes.write(f"{{job}} {{name}} {{tries}} {{word}}\\n")
tries = int(os.environ["GRIDBOT_PLACEMENT_FAILURES"])
if hashlib.sha256(f"{{job}} {{tries}}".encode()).digest()[0] < 51:
    note("fails")
    print("injected")
    sys.exit(1)
sys.stdin = io.StringIO(json.dumps([url.removeprefix("one.").removeprefix("two.")
                                    for url in sys.argv[1:]] + [""]))
from gridbot.placement.module import main
main()
note("done")
"""


@dataclass
class Site:
    folder: Path
    bases: dict[str, str]
    environment: dict[str, str]

    def url(self, protocol: str, name: str) -> str:
        base = "s3://bucket" if protocol == "s3" else f"{self.bases[protocol]}/bucket"
        return f"{base}/{name}"

    def gridbot(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [GRIDBOT, "data", *arguments],
            env=self.environment, capture_output=True, text=True, timeout=300,
        )  # fmt: skip


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    (tmp_path / "data" / "bucket").mkdir(parents=True)
    with rclone.served(tmp_path / "data", tmp_path) as bases:
        environment = {
            **os.environ,
            **rclone.environment(bases, tmp_path),
            "GRIDBOT_DATA_QUEUE": str(tmp_path / "queue"),
        }
        yield Site(tmp_path / "data" / "bucket", bases, environment)


def test_a_file_goes_through_all_protocols_and_comes_back(site: Site, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(content := os.urandom(300_000))
    writable = [name for name in rclone.PROTOCOLS if name != "http"]
    done = site.gridbot(
        "copy", str(tmp_path / "a"), *(site.url(name, f"by-{name}") for name in writable),
        "--attempts", "2",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "secret" not in done.stderr + done.stdout
    for name in rclone.PROTOCOLS:
        there = site.folder / f"by-{name if name in writable else writable[0]}"
        eventually(partial(_is_whole, there, len(content)), what=name)
        back = site.gridbot("copy", site.url(name, there.name), str(tmp_path / "back" / name))
        assert back.returncode == 0, back.stderr
        assert (tmp_path / "back" / name).read_bytes() == content


def _is_whole(path: Path, size: int) -> bool:
    return path.exists() and path.stat().st_size == size


def _are_done(queue: PlacementQueue, least: int) -> bool:
    return len(queue.all((DONE,))) >= least


def test_fifty_placements_over_five_protocols_are_each_done_once_through_failures_and_kills(
    site: Site, tmp_path: Path
) -> None:
    modules, notes = tmp_path / "modules", tmp_path / "notes"
    modules.mkdir()
    notes.touch()
    site.environment |= {"GRIDBOT_DATA_MODULES": str(modules), "NOTES": str(notes)}
    queue = PlacementQueue(tmp_path / "queue")
    (tmp_path / "back").mkdir()
    for protocol in rclone.PROTOCOLS:
        for kind in ("", "one.", "two."):
            (modules / f"stork.transfer.{kind}{protocol}-file").write_text(MODULE)
            (modules / f"stork.transfer.{kind}{protocol}-file").chmod(0o700)
        for number in range(EACH):
            name = f"{protocol}-{number}"
            (site.folder / name).write_text(name * 1000)
            source, _ = place_of(site.url(protocol, name))
            alternates = pairs_of(f"one.{protocol}-file, two.{protocol}-file")
            destination = DataPlace("file", str(tmp_path / "back" / name))
            queue.add(TransferRequest(source, destination, alternates))

    for kill in range(KILLS + 1):
        with subprocess.Popen(
            [GRIDBOT, "data", "serve", "--until-empty", "--at-once", "4"],
            env=site.environment, stderr=subprocess.DEVNULL,
        ) as server:  # fmt: skip
            if kill == KILLS:
                assert server.wait(timeout=300) == 0
                break
            eventually(partial(_are_done, queue, (kill + 1) * 7))
            server.send_signal(signal.SIGKILL)

    assert {each.state for each in queue.all()} == {DONE}
    for each in queue.all():
        path = Path(each.request.destination.rest)
        assert path.read_text() == path.name * 1000
    assert sorted(os.listdir(tmp_path / "back")) == sorted(os.listdir(site.folder))
    _alternates_were_used_in_order(queue, notes.read_text())


def _alternates_were_used_in_order(queue: PlacementQueue, notes: str) -> None:
    said: dict[int, list[tuple[str, int, str]]] = {each.id: [] for each in queue.all()}
    for line in notes.splitlines():
        job, pair, tries, word = line.split()
        said[int(job)].append((pair, int(tries), word))
    words = Counter(word for attempts in said.values() for _, _, word in attempts)
    assert words["fails"] > 0
    for each in queue.all():
        given = ProtocolPair(each.request.source.scheme, "file")
        assert [word for _, _, word in said[each.id]].count("done") <= 1
        for pair, failures, _ in said[each.id]:
            expected = pair_for(failures + 1, given, each.request.alternates)
            assert pair == f"{expected.source}-{expected.destination}"
        counted = [failures for _, failures, word in said[each.id] if word == "fails"]
        assert {*counted} == {*range(each.attempts)}


def test_a_copy_that_is_removed_ends_and_leaves_nothing(site: Site, tmp_path: Path) -> None:
    module = tmp_path / "stork.transfer.slow-file"
    module.write_text('#!/bin/sh\ntouch "$NOTES"\nexec sleep 600\n')
    module.chmod(0o700)
    site.environment |= {
        "GRIDBOT_DATA_MODULES": str(tmp_path),
        "NOTES": str(tmp_path / "begun"),
    }
    ad = tmp_path / "x.stork"
    ad.write_text(
        f'[ dap_type = transfer; src_url = "slow://h/a"; dest_url = "file:{tmp_path}/b" ]'
    )
    assert site.gridbot("submit", str(ad)).stdout == "placement 1\n"
    (tmp_path / "b.0123456789ab.part").touch()  # of an earlier attempt
    with subprocess.Popen(
        [GRIDBOT, "data", "serve", "--until-empty"],
        env=site.environment, stderr=subprocess.DEVNULL,
    ) as server:  # fmt: skip
        eventually((tmp_path / "begun").exists)
        assert site.gridbot("remove", "1").returncode == 0
        assert server.wait(timeout=120) == 0
    assert [path.name for path in tmp_path.glob("b.*")] == []


def test_an_attempt_that_hangs_is_ended_and_counts(site: Site, tmp_path: Path) -> None:
    module = tmp_path / "stork.transfer.slow-file"
    module.write_text("#!/bin/sh\nexec sleep 600\n")
    module.chmod(0o700)
    site.environment |= {"GRIDBOT_DATA_MODULES": str(tmp_path)}
    done = site.gridbot(
        "copy", "slow://h/a", str(tmp_path / "b"), "--limit", "1s", "--attempts", "2"
    )
    assert done.returncode == 1
    assert "2 failed attempts: not done after 1 s" in done.stderr


def test_a_module_that_leaves_a_process_behind_has_ended(site: Site, tmp_path: Path) -> None:
    module = tmp_path / "stork.transfer.left-file"
    module.write_text('#!/bin/sh\nsetsid sleep 60 &\necho $! > "$NOTES"\n')
    module.chmod(0o700)
    site.environment |= {"GRIDBOT_DATA_MODULES": str(tmp_path), "NOTES": str(tmp_path / "pid")}
    done = site.gridbot("copy", "left://h/a", str(tmp_path / "b"))
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    assert done.returncode == 0, done.stderr


def test_a_copy_waits_for_itself_alone(site: Site, tmp_path: Path) -> None:
    """Another one is queued, and its place does not answer."""
    module = tmp_path / "stork.transfer.slow-file"
    module.write_text("#!/bin/sh\nexec sleep 600\n")
    module.chmod(0o700)
    site.environment |= {"GRIDBOT_DATA_MODULES": str(tmp_path)}
    ad = tmp_path / "x.stork"
    ad.write_text(f'[ dap_type = transfer; src_url = "slow://h/a"; dest_url = "{tmp_path}/s" ]')
    assert site.gridbot("submit", str(ad)).returncode == 0
    (tmp_path / "a").write_text("content")
    done = site.gridbot("copy", str(tmp_path / "a"), str(tmp_path / "b"))
    assert done.returncode == 0, done.stderr
    [waiting] = json.loads(site.gridbot("queue", "--json").stdout)["placements"]
    assert (waiting["id"], waiting["state"], waiting["failed_attempts"]) == (1, "queued", 0)


def test_a_folder_as_destination_and_a_wrong_limit_queue_nothing(
    site: Site, tmp_path: Path
) -> None:
    (tmp_path / "a").write_text("content")
    for arguments in ((str(tmp_path),), (str(tmp_path / "b"), "--limit", "soon")):
        done = site.gridbot("copy", str(tmp_path / "a"), *arguments)
        assert done.returncode == 2
    assert json.loads(site.gridbot("queue", "--json", "--all").stdout)["placements"] == []


def test_ads_reserve_and_release_by_their_own_ids(site: Site, tmp_path: Path) -> None:
    ad = tmp_path / "x.stork"
    where = f'dest_host = "{tmp_path}"; reserve_id = 7'
    ad.write_text(f'[ dap_type = reserve; {where}; reserve_size = "1 MB" ]')
    other = site.gridbot("reserve", str(tmp_path), "1MB")
    assert other.stdout.startswith("reservation 1")
    assert site.gridbot("submit", str(ad)).stdout == "reservation 2\n"
    ad.write_text(f"[ dap_type = release; {where} ]")
    assert site.gridbot("submit", str(ad)).stdout == "released 2\n"
    [left] = json.loads(site.gridbot("queue", "--json").stdout)["reservations"]
    assert left["id"] == 1


def test_no_password_is_shown(site: Site, tmp_path: Path) -> None:
    url = site.bases["http"].replace("http://", "http://user:secret@")
    done = site.gridbot("copy", f"{url}/none", str(tmp_path / "b"), "--attempts", "1")
    assert done.returncode == 1
    assert "secret" not in done.stderr + site.gridbot("queue", "--all", "--json").stdout
