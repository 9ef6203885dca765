"""The OpenID provider of this server, if there is one: what is asked of it, and what it proves.

The code flow of OpenID Connect Core 1.0, section 3.1, with PKCE (RFC 7636), state, nonce, and the
issuer in the answer (RFC 9207).  Authlib speaks the protocol; it is an extra, `gridbot[oidc]`.  An
account there is known by its subject alone, which never becomes somebody else's (section 5.7).
"""

from __future__ import annotations

import hmac
import secrets
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

import requests

from gridbot_server.errors import Forbidden, ServerBusy
from gridbot_server.overload.asking import bounded
from gridbot_server.settings import Settings, SettingsError

if TYPE_CHECKING:
    from authlib.integrations.requests_client import OAuth2Session

BACK = "/login/openid/back"  # where the provider sends browsers, exactly
_ASKING_SECONDS, _MOST_ANSWER_BYTES = 5.0, 256 << 10  # of a session, and of each answer
_AT_ONCE = 4  # log-ins that wait for it: others keep the threads
_NAMES_ITSELF = "authorization_response_iss_parameter_supported"  # in each answer (RFC 9207)
_KEPT_SECONDS, _LEAST_SECONDS = 3600.0, 30.0  # for which its keys are known, and between two looks
_LEEWAY_SECONDS = 60
_PLAIN = {"Accept": "application/json", "Accept-Encoding": "identity"}
_ALGORITHMS = ("RS256", "ES256", "PS256", "EdDSA")  # never one whose key is a shared secret
_MOST_CHARACTERS = 3000  # of a cookie, and of an answer's code
_MOST_PATH = 500  # characters; each takes three in a cookie at most


class LoginRefused(Forbidden):
    """What came back from the provider does not prove who somebody is."""


class ProviderAway(ServerBusy):
    """The provider does not answer, or not as it should."""


@dataclass(frozen=True, slots=True)
class PendingLogin:
    """A log-in that a browser began; a cookie of it holds this until it comes back."""

    state: str
    nonce: str
    verifier: str
    session: str  # proof of the session whose key is to be linked with who comes back; "": log in
    path: str  # where it wants to go

    @classmethod
    def begin(cls, path: str, session: str = "") -> PendingLogin:
        """Return one that nobody can foresee."""
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        return cls(state, nonce, verifier, session, path if len(path) <= _MOST_PATH else "/")

    def cookie(self) -> str:
        """Return it as text."""
        return ".".join(quote(part, safe="/") for part in astuple(self))

    @classmethod
    def of_cookie(cls, text: str) -> PendingLogin | None:
        """Return what a cookie says; None for one that we did not set."""
        parts = text.split(".", 4)
        if len(text) > _MOST_CHARACTERS or len(parts) != 5 or not all(parts[:3]):
            return None
        return cls(*map(unquote, parts))


