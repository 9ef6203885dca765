"""The overlay's folder on disk, and what its configuration means: grids, submitters, the server."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gridbot.api.connection import Connection
from gridbot.api.errors import BadInput, GridbotError, ServerAway
from gridbot.api.session import connect
from gridbot.printing import counted
from gridbot_client.net.discovery import NoServer, data_directory, find_server, remember_keys
from gridbot_client.protocol.signatures import fingerprint
from gridbot_client.storage import write_atomically
from gridbot_overlay.act.server import Server
from gridbot_overlay.act.store import PilotStore
from gridbot_overlay.decide.model import Grid
from gridbot_overlay.pilot import pins
from gridbot_overlay.pilot.artefact import Artefact, build
from gridbot_overlay.pilot.pins import PilotPins
from gridbot_overlay.pilot.wheels import WheelsMissing
from gridbot_overlay.settings import (
    FILE_NAME,
    OverlaySettings,
    grid_of,
    grid_text,
    read_settings,
    settings_of,
    without_grid,
)
from gridbot_overlay.submitters import KINDS, GridError, Submitter


@dataclass(frozen=True, slots=True)
class OverlayFolder:
    """One overlay: overlay.toml, overlay.db, and a folder for each grid."""

    path: Path

    @classmethod
    def at(cls, data: Path | None) -> OverlayFolder:
        """Return the overlay in `data`, else in this user's usual place."""
        return cls((data or data_directory("overlay")).absolute())

    @property
    def settings_path(self) -> Path:
        """The operator's file."""
        return self.path / FILE_NAME

    def text(self) -> str:
        """The configuration as it is written; "" before there is one."""
        return self.settings_path.read_text("utf-8") if self.settings_path.exists() else ""

    def settings(self) -> OverlaySettings:
        """Read the configuration.  Raises BadInput."""
        return read_settings(self.settings_path, KINDS)

    def add(self, name: str, table: dict[str, object]) -> Grid:
        """Append a grid to the configuration, once it is known to be a right one."""
        if name in self.settings().grids:
            raise BadInput(f"grid {name!r} exists; to change it: gridbot overlay edit")
        grid = grid_of(name, table, KINDS)
        there = self.text()
        gap = "\n" if there else ""
        self.write(f"{there}{gap}{grid_text(name, table)}")
        return grid

    def remove(self, name: str) -> None:
        """Take a grid out of the configuration; raise BadInput while it has live pilots."""
        self.settings().grid(name)
        if live := [pilot for pilot in self.store().pilots(name, 0.0) if pilot.is_live]:
            raise BadInput(
                f"{name} has {counted(len(live), 'live pilot')}; first"
                f" gridbot overlay drain {name}, and wait until gridbot overlay status shows none"
            )
        self.write(without_grid(self.text(), name))

    def write(self, text: str) -> None:
        """Replace the configuration by a right one.  Raises BadInput for another, and keeps it."""
        for grid in settings_of(text, self.settings_path, KINDS).grids.values():
            self.submitter(grid)
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        remember_keys(self.path)
        write_atomically(self.settings_path, text.encode())

    def store(self) -> PilotStore:
        """Open what the constructor remembers."""
        return PilotStore.open(self.path)

    def server(self, settings: OverlaySettings) -> Server:
        """Return the server that the overlay works for.  Raises ServerAway when none is known."""
        try:
            return Server(Connection(find_server(settings.server, settings.key_file)))
        except NoServer as error:
            raise ServerAway(str(error)) from None

    def pins(self, settings: OverlaySettings) -> PilotPins:
        """Return the keys that pilots trust; the first time, the project's and this user's own.

        Raises BadInput, GridbotError.
        """
        if (kept := pins.load(self.path)) is not None:
            return kept
        server = str(settings.server) if settings.server else None
        with connect(server, settings.key_file) as session:
            project = bytes.fromhex(session.project_key())
            made = PilotPins(fingerprint(project), (session.signer().key.fingerprint,))
        pins.save(self.path, made)
        return made

    def trust(self, owner: str) -> PilotPins:
        """Let pilots also run BOTs that the key with this fingerprint signed."""
        made = self.pins(self.settings()).with_owner(owner)
        pins.save(self.path, made)
        return made

    def submitter(self, grid: Grid) -> Submitter:
        """Return what speaks with a grid.  Raises BadInput for options that it does not have."""
        folder = self.path / "grids" / grid.name
        try:
            return KINDS[grid.kind](grid, folder)
        except GridError as error:
            raise BadInput(str(error)) from None

    def submitters(self, settings: OverlaySettings) -> dict[str, Submitter]:
        """Return what speaks with each of the grids.  Raises BadInput."""
        return {name: self.submitter(grid) for name, grid in settings.grids.items()}

    def artefact(self) -> Artefact:
        """Build what pilots run; the first time, pip fetches wheels.  Raises GridbotError."""
        try:
            return build(self.path / "artefact")
        except (OSError, WheelsMissing) as error:
            raise GridbotError(f"cannot build the pilots' archive: {error}") from None
