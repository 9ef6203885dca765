"""Policies as they were accepted once: those of BOTs, and those of machines' owners."""

from __future__ import annotations

import logging
from functools import lru_cache

from gridbot_policies import PolicySet, SemanticError
from gridbot_policies.classad import UNDEFINED, Node, ParseError, Value
from gridbot_policies.policy.owner import OwnerPolicy

log = logging.getLogger(__name__)

_NO_BOT = OwnerPolicy.parse("false")


def bot_policies(name: str, policy: str) -> PolicySet:
    """Parse a policy that an earlier release accepted; what no longer parses gives the defaults."""
    try:
        return PolicySet.parse(policy)
    except (ParseError, SemanticError) as error:
        log.error("policy of BOT %s does not parse any more, the defaults apply: %s", name, error)
        return PolicySet.parse("")


@lru_cache(maxsize=256)
def owner_policy(said: Node | Value) -> OwnerPolicy | None:
    """Read a host's Requirements, which may be a constant; None without any.

    A host whose owner's policy cannot be read gets no work.
    """
    if said in (UNDEFINED, ""):
        return None
    try:
        return OwnerPolicy.parse(str(said))
    except (ParseError, SemanticError):
        return _NO_BOT
