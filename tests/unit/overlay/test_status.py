from dataclasses import replace
from pathlib import Path

from tests.overlay_factories import NOW, grid, pilot

from gridbot_overlay import status
from gridbot_overlay.act.store import PilotStore
from gridbot_overlay.decide.construct import GridView
from gridbot_overlay.decide.model import Pilot, PilotState


def shown(folder: Path, *pilots: Pilot) -> str:
    found = status.document(
        PilotStore.open(folder), [GridView(grid=grid(), pilots=pilots)], NOW, is_running=True
    )
    return "\n".join(status.lines(found))


def test_where_all_replicas_fail_it_says_where_to_look(tmp_path: Path) -> None:
    page = shown(tmp_path, pilot(0, PilotState.RUNNING, node="n1", failures=2))
    assert "t.0 n1: 2 replicas failed: gridbot bot logs BOT --failed" in page


def test_a_pilot_whose_replicas_mostly_end_well_is_not_shown(tmp_path: Path) -> None:
    assert "n1" not in shown(tmp_path, pilot(0, PilotState.RUNNING, node="n1", failures=2, jobs=1))


def test_what_the_constructor_cancelled_is_not_said_to_be_the_sites_doing(tmp_path: Path) -> None:
    ended = pilot(0, PilotState.ENDED, failures=2, exit_code=-15, reason="FAILED: NonZeroExitCode")
    page = shown(tmp_path, replace(ended, cancelled="the grid is drained"))
    assert "cancelled by the constructor: the grid is drained" in page
    assert "FAILED" not in page
    assert "exit code" not in page
    assert "FAILED: NonZeroExitCode; exit code -15" in shown(tmp_path, ended)
