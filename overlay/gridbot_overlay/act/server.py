"""The server as the constructor sees it: demand, how pilots fare, keys for pilots."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from ipaddress import ip_address
from itertools import islice
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

from gridbot.api.connection import Connection
from gridbot.api.errors import GridbotError, NotFound
from gridbot.api.inputs import LocalFile, upload
from gridbot.printing import cut
from gridbot_client.protocol.messages import FileRef
from gridbot_client.terminal import printable
from gridbot_overlay.act.store import DrainOrder
from gridbot_overlay.decide.model import BotDemand, CheckResult, Pilot
from gridbot_overlay.pilot.artefact import Artefact

T = TypeVar("T")

_PILOTS_SECONDS = 3600  # older pilots' hosts tell nothing of the next one's
_MOST_ENDED = 5000  # pilots that one request tells of
_MOST_LOGS = 100  # pilots whose last words one request brings
_MOST_WORDS = 4096  # characters of one's
MOST_TAGS = 1000  # submissions that one request asks for
_MOST_REFUSED = 1000  # BOTs, the oldest, of whose refusals the server is told
_MOST_WHY = 200  # characters
_MOST_GRIDS = 100
_FIELDS = tuple(field.name for field in fields(BotDemand))


@dataclass(frozen=True, slots=True)
class QueueDemand:
    """What all BOTs could use now, and the ad of the queue."""

    demands: tuple[BotDemand, ...]
    queue: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PilotKey:
    """A key that pilots of one submission share; `id` is what revokes it."""

    id: int
    token: str


@dataclass(frozen=True, slots=True)
class GridNews:
    """What the server hears of a constructor's grids."""

    ads: Mapping[str, Mapping[str, Any]]  # of those that may get pilots
    drained: Mapping[str, str]  # of all, as in GridRecord
    heard: int  # the number of the last order


