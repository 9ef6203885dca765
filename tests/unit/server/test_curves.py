"""Curves of a server where little has happened."""

from gridbot_server.console import curves
from gridbot_server.models.responses.history import FigureCurve, ServerHistory


def test_a_server_without_a_bot_but_with_clients_that_ask_has_its_curves() -> None:
    asked = FigureCurve(name="requests", label="work", values=[60.0, 120.0])
    history = ServerHistory(step_seconds=60, times=[0, 60], grids=[], figures=[asked])
    drawn = {curve.title: curve for curve in curves.of_server(history)}
    assert "Per minute" in drawn
