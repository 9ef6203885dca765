"""Evaluation budgets: what the policies of one owner may take of everybody's host requests.

Theory of operation
===================

Evaluations count steps (`gridbot_policies.classad`): operators, names, calls, and the length of
what functions read.  So a budget means the same on a busy machine as on an idle one.

Most policies take less than FREE_STEPS for a host; they wait for nothing.  What a policy takes
beyond them is charged to its owner's account, which is filled by REFILL_STEPS at each request, up
to FULL_STEPS.  While it is more than half full, all policies of the owner are evaluated.  Below,
those that are not known to be cheap take turns, and below zero they wait.  So a host request pays
at most REFILL_STEPS for one owner in the long run, whatever the policies are.

A policy that takes more than POLICY_STEPS for one host has exceeded its budget.  At the third time
(EXCESSES) it is suspended: its BOT gets no work until its policy is changed.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from gridbot_policies import Ads

FREE_STEPS = 50  # fifteen clauses take 77 while they are walked, 9 once they are compiled
# A policy of 16 KB in which each name is looked at once takes 3,300.
POLICY_STEPS = 5_000
REFILL_STEPS, FULL_STEPS = 1_000, 4_000
EXCESSES = 3

REASON = (
    f"its policy took more than {POLICY_STEPS:,} evaluation steps for a host {EXCESSES} times;"
    " change the policy, and the BOT runs again"
)
"""Why a BOT is suspended, for its owner."""


@dataclass(slots=True)
class _Account:
    """What is left to an owner, and which BOTs take turns while that is little."""

    left: int = FULL_STEPS
    queue: dict[int, None] = field(default_factory=dict)  # BOTs that take turns, the next first
    cheap: set[int] = field(default_factory=set)  # those that do not
    is_idle: bool = True  # nothing was charged at this request

    def refill(self) -> None:
        """Begin a request; a turn that nobody took passes."""
        if self.is_idle and self.left > 0 and self.queue:
            self._requeue(next(iter(self.queue)))
        self.left += REFILL_STEPS
        self.is_idle = True

    def is_due(self, bot: int) -> bool:
        """Whether the BOT's policies may be evaluated at this request; if not, it takes turns."""
        if bot in self.cheap or self.left > FULL_STEPS // 2:
            return True
        self.queue.setdefault(bot)
        return self.left > 0 and next(iter(self.queue)) == bot

    def charge(self, bot: int, steps: int) -> None:
        """Take steps from the account; the debt is bounded."""
        self.left = max(self.left - steps, -2 * REFILL_STEPS)
        self.cheap.discard(bot)
        self._requeue(bot)
        self.is_idle = False

    def note_cheap(self, bot: int) -> None:
        """Let a BOT that is not charged wait no more."""
        self.cheap.add(bot)
        self.queue.pop(bot, None)

    def _requeue(self, bot: int) -> None:
        self.queue.pop(bot, None)
        self.queue[bot] = None


class Spending:
    """The accounts of all owners, kept from one request, or pass of a cycle, to the next."""

    def __init__(self) -> None:
        self._accounts: dict[int, _Account] = {}  # of owners that were charged lately
        self.evaluations = 0  # BOTs whose policies were evaluated for a host
        self._excesses: Counter[tuple[int, int]] = Counter()  # by BOT and version

    def begin(self) -> None:
        """Begin a request: fill the accounts; those that are full again are forgotten."""
        for owner, account in list(self._accounts.items()):
            account.refill()
            if account.left >= FULL_STEPS:
                del self._accounts[owner]

    def is_due(self, owner: int, bot: int) -> bool:
        """Whether the BOT's policies may be evaluated now."""
        if not self._accounts:  # as nearly always
            return True
        account = self._accounts.get(owner)
        return account is None or account.is_due(bot)

    @property
    def anybody_owes(self) -> bool:
        """Whether the account of any owner is not full."""
        return bool(self._accounts)

    def owes(self, owner: int) -> bool:
        """Whether the owner's account is not full."""
        return owner in self._accounts

    def charge(self, owner: int, bot: int, ads: Ads) -> bool:
        """Charge what evaluations among `ads` took since the last time.

        Tell whether the policy is within its budget.
        """
        self.evaluations += 1
        if ads.steps <= FREE_STEPS and ads.meter is None and not self._accounts:
            return True  # as nearly always
        spent, account = ads.spent, self._accounts.get(owner)
        if spent <= FREE_STEPS:
            if account is not None:
                account.note_cheap(bot)
            return True
        if spent > ads.charged:
            account = self._accounts.setdefault(owner, _Account())
            account.charge(bot, spent - max(ads.charged, FREE_STEPS))
            ads.charged = spent
        return spent <= POLICY_STEPS

    def exceeded(self, bot: int, version: int) -> bool:
        """Note that a policy exceeded its budget once more; whether it is to be suspended."""
        self._excesses[bot, version] += 1
        if self._excesses[bot, version] < EXCESSES:
            return False
        del self._excesses[bot, version]
        return True