class OpenIdProvider:
    """The provider that the settings name."""

    def __init__(self, issuer: str, client: str, secret: str, back: str) -> None:
        self.issuer = issuer
        self._client, self._secret, self._back = client, secret, back
        self._known = dict[str, tuple[float, dict[str, Any]]]()
        self._room = threading.BoundedSemaphore(_AT_ONCE)

    @classmethod
    def of(cls, settings: Settings) -> OpenIdProvider | None:
        """Return it; None if there is none.  Raises SettingsError where Authlib is missing."""
        if settings.oidc_issuer is None:
            return None
        if find_spec("authlib") is None:
            raise SettingsError("oidc_issuer needs Authlib: pip install 'gridbot[oidc]'")
        return cls(
            settings.oidc_issuer, settings.oidc_client_id, settings.oidc_client_secret,
            settings.url.rstrip("/") + BACK,
        )  # fmt: skip

    def address(self, login: PendingLogin) -> str:
        """Return where a browser goes to prove who it is.  Raises ProviderAway."""
        with self._asking():
            place = self._endpoint("authorization_endpoint")
        url: str
        with self._session() as session:
            url, _ = session.create_authorization_url(
                place, state=login.state, nonce=login.nonce, code_verifier=login.verifier
            )
        return url

    def subject(self, login: PendingLogin, answer: Mapping[str, str]) -> str:
        """Return who came back with an answer.  Raises LoginRefused and ProviderAway."""
        if not hmac.compare_digest(answer.get("state", "").encode(), login.state.encode()):
            raise LoginRefused("this log-in was not begun here: begin again")
        with self._asking():
            names_itself = self._description().get(_NAMES_ITSELF) is True
        if answer.get("iss", "" if names_itself else self.issuer) != self.issuer:
            raise LoginRefused("the answer is another provider's")
        code = answer.get("code", "")
        if not code or len(code) > _MOST_CHARACTERS:
            raise LoginRefused(f"the provider refuses: {_printable(answer.get('error', ''))}")
        with self._asking():
            token = self._exchanged(code, login.verifier)
            return self._proven(token, login.nonce)

    def _exchanged(self, code: str, verifier: str) -> str:
        """Return the ID token for a code."""
        from authlib.common.errors import AuthlibBaseError

        place = self._endpoint("token_endpoint")
        with self._session() as session, bounded(session, _ASKING_SECONDS, _MOST_ANSWER_BYTES):
            try:
                given = session.fetch_token(
                    place, code=code, code_verifier=verifier, allow_redirects=False
                )
            except (AuthlibBaseError, ValueError) as error:  # a refusal, or no JSON object
                said = _printable(f"{error}")
                raise LoginRefused(f"the provider takes back its answer: {said}") from None
        token = given.get("id_token")
        if not isinstance(token, str):
            raise LoginRefused("the provider does not say who it is")
        return token

    def _proven(self, token: str, nonce: str) -> str:
        """Return the subject of an ID token, once its signature and claims are found good."""
        from authlib.oidc.core import CodeIDToken
        from joserfc import jwt
        from joserfc.errors import InvalidKeyIdError, JoseError
        from joserfc.jwk import KeySet

        def decoded() -> jwt.Token:
            found = self._document(self._endpoint("jwks_uri"))
            return jwt.decode(token, KeySet.import_key_set(found), algorithms=_ALGORITHMS)

        options: dict[str, Any] = {
            "iss": {"essential": True, "value": self.issuer},
            "aud": {"essential": True, "value": self._client},
            "sub": {"essential": True},
            "nonce": {"essential": True, "value": nonce},
        }
        params = {"nonce": nonce, "client_id": self._client}
        try:
            try:
                found = decoded()
            except InvalidKeyIdError:  # the provider may have a new one
                self._known = {
                    url: known for url, known in self._known.items()
                    if time.monotonic() < known[0] + _LEAST_SECONDS
                }  # fmt: skip
                found = decoded()
            claims = CodeIDToken(found.claims, found.header, options, params)
            claims.validate(leeway=_LEEWAY_SECONDS)
            subject = claims["sub"]
        except (JoseError, ValueError, KeyError, TypeError) as error:
            raise LoginRefused(
                f"what the provider says is not good: {_printable(f'{error}')}"
            ) from None
        if not isinstance(subject, str) or not 0 < len(subject) <= 255:
            raise LoginRefused("the provider does not say who it is")
        return subject

    def _session(self) -> OAuth2Session:
        from authlib.integrations.requests_client import OAuth2Session

        found = OAuth2Session(
            self._client, self._secret or None, scope="openid", redirect_uri=self._back,
            code_challenge_method="S256",
            token_endpoint_auth_method="client_secret_basic" if self._secret else "none",
        )  # fmt: skip
        found.headers.update(_PLAIN)
        return found

    def _endpoint(self, name: str) -> str:
        """Return one of the provider's addresses."""
        found = self._description().get(name)
        if not isinstance(found, str) or not found.startswith(_scheme(self.issuer)):
            raise ProviderAway(f"{self.issuer} says no {name}")
        return found

    def _description(self) -> dict[str, Any]:
        """Return what the provider says of itself (OpenID Connect Discovery 1.0, section 4)."""
        found = self._document(f"{self.issuer.rstrip('/')}/.well-known/openid-configuration")
        if found.get("issuer") != self.issuer:
            raise ProviderAway(f"{self.issuer} describes another issuer")
        return found

    def _document(self, url: str) -> dict[str, Any]:
        """Return a JSON document of the provider's, which may be an hour old."""
        known = self._known.get(url)
        if known is not None and time.monotonic() < known[0] + _KEPT_SECONDS:
            return known[1]
        with requests.Session() as session, bounded(session, _ASKING_SECONDS, _MOST_ANSWER_BYTES):
            answer = session.get(url, headers=_PLAIN, allow_redirects=False)
        answer.raise_for_status()
        found = answer.json()
        if answer.status_code != requests.codes.ok or not isinstance(found, dict):
            raise ProviderAway(f"{url} is no document of a provider")
        self._known = {**self._known, url: (time.monotonic(), found)}
        return found

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Ask the provider; few threads do at once.  Raises ProviderAway."""
        if not self._room.acquire(blocking=False):
            raise ProviderAway("many log in just now: try again in a few seconds")
        try:
            yield
        except requests.RequestException as error:
            said = type(error).__name__
            raise ProviderAway(f"{self.issuer} does not answer as it should: {said}") from None
        finally:
            self._room.release()


def _scheme(url: str) -> str:
    return f"{url.partition('://')[0]}://"


def _printable(text: str) -> str:
    """The printable characters of what a provider says, a hundred at most."""
    return "".join(char for char in text if char.isprintable())[:100]
