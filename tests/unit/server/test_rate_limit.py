"""Claims about the rate limiter."""

from __future__ import annotations

from gridbot_server.overload.rate_limit import RateLimiter


def limiter(burst: int = 3, interval: float = 10.0, secret: bytes = b"secret") -> RateLimiter:
    return RateLimiter(secret, burst, interval)


def passed(limiter: RateLimiter, now: float, most: int = 100) -> int:
    """How many events of a key pass at a time before one does not."""
    for number in range(most):
        if not limiter.take("ann", now):
            return number
    return most


def test_a_burst_passes_at_once_and_then_one_event_in_an_interval() -> None:
    events = limiter()
    assert [passed(events, now) for now in (1000.0, 1009.9, 1010.0, 1010.1)] == [3, 0, 1, 0]


def test_after_a_pause_the_whole_burst_passes_again_and_no_more() -> None:
    events = limiter()
    assert passed(events, 1000.0) == 3
    assert passed(events, 1020.0) == 2
    assert passed(events, 9000.0) == 3


def test_a_refused_event_does_not_count() -> None:
    events = limiter()
    passed(events, 1000.0)
    assert not any(events.take("ann", 1009.0) for _ in range(50))
    assert events.take("ann", 1010.0)


def test_an_event_that_is_given_back_does_not_count() -> None:
    events = limiter()
    for _ in range(50):
        assert events.take("ann", 1000.0)
        events.refund("ann")
    assert passed(events, 1000.0) == 3


def test_memory_does_not_grow_with_the_number_of_keys_and_none_is_forgotten() -> None:
    events = limiter(1, 1e9)
    assert events.take("ann", 0.0)
    passed = sum(events.take(f"key {number}", 0.0) for number in range(100_000))
    assert passed < 2**15
    assert not events.take("ann", 0.0)


def test_the_secret_decides_which_keys_share_a_bucket() -> None:
    def sharing(secret: bytes) -> list[bool]:
        events = limiter(1, 1e9, secret)
        return [events.take(f"key {number}", 0.0) for number in range(5000)]

    assert sharing(b"one") != sharing(b"two")
