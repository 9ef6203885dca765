"""What the rest of the server asks of BOINC, in its own words: what the web process hands over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gridbot_client.protocol.messages import FileRef, Manifest, Scalar
from gridbot_server.boinc.application import description, offers
from gridbot_server.boinc.protocol.tags import BoincError
from gridbot_server.boinc.session import project
from gridbot_server.settings import Settings
from gridbot_server.storage.db import Connection
from gridbot_server.storage.files import Store


@dataclass(frozen=True, slots=True)
class BoincClients:
    """Stock BOINC clients as a submission sees them."""

    settings: Settings
    store: Store

    @property
    def url(self) -> str | None:
        """Where clients attach; None where they cannot, for they refuse the server's URL."""
        try:
            return project.master_url(self.settings)
        except BoincError:
            return None

    @staticmethod
    def check_job(
        manifest: Manifest, args: Mapping[str, Scalar], inputs: Sequence[FileRef]
    ) -> None:
        """Raise Unsuitable when they cannot run a job."""
        description.check_job(manifest, args, inputs)

    def sign(self, conn: Connection, manifest: Manifest) -> str:
        """Sign a BOT with the key on this server; raise Unsuitable when that cannot be."""
        return offers.sign(conn, self.settings, self.store, manifest).text()
