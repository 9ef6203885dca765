"""Claims about evaluation budgets: honest policies never meet them, hostile ones cost little."""

from __future__ import annotations

from pathlib import Path

import pytest
from scripts.benchmarks.hostile import HOSTILE
from scripts.benchmarks.policies import FIFTEEN_CLAUSES, FIGURE_3
from tests.factories import HOST

import gridbot_policies.examples
from gridbot_client.protocol.messages import Resources
from gridbot_policies import Ads, PolicySet
from gridbot_policies.classad import record
from gridbot_server.dispatch.candidates import Candidate, Choice, HostView, TakeAny
from gridbot_server.dispatch.choose import choose
from gridbot_server.dispatch.order import Order
from gridbot_server.matching.spending import (
    EXCESSES,
    FREE_STEPS,
    FULL_STEPS,
    POLICY_STEPS,
    REFILL_STEPS,
    Spending,
)

ALICE, BOB = 1, 2
QUEUE = record({"BOTsInQueue": 1})
HOST_AD = record(dict(HOST))
EXAMPLES = sorted(Path(gridbot_policies.examples.__file__).parent.glob("*.ad"))
MANY_HOSTS = " || ".join(f'Host.Name == "node{n}"' for n in range(600))
HEAVY = f"Odd = {{1}}; JobRequirements = Odd[0] == 1 && ({MANY_HOSTS} || true);"


def taken(choice: Choice) -> list[int]:
    return [take.bot for take in choice.takes if isinstance(take, TakeAny)]


def bot(number: int, policy: str = "", owner: int = ALICE) -> Candidate:
    """A BOT of which a host gets one job whenever its policy is evaluated and suits."""
    text = policy if "Concurrency" in policy else f"{policy} Concurrency = 1000;"
    ad = record({"Tail": False})
    return Candidate(
        number, owner, PolicySet.parse(text), ad, Resources(), 1, None, owner_signed=True
    )


def asked(spending: Spending, *bots: Candidate, requests: int = 1) -> Choice:
    host = HostView(1, BOB, HOST, HOST_AD, running=0, want=100, trusts=(ALICE, BOB))
    for _ in range(requests):
        spending.begin()
        found = choose(host, Order(bots, QUEUE, spending=spending))
    return found


def steps_of(policy: str) -> int:
    """What all of a BOT's policies take for a host while they are walked."""
    policies, ads = PolicySet.parse(policy), Ads(HOST_AD, record({"Tail": True}), QUEUE)
    policies.requirements(ads)
    policies.rank(ads)
    policies.concurrency(ads)
    policies.deadline(ads)
    policies.wants_replica(ads)
    return ads.spent


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_cost_their_owner_next_to_nothing(path: Path) -> None:
    assert 0 < steps_of(path.read_text()) < REFILL_STEPS / 10


@pytest.mark.parametrize(
    "policy",
    [
        FIGURE_3.format(share=10, number=1, seconds=2000),
        FIFTEEN_CLAUSES.format(cpus=1, memory=256, disk=1000),
        f"JobRequirements = {MANY_HOSTS};",
    ],
)
def test_an_honest_policy_stays_far_within_its_budget(policy: str) -> None:
    assert steps_of(policy) < POLICY_STEPS / 2


def test_a_compiled_policy_costs_less_than_a_walked_one_and_not_nothing() -> None:
    policies = PolicySet.parse(FIFTEEN_CLAUSES.format(cpus=1, memory=256, disk=1000))
    spent = []
    for _ in range(200):
        ads = Ads(HOST_AD, record({}), QUEUE)
        policies.requirements(ads)
        spent.append(ads.spent)
    assert 0 < spent[-1] < spent[0] / 4


@pytest.mark.parametrize("policy", [made(1) for made in HOSTILE[:5]])
def test_a_policy_that_takes_too_long_is_refused_and_noted(policy: str) -> None:
    choice = asked(Spending(), bot(1, policy))
    assert (taken(choice), choice.overspent) == ([], {1})
    assert choice.refusals == {"evaluation budget": 1}


@pytest.mark.parametrize("name", ["Rank", "Concurrency"])
def test_it_is_noted_whichever_policy_takes_too_long(name: str) -> None:
    chain = HOSTILE[0](1).replace("JobRequirements", name)
    assert asked(Spending(), bot(1, chain)).overspent == {1}


def test_at_the_third_time_it_is_to_be_suspended() -> None:
    spending = Spending()
    assert [spending.exceeded(1, 7) for _ in range(EXCESSES)] == [False, False, True]
    assert not spending.exceeded(1, 8)  # a changed policy begins anew


def test_a_suspended_bot_gets_nothing_and_costs_nothing() -> None:
    suspended, spending = bot(1, HOSTILE[0](1)), Spending()
    suspended.is_suspended = True
    choice = asked(spending, suspended)
    assert (choice.refusals, choice.overspent) == ({"suspended policy": 1}, set())


def test_what_many_policies_of_one_owner_take_is_bounded_in_the_long_run() -> None:
    assert FREE_STEPS < steps_of(HEAVY) < POLICY_STEPS
    heavy, spending = [bot(number, HEAVY) for number in range(50)], Spending()
    looked_at = sum(len(taken(asked(spending, *heavy))) for _ in range(100))
    charged = looked_at * (steps_of(HEAVY) - FREE_STEPS)
    assert 0 < charged < FULL_STEPS + 100 * REFILL_STEPS + POLICY_STEPS


def test_heavy_policies_of_one_owner_take_turns() -> None:
    heavy, spending = [bot(number, HEAVY) for number in range(4)], Spending()
    served = [number for _ in range(40) for number in taken(asked(spending, *heavy))]
    assert set(served) == {0, 1, 2, 3}
    assert {*served[-4:]} == {0, 1, 2, 3}


def test_a_cheap_policy_waits_for_its_first_turn_at_most() -> None:
    spending, cheap = Spending(), bot(98)
    hostile = [bot(number, HOSTILE[1](number)) for number in range(1, 5)]
    asked(spending, *hostile, cheap, requests=20)
    assert [taken(asked(spending, *hostile, cheap)) for _ in range(10)] == 10 * [[98]]


def test_who_spends_much_delays_no_other_owner() -> None:
    spending, other = Spending(), bot(99, owner=BOB)
    hostile = [bot(number, HOSTILE[1](number)) for number in range(1, 20)]
    assert [taken(asked(spending, *hostile, other)) for _ in range(10)] == 10 * [[99]]
