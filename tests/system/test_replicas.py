from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from tests.db.dispatching import success
from tests.system.deployment import NO_COPIES, Deployment, eventually
from tests.system.relay import Spoil, faithful, relay

from gridbot_client.protocol.messages import WorkReply, WorkRequest, decode_reply

# What differs between two replicas of one job.
SAYS_WHICH = 'echo "replica $GRIDBOT_REPLICA"'


def host_of(server: Deployment, bot: int, replica: int) -> int:
    query = "SELECT host FROM ended WHERE (bot, seq, replica) = (%s, 0, %s)"
    return int(server.rows(query, bot, replica)[0][0])


def error_rate(server: Deployment, host: int) -> float:
    return float(server.rows("SELECT error_rate FROM host WHERE id = %s", host)[0][0])


def stdout(server: Deployment, bot: int) -> list[str]:
    with server.session() as session:
        return [result.stdout for result in session.bot(bot).results()]


def expired(server: Deployment, bot: int) -> bool:
    """Whether the first replica has expired and a further one waits for a host."""
    queued = server.rows("SELECT why FROM requeue WHERE bot = %s", bot)
    return server.ended(bot) == {(0, 1): ("first", "expired", False)} and queued == [("expired",)]


def test_a_copy_in_the_tail_wins_over_a_frozen_host(running: Deployment) -> None:
    gate = running.gate()
    running.client("frozen", "--cpus", "1")
    bot = running.submit(
        *("--range", "0:1", "--", *gate.command(SAYS_WHICH)),
        policy="ReplicationRequirements = NumberOfReplicas < 2 && Job.Age > 0.5; Deadline = 3600;",
    )
    running.freeze("frozen")
    gate.open()
    running.client("quick", "--cpus", "1")
    running.wait(bot)
    assert running.ended(bot) == {
        (0, 1): ("first", "cancelled", None),
        (0, 2): ("tail", "success", True),
    }
    assert stdout(running, bot) == ["replica 2\n"]
    assert running.made(bot) == {"first": 1, "tail": 1}
    assert host_of(running, bot, 1) != host_of(running, bot, 2)


def test_what_a_client_has_not_begun_gives_way_to_what_is_more_urgent(running: Deployment) -> None:
    gate = running.gate()
    running.client("alone", "--cpus", "1")
    patient = running.submit("--range", "0:2", "--", *gate.command("echo $1"), policy=NO_COPIES)
    eventually(lambda: len(running.leases(patient)) == 2, what="one that runs, one held ahead")
    eventually(lambda: running.programs("alone"))
    policy = f"Rank = 1; {NO_COPIES}"
    urgent = running.submit("--range", "0:1", "--", *gate.command("echo $1"), policy=policy)
    eventually(lambda: len(running.leases(urgent)) == 1, what="the urgent one")
    assert [seq for seq, _, _ in running.leases(patient)] == [0]
    gate.open()
    running.wait(patient)
    running.wait(urgent)
    assert {how for _, how, _ in running.ended(urgent).values()} == {"success"}
    assert running.ended(patient)[1, 1] == ("first", "expired", False)
    assert sorted(stdout(running, patient)) == ["0\n", "1\n"]


def test_what_is_called_back_and_cannot_be_returned_is_run(running: Deployment) -> None:
    gate, journal = running.gate(), running.folder / "called back"
    with relay(running.port) as network:

        def cut(path: str, body: bytes) -> bytes | None:
            network.is_open = network.is_open and not path.endswith("/self/return")
            return body if network.is_open else None

        network.spoil = cut
        key = str(running.settings.operator_key_path)
        running.client("unheard", "--cpus", "1", "--server", network.url, "--key-file", key)
        noted = gate.command(f'echo "$1" >> "{journal}"')
        patient = running.submit("--range", "0:2", "--", *noted, policy=NO_COPIES)
        eventually(lambda: len(running.leases(patient)) == 2, what="one that runs, one held ahead")
        eventually(lambda: running.programs("unheard"))
        urgent = running.submit("--range", "0:1", "--", "true", policy=f"Rank = 1; {NO_COPIES}")
        eventually(lambda: not network.is_open, what="the call back")
        gate.open()
        eventually(lambda: journal.exists() and journal.read_text().split() == ["0", "1"])
        network.spoil, network.is_open = faithful, True
        running.wait(patient)
        running.wait(urgent)
    assert running.outcomes(urgent) == {0: 1}


