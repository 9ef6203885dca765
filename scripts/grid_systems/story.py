"""What the stories share: claims that are tried and printed, pilots that are waited for."""

from __future__ import annotations

import json
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from gridbot_overlay.decide.model import PilotOrder, PilotShape, PilotState, Sighting
from gridbot_overlay.submitters import GridError, Submitter

T = TypeVar("T")
SMALL = PilotShape(memory_mb=50, walltime_seconds=600)
WAITS = "echo waits >&2; exec sleep 600"


class Story:
    """Claims about one submitter on one real system."""

    def __init__(self) -> None:
        self.is_good = True
        self._began = time.monotonic()
        self._claims = 0

    @contextmanager
    def claim(self, text: str) -> Iterator[None]:
        """Try a claim; one that fails does not keep the next from being tried."""
        began, said = time.monotonic(), ""
        try:
            yield
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
            traceback.print_exc(file=sys.stderr)
        seconds = time.monotonic() - began
        self._claims += 1
        self.is_good &= not said
        mark = "ok  " if not said else "FAIL"
        print(f"{mark} {seconds:6.1f} s  {text}", *([said] if said else []), file=sys.stderr)
        found = {"claim": text, "is_good": not said, "seconds": round(seconds, 2), "said": said}
        print(json.dumps(found), flush=True)

    def end(self) -> None:
        """Sum up."""
        seconds = time.monotonic() - self._began
        print(f"{self._claims} claims in {seconds:.0f} s", file=sys.stderr)


def order(tag: str, script: str, *directives: str, **fields: Any) -> PilotOrder:
    """Give an order for a small pilot."""
    fields = {"count": 1, "shape": SMALL, "owners": ("alice", "b ob"), **fields}
    return PilotOrder(tag=tag, script=script, directives=directives, **fields)


def eventually(fact: Callable[[], T], what: str, seconds: float = 90.0) -> T:
    """Wait until a fact is true, and return it."""
    end = time.monotonic() + seconds
    while not (value := fact()):
        assert time.monotonic() < end, f"{what} did not come true within {seconds:g} s"
        time.sleep(0.2)
    return value


def found(submitter: Submitter, tag: str, state: PilotState) -> list[Sighting]:
    """The pilots of a tag, once all of them are in a state."""

    def look() -> list[Sighting]:
        seen = submitter.pilots(tag)
        return sorted(seen, key=lambda one: one.index) * all(one.state is state for one in seen)

    return eventually(look, f"that pilots of {tag} are {state}")


def refused(call: Callable[[], object], words: str, *, is_lasting: bool) -> None:
    """Insist that a call is refused, with these words, for good or not."""
    error = _error_of(call)
    assert error is not None, f"nothing was refused with {words!r}"
    assert words in str(error), f"it said {error}"
    assert error.is_lasting is is_lasting, f"is_lasting is {error.is_lasting}: {error}"


def _error_of(call: Callable[[], object]) -> GridError | None:
    try:
        call()
    except GridError as error:
        return error
    return None
