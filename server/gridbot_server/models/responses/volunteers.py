"""Credit, teams, consent, and preferences."""

from __future__ import annotations

from datetime import datetime

from gridbot_server.models.responses import ResponseModel


class Volunteer(ResponseModel):
    """`GET /volunteer`: an owner as one who gives computing time."""

    name: str
    credit: float
    """Credit earned, in cobblestones."""

    recent_credit: float
    """Credit a day, decaying."""

    team: str | None
    public: bool
    """Whether the statistics files may name this person."""

    created_at: datetime


class Team(ResponseModel):
    """A team of volunteers."""

    name: str
    credit: float
    """What its members earned while they were in it, in cobblestones."""

    recent_credit: float
    """Credit a day, decaying."""

    members: int
    created_at: datetime


class Teams(ResponseModel):
    """`GET /teams`: those with the most credit first."""

    teams: list[Team]


class VenuePreferences(ResponseModel):
    """`GET /account/preferences`: when and how much the account's machines work."""

    version: int
    """It rises with each change; 0 before the first."""

    venues: dict[str, dict[str, str]]
    """Texts by name, by venue: `default`, `home`, `work`, `school`.  Venues without any are not
    there."""

    shares: dict[str, float]
    """Resource shares by venue: what this project has of the time of BOINC clients there, beside
    other projects.  A venue without one has the default one's, and that is 100 if it is missing."""
