"""Where a request comes from: the client's address, also behind proxies that we trust.

Anybody can send `X-Forwarded-For`. It counts only from a peer in `PILOTHOUSE_TRUSTED_PROXIES`, and is
read from its right end, where our own proxies wrote, up to the first address that is not theirs.
A peer without an address is a Unix socket, where nobody but a proxy of this machine is.
"""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

from django.http import HttpRequest

from tasks.conf import conf

Address = IPv4Address | IPv6Address
_PORT = re.compile(r"\[(?P<six>[^\]]+)\](?::\d+)?|(?P<four>[^:]+)(?::\d+)?")


def client_of(request: HttpRequest) -> str:
    """The client's address; empty when nobody can tell (a Unix socket without a proxy's word)."""
    peer = _read(str(request.META.get("REMOTE_ADDR", "")))
    if peer is not None and not _trusted(peer):
        return str(peer)
    found = peer
    for hop in reversed(request.headers.get("X-Forwarded-For", "").split(",")):
        address = _read(hop)
        if address is None:
            break  # what stands before it was not written by our proxies
        found = address
        if not _trusted(address):
            break
    return "" if found is None else str(found)


def comes_from_proxy(request: HttpRequest) -> bool:
    """Whether what it says in X-Forwarded-… was written by a proxy that we trust."""
    peer = _read(str(request.META.get("REMOTE_ADDR", "")))
    return peer is None or _trusted(peer)


def household(address: str) -> str:
    """What is counted together: one IPv4 address; of IPv6 the /64 that one customer has."""
    found = _read(address)
    if isinstance(found, IPv6Address):
        return str(IPv6Network((found, 64), strict=False))
    return address


def _read(text: str) -> Address | None:
    plain = _PORT.fullmatch(text.strip())
    if plain is not None:
        text = plain["six"] or plain["four"]
    try:
        address = ip_address(text.strip())
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def _trusted(address: Address) -> bool:
    return any(address in network for network in conf().trusted_proxies)
