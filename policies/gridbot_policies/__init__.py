"""The ClassAd language and GridBot's policies on it: pure, no I/O, no clock."""

from gridbot_policies.policy.ads import Ads
from gridbot_policies.policy.policy_set import PolicySet, SemanticError

__all__ = ["Ads", "PolicySet", "SemanticError"]
