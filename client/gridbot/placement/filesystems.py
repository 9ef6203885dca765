"""File systems behind URLs, by fsspec, which knows where each keeps its credentials."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote, urlsplit

from gridbot.placement.places import FILE, DataPlace

# Web file systems speak HTTP.
_WEB = {"webdav": "http", "webdavs": "https"}
_KNOWN_HOSTS = "~/.ssh/known_hosts"


def opened(place: DataPlace) -> tuple[Any, str]:
    """The file system of a place, and the file's path in it.

    Raises OSError or ValueError, ImportError for a protocol whose package is not installed.
    """
    if place.scheme == FILE:
        return importlib.import_module("fsspec").filesystem(FILE), local_path(place)
    if place.scheme in _WEB:
        return _webdav(place)
    if place.scheme == "sftp":
        return _sftp(place)
    core = importlib.import_module("fsspec.core")
    found: tuple[Any, str] = core.url_to_fs(place.url)
    return found


def local_path(place: DataPlace) -> str:
    """Path of a place on this machine."""
    rest = place.rest.removeprefix("//") if place.rest.startswith("///") else place.rest
    return os.path.abspath(rest)


@contextmanager
def reading(scheme: str, system: Any, path: str, start: int) -> Iterator[IO[bytes]]:
    """Open a file to be read from a byte on to its end."""
    if scheme == "ftp":  # fsspec reads blocks and breaks each off, which servers do not bear
        data = system.ftp.transfercmd(f"RETR {path}", rest=start or None)
        with data, data.makefile("rb") as stream:
            yield stream
        system.ftp.voidresp()
        return
    with system.open(path, "rb") as stream:
        if start:
            stream.seek(start)
        yield stream


def _webdav(place: DataPlace) -> tuple[Any, str]:
    parts = urlsplit(place.url)
    fsspec = importlib.import_module("webdav4.fsspec")
    port = f":{parts.port}" if parts.port else ""
    base = f"{_WEB[place.scheme]}://{parts.hostname}{port}"
    auth = (unquote(parts.username), unquote(parts.password or "")) if parts.username else None
    return fsspec.WebdavFileSystem(base, auth=auth), parts.path.lstrip("/")


def _sftp(place: DataPlace) -> tuple[Any, str]:
    """SFTP to hosts that ~/.ssh/known_hosts names; fsspec would take any."""
    parts = urlsplit(place.url)
    paramiko = importlib.import_module("paramiko")
    sftp = importlib.import_module("fsspec.implementations.sftp")

    class KnownHostsOnly(sftp.SFTPFileSystem):  # type: ignore[name-defined,misc]
        cachable = False

        def _connect(self) -> None:
            self.client = paramiko.SSHClient()
            hosts = Path(_KNOWN_HOSTS).expanduser()
            if hosts.exists():
                self.client.load_host_keys(str(hosts))
            self.client.set_missing_host_key_policy(paramiko.RejectPolicy())
            self.client.connect(self.host, **self.ssh_kwargs)
            self.ftp = self.client.open_sftp()

    options: dict[str, Any] = {"port": parts.port or 22}
    if parts.username:
        options["username"] = unquote(parts.username)
    if parts.password:
        options["password"] = unquote(parts.password)
    return KnownHostsOnly(parts.hostname, **options), parts.path
