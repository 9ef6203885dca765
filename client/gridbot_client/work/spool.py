"""The output spool: outputs and reports of replicas that have ended, until the server has them.

It gives the two promises of Kangaroo (Thain and others, HPDC 2001), one after the other:

*committed*: the outputs survive a crash, and the job need not run again.  A crash of the client
always; one of the machine, if the replica took so long that syncing costs little beside.  The
outputs of a shorter one may be lost with the machine; then they are never sent, and it runs again.

*pushed*: the outputs are at their destination.  Each upload is checked there by its hash; then the
report goes, and goes again until the server acknowledges it.  Errors on the way are time only.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Callable
from contextlib import suppress

from gridbot_client.filesystem import sync_directory
from gridbot_client.protocol.messages import Output, Report
from gridbot_client.work import outputs
from gridbot_client.work.slots import ReplicaSlot

# A report of a shorter replica is not synced to disk, which takes some hundredths of a second.
WORTH_SYNCING_SECONDS = 1.0


def commit(slot: ReplicaSlot, report: Report) -> None:
    """Keep a report and its outputs; when this returns, they are committed.  Raises OSError.

    The report comes last: while it is not there, the replica has not ended.
    """
    is_durable = report.wall_seconds >= WORTH_SYNCING_SECONDS
    if is_durable:
        _sync_outputs(slot, report)
        slot.sync()
    slot.save_report(report, durable=is_durable)


def recovered(slot: ReplicaSlot, go_on: Callable[[], None] = lambda: None) -> Report | None:
    """The report that an earlier run has committed; None if there is none.

    One that is torn, or of which an output is not whole, counts no more and is removed.  Reads all
    outputs, which may take minutes: `go_on` is called amid that, and may raise to end it.
    """
    report = slot.report()
    if report and all(_is_whole(slot, output, go_on) for output in report.outputs):
        return report
    with suppress(OSError):  # its replica runs again all the same
        slot.forget_report()
    return None


def _sync_outputs(slot: ReplicaSlot, report: Report) -> None:
    """Sync what is uploaded, and the folders that lead to it.

    What cannot be opened is left to the upload, which tells the server.
    """
    folders = set()
    for output in report.outputs:
        if output.content is not None:
            continue
        try:
            file = outputs.open_output(slot, output.name)
        except OSError:
            continue
        with file:
            os.fsync(file.fileno())
        path = outputs.path_of(slot, output.name)
        folders |= {folder for folder in path.parents if folder.is_relative_to(slot.work)}
    for folder in folders:
        with suppress(PermissionError):  # a task may close its folders
            sync_directory(folder)


def _is_whole(slot: ReplicaSlot, output: Output, go_on: Callable[[], None]) -> bool:
    if output.content is not None:
        return True
    try:
        with outputs.open_output(slot, output.name) as file:
            read = _Interruptible(file, go_on)
            return hashlib.file_digest(read, "sha256").hexdigest() == output.sha256
    except OSError:
        return False


class _Interruptible:
    """A file as `hashlib.file_digest` reads it; each time something is called, which may raise."""

    def __init__(self, file: io.BufferedReader, go_on: Callable[[], None]) -> None:
        self._file, self._go_on = file, go_on

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray) -> int:
        self._go_on()
        return self._file.readinto(buffer)
