"""Jobs of ARC become BOTs, each one, whatever happens between two steps."""

from __future__ import annotations

import errno
import os
import sqlite3
import stat
import threading
import tracemalloc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.factories import make_failure, make_outcome
from tests.http.conftest import Person, Site
from tests.http.loopback import LosesReplies, serve

from gridbot.api.session import Session
from gridbot.gatekeeper.descriptions import submission_fields
from gridbot.gatekeeper.files import ArcOutput, JobFiles
from gridbot.gatekeeper.jobs import AcceptedJob, AcceptedJobs, BotOwner
from gridbot.gatekeeper.owners import OwnerMap, connection_to, endpoint_of
from gridbot.gatekeeper.rounds import (
    FILES_AWAITED_SECONDS,
    MOST_FAILURES,
    NEW_AT_ONCE,
    Rounds,
    RoundSettings,
)
from gridbot.gatekeeper.states import ArcState
from gridbot_client.protocol.messages import ReplicaId
from gridbot_server.cycles import retention

ALICE = "/O=Grid/CN=Alice"
BOB = "/O=Grid/CN=Bob"
LINE = f'"{ALICE}" alice/key\n'
JOB = '&(executable=run.sh)(inputFiles=("run.sh" ""))(stdout=o)(outputFiles=("a/b" ""))'


class Jobs:
    """What a gatekeeper keeps, and its rounds, which a test lets happen."""

    def __init__(self, folder: Path, url: str, key: str) -> None:
        self.account = folder / "alice" / "key"
        self.account.parent.mkdir()
        self.account.write_text(key)
        self.map = folder / "owners.map"
        self.map.write_text(LINE)
        self.folder, self.settings = folder, RoundSettings(url)
        self.date, self.now = (
            1_800_000_000.0,
            1000.0,
        )  # of a clock that is set, and of one that is not
        self.restart()

    def restart(self) -> None:
        """Begin anew with what is on the disk, as after a kill."""
        self.kept = AcceptedJobs(self.folder / "jobs.db", lambda: self.date, lambda: self.now)
        self.files = JobFiles(self.folder / "files", 0)
        self.rounds = Rounds(self.kept, self.files, OwnerMap(self.map).accounts, self.settings)

    def later(self) -> None:
        """A round after all pauses."""
        self.now += 600.0
        self.rounds.once()

    def accept(self, text: str = JOB) -> str:
        [id] = self.kept.add(ALICE, [text], 100)
        return id

    def add_bob(self, key: bytes) -> None:
        """Let Bob's jobs be submitted with a key of his."""
        account = self.folder / "bob" / "key"
        account.parent.mkdir()
        account.write_bytes(key)
        self.map.write_text(f'{LINE}"{BOB}" bob/key\n')

    def send(self, id: str) -> None:
        [file] = self.one(id).description.inputs
        content = b"#!/bin/sh\n"
        self.files.receive(id, file, len(content), lambda _: content, self.kept.awaiting(id))

    def submitting(self, id: str) -> Session:
        """Let Alice be about to make a job's BOT; return her session."""
        session = Session(connection_to(endpoint_of(self.settings.server, self.account)))
        signer = session.signer()
        self.kept.submitting(id, BotOwner(self.account, signer.owner, signer.project))
        return session

    def one(self, id: str) -> AcceptedJob:
        found = self.kept.one(ALICE, id)
        assert found
        return found


@pytest.fixture
def network(site: Site) -> LosesReplies:
    return LosesReplies(site.app, [])


@pytest.fixture
def jobs(network: LosesReplies, alice: Person, tmp_path: Path) -> Iterator[Jobs]:
    folder = tmp_path / "gatekeeper"
    folder.mkdir()
    with serve(network) as url:
        yield Jobs(folder, url, alice.token)


