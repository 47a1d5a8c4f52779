"""URLs that are what they look like. Pure: nothing is resolved here.

A URL is read once, strictly, and built anew from its parts, so that no second reader can see
another host in it. What only looks like a name or an address (decimal, octal and hexadecimal
numbers, credentials, backslashes, invisible characters) is refused, not repaired.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import quote, urljoin, urlsplit

import idna

from agent.errors import ToolFailed

MAX_URL = 2048
DEFAULT_PORTS = {"http": 80, "https": 443}

_UNSAFE = re.compile(
    r"[\x00-\x20\x7f-\xa0\\\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufeff\ud800-\udfff]"
)
_NETLOC = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[^\[\]:]+)(?::[0-9]{0,5})?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_SAFE_IN_PATH = "/%:@!$&'()*+,;=-._~"


@dataclass(frozen=True, kw_only=True)
class Location:
    """A URL that is what it looks like."""

    scheme: str
    host: str
    """ASCII, lower case, no dot at the end; an IPv6 address without brackets."""
    port: int
    target: str
    """Path and query, as they are sent."""

    @property
    def url(self) -> str:
        return self.origin + self.target

    @property
    def origin(self) -> str:
        """Without path and query, in which there may be secrets."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == DEFAULT_PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{host}{port}"

    @property
    def is_address(self) -> bool:
        """Whether the host is a number and not a name."""
        return ":" in self.host or _NUMBER.fullmatch(self.host.rpartition(".")[2]) is not None

    def redirected(self, to: str) -> Location:
        """Where a redirect from here leads. Raises ToolFailed."""
        try:
            return locate(urljoin(self.url, to))
        except ValueError as error:
            raise _refused("it cannot be read") from error


def locate(url: str) -> Location:
    """Read a URL. Raises ToolFailed with what is wrong with it."""
    if len(url) > MAX_URL or _UNSAFE.search(url):
        raise _refused("it is too long or has characters that do not belong there")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise _refused("it cannot be read") from error
    if parts.scheme not in DEFAULT_PORTS:
        raise _refused("only http:// and https:// are allowed")
    if "@" in parts.netloc:
        raise _refused("it carries a user name or a password")
    if not _NETLOC.fullmatch(parts.netloc):
        raise _refused("its host cannot be read")
    query = f"?{quote(parts.query, safe=_SAFE_IN_PATH + '?')}" if parts.query else ""
    return Location(
        scheme=parts.scheme,
        host=normal_host(parts.hostname or ""),
        port=port or DEFAULT_PORTS[parts.scheme],
        target=(quote(parts.path, safe=_SAFE_IN_PATH) or "/") + query,
    )


def host_of(url: str) -> str:
    """The normalised host of a URL, as policy rules know it. Raises ToolFailed."""
    return locate(url).host


def normal_host(host: str) -> str:
    """One spelling for one host: IDNA, lower case, no dot at the end. Raises ToolFailed."""
    if ":" in host:
        return _canonical(host)
    try:
        # The dot goes last: there are other characters that become one.
        name = idna.encode(host, uts46=True).decode("ascii").lower().removesuffix(".")
    except (idna.IDNAError, UnicodeError) as error:
        raise _refused("its host is not a name") from error
    if _NUMBER.fullmatch(name.rpartition(".")[2]):
        return _canonical(name)
    return name


def _canonical(text: str) -> str:
    """Four decimal numbers or plain IPv6: other ways to write an address are tricks."""
    try:
        return str(ip_address(text))
    except ValueError as error:
        raise _refused("its host is an address in a form that is not allowed") from error


def _refused(why: str) -> ToolFailed:
    return ToolFailed(
        f"This URL is refused: {why}. Write a plain one, such as https://example.com/page."
    )
