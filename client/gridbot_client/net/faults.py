"""Why a server is not reached, or something else answers in its place, in words.  Pure."""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Iterator
from urllib.parse import urljoin, urlsplit

import requests

from gridbot_client.terminal import printable

_MOST_CHARACTERS = 200
_MOST_CAUSES = 20
# Begins the message of requests' OSError for a bundle of certificates that is not there.
_NO_BUNDLE = "Could not find a suitable TLS CA certificate bundle"
# X509_V_ERR_… of OpenSSL's x509_vfy.h.
_TOO_EARLY, _EXPIRED = 9, 10
_UNTRUSTED = frozenset({2, 18, 19, 20, 21, 27})
_OTHER_NAME = frozenset({62, 63, 64})
# What OpenSSL says of an answer that is no TLS, by version.
_NO_TLS = frozenset(
    {"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL", "RECORD_LAYER_FAILURE",
     "PACKET_LENGTH_TOO_LONG", "UNEXPECTED_EOF_WHILE_READING"}
)  # fmt: skip
# What TLS servers answer to plain HTTP: nginx and HAProxy, Apache, Go.
_ONLY_TLS = ("to https port", "ssl-enabled server port", "http request to an https server")


def cannot_reach(url: str, error: OSError) -> str:
    """Why a request to `url` got no answer, and where something can be done, what."""
    return f"cannot reach {url}: {_cause(url, error)}"


def is_of_network(error: OSError) -> bool:
    """Whether an error of a request is the network's or its settings', and not of a local file."""
    return isinstance(error, requests.RequestException) or str(error).startswith(_NO_BUNDLE)


def _cause(url: str, error: OSError) -> str:
    causes = list(_causes(error))
    if (text := str(error)).startswith(_NO_BUNDLE):
        path = text.rpartition(": ")[2]
        return (
            f"REQUESTS_CA_BUNDLE (or CURL_CA_BUNDLE) names {path}, which is not there; correct it"
        )
    for cause in causes:
        if isinstance(cause, ssl.SSLError):
            return _tls(url, cause)
    if isinstance(error, requests.exceptions.ProxyError):
        return (
            f"the proxy of this machine (HTTPS_PROXY, HTTP_PROXY) fails: {_system(causes)};"
            " for a server that needs none, add its name to NO_PROXY"
        )
    if any(isinstance(cause, socket.gaierror) for cause in causes):
        return f"there is no machine {urlsplit(url).hostname}, or no name server answers"
    if isinstance(error, requests.exceptions.ConnectTimeout):
        return "no connection in time; a firewall may keep this machine from it"
    if isinstance(error, requests.exceptions.Timeout):
        return "it is connected, but does not answer in time"
    ended = (http.client.RemoteDisconnected, http.client.BadStatusLine, ConnectionResetError)
    if any(isinstance(cause, ended) for cause in causes):
        hint = "; if it speaks TLS only, write https://" if url.startswith("http://") else ""
        return f"it ends the connection without an answer{hint}"
    return _system(causes)


def _tls(url: str, error: ssl.SSLError) -> str:
    if not isinstance(error, ssl.SSLCertVerificationError):
        reason = error.reason or "no reason told"
        if reason in _NO_TLS:
            plain = url.replace("https://", "http://", 1)
            return f"it does not speak TLS there; if that is right, write {plain}"
        return f"TLS fails: {reason.replace('_', ' ').lower()}"
    code = error.verify_code
    if code == _TOO_EARLY:
        return "its TLS certificate is not valid yet; is this machine's clock right?"
    if code == _EXPIRED:
        return "its TLS certificate has expired; is this machine's clock right?"
    if code in _OTHER_NAME:
        return f"its TLS certificate is not for the name {urlsplit(url).hostname}"
    if code in _UNTRUSTED:
        return (
            "its TLS certificate is signed by nobody whom this machine trusts; where the network"
            " inspects TLS, give its certificate: REQUESTS_CA_BUNDLE=FILE.pem"
        )
    return f"its TLS certificate is not valid: {error.verify_message}"


def strange_answer(url: str, response: requests.Response, body: bytes) -> str:
    """What something else than a GridBot server at `url` seems to be, by an answer of it."""
    code = response.status_code
    if place := response.headers.get("Location"):
        there = urljoin(response.url, place)
        if urlsplit(there).path == urlsplit(response.url).path:
            place = there.removesuffix(urlsplit(there).path)
            return f"{url} has moved to {_cut(place)}; give that URL"
        return (
            f"{url} leads to {_cut(there)}, which is no GridBot server; is it the login page of a"
            " network?"
        )
    if code == requests.codes.bad_request and _says_only_tls(body):
        return f"{url} speaks TLS only; write {url.replace('http://', 'https://', 1)}"
    return f"{url} is not a GridBot server: HTTP {code} without an error document"


def _says_only_tls(body: bytes) -> bool:
    text = body[:4096].decode("latin-1").lower()
    return any(words in text for words in _ONLY_TLS)


def _system(causes: list[BaseException]) -> str:
    """The operating system's words, or the class of the innermost exception."""
    told = [cause.strerror for cause in causes if isinstance(cause, OSError) and cause.strerror]
    return told[-1].lower() if told else type(causes[-1]).__name__


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An exception and those inside of it, outermost first, as requests and urllib3 nest them."""
    inner: BaseException | None = error
    for _ in range(_MOST_CAUSES):
        if inner is None:
            return
        yield inner
        held = [part for part in (getattr(inner, "reason", None), *inner.args)
                if isinstance(part, BaseException)]  # fmt: skip
        inner = held[0] if held else inner.__cause__ or inner.__context__


def _cut(text: str) -> str:
    return printable(text)[:_MOST_CHARACTERS]
