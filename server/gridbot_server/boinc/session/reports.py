"""From what a BOINC client reports to our reports: how each replica ended, and with which outputs.

BOINC's state and exit status do not suffice (an exit status of 197 may be the program's own, and
success says nothing of the uploads), so the client's words and the files that are here count too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from gridbot_client.protocol.messages import LOG_TAIL_BYTES, Output, Report
from gridbot_server.boinc.application.shim.ending import Ending, read_ending, signed_32
from gridbot_server.boinc.protocol.names import Lease, Names, output_number
from gridbot_server.boinc.protocol.request import FileInfo, Reported, SchedulerRequest
from gridbot_server.boinc.protocol.tags import unescape_bytes

# A client's state of a replica.
DOWNLOADING, COMPUTE_ERROR, UPLOADED, ABORTED, UPLOAD_FAILED = 1, 3, 5, 6, 7

_MOST_UTF8_BYTES = 4  # of a character
_MOST_WORDS = 4000  # characters of what the client itself says, looked at and kept
_EXITED = re.compile(r"(?:process exited with|- exit) code (-?\d{1,10})", re.ASCII)
_SIGNAL = re.compile(r"process got signal (\d{1,3})", re.ASCII)
_FILE_ERROR = re.compile(r"<error_code>\s*(-?\d{1,6})", re.ASCII)

# BOINC's numbers, in the client's words, as exit status, or for a state when all else is silent.
_REASONS: Mapping[int, str] = MappingProxyType(
    {
        -119: "input_corrupt",
        -120: "bad_signature",
        -123: "bad_signature",
        -131: "output_too_big",
        -161: "missing_output",
        -185: "start_failed",
        -186: "input_unavailable",
        -187: "upload_refused",
        -200: "input_corrupt",
        -224: "input_unavailable",
        -226: "no_finish_file",
        194: "aborted",
        196: "disk_limit",
        197: "time_limit",
        198: "memory_limit",
        199: "aborted",
        200: "not_started",
        201: "no_gpu",
        202: "aborted",
        203: "aborted_by_owner",
    }
)
_OF_STATE: Mapping[int, str] = MappingProxyType(
    {DOWNLOADING: "input_unavailable", ABORTED: "aborted", UPLOAD_FAILED: "upload_refused"}
)


class Stored(NamedTuple):
    """A file that was uploaded completely, and the outputs that it brought."""

    md5: str
    size: int
    outputs: list[Output]


class End(NamedTuple):
    """How a replica ended; `reason` is empty on success.

    Where the shim did not come to its end nobody knows the CPU time (the client's is 0 for
    programs that do not use BOINC's API): then the elapsed time stands for it, perhaps 0 as well.
    """

    lease: Lease
    reason: str
    exit_code: int | None
    cpu_seconds: float
    wall_seconds: float
    stdout: str
    stderr: str
    files: Mapping[int, FileInfo]  # the uploads as the client describes them, by number

    def report(self, optional: Sequence[bool], stored: Mapping[int, Stored]) -> Report:
        """Our report; a success whose uploads are not all here as described is an error.

        `optional` has an entry for each file that was to be uploaded, true if it may be missing.
        """
        reason = self.reason
        outputs: list[Output] = []
        for number, may_lack in enumerate(optional):
            said, kept = self.files.get(number), stored.get(number)
            reason = reason or _fault(said, kept, may_lack)
            if said and kept:
                outputs += kept.outputs
        return Report(
            id=self.lease.replica,
            how="error" if reason else "success",
            reason=reason,
            exit_code=self.exit_code,
            cpu_seconds=self.cpu_seconds,
            wall_seconds=self.wall_seconds,
            outputs=() if reason else tuple(outputs),
            stdout=self.stdout,
            stderr=self.stderr,
        )


@dataclass(frozen=True, slots=True)
class ReplicaStates:
    """What a request says of replicas.

    Every name in `acks` must be acknowledged, or the client repeats it for ever; `unknown` are
    names that it holds and that this server never gave, to be aborted.
    """

    acks: tuple[str, ...]
    ends: tuple[End, ...]
    holding: tuple[Lease, ...]
    unknown: tuple[str, ...]


def read_reports(request: SchedulerRequest, names: Names) -> ReplicaStates:
    """Sort what a client reports and holds; of a name reported twice, the first counts.

    A running replica that was aborted is reported again in a later request: its lease is gone by
    then, so the second report changes nothing.
    """
    reported = {item.name: item for item in reversed(request.reported)}
    acks = tuple(dict.fromkeys(item.name for item in request.reported))
    leases = {name: lease for name in acks if (lease := names.read_replica(name))}
    held = {name: names.read_replica(name) for name in request.held}
    return ReplicaStates(
        acks=acks,
        ends=tuple(read_end(reported[name], lease) for name, lease in leases.items()),
        holding=tuple(lease for name, lease in held.items() if lease and name not in leases),
        unknown=tuple(name for name, lease in held.items() if lease is None),
    )


def read_end(reported: Reported, lease: Lease) -> End:
    """Say in our words how a replica ended; the shim knows better than the client."""
    words, program = split_stderr(reported.stderr_out)
    reason, exit_code = _reason(reported, words)
    shim = read_ending(program) or Ending(
        "", None, reported.cpu_seconds or reported.elapsed_seconds, stderr=program
    )
    return End(
        lease,
        shim.reason or reason,
        exit_code if shim.exit_code is None else shim.exit_code,
        shim.cpu_seconds,
        reported.elapsed_seconds,
        _tail(shim.stdout),
        _tail("\n".join(filter(None, (shim.stderr, words)))),
        _uploads(reported.name, reported.files),
    )


def split_stderr(text: str) -> tuple[str, str]:
    """Split `stderr_out` into the client's own words and what the program wrote.

    The program may write whatever the client does, so what it wrote reaches from the first
    beginning to the last end.
    """
    inner = _cdata(text)
    before, _, rest = inner.partition("<stderr_txt>")
    program, ended, after = rest.rpartition("</stderr_txt>")
    if not ended:
        program, after = after, ""
    words = f"{before}\n{after}".replace("<message>", "").replace("</message>", "").strip()
    return words[:_MOST_WORDS], unescape_bytes(program).strip("\n")


def _cdata(text: str) -> str:
    """What is between the first beginning and the last end of a CDATA block."""
    inner = text.partition("<![CDATA[")[2].removeprefix("\n")
    trimmed = inner.rstrip()
    return (trimmed[:-3] if trimmed.endswith("]]>") else inner).removesuffix("\n")


def _reason(reported: Reported, words: str) -> tuple[str, int | None]:
    """Why it failed, empty if it did not, and the program's exit code as far as it had one."""
    status, state = reported.exit_status, reported.state
    if state == UPLOADED and status == 0:
        return "", 0
    if found := _SIGNAL.search(words):
        return "signal", -int(found[1])
    if found := _EXITED.search(words):
        return "exit_nonzero", signed_32(int(found[1]))
    for found in _FILE_ERROR.finditer(words):
        if reason := _REASONS.get(int(found[1])):
            return reason, 0 if state == COMPUTE_ERROR and status == 0 else None
    if reason := _REASONS.get(status) or _OF_STATE.get(state):
        return reason, None
    return ("exit_nonzero", signed_32(status)) if status else ("client_error", None)


def _uploads(replica: str, files: Sequence[FileInfo]) -> dict[int, FileInfo]:
    """The outputs of the replica of that name: only who knows it knows theirs."""
    named = ((output_number(replica, item.name), item) for item in files)
    return {number: item for number, item in named if number is not None}


def _fault(said: FileInfo | None, stored: Stored | None, may_lack: bool) -> str:
    """Why an upload of a success does not do; empty when it does, or need not be there."""
    if said is None:
        return "" if may_lack else "missing_output"
    if said.error:
        return "upload_refused"
    if stored is None:
        return "missing_output"
    return "" if (stored.md5, stored.size) == (said.md5, said.size) else "output_corrupt"


def _tail(text: str) -> str:
    if len(text) * _MOST_UTF8_BYTES <= LOG_TAIL_BYTES:
        return text
    return text.encode(errors="replace")[-LOG_TAIL_BYTES:].decode(errors="replace")
