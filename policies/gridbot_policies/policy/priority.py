"""A priority: `Rank = N;` at the head of a policy."""

from __future__ import annotations

import re

from gridbot_policies.classad import ParseError
from gridbot_policies.policy.policy_set import PolicySet

_HEAD = re.compile(r"(\s*\[?)(?:Rank = (-?\d+);\n)?(.*)", re.DOTALL)


class NoPlace(ValueError):
    """A policy that cannot be given a priority; the message says what to do instead."""


def with_priority(policy: str, priority: int) -> str:
    """Return the policy with `Rank = priority` at its head, in place of such a line there.

    Among the BOTs of one owner, those of higher Rank are sent first; without one it is 0.
    Raises NoPlace if the policy says a Rank of its own.
    """
    bracket, _, rest = _HEAD.fullmatch(policy).groups()  # type: ignore[union-attr]  # any text does
    definitions = PolicySet.parse(f"{bracket}{rest}").definitions
    if any(item.name.casefold() == "rank" for item in definitions):
        raise NoPlace(f"priority {priority}: the policy has a Rank of its own; change it there")
    changed = f"{bracket}Rank = {priority};\n{rest}"
    try:
        PolicySet.parse(changed)
    except ParseError:
        raise NoPlace(f"write Rank = {priority}; into the policy, instead of a priority") from None
    return changed


def priority_of(policy: str) -> int | None:
    """Return the priority of a policy; None if it says a Rank of its own."""
    head = _HEAD.fullmatch(policy)
    if head is not None and head[2]:
        return int(head[2])
    try:
        definitions = PolicySet.parse(policy).definitions
    except ParseError:
        return None
    return None if any(item.name.casefold() == "rank" for item in definitions) else 0
