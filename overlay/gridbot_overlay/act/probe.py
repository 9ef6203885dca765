"""One short pilot that examines its node, tells the operator, and leaves.  It joins no server."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from gridbot_overlay.act.server import Server
from gridbot_overlay.decide.model import CheckResult, Grid, PilotOrder, PilotState, Sighting
from gridbot_overlay.pilot.artefact import Artefact
from gridbot_overlay.pilot.pins import PilotPins
from gridbot_overlay.pilot.script import render
from gridbot_overlay.submitters import Submitter

_WALLTIME_SECONDS = 600
_LOOK_SECONDS = 2.0
_MOST_MISSED = 2  # looks in a row at which an ended pilot may be named no more
_LOG_SECONDS = 10.0  # within which what a pilot wrote comes through a shared file system
_LINE = re.compile(r"(ok |BAD) ([\w ]+): (.*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A probe of one grid, with whom it needs for that."""

    grid: Grid
    submitter: Submitter
    server: Server
    pins: PilotPins
    artefact: Artefact

    def findings(self, wait_seconds: float) -> Iterator[CheckResult]:
        """Send the pilot, wait for its end, and yield what it found.

        Raises GridError and GridbotError.  It leaves neither a pilot nor a good key behind.
        """
        # As tags of a constructor's, of which there is none with this prefix.
        tag = f"gb{secrets.token_hex(3)}n{secrets.token_hex(3)}"
        seconds = min(self.grid.shape.walltime_seconds, _WALLTIME_SECONDS)
        grid = replace(self.grid, shape=replace(self.grid.shape, walltime_seconds=seconds))
        self.server.offer(self.artefact)
        key = self.server.pilot_key(
            grid.name, (self.server.owner(),), wait_seconds + seconds, tag, 1, self.artefact
        )
        native_ids: list[str] = []
        try:
            script = render(
                grid, self.server.url, key.token, self.artefact, self.pins, time.time(),
                is_probe=True,
            )  # fmt: skip
            native_ids = self.submitter.submit(_order(grid, tag, script))
            yield from self._told(tag, native_ids, wait_seconds)
        finally:
            self.submitter.cancel(native_ids or self._left(tag))
            self.server.revoke(key.id)

    def _left(self, tag: str) -> list[str]:
        """Native ids of a pilot whose submission was not confirmed."""
        return [seen.native_id for seen in self.submitter.pilots(tag)]

    def _told(
        self, tag: str, native_ids: Sequence[str], wait_seconds: float
    ) -> Iterator[CheckResult]:
        last = self._ended(tag, wait_seconds)
        if last is None or last.state is not PilotState.ENDED:
            state = f"is {last.state} {last.reason}".strip() if last else "was not seen"
            text = f"the pilot {state} after {wait_seconds:.0f} s, and is cancelled"
            yield CheckResult("probe", False, text)
            return
        said = self._said(native_ids[0], tag)
        yield CheckResult("probe", bool(said), _end_text(last, said))
        yield from told(said)

    def _ended(self, tag: str, wait_seconds: float) -> Sighting | None:
        """Wait for the pilot's end; how it was seen last."""
        until, last, missed = time.monotonic() + wait_seconds, None, 0
        while missed < _MOST_MISSED:
            seen = self.submitter.pilots(tag)
            last, missed = (seen[0], 0) if seen else (last, missed + 1)
            if (last and last.state is PilotState.ENDED) or time.monotonic() >= until:
                return last
            time.sleep(_LOOK_SECONDS)
        return replace(last, state=PilotState.ENDED) if last else None

    def _said(self, native_id: str, tag: str) -> str:
        until = time.monotonic() + _LOG_SECONDS
        while not (said := self.submitter.tail(native_id, tag)) and time.monotonic() < until:
            time.sleep(_LOOK_SECONDS)
        return said


def told(said: str) -> Iterator[CheckResult]:
    """Read what a probe wrote; what else stands there is of a node that it could not examine."""
    others = list[str]()
    for line in said.splitlines():
        if found := _LINE.fullmatch(line.strip()):
            yield CheckResult(f"probe: {found[2]}", found[1] == "ok ", found[3])
        elif line.strip():
            others.append(line.strip())
    if others:
        yield CheckResult("probe: its words", False, " ".join(others))


def _end_text(last: Sighting, said: str) -> str:
    node = f" on {last.node}" if last.node else ""
    code = "" if last.exit_code is None else f" with exit code {last.exit_code}"
    text = f"a pilot ran{node}"
    if said:
        return text
    return f"{text}, ended{code} {last.reason}".rstrip() + ", and what it wrote is not here"


def _order(grid: Grid, tag: str, script: str) -> PilotOrder:
    return PilotOrder(
        tag=tag, count=1, shape=grid.shape, script=script, directives=grid.directives, owners=()
    )
