"""Scheduler replies: what a BOINC client is told, in the form that it reads.

One element per line, in lower case, without attributes except a message's priority.  The client
silently drops an application version or a job of which any part is missing in the reply, so all
that an assignment needs is sent with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from gridbot_server.boinc.application.signed import AppFile
from gridbot_server.boinc.protocol import delivery
from gridbot_server.boinc.protocol.delivery import Places, StockAssignment
from gridbot_server.boinc.protocol.preferences import project_preferences
from gridbot_server.boinc.protocol.tags import BoincError
from gridbot_server.credit.markup import block, element, escape, flag, given, lines

# From 507 on clients take preferences even if a host has its own.
_SCHEDULER_VERSION = 720
DAY_SECONDS = 86_400


@dataclass(frozen=True, slots=True)
class Message:
    """A line for the client's log; a notice is shown to its user as well."""

    text: str
    is_notice: bool = False


@dataclass(frozen=True, slots=True)
class BoincUser:
    """Whose account the client uses."""

    id: int
    name: str
    created_at: int  # s since 1970
    email_hash: str
    cross_project_id: str
    total_credit: float = 0.0
    recent_credit: float = 0.0
    team: str = ""


@dataclass(frozen=True, slots=True)
class BoincHost:
    """The client's host as the server knows it.

    `is_new` tells the client its id, upon which it counts its requests anew and takes another
    identity: only for a host that has none, or is given another.
    """

    id: int
    created_at: int  # s since 1970
    is_new: bool = False
    total_credit: float = 0.0
    recent_credit: float = 0.0
    venue: str = ""


@dataclass(frozen=True, slots=True)
class SigningKey:
    """The public key of application files; `signature` is the one by the key before it."""

    text: str
    signature: str = ""


@dataclass(frozen=True, slots=True)
class GuiUrl:
    """A page that the client's manager offers as a button."""

    name: str
    description: str
    url: str


@dataclass(frozen=True, slots=True)
class NewsFeed:
    """Where the client finds the project's news, and how often it looks."""

    url: str
    poll_seconds: int


@dataclass(frozen=True, slots=True)
class SchedulerReply:
    """Everything that one reply may say; what is empty is left out."""

    project: str
    master_url: str = ""
    messages: tuple[Message, ...] = ()
    request_delay_seconds: float = 0.0  # no request before
    next_rpc_seconds: float = 0.0  # a request at the latest after that, to be said every time
    is_down: bool = False
    volunteer: BoincUser | None = None
    host: BoincHost | None = None
    shares: tuple[tuple[str, float], ...] = ()  # resource shares by venue
    acks: tuple[str, ...] = ()
    aborts: tuple[str, ...] = ()
    has_messages_acked: bool = False
    key: SigningKey | None = None
    signed_anew: tuple[AppFile, ...] = ()  # files that the client has, for the key
    assignments: tuple[StockAssignment, ...] = ()
    preferences: str = ""  # the account's, as an element, for a client that has others
    gui_urls: tuple[GuiUrl, ...] = ()
    news: NewsFeed | None = None


def render(reply: SchedulerReply, places: Places | None = None) -> str:
    """The reply's text; `places` is needed where it speaks of files."""
    if (reply.assignments or reply.signed_anew) and places is None:
        raise BoincError("a reply that speaks of files must say where its files are")
    return block(
        "scheduler_reply",
        element("scheduler_version", _SCHEDULER_VERSION),
        flag("dont_use_dcf"),
        *_project(reply),
        _volunteer(reply.volunteer, reply.shares),
        *_host(reply.host),
        reply.preferences,
        _gui_urls(reply.gui_urls),
        _news(reply.news),
        *_answers(reply),
        *_key(reply.key),
        *(delivery.render(reply.assignments, reply.signed_anew, places) if places else ()),
    )


# ------------------------------------------------------------------------- whole replies


def project_is_down(
    project: str, why: str, delay_seconds: float, is_notice: bool = True
) -> SchedulerReply:
    """Come again later: the client looks at nothing else, and keeps what it has to report."""
    message = Message(why, is_notice)
    return SchedulerReply(
        project, messages=(message,), request_delay_seconds=delay_seconds, is_down=True
    )


def bad_key(project: str) -> SchedulerReply:
    """No account has this key; the client asks once a day, until its user sets it right."""
    text = (
        "Invalid or missing account key: clients need one that"
        " gridbot token create NAME --scope join made. To fix, remove and add this project."
    )
    return refused(project, text)


def refused(project: str, why: str) -> SchedulerReply:
    """No client of this kind is served; it asks once a day whether that has changed."""
    message = Message(why, is_notice=True)
    return SchedulerReply(project, messages=(message,), request_delay_seconds=DAY_SECONDS)


# --------------------------------------------------------------------------------- parts


def _credit(amount: float) -> str:
    """As BOINC's scheduler writes it: never with an exponent."""
    return f"{amount:.6f}"


def _project(reply: SchedulerReply) -> Iterator[str]:
    yield given("master_url", reply.master_url)
    yield given("project_name", reply.project)
    yield flag("project_is_down", reply.is_down)
    for message in reply.messages:
        priority = "notice" if message.is_notice else "low"
        yield f'<message priority="{priority}">{escape(message.text)}</message>\n'
    yield given("request_delay", reply.request_delay_seconds)
    yield given("next_rpc_delay", reply.next_rpc_seconds)


@lru_cache(maxsize=1024)
def _volunteer(volunteer: BoincUser | None, shares: tuple[tuple[str, float], ...]) -> str:
    if volunteer is None:
        return ""
    return "".join(
        (
            element("userid", volunteer.id),
            element("user_name", volunteer.name),
            element("user_total_credit", _credit(volunteer.total_credit)),
            element("user_expavg_credit", _credit(volunteer.recent_credit)),
            element("user_create_time", volunteer.created_at),
            element("email_hash", volunteer.email_hash),
            element("cross_project_id", volunteer.cross_project_id),
            element("team_name", volunteer.team),
            project_preferences(dict(shares)),
        )
    )


@lru_cache(maxsize=16)
def _gui_urls(urls: tuple[GuiUrl, ...]) -> str:
    if not urls:
        return ""
    return block(
        "gui_urls",
        *(
            block(
                "gui_url",
                element("name", item.name),
                element("description", item.description),
                element("url", item.url),
            )
            for item in urls
        ),
    )


@lru_cache(maxsize=16)
def _news(feed: NewsFeed | None) -> str:
    if feed is None:
        return ""
    told = element("url", feed.url), element("poll_interval", feed.poll_seconds)
    return block("rss_feeds", block("rss_feed", *told))


def _host(host: BoincHost | None) -> Iterator[str]:
    if host is None:
        return
    if host.is_new:
        yield element("hostid", host.id)
    yield element("host_total_credit", _credit(host.total_credit))
    yield element("host_expavg_credit", _credit(host.recent_credit))
    yield element("host_create_time", host.created_at)
    yield element("host_venue", host.venue)


def _answers(reply: SchedulerReply) -> Iterator[str]:
    """What is said of replicas and messages that the client has."""
    for tag, names in (("result_ack", reply.acks), ("result_abort", reply.aborts)):
        yield from (f"<{tag}>\n<name>{escape(name)}</name>\n</{tag}>\n" for name in names)
    yield flag("message_ack", reply.has_messages_acked)


def _key(key: SigningKey | None) -> Iterator[str]:
    if key is not None:
        yield lines("code_sign_key", key.text)
        yield lines("code_sign_key_signature", key.signature)
