"""`gridbot data copy` and what belongs to it: files are placed by a queue, as jobs."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click

from gridbot import reliable
from gridbot.api.errors import BadInput
from gridbot.commands.options import as_json, print_json, say
from gridbot.placement.ads import (
    PlacementRequest,
    ReleaseRequest,
    ReserveRequest,
    TransferRequest,
    requests_of,
)
from gridbot.placement.filesystems import local_path
from gridbot.placement.places import FILE, DataPlace, pairs_of, place_of
from gridbot.placement.queue import DONE, ENDED, Placement, PlacementQueue
from gridbot.placement.serving import (
    PlacementLimits,
    QueueIsRun,
    are_ended,
    is_empty,
    locked,
    serve,
)
from gridbot.printing import counted
from gridbot_client.quantities import megabytes, seconds
from gridbot_client.terminal import printable

F = TypeVar("F", bound=Callable[..., Any])

_LOOK_SECONDS = 0.5
_MOST_BYTES = 1 << 20

QUEUE = click.option(
    "--queue",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    envvar="GRIDBOT_DATA_QUEUE",
    help="File that keeps the queue (~/.local/state/gridbot/placements).",
)


def _limits(function: F) -> F:
    usual = PlacementLimits()
    options = (
        click.option("--attempts", type=click.IntRange(1, 1000), default=usual.attempts,
                     show_default=True, help="Attempts until a copy has failed."),
        click.option("--at-once", type=click.IntRange(1, 1000), default=usual.at_once,
                     show_default=True, help="Copies at the same time."),
        click.option("--per-endpoint", type=click.IntRange(1, 1000), default=usual.per_endpoint,
                     show_default=True, help="Copies at the same time from or to one host."),
        click.option("--limit", default="10m", show_default=True,
                     help="Time that one attempt may take; the next goes on where it can."),
    )  # fmt: skip
    for option in reversed(options):
        function = option(function)
    return function


def _queue(file: Path | None) -> PlacementQueue:
    if file is None:
        state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
        file = Path(state).expanduser() / "gridbot" / "placements"
    return PlacementQueue(file.absolute())


def _made(attempts: int, at_once: int, per_endpoint: int, limit: str) -> PlacementLimits:
    try:
        return PlacementLimits(attempts, at_once, per_endpoint, seconds(limit))
    except ValueError as error:
        raise BadInput(f"--limit: {error}") from None


@click.command()
@click.argument("source")
@click.argument("destinations", metavar="DESTINATION...", nargs=-1, required=True)
@click.option("--alt", default="", metavar="PAIRS",
              help="Protocols of further attempts, in turn: ftp-file,http-file.")  # fmt: skip
@QUEUE
@_limits
@as_json
def copy(
    source: str, destinations: tuple[str, ...], alt: str, file: Path | None, attempts: int,
    at_once: int, per_endpoint: int, limit: str, as_json: bool,
) -> None:  # fmt: skip
    """Copy a file to one or more places, and wait until it is there.

    Places are paths and URLs: file, http(s), ftp, sftp, s3, webdav(s), and others that fsspec
    knows. SOURCE#sha256=… demands a content. A copy appears under its name when it is whole. What
    fails is tried again; what is interrupted goes on with `gridbot data serve`, or with the next
    copy. While it waits, this command also does what else is queued; limits are those of the
    process that does it.
    """
    place, sha256 = place_of(source)
    limits = _made(attempts, at_once, per_endpoint, limit)
    requests = [
        TransferRequest(_whole(place), _destination(place_of(to)[0]), pairs_of(alt), sha256)
        for to in destinations
    ]
    queue = _queue(file)
    numbers = [queue.add(request) for request in requests]
    _run_until(queue, limits, numbers)
    _end(queue, numbers, as_json)


def _whole(place: DataPlace) -> DataPlace:
    """A file's place with its whole path: the queue may be run in another folder."""
    return DataPlace(FILE, local_path(place)) if place.scheme == FILE else place


