"""A site whose nodes reach one port of the server, over a bad line, and whom nothing reaches."""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.system.batch_systems import call, need

from .networks import Door, inside, is_reached, listener, opened

DELAY_SECONDS = 0.06  # of a packet, in each direction
LOSS = 0.2  # the share of packets that vanish, in each direction
SERVER, _ROUTER, _GATEWAY, NODE = "10.50.0.1", "10.50.0.2", "10.60.0.1", "10.60.0.11"
_LAN = "10.60.0.0/24"
_LINE = "line"  # the device at both ends of the bad line
_PATIENCE_SECONDS = 8.0  # four times the chance to get through, if there is a way
# From Linux's if_tun.h: one packet a time, without a header.
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
_FIREWALL = """\
table inet firewall {{
    chain forward {{
        type filter hook forward priority 0; policy drop;
        ct state established,related accept
        iifname "lan" oifname "{line}" ip daddr {server} tcp dport {port} accept
        counter
    }}
    chain input {{
        type filter hook input priority 0; policy drop;
        counter
    }}
}}
table ip translation {{
    chain out {{
        type nat hook postrouting priority 100;
        oifname "{line}" masquerade
    }}
}}
"""


@dataclass(frozen=True)
class Site:
    """Three networks: the world with the server, the site's router, the site's nodes."""

    world: Path
    router: Path
    nodes: Path
    port: int

    @property
    def url(self) -> str:
        """Where the site's nodes find the server."""
        return f"http://{SERVER}:{self.port}"

    def leaks(self) -> Iterator[str]:
        """Try the ways that must be closed; yield those that are not."""
        other = self.port + 1 if self.port < 65_535 else self.port - 1
        with listener(self.nodes, (NODE, other)), listener(self.world, (SERVER, other)):
            if is_reached(self.world, (NODE, other), _PATIENCE_SECONDS):
                yield "the world reaches a node"
            if is_reached(self.nodes, (SERVER, other), _PATIENCE_SECONDS):
                yield "a node reaches another port of the server"


@contextmanager
def site(port: int, say: Callable[[str], None]) -> Iterator[Site]:
    """Make the site for a server that listens on the loopback address; nothing is left of it."""
    need("ip nft", "iproute2 nftables")
    with ExitStack() as stack:
        world, router, nodes = (
            stack.enter_context(_network(name)) for name in ("world", "router", "nodes")
        )
        made = Site(world, router, nodes, port)
        _join_lan(made)
        stack.enter_context(_bad_line(made, say))
        # A way into the site exists, so that nothing but the firewall keeps the world out.
        _ip(world, "route", "add", _LAN, "via", _ROUTER)
        _in(router, "sysctl", "-qw", "net.ipv4.ip_forward=1")
        _in(router, "nft", _FIREWALL.format(line=_LINE, server=SERVER, port=port))
        at, behind = (SERVER, port), ("127.0.0.1", port)
        stack.enter_context(opened(Door(outside=world, at=at, behind=behind)))
        yield made


@contextmanager
def _network(name: str) -> Iterator[Path]:
    full = f"gridbot-{os.getpid()}-{name}"
    call("ip", "netns", "add", full)
    made = Path("/run/netns") / full
    try:
        _ip(made, "link", "set", "lo", "up")
        yield made
    finally:
        call("ip", "netns", "delete", full)


def _join_lan(made: Site) -> None:
    ends = ("lan", "netns", made.router.name, "type", "veth", "peer", "name", "lan")
    call("ip", "link", "add", *ends, "netns", made.nodes.name)
    for network, address in ((made.router, _GATEWAY), (made.nodes, NODE)):
        _give(network, "lan", address)
    _ip(made.nodes, "route", "add", "default", "via", _GATEWAY)


@contextmanager
def _bad_line(made: Site, say: Callable[[str], None]) -> Iterator[None]:
    ends = [_device(network) for network in (made.world, made.router)]
    program = str(Path(__file__).with_name("slow_link.py"))
    carrier = subprocess.Popen(
        [sys.executable, program, *map(str, [*ends, DELAY_SECONDS, LOSS])],
        pass_fds=ends,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # ^C is no reason to go before the pilots do
    )
    for end in ends:
        os.close(end)
    try:
        for network, address in ((made.world, SERVER), (made.router, _ROUTER)):
            _give(network, _LINE, address)
        yield
    finally:
        carrier.terminate()
        said, _ = carrier.communicate()
        carried, lost = map(int, said.split())
        say(f"the line carried {carried} packets and lost {lost}: {lost / (carried + lost):.0%}")


def _device(network: Path) -> int:
    """Make one end of the line."""
    with inside(network):
        end = os.open("/dev/net/tun", os.O_RDWR)
        request = struct.pack("16sH22x", _LINE.encode(), _IFF_TUN | _IFF_NO_PI)
        fcntl.ioctl(end, _TUNSETIFF, request)
    return end


def _give(network: Path, device: str, address: str) -> None:
    _ip(network, "address", "add", f"{address}/24", "dev", device)
    _ip(network, "link", "set", device, "up")


def _ip(network: Path, *words: str) -> None:
    call("ip", "-netns", network.name, *words)


def _in(network: Path, *command: str) -> None:
    call("ip", "netns", "exec", network.name, *command)
