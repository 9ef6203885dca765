from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given as given_many
from hypothesis import strategies as st

from gridbot_client.protocol.messages import Resources
from gridbot_policies import PolicySet
from gridbot_policies.classad import Record, record
from gridbot_policies.policy.owner import OwnerPolicy
from gridbot_server.dispatch.candidates import (
    Candidate,
    Choice,
    Copy,
    Holder,
    HostView,
    TakeAny,
    TakeSlot,
)
from gridbot_server.dispatch.choose import choose
from gridbot_server.dispatch.order import Order

ALICE, BOB = 1, 2
QUEUE = record({"BOTsInQueue": 1, "JobsInQueue": 10})


def host(**changes: Any) -> HostView:
    attributes = {"Name": "box", "NumCpus": 4, "Memory": 4096, "Disk": 10_000, "Running": 0}
    attributes |= changes.pop("attributes", {})
    made = HostView(7, ALICE, attributes, record(attributes), running=0, want=100, trusts=[ALICE])
    return replace(made, **changes)


def bot(number: int, policy: str = "", fresh: int = 100, **changes: Any) -> Candidate:
    made = Candidate(
        number, ALICE, PolicySet.parse(policy), record({"Tail": False}), Resources(), fresh, None,
        owner_signed=True,
    )  # fmt: skip
    return replace(made, **changes)


def waiting(*copies: Copy) -> Callable[[], Sequence[Copy]]:
    return lambda: copies


def copy(
    name: str,
    *holders: Holder,
    pool: str | None = None,
    seq: int = 0,
    failed: Sequence[Holder] = (),
    **job: Any,
) -> Copy:
    ad = record({"NumberOfReplicas": len(holders), **job})
    return Copy(name, seq, holders, ad, pool, failed)


def given(
    asking: HostView,
    candidates: Iterable[Candidate],
    queue: Record,
    usage: Mapping[int, float] | None = None,
    now: float | None = None,
) -> Choice:
    return choose(asking, Order([*candidates], queue, usage, now))


def taken(choice: Choice) -> list[tuple[int, int]]:
    return [(take.bot, take.count) for take in choice.takes if isinstance(take, TakeAny)]


def slots(choice: Choice) -> list[Any]:
    return [take.slot for take in choice.takes if isinstance(take, TakeSlot)]


def test_the_best_ranks_concurrency_bounds_all_others() -> None:
    candidates = [
        bot(1, "Rank = 1; Concurrency = 50"),
        bot(2, "Rank = 2; Concurrency = 3", fresh=1),
    ]
    assert taken(given(host(), candidates, QUEUE)) == [(2, 1), (1, 2)]


def test_a_host_gets_no_more_replicas_than_it_has_free_gpus_for() -> None:
    able = host(attributes={"NumGpus": 4, "FreeGpus": 3, "NumCpus": 8})
    on_gpus = [bot(1, resources=Resources(gpus=2)), bot(2, resources=Resources(gpus=1)), bot(3)]
    found = given(able, on_gpus, QUEUE)
    assert taken(found) == [(1, 1), (2, 1), (3, 14)]
    busy = host(attributes={"NumGpus": 4, "FreeGpus": 0})
    found = given(busy, on_gpus, QUEUE)
    assert taken(found) == [(3, 8)]
    assert found.refusals == {"Host.FreeGpus": 2}


def test_replicas_that_the_host_holds_count_against_concurrency() -> None:
    candidates = [bot(1, "Concurrency = 5")]
    assert taken(given(host(running=3), candidates, QUEUE)) == [(1, 2)]
    assert taken(given(host(running=5), candidates, QUEUE)) == []


def test_a_host_that_knows_a_bots_jobs_to_be_short_holds_more_of_them() -> None:
    knowing = host(ahead={1: 50}, running=10)
    assert taken(given(knowing, [bot(1)], QUEUE)) == [(1, 40)]
    assert taken(given(host(ahead={1: 2}), [bot(1)], QUEUE)) == [(1, 8)]


def test_what_a_host_knows_of_one_bot_says_nothing_of_another() -> None:
    assert taken(given(host(ahead={1: 50}), [bot(2)], QUEUE)) == [(2, 8)]
    assert taken(given(host(ahead={1: 50}, running=10), [bot(2)], QUEUE)) == []