def test_a_job_of_a_killed_client_runs_elsewhere_after_its_deadline(running: Deployment) -> None:
    gate = running.gate()
    running.client("killed", "--cpus", "1")
    bot = running.submit(
        *("--range", "0:1", "--", *gate.command(SAYS_WHICH)),
        policy=f"Deadline = 2; {NO_COPIES}",
    )
    eventually(lambda: running.programs("killed"))
    running.kill_client("killed")
    gate.open()
    running.client("other", "--cpus", "1")
    running.wait(bot)
    assert running.ended(bot) == {
        (0, 1): ("first", "expired", False),
        (0, 2): ("expired", "success", True),
    }
    assert stdout(running, bot) == ["replica 2\n"]
    assert running.made(bot) == {"first": 1, "expired": 1}


def test_a_late_answer_counts_while_there_is_no_other(running: Deployment) -> None:
    gate = running.gate()
    running.client("late", "--cpus", "1")
    bot = running.submit(
        *("--range", "0:1", "--", *gate.command(SAYS_WHICH)),
        policy=f"Deadline = 1; {NO_COPIES}",
    )
    running.freeze("late")
    gate.open()
    eventually(lambda: expired(running, bot))
    # It would ask for work, too, and might get the copy.
    running.run("client", "pause", "--data", str(running.folder / "late"))
    running.thaw("late")
    running.wait(bot)
    assert running.outcomes(bot) == {0: 1}
    assert running.ended(bot) == {(0, 1): ("first", "success", True)}
    assert running.made(bot) == {"first": 1}
    assert stdout(running, bot) == ["replica 1\n"]
    assert running.rows("SELECT 1 FROM requeue WHERE bot = %s", bot) == []


def test_a_late_answer_after_another_won_is_only_acknowledged(running: Deployment) -> None:
    gate = running.gate()
    with relay(running.port) as network:
        key = str(running.settings.operator_key_path)
        running.client("cut off", "--cpus", "1", "--server", network.url, "--key-file", key)
        bot = running.submit(
            *("--range", "0:1", "--", *gate.command(SAYS_WHICH)),
            policy=f"Deadline = 1; {NO_COPIES}",
        )
        eventually(lambda: running.programs("cut off"))
        network.is_open = False
        gate.open()
        eventually(lambda: expired(running, bot))
        running.client("winner", "--cpus", "1")
        running.wait(bot)
        late = host_of(running, bot, 1)
        rate_before = error_rate(running, late)
        assert running.slots("cut off") == [f"{bot}-0-1"]
        network.is_open = True
        eventually(lambda: running.slots("cut off") == [], what="the acknowledgement")
        eventually(lambda: error_rate(running, late) > rate_before)
    assert running.outcomes(bot) == {0: 2}
    assert running.ended(bot) == {
        (0, 1): ("first", "success", False),
        (0, 2): ("expired", "success", True),
    }
    assert stdout(running, bot) == ["replica 2\n"]
    assert running.show(bot)["jobs_done"] == 1


def lose(*wanted: Callable[[WorkReply], bool]) -> tuple[Spoil, list[WorkReply]]:
    """Lose the first reply of each kind to requests for work; also gives what was lost."""
    lost: list[WorkReply] = []

    def spoil(path: str, body: bytes) -> bytes | None:
        if path != "/rpc" or len(lost) == len(wanted):
            return body
        reply = decode_reply(body)
        if wanted[len(lost)](reply):
            lost.append(reply)
            return None
        return body

    return spoil, lost


