"""Who is believed where strangers' answers differ, and what a ring can prove by itself."""

import pytest
from scripts.sabotage.model import Model
from scripts.sabotage.state import Setting

from gridbot_server.matching.assurance import AssuranceTerms, Credence, Judgement, judge
from gridbot_server.matching.lots import FEW
from gridbot_server.matching.track_record import TrackRecord, most_agreements

TERMS = AssuranceTerms(0.999)
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


def test_a_trusted_host_among_those_who_lead_settles_it_sooner() -> None:
    assert judgement([*3 * [UNPROVEN], TRUSTED], FEW + 1) is Judgement.CONFIRMED


def test_among_few_owners_a_lead_of_three_is_enough() -> None:
    assert judgement(4 * [UNPROVEN], FEW) is Judgement.CONFIRMED
    assert judgement(3 * [UNPROVEN], FEW) is Judgement.OPEN


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


def test_liars_who_answer_at_once_are_believed_in_nothing_and_no_honest_host_is_punished() -> None:
    """A start of which they once made each other trusted before others had answered."""
    tally = Model(Setting("greedy", "assured", jobs=4000), seed=1003).run()
    assert (tally.accepted, tally.wrong, tally.punished) == (4000, 0, 0)
