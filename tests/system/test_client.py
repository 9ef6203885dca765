from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from tests.fakes.project_server import ProjectServer
from tests.system.deployment import eventually

from gridbot_client.backoff import FailedRequests
from gridbot_client.net.discovery import remember_keys
from gridbot_client.protocol.messages import JobInput, Manifest, ReplicaId, Report, Resources
from gridbot_client.protocol.signatures import fingerprint
from gridbot_client.storage import Folder
from gridbot_client.work.processes import Census

ENTRY = "from gridbot_client.cli import client; client(prog_name='gridbot client')"
SHELL = Manifest("alice", ("/bin/sh", "-c", "{script}"), {"script": "text"})


def shell(**changes: object) -> Manifest:
    return replace(SHELL, **changes)  # type: ignore[arg-type]


def script(text: str) -> list[dict[str, str]]:
    return [{"script": text}]


class Clients:
    """Starts real client processes on one folder and ends those that are left."""

    def __init__(self, folder: Path, server: ProjectServer) -> None:
        self.folder = folder
        self.server = server
        self.env = {
            **os.environ,
            "GRIDBOT_SERVER": server.url,
            "GRIDBOT_KEY": "good-key",
            "GRIDBOT_DATA": str(folder.parent),
        }
        self.started: list[subprocess.Popen[str]] = []

    def start(self, *args: str, data: Path | None = None) -> subprocess.Popen[str]:
        # The folder in which tests put the files that show what tasks did, and this Python, which
        # may be below /tmp: tasks have one of their own.
        allowed = ["--allow-write", str(self.folder.parent), "--allow-read", sys.prefix]
        argv = [sys.executable, "-c", ENTRY, "run", "--data", str(data or self.folder)]
        argv += ["--trust", fingerprint_of(self.server.alice)]
        argv += [*allowed, *args]
        process = subprocess.Popen(
            argv, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.started.append(process)
        return process

    def finish(self, process: subprocess.Popen[str], code: int = 0) -> str:
        out, err = process.communicate(timeout=40)
        assert process.returncode == code, out + err
        return out + err

    def once(self, *args: str, code: int = 0) -> str:
        return self.finish(self.start("--once", *args), code)

    def command(self, *args: str) -> str:
        argv = [sys.executable, "-c", ENTRY, *args, "--data", str(self.folder)]
        ended = subprocess.run(argv, env=self.env, capture_output=True, text=True)
        assert ended.returncode in (0, 3), ended.stderr  # 3: the state of a client that has ended
        return ended.stdout

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.command("status", "--json"))
        return found

    def end(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.communicate()
        for found in Census().under(str(self.folder)):
            found.kill()


@pytest.fixture
def server() -> Iterator[ProjectServer]:
    made = ProjectServer()
    yield made
    made.close()


@pytest.fixture
def clients(tmp_path: Path, server: ProjectServer) -> Iterator[Clients]:
    made = Clients(tmp_path / "client", server)
    yield made
    made.end()


def fingerprint_of(key: Ed25519PrivateKey) -> str:
    return fingerprint(key.public_key().public_bytes_raw())


def only_report(server: ProjectServer, id: ReplicaId) -> Report:
    (report,) = server.reports[id]
    return report


def contents(report: Report) -> dict[str, bytes | None]:
    return {output.name: output.content for output in report.outputs}


# --- the main path


def test_a_replica_is_fetched_run_and_reported(server: ProjectServer, clients: Clients) -> None:
    program = server.file(
        "prog", b'#!/bin/sh\necho "$1 $(cat data/x)"; echo err >&2', executable=True
    )
    own = server.file("data/x", b"own input")
    manifest = Manifest("alice", ("prog", "a={i}"), {"i": "int"}, (program,), ("stdout", "*.none"))
    (id,) = server.add(manifest, [{"i": 5}], inputs=(own,))
    out = clients.once()
    report = only_report(server, id)
    assert (report.how, report.exit_code, report.reason) == ("success", 0, "")
    assert contents(report) == {"stdout": b"a=5 own input\n"}
    assert report.stderr == "err\n"
    assert report.wall_seconds > 0
    assert "joined" in out and "BOT 1: 1 replica finished" in out
    assert server.joins[0]["mac"] and server.requests[0].host["NumCpus"]
    assert list((clients.folder / "slots").iterdir()) == []


def test_a_program_sees_a_clean_place_and_nothing_of_the_client(
    server: ProjectServer, clients: Clients
) -> None:
    clients.env["SECRET"] = "canary"
    (id,) = server.add(shell(), script("env; pwd; ulimit -c; ls -A; cat"))
    clients.once()
    text = (contents(only_report(server, id))["stdout"] or b"").decode()
    assert "canary" not in text and "good-key" not in text
    # From level 2 on walls stay for the next replica of the BOT, and so does the folder in them.
    place = "cells/1" if int(server.requests[0].host["SandboxLevel"]) >= 2 else f"slots/{id}"
    work = clients.folder / place / "work"
    assert f"HOME={work}\n" in text and f"\n{work}\n" in text
    assert "GRIDBOT_BOT=1\n" in text and text.endswith("\n0\ntmp\n")


def test_both_processors_are_used_and_what_waits_is_prefetched(
    server: ProjectServer, clients: Clients
) -> None:
    gate = clients.folder.parent / "gate"
    ids = server.add(shell(), script(f"until test -e {gate}; do sleep 0.05; done") * 6)
    process = clients.start("--cpus", "2", "--exit-when-idle", "0.3")
    eventually(lambda: len(list(clients.folder.glob("slots/*/run.json"))) == 2)
    eventually(lambda: server.requests and set(server.requests[-1].holding) == set(ids))
    assert clients.status()["running"] == 2
    gate.touch()
    clients.finish(process)
    assert all(only_report(server, id).how == "success" for id in ids)


def test_a_client_says_how_many_short_jobs_it_holds_ahead(
    server: ProjectServer, clients: Clients
) -> None:
    (id,) = server.add(shell(), script("true"))
    clients.finish(clients.start("--cpus", "2", "--exit-when-idle", "0.3"))
    assert only_report(server, id).how == "success"
    first, last = server.requests[0], server.requests[-1]
    assert first.ahead == ()
    ((bot, replicas),) = last.ahead
    assert bot == id.bot
    assert replicas > 2


def test_a_paused_client_starts_nothing_until_it_is_resumed(
    server: ProjectServer, clients: Clients
) -> None:
    clients.command("pause")
    (id,) = server.add(shell(), script("true"))
    clients.start()
    eventually(lambda: len(server.requests) >= 3)
    assert all(request.want == 0 for request in server.requests)
    assert clients.status()["state"] == "paused"
    clients.command("resume")
    eventually(lambda: server.reports[id])


def test_a_client_that_waits_out_an_outage_asks_at_once_when_resumed(
    server: ProjectServer, clients: Clients
) -> None:
    clients.once()
    asked = len(server.requests)
    Folder(clients.folder).save_backoff(FailedRequests(12, time.time() + 3000, "away"))
    clients.start()
    eventually(lambda: clients.status()["process"])
    assert clients.status()["next_try_seconds"] > 2000
    assert len(server.requests) == asked
    clients.command("resume")
    eventually(lambda: len(server.requests) > asked)


def test_cancelled_work_is_stopped_and_dropped(server: ProjectServer, clients: Clients) -> None:
    (id,) = server.add(shell(), script("trap '' TERM; sleep 60 & wait; sleep 60"))
    clients.start()
    eventually(lambda: server.requests and id in server.requests[-1].holding)
    server.abort.add(id)
    eventually(lambda: server.requests[-1].holding == ())
    eventually(lambda: not list((clients.folder / "slots").iterdir()))
    assert not server.reports[id]
    assert Census().under(str(clients.folder)) == []


# --- limits and what programs get up to


@pytest.mark.parametrize(
    ("text", "limits", "reason"),
    [
        ("sleep 60", {"seconds": 0.3}, "time_limit"),
        ("trap '' TERM; sleep 60; sleep 60", {"seconds": 0.3}, "time_limit"),
        (f"{sys.executable} -c 'x=b\"x\"*200_000_000; input()' < /dev/zero", {"memory_mb": 50},
         "memory_limit"),
        ("dd if=/dev/zero of=f bs=1M count=9 2>/dev/null", {"disk_mb": 2}, "disk_limit"),
        ("cat /dev/zero", {"disk_mb": 2}, "disk_limit"),
        ("mkdir d; for i in 1 2 3 4; do head -c 900000 /dev/zero > d/$i; done; sleep 60",
         {"disk_mb": 2}, "disk_limit"),
        ("exit 3", {}, "exit_nonzero"),
        ("kill -SEGV $$", {}, "signal"),
    ],
)  # fmt: skip
def test_each_limit_has_its_reason(
    server: ProjectServer, clients: Clients, text: str, limits: dict[str, float], reason: str
) -> None:
    (id,) = server.add(shell(resources=Resources(**limits)), script(text))  # type: ignore[arg-type]
    clients.once()
    assert only_report(server, id).reason == reason
    assert Census().under(str(clients.folder)) == []


@pytest.mark.parametrize(
    ("manifest", "args", "reason", "stderr"),
    [
        (Manifest("alice", ("no-such-program",)), {}, "not_executable", "no-such-program"),
        (
            Manifest("alice", ("{i}",), {"i": "int"}),
            {"i": "x"},
            "bad_arguments",
            "is of type int, got 'x'",
        ),
        (shell(outputs=("out",)), {"script": "true"}, "missing_output", "output 'out' is missing"),
        (shell(outputs=("out",)), {"script": "ln -s /etc/passwd out"}, "missing_output", "'out'"),
        (shell(max_output_bytes=3), {"script": "echo four"}, "output_too_big", "at most 3"),
    ],
)
def test_each_failure_has_its_reason_and_says_more(
    server: ProjectServer, clients: Clients, manifest: Manifest, args: dict[str, str],
    reason: str, stderr: str,
) -> None:  # fmt: skip
    (id,) = server.add(manifest, [args])
    clients.once()
    report = only_report(server, id)
    assert (report.how, report.reason, report.outputs) == ("error", reason, ())
    assert stderr in report.stderr


def test_a_process_that_leaves_its_group_is_gone_afterwards(
    server: ProjectServer, clients: Clients
) -> None:
    begun = clients.folder.parent / "begun"
    daemon = f"(setsid sh -c 'trap \"\" TERM HUP; touch {begun}; sleep 60; sleep 60' &) &"
    (id,) = server.add(shell(), script(f"{daemon} until test -e {begun}; do sleep 0.02; done"))
    clients.once()
    assert only_report(server, id).how == "success"
    assert Census().under(str(clients.folder)) == []
    assert living_that_name(begun) == []


def living_that_name(path: Path) -> list[int]:
    """Processes whose arguments name a file; a task does not know its own process id outside."""
    return [
        process.pid
        for process in psutil.process_iter(["cmdline"])
        if str(path) in " ".join(process.info["cmdline"] or ())
    ]


def test_a_replica_whose_deadline_passed_is_not_started(
    server: ProjectServer, clients: Clients
) -> None:
    (id,) = server.add(shell(), script("true"), deadline=0.0)
    clients.once()
    assert only_report(server, id).reason == "deadline_passed"


# --- trust


def test_what_nobody_signed_is_refused_aloud(server: ProjectServer, clients: Clients) -> None:
    canary = clients.folder.parent / "ran"
    (id,) = server.add(shell(owner="alice"), script(f"touch {canary}"), signed=False)
    out = clients.once()
    report = only_report(server, id)
    assert (report.how, report.reason) == ("error", "unsigned")
    assert "a BOT of alice does not run here: nobody signed it" in out
    assert not canary.exists()


def test_the_owners_name_that_a_server_tells_is_no_reason_to_run(
    server: ProjectServer, clients: Clients
) -> None:
    canary = clients.folder.parent / "ran"
    mallory = Ed25519PrivateKey.generate()
    server.owner_keys = [fingerprint_of(mallory)]
    (id,) = server.add(shell(owner="alice"), script(f"touch {canary}"), signed=False, owner=mallory)
    out = clients.once()
    assert only_report(server, id).reason == "unsigned"
    assert f"it is signed by key {fingerprint_of(mallory)} only" in out
    assert not canary.exists()


@pytest.mark.parametrize("name", ["echo", "./echo", "x/../echo"])
def test_a_jobs_own_file_does_not_replace_the_signed_command(
    server: ProjectServer, clients: Clients, name: str
) -> None:
    canary = clients.folder.parent / "ran"
    evil = server.file("echo", f"#!/bin/sh\ntouch {canary}\n".encode(), executable=True)
    manifest = Manifest("bob", (name, "hello"), job_inputs=(JobInput("*", executable=True),))
    (id,) = server.add(manifest, [{}], inputs=(evil,))
    out = clients.once()
    report = only_report(server, id)
    assert (report.how, report.reason) == ("error", "input_forbidden")
    why = "input echo of this job would replace the signed command"
    assert why in report.stderr
    assert f"refused to run BOT 1: {why}" in out
    assert not canary.exists()


def test_a_jobs_own_file_does_not_replace_a_shared_one(
    server: ProjectServer, clients: Clients
) -> None:
    good = server.file("data", b"good")
    bad = server.file("data", b"bad")
    (id,) = server.add(shell(inputs=(good,)), script("cat data"), inputs=(bad,))
    clients.once()
    report = only_report(server, id)
    assert (report.how, report.reason, report.stdout) == ("error", "input_forbidden", "")
    assert "input data of this job would replace another input" in report.stderr


@pytest.mark.parametrize(
    ("allowed", "name", "executable"),
    [("*.csv", "numpy.py", False), ("*", "tool", True), ("data-?.csv", "data-10.csv", False)],
)
def test_a_jobs_own_files_are_those_that_the_signature_allows(
    server: ProjectServer, clients: Clients, allowed: str, name: str, executable: bool
) -> None:
    own = server.file(name, b"x", executable=executable)
    (id,) = server.add(shell(job_inputs=(JobInput(allowed),)), script("echo ran"), inputs=(own,))
    clients.once()
    report = only_report(server, id)
    assert (report.reason, report.stdout) == ("input_forbidden", "")
    assert f"{name}" in report.stderr and "signature allows no job" in report.stderr


def test_a_bot_runs_for_the_owners_key_that_the_machines_user_pinned(
    server: ProjectServer, clients: Clients
) -> None:
    bob = Ed25519PrivateKey.generate()
    (id,) = server.add(shell(owner="bob"), script("true"), signed=False, owner=bob)
    clients.once("--trust", fingerprint_of(bob))
    assert only_report(server, id).how == "success"
    assert fingerprint_of(bob) in server.introductions[-1]["trusts"]


def test_a_key_can_be_trusted_later(server: ProjectServer, clients: Clients) -> None:
    bob = Ed25519PrivateKey.generate()
    clients.once()
    assert fingerprint_of(bob) in clients.command("trust", fingerprint_of(bob))
    (id,) = server.add(shell(owner="bob"), script("true"), signed=False, owner=bob)
    clients.once()
    assert only_report(server, id).how == "success"


@pytest.mark.parametrize(("key", "reason"), [("gb_user_key", ""), ("good-key", "unsigned")])
def test_joining_with_a_key_of_ones_own_is_the_word_for_ones_own_signing_keys(
    server: ProjectServer, clients: Clients, key: str, reason: str
) -> None:
    alice = Ed25519PrivateKey.generate()
    server.owner_keys = [fingerprint_of(alice)]
    (id,) = server.add(shell(), script("true"), signed=False, owner=alice)
    clients.env["GRIDBOT_KEY"] = key
    clients.once()
    assert only_report(server, id).reason == reason


def test_a_client_says_that_a_server_which_holds_the_projects_key_can_sign(
    server: ProjectServer, clients: Clients
) -> None:
    server.signs_at_submission = True
    assert "(the server itself holds that key: who breaks into it can sign as well)" in (
        clients.once()
    )


def test_a_job_that_is_not_in_the_signed_table_does_not_run(
    server: ProjectServer, clients: Clients
) -> None:
    canary = clients.folder.parent / "ran"
    first, second = server.add(shell(), [*script("true"), *script("echo fine")])
    server.change(first, args={"script": f"touch {canary}"})
    out = clients.once()
    assert only_report(server, first).reason == "unsigned"
    assert "job 0 does not belong to the signed BOT" in out
    assert contents(only_report(server, second))["stdout"] == b"fine\n"
    assert not canary.exists()


def test_what_is_revoked_runs_no_more_even_if_the_server_keeps_quiet_later(
    server: ProjectServer, clients: Clients
) -> None:
    (first,) = server.add(shell(), script("true"))
    server.revoke(first)
    clients.once()
    assert only_report(server, first).reason == "unsigned"
    server.revocations.clear()
    (again,) = server.add(shell(), [*script("true")])
    clients.once()
    assert server.reports[again][-1].reason == "unsigned"


def test_the_projects_next_key_is_followed_from_the_pinned_one(
    server: ProjectServer, clients: Clients
) -> None:
    clients.once()
    server.rotate()
    (id,) = server.add(shell(), script("true"))
    clients.once()
    assert only_report(server, id).how == "success"


def test_a_server_of_an_older_version_is_told_apart(
    server: ProjectServer, clients: Clients
) -> None:
    server.protocol = 1
    process = clients.start()
    assert process.stdout
    assert "speaks an older version of the protocol" in process.stdout.readline()
    process.terminate()
    clients.finish(process)


def test_the_machines_owner_is_asked_about_the_bot_that_arrived(
    server: ProjectServer, clients: Clients
) -> None:
    bob = Ed25519PrivateKey.generate()
    options = ("--trust", fingerprint_of(bob), "--requirements", "BOT.Signed")
    (unsigned,) = server.add(shell(owner="bob"), script("true"), signed=False, owner=bob)
    clients.once(*options)
    assert only_report(server, unsigned).reason == "owner_policy"
    (signed,) = server.add(shell(owner="bob"), script("true"), bot=2, owner=bob)
    clients.once(*options)
    assert only_report(server, signed).how == "success"


def test_another_project_key_is_not_believed(server: ProjectServer, clients: Clients) -> None:
    clients.once()
    server.key = ProjectServer().key
    (id,) = server.add(shell(), script("true"))
    process = clients.start()
    eventually(lambda: "is not the one pinned" in clients.command("status"))
    process.terminate()
    clients.finish(process)
    assert not server.reports[id]


# --- walls


def test_the_sandbox_level_is_proven_shown_and_published(
    server: ProjectServer, clients: Clients
) -> None:
    clients.once()
    host, status = server.requests[-1].host, clients.status()
    assert (host["SandboxLevel"], host["Sandbox"]) == (status["sandbox_level"], status["sandbox"])
    assert f"sandbox level {status['sandbox_level']}: " in clients.command("status")
    out = clients.once("--sandbox", "0")
    assert server.requests[-1].host["SandboxLevel"] == 0
    assert "warning: no work of others will run" in out


def test_work_of_others_is_refused_without_walls(server: ProjectServer, clients: Clients) -> None:
    (id,) = server.add(shell(owner="bob"), script("true"))
    clients.once("--sandbox", "0")
    report = only_report(server, id)
    assert (report.how, report.reason) == ("error", "sandbox_too_weak")
    assert "work of others needs sandbox level 1" in report.stderr


def test_nobodys_task_sees_the_clients_folder_and_only_ones_own_reads_beyond_the_system(
    server: ProjectServer, clients: Clients
) -> None:
    text = f"cat {clients.folder}/client.json; ls {clients.folder}; cat /etc/fstab; true"
    (own,) = server.add(shell(owner="alice"), script(text))
    (others,) = server.add(shell(owner="bob"), script(text), bot=2)
    clients.once("--min-sandbox", "2")
    for id in (own, others):
        report = only_report(server, id)
        assert report.how == "success"
        assert b"token" not in (seen := contents(report)["stdout"] or b"")
        assert b"client.json" not in seen
    assert "/etc/fstab" in only_report(server, others).stderr
    assert "/etc/fstab" not in only_report(server, own).stderr


# --- the network


def kill_once_it_waits(server: ProjectServer, clients: Clients) -> None:
    """Kill a client that was told to stay away: nothing of it is on its way to the server."""
    folder = Folder(clients.folder)
    process = clients.start()
    eventually(lambda: folder.backoff().remaining(time.time()) > 300)
    process.kill()
    process.wait()
    folder.save_backoff(FailedRequests())
    assert not server.faults["rpc"]


def test_a_lost_reply_repeats_the_request_and_gets_the_same_work(
    server: ProjectServer, clients: Clients
) -> None:
    ids = server.add(shell(), script("true") * 3)
    server.faults["rpc"].append("lose_reply")
    clients.once()
    first, second = server.requests[:2]
    assert first == second
    assert server.requests[2].key != first.key and server.requests[2].seqno > first.seqno
    assert all(len(server.reports[id]) == 1 for id in ids)


def test_a_request_for_work_is_not_repeated_once_its_owner_refuses(
    server: ProjectServer, clients: Clients
) -> None:
    ids = server.add(shell(), script("true") * 2)
    server.faults["rpc"] += ["lose_reply", "away"]
    kill_once_it_waits(server, clients)
    out = clients.once("--requirements", "LoadAvg < 0")
    first, *later = server.requests
    assert first.want > 0 and {request.want for request in later} == {0}
    assert all(request.host["Requirements"] == "LoadAvg < 0" for request in later)
    assert out.count("not asking for work: the owner's policy is not satisfied: LoadAvg < 0") == 1
    assert all(len(server.reports[id]) == 1 for id in ids)  # what was granted before is done


@pytest.mark.parametrize("fault", ["portal", "busy", "redirect", "garbage"])
def test_whatever_answers_instead_of_the_server_changes_nothing(
    server: ProjectServer, clients: Clients, fault: str
) -> None:
    (id,) = server.add(shell(), script("true"))
    server.next_request_seconds = 60.0  # so that the second request is the one with the report
    server.faults["rpc"] += [fault, fault]
    out = clients.once()
    assert only_report(server, id).how == "success"
    assert "waiting for the server" in out and "answers again" in out
    assert len(server.requests) == 2


def test_failures_are_remembered_by_the_next_run(server: ProjectServer, clients: Clients) -> None:
    clients.once()
    asked = len(server.requests)
    server.faults["rpc"] += ["away"] * 3
    folder = Folder(clients.folder)

    def after_a_run() -> tuple[int, int]:
        clients.finish(clients.start("--exit-when-idle", "0.5"))
        return folder.backoff().failures, len(server.faults["rpc"])

    assert after_a_run() == (1, 2)
    assert clients.status()["next_try_seconds"] > 500
    assert after_a_run() == (1, 2)  # it waited
    folder.save_backoff(replace(folder.backoff(), until=0.0))
    assert after_a_run() == (2, 1)
    assert len(server.requests) == asked


def test_a_truncated_download_is_resumed(server: ProjectServer, clients: Clients) -> None:
    program = server.file("prog", b"#!/bin/sh\necho whole" + b" " * 100_000, executable=True)
    (id,) = server.add(Manifest("alice", ("prog",), inputs=(program,)))
    server.faults["file"].append("truncate")
    clients.once()
    assert only_report(server, id).how == "success"
    (_, whole), (_, rest) = server.downloads
    assert whole == "" and int(rest.removeprefix("bytes=").removesuffix("-")) > program.size // 4


def test_a_corrupt_download_is_never_executed(server: ProjectServer, clients: Clients) -> None:
    canary = clients.folder.parent / "ran"
    text = f"#!/bin/sh\ntouch {canary}\n".encode()
    program = server.file("prog", b"#!/bin/sh\ntrue\n".ljust(len(text)), executable=True)
    server.file("prog", text, sha256=program.sha256)
    (id,) = server.add(Manifest("alice", ("prog",), inputs=(replace(program, size=len(text)),)))
    clients.once()
    assert only_report(server, id).reason == "input_corrupt"
    assert not canary.exists()


def test_a_download_that_was_corrupt_once_is_fetched_again(
    server: ProjectServer, clients: Clients
) -> None:
    (id,) = server.add(shell(inputs=(server.file("in", b"content"),)), script("cat in"))
    server.faults["file"].append("corrupt")
    clients.once()
    assert contents(only_report(server, id)) == {"stdout": b"content"}


def test_an_input_that_the_server_lacks_fails_the_replica(
    server: ProjectServer, clients: Clients
) -> None:
    absent = replace(server.file("in", b"content"), sha256="0" * 64)
    (id,) = server.add(shell(inputs=(absent,)), script("true"))
    clients.once()
    assert only_report(server, id).reason == "input_unavailable"


def test_an_upload_goes_on_where_it_was_cut(server: ProjectServer, clients: Clients) -> None:
    (id,) = server.add(shell(outputs=("big",)), script("head -c 9000000 /dev/urandom > big"))
    server.faults["upload"] += ["", "cut", "", "cut", "", ""]
    clients.once()
    report = only_report(server, id)
    (taken,) = server.uploads.values()
    assert report.how == "success" and len(taken) == report.outputs[0].size == 9_000_000
    ends = [offset + count for _, offset, count in server.puts]
    assert [offset for _, offset, _ in server.puts] == [0, *ends[:-1]]
    assert len(server.puts) > 3


def test_an_output_that_the_server_refuses_fails_the_replica(
    server: ProjectServer, clients: Clients
) -> None:
    server.max_upload = 1000
    (id,) = server.add(shell(outputs=("big",)), script("head -c 90000 /dev/zero > big"))
    clients.once()
    report = only_report(server, id)
    assert report.reason == "output_too_big"
    assert "output big of 90000 bytes: HTTP 413" in report.stderr


def test_what_the_server_lost_is_uploaded_and_reported_again(
    server: ProjectServer, clients: Clients
) -> None:
    (id,) = server.add(shell(outputs=("big",)), script("head -c 90000 /dev/zero > big"))
    server.reupload.add(id)
    clients.start()
    eventually(lambda: server.reports[id])
    server.uploads.clear()
    eventually(lambda: [len(got) for got in server.uploads.values()] == [90_000])
    server.reupload.clear()
    eventually(lambda: not list((clients.folder / "slots").iterdir()))
    assert len(server.reports[id]) >= 2


def test_a_revoked_client_stops_and_keeps_its_results(
    server: ProjectServer, clients: Clients
) -> None:
    (id,) = server.add(shell(), script("sleep 60"))
    process = clients.start()
    eventually(lambda: list(clients.folder.glob("slots/*/run.json")))
    server.is_revoked = True
    eventually(lambda: "unknown token" in clients.command("status"))
    eventually(lambda: (clients.status()["next_try_seconds"] or 0) > 3600)
    eventually(lambda: Census().under(str(clients.folder)) == [])
    process.send_signal(signal.SIGINT)
    assert "no longer accepts this client" in clients.finish(process)
    assert list(clients.folder.glob("slots/*/assignment.json"))
    assert not server.reports[id]


def test_a_client_of_a_banned_machine_says_why_and_waits_for_hours(
    server: ProjectServer, clients: Clients
) -> None:
    (id,) = server.add(shell(), script("sleep 60"))
    process = clients.start()
    eventually(lambda: list(clients.folder.glob("slots/*/run.json")))
    server.ban = "it mines coins"
    eventually(lambda: "this machine is banned: it mines coins" in clients.command("status"))
    eventually(lambda: (clients.status()["next_try_seconds"] or 0) > 3600)
    eventually(lambda: Census().under(str(clients.folder)) == [])
    process.send_signal(signal.SIGINT)
    assert "this machine is banned: it mines coins" in clients.finish(process)
    assert list(clients.folder.glob("slots/*/assignment.json"))
    assert not server.reports[id]


def test_a_revoked_pilot_leaves(server: ProjectServer, clients: Clients) -> None:
    process = clients.start("--pilot")
    eventually(lambda: server.requests)
    server.is_revoked = True
    assert "no longer accepts this client" in clients.finish(process, code=4)
    assert server.requests[0].host["IsPilot"] is True


def test_a_wrong_key_is_told_plainly(server: ProjectServer, clients: Clients) -> None:
    clients.env["GRIDBOT_KEY"] = "bad-key"
    assert "Error: unknown key" in clients.once(code=4)


def test_a_server_that_is_not_there_is_told_plainly(clients: Clients) -> None:
    argv = [sys.executable, "-c", ENTRY, "join", "http://127.0.0.1:1", "--key", "k"]
    argv += ["--data", str(clients.folder)]
    ended = subprocess.run(argv, env=clients.env, capture_output=True, text=True)
    assert ended.returncode == 3
    assert ended.stderr == "Error: cannot reach http://127.0.0.1:1: connection refused\n"


def test_a_client_waits_for_a_server_that_is_still_starting(
    server: ProjectServer, clients: Clients
) -> None:
    server.faults["join"] += ["busy", "portal"]
    assert "cannot join yet" in clients.once()
    assert len(server.joins) == 1


def test_a_pilot_does_not_wait_for_a_server_for_ever(clients: Clients) -> None:
    clients.env["GRIDBOT_SERVER"] = "http://127.0.0.1:1"
    out = clients.finish(clients.start("--pilot", "--exit-when-idle", "1"), code=75)
    assert out.endswith("Error: cannot reach http://127.0.0.1:1: connection refused\n")


# --- stops and crashes


def test_two_clients_do_not_run_on_one_folder(server: ProjectServer, clients: Clients) -> None:
    clients.start()
    eventually(lambda: server.requests)
    assert "another client (pid" in clients.once(code=1)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_client_leaves_nothing_running_and_resumes(
    server: ProjectServer, clients: Clients, number: int
) -> None:
    gate = clients.folder.parent / "gate"
    (id,) = server.add(shell(), script(f"until test -e {gate}; do sleep 0.05; done; echo done"))
    process = clients.start()
    eventually(lambda: list(clients.folder.glob("slots/*/run.json")))
    process.send_signal(number)
    assert "stopped" in clients.finish(process)
    assert Census().under(str(clients.folder)) == []
    gate.touch()
    assert "resumed 1 replica of an earlier run" in clients.once()
    assert contents(only_report(server, id)) == {"stdout": b"done\n"}


def test_a_client_killed_while_running_runs_the_replica_again(
    server: ProjectServer, clients: Clients
) -> None:
    runs = clients.folder.parent / "runs"
    (id,) = server.add(
        shell(), script(f"echo run >> {runs}; test $(wc -l < {runs}) -ge 2 || sleep 60")
    )
    process = clients.start()
    eventually(lambda: runs.exists() and runs.read_text().endswith("\n"))
    (first,) = living_that_name(runs)
    process.kill()
    process.wait()
    eventually(lambda: not psutil.pid_exists(first))
    clients.once()
    assert runs.read_text() == "run\nrun\n"
    assert only_report(server, id).how == "success"


def test_no_task_sees_a_key_wherever_it_lies(server: ProjectServer, clients: Clients) -> None:
    named, noted = (clients.folder.parent / name for name in ("named.key", "noted.key"))
    for key in (named, noted):
        key.write_text("secret")
    remember_keys(noted)
    clients.env["GRIDBOT_SIGNING_KEY"] = str(named)
    (id,) = server.add(shell(), script(f"cat {named} {noted}; echo done"))
    clients.once()
    assert contents(only_report(server, id)) == {"stdout": b"done\n"}


def test_a_replica_whose_warden_is_killed_runs_again(
    server: ProjectServer, clients: Clients
) -> None:
    runs = clients.folder.parent / "runs"
    runs.touch()
    (id,) = server.add(
        shell(), script(f"echo run >> {runs}; test $(wc -l < {runs}) -ge 2 || sleep 60")
    )
    process = clients.start("--once")
    eventually(lambda: runs.read_text() == "run\n")
    (warden,) = [
        child
        for child in psutil.Process(process.pid).children()
        if any("walls.warden" in word for word in child.cmdline())
    ]
    warden.kill()
    clients.finish(process)
    said = (clients.folder / "client.log").read_text()
    assert "is tried again: the task's first process was killed" in said
    assert runs.read_text() == "run\nrun\n"
    assert only_report(server, id).how == "success"


def test_a_replica_that_always_takes_the_client_down_is_given_up(
    server: ProjectServer, clients: Clients
) -> None:
    parent = "ps -o ppid= -p"
    (id,) = server.add(shell(), script(f"kill -9 $({parent} $({parent} $PPID)); sleep 60"))
    for _ in range(3):
        process = clients.start("--sandbox", "0")  # walls would keep it from the client
        process.wait(20)
        assert process.returncode == -signal.SIGKILL
    clients.once("--sandbox", "0")
    assert only_report(server, id).reason == "client_restarted_too_often"


def test_a_client_killed_before_it_reports_reports_later(
    server: ProjectServer, clients: Clients
) -> None:
    runs = clients.folder.parent / "runs"
    (id,) = server.add(shell(), script(f"echo >> {runs}"))
    server.next_request_seconds = 600.0  # a report does not wait for that
    server.faults["rpc"] += ["", "away"]
    kill_once_it_waits(server, clients)
    clients.once()
    assert only_report(server, id).how == "success"
    assert runs.read_text() == "\n"


def test_a_client_killed_after_its_report_was_taken_repeats_the_same_request(
    server: ProjectServer, clients: Clients
) -> None:
    server.add(shell(), script("true"))
    server.next_request_seconds = 600.0
    server.faults["rpc"] += ["", "lose_reply", "away"]
    kill_once_it_waits(server, clients)
    clients.once()
    told = [request for request in server.requests if request.reports]
    assert len(told) == 2 and told[0] == told[1]
    assert list((clients.folder / "slots").iterdir()) == []


def test_a_client_killed_during_an_upload_goes_on_with_it(
    server: ProjectServer, clients: Clients
) -> None:
    runs = clients.folder.parent / "runs"
    text = f"echo >> {runs}; head -c 9000000 /dev/urandom > big"
    (id,) = server.add(shell(outputs=("big",)), script(text))
    server.faults["upload"] += ["", "", "stall"]
    process = clients.start()
    eventually(lambda: len(server.puts) == 2)
    process.kill()
    process.wait()
    clients.once()
    assert only_report(server, id).how == "success"
    assert runs.read_text() == "\n"
    (taken,) = server.uploads.values()
    assert len(taken) == 9_000_000 and server.puts[2][1] > 4 << 20


@pytest.mark.parametrize("name", ["assignment.json", "report.json", "client.json"])
def test_a_file_spoilt_before_the_report_costs_at_most_a_second_run(
    server: ProjectServer, clients: Clients, name: str
) -> None:
    (id,) = server.add(shell(outputs=("big",)), script("head -c 900000 /dev/zero > big"))
    server.faults["upload"] += ["", "stall"]
    server.next_request_seconds = 600.0  # a report does not wait for that
    process = clients.start()
    eventually(lambda: server.puts)
    process.kill()
    process.wait()
    spoil(clients, name)
    clients.once()
    assert only_report(server, id).how == "success"


@pytest.mark.parametrize("name", ["assignment.json", "report.json", "client.json", "request.json"])
def test_a_spoilt_file_costs_at_most_a_second_run(
    server: ProjectServer, clients: Clients, name: str
) -> None:
    (id,) = server.add(shell(), script("true"))
    server.next_request_seconds = 600.0
    server.faults["rpc"] += ["", "away"]
    kill_once_it_waits(server, clients)
    spoil(clients, name)
    clients.once()
    assert only_report(server, id).how == "success"


def spoil(clients: Clients, name: str) -> None:
    (path,) = clients.folder.rglob(name)
    path.write_bytes(b"\x00{")


def test_what_the_server_has_is_not_run_again_to_its_end(
    server: ProjectServer, clients: Clients
) -> None:
    was_run = clients.folder.parent / "was run"
    (id,) = server.add(shell(), script(f"mkdir '{was_run}' || exec sleep 600"))
    server.next_request_seconds = 600.0
    server.faults["rpc"] += ["", "away"]
    kill_once_it_waits(server, clients)
    spoil(clients, "report.json")
    clients.once()
    assert only_report(server, id).how == "success"
    assert list((clients.folder / "slots").iterdir()) == []


def test_a_folder_that_lost_everything_joins_again(server: ProjectServer, clients: Clients) -> None:
    clients.once()
    shutil.rmtree(clients.folder)
    clients.once()
    assert len(server.joins) == 2
    assert server.joins[0]["mac"] == server.joins[1]["mac"]


def test_an_idle_client_leaves_when_told_so(server: ProjectServer, clients: Clients) -> None:
    ids = server.add(shell(), script("true") * 20)
    clients.finish(clients.start("--exit-when-idle", "0.5", "--quiet"))
    assert all(len(server.reports[id]) == 1 for id in ids)
