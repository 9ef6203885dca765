"""What an IP address leads to, and where a server may lead its clients."""

import pytest

from gridbot_client.net.surroundings import may_lead
from gridbot_client.protocol.networks import Network, network_of


@pytest.mark.parametrize(
    ("network", "addresses"),
    [
        (Network.PUBLIC, "93.184.216.34 2606:2800:220:1:248:1893:25c8:1946 64:ff9b::808:808"),
        (Network.PUBLIC, "2002:808:808::1 ::ffff:8.8.8.8"),
        (Network.PRIVATE, "10.1.2.3 172.16.0.1 192.168.1.1 100.64.0.1 fd00::1 fec0::1 feff::1"),
        (Network.PRIVATE, "::ffff:10.0.0.1 64:ff9b::a00:1 2002:a00:1::"),
        (Network.LINK, "169.254.169.254 fe80::1%eth0 168.63.129.16 100.100.100.200 fd00:ec2::254"),
        (Network.LINK, "::ffff:168.63.129.16 64:ff9b::a9fe:a9fe"),
        (Network.LOOPBACK, "127.0.0.1 127.8.8.8 0.0.0.0 0.1.2.3 :: ::1 ::ffff:127.0.0.1"),
        (Network.LOOPBACK, "64:ff9b::7f00:1 2002:7f00:1:: 2001:0:4136:e378:8000:63bf:80ff:fffe"),
        (Network.OTHER, "224.0.0.1 255.255.255.255 240.0.0.1 ff02::1 203.0.113.9 2001:db8::1"),
        (Network.OTHER, "::127.0.0.1 64:ff9b:1::1 64:ff9b:1:ffff::808:808 198.18.0.1"),
    ],
)
def test_an_address_is_judged_by_where_it_leads_however_it_is_written(
    network: Network, addresses: str
) -> None:
    assert {text: network_of(text) for text in addresses.split()} == dict.fromkeys(
        addresses.split(), network
    )


@pytest.mark.parametrize(
    ("server", "place", "is_fine"),
    [
        ("93.184.216.34", "8.8.8.8", True),
        ("93.184.216.34", "192.168.1.1", False),
        ("93.184.216.34", "fec0::1", False),
        ("93.184.216.34", "168.63.129.16", False),
        ("", "10.0.0.1", False),
        ("10.0.0.1", "10.0.0.2", True),
        ("10.0.0.1", "127.0.0.1", False),
        ("10.0.0.1", "169.254.169.254", False),
        ("fe80::1%eth0", "::1", False),
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1", "169.254.1.1", True),
    ],
)
def test_a_server_leads_into_no_network_that_it_is_not_in(
    server: str, place: str, is_fine: bool
) -> None:
    assert may_lead(server, place) is is_fine