def test_a_bots_own_concurrency_holds_whatever_the_host_knows() -> None:
    assert taken(given(host(ahead={1: 50}), [bot(1, "Concurrency = 5")], QUEUE)) == [(1, 5)]


def test_no_more_is_sent_than_the_client_wants() -> None:
    candidates = [bot(1, "Concurrency = 50", fresh=2), bot(2, "Concurrency = 50")]
    assert taken(given(host(want=3), candidates, QUEUE)) == [(1, 2), (2, 1)]


def test_requirements_that_are_undefined_refuse_the_host() -> None:
    choice = given(host(), [bot(1, "JobRequirements = Host.Colour == 3")], QUEUE)
    assert choice.takes == []
    assert choice.refusals == {"JobRequirements": 1}


def test_a_bot_without_anything_to_send_is_not_asked_for_its_reasons() -> None:
    candidates = [bot(1, "JobRequirements = false", fresh=0), bot(2, "JobRequirements = false")]
    assert given(host(), candidates, QUEUE).refusals == {"JobRequirements": 1}


def test_bots_with_the_same_needs_are_refused_alike() -> None:
    large = replace(bot(1), resources=Resources(cpus=8), needs="8 CPUs")
    candidates = [large, bot(2, "Concurrency = 0", needs="nothing"), replace(large, bot=3)]
    choice = given(host(want=1), candidates, QUEUE)
    assert (taken(choice), choice.refusals) == ([], {"needs 8 CPUs": 2, "Concurrency": 1})


def test_what_would_outlive_a_pilot_is_not_sent_to_it() -> None:
    ending = host(attributes={"TimeLeft": 60})
    long, short, unknown = (
        bot(number, "Concurrency = 9", fresh=1, run_seconds=seconds)
        for number, seconds in ((1, 61.0), (2, 60.0), (3, None))
    )
    choice = given(ending, [long, short, unknown], QUEUE)
    assert {number for number, _ in taken(choice)} == {2, 3}
    assert choice.refusals == {"Host.TimeLeft": 1}
    assert taken(given(host(), [long], QUEUE))


def test_rank_may_depend_on_the_host() -> None:
    candidates = [bot(1, "Rank = Host.Memory > 8000 ? 9 : 0; Concurrency = 2"), bot(2, "Rank = 5; Concurrency = 2")]  # fmt: skip  # noqa: E501
    large = host(attributes={"Memory": 16_000})
    assert taken(given(host(), candidates, QUEUE)) == [(2, 2)]
    assert taken(given(large, candidates, QUEUE)) == [(1, 2)]


def test_the_deadline_sees_the_concurrency() -> None:
    choice = given(host(), [bot(1, "Concurrency = 2; Deadline = Concurrency * 2000")], QUEUE)
    assert choice.takes == [TakeAny(1, 2, 4000.0)]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"resources": Resources(memory_mb=5000)}, "needs 5000 MB memory"),
        ({"resources": Resources(cpus=8)}, "needs 8 CPUs"),
        ({"platforms": ("windows-x86_64",)}, "needs platform windows-x86_64"),
        (
            {"owner": BOB},
            "not signed by the project, and the client does not trust its owner's key",
        ),
    ],
)
def test_a_host_that_cannot_run_the_bot_is_told_why(changes: dict[str, Any], reason: str) -> None:
    choice = given(host(), [bot(1, **changes)], QUEUE)
    assert choice.takes == []
    assert choice.refusals == {reason: 1}


def test_the_hosts_owner_decides_which_bots_it_works_for() -> None:
    eves, bobs = record({"Owner": "eve", "Tail": False}), record({"Owner": "bob", "Tail": False})
    candidates = [
        bot(1, "Concurrency = 1; Rank = 9", ad=eves, copies=waiting(copy("slot 5"))),
        bot(2, "Concurrency = 1", ad=bobs),
    ]
    picky = host(policy=OwnerPolicy.parse('BOT.Owner != "eve" && NumCpus == 4'))
    choice = given(picky, candidates, QUEUE)
    assert choice.takes == [TakeAny(2, 1, 86_400.0)]
    assert choice.refusals == {"the host owner's Requirements": 1}


def test_the_hosts_owner_sees_the_time_of_the_request() -> None:
    policy = OwnerPolicy.parse("time() > 1000")
    assert taken(given(host(policy=policy), [bot(1)], QUEUE, now=900.0)) == []
    assert taken(given(host(policy=policy), [bot(1)], QUEUE, now=1100.0)) == [(1, 8)]


