"""Checks a policy here, before anything is sent, as the server will check it there."""

from __future__ import annotations

import gridbot_policies
from gridbot.errors import PolicyError
from gridbot_policies.classad import ParseError


def check_policy(text: str) -> None:
    """Raise PolicyError for a text that the server would refuse."""
    try:
        gridbot_policies.PolicySet.parse(text)
    except ParseError as error:
        raise PolicyError(str(error), error.pretty()) from None
    except gridbot_policies.PolicyError as error:
        raise PolicyError(str(error)) from None
