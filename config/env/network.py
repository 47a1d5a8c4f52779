"""Where we listen, how people reach us, and who may stand in front."""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Network, ip_network
from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured

from config.env.reader import Reader

Network = IPv4Network | IPv6Network
LOOPBACK = ("localhost", "127.0.0.1", "::1")


def address(env: Reader) -> tuple[str, int]:
    name = "PILOTHOUSE_PORT" if env.text("PILOTHOUSE_PORT") else "PORT"
    port = env.text(name, "8000")
    if not port.isdecimal() or not 0 < int(port) < 65536:
        raise ImproperlyConfigured(f"{name}: write a port number, not {port!r}.")
    return env.text("PILOTHOUSE_HOST", "127.0.0.1"), int(port)


def public_url(env: Reader, host: str, port: int) -> str:
    """Where browsers find us; by default, where `make run` listens."""
    reachable = "127.0.0.1" if host in ("0.0.0.0", "::") else host  # noqa: S104 - compared, not bound
    bracketed = f"[{reachable}]" if ":" in reachable else reachable
    url = env.url("PILOTHOUSE_PUBLIC_URL", f"http://{bracketed}:{port}")
    if url.startswith("http://") and urlsplit(url).hostname not in LOOPBACK:
        raise ImproperlyConfigured(
            "PILOTHOUSE_PUBLIC_URL: plain http is for loopback only; write the https:// address"
            " under which people reach this server."
        )
    return url


def proxies(env: Reader, public_url: str) -> tuple[Network, ...]:
    """With an https address there is a proxy in front, by default on this machine."""
    name = "PILOTHOUSE_TRUSTED_PROXIES"
    default = "127.0.0.0/8,::1" if public_url.startswith("https://") else ""
    found = []
    for text in filter(None, map(str.strip, env.text(name, default).split(","))):
        try:
            found.append(ip_network(text))
        except ValueError:
            message = f"{name}: write addresses or networks like 10.0.0.0/8, not {text!r}."
            raise ImproperlyConfigured(message) from None
    return tuple(found)


def hosts(env: Reader, public_url: str) -> list[str]:
    text = env.text("ALLOWED_HOSTS")
    if text:
        return [host.strip() for host in text.split(",") if host.strip()]
    host = urlsplit(public_url).hostname or ""
    own = f"[{host}]" if ":" in host else host
    return sorted({"localhost", "127.0.0.1", "[::1]", own})