class Server:
    """The overlay's part of one server's API.  Calls raise GridbotError."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.url = connection.url

    def owner(self) -> str:
        """Return the name of the operator whose key we have."""
        return str(self._connection.get("/signing")["owner"])

    def demand(self) -> QueueDemand:
        """Return what BOTs could use now."""
        document = self._connection.get("/overlay/demand")
        try:
            demands = [{name: bot[name] for name in _FIELDS} for bot in document["bots"]]
            return QueueDemand(tuple(BotDemand(**values) for values in demands), document["queue"])
        except KeyError as error:
            raise GridbotError(
                f"{self.url} says nothing of {error}: is it older than we?"
            ) from None

    def demand_version(self, known: str, wait: int) -> str:
        """Return the version of the demand; wait so many seconds for another than `known`."""
        return str(
            self._connection.get("/overlay/demand/version", known=known, wait=wait)["version"]
        )

    def pilots(self, grid: str) -> list[dict[str, Any]]:
        """Return what the server knows of the grid's pilots of the last hour, the latest first."""
        found = self._connection.get("/overlay/pilots", grid=grid, seconds=_PILOTS_SECONDS)
        return list(found["pilots"])

    def pilot_key(
        self,
        grid: str,
        owners: Sequence[str],
        seconds: float,
        tag: str,
        count: int,
        artefact: Artefact,
    ) -> PilotKey:
        """Make a key for the pilots of one submission: one grid, these owners' BOTs, so long.

        It reads the artefact, and no other file.
        """
        body = {
            "grid": grid, "owners": list(owners), "seconds": seconds, "tag": tag, "count": count,
            "artefact": artefact.sha256,
        }  # fmt: skip
        document = self._connection.send("POST", "/overlay/tokens", body)
        return PilotKey(document["id"], document["token"])

    def keys_of(self, tags: Sequence[str]) -> dict[str, int]:
        """Return, by tag, the number of a good key of each submission that has one.

        `tags` are at most MOST_TAGS.
        """
        found = self._connection.send("POST", "/overlay/tags", {"tags": list(tags)})
        return dict(found["keys"])

    def refuse(self, constructor: str, refusals: Mapping[int, Mapping[str, str]]) -> None:
        """Tell by BOT and grid why grids do not serve BOTs, in place of what was told before."""
        bots = {
            str(bot): {grid: cut(printable(why), _MOST_WHY) for grid, why in grids.items()}
            for bot, grids in islice(refusals.items(), _MOST_REFUSED)
        }
        body = {"constructor": constructor, "bots": bots}
        self._connection.send("POST", "/overlay/refusals", body)

    def tell_grids(self, constructor: str, told: GridNews, seconds: int) -> None:
        """Tell of all grids, in place of what was told before; it is good for so long."""
        body = {
            "constructor": constructor,
            "seconds": seconds,
            "grids": dict(islice(told.ads.items(), _MOST_GRIDS)),
            "drained": dict(islice(told.drained.items(), _MOST_GRIDS)),
            "heard": told.heard,
        }
        self._connection.send("POST", "/overlay/grids", body)

    def orders(self, constructor: str, after: int) -> list[DrainOrder]:
        """Return what operators ordered at the server after the order with this number."""
        try:
            found = self._connection.get("/grids/orders", constructor=constructor, after=after)
        except NotFound:  # it is of a release that takes none
            return []
        return [
            DrainOrder(item["number"], item["grid"], item["drained"]) for item in found["orders"]
        ]

    def keep_logs(self, grid: str, pilots: Sequence[Pilot]) -> None:
        """Have the last words of pilots that have ended kept; safe to repeat."""
        for some in _parts(pilots, _MOST_LOGS):
            body = {"grid": grid, "logs": [_log(pilot) for pilot in some]}
            self._connection.send("POST", "/overlay/logs", body)

    def logs(self, grid: str) -> list[dict[str, Any]]:
        """Return how the last pilots ended, the latest first; of all grids if `grid` is ""."""
        return list(self._connection.get("/overlay/logs", grid=grid)["logs"])

    def log(self, pilot: str) -> dict[str, Any]:
        """Return how a pilot ended, and its last words.  Raises NotFound."""
        return dict(self._connection.get(f"/overlay/logs/{quote(pilot, safe='')}"))

    def revoke(self, key: int) -> None:
        """Revoke a pilots' key and the clients that joined with it; safe to repeat."""
        try:
            self._connection.request("DELETE", f"/tokens/{key}")
        except NotFound:
            return

    def offer(self, artefact: Artefact) -> None:
        """Let nodes fetch the artefact from the server: the one port that they surely reach."""
        ref = FileRef(artefact.path.name, artefact.sha256, artefact.size)
        upload(self._connection, [LocalFile(artefact.path, ref)], lambda *_: None)

    def pilots_ended(self, grid: str, pilots: Sequence[str]) -> None:
        """Tell which pilots are gone, so that what they ran is sent elsewhere; safe to repeat."""
        for some in _parts(pilots, _MOST_ENDED):
            body = {"grid": grid, "pilots": list(some)}
            self._connection.send("POST", "/overlay/pilots/ended", body)


def url_check(url: str) -> CheckResult:
    """Whether other machines may reach the server by this URL, as far as can be told here."""
    what, host = "server's URL for pilots", urlsplit(url).hostname or ""
    cure = "start the server with --url, and name that one in [server] of overlay.toml"
    try:
        found = {item[4][0] for item in socket.getaddrinfo(host, None)}
    except (OSError, UnicodeError) as error:
        return CheckResult(what, False, f"{url}: {host} has no address here ({error}); {cure}")
    addresses = [ip_address(str(text).partition("%")[0]) for text in found]
    if own := [item for item in addresses if item.is_loopback or item.is_unspecified]:
        return CheckResult(
            what, False, f"{url}: {own[0]} is each node itself, and not this server; {cure}"
        )
    return CheckResult(what, True, f"{url}: {', '.join(map(str, sorted(addresses, key=str)))}")


def _log(pilot: Pilot) -> dict[str, Any]:
    return {
        "pilot": pilot.id,
        "native_id": printable(pilot.native_id)[:200],
        "node": printable(pilot.node)[:300],
        "how": printable(pilot.cancelled or pilot.reason)[:1000],
        "exit_code": pilot.exit_code,
        "words": "\n".join(map(printable, pilot.stderr.splitlines()))[-_MOST_WORDS:],
    }


def _parts(items: Sequence[T], most: int) -> Iterator[Sequence[T]]:
    for first in range(0, len(items), most):
        yield items[first : first + most]