@contextmanager
def fault(jobs: Jobs, column: str) -> Iterator[None]:
    """Let the file of the jobs take no change of a column meanwhile."""
    with sqlite3.connect(jobs.folder / "jobs.db") as database:
        database.execute(
            f"CREATE TRIGGER fault BEFORE UPDATE OF {column} ON job"
            " BEGIN SELECT RAISE(ABORT, 'disk I/O error'); END"
        )
    yield
    with sqlite3.connect(jobs.folder / "jobs.db") as database:
        database.execute("DROP TRIGGER fault")


def bots(site: Site) -> list[tuple[int, str]]:
    return site.conn.execute("SELECT id, submit_key FROM bot ORDER BY id").fetchall()


def test_a_job_is_submitted_when_its_files_are_there(site: Site, jobs: Jobs) -> None:
    id = jobs.accept()
    jobs.rounds.once()
    assert (jobs.one(id).state, bots(site)) == (ArcState.ACCEPTED, [])
    jobs.send(id)
    jobs.rounds.once()
    [(bot, key)] = bots(site)
    assert (jobs.one(id).state, jobs.one(id).bot, key) == (ArcState.QUEUING, bot, id)
    jobs.rounds.once()
    assert len(bots(site)) == 1


def test_a_gatekeeper_that_was_killed_after_the_server_had_the_bot_makes_no_second(
    site: Site, jobs: Jobs
) -> None:
    id = jobs.accept()
    jobs.send(id)
    # What it did before it was killed: the server knows the BOT, the disk does not.
    with jobs.submitting(id) as session:
        fields = submission_fields(jobs.one(id).description, id, jobs.files.inputs(id))
        made = session.submit(**fields)
    jobs.restart()
    assert jobs.one(id).bot is None
    jobs.rounds.once()
    assert (jobs.one(id).bot, bots(site)) == (made.id, [(made.id, id)])


def test_a_lost_answer_of_the_server_makes_no_second_bot(
    site: Site, jobs: Jobs, network: LosesReplies
) -> None:
    id = jobs.accept("&(executable=/bin/a)")
    network.lose.append(("POST", "/bots"))
    jobs.rounds.once()
    jobs.rounds.once()
    assert network.lose == []
    assert [key for _, key in bots(site)] == [id]


def test_a_bot_that_was_made_of_a_job_in_other_words_is_its_own(site: Site, jobs: Jobs) -> None:
    id = jobs.accept("&(executable=/bin/a)")
    with jobs.submitting(id) as session:
        fields = submission_fields(jobs.one(id).description, id, jobs.files.inputs(id))
        made = session.submit(**fields, sandbox=1)
    jobs.rounds.once()
    assert (jobs.one(id).state, jobs.one(id).bot) == (ArcState.QUEUING, made.id)
    assert bots(site) == [(made.id, id)]


def test_an_input_that_cannot_be_read_lets_its_job_wait_and_no_other(
    site: Site, jobs: Jobs
) -> None:
    id = jobs.accept()
    jobs.send(id)
    jobs.submitting(id).connection.close()
    place = jobs.files.inputs(id) / "run.sh"
    aside = place.rename(place.with_name("aside"))
    other = jobs.accept("&(executable=/bin/a)")
    jobs.rounds.once()
    assert (jobs.one(id).state, jobs.one(other).state) == (ArcState.SUBMITTING, ArcState.QUEUING)
    aside.rename(place)
    jobs.later()
    assert jobs.one(id).state is ArcState.QUEUING


def test_inputs_stay_until_it_is_written_that_their_job_has_ended(site: Site, jobs: Jobs) -> None:
    id = jobs.accept(f"{JOB}(memory=999999)(count=999999)")
    jobs.send(id)
    with fault(jobs, "ended"):
        jobs.rounds.once()
    assert jobs.one(id).state is ArcState.SUBMITTING
    assert (jobs.files.inputs(id) / "run.sh").is_file()
    assert not jobs.files.outputs(id).exists()
    jobs.later()
    assert jobs.one(id).end.reason.startswith("cpus: ")
    assert not jobs.files.inputs(id).exists()


