from pathlib import Path

from tests.overlay_factories import NOW, grid, pilot

from gridbot_overlay import status
from gridbot_overlay.construct import View
from gridbot_overlay.model import Pilot, State
from gridbot_overlay.store import Store


def shown(folder: Path, *pilots: Pilot) -> str:
    found = status.document(
        Store.open(folder), [View(grid=grid(), pilots=pilots)], NOW, is_running=True
    )
    return "\n".join(status.lines(found))


def test_where_all_replicas_fail_it_says_where_to_look(tmp_path: Path) -> None:
    page = shown(tmp_path, pilot(0, State.RUNNING, node="n1", failures=2))
    assert "t.0 n1: 2 replicas failed: gridbot bot logs BOT --failed" in page


def test_a_pilot_whose_replicas_mostly_end_well_is_not_shown(tmp_path: Path) -> None:
    assert "n1" not in shown(tmp_path, pilot(0, State.RUNNING, node="n1", failures=2, jobs=1))
