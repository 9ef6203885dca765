from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from gridbot_server.cycles.attempts import EXPIRIES_PER_ATTEMPT, lone_voters
from gridbot_server.cycles.job import Decision, Ended, Job, Rules
from gridbot_server.cycles.transition import decide

START = datetime(2026, 1, 1, tzinfo=UTC)
ONE = Rules(quorum=1, max_attempts=3)
TWO = replace(ONE, quorum=2)


def ended(replica: int, how: str, answer: str = "", round_: int = 0) -> Ended:
    digest = answer.encode() if how == "success" else None
    at = START + timedelta(seconds=replica)
    return Ended(replica, round_, how, "exit_nonzero", digest, None, at, voter=replica)


def job(*items: Ended, leased: int = 0, queued: int = 0, round_: int = 0) -> Job:
    return Job(round_, list(range(100, 100 + leased)), list(range(200, 200 + queued)), list(items))


def test_one_success_is_an_outcome() -> None:
    assert decide(job(ended(1, "success", "42")), ONE) == Decision({1: True}, canonical=1)


def test_two_equal_answers_of_three_are_an_outcome_and_the_third_is_wrong() -> None:
    answers = (ended(1, "success", "41"), ended(2, "success", "42"), ended(3, "success", "42"))
    assert decide(job(*answers), TWO) == Decision({1: False, 2: True, 3: True}, canonical=2)


def test_two_answers_of_one_host_are_one_vote() -> None:
    late, again = ended(1, "success", "42"), ended(2, "success", "42")._replace(voter=1)
    decision = decide(job(late, again), TWO)
    assert (decision.finishes, decision.copies) == (False, 1)
    other = ended(3, "success", "42")
    assert decide(job(late, again, other), TWO) == Decision(dict.fromkeys((1, 2, 3), True), 1)


def test_half_a_quorum_waits_for_the_replica_in_progress() -> None:
    decision = decide(job(ended(1, "success", "42"), leased=1), TWO)
    assert (decision.finishes, decision.copies, decision.valid) == (False, 0, {})


def test_a_disagreement_asks_for_one_more() -> None:
    decision = decide(job(ended(1, "success", "41"), ended(2, "success", "42")), TWO)
    assert (decision.copies, decision.why) == (1, "quorum")


def test_what_failed_often_in_the_grids_goes_to_dedicated_hosts_only() -> None:
    rules = replace(ONE, max_attempts=5, failover_after=2)
    once, twice = ended(1, "error"), ended(2, "expired")
    assert (decide(job(once), rules).copies, decide(job(once), rules).pool) == (1, None)
    decision = decide(job(once, twice), rules)
    assert (decision.copies, decision.why, decision.pool) == (1, "expired", "dedicated")
    preempted = ended(2, "expired")._replace(reason="pilot_ended")
    assert decide(job(once, preempted), rules).pool is None
    never = replace(rules, failover_after=None)
    assert decide(job(once, twice), never).pool is None
    retried = decide(job(once, twice, ended(3, "error", round_=1), round_=1), rules)
    assert (retried.copies, retried.pool) == (1, None)


def test_an_error_is_followed_by_another_attempt() -> None:
    decision = decide(job(ended(1, "error")), ONE)
    assert (decision.valid, decision.copies, decision.why) == ({1: False}, 1, "error")


def test_one_hosts_word_alone_ends_no_job_while_others_work_for_its_bot() -> None:
    errors = [ended(n, "error")._replace(voter=7) for n in (1, 2, 3)]
    expired = [ended(n, "expired")._replace(voter=7) for n in range(1, 31)]
    for failures in (errors, expired):
        alone = job(*failures)
        assert lone_voters(alone, ONE) == {7} and decide(alone, ONE).failure
        doubted = replace(alone, doubted={7})
        assert (decide(doubted, ONE).failure, decide(doubted, ONE).copies) == (None, 1)
        confirmed = replace(doubted, ended=[*failures[1:], failures[0]._replace(voter=8)])
        assert lone_voters(confirmed, ONE) == set() and decide(confirmed, ONE).failure


