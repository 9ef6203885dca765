from hypothesis import given, settings
from hypothesis import strategies as st

from gridbot_server.dispatch.segments import Demand, is_tail, segments

demands = st.dictionaries(
    st.integers(1, 1000),
    st.builds(Demand, st.integers(0, 100_000), st.integers(0, 10_000)),
    max_size=40,
)


@settings(derandomize=True)
@given(st.integers(1, 4096), demands)
def test_every_bot_has_its_part_and_the_buffer_is_never_overfull(
    slots: int, wanted: dict[int, Demand]
) -> None:
    shares = segments(slots, wanted)
    assert sum(shares.values()) <= slots
    for bot, demand in wanted.items():
        assert min(slots // len(wanted), demand.unsent) <= shares[bot] <= demand.unsent


def test_spare_room_goes_where_jobs_were_taken() -> None:
    shares = segments(100, {1: Demand(5, 0), 2: Demand(1000, 89), 3: Demand(1000, 9)})
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
