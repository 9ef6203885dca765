"""What stays the same for all requests of stock clients: addresses, names and keys."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache

from gridbot_server.boinc.application.code_keys import Chain
from gridbot_server.boinc.application.offers import Offers
from gridbot_server.boinc.protocol.delivery import Places
from gridbot_server.boinc.protocol.names import Names, canonical_url
from gridbot_server.boinc.protocol.reply import GuiUrl, NewsFeed
from gridbot_server.settings import Settings
from gridbot_server.storage import sql
from gridbot_server.storage.db import Connection
from gridbot_server.storage.rows import fetch_mapping, fetch_value

SQL = sql.load("boinc.sql")

PATH = "/boinc"
NEWS = "notices.php"  # as BOINC's projects call the feed
_NEWS_SECONDS = 4 * 3600  # between two looks of a client at the feed


@dataclass(frozen=True, slots=True)
class Project:
    """A server as stock clients know it."""

    title: str
    master_url: str
    names: Names
    chain: Chain
    delay_seconds: int = 6  # between two requests of a client for work
    least_version: tuple[int, int, int] = (0, 0, 0)  # of a client that is given work
    offers: Offers = field(init=False)
    places: Places = field(init=False)  # where clients fetch and leave files
    gui_urls: tuple[GuiUrl, ...] = field(init=False)  # what the client's manager offers
    news: NewsFeed = field(init=False)

    def __post_init__(self) -> None:
        url = self.master_url
        places = Places(f"{url}download", f"{url}file_upload_handler", self.names.file)
        object.__setattr__(self, "offers", Offers(self.names, self.chain))
        object.__setattr__(self, "places", places)
        object.__setattr__(self, "gui_urls", _gui_urls(url))
        object.__setattr__(self, "news", NewsFeed(f"{url}{NEWS}", _NEWS_SECONDS))


def _gui_urls(url: str) -> tuple[GuiUrl, ...]:
    return (
        GuiUrl("Your account", "Credit, team and what the statistics tell", f"{url}account"),
        GuiUrl(
            "Your machines",
            "What each does, and how many of its results were right",
            f"{url.removesuffix(f'{PATH}/')}/machines",
        ),
    )


def master_url(settings: Settings) -> str:
    """The URL to attach to; raise BoincError for one that no client takes."""
    return canonical_url(settings.url + PATH)


def scheduler_url(settings: Settings) -> str:
    """Where clients report and ask for work."""
    return f"{master_url(settings)}scheduler"


def current(conn: Connection, project: Project) -> Project:
    """The project with the code signing key in use now; the same one while that is the same."""
    text = fetch_value(conn, str, SQL["chain"])
    chain = project.chain if text is None else _chain(text)
    return project if chain == project.chain else replace(project, chain=chain)


_chain = lru_cache(maxsize=4)(Chain.from_text)


def load(conn: Connection, settings: Settings) -> Project:
    """Read what was made at setup; raise BoincError for an URL that no client can attach to."""
    found: dict[str, str] = fetch_mapping(conn, SQL["settings"])
    return Project(
        settings.project_name,
        master_url(settings),
        Names(bytes.fromhex(found["boinc_names"])),
        Chain.from_text(found["boinc_chain"]),
        settings.boinc_delay_seconds,
        settings.least_client_version,
    )