def test_a_signed_bot_of_another_owner_may_run() -> None:
    assert taken(given(host(), [bot(1, "Concurrency = 1", owner=BOB, signed=True)], QUEUE)) == [
        (1, 1)
    ]


def test_the_owner_with_less_of_its_share_in_use_goes_first() -> None:
    candidates = [
        bot(1, "Rank = 9; Concurrency = 2", owner=ALICE),
        bot(2, "Rank = 1; Concurrency = 2", owner=BOB, signed=True),
    ]
    assert taken(given(host(), candidates, QUEUE, {ALICE: 10.0, BOB: 3.0})) == [(2, 2)]


def test_within_an_owner_the_group_with_less_of_its_share_in_use_goes_before_rank() -> None:
    candidates = [
        bot(1, "Rank = 9; Concurrency = 100", group_usage=4.0),
        bot(2, "Rank = 1; Concurrency = 100", fresh=3, group_usage=2.0),
        bot(3, "Rank = 2; Concurrency = 100", fresh=3, group_usage=2.0),
        bot(4, "Concurrency = 100", fresh=1, group_usage=9.0, owner=BOB, signed=True),
    ]
    found = given(host(want=8), candidates, QUEUE, {ALICE: 1.0, BOB: 0.0})
    assert taken(found) == [(4, 1), (3, 3), (2, 3), (1, 1)]


def test_a_copy_goes_before_first_copies_of_its_bot() -> None:
    candidate = bot(1, "Concurrency = 2", copies=waiting(copy("old", Holder(3, ALICE))))
    choice = given(host(), [candidate], QUEUE)
    assert (slots(choice), taken(choice)) == (["old"], [(1, 1)])


def test_a_copy_never_goes_to_a_host_that_holds_its_job() -> None:
    copies = waiting(copy("mine", Holder(7, ALICE)), copy("other's", Holder(3, ALICE)))
    assert slots(given(host(), [bot(1, fresh=0, copies=copies)], QUEUE)) == ["other's"]


def test_a_copy_never_goes_to_a_client_that_may_still_answer_late() -> None:
    copies = waiting(copy("held", seq=3), copy("another job's", seq=4))
    late = host(at_hand={(1, 3)})
    assert slots(given(late, [bot(1, fresh=0, copies=copies)], QUEUE)) == ["another job's"]


def test_among_strangers_a_quorum_needs_different_owners() -> None:
    copies = waiting(copy("same owner", Holder(3, ALICE)), copy("other owner", Holder(4, BOB)))
    candidate = bot(1, fresh=0, copies=copies, among_strangers=True, quorum=2)
    assert slots(given(host(), [candidate], QUEUE)) == ["other owner"]


def test_what_failed_here_alone_is_left_to_the_others_that_work_for_its_bot() -> None:
    here, elsewhere = Holder(7, ALICE), Holder(3, ALICE)
    copies = waiting(
        copy("failed here", failed=[here]),
        copy("failed elsewhere", failed=[elsewhere]),
        copy("failed everywhere", failed=[here, elsewhere]),
    )
    two = bot(1, "Concurrency = 1000", fresh=0, copies=copies, running=2)
    busy = host(running=101, of_bot={1: 1, 5: 100})
    assert slots(given(busy, [two], QUEUE)) == ["failed elsewhere", "failed everywhere"]
    alone = host(running=102, of_bot={1: 2, 5: 100})
    assert len(slots(given(alone, [two], QUEUE))) == 3  # nobody else is there
    strangers = replace(two, among_strangers=True)
    assert slots(given(host(), [strangers], QUEUE)) == ["failed elsewhere"]  # all are one owner's


def test_copies_for_dedicated_hosts_go_nowhere_else() -> None:
    candidate = bot(1, fresh=0, copies=waiting(copy("failed often", pool="dedicated")))
    assert slots(given(host(), [candidate], QUEUE)) == []
    assert slots(given(host(dedicated=True), [candidate], QUEUE)) == ["failed often"]


