"""Finds the server and the key for commands without --server and --key-file."""

from __future__ import annotations

import ipaddress
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

# Names the file of a signing key, for CI and other machines without login.
SIGNING_KEY_VARIABLE = "GRIDBOT_SIGNING_KEY"


class NoServer(Exception):
    """No server or key is known; the message names the commands that set one."""


class WrongEndpoint(NoServer):
    """What was given is no URL, or a key file that cannot be read."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server's public URL, a key, and `local_url` if this machine reaches it by another URL.

    On the server's own machine the public URL may name a proxy that is not reachable from there.
    `signing_key` is the file of the key pair that signs the user's BOTs for this server.
    """

    url: str
    key: str
    local_url: str = ""
    signing_key: Path | None = None

    @property
    def address(self) -> str:
        """URL for requests."""
        return self.local_url or self.url


def find_server(server: str | None, key_file: Path | None) -> Endpoint:
    """Server from arguments, environment, login file, or this user's server on this machine.

    A key that belongs to one URL is never sent to another.  Raises NoServer.
    """
    url = server or os.environ.get("GRIDBOT_SERVER")
    if url and not is_url(url):
        raise WrongEndpoint(f"{url!r} is not a URL; write https://…")
    key = _read_key(key_file) if key_file else os.environ.get("GRIDBOT_KEY")
    if url and key:
        own = signing_key_beside(key_file) if key_file else None
        return Endpoint(_plain(url), key.strip(), signing_key=own or signing_key_path())
    for known in _known():
        if url is None or _plain(url) == known.url:
            return _with_key(known, key)
        if _plain(url) == known.local_url:
            return _with_key(replace(known, url=known.local_url, local_url=""), key)
    if url:
        raise NoServer(f"no key for {url}; add --key-file FILE, or save one: gridbot login {url}")
    raise NoServer(
        "no server is known; name one with --server URL and --key-file FILE, save one with"
        " gridbot login URL, or start one here with gridbot server start"
    )


def is_url(text: str) -> bool:
    """True if a text has the form of a server's URL."""
    return text.startswith(("http://", "https://"))


def is_loopback(url: str) -> bool:
    """Whether a URL names the machine that asks."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def proxies_for(url: str) -> dict[str, str]:
    """What `requests` is told of proxies: none for a server on this machine, which none reaches.

    For others the environment says which.
    """
    return {"no_proxy": urlsplit(url).hostname or ""} if is_loopback(url) else {}


def login_path() -> Path:
    """File that `gridbot login` writes, readable by the user only: URL, key, file that signs."""
    config = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(config) / "gridbot" / "login.json"


def signing_key_path() -> Path:
    """File of the key pair that signs this user's BOTs, unless the server is their own."""
    return login_path().with_name("signing.key")


def signing_key_beside(key_file: Path) -> Path | None:
    """This user's signing key in the folder of a key, as a server's data directory holds both."""
    beside = key_file.absolute().with_name("signing.key")
    return beside if _is_own(beside) else None


def remember_keys(place: Path) -> None:
    """Note that private keys of this user lie somewhere: no task of this user's clients sees it."""
    known = places_of_keys()
    if place.absolute() in known:
        return
    path = _places_path()
    with suppress(OSError):  # without a home there is no client that could look there
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = path.with_name(f"{path.name}.{os.getpid()}")
        fresh.write_text(json.dumps([str(found) for found in (*known, place.absolute())]))
        fresh.replace(path)


def places_of_keys() -> list[Path]:
    """Where private keys of this user lie, beside the usual places; what is gone is left out."""
    found: list[Path] = []
    with suppress(OSError, ValueError, TypeError):
        found = [Path(text) for text in json.loads(_places_path().read_text())]
    if chosen := os.environ.get(SIGNING_KEY_VARIABLE):
        found.append(Path(chosen).absolute())
    return [path for path in found if path.exists()]


def _places_path() -> Path:
    return login_path().with_name("keys.json")


def own_signing_keys(url: str) -> list[Path]:
    """Files of signing keys that this user has on this machine for the server at `url`."""
    known = [found.signing_key for found in _known() if url in (found.url, found.local_url)]
    return [path for path in known if path and _is_own(path)]


def data_directory(part: str) -> Path:
    """Default data directory of this user's `client`, `server` or `overlay`."""
    if chosen := os.environ.get("GRIDBOT_DATA"):
        return Path(chosen).absolute() / part
    if os.getuid() == 0:
        return Path("/var/lib/gridbot") / part
    share = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share"
    return Path(share) / "gridbot" / part


def _known() -> Iterator[Endpoint]:
    login = _own_json(login_path())
    if login and login.get("url") and login.get("key"):
        own = login.get("signing_key")
        signing_key = Path(own) if own else signing_key_path()
        yield Endpoint(_plain(login["url"]), login["key"], signing_key=signing_key)
    yield from filter(None, map(_local_server, _server_directories()))


def _server_directories() -> Iterator[Path]:
    if chosen := os.environ.get("GRIDBOT_DATA"):
        yield Path(chosen)
    yield data_directory("server")


def _local_server(data: Path) -> Endpoint | None:
    found, key = _own_json(data / "endpoint.json"), data / "operator.key"
    if not found or not found.get("url") or not _is_own(key):
        return None
    local_url = _plain(found.get("local_url", ""))
    return Endpoint(
        _plain(found["url"]), key.read_text().strip(), local_url, signing_key=data / "signing.key"
    )


def _with_key(known: Endpoint, key: str | None) -> Endpoint:
    """The endpoint with another key, which may be another person's: then with their signing key."""
    if key is None or key.strip() == known.key:
        return replace(known, key=known.key.strip())
    return replace(known, key=key.strip(), signing_key=signing_key_path())


def _own_json(path: Path) -> dict[str, str] | None:
    """Read a JSON object from this user's file; another user's file is not trusted."""
    if not _is_own(path):
        return None
    try:
        found = json.loads(path.read_text())
    except ValueError:
        raise NoServer(
            f"{path}: not valid JSON; delete it and log in again: gridbot login URL"
        ) from None
    return found if isinstance(found, dict) else None


def _is_own(path: Path) -> bool:
    try:
        return path.stat().st_uid == os.getuid() and os.access(path, os.R_OK)
    except OSError:
        return False


def _read_key(path: Path) -> str:
    try:
        return path.read_text()
    except OSError as error:
        raise WrongEndpoint(f"cannot read the key file {path}: {error.strerror}") from None


def _plain(url: str) -> str:
    return url.rstrip("/")
