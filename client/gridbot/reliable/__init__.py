"""Work that may fail is tried again, elsewhere, or many times at once, within limits of time.

>>> from gridbot import reliable
>>> for attempt in reliable.trying(for_="10m", times=5):         # doctest: +SKIP
...     with attempt:
...         mirror, _ = reliable.any_of(mirrors, fetch)

A limit of time holds for all that happens inside: further attempts, branches of `all_of`, and
programs started by `run`, which are ended with all their processes.  It is the discipline of the
Ethernet approach (Thain and Livny, HPDC 2003): look before use (`sense`), back off at random
(`BackOff`), and hold what others want for a limited time only (`each`).
"""

from gridbot.reliable.attempts import RetryAttempt, Trying, trying
from gridbot.reliable.branches import all_of, any_of
from gridbot.reliable.processes import ProcessEnding, run
from gridbot.reliable.scope import Cancelled, OutOfTime, check, pause, remaining
from gridbot_client.backoff import BackOff

__all__ = [
    "BackOff",
    "Cancelled",
    "OutOfTime",
    "ProcessEnding",
    "RetryAttempt",
    "Trying",
    "all_of",
    "any_of",
    "check",
    "pause",
    "remaining",
    "run",
    "trying",
]
