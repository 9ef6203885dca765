"""Claims about speaking with many grids at once, some of which do not answer."""

from collections.abc import Callable
from threading import Event, current_thread

from tests.system.deployment import eventually

from gridbot_overlay.act.workers import GridBusy, GridWorkers
from gridbot_overlay.submitters import GridError


class Ears:
    """What was heard of which grid, and in which thread."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, object]] = []
        self.threads = set[object]()

    def __call__(self, grid: str, answer: object) -> None:
        self.heard.append((grid, answer))
        self.threads.add(current_thread())


def failing(error: Exception) -> Callable[[], int]:
    def work() -> int:
        raise error

    return work


def test_each_grid_is_heard_by_its_name_errors_too() -> None:
    workers, ears, error = GridWorkers(), Ears(), GridError("refused")
    workers.each({"a": lambda: 1, "b": failing(error), "c": lambda: 3}, ears)
    assert sorted(ears.heard, key=lambda item: item[0]) == [("a", 1), ("b", error), ("c", 3)]
    assert ears.threads == {current_thread()}


def test_who_does_not_answer_is_left_out_and_heard_later_once() -> None:
    workers, ears, later, gate = GridWorkers(0.1), Ears(), Ears(), Event()
    workers.each({"slow": gate.wait, "quick": lambda: 1}, ears)
    assert ears.heard == [("quick", 1)]
    assert workers.is_busy("slow")
    workers.each({"slow": lambda: 2, "quick": lambda: 3}, later)
    [(name, busy), quick] = later.heard
    assert (name, quick) == ("slow", ("quick", 3))
    assert isinstance(busy, GridBusy) and "has not answered for" in str(busy)
    gate.set()

    def heard() -> bool:
        workers.collect()
        return not workers.is_busy("slow")

    eventually(heard, what="the late answer")
    assert ears.heard == [("quick", 1), ("slow", True)]
    workers.each({"slow": lambda: 4}, later)
    assert later.heard[-1] == ("slow", 4)
