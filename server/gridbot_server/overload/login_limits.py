"""How often anybody may try passwords, make accounts, and attach hosts: seldom after a while.

All web processes of a machine count together, in tables of fixed size that nothing can be driven
out of (`shared_counters.py`).
"""

from __future__ import annotations

import hmac
import ipaddress
import time
from collections.abc import Callable
from dataclasses import dataclass

from gridbot_server.boinc.protocol.pages import AccountError
from gridbot_server.overload.shared_counters import LINES, CountFile, Lines, OwnLines

# Wrong ones for one account: at once, and then one in so many seconds.
_ACCOUNT = (5, 60.0)
# Wrong ones from one address, behind which many people may be.
_ADDRESS = (30, 10.0)
# New accounts from one address.
_CREATION = (50, 60.0)
# New hosts of one account that anybody could make.
_HOSTS = (50, 60.0)


class Throttle:
    """Lets `burst` events of a key through at once, and then one in `seconds`.

    `lines` say when all events of their keys are paid for, at one in `seconds`.
    """

    def __init__(
        self, secret: bytes, burst: int, seconds: float, lines: Lines | None = None
    ) -> None:
        self._secret, self._burst, self._seconds = secret, burst, seconds
        self._paid_at = OwnLines() if lines is None else lines

    def take(self, key: str, now: float) -> bool:
        """Count an event; whether it may happen.  One that may not does not count."""
        line = self._line(key)
        with self._paid_at:
            paid_at = max(self._paid_at[line], now)
            if paid_at > now + (self._burst - 1) * self._seconds:
                return False
            self._paid_at[line] = paid_at + self._seconds
        return True

    def give_back(self, key: str) -> None:
        """Let an event that was counted not count."""
        line = self._line(key)
        with self._paid_at:
            self._paid_at[line] -= self._seconds

    def _line(self, key: str) -> int:
        """Nobody without the secret can tell which keys share a line."""
        digest = hmac.digest(self._secret, key.encode(errors="replace"), "sha256")
        return int.from_bytes(digest[:8]) % LINES


@dataclass(frozen=True, slots=True)
class Bounds:
    """On wrong passwords by account and by address, on new accounts, and on an account's hosts."""

    accounts: Throttle
    addresses: Throttle
    creations: Throttle
    hosts: Throttle

    @classmethod
    def of(cls, counts: CountFile) -> Bounds:
        """The bounds that all who have the same file keep to together."""
        rates = (_ACCOUNT, _ADDRESS, _CREATION, _HOSTS)
        return cls(
            *(
                Throttle(counts.secret, burst, seconds, counts.table(number))
                for number, (burst, seconds) in enumerate(rates)
            )
        )

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
        Without an address anybody's guesses would be everybody's: only accounts are bound then,
        and all new ones together.
        """
        now, account = clock(), email.lower()
        if is_creation and not self.creations.take(address, now):
            return AccountError.PROJECT_DOWN
        if address and not self.addresses.take(address, now):
            return AccountError.PROJECT_DOWN
        if not self.accounts.take(account, now):
            return AccountError.PROJECT_DOWN
        found = find()
        if isinstance(found, str):
            if address:
                self.addresses.give_back(address)
            self.accounts.give_back(account)
        return found


def source(peer: str, forwarded: str, is_behind_proxy: bool) -> str:
    """Who asks, as far as addresses tell: the network of an IPv6 address, which one person has.

    `forwarded` is what the proxy says of it; it appends to what its own peer may have made up.
    Empty behind a proxy that does not say: its own address is everybody's.
    """
    address = forwarded.rpartition(",")[2].strip() if is_behind_proxy else peer
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return ""
    if found.version == 4:
        return str(found)
    return str(found.ipv4_mapped or ipaddress.ip_network((found, 64), strict=False))
