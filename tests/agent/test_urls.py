"""Which URLs are read, and what their host is."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.errors import ToolFailed
from agent.urls import host_of, locate


@pytest.mark.parametrize(
    ("url", "read"),
    [
        ("https://example.com", "https://example.com/"),
        ("HTTP://Example.COM:80/a b".replace(" ", "%20"), "http://example.com/a%20b"),
        ("https://example.com.:8443/x?q=ü#part", "https://example.com:8443/x?q=%C3%BC"),
        ("https://bücher.example/日本", "https://xn--bcher-kva.example/%E6%97%A5%E6%9C%AC"),
        ("http://8.8.8.8/?a=%2F&b=/?", "http://8.8.8.8/?a=%2F&b=/?"),
        ("http://[2606:4700::1111]/", "http://[2606:4700::1111]/"),
        ("http://\uff11.\uff11.\uff11.\uff11/", "http://1.1.1.1/"),
        ("http://example。com/", "http://example.com/"),
        ("http://example.com。/", "http://example.com/"),
        ("http://1.1.1.1\uff0e/", "http://1.1.1.1/"),
    ],
)
def test_a_url_has_one_spelling(url: str, read: str) -> None:
    location = locate(url)
    assert location.url == read
    assert locate(location.url) == location
    assert host_of(url) == location.host


@pytest.mark.parametrize(
    "url",
    [
        "", "example.com", "//example.com", "ftp://example.com", "file:///etc/passwd", "data:,x",
        "javascript:alert(1)", "http://", "http:///x", "https://user@example.com",
        "https://user:pass@example.com", "https://example.com@evil.example", "https://:@example.com",
        "http://example.com\\@evil.example", "http://exa mple.com", "http://example.com/\nHost: x",
        "http://example.com/\0", "http://example.com/a\u202eb", "http://exam\u200bple.com",
        "http://example.com:99999", "http://example.com:x", "http://[::1", "http://[fe80::1%25eth0]x/",
        "http://2130706433", "http://0x7f000001", "http://0x7f.1", "http://127.1", "http://0177.0.0.1",
        "http://127.0.0.01", "http://1.2.3.4.5", "http://256.1.1.1", "http://0x", "http://\uff11\uff12\uff17.1",
        "http://%31%32%37.0.0.1", "http://..", "http://a..", "http://a.。", "http://a..b", "http://.a", "http://" + "a" * 300,
        "http://xn--\u0301", "http://example.com/" + "a" * 3000,
    ],
)  # fmt: skip
def test_what_only_looks_like_a_url_is_refused(url: str) -> None:
    with pytest.raises(ToolFailed):
        locate(url)


@settings(deadline=None, max_examples=50)
@given(st.text(max_size=60), st.sampled_from(["http://", "https://", ""]))
def test_whatever_is_read_reads_the_same_again(text: str, scheme: str) -> None:
    try:
        location = locate(scheme + text)
    except ToolFailed:
        return
    assert locate(location.url) == location
    assert location.url.isascii()
    assert location.host == location.host.lower()
    assert not location.host.endswith(".")
