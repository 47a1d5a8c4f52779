from __future__ import annotations

import pytest

from agent.addresses import is_public, lookup


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "1.1.1.1", "2606:4700:4700::1111", "64:ff9b::808:808"]
)
def test_addresses_of_everybody(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.8.8.8", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1"),
        *("169.254.169.254", "100.64.0.1", "192.0.0.1", "198.18.0.1", "224.0.0.1", "240.0.0.1"),
        *("255.255.255.255", "::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1", "fd00:ec2::254"),
        *("ff02::1", "2001:db8::1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1"),
        *("64:ff9b::a00:1", "64:ff9b:1::7f00:1", "2002:7f00:1::", "2002:a9fe:a9fe::1"),
        *("2001:0:0:0:0:0:80ff:fffe", "localhost", "", "8.8.8.8.8"),
    ],
)
def test_addresses_of_somebody(address: str) -> None:
    assert not is_public(address)


async def test_a_name_is_looked_up() -> None:
    assert "127.0.0.1" in await lookup("localhost", 80)
