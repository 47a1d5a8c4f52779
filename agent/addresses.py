"""Which addresses of the network are everybody's: what may be asked on somebody's word.

Private, loopback, link-local and reserved addresses are not, nor what hides one: IPv4 inside IPv6
in any of its forms. Look a name up once and connect to what was judged, never to the name again.
"""

from __future__ import annotations

import asyncio
import socket
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

_NAT64 = (IPv6Network("64:ff9b::/96"), IPv6Network("64:ff9b:1::/48"))


async def lookup(host: str, port: int) -> list[str]:
    """The addresses of a name. Raises OSError."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in found]


def is_public(address: str) -> bool:
    """Whether the address, and every one that it carries inside, is open to everybody."""
    try:
        ip = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(ip, IPv6Address):
        inner = _inside(ip)
        if inner is not None:
            return _open(inner)
    return _open(ip)


def _inside(ip: IPv6Address) -> IPv4Address | None:
    if any(ip in network for network in _NAT64):
        return IPv4Address(int(ip) & 0xFFFFFFFF)
    if ip.teredo is not None:
        return ip.teredo[1]
    if int(ip) >> 32 == 0 and int(ip) > 1:  # ::a.b.c.d, an old form
        return IPv4Address(int(ip))
    return ip.ipv4_mapped or ip.sixtofour


def _open(ip: IPv4Address | IPv6Address) -> bool:
    return ip.is_global and not ip.is_multicast and not ip.is_reserved
