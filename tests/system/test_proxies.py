"""Requests for work that wait, behind the proxies that operators put in front of a server."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from tests.system.batch_systems import need
from tests.system.deployment import Deployment, answers, eventually, free_port
from tests.system.waiting_hosts import waiting

# What server/README.md asks of a proxy, and no more.
NGINX = """
daemon off; master_process off; pid {folder}/pid; error_log {folder}/errors;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass http://127.0.0.1:{server};
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header X-Forwarded-For $remote_addr;
        }}
    }}
}}
"""
HAPROXY = """
defaults
    mode http
    timeout connect 10s
    timeout client 60s
    timeout server 60s
    option abortonclose
frontend volunteers
    bind 127.0.0.1:{port}
    option forwardfor
    default_backend gridbot
backend gridbot
    server one 127.0.0.1:{server}
"""


@dataclass(frozen=True)
class Proxy:
    """A proxy that runs in front of the server."""

    port: int
    process: psutil.Process

    def connections_to(self, server: int) -> int:
        """How many it has to the server."""
        return sum(
            end.status == psutil.CONN_ESTABLISHED and end.raddr.port == server
            for end in self.process.net_connections("tcp")
        )


@pytest.fixture(params=["nginx", "haproxy"])
def proxy(request: pytest.FixtureRequest, running: Deployment, tmp_path: Path) -> Iterator[Proxy]:
    need(request.param, request.param)
    configuration, port = tmp_path / "configuration", free_port()
    command, text = {
        "nginx": (["nginx", "-p", str(tmp_path), "-c", str(configuration)], NGINX),
        "haproxy": (["haproxy", "-db", "-f", str(configuration)], HAPROXY),
    }[request.param]
    configuration.write_text(text.format(folder=tmp_path, port=port, server=running.port))
    search = {**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin"}
    with subprocess.Popen(command, env=search) as process:
        try:
            eventually(lambda: answers(port), what=f"{request.param} at its port")
            yield Proxy(port, psutil.Process(process.pid))
        finally:
            process.terminate()


def test_a_job_reaches_a_host_that_waits_behind_a_proxy(running: Deployment, proxy: Proxy) -> None:
    with waiting(running, "behind", port=proxy.port) as (host,):
        bot = running.submit("--", "true")
        assert [item["id"] for item in host.answer()["assignments"]] == [[bot, 0, 1]]


def test_a_host_that_hangs_up_behind_a_proxy_is_given_nothing(
    running: Deployment, proxy: Proxy
) -> None:
    with waiting(running, "gone", "there", port=proxy.port) as (gone, there):
        gone.wire.close()
        eventually(lambda: proxy.connections_to(running.port) == 1, what="the proxy's hang-up")
        bot = running.submit("--", "true")
        assert [item["id"] for item in there.answer()["assignments"]] == [[bot, 0, 1]]
        assert running.rows("SELECT count(*) FROM lease WHERE bot = %s", bot) == [(1,)]