def test_outputs_are_fetched_whole_and_in_place_of_the_inputs(
    site: Site, jobs: Jobs, alice: Person
) -> None:
    id = jobs.accept()
    jobs.send(id)
    jobs.rounds.once()
    replica = ReplicaId(jobs.one(id).bot or 0, 0, 0)
    make_outcome(site.conn, replica, site.client_of(alice).id, {"stdout": b"out", "a/b": b"\0"})
    site.conn.execute("UPDATE bot SET state = 'done', ended_at = now()")
    # Killed while it fetched: what is there of them is not shown.
    (jobs.folder / "files/parts/half").mkdir()
    (jobs.folder / "files/parts/half/o").write_text("ou")
    jobs.restart()
    assert list((jobs.folder / "files/parts").iterdir()) == []
    jobs.rounds.once()
    job = jobs.one(id)
    assert (job.state, job.end.exit_code) == (ArcState.FINISHED, 0)
    assert not jobs.files.inputs(id).exists()
    shown = jobs.files.outputs(id)
    found = {str(path.relative_to(shown)): path.read_bytes()
             for path in shown.rglob("*") if path.is_file()}  # fmt: skip
    assert found == {"o": b"out", "a/b": b"\0"}


def test_a_job_that_fails_says_why(site: Site, jobs: Jobs, alice: Person) -> None:
    id = jobs.accept("&(executable=/bin/a)")
    jobs.rounds.once()
    replica = ReplicaId(jobs.one(id).bot or 0, 0, 0)
    make_failure(site.conn, replica, site.client_of(alice).id, "missing_output")
    site.conn.execute("UPDATE bot SET state = 'done', ended_at = now()")
    jobs.rounds.once()
    job = jobs.one(id)
    assert job.state is ArcState.FAILED
    assert "missing_output" in job.end.reason


def test_killed_jobs_end_before_and_after_they_are_submitted(site: Site, jobs: Jobs) -> None:
    before, after = jobs.accept(), jobs.accept("&(executable=/bin/a)")
    jobs.rounds.once()
    for id in (before, after):
        jobs.kept.kill(id)
    assert jobs.one(after).shown is ArcState.KILLING
    jobs.rounds.once()  # cancels the BOT
    jobs.rounds.once()
    assert [jobs.one(id).state for id in (before, after)] == [ArcState.KILLED] * 2
    assert [key for _, key in bots(site)] == [after]


def test_what_the_server_refuses_fails_and_delays_no_other(site: Site, jobs: Jobs) -> None:
    bad = jobs.accept("&(executable=/bin/a)(memory=999999)(count=999999)")
    good = jobs.accept("&(executable=/bin/a)")
    jobs.rounds.once()
    assert (jobs.one(bad).state, jobs.one(good).state) == (ArcState.FAILED, ArcState.QUEUING)
    assert jobs.one(bad).end.reason


def test_jobs_wait_for_a_key_that_is_refused(site: Site, jobs: Jobs) -> None:
    id = jobs.accept("&(executable=/bin/a)")
    right = jobs.account.read_text()
    jobs.account.write_text("wrong")
    jobs.rounds.once()
    assert (jobs.one(id).state, bots(site)) == (ArcState.ACCEPTED, [])
    jobs.account.write_text(right)
    jobs.later()
    assert jobs.one(id).state is ArcState.QUEUING


def test_an_error_of_the_file_of_the_jobs_ends_none_of_them(site: Site, jobs: Jobs) -> None:
    id = jobs.accept("&(executable=/bin/a)")
    with fault(jobs, "bot"):
        jobs.rounds.once()
    assert (jobs.one(id).state, jobs.one(id).bot) == (ArcState.SUBMITTING, None)
    [(bot, _)] = bots(site)
    jobs.later()
    assert (jobs.one(id).bot, bots(site)) == (bot, [(bot, id)])


def ended(
    site: Site, jobs: Jobs, alice: Person, outputs: dict[str, bytes], count: int = 1
) -> list[str]:
    """Jobs whose BOTs have ended with these outputs."""
    ids = [jobs.accept("&(executable=/bin/a)(stdout=o)") for _ in range(count)]
    jobs.rounds.once()
    client = site.client_of(alice).id
    for id in ids:
        make_outcome(site.conn, ReplicaId(jobs.one(id).bot or 0, 0, 0), client, outputs)
    site.conn.execute("UPDATE bot SET state = 'done', ended_at = now()")
    return ids


