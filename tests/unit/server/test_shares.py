from hypothesis import given, settings
from hypothesis import strategies as st

from gridbot_server.feeder.shares import SlotClaim, is_tail, segments, withdrawals

demands = st.dictionaries(
    st.integers(1, 1000),
    st.builds(SlotClaim, st.integers(0, 100_000), st.integers(0, 10_000)),
    max_size=40,
)


@settings(derandomize=True)
@given(st.integers(1, 4096), demands)
def test_every_bot_has_its_part_and_the_buffer_is_never_overfull(
    slots: int, wanted: dict[int, SlotClaim]
) -> None:
    shares = segments(slots, wanted)
    assert sum(shares.values()) <= slots
    for bot, demand in wanted.items():
        assert min(slots // len(wanted), demand.unsent) <= shares[bot] <= demand.unsent


def test_spare_room_goes_where_jobs_were_taken() -> None:
    shares = segments(100, {1: SlotClaim(5, 0), 2: SlotClaim(1000, 89), 3: SlotClaim(1000, 9)})
    assert shares[1] == 5
    assert shares[2] > shares[3] > 33 - 1


def test_a_bot_with_a_long_queue_is_not_in_its_tail() -> None:
    assert not is_tail(unsent=1000, running=50, segment=400, threshold=None)


def test_the_tail_begins_when_fewer_jobs_are_unsent_than_hosts_could_take() -> None:
    assert is_tail(unsent=90, running=50, segment=400, threshold=None)
    assert not is_tail(unsent=90, running=5, segment=400, threshold=None)


def test_a_threshold_of_its_own_decides_alone() -> None:
    assert is_tail(unsent=90, running=0, segment=400, threshold=100)
    assert not is_tail(unsent=90, running=500, segment=400, threshold=10)


present = st.dictionaries(
    st.integers(1, 1000), st.tuples(st.integers(0, 500), st.integers(0, 500)), max_size=40
)


@settings(derandomize=True)
@given(st.integers(1, 4096), st.integers(0, 100), present)
def test_no_bot_gives_jobs_back_that_belong_to_its_part(
    slots: int, room: int, bots: dict[int, tuple[int, int]]
) -> None:
    there = {bot: held for bot, (held, _) in bots.items()}
    absent = {bot: rest for bot, (_, rest) in bots.items()}
    withdrawn = withdrawals(slots, room, there, absent)
    for bot, count in withdrawn.items():
        assert 0 < count <= there[bot] - slots // len(there)


def test_a_bot_without_its_part_is_given_it_by_those_that_hold_more() -> None:
    assert withdrawals(90, 0, {1: 60, 2: 30, 3: 0}, {1: 9, 2: 9, 3: 99}) == {1: 30}


def test_nothing_is_given_back_while_there_is_room() -> None:
    assert withdrawals(90, 30, {1: 60, 2: 0}, {1: 9, 2: 30}) == {}


def test_nothing_is_given_back_for_spare_slots_or_for_a_few_jobs() -> None:
    assert withdrawals(90, 0, {1: 50, 2: 30, 3: 10}, {1: 99, 2: 99, 3: 0}) == {}
    assert withdrawals(90, 0, {1: 50, 2: 40}, {1: 99, 2: 99}) == {}
