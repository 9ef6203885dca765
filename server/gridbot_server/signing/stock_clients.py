"""What the server asks of the adapter to stock clients: clients of a protocol that is not ours.

The rooms that submit and sign know such clients by this module alone.  The web process and the
commands hand them the adapter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

from gridbot_client.protocol.messages import FileRef, Manifest, Scalar

if TYPE_CHECKING:  # `gridbot app` runs on machines without the database's packages
    from gridbot_server.storage.db import Connection


TO_STORAGE = "their outputs go to a storage, to which only native clients send"


class Unsuitable(ValueError):
    """A stock client cannot run this; native clients can.  The message says why."""


class StockClients(Protocol):
    """Which BOTs suit them, and what they must have of one: for a web process."""

    @property
    def url(self) -> str | None:
        """Where they attach; None where they cannot."""

    def check_job(
        self, manifest: Manifest, args: Mapping[str, Scalar], inputs: Sequence[FileRef]
    ) -> None:
        """Raise Unsuitable when they cannot run a job."""

    def sign(self, conn: Connection, manifest: Manifest) -> str:
        """Sign a BOT with the key on this server, and return that as it is kept.

        Raises Unsuitable when they cannot run it, or the key is not here.
        """


class StockSigner(Protocol):
    """Signs BOTs with a key that they trust, on a machine that need not be the server."""

    def check_input(self, ref: FileRef, file: BinaryIO) -> None:
        """Raise Unsuitable for a file that must not be signed as data."""

    def sign(self, manifest: Manifest, md5_of: Callable[[FileRef], str]) -> Mapping[str, Any]:
        """Return the document that the server takes; raise Unsuitable where there can be none.

        `md5_of` gives the MD5 of an input, in lower-case hex.
        """
