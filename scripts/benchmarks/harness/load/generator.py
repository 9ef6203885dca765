"""The load generator, a process of its own: hosts that report what they got and ask for more.

One thread, kept connections, and bodies joined from parts that were encoded before: what it costs
is told with the rest.  It takes a plan per line on stdin, warms the server up, says `ready`, and
at `go` measures and prints one line of figures; both are JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gridbot_client.protocol.messages import VERSION

from . import boinc_hosts, native_hosts
from .boinc_hosts import BoincHost, BoincHosts, NotServed
from .closed_loop import SILENT_SECONDS, Course, Line, LoadFailed, Talk, figures
from .native_hosts import Host, Hosts


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be measured: until `seconds` are over, or `requests` are answered."""

    port: int
    connections: int
    jobs_per_rpc: int
    seconds: float
    requests: int
    hosts: int = 0  # that take turns at the connections; 0: as many as connections
    path: str = native_hosts.PATH
    warm_up: int = 0  # requests before, at least one for each host
    tokens: Sequence[str] = ()  # of the hosts; () where the database was given theirs
    protocol: int = VERSION  # that they speak
    key: str = ""  # of the account to which the hosts belong, if they are BOINC clients

    def hosts_of(self, connection: int) -> range:
        """The numbers of the hosts that use a connection in turn."""
        return range(connection, max(self.hosts, self.connections), self.connections)


class Echo:
    """Sends one body of a usual size again and again: what HTTP alone costs."""

    def __init__(self, plan: Plan) -> None:
        self._jobs = plan.jobs_per_rpc
        usual = boinc_hosts.usual if plan.key else native_hosts.usual
        body = usual(self._jobs)
        self._request = native_hosts.head(plan.path, native_hosts.token(0)) % len(body) + body

    def ask(self) -> bytes:
        """The same as ever."""
        return self._request

    def hear(self, reply: bytes) -> int:  # noqa: ARG002  # there is nothing in it
        """As if it were the jobs asked for, so that nobody rests."""
        return self._jobs


class Load:
    """All hosts; they keep what they got from one plan to the next."""

    def __init__(self) -> None:
        self._hosts: dict[int, Host] = {}
        self._boinc_hosts: dict[int, BoincHost] = {}
        self._manifests: set[bytes] = set()

    def lines(self, plan: Plan) -> list[Line]:
        """Connect."""
        return [Line(plan.port, self.talk(plan, number)) for number in range(plan.connections)]

    def talk(self, plan: Plan, connection: int) -> Talk:
        """Whoever speaks on a connection."""
        numbers = plan.hosts_of(connection)
        if plan.path == boinc_hosts.PATH:
            known = self._boinc_hosts
            clients = [known.setdefault(number, BoincHost(number, plan.key)) for number in numbers]
            return BoincHosts(plan.jobs_per_rpc, clients)
        if plan.path != native_hosts.PATH:
            return Echo(plan)
        return Hosts(plan.jobs_per_rpc, [self._host(plan, number) for number in numbers])

    def _host(self, plan: Plan, number: int) -> Host:
        if number not in self._hosts:
            token = plan.tokens[number] if plan.tokens else native_hosts.token(number)
            self._hosts[number] = native_hosts.host(token, self._manifests, plan.protocol)
        return self._hosts[number]

    def measure(self, plan: Plan) -> Iterator[dict[str, Any]]:
        """Warm up and say so; when asked to go on, give the figures."""
        lines = self.lines(plan)
        try:
            Course(lines, max(plan.warm_up, plan.hosts, plan.connections), SILENT_SECONDS).run()
            yield {"ready": True}
            cpu, began = time.process_time(), time.perf_counter()
            tally = Course(lines, plan.requests, plan.seconds).run()
            seconds = time.perf_counter() - began
            yield figures(tally, seconds, time.process_time() - cpu)
        finally:
            for line in lines:
                line.socket.close()


def main() -> None:
    """Serve plans until there are no more; a failure is told and ends it."""
    load = Load()
    try:
        for plan in sys.stdin:
            for answer in load.measure(Plan(**json.loads(plan))):
                print(json.dumps(answer), flush=True)
                if "ready" in answer:
                    sys.stdin.readline()
    except (LoadFailed, NotServed, OSError) as error:
        print(json.dumps({"error": str(error)}), flush=True)
    except KeyboardInterrupt:
        sys.exit(1)  # whoever started us says what there is to say


if __name__ == "__main__":
    main()
