"""Claims about simulations that begin with a BOT that runs."""

from __future__ import annotations

import hashlib
import json
import random
import subprocess
import sys
from dataclasses import replace
from typing import Any

import orjson
import pytest

from gridbot_client.protocol.cached import mark_of
from gridbot_client.protocol.messages import FileRef, Manifest, Resources
from gridbot_simulator import what_if
from gridbot_simulator.what_if import MOST_RUN, predict, seeds_for
from gridbot_simulator.world.live import LiveSimulation
from gridbot_simulator.world.present import Present

NOW = 1_800_000_000.0
COPIES = "ReplicationRequirements = Job.Replica1.Age > 1000;"
NO_COPIES = "ReplicationRequirements = false;"
OWNER, OTHER_OWNER, BOT, OTHER_BOT = 3, 4, 7, 9


def client(number: int, **columns: Any) -> dict[str, Any]:
    return {
        "id": number, "host": 100 + number, "owner": OWNER, "owner_name": "alice", "accepts": [],
        "trusts": [OWNER], "protocol": 2, "grid": None, "dedicated": False, "venue": "",
        "ad": {"Name": f"box{number}", "NumCpus": 1, "Memory": 8192, "Platform": "linux-x86_64"},
        "error_rate": 0.02, "mean_turnaround": 600.0, "jobs_today": 5, "recent_cpu": 3000.0,
        "is_away": False, "seen_at": NOW - 5, "contact_seconds": 60.0, "silent_since": None,
        "session_at": NOW - 864_000, "expires_at": None, "cached": [], **columns,
    }  # fmt: skip


def lease(seq: int, number: int, age: float, **columns: Any) -> dict[str, Any]:
    return {
        "seq": seq, "replica": 1, "round": 0, "why": "first", "client": number,
        "host": 100 + number, "owner": OWNER, "sent_at": NOW - age, "deadline": NOW + 86_400,
        "progress": None, **columns,
    }  # fmt: skip


def snapshot(
    jobs: int = 100, done: int = 50, hosts: int = 10, age: float = 200.0, **changes: Any
) -> dict[str, Any]:
    """Jobs of 550 to 650 s; each host runs one since `age` seconds."""
    manifest = Manifest("alice", ("echo", "{i}"), {"i": "int"}, resources=Resources())
    chance = random.Random(1)
    runs = [
        {"host": 100 + n % hosts, "seconds": chance.uniform(550, 650), "ended_at": NOW - 90_000}
        for n in range(max(done, 20))
    ]
    bot = {
        "id": BOT, "owner": OWNER, "owner_name": "alice", "share": 1.0, "state": "running",
        "held": None, "suspended": None, "growing": False, "waits_for_signature": False,
        "together": 1, "is_assured": False, "validator": "exact", "name": "scan", "size": jobs,
        "done": done, "failed": 0, "policy": NO_COPIES, "version": 1, "manifest": manifest.text(),
        "signed": False, "owner_signed": True, "has_storage": False, "quorum": 1,
        "max_attempts": 3, "max_replicas": 5,
        "max_failures": None, "failover_after": None, "tail_threshold": None, "tail_sticky": True,
        "tail": False, "tail_since": None, "watched": False, "round": 0, "turnaround_sum": 600.0,
        "turnaround_n": 1, "recent_runs": [600.0], "usual_seconds": 640.0,
        "created_at": NOW - 7200, "sent_first": done + hosts, "sent_after_errors": 0, "now": NOW,
        **changes.pop("bot", {}),
    }  # fmt: skip
    return {
        "bot": bot,
        "leases": [lease(done + n, n, age) for n in range(hosts)],
        "copies": [], "pending": [], "ended": [], "kinds": [], "runs": runs,
        "clients": [client(n) for n in range(hosts)],
        "sessions": [], "others": [], "others_leases": [], **changes,
    }  # fmt: skip


def left(found: dict[str, Any], which: str = "now") -> float:
    return float(found[which]["figures"]["left_seconds"]["median"])


def test_a_policy_that_looks_at_caches_sees_what_hosts_hold_of_its_inputs() -> None:
    sha256 = hashlib.sha256(b"data").hexdigest()
    held = snapshot(100, 50)
    manifest = Manifest.from_text(held["bot"]["manifest"])
    manifest = replace(manifest, inputs=(FileRef("data", sha256, 8 << 20),))
    held["bot"]["manifest"] = manifest.text()
    for client in held["clients"][:5]:
        client["cached"] = [mark_of(sha256)]
    found = predict(held, f"{NO_COPIES} JobRequirements = Host.CachedMB == 8;", 1)
    assert 1.5 < left(found, "tried") / left(found) < 2.6


def test_jobs_in_progress_go_on_from_their_ages() -> None:
    young, old = (predict(snapshot(60, 50, age=age), None, 3) for age in (0.0, 500.0))
    assert 500 < left(young) < 800  # ten hosts, ten jobs of about ten minutes
    assert left(old) < left(young) - 300


