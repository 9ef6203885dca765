"""The rate limiter of the whole server: GCRA, with one timestamp per bucket."""

from __future__ import annotations

import hmac

from gridbot_server.overload.buckets import BUCKETS, Buckets, PrivateBuckets


class RateLimiter:
    """Lets `burst` events of a key pass at once, and then one in `interval` seconds.

    This is the generic cell rate algorithm (GCRA) in its virtual scheduling form, from ITU-T
    Recommendation I.371 and the ATM Forum's Traffic Management Specification 4.0.  A bucket holds
    one number, the theoretical arrival time (TAT): when the next event would come if all came
    evenly, one in `interval`.  An event may come before its TAT by the tolerance of
    `(burst - 1) * interval`; if it comes sooner, it is refused and the TAT stays.  An event that
    passes moves the TAT by one interval, from now if it lay in the past.  The effect is that of a
    token bucket with `burst` tokens and a new one in each interval, without a task that refills it.

    Keys share a fixed number of buckets by a keyed hash: memory does not grow with the number of
    keys, no bucket is ever evicted, and nobody without the secret can tell which keys collide.
    """

    def __init__(
        self, secret: bytes, burst: int, interval: float, buckets: Buckets | None = None
    ) -> None:
        self._secret, self._interval = secret, interval
        self._tolerance = (burst - 1) * interval
        self._arrivals = PrivateBuckets() if buckets is None else buckets

    def take(self, key: str, now: float) -> bool:
        """Count an event at `now` (s); whether it may happen.  A refused one does not count."""
        bucket = self._bucket(key)
        with self._arrivals:
            arrival = max(self._arrivals[bucket], now)
            if arrival > now + self._tolerance:
                return False
            self._arrivals[bucket] = arrival + self._interval
        return True

    def refund(self, key: str) -> None:
        """Undo the count of an event that turned out to be harmless."""
        bucket = self._bucket(key)
        with self._arrivals:
            self._arrivals[bucket] -= self._interval

    def _bucket(self, key: str) -> int:
        digest = hmac.digest(self._secret, key.encode(errors="replace"), "sha256")
        return int.from_bytes(digest[:8]) % BUCKETS