def test_replies_that_are_lost_after_the_commit_are_made_good(running: Deployment) -> None:
    journal = running.folder / "journal"
    with relay(running.port) as network:
        network.spoil, lost = lose(lambda reply: bool(reply.assignments), lambda r: bool(r.acks))
        key = str(running.settings.operator_key_path)
        running.client("deaf", "--cpus", "2", "--server", network.url, "--key-file", key)
        script = 'echo "$1" >> "$0"; echo "$1"'
        bot = running.submit(
            *("--range", "0:20", "--", "sh", "-c", script, str(journal), "{}"), policy=NO_COPIES
        )
        running.wait(bot)
    assert len(lost) == 2
    assert Counter(journal.read_text().split()) == {str(i): 1 for i in range(20)}
    assert running.made(bot) == {"first": 20}
    assert running.outcomes(bot) == dict.fromkeys(range(20), 1)
    assert running.leases(bot) == []


def test_a_request_key_that_is_repeated_gives_the_same_leases(running: Deployment) -> None:
    bot = running.submit("--range", "0:20", "--", "echo", "{}", policy="Concurrency = 3;")
    client = running.bare_client("repeating")

    def fruitful() -> tuple[WorkRequest, WorkReply] | None:
        request = client.request(want=10)
        reply = client.send(request)
        return (request, reply) if reply.assignments else None

    asked = eventually(fruitful, what="work")
    assert asked
    request, first = asked
    with ThreadPoolExecutor(8) as threads:
        again = list(threads.map(client.send, [request] * 8))
    assert len(first.assignments) == 3
    for reply in again:
        assert {item.id for item in reply.assignments} == {item.id for item in first.assignments}
        assert reply.manifests == first.manifests
    assert len(running.leases(bot)) == 3
    assert running.made(bot) == {"first": 3}


def test_two_equal_answers_outvote_a_wrong_one(running: Deployment) -> None:
    bot = running.submit("--range", "0:1", "--quorum", "2", "--", "echo", "right")
    liar = running.bare_client("liar")
    assignments = eventually(lambda: liar.ask().assignments, what="a replica for the liar")
    liar.ask(want=0, reports=(success(assignments[0], "wrong\n"),))
    running.client("honest", "--cpus", "1")
    running.client("honest too", "--cpus", "1")
    running.wait(bot)
    assert stdout(running, bot) == ["right\n"]
    assert running.ended(bot) == {
        (0, 1): ("first", "success", False),
        (0, 2): ("quorum", "success", True),
        (0, 3): ("quorum", "success", True),
    }
    hosts = [host_of(running, bot, replica) for replica in (1, 2, 3)]
    assert len(set(hosts)) == 3
    unknown = 0.1  # the error rate of a host of which nothing is known
    assert [error_rate(running, host) > unknown for host in hosts] == [True, False, False]


def test_two_clients_on_one_host_share_its_record_but_not_their_replicas(
    running: Deployment,
) -> None:
    gate = running.gate()
    for name in ("one", "two"):
        running.client(name, "--cpus", "1", host="a machine")
    bot = running.submit(
        *("--range", "0:4", "--", *gate.command()), policy=f"Concurrency = 2; {NO_COPIES}"
    )
    leases = eventually(lambda: held if len(held := running.leases(bot)) == 4 else [])
    by_client: dict[int, list[str]] = {}
    for seq, replica, client in leases:
        by_client.setdefault(client, []).append(f"{bot}-{seq}-{replica}")

    def slots() -> list[list[str]]:
        return [running.slots("one"), running.slots("two")]

    eventually(lambda: [len(held) for held in slots()] == [2, 2], what="two replicas on each")
    assert sorted(by_client.values()) == sorted(slots())
    gate.open()
    running.wait(bot)
    clients = list(by_client)
    hosts = "SELECT h.jobs_today FROM client c JOIN host h ON h.id = c.host WHERE c.id = ANY(%s)"
    assert running.rows(hosts, clients) == [(4,), (4,)]
    assert len(running.rows("SELECT DISTINCT host FROM client WHERE id = ANY(%s)", clients)) == 1