def test_what_is_left_takes_its_hosts_as_long_as_jobs_took_before() -> None:
    few, many = (left(predict(snapshot(250, 50, hosts), None, 1)) for hosts in (10, 20))
    assert 600 * 200 / 10 * 0.85 < few < 600 * 200 / 10 * 1.3
    assert 0.4 < many / few < 0.65


def test_copies_help_a_job_that_hangs() -> None:
    hung = snapshot(60, 50)
    hung["leases"][0]["sent_at"] = NOW - 40_000  # no job took longer than 650 s
    found = predict(hung, COPIES, 3)
    assert left(found) > 3000
    assert left(found, "tried") < 2000
    assert found["sooner"] == 3
    assert found["differences"]["replicas"]["mean"] >= 1
    assert found["tried"]["figures"]["speculative"]["median"] >= 1


def test_copies_that_nobody_takes_are_soon_known_as_such() -> None:
    # They go out of the buffer, and in again, as they age.
    queued = snapshot(55, 50, leases=[], bot={"sent_first": 55})
    queued["copies"] = [
        {"seq": 50 + n, "replica": 2, "round": 0, "why": "error", "prio": 0, "pool": None,
         "vain": 0, "not_before": NOW - 5}
        for n in range(5)
    ]  # fmt: skip
    ran = LiveSimulation(Present(queued), "JobRequirements = false;", 1).run()
    assert ran.why_not == "no host had a replica for a day: none meets the policy"
    assert ran.steps < 2000  # of 14,400 in a day


def test_a_replica_that_waited_on_its_host_has_run_since_the_host_had_room() -> None:
    ahead = snapshot(51, 50, hosts=1, leases=[lease(50, 0, 900.0)])
    ahead["runs"][-1]["ended_at"] = NOW - 100
    assert 400 < left(predict(ahead, None, 3)) < 600


def test_a_host_without_an_answer_is_as_slow_as_that_shows() -> None:
    new = snapshot(61, 50, hosts=11)
    new["runs"] = [run for run in new["runs"] if run["host"] != 110]
    new["leases"][10]["sent_at"] = NOW - 6000  # ten times what others take
    assert left(predict(new, None, 3)) > 1500


def test_a_program_that_tells_its_progress_is_believed() -> None:
    told = snapshot(51, 50, hosts=1, leases=[lease(50, 0, 6000.0, progress=0.75)])
    assert left(predict(told, None, 2)) == pytest.approx(2000, rel=0.1)


def test_hosts_that_were_slow_are_slow() -> None:
    slow = snapshot(60, 50)
    for run in slow["runs"]:
        run["seconds"] *= 4 if run["host"] == 100 else 1
    found = predict(slow, None, 5)
    assert left(found) > 1200  # the slow host's job; the others need 600 s


def test_other_bots_delay_one_as_far_as_shares_let_them() -> None:
    other = {
        "id": OTHER_BOT, "owner": OTHER_OWNER, "owner_name": "bob", "share": 1.0, "policy": "",
        "resources": {"cpus": 1, "memory_mb": 512}, "unsent": 500, "mean_turnaround": 600.0,
        "usual_seconds": 600.0, "created_at": NOW - 3600,
    }  # fmt: skip
    clients = [client(n, trusts=[OWNER, OTHER_OWNER]) for n in range(10)]
    alone = left(predict(snapshot(120, 50, clients=clients), None, 1))
    beside = left(predict(snapshot(120, 50, clients=clients, others=[other]), None, 1))
    light = {**other, "share": 0.2}
    beside_light = left(predict(snapshot(120, 50, clients=clients, others=[light]), None, 1))
    assert 1.6 < beside / alone < 2.4
    assert alone < beside_light < beside


def test_hosts_that_leave_take_their_work_along_and_are_missed() -> None:
    # Pilots that live for two hours and whose places are empty for five.
    short = [{"grid": "g", "ended": 500, "stayed_seconds": 500 * 7200.0, "away_seconds": 18_000.0}]
    pilots = [client(n, grid="g", accepts=[OWNER], session_at=NOW - 60) for n in range(10)]
    stay = left(predict(snapshot(150, 50, clients=pilots), None, 1))
    leave = left(predict(snapshot(150, 50, clients=pilots, sessions=short), None, 1))
    assert leave > 1.5 * stay


def test_a_pilot_works_until_its_time_is_over() -> None:
    pilots = [
        client(n, grid="g", accepts=[OWNER], expires_at=NOW + (100 if n else 1e6))
        for n in range(10)
    ]
    never = [{"grid": "g", "ended": 1, "stayed_seconds": 1e9, "away_seconds": 1e9}]
    found = predict(snapshot(60, 50, clients=pilots, sessions=never), None, 2)
    assert left(found) > 6 * 600  # nine of ten jobs begin anew on one host


@pytest.mark.parametrize("cpus", [10**15, 1e300])
def test_a_host_that_says_that_it_has_any_number_of_cpus_costs_nothing(cpus: float) -> None:
    vain = client(50, accepts=[], trusts=[], ad={"Name": "vain", "NumCpus": cpus})
    usual = snapshot(60, 50)
    found = predict({**usual, "clients": [*usual["clients"], vain]}, None, 1)
    assert (found["hosts"], left(found)) == (10, left(predict(usual, None, 1)))


