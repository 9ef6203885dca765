"""`gridbot.Executor` in a notebook: its kernel runs, as Jupyter would run it."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from tests.system.deployment import Deployment

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")

PATIENCE = 120
CELLS = (
    "import gridbot\nexecutor = gridbot.Executor(gridbot.connect(URL, KEY))",
    "def square(x):\n    return x * x\nsum(executor.map(square, range(100)))",
    "class Point:\n    def __init__(self, x):\n        self.x = x",
    "moved = executor.submit(lambda p: Point(p.x + 1), Point(4)).result()\n"
    "type(moved) is Point, moved.x",
    "executor.submit(lambda: 1 / 0).result()",
    "executor.shutdown()",
    "others = gridbot.Executor(gridbot.connect(URL, KEY), max_workers=1)\n"
    "calls = [others.submit(abs, -1) for _ in range(9)]\n"
    "others.shutdown(cancel_futures=True)",
)


def outputs(cell: Any, kind: str) -> list[Any]:
    return [output for output in cell.outputs if output.output_type == kind]


def test_a_notebook_s_functions_run_on_hosts_and_its_cell_shows_progress(
    running: Deployment,
) -> None:
    running.client("worker", "--cpus", "2", "--allow-read", sys.prefix)
    url, key = running.url, str(running.settings.operator_key_path)
    cells = [
        nbformat.v4.new_code_cell(source.replace("URL", repr(url)).replace("KEY", repr(key)))
        for source in CELLS
    ]
    notebook = nbformat.v4.new_notebook(cells=cells)
    kernel = nbclient.NotebookClient(notebook, timeout=PATIENCE, allow_errors=True)
    kernel.execute()
    _, squares, _, point, error, _, cancelled = notebook.cells
    assert [out.data["text/plain"] for out in outputs(squares, "execute_result")] == ["328350"]
    assert [out.data["text/plain"] for out in outputs(point, "execute_result")] == ["(True, 5)"]
    (raised,) = outputs(error, "error")
    assert raised.ename == "ZeroDivisionError"
    assert "RemoteTraceback" in "".join(raised.traceback)
    # The one display is replaced, from whatever cell: here by the last call's end.
    (shown,) = outputs(squares, "display_data")
    assert shown.data["text/plain"] == "102 of 102 calls"
    assert 'value="102" max="102"' in shown.data["text/html"]
    assert [len(outputs(cell, "display_data")) for cell in (point, error)] == [0, 0]
    (shown,) = outputs(cancelled, "display_data")
    assert shown.data["text/plain"] == "9 of 9 calls"
