"""HTTP connection to one server: retries transient failures, turns refusals into errors.

Attempts and pauses are those of `gridbot.reliable`: limits of time and cancellations around a call
hold for it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, TypeVar

import requests

from gridbot import reliable
from gridbot.api.documents import Health
from gridbot.api.errors import GridbotError, KeyUsed, NotFound, PolicyError, Refused, ServerAway
from gridbot_client.backoff import BackOff
from gridbot_client.net.discovery import Endpoint, proxies_for
from gridbot_client.net.elsewhere import BadRedirection, Redirection, session_without_token
from gridbot_client.net.faults import cannot_reach, is_of_network, strange_answer
from gridbot_client.net.surroundings import ForbiddenAddress, LookingAdapter, Surroundings
from gridbot_client.net.transport import BearerAuth, asked_seconds

T = TypeVar("T")

log = logging.getLogger(__name__)

_CONNECT_SECONDS, _ANSWER_SECONDS = 10.0, 120.0  # the latter between two bytes
# A request that fails is made again at once or so, for two seconds in all: a missing server is told
# of soon.  Who can wait for a server that is away, calls `patiently`.
_ATTEMPTS, _AT_ONCE = 5, BackOff(least=0.1, most=10.0)
AWAY_PAUSES = BackOff(least=0.5, most=10.0, spread=0.5)
API = "/api/v1"
# Requests that are not idempotent; all others carry an idempotency key or name a state.
_NOT_REPEATABLE = (f"{API}/tokens", f"{API}/owners", f"{API}/overlay/tokens")


class Connection:
    """API of one server with one key.

    Every call may raise Refused or ServerAway; OutOfTime where `gridbot.reliable` sets a limit.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self.url = endpoint.url.rstrip("/")  # public URL, for messages
        self.signing_key = endpoint.signing_key
        self._address = endpoint.address.rstrip("/")
        self._http = requests.Session()
        if endpoint.key:
            self._http.auth = BearerAuth(endpoint.key)
        self._proxies = proxies_for(self._address)
        surroundings = Surroundings()
        self._without_token = session_without_token(surroundings)
        self._http.mount(self._address, LookingAdapter(surroundings.note_server))

    def get(self, path: str, **params: Any) -> Any:
        """JSON document at `path`."""
        return _json(self.request("GET", path, params=params))

    def send(
        self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> Any:
        """Send a JSON document and return the JSON document of the response."""
        return _json(self.request(method, path, json=body, headers=headers))

    def request(
        self, method: str, path: str, accept: tuple[int, ...] = (), **options: Any
    ) -> requests.Response:
        """Response, if it is a success or its status is in `accept`; otherwise raises.

        A content that the server does not send itself is fetched from where it says.
        """
        is_asked = method == "GET"
        follow = (*accept, HTTPStatus.TEMPORARY_REDIRECT) if is_asked else accept
        answer = self._request(method, API + path, follow, **options)
        there = self.redirection(answer) if is_asked else None
        if there is None:
            return answer
        answer.close()
        return self.elsewhere("GET", there, stream=options.get("stream", False))

    def redirection(self, answer: requests.Response) -> Redirection | None:
        """Where an answer leads for contents; None if nowhere."""
        try:
            return Redirection.read(answer)
        except BadRedirection as error:
            raise Refused(f"{self.url}: {error}") from None

    def elsewhere(self, method: str, there: Redirection, **options: Any) -> requests.Response:
        """Response of a place to which the server leads, to a request without our key."""
        timeout = _timeout()
        try:
            answer = self._without_token.request(
                method, there.url, timeout=timeout, allow_redirects=False, headers=there.headers,
                proxies=proxies_for(there.url), **options,
            )  # fmt: skip
        except ForbiddenAddress as error:
            raise Refused(f"{self.url}: {error}") from None
        except requests.RequestException as error:
            reliable.check()
            raise ServerAway(cannot_reach(f"//{there.host}", error)) from None
        if not 200 <= answer.status_code < 300:
            raise ServerAway(
                f"{there.host}, to which {self.url} leads: HTTP {answer.status_code}",
                asked_seconds(answer),
            )
        return answer

    def _request(
        self, method: str, path: str, accept: tuple[int, ...] = (), **options: Any
    ) -> requests.Response:
        times = 1 if path.startswith(_NOT_REPEATABLE) else _ATTEMPTS
        trying = reliable.trying(times=times, on=ServerAway, back_off=_AT_ONCE)
        return trying(self._asked)(method, path, accept, **options)

    def _asked(
        self, method: str, path: str, accept: tuple[int, ...], **options: Any
    ) -> requests.Response:
        timeout = _timeout()
        try:
            answer = self._http.request(
                method,
                self._address + path,
                timeout=timeout,
                allow_redirects=False,
                proxies=self._proxies,
                **options,
            )
        except OSError as error:  # those of requests are, too
            if not is_of_network(error):
                raise
            reliable.check()  # the wait for an answer may have been cut off
            raise ServerAway(cannot_reach(self.url, error)) from error
        if not 200 <= answer.status_code < 300 and answer.status_code not in accept:
            raise refusal(answer, self.url)
        return answer

    def health(self) -> Health:
        """What the server says of itself, which needs no key."""
        found: Health = _json(self._request("GET", "/health"))
        return found

    def close(self) -> None:
        """Close the sockets."""
        self._http.close()
        self._without_token.close()


def quiet(*_: object) -> None:
    """Callback that does nothing."""


def log_away(error: ServerAway) -> None:
    """Warn in Python's log, which is standard error by default, that a server is waited for."""
    log.warning("%s; waiting for the server", error)


def patiently(
    call: Callable[[], T],
    told: Callable[[ServerAway], None] = log_away,
    *,
    for_: float = math.inf,
    times: int | None = None,
) -> T:
    """Call, and again while the server is away: for ever, `for_` seconds or so many `times`.

    `for_` limits the call itself, too.  `told` gets the first error.  Raises the last one.
    """
    has_failed = False

    def tell(error: Exception, _: float) -> None:
        nonlocal has_failed
        if isinstance(error, ServerAway) and not has_failed:
            told(error)
        has_failed = True

    trying = reliable.trying(for_, times, on=ServerAway, back_off=AWAY_PAUSES, told=tell)
    try:
        return trying(call)()
    except reliable.OutOfTime:
        reliable.check()  # whether it was the limit of somebody around us
        raise ServerAway(f"the server did not answer in {for_:g} s") from None


def _timeout() -> tuple[float, float]:
    """Timeouts of a request, no longer than its caller has time.  Raises OutOfTime, Cancelled."""
    reliable.check()
    left = max(reliable.remaining(), 0.001)  # 0 has another meaning
    return min(_CONNECT_SECONDS, left), min(_ANSWER_SECONDS, left)


def refusal(answer: requests.Response, url: str) -> GridbotError:
    """Error for a response with a status other than 2xx."""
    body = _error_body(answer)
    if not body and answer.status_code < 500 and _should_have_body(answer):
        return Refused(strange_answer(url, answer, answer.content))
    detail = str(body.get("detail") or f"{url}: HTTP {answer.status_code} {answer.reason}")
    if body.get("error") == "PolicyError":
        return PolicyError(detail, str(body.get("pretty") or ""))
    if answer.status_code == 404:
        return NotFound(detail)
    if answer.status_code == 401:
        return Refused(f"{url} rejects the key: {detail}; log in with another: gridbot login {url}")
    if body.get("retry") or answer.status_code >= 500 or answer.status_code == 429:
        return ServerAway(detail, asked_seconds(answer))
    error, bot = str(body.get("error") or ""), body.get("bot")
    if error == "SubmitKeyUsed" and isinstance(bot, int):
        return KeyUsed(detail, error, bot)
    return Refused(detail, error)


def _should_have_body(answer: requests.Response) -> bool:
    """Whether a GridBot server would have told the reason of a refusal."""
    return answer.request.method != "HEAD" and answer.status_code != 429


def _error_body(answer: requests.Response) -> Mapping[str, Any]:
    try:
        body = answer.json()
    except requests.RequestException:
        return {}
    return body if isinstance(body, dict) else {}


def _json(answer: requests.Response) -> Any:
    try:
        return answer.json()
    except requests.RequestException:
        raise ServerAway(
            f"{answer.url}: the response is not JSON; is this the URL of a GridBot server?"
        ) from None
