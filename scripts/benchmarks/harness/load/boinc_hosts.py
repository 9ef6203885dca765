"""The load's hosts as stock BOINC clients: the whole of a client's request, as 7.20.5 writes it.

Each request reports what the host got in the request before the last, holds what it got in the
last one, and asks for one job for each of its processors.  As on a real host, free disk space,
clock and habits are others in every request.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

PATH = "/boinc/scheduler"

_REQUEST = Path(__file__).with_name("boinc_request.txt").read_bytes()
_HEAD = (
    b"POST %b HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    b"User-Agent: BOINC client (x86_64-pc-linux-gnu 7.20.5)\r\nAccept: */*\r\n"
    b"Accept-Encoding: deflate, gzip, br, zstd\r\nContent-Length: %d\r\n"
    b"Content-Type: application/x-www-form-urlencoded\r\n\r\n"
)
OUTPUT = b"lod score 3.14159 at theta 0.05\n"
# How a success ends: the client's frame around what our script wrote to stderr, and its output.
_RESULT = b"""<result>
    <name>%(name)b</name>
    <final_cpu_time>0.000000</final_cpu_time>
    <final_elapsed_time>13.250000</final_elapsed_time>
    <exit_status>0</exit_status>
    <state>5</state>
    <platform>x86_64-pc-linux-gnu</platform>
    <version_num>%(version)b</version_num>
    <final_peak_working_set_size>5242880</final_peak_working_set_size>
    <final_peak_swap_size>9437184</final_peak_swap_size>
    <final_peak_disk_usage>14091</final_peak_disk_usage>
    <app_version_num>%(version)b</app_version_num>
<stderr_out>
<core_client_version>7.20.5</core_client_version>
<![CDATA[
<stderr_txt>
[gridbot stdout]
lod score 3.14159 at theta 0.05

[gridbot stderr]

[gridbot end reason= exit=0 cpu=0m12.310s+0m0.190s]

</stderr_txt>
]]>
</stderr_out>
<file_info>
    <name>%(name)b_0</name>
    <nbytes>%(size)d.000000</nbytes>
    <max_nbytes>67108864.000000</max_nbytes>
    <md5_cksum>%(md5)b</md5_cksum>
    <upload_url>http://127.0.0.1/boinc/file_upload_handler</upload_url>
</file_info>
</result>
"""
_VERSION = b"""<app_version>
    <app_name>%(app)b</app_name>
    <version_num>%(version)b</version_num>
    <platform>x86_64-pc-linux-gnu</platform>
    <avg_ncpus>1.000000</avg_ncpus>
    <flops>1000000000.000000</flops>
    <api_version>7.20.0</api_version>
</app_version>
"""
_OTHER = b"""    <other_result>
        <name>%b</name>
        <app_version>%d</app_version>
    </other_result>
"""

_MD5 = hashlib.md5(OUTPUT, usedforsecurity=False).hexdigest().encode()

_ID = re.compile(rb"<hostid>(\d+)</hostid>")
_KEY = re.compile(rb"<code_sign_key>[^<]*</code_sign_key>\n")
_GIVEN = re.compile(rb"<result>\n<name>([^<]+)</name>\n(?:<\w+>[^<]*</\w+>\n)*?<version_num>(\d+)<")
_APP = re.compile(rb"<app_version>\n<app_name>([^<]+)</app_name>\n<version_num>(\d+)<")
_ACK = b"<result_ack>"

_USUAL_VERSION = b"<app_version>\n<app_name>gridbot_ann</app_name>\n<version_num>1</version_num>\n"
_USUAL_RESULT = (
    b"<result>\n<name>gb_1_%d_1_1_abcdefghijklmnopqrstuvwx</name>\n<version_num>1</version_num>\n"
)


class NotServed(Exception):
    """The server's reply is not the one that a host of the load must get."""


@dataclass(frozen=True, slots=True)
class Job:
    """A replica that a host was given, with the number of its application's version."""

    name: bytes
    version: bytes


class BoincHost:
    """A client of an account; it is attached by its first request."""

    def __init__(self, number: int, authenticator: str) -> None:
        cpid = hashlib.md5(b"load %d" % number, usedforsecurity=False).hexdigest()
        self._lasting = {
            b"authenticator": authenticator.encode(),
            b"domain_name": b"node%d" % number,
            b"host_cpid": cpid.encode(),
        }
        self._id, self._key, self._seqno = b"0", b"", 0
        self._reported: Sequence[Job] = ()
        self._held: Sequence[Job] = ()
        self._got: Sequence[Job] = ()
        self._versions: dict[bytes, bytes] = {}  # number -> as it is listed

    def body(self, want: int) -> bytes:
        """Its next request."""
        self._reported, self._held = self._held, self._got
        listed = {version: place for place, version in enumerate(self._versions)}
        others = (_OTHER % (job.name, listed[job.version]) for job in self._held)
        # Twelve digits before the point, as of a disk of which most is free.
        free = 200_000_000_000 - (self._seqno * 7919 << 12) % (1 << 31)
        values: Mapping[bytes, bytes] = {
            **self._lasting,
            b"hostid": self._id,
            b"rpc_seqno": b"%d" % self._seqno,
            b"cpu_req_instances": b"%d.000000" % want,
            b"code_sign_key": self._key,
            b"cross_project_id": b"c" * 32,
            b"on_frac": b"0.9%05d" % (self._seqno % 100_000),
            b"now": b"%.6f" % time.time(),
            b"p_ncpus": b"%d" % want,
            b"d_free": b"%d.000000" % free,
            b"results": b"".join([_RESULT % _values(job) for job in self._reported]),
            b"app_versions": b"".join(self._versions.values()),
            b"others": b"".join(others),
        }
        self._seqno += 1
        return _REQUEST % values

    def hear(self, reply: bytes) -> int:
        """Take the reply in; return how many jobs it brought."""
        if reply.count(_ACK) != len(self._reported) or b"</scheduler_reply>" not in reply:
            raise NotServed(f"{len(self._reported)} were reported, the reply is {reply[:300]!r}")
        if found := _ID.search(reply):
            self._id, self._seqno = found[1], 0
        if key := _KEY.search(reply):
            self._key = key[0]
        for app, version in _APP.findall(reply):
            self._versions[version] = _VERSION % {b"app": app, b"version": version}
        self._got = [Job(*given) for given in _GIVEN.findall(reply)]
        return len(self._got)


def _values(job: Job) -> Mapping[bytes, object]:
    return {b"name": job.name, b"version": job.version, b"size": len(OUTPUT), b"md5": _MD5}


class BoincHosts:
    """Hosts that use one connection in turn."""

    def __init__(self, want: int, hosts: Sequence[BoincHost]) -> None:
        self._want, self._turns, self._host = want, cycle(hosts), hosts[0]

    def ask(self) -> bytes:
        """What the next host says."""
        self._host = next(self._turns)
        return posted(PATH, self._host.body(self._want))

    def hear(self, reply: bytes) -> int:
        """Let the host that asked take its reply."""
        return self._host.hear(reply)


def posted(path: str, body: bytes) -> bytes:
    """A request, head and body, as a client posts it."""
    return _HEAD % (path.encode(), len(body)) + body


def usual(jobs: int) -> bytes:
    """The body of a usual request, that reports so many jobs and holds as many."""
    host = BoincHost(0, "0123456789abcdef0123456789abcdef")
    results = (_USUAL_RESULT % seq for seq in range(jobs))
    reply = b"%b%b</scheduler_reply>" % (_USUAL_VERSION, b"".join(results))
    for _ in range(2):
        host.body(jobs)
        host.hear(reply)
    return host.body(jobs)
