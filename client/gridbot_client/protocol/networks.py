"""In which kind of network an IP address is, judged alike by client and server.

Sources: IANA's registries of special-purpose addresses (RFC 6890), RFC 1918, 3879, 4193 and 6598;
RFC 6052 and 8215 for NAT64, 3056 for 6to4, 4380 for Teredo.  Clouds give credentials away at
addresses of their own: AWS' fd00:ec2::254, Alibaba's 100.100.100.200, and
https://learn.microsoft.com/azure/virtual-network/what-is-ip-address-168-63-129-16.
"""

from __future__ import annotations

from enum import Enum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Address = IPv4Address | IPv6Address


class Network(Enum):
    """What an address leads to."""

    PUBLIC = "the open internet"
    PRIVATE = "a private network"
    LINK = "the local link or a cloud's own services"
    LOOPBACK = "the machine itself"
    OTHER = "no machine"  # multicast, reserved, documentation


_PRIVATE = tuple(
    ip_network(text)
    for text in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7",
                 "fec0::/10")
)  # fmt: skip
_CLOUDS = frozenset(
    map(ip_address, ("168.63.129.16", "100.100.100.200", "fd00:ec2::254", "fd20:ce::254"))
)
_NAT64 = IPv6Network("64:ff9b::/96")
_LOCAL_NAT64 = IPv6Network("64:ff9b:1::/48")  # where its operator likes; global to older Pythons
_THIS_HOST = IPv4Network("0.0.0.0/8")


def network_of(text: str) -> Network:
    """Judge an IP address.  Raises ValueError for a text that is none."""
    address = address_of(text)
    if address.is_loopback or address.is_unspecified or address in _THIS_HOST:
        return Network.LOOPBACK
    if address.is_link_local or address in _CLOUDS:
        return Network.LINK
    if any(address in network for network in _PRIVATE):
        return Network.PRIVATE
    is_global = address.is_global and address not in _LOCAL_NAT64
    if address.is_multicast or address.is_reserved or not is_global:
        return Network.OTHER
    return Network.PUBLIC


def address_of(text: str) -> Address:
    """Read an address; of an IPv4 address that an IPv6 one carries, that.  Raises ValueError."""
    address = ip_address(text.partition("%")[0])
    if isinstance(address, IPv4Address):
        return address
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    if address.teredo:
        return address.teredo[1]
    return address.ipv4_mapped or address.sixtofour or address
