"""One page about the server, this machine's client and a person's BOTs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gridbot.api.documents import Health
from gridbot.api.state import BotState
from gridbot.printing import counted
from gridbot.show.page import bots_table
from gridbot_client.terminal import printable

_MOST_BOTS = 20


@dataclass(frozen=True)
class Overview:
    """What `gridbot status` tells."""

    server: str | None  # its URL; None if none is known
    health: Health | None  # None if it does not answer
    fault: str  # why it does not, "" if it does
    client: Sequence[str]  # lines about the client of this machine
    client_document: Mapping[str, Any]
    bots: Sequence[BotState] | None  # newest first; None without a key

    def json(self) -> dict[str, Any]:
        """Document for --json."""
        server = {"url": self.server, "health": self.health, "fault": self.fault}
        bots = None if self.bots is None else [bot.document for bot in self.bots]
        return {"server": server, "client": self.client_document, "bots": bots}

    def page(self) -> str:
        """Lines for people."""
        lines = [f"{name:<8}{line}".rstrip() for name, line in self._lines()]
        return "\n".join([*lines, *self._bots()])

    def _lines(self) -> Iterator[tuple[str, str]]:
        yield "server", self._server()
        if (health := self.health) is not None:
            yield (
                "",
                f"of all people: {counted(health['bots_running'], 'BOT')},"
                f" {counted(health['jobs_unsent'], 'unsent replica')},"
                f" {health['replicas_running']} in progress,"
                f" {counted(health['clients_active'], 'active client')}",
            )
        yield from zip(("client", *[""] * len(self.client)), self.client, strict=False)

    def _server(self) -> str:
        if self.health is None:
            return printable(self.fault)
        trouble = self.health["trouble"]
        state = self.health["status"] + (f": {trouble}" if trouble else "")
        return printable(f"{self.server}, version {self.health['version']}, {state}")

    def _bots(self) -> Iterator[str]:
        if self.bots is None:
            return
        open_ = [bot for bot in self.bots if not bot.is_final]
        shown = open_[:_MOST_BOTS] or self.bots[:1]
        if not open_:
            yield "BOTs    none is running" + ("; the last one:" if shown else "")
        yield bots_table(shown)
        if (more := len(open_) - len(shown)) > 0:
            yield f"and {more} more; for all: gridbot bot list"
