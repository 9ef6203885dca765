"""Who is believed where strangers' answers differ, and what a ring can prove by itself."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from scripts.sabotage.model import Model
from scripts.sabotage.state import Setting

from gridbot_server.cycles.job import Ended, Job, Rules
from gridbot_server.cycles.transition import decide
from gridbot_server.matching.assurance import AssuranceTerms, Credence, Judgement, judge
from gridbot_server.matching.lots import FEW
from gridbot_server.matching.track_record import (
    TrackRecord,
    coin,
    most_agreements,
    sample_size_at_the_end,
)
from gridbot_server.storage.states import State

TERMS = AssuranceTerms(0.999)
RULES = Rules(quorum=1, max_attempts=3, terms=TERMS)
NO_COIN = 1.0
# With ten right answers a host is not trusted yet, with a hundred it is.
UNPROVEN = Credence(TrackRecord(10), TrackRecord(10))
TRUSTED = Credence(TrackRecord(100), TrackRecord(100))


def judgement(leaders: list[Credence], crews: int) -> Judgement:
    """What becomes of a job on which these agree, and one unproven host does not."""
    return judge([leaders, [UNPROVEN]], TERMS, NO_COIN, crews)[0]


def test_among_many_owners_unproven_ones_must_lead_by_five() -> None:
    assert judgement(5 * [UNPROVEN], FEW + 1) is Judgement.OPEN
    assert judgement(6 * [UNPROVEN], FEW + 1) is Judgement.CONFIRMED


@pytest.mark.parametrize(("crews", "lead"), [(50, 5), (70, 7), (80, 8), (1000, 8)])
def test_the_more_owners_there_are_the_more_must_unproven_ones_lead_by(
    crews: int, lead: int
) -> None:
    assert judgement(lead * [UNPROVEN], crews) is Judgement.OPEN
    assert judgement((lead + 1) * [UNPROVEN], crews) is Judgement.CONFIRMED


def test_a_trusted_host_among_those_who_lead_settles_it_sooner() -> None:
    assert judgement([*3 * [UNPROVEN], TRUSTED], FEW + 1) is Judgement.CONFIRMED


def test_among_few_owners_a_lead_of_three_is_enough() -> None:
    assert judgement(4 * [UNPROVEN], FEW) is Judgement.CONFIRMED
    assert judgement(3 * [UNPROVEN], FEW) is Judgement.OPEN


def caught(streak: int) -> Credence:
    """An answer of a host that was caught, and right so often since."""
    return Credence(TrackRecord(streak, caught=1), TrackRecord(100, caught=1))


def test_what_a_host_says_that_was_caught_neither_denies_nor_checks_a_trusted_ones_answer() -> None:
    for lies in range(4):
        assert judge([[TRUSTED], lies * [caught(0)]], TERMS, NO_COIN, 99)[0] is (
            Judgement.PROVISIONAL
        )
    chosen = replace(TRUSTED, coin=0.0)
    assert judge([[chosen, caught(0)]], TERMS, NO_COIN, 99) == (Judgement.OPEN, 1)
    assert judge([[caught(0), caught(0)]], TERMS, NO_COIN, 99) == (Judgement.OPEN, 1)


def test_who_made_up_for_being_caught_is_heard_again() -> None:
    assert judge([[TRUSTED], [caught(5)]], TERMS, NO_COIN, 99) == (Judgement.OPEN, 1)


def test_who_was_caught_holds_little_until_it_could_be_trusted_again() -> None:
    held = [TrackRecord(streak, caught=1).most_held for streak in (0, 5, 100, 300)]
    assert held == [2, 8, 8, None]
    assert TrackRecord(0).most_held is None


def test_each_answer_has_a_coin_of_its_own_so_none_is_known_to_be_unchecked() -> None:
    coins = [coin("secret", 1, seq, replica) for seq in range(500) for replica in range(4)]
    assert len({*coins}) == len(coins)
    one, other = coins[1::4], coins[2::4]
    both = sum(a < 0.1 and b < 0.1 for a, b in zip(one, other, strict=True))
    assert both < 15, "those that are checked twice are a tenth of a tenth"


def test_an_answer_in_place_of_one_that_failed_is_checked_by_its_coin_like_any_first_one() -> None:
    job = Job(ended=[failed(1), answered(2, coin_of=0.9)])
    made = decide(job, RULES)
    assert (made.provisional, made.copies) == ((2,), 0)
    job = Job(ended=[failed(1), answered(2, coin_of=0.01)])
    assert decide(job, RULES).copies == 1


def test_of_what_two_agree_on_some_is_checked_once_more_where_many_can() -> None:
    pair = [[TRUSTED, TRUSTED]]
    assert judge(pair, TERMS, 0.0, FEW + 1) == (Judgement.OPEN, 1)
    assert judge(pair, TERMS, 0.5, FEW + 1)[0] is Judgement.PROVISIONAL
    assert judge(pair, TERMS, 0.0, FEW)[0] is Judgement.PROVISIONAL
    assert judge([[*pair[0], UNPROVEN]], TERMS, 0.0, FEW + 1)[0] is Judgement.CONFIRMED


def failed(replica: int) -> Ended:
    return Ended(replica, 0, State.ERROR, "", None, None, datetime.now(UTC), voter=replica)


def answered(replica: int, coin_of: float) -> Ended:
    given = replace(TRUSTED, coin=coin_of)
    now = datetime.now(UTC)
    return Ended(replica, 0, State.SUCCESS, "", b"same", None, now, voter=replica, credence=given)


@pytest.mark.parametrize("lies", [0.01, 0.05, 0.2, 0.5, 1.0])
@pytest.mark.parametrize("answers", [40, 100, 1000])
def test_checks_at_the_end_of_a_bot_leave_no_liar_more_than_its_part(
    answers: int, lies: float
) -> None:
    """Whatever part of its last open answers a tenth of the hosts lies in."""
    for open_answers in (answers, answers // 4):
        checks = sample_size_at_the_end(open_answers, open_answers / answers, 0.999)
        wrong = lies * open_answers * (1 - lies) ** checks
        if checks < open_answers:
            assert 0.1 * wrong / answers <= 0.001


def is_trusted_after(agreements: int) -> bool:
    return TrackRecord(agreements).doubt <= 1 - TERMS.assurance


@pytest.mark.parametrize("crews", range(8, 148))
def test_a_quarter_of_all_owners_cannot_make_itself_trusted_and_all_together_can(
    crews: int,
) -> None:
    assert not is_trusted_after((crews // 4 - 1) * most_agreements(crews))
    assert is_trusted_after((crews - 1) * most_agreements(crews))


def test_owners_of_many_machines_get_a_bot_done_though_none_could_prove_each_of_them() -> None:
    tally = Model(Setting("nobody", "q2p", jobs=2000, machines=10), seed=1).run()
    assert (tally.accepted, tally.undone) == (2000, 0)


def test_a_machine_is_believed_like_its_owner_until_it_is_caught() -> None:
    owner = TrackRecord(100)
    assert Credence(TrackRecord(1), owner).doubt == owner.doubt
    for unproven in (TrackRecord(0), TrackRecord(1, caught=1)):
        assert Credence(unproven, owner).doubt == unproven.doubt
    assert Credence(TrackRecord(1), TrackRecord(100, caught=5)).doubt > 1 - TERMS.assurance


def test_twenty_who_are_there_before_all_others_cannot_make_themselves_trusted() -> None:
    assert not is_trusted_after(19 * most_agreements(24, are_gathering=True))


@pytest.mark.parametrize("strategy", ["patient", "patient, 20 %"])
def test_of_those_who_lie_once_trusted_no_more_than_one_result_in_a_thousand_is_accepted(
    strategy: str,
) -> None:
    """Of BOINC's published rule that is not so, against which these strategies were made."""
    setting = Setting(strategy, "assured", jobs=4000, hosts=24, liars=2)
    found = Model(setting, seed=1003).run()
    assert found.catches > 0  # they were trusted, and lied
    assert 1000 * found.wrong <= found.accepted == 4000
    published = Model(replace(setting, rule="adaptive"), seed=1003).run()
    assert 1000 * published.wrong > published.accepted


def test_liars_who_answer_at_once_are_believed_in_nothing_and_no_honest_host_is_punished() -> None:
    """A start of which they once made each other trusted before others had answered."""
    tally = Model(Setting("greedy", "assured", jobs=4000), seed=1003).run()
    assert (tally.accepted, tally.wrong, tally.punished) == (4000, 0, 0)
