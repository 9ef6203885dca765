"""How often anybody may try passwords, make accounts, and attach hosts: seldom after a while.

Each web process counts for itself, in a table of fixed size that nothing can be driven out of.
"""

from __future__ import annotations

import array
import hmac
import ipaddress
import time
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock

from gridbot_server.boinc.pages import AccountError

# Wrong ones for one account: at once, and then one in so many seconds.
_ACCOUNT = (5, 60.0)
# Wrong ones from one address, behind which many people may be.
_ADDRESS = (30, 10.0)
# New accounts from one address.
_CREATION = (50, 60.0)
# New hosts of one account that anybody could make.
_HOSTS = (50, 60.0)
# Two keys that share a line of the table share its bound: rare among so many lines.
_LINES = 1 << 15


class Throttle:
    """Lets `burst` events of a key through at once, and then one in `seconds`."""

    def __init__(self, secret: bytes, burst: int, seconds: float) -> None:
        self._secret, self._burst, self._seconds = secret, burst, seconds
        # For each line, when all its events are paid for, at one in `seconds`.
        self._paid_at = array.array("d", bytes(8 * _LINES))
        self._lock = Lock()

    def take(self, key: str, now: float) -> bool:
        """Count an event; whether it may happen.  One that may not does not count."""
        line = self._line(key)
        with self._lock:
            paid_at = max(self._paid_at[line], now)
            if paid_at > now + (self._burst - 1) * self._seconds:
                return False
            self._paid_at[line] = paid_at + self._seconds
        return True

    def give_back(self, key: str) -> None:
        """Let an event that was counted not count."""
        line = self._line(key)
        with self._lock:
            self._paid_at[line] -= self._seconds

    def _line(self, key: str) -> int:
        """Nobody without the secret can tell which keys share a line."""
        digest = hmac.digest(self._secret, key.encode(errors="replace"), "sha256")
        return int.from_bytes(digest[:8]) % _LINES


def newcomers(secret: bytes, processes: int = 1) -> Throttle:
    """One process's bound on new hosts by account; all `processes` together keep to the rate."""
    burst, seconds = _HOSTS
    return Throttle(secret, burst, seconds * processes)


@dataclass(frozen=True, slots=True)
class Guesses:
    """The bounds on wrong passwords by account and by address, and on new accounts."""

    accounts: Throttle
    addresses: Throttle
    creations: Throttle

    @classmethod
    def of(cls, secret: bytes, processes: int = 1) -> Guesses:
        """One process's bounds, by which all `processes` together keep to the rates."""
        bounds = (_ACCOUNT, _ADDRESS, _CREATION)
        return cls(*(Throttle(secret, burst, each * processes) for burst, each in bounds))

    def attempt(
        self,
        address: str,
        email: str,
        find: Callable[[], str | AccountError],
        is_creation: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> str | AccountError:
        """The account's key, or why there is none; a right password costs nothing.

        An attempt is counted before it is known to be wrong, so that many at once are too many.
        """
        now, account = clock(), email.lower()
        if is_creation and not self.creations.take(address, now):
            return AccountError.PROJECT_DOWN
        if not (self.addresses.take(address, now) and self.accounts.take(account, now)):
            return AccountError.PROJECT_DOWN
        found = find()
        if isinstance(found, str):
            self.addresses.give_back(address)
            self.accounts.give_back(account)
        return found


def source(peer: str, forwarded: str, is_behind_proxy: bool) -> str:
    """Who asks, as far as addresses tell: the network of an IPv6 address, which one person has.

    `forwarded` is what the proxy says of it; it appends to what its own peer may have made up.
    """
    address = forwarded.rpartition(",")[2].strip() if is_behind_proxy and forwarded else peer
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return peer
    return str(ipaddress.ip_network((found, 64), strict=False)) if found.version == 6 else address
