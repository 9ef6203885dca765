"""Claims about where servers may lead clients to, over real addresses of a network of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.containers import needed

# Runs in a network namespace: a server that leads to a store, and what a client got of it.
PROGRAM = """
import json, subprocess, sys, threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from gridbot.api.connection import Connection
from gridbot.api.errors import GridbotError
from gridbot_client.net.discovery import Endpoint
from gridbot_client.net.transport import Transport, TransportError

server, store, name = sys.argv[1:]
subprocess.run("ip link set lo up", shell=True, check=True)
for address in {server, store} - {"127.0.0.1"}:
    subprocess.run(["ip", "address", "add", address + "/32", "dev", "lo"], check=True)
asked = []

class Server(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(307)
        self.send_header("Location", f"http://{name}:8081/content")
        self.send_header("Content-Length", "0")
        self.end_headers()

class Store(BaseHTTPRequestHandler):
    def do_GET(self):
        asked.append(self.path)
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"me")

for place, port, kind in ((server, 8080, Server), ("", 8081, Store)):
    found = HTTPServer((place, port), kind)
    threading.Thread(target=found.serve_forever, daemon=True).start()
said = []
try:
    Transport(f"http://{server}:8080", "token").download(
        "2744ccd10c7533bd736ad890f9dd5cab2adb27b07d500b9493f29cdc420cb2e0", 2, Path("part"))
except TransportError as error:
    said.append(str(error))
try:
    Connection(Endpoint(f"http://{server}:8080", "key")).request("GET", "/files")
except GridbotError as error:
    said.append(str(error))
print(json.dumps({"asked": len(asked), "said": said}))
"""


def led(folder: Path, server: str, store: str, name: str = "") -> tuple[int, list[str]]:
    """How often the store was asked by both clients of such a server, and what they said."""
    needed("unshare")
    needed("ip")
    found = subprocess.run(
        ["unshare", "-r", "-n", sys.executable, "-c", PROGRAM, server, store, name or store],
        cwd=folder, capture_output=True, text=True, check=True, timeout=120,
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(folder)},
    )  # fmt: skip
    answer = json.loads(found.stdout)
    return answer["asked"], answer["said"]


@pytest.mark.parametrize(
    "store, name",
    [
        ("192.168.1.1", ""),
        ("127.0.0.1", "localhost"),
        ("169.254.169.254", ""),
        ("192.168.1.1", "[::ffff:192.168.1.1]"),
    ],
)
def test_a_server_of_the_internet_leads_nobody_into_their_own_network(
    tmp_path: Path, store: str, name: str
) -> None:
    asked, said = led(tmp_path, "8.8.4.4", store, name)
    assert (asked, len(said)) == (0, 2)
    assert all("an address inside of a network" in text for text in said)


def test_a_servers_network_may_hold_its_store(tmp_path: Path) -> None:
    places = [("8.8.4.4", "9.9.9.9"), ("10.0.0.5", "10.1.0.6"), ("127.0.0.1", "127.0.0.1")]
    for server, store in places:
        (folder := tmp_path / store).mkdir()
        assert led(folder, server, store) == (2, [])
    asked, said = led(tmp_path, "10.0.0.5", "127.0.0.1")
    assert (asked, len(said)) == (0, 2)