def test_a_policy_about_replicas_is_asked_about_each_copy() -> None:
    policy = "JobRequirements = Job.Replica1.Host.Grid =!= Host.Grid || NumberOfReplicas == 0"
    copies = waiting(
        copy("here", Holder(3, ALICE), Replica1={"Host": {"Grid": "osg"}}),
        copy("elsewhere", Holder(4, ALICE), Replica1={"Host": {"Grid": "egee"}}),
    )
    in_osg = host(attributes={"Grid": "osg"}, accepts=[ALICE])
    assert slots(given(in_osg, [bot(1, policy, fresh=0, copies=copies)], QUEUE)) == ["elsewhere"]


def test_a_dry_segment_that_lets_lower_ranks_pass_is_counted() -> None:
    candidates = [
        bot(1, "Rank = 2; Concurrency = 4", fresh=0, dry=True),
        bot(2, "Rank = 1; Concurrency = 4"),
    ]
    choice = given(host(), candidates, QUEUE)
    assert (taken(choice), choice.inversions) == ([(2, 4)], 1)


STOCK = {"IsBoinc": True, "Platform": "linux-x86_64", "Platforms": "linux-x86_64 linux-i686"}


def test_a_stock_client_gets_only_what_is_signed_for_it_whoever_owns_it() -> None:
    native_only, stock = bot(1, signed=True), bot(2, stock_platforms=("linux-x86_64",))
    choice = given(host(attributes=STOCK), [native_only, stock], QUEUE)
    assert [number for number, _ in taken(choice)] == [2]
    assert choice.refusals == {"not signed for BOINC clients": 1}


def test_a_stock_client_runs_what_any_of_its_platforms_runs() -> None:
    offered = [
        bot(1, stock_platforms=("linux-i686",), platforms=("linux-i686",)),
        bot(2, stock_platforms=("darwin-arm64", "linux-aarch64")),
    ]
    choice = given(host(attributes=STOCK), offered, QUEUE)
    assert [number for number, _ in taken(choice)] == [1]
    choice = given(host(attributes=STOCK), offered[1:], QUEUE)
    assert choice.refusals == {"needs platform darwin-arm64 or linux-aarch64": 1}


def test_a_stock_client_needs_the_resources_all_the_same() -> None:
    large = bot(1, stock_platforms=("linux-x86_64",), resources=Resources(memory_mb=5000))
    choice = given(host(attributes=STOCK), [large], QUEUE)
    assert choice.refusals == {"needs 5000 MB memory": 1}


@pytest.mark.parametrize("concurrency", ["0", "0.5", "Host.Nothing", "-3"])
def test_a_bot_that_a_host_may_not_hold_does_not_keep_others_away(concurrency: str) -> None:
    candidates = [bot(1, f"Rank = 9; Concurrency = {concurrency}"), bot(2, "Concurrency = 2")]
    choice = given(host(), candidates, QUEUE)
    assert [take.bot for take in choice.takes] == [2]
    assert choice.refusals == {"Concurrency": 1}


def test_a_check_needs_room_beside_what_is_in_progress_only() -> None:
    """Hosts whose answers all wait for checks could check none of the others' otherwise."""
    full = host(owner=BOB, room=0, width=8, running=3, lot=5)
    check = replace(copy("check", Holder(3, ALICE)), drawn=5)
    assured = bot(1, signed=True, among_strangers=True, is_assured=True, copies=waiting(check))
    assert slots(given(full, [assured], QUEUE)) == ["check"]
    assert taken(given(full, [assured], QUEUE)) == []
    assert slots(given(replace(full, running=8), [assured], QUEUE)) == []


def test_a_check_is_for_the_crew_that_was_drawn_and_for_vouched_machines() -> None:
    check = replace(copy("check", Holder(3, BOB)), drawn=5)
    assured = bot(
        1, fresh=0, signed=True, among_strangers=True, is_assured=True, copies=waiting(check)
    )
    stranger = host(owner=9, room=8, width=8, lot=6)
    assert slots(given(stranger, [assured], QUEUE)) == []
    assert slots(given(replace(stranger, lot=5), [assured], QUEUE)) == ["check"]
    assert slots(given(host(lot=6), [assured], QUEUE)) == ["check"]


# (rank, requirements, copies of the BOT that wait, first copies, owner)
BOTS = st.lists(
    st.tuples(
        st.integers(0, 3), st.sampled_from(["true", "Tail", "!Tail"]), st.integers(0, 2),
        st.integers(0, 3), st.sampled_from([ALICE, BOB]),
    ),
    max_size=8,
)  # fmt: skip


