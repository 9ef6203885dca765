"""The friends of a client: their order and shares, in its folder."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict
from pathlib import Path
from urllib.parse import urlsplit

from gridbot_client.friends.lending import Friend
from gridbot_client.storage import Folder, read_json, write_atomically

_NO_NAME_CHARACTER = re.compile(r"[^A-Za-z0-9.-]")
_MOST_SHOWN = 40  # characters of a host in a name, which is in the paths of jobs


def friends_of(folder: Folder) -> tuple[Friend, ...]:
    """Friends of a client, in the order in which they are asked."""
    try:
        found = (read_json(_path(folder)) or {})["friends"]
        return tuple(
            Friend(str(item["name"]), str(item["url"]), int(item["share"])) for item in found
        )
    except (KeyError, TypeError, ValueError):
        return ()


def folder_of_friend(folder: Folder, friend: Friend) -> Folder:
    """Folder of the guest that works for a friend's server."""
    return Folder(folder.friends / friend.name)


def named(url: str, share: int = 100) -> Friend:
    """A friend by its server's URL.  No other URL gives the same name."""
    host = _NO_NAME_CHARACTER.sub("_", urlsplit(url).netloc)[:_MOST_SHOWN]
    return Friend(f"{host}-{hashlib.sha256(url.encode()).hexdigest()[:16]}", url, share)


def add_friend(folder: Folder, friend: Friend) -> None:
    """Add a friend behind the others, or give one that is there another share."""
    before = friends_of(folder)
    if any(item.name == friend.name for item in before):
        _save(folder, [friend if item.name == friend.name else item for item in before])
    else:
        _save(folder, [*before, friend])


def forget_friend(folder: Folder, url: str) -> Friend | None:
    """Ask a friend no more; a running client ends its guest within seconds.  None if unknown."""
    before = friends_of(folder)
    gone = next((item for item in before if item.url == url.rstrip("/")), None)
    if gone is not None:
        _save(folder, [item for item in before if item is not gone])
    return gone


def _save(folder: Folder, friends: list[Friend]) -> None:
    folder.friends.mkdir(mode=0o700, parents=True, exist_ok=True)
    document = {"friends": [asdict(item) for item in friends]}
    write_atomically(_path(folder), json.dumps(document, indent=1).encode())


def _path(folder: Folder) -> Path:
    return folder.friends / "friends.json"
