"""What real servers write where one message of JSON-RPC belongs on a line, and what is made of it."""

from __future__ import annotations

from typing import Any

import pytest
from mcp_types import JSONRPCError, JSONRPCResponse

from agent.mcp.messages import improper_answer, message_of
from agent.mcp.results import answer_of

TEXT = b'{"content":[{"type":"text","text":"%s"}]}'


def answer(result: bytes, before: bytes = b'"jsonrpc":"2.0","id":7') -> bytes:
    return b"{%s,%s}" % (before, result)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (answer(b'"result":' + TEXT % b"a"), "a"),
        (answer(b'"result":' + TEXT % b"a") + b"\r", "a"),
        # cut in the middle of an emoji, as JavaScript does
        (answer(b'"result":' + TEXT % b"a\\ud83d"), "a\ufffd"),
        (answer(b'"result":' + TEXT % b"\\ud83d\\ude00"), "\U0001f600"),
        # written in another encoding
        (answer(b'"result":' + TEXT % b"caf\xe9"), "caf\ufffd"),
        (b"\xef\xbb\xbf" + answer(b'"result":' + TEXT % b"a"), "a"),
        (answer(b'"result":' + TEXT % b"a", b'"id":7'), "a"),
        (answer(b'"result":' + TEXT % b"a", b'"jsonrpc":"2.0","id":7.0'), "a"),
        (b"[" + answer(b'"result":' + TEXT % b"a") + b"]", "a"),
        (answer(b'"error":null,"result":' + TEXT % b"a"), "a"),
    ],
)
def test_an_answer_is_understood_as_far_as_it_can_be(line: bytes, text: str) -> None:
    found = message_of(line)
    assert found is not None
    assert isinstance(found.message, JSONRPCResponse)
    assert found.message.id == 7
    result: dict[str, Any] = found.message.result
    assert result["content"][0]["text"] == text


@pytest.mark.parametrize(
    ("rest", "code", "said"),
    [
        (b'"error":{"code":-32000,"message":"boom"}', -32000, "boom"),
        (b'"error":"boom"', -32603, "boom"),
        (b'"error":{"code":"E_X","message":"boom"},"result":null', -32603, "boom"),
        (b'"error":{"code":5}', 5, 'no reason, only {"code": 5}'),
        (b'"error":[1]', -32603, "no reason, only [1]"),
        (b'"result":null', -32603, "its answer is no result"),
        (b'"result":"done"', -32603, "its answer is no result"),
        (b'"error":"%s"' % (b"x" * 5000), -32603, "x" * 1999 + "…"),
    ],
)
def test_what_is_no_result_is_an_error_at_once(rest: bytes, code: int, said: str) -> None:
    found = message_of(answer(rest))
    assert found is not None
    assert isinstance(found.message, JSONRPCError)
    assert (found.message.error.code, found.message.error.message) == (code, said)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"Server listening on stdio",
        b'[info] "id" of the session: 7',
        b"\xff\xfe",
        b"null",
        b"[]",
        b'{"jsonrpc":"2.0","id":7,"res',
        b'{"jsonrpc":"2.0","id":true,"result":{}}',
        b'{"jsonrpc":"2.0","id":[7],"result":{}}',
        b'{"id":7,"method":"sampling/createMessage","params":"\\ud83d"}',
        b'[{"id":1,"result":{}},{"id":2,"result":{}}]',
        b'{"id":7,"result":' + b"[" * 100_000,
    ],
)
def test_what_answers_nothing_is_nothing(line: bytes) -> None:
    assert message_of(line) is None


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("plain", "plain"),
        ({"type": "text", "text": "one"}, "one"),
        ("", "(The tool answered nothing.)"),
        (7, "[A part that is not proper MCP is left out.]"),
        (None, "(The tool answered nothing.)"),
    ],
)
def test_content_that_is_no_list_is_not_lost(content: Any, text: str) -> None:
    assert answer_of({"content": content}, str).text == text


@pytest.mark.parametrize("asks", [b"", b'"id":1,'])
def test_only_an_answer_may_be_improper(asks: bytes) -> None:
    """A request with NaN, which the SDK would take, has not been through the sieve."""
    line = b'{"jsonrpc":"2.0",%s"method":"ping","params":{"x":NaN}}' % asks
    assert improper_answer(line) is None
    assert improper_answer(answer(b'"result":{"x":NaN}')) is not None
