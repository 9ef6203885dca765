"""What is wrong with a submit description."""

from __future__ import annotations

from gridbot.api.errors import BadInput


class SubmitError(BadInput):
    """A submit description that makes no jobs; names the line or the key."""