def _destination(place: DataPlace) -> DataPlace:
    """The same of a file that is to be written.  Raises BadInput for a folder."""
    whole = _whole(place)
    if whole.scheme == FILE and os.path.isdir(whole.rest):
        raise BadInput(f"{whole.rest} is a folder; name the file in it")
    return whole


@click.command()
@click.argument(
    "file_of_ads", metavar="FILE", type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@QUEUE
@as_json
def submit(file_of_ads: Path, file: Path | None, as_json: bool) -> None:
    """Queue what a file with ads of Stork asks for.

    `gridbot data serve` does it.

    \b
      [ dap_type = transfer; src_url = "ftp://a.example.org/x"; dest_url = "file:/tmp/x";
        alt_protocols = "http-file"; ]
    """
    if file_of_ads.stat().st_size > _MOST_BYTES:
        raise BadInput(f"{file_of_ads}: more than {_MOST_BYTES} bytes")
    try:
        requests, notes = requests_of(file_of_ads.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise BadInput(f"{file_of_ads}: {error}") from None
    queue = _queue(file)
    for note in notes:
        say(f"note: {printable(note)}")
    done = []
    for request in requests:
        done.append(found := _submitted(queue, request))
        if not as_json:  # each at once: a later one may be refused
            click.echo(" ".join(f"{name} {value}" for name, value in found.items()))
    if as_json:
        print_json(done)


def _submitted(queue: PlacementQueue, request: PlacementRequest) -> dict[str, int]:
    if isinstance(request, TransferRequest):
        source, destination = _whole(request.source), _destination(request.destination)
        return {"placement": queue.add(replace(request, source=source, destination=destination))}
    if isinstance(request, ReserveRequest):
        return {"reservation": _reserved(queue, request, None)}
    assert isinstance(request, ReleaseRequest)
    number = queue.reservation_named(request.name)
    queue.release(number)
    return {"released": number}


@click.command("serve")
@QUEUE
@_limits
@click.option("--until-empty", is_flag=True, help="End when nothing is left to do.")
def serve_queue(
    file: Path | None, attempts: int, at_once: int, per_endpoint: int, limit: str,
    until_empty: bool,
) -> None:  # fmt: skip
    """Do what is queued, until it is ended by a signal."""
    queue, limits = _queue(file), _made(attempts, at_once, per_endpoint, limit)
    with locked(queue):
        serve(queue, limits, _told, lambda: until_empty and is_empty(queue))


@click.command("queue")
@QUEUE
@click.option("--all", "ended_too", is_flag=True, help="Also those that have ended.")
@as_json
def show_queue(file: Path | None, ended_too: bool, as_json: bool) -> None:
    """List copies that have not ended, and reservations."""
    queue = _queue(file)
    found = [each for each in queue.all() if ended_too or each.state not in ENDED]
    if as_json:
        print_json({
            "placements": [_document(each) for each in found],
            "reservations": [vars(each) for each in queue.reservations()],
        })  # fmt: skip
        return
    for each in found:
        _told(each)
    for kept in queue.reservations():
        left = kept.until - time.time()
        click.echo(f"reservation {kept.id}: {kept.megabytes} MB at {kept.endpoint}, {left:.0f} s")


@click.command()
@click.argument("number", type=int)
@QUEUE
@as_json
def status(number: int, file: Path | None, as_json: bool) -> None:
    """Show one copy."""
    found = _queue(file).one(number)
    if as_json:
        print_json(_document(found))
    else:
        _told(found)


@click.command()
@click.argument("numbers", metavar="NUMBER...", nargs=-1, required=True, type=int)
@QUEUE
def remove(numbers: tuple[int, ...], file: Path | None) -> None:
    """End copies that have not ended.

    What was copied of them is not at its destination.
    """
    queue = _queue(file)
    for number in numbers:
        queue.one(number)
    for number in numbers:
        _told(queue.remove(number))


@click.command()
@click.argument("where", metavar="FOLDER|URL")
@click.argument("size")
@click.option("--for", "duration", default="1d", show_default=True, help="Time that it is kept.")
@click.option("--of", "total", help="Space that a URL's host has, which only you know.")
@QUEUE
def reserve(where: str, size: str, duration: str, total: str | None, file: Path | None) -> None:
    """Keep space for copies.

    Other reservations of this queue count against the same space.
    """
    place, _ = place_of(where.rstrip("/") or where)
    try:
        request = ReserveRequest(place, megabytes(size), seconds(duration))
        free = None if total is None else megabytes(total)
    except ValueError as error:
        raise BadInput(str(error)) from None
    number = _reserved(_queue(file), request, free)
    click.echo(f"reservation {number}: {request.megabytes} MB at {printable(place.shown)}")


@click.command()
@click.argument("number", type=int)
@QUEUE
def release(number: int, file: Path | None) -> None:
    """Give a reservation up before it expires."""
    _queue(file).release(number)
    click.echo(f"reservation {number} released")


PLACEMENT_COMMANDS = (copy, submit, serve_queue, show_queue, status, remove, reserve, release)


def _reserved(queue: PlacementQueue, request: ReserveRequest, free: int | None) -> int:
    where, endpoint = request.where, request.where.endpoint
    if where.scheme == FILE:
        folder = local_path(where)
        try:
            there = shutil.disk_usage(folder).free >> 20
        except OSError as error:
            raise BadInput(f"{folder}: {error.strerror}") from None
        endpoint, free = _mount_of(folder), there if free is None else min(free, there)
    if free is None:
        raise BadInput(
            f"{where.shown}: how much space there is cannot be asked; say it with --of SIZE"
        )
    return queue.reserve(endpoint, request.megabytes, request.seconds, free, request.name)


def _mount_of(folder: str) -> str:
    """Where the file system of a folder is mounted: its folders share the space."""
    while not os.path.ismount(folder):
        folder = os.path.dirname(folder)
    return folder


def _run_until(queue: PlacementQueue, limits: PlacementLimits, numbers: list[int]) -> None:
    """Run the queue until some placements have ended, or see another process do it."""
    ours = set(numbers)

    def told(placement: Placement) -> None:
        if placement.id in ours:
            _told(placement)

    while not are_ended(queue, numbers):
        try:
            with locked(queue):
                serve(queue, limits, told, lambda: are_ended(queue, numbers))
        except QueueIsRun:
            reliable.pause(_LOOK_SECONDS)


_PRINTING = threading.Lock()


def _told(placement: Placement) -> None:
    request = placement.request
    pair = placement.last_pair if placement.error else placement.pair
    what = (
        f"{placement.id} {placement.state}: {request.source.by(pair.source).shown} to"
        f" {request.destination.by(pair.destination).shown}"
    )
    if placement.state == DONE and placement.bytes is not None:
        what += f", {placement.bytes} bytes"
    if placement.attempts:
        what += f", {counted(placement.attempts, 'failed attempt')}"
    if placement.error and placement.state != DONE:
        what += f": {placement.error}"
    with _PRINTING:
        say(printable(what))


def _end(queue: PlacementQueue, numbers: Iterable[int], as_json: bool) -> None:
    found = [queue.one(number) for number in numbers]
    if as_json:
        print_json([_document(each) for each in found])
    if lost := [each.id for each in found if each.state != DONE]:
        raise click.ClickException(f"{counted(len(lost), 'copy')} failed, see above")


def _document(placement: Placement) -> dict[str, Any]:
    request = placement.request
    return {
        "id": placement.id,
        "source": request.source.shown,
        "destination": request.destination.shown,
        "state": placement.state,
        "failed_attempts": placement.attempts,
        "error": placement.error,
        "bytes": placement.bytes,
        "sha256": placement.sha256,
    }
