"""Waiting for what a batch system shows of pilots."""

from tests.system.deployment import eventually

from gridbot_overlay.decide.model import PilotState, Sighting
from gridbot_overlay.submitters import Submitter

WAITS = "exec sleep 600"  # a pilot's script that a test cancels


def found(submitter: Submitter, tag: str, *states: PilotState) -> list[Sighting]:
    """The pilots of a tag, once all of them are in one of the states."""

    def look() -> list[Sighting]:
        seen = submitter.pilots(tag)
        return seen if seen and all(pilot.state in states for pilot in seen) else []

    return eventually(look, what=f"{tag} {states}")
