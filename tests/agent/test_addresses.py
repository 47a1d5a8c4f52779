from __future__ import annotations

from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.addresses import is_public, is_this_machine, lookup


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


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0", "10.1.2.3", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.255.255.254",
        "168.63.129.16", "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.192",
        "192.168.1.1", "192.88.99.1", "198.18.0.1", "203.0.113.7", "224.0.0.1", "239.255.255.255",
        "255.255.255.255", "::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:10.0.0.1",
        "::ffff:8.8.8.8", "64:ff9b::7f00:1", "64:ff9b:1::1", "100::1", "2001::1",
        "2001:db8::1", "2002:7f00:1::", "2002:808:808::", "3fff::1", "5f00::1", "fc00::1",
        "fd00:ec2::254", "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1", "2606:4700::1%eth0",
    ],
)  # fmt: skip
def test_more_addresses_of_somebody(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize(
    "address", ["1.1.1.1", "8.8.8.8", "172.32.0.1", "2606:4700::1111", "2a00::1"]
)
def test_more_addresses_of_everybody(address: str) -> None:
    assert is_public(address)


NAT64 = ip_network("64:ff9b::/96")
NOT_PUBLIC = ("private", "multicast", "reserved", "loopback", "link_local", "unspecified")


@given(st.ip_addresses())
def test_nothing_is_public_that_python_calls_private(address: object) -> None:
    found = ip_address(str(address))
    if is_public(str(found)) and found not in NAT64:  # there the address inside counts
        assert found.is_global
        assert not any(getattr(found, f"is_{kind}") for kind in NOT_PUBLIC)


@pytest.mark.parametrize("host", ["localhost", "a.localhost", "127.0.0.1", "127.8.8.8", "::1"])
def test_hosts_that_can_only_be_this_machine(host: str) -> None:
    assert is_this_machine(host)


@pytest.mark.parametrize("host", ["", "localhost.test", "mylocalhost", "10.0.0.1", "::2"])
def test_hosts_that_may_be_another_machine(host: str) -> None:
    assert not is_this_machine(host)
