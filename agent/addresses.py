"""Which addresses of the network are everybody's: what may be asked on somebody's word.

Private, shared, loopback, link-local, metadata, multicast and reserved addresses are not, nor are
the IPv6 forms that stand for another address: only through NAT64's well-known prefix, by which some
networks reach everything, is the address inside judged. Look a name up once and connect to what was
judged, never to the name again.
"""

from __future__ import annotations

import asyncio
import socket
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network

_NAT64 = IPv6Network("64:ff9b::/96")
_PUBLIC_6 = ip_network("2000::/3")
"""All that is given out; mapped, translated, local and multicast forms lie outside."""
_SPECIAL = tuple(
    map(
        ip_network,
        (
            # this host, private, shared, loopback, link-local and metadata, tests, multicast, reserved
            "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16",
            "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24",
            "192.88.99.0/24", "192.168.0.0/16", "192.175.48.0/24", "198.18.0.0/15",
            "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
            "168.63.129.16/32",  # a cloud's own services, on a public number
            # Teredo and other protocols, documentation, 6to4
            "2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20",
        ),
    )
)  # fmt: skip


async def lookup(host: str, port: int) -> list[str]:
    """The addresses of a name. Raises OSError."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in found]


def is_this_machine(host: str) -> bool:
    """Whether a host of a URL, without brackets, can only be this machine."""
    if host == "localhost" or host.endswith(".localhost"):  # RFC 6761, section 6.3
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def is_public(address: str) -> bool:
    """Whether the address is open to everybody."""
    try:
        ip = ip_address(address)
    except ValueError:
        return False
    if isinstance(ip, IPv6Address):
        if ip in _NAT64:
            return _open(IPv4Address(int(ip) & 0xFFFFFFFF))
        return ip in _PUBLIC_6 and not ip.scope_id and _open(ip)
    return _open(ip)


def _open(ip: IPv4Address | IPv6Address) -> bool:
    return not any(ip in special for special in _SPECIAL)
