"""Claims about what is kept of BOTs from one batch to the next."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from gridbot_client.protocol.messages import Resources
from gridbot_policies import PolicySet
from gridbot_policies.classad import Record, record
from gridbot_server.dispatch.candidates import Candidate, Choice, Copy, HostView
from gridbot_server.dispatch.choose import choose
from gridbot_server.dispatch.order import Order, Ranking
from gridbot_server.matching.spending import Spending

POLICIES = [
    "Concurrency = 1000",
    "Rank = 3; Concurrency = 2",
    "Rank = !Tail ? 3 : Host.Memory",
    "JobRequirements = Tail; Rank = JobsLeft",
    "JobRequirements = Host.Memory > 2000",
    "Rank = Age % 7",
    "JobRequirements = Queue.JobsInQueue > 5; Rank = time() % 3",
    "Rank = NumberOfReplicas",
]
SMALL, BIG = ({"Name": "box", "NumCpus": 4, "Memory": memory} for memory in (1000, 4000))
HOSTS = [
    HostView(number, 1, attributes, record(attributes), running=0, want=3, trusts=[1, 2])
    for number, attributes in enumerate((SMALL, BIG))
]


def bot(number: int, change: dict[str, Any]) -> Candidate:
    """A BOT with what chance says of it."""
    copies = [Copy(n, n, [], record({"NumberOfReplicas": 1})) for n in range(change["copies"])]
    made = Candidate(
        number, change["owner"], PolicySet.parse(change["policy"]),
        record({"Tail": change["tail"], "JobsLeft": change["fresh"], "Age": 5}),
        Resources(), change["fresh"], (lambda: copies) if copies else None, owner_signed=True,
    )  # fmt: skip
    return replace(made, group_usage=change["group_usage"], dry=change["fresh"] == 0)


class Around(NamedTuple):
    """What a batch sees beside BOTs."""

    queue: Record
    usage: dict[int, float]
    now: float


def chosen(items: list[Candidate], around: Around, ranking: Ranking | None) -> list[Choice]:
    """What each of the hosts gets."""
    order = Order(items, *around, ranking=ranking)
    return [choose(host, order) for host in HOSTS]


CHANGES = st.fixed_dictionaries(
    {
        "owner": st.sampled_from([1, 2]),
        "policy": st.sampled_from(POLICIES),
        "tail": st.booleans(),
        "fresh": st.integers(0, 3),
        "copies": st.integers(0, 2),
        "group_usage": st.sampled_from([0.0, 0.5]),
    }
)
BATCHES = st.lists(
    st.tuples(
        st.dictionaries(st.integers(1, 6), st.none() | CHANGES),  # BOTs that come, change or go
        st.integers(0, 9),  # jobs in the queue
        st.floats(0, 2),  # usage of an owner
    ),
    max_size=6,
)


@given(batches=BATCHES)
@settings(max_examples=200)
def test_what_is_kept_changes_no_decision(
    batches: list[tuple[dict[int, dict[str, Any] | None], int, float]],
) -> None:
    ranking, candidates = Ranking(), dict[int, Candidate]()
    for now, (changes, jobs, usage) in enumerate(batches):
        for number, change in changes.items():
            candidates.pop(number, None)
            if change:
                candidates[number] = bot(number, change)
        for item in candidates.values():
            assert isinstance(item.ad.attributes, dict)
            item.ad.attributes["age"] = now  # which grows though nothing else changes
        queue = record({"BOTsInQueue": len(candidates), "JobsInQueue": jobs})

        around = Around(queue, {1: usage, 2: 1.0}, float(now))
        items = [candidates[number] for number in sorted(candidates)]
        assert chosen(items, around, ranking) == chosen(items, around, None)


def test_of_a_bot_that_stays_as_it_is_policies_are_evaluated_once() -> None:
    items = [bot(n, {"owner": 1, "policy": f"Rank = {n}", "tail": False, "fresh": 3, "copies": 0,
                     "group_usage": 0.0}) for n in range(1, 6)]  # fmt: skip
    spending, ranking = Spending(), Ranking()
    queue = record({"BOTsInQueue": 5, "JobsInQueue": 15})
    for _ in range(3):
        Order(items, queue, spending=spending, ranking=ranking)
    assert spending.evaluations == len(items)
    items[0] = replace(items[0])
    Order(items, queue, spending=spending, ranking=ranking)
    assert spending.evaluations == len(items) + 1


def test_while_an_owner_comes_to_owe_no_bot_of_the_owner_is_passed_over() -> None:
    dear = "Concurrency = 1000; Rank = " + " + ".join(["Age"] * 80)
    items = [bot(n, {"owner": 1, "policy": policy, "tail": False, "fresh": 1, "copies": 0,
                     "group_usage": 0.0})
             for n, policy in enumerate([POLICIES[0], dear, POLICIES[0]], 1)]  # fmt: skip
    spending, queue = Spending(), record({"BOTsInQueue": 3, "JobsInQueue": 3})
    order = Order(items, queue, spending=spending)
    assert spending.owes(1)
    assert {take.bot for take in choose(HOSTS[0], order).takes} == {1, 2, 3}