@given_many(BOTS, st.integers(1, 12), st.integers(0, 6))
def test_a_host_gets_the_same_whether_policies_look_at_it_or_not(
    bots: list[tuple[int, str, int, int, int]], want: int, running: int
) -> None:
    def offered(looking: str) -> list[Candidate]:
        return [
            bot(
                number,
                f"Rank = {rank}{looking}; JobRequirements = {requirements}"
                f" && 0{looking} == 0; Concurrency = {4 + rank}",
                fresh=fresh,
                owner=owner,
                copies=waiting(*(copy(f"{number}.{n}", seq=n) for n in range(copies)))
                if copies
                else None,
            )
            for number, (rank, requirements, copies, fresh, owner) in enumerate(bots)
        ]

    asking, usage = host(want=want, running=running, trusts=[ALICE, BOB]), {ALICE: 2.0, BOB: 1.0}
    plain = given(asking, offered(""), QUEUE, usage)
    looking = given(asking, offered(" + 0 * Host.NumCpus"), QUEUE, usage)
    assert plain.takes == looking.takes
    if not plain.takes:
        assert plain.refusals == looking.refusals


def test_a_request_pays_nothing_for_bots_behind_those_that_fill_the_host() -> None:
    def never() -> Sequence[Copy]:
        raise AssertionError("it was looked at")

    behind = [bot(number, "Rank = -1", copies=never) for number in range(2, 5)]
    assert taken(given(host(), [*behind, bot(1, "Rank = 1")], QUEUE)) == [(1, 8)]


def test_a_policy_that_looks_at_the_host_in_the_tail_only_is_asked_for_each_host_then() -> None:
    policy = "Rank = !Tail ? 5 : Host.NumCpus; Concurrency = 1"
    tail = bot(1, policy, ad=record({"Tail": True}))
    order = Order([tail, bot(2, "Rank = 6; Concurrency = 1"), bot(3, policy)], QUEUE)
    assert taken(choose(host(), order)) == [(2, 1)]
    assert taken(choose(host(attributes={"NumCpus": 8}), order)) == [(1, 1)]


def test_a_gang_wants_no_more_of_a_pilot_than_its_nodes_hold() -> None:
    gang = bot(1, "Concurrency = 100", together=9, lacks=9, resources=Resources(cpus=20))
    pilot = host(attributes={"NumCpus": 64, "Memory": 64_000, "NumNodes": 2})
    assert taken(given(pilot, [gang], QUEUE)) == [(1, 2)]
    in_memory = replace(gang, resources=Resources(memory_mb=20_000))
    assert taken(given(pilot, [in_memory], QUEUE)) == [(1, 2)]


def test_a_gang_has_the_cores_beside_what_the_host_holds() -> None:
    gang = bot(1, "Concurrency = 100", together=9, lacks=9, resources=Resources(cpus=4))
    small, large = bot(2, fresh=0), bot(3, fresh=0, resources=Resources(cpus=6))

    def members(**held: Any) -> list[tuple[int, int]]:
        asking = host(attributes={"NumCpus": 16, "Memory": 64_000}, **held)
        return taken(given(asking, [gang, small, large], QUEUE))

    assert members(running=8, of_bot={2: 8}) == [(1, 2)]
    assert members(running=2, of_bot={3: 2}) == [(1, 1)]
    assert members(running=3, of_bot={9: 3}) == [(1, 1)]  # of a BOT that is held, for example


def test_a_busy_host_gets_other_work_where_no_gang_may_begin() -> None:
    gang, plain = bot(1, "Rank = 9; Concurrency = 100", together=9, lacks=9), bot(2)
    busy = host(running=4)
    allowed = Order([gang, plain], QUEUE)
    assert choose(busy, allowed).takes == []
    barred = Order([gang, plain], QUEUE, may_begin=lambda: False)
    assert taken(choose(busy, barred)) == [(2, 4)]


def test_a_client_is_too_old_only_where_that_alone_keeps_it_from_all_work() -> None:
    old = host(protocol=1)
    signed = bot(1)
    own = bot(2, fresh=0, dry=True, manifest_version=1)
    too_large = bot(3, manifest_version=1, resources=Resources(cpus=99))
    assert given(old, [signed], QUEUE).is_outdated
    assert not given(old, [signed, own], QUEUE).is_outdated
    assert not given(old, [signed, too_large], QUEUE).is_outdated
    assert not given(old, [], QUEUE).is_outdated
