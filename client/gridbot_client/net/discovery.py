"""Finds the server and the key for commands without --server and --key-file."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path


class NoServer(Exception):
    """No server or key is known; the message names the commands that set one."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server's public URL, a key, and `local_url` if this machine reaches it by another URL.

    On the server's own machine the public URL may name a proxy that is not reachable from there.
    """

    url: str
    key: str
    local_url: str = ""

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
        raise NoServer(f"{url!r} is not a URL; write https://…")
    key = _read_key(key_file) if key_file else os.environ.get("GRIDBOT_KEY")
    if url and key:
        return Endpoint(_plain(url), key.strip())
    for known in _known():
        if url is None or _plain(url) == known.url:
            return replace(known, key=(key or known.key).strip())
        if _plain(url) == known.local_url:
            return Endpoint(known.local_url, (key or known.key).strip())
    if url:
        raise NoServer(f"no key for {url}; add --key-file FILE, or save one: gridbot login {url}")
    raise NoServer(
        "no server is known; name one with --server URL and --key-file FILE, save one with"
        " gridbot login URL, or start one here with gridbot server start"
    )


def is_url(text: str) -> bool:
    """True if a text has the form of a server's URL."""
    return text.startswith(("http://", "https://"))


def login_path() -> Path:
    """File that `gridbot login` writes: URL and key, readable by the user only."""
    config = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(config) / "gridbot" / "login.json"


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
        yield Endpoint(_plain(login["url"]), login["key"])
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
    return Endpoint(_plain(found["url"]), key.read_text().strip(), local_url)


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
        raise NoServer(f"cannot read the key file {path}: {error.strerror}") from None


def _plain(url: str) -> str:
    return url.rstrip("/")
