"""Limits on attempts to log in, on new accounts, and on hosts that attach.

| event          | limited per                      | burst | then one in |
|----------------|----------------------------------|-------|-------------|
| wrong password | account                          | 5     | 60 s        |
| wrong password | address                          | 30    | 10 s        |
| wrong key      | address, with wrong passwords    | 30    | 10 s        |
| wrong answer   | the same, of an OpenID provider  | 30    | 10 s        |
| new account    | address                          | 50    | 60 s        |
| new host       | account that a client has made   | 50    | 60 s        |
| link asked for | address                          | 10    | 600 s       |

All web processes of a machine share the buckets (`buckets.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from gridbot_server.errors import ServerBusy
from gridbot_server.overload.buckets import BucketFile
from gridbot_server.overload.rate_limit import RateLimiter

Failure = TypeVar("Failure")
Found = TypeVar("Found")

# Burst, and the seconds between later events, in the order of the fields of LoginLimits.
_RATES = ((5, 60.0), (30, 10.0), (50, 60.0), (50, 60.0), (10, 600.0))


class TooManyAttempts(ServerBusy):
    """An attempt beyond the limits, which is not looked at."""


@dataclass(frozen=True, slots=True)
class LoginLimits:
    """The rate limiters of the table above, in its order."""

    accounts: RateLimiter
    addresses: RateLimiter
    creations: RateLimiter
    attachments: RateLimiter
    links: RateLimiter  # that set a new password

    @classmethod
    def of(cls, file: BucketFile) -> LoginLimits:
        """The limits that all processes with the same file keep together."""
        return cls(
            *(
                RateLimiter(file.secret, burst, interval, file.table(number))
                for number, (burst, interval) in enumerate(_RATES)
            )
        )

    def attempt(
        self,
        address: str,
        email: str,
        find: Callable[[], str | Failure],
        is_creation: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> str | Failure:
        """Let `find` look for an account's key; return that, or what `find` says instead.

        An attempt is counted before it is known to be wrong, so that concurrent ones count, too.
        A right password is then refunded.  Without an address only accounts are limited, and
        new accounts together: one limit on all addresses would let anybody lock out everybody.
        Raises TooManyAttempts, without a call of `find`.
        """
        now, account = clock(), email.lower()
        if is_creation and not self.creations.take(address, now):
            raise TooManyAttempts("too many accounts are made from this address: try again later")
        if address and not self.addresses.take(address, now):
            raise TooManyAttempts("too many wrong passwords from this address: try again later")
        if not self.accounts.take(account, now):
            raise TooManyAttempts("too many wrong passwords for this account: try again later")
        found = find()
        if isinstance(found, str):
            if address:
                self.addresses.refund(address)
            self.accounts.refund(account)
        return found

    def attempt_key(
        self, address: str, find: Callable[[], Found | None],
        clock: Callable[[], float] = time.monotonic,
    ) -> Found | None:  # fmt: skip
        """Let `find` look for a key or account that somebody shows; return what it finds.

        Keys cannot be guessed: this bounds what guessing costs the server.  A right one is
        refunded.  Without an address nothing is limited, since one limit on all addresses would
        let anybody lock out everybody.  Raises TooManyAttempts, without a call of `find`.
        """
        if address and not self.addresses.take(address, clock()):
            raise TooManyAttempts("too many wrong keys or log-ins from this address: try later")
        found = find()
        if address and found is not None:
            self.addresses.refund(address)
        return found
