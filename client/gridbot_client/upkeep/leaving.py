"""A client leaves its server: gives back what it holds, and removes its keys and its folder."""

from __future__ import annotations

from contextlib import suppress

from gridbot_client.friends.roster import folder_of_friend, friends_of
from gridbot_client.net.transport import Transport, TransportError
from gridbot_client.storage import Folder
from gridbot_client.upkeep import background, service
from gridbot_client.work import containers, trees
from gridbot_client.work.images import Images


def leave(folder: Folder) -> str:
    """End the service and the client, tell the server, remove the folder; say what became of it.

    If the server does not answer, the client leaves all the same.  Other people's files in the
    folder stay, and so does the folder then.  Raises NotStopped, ServiceError, FolderBusy.
    """
    for is_system in (False, True):
        if service.runs(folder.path, is_system=is_system):
            service.uninstall(is_system=is_system)
    background.stop(folder)
    for friend in friends_of(folder):
        leave(folder_of_friend(folder, friend))
    with folder.lock():
        told = _tell(folder)
        images = Images.of(containers.found(), folder.containers, False)
        images.empty()
        images.close()
        for path in folder.contents():
            if path.is_dir() and not path.is_symlink():
                trees.remove(path)
            else:
                path.unlink(missing_ok=True)
    with suppress(OSError):  # not empty: others' files
        folder.path.rmdir()
    return told


def _tell(folder: Folder) -> str:
    """Give back what is unfinished; say how many, or why the server could not be told."""
    identity = folder.identity()
    if identity is None:
        return "it had joined no server"
    try:
        with Transport(identity.url, identity.token) as transport:
            given = transport.post_json("/api/v1/clients/self/leave", {})["replicas"]
    except TransportError as error:
        return (
            f"{identity.url} could not be told ({error}): it sends elsewhere what was held here,"
            " after the deadline"
        )
    return f"{identity.url} took back {given} unfinished"
