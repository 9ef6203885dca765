"""A machine whose client is lost, as a person at home has it: the only one."""

from __future__ import annotations

import json

from tests.system.deployment import NO_COPIES, Deployment, eventually

JOBS = 8


def test_a_second_client_of_the_only_machine_ends_what_the_first_one_left(
    fresh: Deployment,
) -> None:
    fresh.configure(silent_seconds=3)
    fresh.start()
    gate = fresh.gate()
    fresh.client("first", "--cpus", "2", host="vm")
    # No policy of the BOT is asked: copies of what a silent client has are not speculative.
    bot = fresh.submit("--range", f"0:{JOBS}", "--", *gate.command(), policy=NO_COPIES)
    leases = eventually(lambda: fresh.leases(bot))
    fresh.kill_client("first")
    eventually(lambda: fresh.show(bot)["jobs_silent"] == len(fresh.leases(bot)))
    shown = fresh.show(bot)
    assert (shown["jobs_running"], shown["eta_seconds"]) == (0, None)
    assert shown["jobs_silent"] + shown["jobs_unsent"] == JOBS
    verdict = json.loads(fresh.run("bot", "explain", str(bot), "--json"))["verdict"]
    assert "silent for" in verdict
    gate.open()
    fresh.client("second", "--cpus", "2", host="vm")
    fresh.wait(bot)
    outcomes = fresh.outcomes(bot)
    assert set(outcomes) == set(range(JOBS))
    assert {outcomes[seq] for _, seq, _ in leases} == {2}
    fresh.kill_clients()


def test_a_client_that_was_frozen_goes_on_and_its_answers_count(fresh: Deployment) -> None:
    fresh.configure(silent_seconds=3)
    fresh.start()
    gate = fresh.gate()
    fresh.client("only", "--cpus", "1", host="vm")
    bot = fresh.submit("--range", "0:1", "--", *gate.command(), policy=NO_COPIES)
    fresh.freeze("only")
    eventually(lambda: fresh.show(bot)["jobs_silent"] == 1)
    fresh.thaw("only")
    eventually(lambda: fresh.show(bot)["jobs_running"] == 1)
    gate.open()
    fresh.wait(bot)
    assert fresh.outcomes(bot) == {0: 1}
    fresh.kill_clients()
