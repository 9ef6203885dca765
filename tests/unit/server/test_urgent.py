"""What is called back from a host that has not begun it."""

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from scripts.benchmarks.hostile import HOSTILE

from gridbot_client.protocol.messages import ReplicaId, Resources
from gridbot_policies import PolicySet
from gridbot_policies.classad import record
from gridbot_server.dispatch.candidates import Candidate, HostView
from gridbot_server.dispatch.order import Order
from gridbot_server.dispatch.urgent import PAUSE_SECONDS, CallBack, Pauses, to_call_back

ALICE, BOB = 1, 2
QUEUE = record({"BOTsInQueue": 2, "JobsInQueue": 10})
HELD = [ReplicaId(1, seq, 1) for seq in range(2)]


def host(**changes: Any) -> HostView:
    attributes = {"NumCpus": 2, "Memory": 4096, "Disk": 10_000, "Running": 4}
    made = HostView(
        7, ALICE, attributes, record(attributes), running=4, want=0, trusts=[ALICE, BOB],
        accepts=[ALICE, BOB], of_bot={1: 4},
    )  # fmt: skip
    return replace(made, **changes)


def bot(number: int, policy: str = "", fresh: int = 100, **changes: Any) -> Candidate:
    made = Candidate(
        number, ALICE, PolicySet.parse(policy), record({}), Resources(), fresh, None,
        owner_signed=True,
    )  # fmt: skip
    return replace(made, **changes)


def call_back(
    *candidates: Candidate,
    usage: dict[int, float] | None = None,
    promised: dict[int, int] | None = None,
    **changes: Any,
) -> CallBack:
    by_bot = {item.bot: item for item in candidates}
    order = Order(candidates, QUEUE, usage, 0.0)
    return to_call_back(host(**changes), HELD, by_bot, order, usage or {}, promised or {})


def called(*candidates: Candidate, usage: dict[int, float] | None = None) -> list[ReplicaId]:
    return list(call_back(*candidates, usage=usage).replicas)


def test_the_last_go_back_for_what_ranks_higher_and_no_more_than_there_is_of_that() -> None:
    assert called(bot(1), bot(2, "Rank = 1")) == HELD[::-1]
    assert called(bot(1), bot(2, "Rank = 1", fresh=1)) == HELD[1:]


def test_what_is_promised_to_other_hosts_calls_nothing_back() -> None:
    patient, urgent = bot(1), bot(2, "Rank = 1", fresh=3)
    assert call_back(patient, urgent).instead == [2, 2]
    assert call_back(patient, urgent, promised={2: 2}) == ([HELD[1]], [2], set())
    for gone in (3, 4):
        assert call_back(patient, urgent, promised={2: gone}) == ([], [], set())


def test_a_policy_that_exceeds_its_budget_for_what_is_held_is_told_of() -> None:
    dear = bot(2, HOSTILE[0](1).replace("JobRequirements", "Rank"))
    assert call_back(bot(1), dear).overspent == {2}


def test_a_host_is_left_alone_for_a_while_after_it_was_asked() -> None:
    pauses = Pauses()
    assert not pauses.lasts(7, 0.0)
    pauses.begin(7, 0.0)
    assert pauses.lasts(7, PAUSE_SECONDS - 1) and not pauses.lasts(8, 0.0)
    assert not pauses.lasts(7, PAUSE_SECONDS)


def test_pauses_of_the_hosts_that_were_asked_last_are_known() -> None:
    pauses = Pauses()
    for host_ in (*range(10_000), 0, 10_000):
        pauses.begin(host_, 0.0)
    assert not pauses.lasts(1, 0.0)
    assert all(pauses.lasts(host_, 0.0) for host_ in (0, 2, 10_000))


def test_what_ranks_no_higher_or_does_not_suit_the_host_calls_nothing_back() -> None:
    assert called(bot(1)) == []
    assert called(bot(1), bot(2)) == []
    assert called(bot(1, "Rank = 2"), bot(2, "Rank = 1")) == []
    assert called(bot(1), bot(2, "Rank = 1", fresh=0)) == []
    assert called(bot(1), bot(2, "Rank = 1; JobRequirements = false")) == []
    assert called(bot(1), bot(2, "Rank = 1; Concurrency = 2")) == []


def test_members_of_a_gang_stay() -> None:
    assert called(bot(1, together=2), bot(2, "Rank = 1")) == []


def test_replicas_of_a_bot_that_dispatch_does_not_know_stay() -> None:
    assert called(bot(2, "Rank = 1")) == []


def test_an_owner_who_would_still_have_less_goes_first() -> None:
    others = bot(2, owner=BOB)
    assert called(bot(1), others, usage={ALICE: 4.0}) == HELD[::-1]
    assert called(bot(1), others, usage={ALICE: 2.0, BOB: 1.0}) == []
    favoured = replace(others, share=4.0)
    assert called(bot(1), favoured, usage={ALICE: 2.0, BOB: 0.5}) == HELD[::-1]


@given(
    st.floats(0, 50), st.floats(0, 50), st.sampled_from([0.5, 1.0, 3.0]),
    st.sampled_from([0.5, 1.0, 3.0]),
)  # fmt: skip
def test_what_was_called_back_calls_nothing_back_in_turn(
    mine: float, theirs: float, share: float, their_share: float
) -> None:
    one, other = bot(1, share=share), bot(2, owner=BOB, share=their_share)
    if called(one, other, usage={ALICE: mine, BOB: theirs}):
        after = {ALICE: mine - 1 / share, BOB: theirs + 1 / their_share}
        turned = replace(one, bot=2), replace(other, bot=1)
        assert called(*turned, usage=after) == []