def parts(jobs: Jobs) -> list[Path]:
    return list((jobs.folder / "files/parts").iterdir())


def test_outputs_that_cannot_be_fetched_delay_no_other_job(
    site: Site, jobs: Jobs, alice: Person
) -> None:
    bad, good = ended(site, jobs, alice, {"stdout": b"out"}, 2)
    change = "UPDATE output SET content = %s WHERE bot = %s"
    site.conn.execute(change, [b"not", jobs.one(bad).bot])  # does not match its hash
    jobs.rounds.once()
    assert (jobs.one(bad).state, jobs.one(good).state) == (ArcState.FINISHING, ArcState.FINISHED)
    assert parts(jobs) == []
    site.conn.execute(change, [b"out", jobs.one(bad).bot])
    jobs.rounds.once()
    assert jobs.one(bad).state is ArcState.FINISHING  # it is left alone for a while
    jobs.later()
    assert jobs.one(bad).state is ArcState.FINISHED


def test_outputs_that_can_never_be_kept_are_given_up(site: Site, jobs: Jobs, alice: Person) -> None:
    [id] = ended(site, jobs, alice, {"a": b"", "a/b": b""})
    for _ in range(MOST_FAILURES - 1):
        jobs.later()
        assert (jobs.one(id).state, parts(jobs)) == (ArcState.FINISHING, [])
    jobs.later()
    assert (jobs.one(id).state, parts(jobs)) == (ArcState.FAILED, [])
    assert jobs.one(id).end.reason.startswith("outputs cannot be kept: ")


