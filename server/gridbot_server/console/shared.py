"""What live pages show: computed every one and a half seconds, for all who look at the same page.

A page that is open asks again every few seconds with `?live`, and says which content it has.  The
loop of the web process answers that from memory, without a thread (`web/worker.py`), as long as
somebody asked for the same a moment ago, or somebody's thread is just making it anew.  Whether the
sessions that ask are still good is asked of the database for all of them together, by the thread of
one: see `FastPolls`.  So five hundred open pages of one BOT cost hardly more than one.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from http.cookies import CookieError, SimpleCookie
from typing import Any, Protocol, TypeVar, cast

from gridbot_server.http import answers
from gridbot_server.http.sessions import COOKIE, form_token

CONTENT_TYPE = "text/html; charset=utf-8"
POLL_SECONDS = 3  # between two polls of an open page
SECONDS = 1.5  # for which a content is shown: with the time between polls, five seconds at most
_LATE_SECONDS = 0.5  # for which polls get the last one while another is made
_VIEWER_SECONDS = 5.0  # for which a session that was good is taken as good for polls
_MOST_CONTENTS, _MOST_VIEWERS = 2000, 20_000
_MOST_BYTES = 64 << 20  # of all contents together
_MOST_VALUES = 500  # that are fresh
_LOCKS = 64

Clock = Callable[[], float]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PageContent:
    """The content of a page, and by what it is known again."""

    title: str
    html: bytes
    made_at: float  # seconds of the monotonic clock
    seconds: float  # for which it is shown
    etag: str


@dataclass(frozen=True, slots=True)
class PollAnswer:
    """What a poll gets."""

    headers: Mapping[str, str]
    html: bytes | None  # None: nothing is new


@dataclass(frozen=True, slots=True)
class _Viewer:
    """A session that was good at `seen_at`, and whose contents it may see."""

    sees: Sequence[Hashable]
    seen_at: float
    form_token: bytes


@dataclass
class SharedContents:
    """The contents of one web process."""

    placeholder: str = field(default_factory=lambda: f"form-token-{secrets.token_hex(16)}")
    """Stands in contents for the form token of who looks."""

    clock: Clock = time.monotonic
    most_bytes: int = _MOST_BYTES
    still_good: Callable[[Collection[str]], Collection[str]] = lambda _: ()
    """Tells of the cookies of some sessions those that are good now."""

    _contents: dict[tuple[str, Hashable], PageContent] = field(default_factory=dict)
    _in_the_making: set[tuple[str, Hashable]] = field(default_factory=set)
    _keeping: threading.Lock = field(default_factory=threading.Lock)
    _values: dict[tuple[str, Hashable], tuple[float, Any, float]] = field(default_factory=dict)
    _viewers: dict[str, _Viewer] = field(default_factory=dict)
    _polled: set[str] = field(default_factory=set)  # cookies, since they were last checked
    _checking: threading.Lock = field(default_factory=threading.Lock)
    _locks: list[threading.Lock] = field(
        default_factory=lambda: [threading.Lock() for _ in range(_LOCKS)]
    )

    def get(
        self, path: str, sees: Hashable, seconds: float, make: Callable[[], tuple[str, bytes]]
    ) -> PageContent:
        """Return the content of a page; it is made anew if the last one is older than `seconds`."""
        key = path, sees
        found = self._contents.get(key)
        if found is not None and self._is_fresh(found):
            return found
        with self._locks[hash(key) % _LOCKS]:  # one makes it, the others wait for that
            found = self._contents.get(key)
            if found is None or not self._is_fresh(found):
                self._in_the_making.add(key)
                try:
                    title, html = make()
                    found = PageContent(title, html, self.clock(), seconds, self._etag(html))
                    self._keep(key, found)
                finally:
                    self._in_the_making.discard(key)
        return found

    def _etag(self, html: bytes) -> str:
        """The same for the same content in all web processes, whatever placeholder each has."""
        known = html.replace(self.placeholder.encode(), b"")
        return f'"{hashlib.blake2b(known, digest_size=12).hexdigest()}"'

    def value(self, key: tuple[str, Hashable], seconds: float, make: Callable[[], T]) -> T:
        """Return what pages show that takes long to find out: it may be so many seconds old."""
        found = self._values.get(key)
        if found is not None and self.clock() < found[0] + seconds:
            return cast(T, found[1])
        made = self.clock(), make()
        self._keep_value(key, made, seconds)
        return made[1]

    def remember(self, cookie: str, sees: Sequence[Hashable]) -> None:
        """Let polls of a session that is good be answered from memory for a while."""
        if len(self._viewers) >= _MOST_VIEWERS:
            self._viewers.clear()
        self._viewers[cookie] = _Viewer(sees, self.clock(), form_token(cookie).encode())

    def forget(self, cookie: str) -> None:
        """Answer polls of a session that has ended no more."""
        with self._checking:  # not found good before, and remembered after
            self._viewers.pop(cookie, None)

    def expire(self) -> None:
        """Compute everything anew, so that who has just changed something sees that.

        Other processes show the last content until it is old: at most for SECONDS, most pages.
        """
        self._contents, self._values = {}, {}

    def poll(
        self, path: str, cookies: str, etag: str, *, may_wait: bool = True
    ) -> PollAnswer | None:
        """Answer a poll of who shows the content `etag`; None if Flask must.

        Unless it `may_wait`, the database is not asked whether its session is still good.
        """
        cookie = _cookie(cookies)
        viewer = self._viewers.get(cookie)
        if viewer is None:
            return None
        self._polled.add(cookie)
        if not self._is_good(viewer) and not (may_wait and self._check_polled(cookie)):
            return None
        for whose in viewer.sees:
            key = path, whose
            found = self._contents.get(key)
            late = _LATE_SECONDS if key in self._in_the_making else 0.0
            if found and self._is_fresh(found, late):
                is_known = etag == found.etag
                body = None if is_known else self.filled(found, viewer.form_token)
                return PollAnswer({**answers.HARDENING, "ETag": found.etag}, body)
        return None

    def _is_good(self, viewer: _Viewer) -> bool:
        return self.clock() <= viewer.seen_at + _VIEWER_SECONDS

    def _check_polled(self, cookie: str) -> bool:
        """Check the sessions of all who polled of late; return whether this one is good."""
        if not self._checking.acquire(blocking=False):
            return False  # another thread does; Flask looks at this one alone
        try:
            # A copy: a thread that polls just now may still add to the set that it has read.
            polled, self._polled = set(self._polled), set()
            good = self.still_good(polled)
            for name in polled:
                viewer = self._viewers.pop(name, None)
                if viewer is not None and name in good:
                    self._viewers[name] = replace(viewer, seen_at=self.clock())
        finally:
            self._checking.release()
        return cookie in good

    def _is_fresh(self, content: PageContent, late: float = 0.0) -> bool:
        return self.clock() < content.made_at + content.seconds + late

    def _keep(self, key: tuple[str, Hashable], content: PageContent) -> None:
        """Keep a content, and none that is shown no more."""
        with self._keeping:
            fresh = {
                name: old
                for name, old in self._contents.items()
                if self._is_fresh(old, _LATE_SECONDS)
            }
            fresh.pop(key, None)
            used = sum(len(old.html) for old in fresh.values()) + len(content.html)
            if used > self.most_bytes or len(fresh) >= _MOST_CONTENTS:
                fresh = {}
            self._contents = {**fresh, key: content}

    def _keep_value(
        self, key: tuple[str, Hashable], found: tuple[float, Any], seconds: float
    ) -> None:
        with self._keeping:
            now = self.clock()
            fresh = {name: old for name, old in self._values.items() if now < old[0] + old[2]}
            if len(fresh) >= _MOST_VALUES:
                fresh = {}
            self._values = {**fresh, key: (*found, seconds)}

    def filled(self, content: PageContent, token: bytes) -> bytes:
        """Return a content with the form token of who looks."""
        return content.html.replace(self.placeholder.encode(), token)


class _StartResponse(Protocol):
    def __call__(self, status: str, headers: list[tuple[str, str]], /) -> object: ...


Wsgi = Callable[[dict[str, Any], Any], Iterable[bytes]]


class FastPolls:
    """Answers in a thread the polls that the loop may not or cannot read; the rest is for Flask."""

    def __init__(self, app: Wsgi, contents: SharedContents) -> None:
        self._app, self._contents = app, contents

    def __call__(self, environ: dict[str, Any], start: _StartResponse) -> Iterable[bytes]:
        """Answer one request."""
        if environ.get("QUERY_STRING") == "live" and environ["REQUEST_METHOD"] == "GET":
            cookies, etag = environ.get("HTTP_COOKIE", ""), environ.get("HTTP_IF_NONE_MATCH", "")
            found = self._contents.poll(environ["PATH_INFO"], cookies, etag)
            if found is not None:
                return _answered(found, start)
        return self._app(environ, start)


def _answered(found: PollAnswer, start: _StartResponse) -> Iterable[bytes]:
    headers = list(found.headers.items())
    if found.html is None:
        start("304 NOT MODIFIED", headers)
        return []
    length = ("Content-Length", str(len(found.html)))
    start("200 OK", [*headers, ("Content-Type", CONTENT_TYPE), length])
    return [found.html]


def _cookie(cookies: str) -> str:
    """Return the session's cookie of those of a request, "" without one."""
    try:
        found = SimpleCookie(cookies).get(COOKIE)
    except CookieError:
        return ""
    return found.value if found else ""
