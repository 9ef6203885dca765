"""Where adapters are joined to the rest of the server; BOINC's is the only one.

A room that needs something of an adapter says what in a Protocol, and the process that it runs in
hands it over from here.  Beside this module only BOINC's own routes (`api/boinc`) and the web
worker import BOINC's room: a test holds that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gridbot_server.boinc.application import key_holder
from gridbot_server.stock_clients import StockClients, StockKeys

if TYPE_CHECKING:
    from gridbot_server.settings import Settings
    from gridbot_server.storage.db import Connection
    from gridbot_server.storage.files import Store

# For `gridbot app`, on the machine that has the keys: it may lack a server's packages, so what
# needs them is imported where it is used.
STOCK_KEYS: StockKeys = key_holder


def stock_clients(settings: Settings, store: Store) -> StockClients:
    """For a web process: who beside native clients may run what is submitted."""
    from gridbot_server.boinc.adapter import BoincClients

    return BoincClients(settings, store)


def prepare(conn: Connection, settings: Settings) -> None:
    """For the first start: make what adapters need before the server serves; safe to repeat."""
    from gridbot_server.boinc import first_start

    first_start.ensure_keys(conn, settings)
