"""Whose address a request has, whatever it claims."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_network

import pytest
from django.test import RequestFactory

from tasks.addresses import client_of, household

PROXIES = (ip_network("127.0.0.0/8"), ip_network("::1"), ip_network("10.0.0.0/24"))


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("192.0.2.1", "", "192.0.2.1"),
        ("192.0.2.1", "203.0.113.9", "192.0.2.1"),  # anybody can send that
        ("127.0.0.1", "203.0.113.9", "203.0.113.9"),
        ("127.0.0.1", "198.51.100.1, 203.0.113.9", "203.0.113.9"),  # the left was invented
        ("127.0.0.1", "198.51.100.1, 203.0.113.9, 10.0.0.7", "203.0.113.9"),
        ("127.0.0.1", "10.0.0.8, 10.0.0.7", "10.0.0.8"),
        ("127.0.0.1", "203.0.113.9, nonsense", "127.0.0.1"),
        ("127.0.0.1", "203.0.113.9, nonsense, 10.0.0.7", "10.0.0.7"),
        ("127.0.0.1", "", "127.0.0.1"),
        ("127.0.0.1", "203.0.113.9:4711", "203.0.113.9"),
        ("::1", "[2001:db8::7]:4711", "2001:db8::7"),
        ("::ffff:127.0.0.1", "::ffff:203.0.113.9", "203.0.113.9"),
        ("", "203.0.113.9", "203.0.113.9"),  # a Unix socket
        ("", "", ""),
        ("", "é", ""),
    ],
)
def test_the_client_s_address(settings, peer, forwarded, client):
    settings.PILOTHOUSE = replace(settings.PILOTHOUSE, trusted_proxies=PROXIES)
    headers = {"X-Forwarded-For": forwarded} if forwarded else {}
    assert client_of(RequestFactory().get("/", REMOTE_ADDR=peer, headers=headers)) == client


def test_nobody_is_trusted_unless_told(settings):
    request = RequestFactory().get("/", headers={"X-Forwarded-For": "203.0.113.9"})
    assert client_of(request) == "127.0.0.1"


@pytest.mark.parametrize(
    ("address", "counted"),
    [
        ("203.0.113.9", "203.0.113.9"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::1", "2001:db8:1:2::/64"),
        ("", ""),
    ],
)
def test_a_customer_with_many_addresses_is_one(address, counted):
    assert household(address) == counted