def test_machines_that_cannot_run_it_or_are_away_do_not_count() -> None:
    clients = [client(n) for n in range(10)]
    for one in clients[5:]:
        one["ad"]["Memory"] = 100
    found = predict(snapshot(150, 50, clients=clients), None, 1)
    assert found["hosts"] == 5
    assert left(found) > 600 * 95 / 5 * 0.8


def test_begun_jobs_keep_what_became_of_their_replicas() -> None:
    begun = snapshot(60, 50, hosts=9)
    failed = {
        **lease(59, 0, 900.0), "how": "error", "reason": "exit_nonzero", "valid": False,
        "ended_at": NOW - 300,
    }  # fmt: skip
    twice = [{**failed, "replica": number, "host": 100 + number} for number in (1, 2)]
    third = {**lease(59, 0, 200.0), "replica": 3, "why": "error"}
    begun["ended"], begun["leases"] = twice, [*begun["leases"][1:], third]
    for one in begun["clients"]:
        one["error_rate"] = 1.0  # all that is left fails
    found = predict(begun, None, 1)
    (run,) = found["now"]["runs"]
    assert (run["has_ended"], run["failed"]) == (True, 10)
    assert run["replicas"] == 10 * 3 - 2 - 9  # three attempts, without those made before


@pytest.mark.parametrize("quorum", [1, 2])
def test_copies_that_wait_and_answers_that_need_others_are_known(quorum: int) -> None:
    half = snapshot(55, 50, hosts=10, leases=[], bot={"quorum": quorum, "sent_first": 55})
    half["copies"] = [
        {"seq": 50 + n, "replica": 2, "round": 0, "why": "quorum", "prio": 0, "pool": None,
         "vain": 0, "not_before": NOW - 5}
        for n in range(5)
    ]  # fmt: skip
    half["ended"] = [
        {**lease(50 + n, n, 900.0), "how": "success", "reason": "", "valid": None,
         "ended_at": NOW - 60}
        for n in range(5)
    ]  # fmt: skip
    found = predict(half, None, 2)
    assert 400 < left(found) < 1500  # a host may get two
    assert found["now"]["figures"]["replicas"]["median"] == 5


# ---------------------------------------------------------------------- what is not predicted


def test_nothing_is_predicted_of_jobs_of_which_none_has_ended() -> None:
    found = predict(snapshot(runs=[]), None, 1)
    assert found == {
        "why_not": "the end of BOT 7 cannot be predicted: 0 of its jobs have ended with an answer:"
        " how long jobs take is known from 3 on"
    }


def test_nothing_is_predicted_where_no_host_fits() -> None:
    away = [client(n, is_away=True) for n in range(10)]
    why = predict(snapshot(clients=away), None, 1)["why_not"]
    assert "no host that is there now can run it; why, says: gridbot bot explain 7" in why


def test_a_policy_that_no_host_meets_never_ends_it() -> None:
    found = predict(snapshot(62, 50), "JobRequirements = Host.Memory > 1000000;", 1)
    assert found["tried"]["figures"]["left_seconds"] is None
    (run,) = found["tried"]["runs"]
    assert (run["has_ended"], found["sooner"]) == (False, 0)
    assert run["why_not"] == "no host had a replica for a day: none meets the policy"


def test_many_jobs_get_fewer_seeds_and_too_many_none() -> None:
    assert seeds_for(MOST_RUN // 6, policies=1, wanted=8) == 6
    assert seeds_for(MOST_RUN // 6, policies=2, wanted=8) == 3
    assert seeds_for(1, policies=2, wanted=8) == 8
    why = predict(snapshot(51 + MOST_RUN, 50), None, 1)["why_not"]
    assert f"{MOST_RUN + 1:,} jobs are left, which are too many to simulate" in why


# ------------------------------------------------------------------------------- the process


def child(order: dict[str, Any], **environment: str) -> bytes:
    return subprocess.run(
        [sys.executable, "-m", "gridbot_simulator.what_if"],
        input=orjson.dumps(order), capture_output=True, check=True, env=environment,
    ).stdout  # fmt: skip


def test_the_same_order_gives_the_same_bytes_in_each_process() -> None:
    order = {"snapshot": snapshot(70, 50), "policy": COPIES, "seeds": 2}
    one, other = (
        child(order, PYTHONHASHSEED=seed, TZ=zone)
        for seed, zone in (("1", "UTC"), ("2", "Asia/Tokyo"))
    )
    assert one == other
    found = json.loads(one)
    first, second = found["now"]["runs"]
    assert first["decisions"] != second["decisions"]


def test_what_takes_more_memory_than_there_is_for_it_is_told_as_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def greedy(**_: object) -> dict[str, Any]:
        raise MemoryError

    monkeypatch.setattr(what_if, "predict", greedy)
    told = orjson.loads(what_if.answer(orjson.dumps({"snapshot": {}, "policy": None, "seeds": 1})))
    assert told == {
        "why_not": "there is too much left to simulate it within 1 GB of memory: try later"
    }