def test_a_full_disk_gives_up_no_outputs(
    site: Site, jobs: Jobs, alice: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    [id] = ended(site, jobs, alice, {"stdout": b"out"})

    sync = os.fsync

    def full(descriptor: int) -> None:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(descriptor)  # of a directory

    with monkeypatch.context() as disk:
        disk.setattr(os, "fsync", full)
        for _ in range(MOST_FAILURES + 1):
            jobs.later()
    assert (jobs.one(id).state, parts(jobs)) == (ArcState.FINISHING, [])
    jobs.later()
    assert jobs.one(id).state is ArcState.FINISHED


def test_the_folder_of_a_job_without_inputs_survives_a_power_failure(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced, sync = set[str](), os.fsync

    def note(descriptor: int) -> None:
        synced.add(os.readlink(f"/proc/self/fd/{descriptor}"))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    jobs.files.keep("id", {"a": ArcOutput(4, lambda place: place.write_text("text"))})
    assert synced >= {str(jobs.folder / "files/id"), str(jobs.folder / "files")}


def test_a_key_that_cannot_be_read_delays_no_other(site: Site, jobs: Jobs) -> None:
    jobs.add_bob(b"\xff")
    jobs.kept.add(BOB, ["&(executable=/bin/a)"], 100)
    id = jobs.accept("&(executable=/bin/a)")
    jobs.rounds.once()
    assert [key for _, key in bots(site)] == [id]


def test_jobs_beyond_a_quota_wait_while_others_go_on(site: Site, jobs: Jobs, alice: Person) -> None:
    site.conn.execute("UPDATE owner SET max_jobs = 1 WHERE id = %s", [alice.id])
    waits, goes_on = jobs.accept(), jobs.accept("&(executable=/bin/a)")
    jobs.rounds.once()
    jobs.send(waits)
    jobs.rounds.once()
    alice("POST", f"/api/v1/bots/{jobs.one(goes_on).bot}/hold", json={})
    jobs.later()
    assert (jobs.one(waits).state, jobs.one(goes_on).state) == (
        ArcState.ACCEPTED, ArcState.HELD,
    )  # fmt: skip
    killed = jobs.accept("&(executable=/bin/a)")
    jobs.rounds.once()  # the other is left alone for a while
    assert jobs.one(killed).state is ArcState.ACCEPTED
    jobs.kept.kill(killed)
    site.conn.execute("UPDATE owner SET max_jobs = 0 WHERE id = %s", [alice.id])
    jobs.later()
    jobs.rounds.once()
    assert jobs.one(killed).state is ArcState.KILLED
    site.conn.execute("UPDATE owner SET max_jobs = 2 WHERE id = %s", [alice.id])
    jobs.later()
    assert jobs.one(waits).state is ArcState.QUEUING
    assert [key for _, key in bots(site)] == [goes_on, waits]


def test_jobs_wait_for_a_signing_key_that_the_server_takes(
    site: Site, jobs: Jobs, alice: Person
) -> None:
    older = "INSERT INTO signing_key (owner, key) VALUES (%s, %s)"
    site.conn.execute(older, [alice.id, bytes(32)])  # which must introduce the gatekeeper's
    id = jobs.accept("&(executable=/bin/a)")
    jobs.rounds.once()
    assert jobs.one(id).state is ArcState.ACCEPTED
    site.conn.execute("DELETE FROM signing_key")
    jobs.later()
    assert jobs.one(id).state is ArcState.QUEUING


def test_jobs_wait_while_a_signature_does_not_hold(
    site: Site, alice: Person, tmp_path: Path
) -> None:
    def forgets_keys(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] == "POST" and environ["PATH_INFO"].endswith("/bots"):
            site.conn.execute("DELETE FROM signing_key")
        return site.app(environ, start_response)

    with serve(forgets_keys) as url:
        jobs = Jobs(tmp_path, url, alice.token)
        id = jobs.accept("&(executable=/bin/a)")
        jobs.rounds.once()
    assert jobs.one(id).state is ArcState.SUBMITTING
    with serve(site.app) as url:
        jobs.settings = RoundSettings(url)
        jobs.restart()
        jobs.rounds.once()
    assert jobs.one(id).state is ArcState.QUEUING


def test_a_bot_that_the_server_no_longer_has_ends_its_job(site: Site, jobs: Jobs) -> None:
    id = jobs.accept("&(executable=/bin/a)")
    jobs.rounds.once()
    jobs.kept.submitted(id, (jobs.one(id).bot or 0) + 1)
    jobs.rounds.once()
    assert (jobs.one(id).state, "no BOT" in jobs.one(id).end.reason) == (ArcState.FAILED, True)


@pytest.mark.parametrize("text", ["# nobody\n", "no line of a map\n"])
def test_jobs_of_a_subject_that_is_not_in_the_map_are_not_submitted(
    site: Site, jobs: Jobs, text: str
) -> None:
    waits = jobs.accept("&(executable=/bin/a)")
    jobs.map.write_text(text)
    jobs.rounds.once()
    assert (jobs.one(waits).state, bots(site)) == (ArcState.ACCEPTED, [])
    jobs.map.write_text(LINE)
    jobs.rounds.once()
    assert jobs.one(waits).state is ArcState.QUEUING


def test_files_that_never_come_end_a_job_and_old_jobs_are_deleted(jobs: Jobs) -> None:
    id = jobs.accept()
    jobs.now += FILES_AWAITED_SECONDS + 1
    jobs.rounds.once()
    assert jobs.one(id).end.reason == "input file run.sh was not sent within 86400 s"
    jobs.now += RoundSettings(None).kept + 1
    jobs.rounds.once()
    assert jobs.kept.ids() == set()
    assert not jobs.files.inputs(id).parent.exists()


def test_a_clock_that_is_set_ends_and_deletes_no_job(site: Site, jobs: Jobs) -> None:
    waits, ended = jobs.accept(), jobs.accept("&(executable=/bin/a)")
    jobs.kept.kill(ended)
    jobs.rounds.once()
    jobs.date += 1e9
    jobs.rounds.once()
    assert (jobs.one(waits).state, jobs.one(ended).state) == (ArcState.ACCEPTED, ArcState.KILLED)


def test_the_time_for_which_jobs_are_kept_goes_on_in_the_next_run(jobs: Jobs) -> None:
    id = jobs.accept("&(executable=/bin/a)")
    jobs.kept.kill(id)
    jobs.rounds.once()
    jobs.now += RoundSettings(None).kept - 100
    jobs.rounds.once()
    jobs.now = 5.0  # the machine has started anew
    jobs.restart()
    jobs.rounds.once()
    assert jobs.kept.ids() == {id}
    jobs.now += 101
    jobs.rounds.once()
    assert jobs.kept.ids() == set()


@pytest.mark.parametrize("is_same_key", [False, True])
def test_a_subject_gets_a_bounded_number_of_bots_in_a_round(
    site: Site, jobs: Jobs, alice: Person, bob: Person, is_same_key: bool
) -> None:
    many = {jobs.accept("&(executable=/bin/a)") for _ in range(NEW_AT_ONCE + 1)}
    jobs.add_bob((alice if is_same_key else bob).token.encode())
    if is_same_key:
        jobs.map.write_text(f'{LINE}"{BOB}" alice/key\n')
    [other] = jobs.kept.add(BOB, ["&(executable=/bin/a)"], 100)
    assert jobs.rounds.once()
    made = {key for _, key in bots(site)}
    assert (len(made & many), other in made) == (NEW_AT_ONCE, True)
    assert not jobs.rounds.once()
    assert {key for _, key in bots(site)} == {*many, other}


def owner_of(site: Site, jobs: Jobs, id: str) -> int:
    query = "SELECT owner FROM bot WHERE id = %s"
    [(owner,)] = site.conn.execute(query, [jobs.one(id).bot]).fetchall()
    return int(owner)


def test_a_line_that_is_changed_counts_for_jobs_without_a_bot(
    site: Site, jobs: Jobs, alice: Person, bob: Person
) -> None:
    site.conn.execute("UPDATE owner SET max_jobs = 1 WHERE id = %s", [alice.id])
    has_bot = jobs.accept("&(executable=/bin/a)")
    jobs.rounds.once()
    no_files, no_room = jobs.accept(), jobs.accept("&(executable=/bin/a)")
    jobs.rounds.once()
    jobs.add_bob(bob.token.encode())
    jobs.map.write_text(f'"{ALICE}" bob/key\n')
    jobs.send(no_files)
    jobs.later()
    assert [owner_of(site, jobs, id) for id in (no_files, no_room)] == [bob.id] * 2
    make_outcome(
        site.conn, ReplicaId(jobs.one(has_bot).bot or 0, 0, 0), site.client_of(alice).id, {}
    )
    site.conn.execute(
        "UPDATE bot SET state = 'done', ended_at = now() WHERE owner = %s", [alice.id]
    )
    jobs.rounds.once()
    assert jobs.one(has_bot).state is ArcState.FINISHED


@pytest.mark.parametrize("column", ["owner", "project"])
def test_jobs_whose_bots_are_of_another_owner_or_project_wait(
    jobs: Jobs, column: str, caplog: pytest.LogCaptureFixture
) -> None:
    id = jobs.accept("&(executable=/bin/a)")
    jobs.rounds.once()
    there = jobs.one(id).bot or 0
    jobs.kept.submitted(id, there + 1)  # which this server does not have
    with sqlite3.connect(jobs.folder / "jobs.db") as database:
        [right] = database.execute(f"SELECT {column} FROM job").fetchone()
        database.execute(f"UPDATE job SET {column} = 'another'")
    jobs.rounds.once()
    assert jobs.one(id).state is ArcState.QUEUING
    assert f"{jobs.account}: 1 jobs of {ALICE} wait: " in caplog.text
    assert f"1 jobs wait for that of {'another' if column == 'owner' else 'alice'}" in caplog.text
    with sqlite3.connect(jobs.folder / "jobs.db") as database:
        database.execute(f"UPDATE job SET {column} = ?", [right])
    jobs.rounds.once()
    assert jobs.one(id).state is ArcState.FAILED


def test_a_key_that_is_replaced_is_read_in_the_next_round(
    site: Site, jobs: Jobs, bob: Person
) -> None:
    jobs.accept("&(executable=/bin/a)")
    jobs.rounds.once()
    jobs.account.write_text(bob.token)
    jobs.account.with_name("signing.key").unlink()
    id = jobs.accept("&(executable=/bin/a)")
    jobs.rounds.once()
    assert owner_of(site, jobs, id) == bob.id


def test_a_bot_that_was_kept_long_enough_goes_while_others_of_its_owner_run(
    site: Site, jobs: Jobs
) -> None:
    old, _ = (jobs.accept("&(executable=/bin/a)") for _ in range(2))
    jobs.rounds.once()
    site.conn.execute(
        "UPDATE bot SET state = 'done', ended_at = now() - interval '2 days' WHERE id = %s",
        [jobs.one(old).bot],
    )
    assert retention.delete_kept_too_long(site.conn, days=1) == 1


def test_files_are_looked_for_when_one_has_come(site: Site, jobs: Jobs) -> None:
    id = jobs.accept()
    jobs.rounds.once()
    place = jobs.files.inputs(id) / "run.sh"
    place.parent.mkdir(parents=True)
    place.write_text("#!/bin/sh\n")  # but it did not come
    jobs.rounds.once()
    assert jobs.one(id).state is ArcState.ACCEPTED
    jobs.send(id)
    jobs.rounds.once()
    assert jobs.one(id).state is ArcState.QUEUING


def test_a_list_of_jobs_reads_no_descriptions(jobs: Jobs) -> None:
    text = f"&(executable=/bin/a)(arguments={'x' * 60_000})"
    jobs.kept.add(ALICE, [text] * 100, 100)
    for listed in (jobs.kept.unended, lambda: jobs.kept.of(ALICE)):
        tracemalloc.start()
        found = listed()
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert (len(found), most < 1 << 20) == (100, True)


def test_a_key_for_which_the_server_hangs_delays_no_other(
    site: Site, alice: Person, bob: Person, tmp_path: Path
) -> None:
    gate = threading.Event()

    def hangs_for_alice(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if alice.token in environ["HTTP_AUTHORIZATION"]:
            gate.wait()
        return site.app(environ, start_response)

    with serve(hangs_for_alice) as url:
        try:
            jobs = Jobs(tmp_path, url, alice.token)
            jobs.settings = RoundSettings(url, share=2.0)
            jobs.restart()
            jobs.accept("&(executable=/bin/a)")
            jobs.add_bob(bob.token.encode())
            [good] = jobs.kept.add(BOB, ["&(executable=/bin/a)"], 100)
            for _ in range(20):  # a busy machine may need more than one share
                if not bots(site):
                    jobs.later()
            assert [key for _, key in bots(site)] == [good]
        finally:
            gate.set()


def test_jobs_without_a_bot_end_while_their_key_is_refused(jobs: Jobs) -> None:
    killed, late = jobs.accept("&(executable=/bin/a)"), jobs.accept()
    jobs.account.write_text("wrong")
    jobs.rounds.once()
    jobs.kept.kill(killed)
    jobs.rounds.once()  # in the key's pause
    assert jobs.one(killed).state is ArcState.KILLED
    jobs.now += FILES_AWAITED_SECONDS + 1
    jobs.rounds.once()
    assert jobs.one(late).end.reason == "input file run.sh was not sent within 86400 s"


def test_a_server_that_is_away_is_left_alone_for_a_while(
    site: Site, jobs: Jobs, network: LosesReplies
) -> None:
    id = jobs.accept("&(executable=/bin/a)")
    network.lose += [("GET", "/signing")] * 5  # which are the attempts of one request
    jobs.rounds.once()
    tried = len(network.seen)
    jobs.rounds.once()
    assert (len(network.seen), network.lose) == (tried, [])
    jobs.later()
    assert jobs.one(id).state is ArcState.QUEUING
