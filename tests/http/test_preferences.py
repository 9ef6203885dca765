"""Preferences of accounts through the API, and on their way to clients."""

from __future__ import annotations

from typing import Any

from tests.http.conftest import Answer, Person, Site

PATH = "/api/v1/account/preferences"


def prefer(person: Person, venue: str = "default", **texts: Any) -> Answer:
    body = {"venue": venue, "preferences": {n.replace("_", "-"): t for n, t in texts.items()}}
    return person("PATCH", PATH, json=body)


def test_everybody_says_what_holds_for_their_own_machines(
    site: Site, alice: Person, bob: Person
) -> None:
    assert alice("GET", PATH).json == {"version": 0, "venues": {}, "shares": {}}
    assert prefer(alice, hours="22-7").status_code == 200
    first = prefer(alice, "work", on_battery="no").json
    assert first["venues"] == {"default": {"hours": "22-7"}, "work": {"on-battery": "no"}}
    second = prefer(alice, hours=None).json
    assert second["venues"] == {"work": {"on-battery": "no"}}
    assert second["version"] > first["version"] > 0
    assert bob("GET", PATH).json == {"version": 0, "venues": {}, "shares": {}}
    # Jobs can read the key of a stock client that runs them.
    assert prefer(site.key_of(alice, "join"), hours="1-2").status_code == 403


def test_what_contradicts_or_means_nothing_is_refused_and_changes_nothing(alice: Person) -> None:
    kept = prefer(alice, cpus="2").json
    for texts, why in (
        ({"cpu_share": "50"}, "cpus = 2 contradicts cpu-share = 50: give one of them"),
        ({"hours": "soon"}, "hours = 'soon': hours are like 22:00-07:00"),
        ({"colour": "red"}, "'colour' is no preference"),
    ):
        answer = prefer(alice, **texts)
        assert answer.status_code == 400
        assert why in answer.json["detail"]
    for body in ({"venue": "moon", "preferences": {}}, {"preferences": {"hours": "1" * 300}}):
        assert alice("PATCH", PATH, json=body).status_code == 400
    assert alice("GET", PATH).json == kept


def test_shares_of_venues_are_set_and_removed_beside_preferences(alice: Person) -> None:
    prefer(alice, hours="22-7")
    assert alice("PATCH", PATH, json={"shares": {"default": 50, "work": 0}}).status_code == 200
    kept = alice("PATCH", PATH, json={"shares": {"default": None}}).json
    assert kept["shares"] == {"work": 0}
    assert kept["venues"] == {"default": {"hours": "22-7"}}
    wrong: dict[str, Any]
    for wrong in ({"moon": 1}, {"work": -1}, {"work": 1e10}, {"work": "half"}):
        answer = alice("PATCH", PATH, json={"shares": wrong})
        assert answer.status_code == 400, wrong
        assert "shares" in answer.json["detail"]
    assert alice("GET", PATH).json == kept