def test_an_expiry_elsewhere_does_not_confirm_errors() -> None:
    errors = [ended(n, "error")._replace(voter=7) for n in (1, 2, 3)]
    both = job(*errors, ended(4, "expired"))
    assert lone_voters(both, ONE) == {7}
    assert decide(replace(both, doubted={7}), ONE).failure is None


def test_a_copy_that_waits_already_is_enough() -> None:
    assert decide(job(ended(1, "expired"), queued=1), ONE).copies == 0


def test_the_last_attempt_fails_the_job_with_its_reason() -> None:
    errors = [ended(number, "error") for number in (1, 2, 3)]
    assert decide(job(*errors), ONE).failure == "3 attempts failed, the last one: exit_nonzero"


def test_attempts_of_an_earlier_round_do_not_count() -> None:
    errors = [ended(number, "error") for number in (1, 2, 3)]
    assert decide(job(*errors, ended(4, "error", round_=1), round_=1), ONE).copies == 1


def test_expiries_are_borne_longer_than_errors_but_not_for_ever() -> None:
    expired = [ended(number, "expired") for number in range(1, 3 * EXPIRIES_PER_ATTEMPT + 1)]
    assert decide(job(*expired[:-1]), ONE).copies == 1
    assert decide(job(*expired), ONE).failure == "30 replicas were never answered"


def test_answers_that_never_agree_fail_the_job() -> None:
    answers = [ended(number, "success", str(number)) for number in range(1, 6)]
    decision = decide(job(*answers), TWO)
    assert decision.failure == "5 answers, and no 2 of them agree"
    assert set(decision.valid.values()) == {False}


def test_an_answer_after_the_outcome_counts_for_its_host_only() -> None:
    canonical = ended(1, "success", "42")._replace(valid=True)
    late = (ended(2, "success", "42"), ended(3, "success", "41"))
    done = replace(job(canonical, *late), canonical=1, has_outcome=True)
    assert decide(done, ONE) == Decision({2: True, 3: False})


@settings(derandomize=True, max_examples=200)
@given(st.randoms(use_true_random=False), st.integers(1, 3), st.integers(1, 4))
def test_whatever_hosts_do_every_job_ends(random: object, quorum: int, attempts: int) -> None:
    rules = Rules(quorum, attempts)
    items: list[Ended] = []
    waiting, number = quorum, 0
    for _ in range(500):
        decision = decide(job(*items, leased=waiting), rules)
        if decision.finishes:
            break
        waiting += decision.copies
        assert waiting > 0, "nothing is in progress and nothing was asked for"
        how = random.choice(["success", "error", "expired"])  # type: ignore[attr-defined]
        number, waiting = number + 1, waiting - 1
        items.append(ended(number, how, random.choice("abcdef")))  # type: ignore[attr-defined]
    assert decision.finishes
    assert decide(job(*items, leased=waiting), rules) == decision


def silent(leased: int, of_these: int, queued: int = 0) -> Job:
    found = job(leased=leased, queued=queued)
    return replace(found, silent=found.leased[:of_these])


def test_a_job_that_a_silent_client_has_gets_a_copy_at_once() -> None:
    decision = decide(silent(1, 1), ONE)
    assert (decision.copies, decision.why) == (1, "silent")


def test_a_copy_that_waits_or_runs_is_enough_beside_a_silent_client() -> None:
    assert decide(silent(1, 1, queued=1), ONE).copies == 0
    assert decide(silent(2, 1), ONE).copies == 0


def test_silent_clients_are_no_reason_for_more_replicas_than_the_bot_allows() -> None:
    assert decide(silent(2, 2), replace(ONE, max_replicas=3)).copies == 1
    assert decide(silent(3, 3), replace(ONE, max_replicas=3)).copies == 0
    assert decide(silent(2, 2), replace(TWO, max_replicas=3)).copies == 1
