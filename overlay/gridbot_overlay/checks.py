"""What `gridbot overlay check` looks at: the server, the pilots' archive, and each grid."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gridbot.api.errors import BadInput, GridbotError
from gridbot.printing import counted
from gridbot_overlay.act.probe import Probe
from gridbot_overlay.act.server import url_check
from gridbot_overlay.decide.model import CheckResult, Grid
from gridbot_overlay.folder import OverlayFolder
from gridbot_overlay.settings import OverlaySettings
from gridbot_overlay.submitters import GridError


def findings(
    folder: OverlayFolder,
    settings: OverlaySettings,
    grids: Sequence[Grid],
    probe_seconds: float | None = None,
) -> Iterator[tuple[str, CheckResult]]:
    """Look at one thing after the other: where ("server", "pilots", or a grid), and what was found.

    With `probe_seconds` also send a probe to each grid; one that has not ended after so long is
    cancelled.
    """
    server = _server_finding(folder, settings)
    yield "server", server
    if server.is_good:
        yield "server", _keys_finding(folder, settings)
    yield "pilots", _artefact_finding(folder)
    url = _server_url(folder, settings)
    for grid in grids:
        for item in _grid_findings(folder, url, grid):
            yield grid.name, item
        if probe_seconds is not None:
            for item in _probe_findings(folder, settings, grid, probe_seconds):
                yield grid.name, item


def _server_url(folder: OverlayFolder, settings: OverlaySettings) -> str:
    """URL by which pilots call the server; "" if none is known, which another check says."""
    try:
        return folder.server(settings).url
    except GridbotError:
        return ""


def _server_finding(folder: OverlayFolder, settings: OverlaySettings) -> CheckResult:
    try:
        server = folder.server(settings)
        demands = server.demand().demands
    except GridbotError as error:
        return CheckResult("reachable with an operator's key", False, str(error))
    text = f"{server.url} answers; unfinished BOTs: {len(demands)}"
    return CheckResult("reachable with an operator's key", True, text)


def _keys_finding(folder: OverlayFolder, settings: OverlaySettings) -> CheckResult:
    """Pin the keys that pilots trust, unless that was done: without them none is submitted."""
    try:
        pins = folder.pins(settings)
    except GridbotError as error:
        return CheckResult("keys that pilots trust", False, str(error))
    text = f"the project's, and {counted(len(pins.owners), 'key')} of owners"
    return CheckResult("keys that pilots trust", True, text)


def _artefact_finding(folder: OverlayFolder) -> CheckResult:
    try:
        return CheckResult("archive", True, str(folder.artefact()))
    except GridbotError as error:
        return CheckResult("archive", False, str(error))


def _grid_findings(folder: OverlayFolder, url: str, grid: Grid) -> Iterator[CheckResult]:
    if url and grid.kind != "local":
        yield url_check(url)
    try:
        yield from folder.submitter(grid).check()
    except (GridError, BadInput) as error:
        yield CheckResult(f"{grid.kind} answers", False, str(error))


def _probe_findings(
    folder: OverlayFolder, settings: OverlaySettings, grid: Grid, wait_seconds: float
) -> Iterator[CheckResult]:
    try:
        probe = Probe(
            grid=grid,
            submitter=folder.submitter(grid),
            server=folder.server(settings),
            pins=folder.pins(settings),
            artefact=folder.artefact(),
        )
        yield from probe.findings(wait_seconds)
    except (GridError, GridbotError) as error:
        yield CheckResult("probe", False, str(error))
