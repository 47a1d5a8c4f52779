"""One line of a server -> a message of the protocol. Pure.

A server that answers with what is almost JSON-RPC has answered: whoever dropped its line would wait
for it until the time is over, and could not say whether the call had an effect. So an answer, and
nothing else, is read again without strictness: bytes that are no UTF-8, halves of emoji, NaN, a
batch of one, an error that is a text, a result that is none.
"""

from __future__ import annotations

import json
from typing import Any

from mcp.shared.message import SessionMessage
from mcp_types import INTERNAL_ERROR, jsonrpc_message_adapter

from agent.text import clean_json, cut

MAX_ERROR = 2000
"""Characters of an error that has no form."""


def message_of(line: bytes) -> SessionMessage | None:
    """None: nothing that somebody waits for."""
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError:
        return improper_answer(line)


def improper_answer(line: bytes) -> SessionMessage | None:
    """An answer that is almost JSON-RPC; None: not even that, or no answer."""
    answer = _answer(line) if b'"id"' in line else None
    if answer is None:
        return None
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_python(answer, by_name=False))
    except ValueError:
        return None  # its id is none


def _answer(line: bytes) -> dict[str, Any] | None:
    """What can be read of a line that is no proper message, if it answers something."""
    text = line.decode("utf-8-sig", "replace")
    try:
        said = clean_json(json.loads(text, parse_constant=lambda _: None, strict=False))
    except (ValueError, RecursionError):
        return None
    if isinstance(said, list) and len(said) == 1:
        said = said[0]
    if not isinstance(said, dict) or "method" in said:
        return None
    number = said.get("id")
    if isinstance(number, float) and number.is_integer():
        number = int(number)
    result, error = said.get("result"), said.get("error")
    if error is None and isinstance(result, dict):
        return {"jsonrpc": "2.0", "id": number, "result": result}
    return {"jsonrpc": "2.0", "id": number, "error": _error(error)}


def _error(said: Any) -> dict[str, Any]:
    """An error of any form; None: what came is no result either."""
    code = said.get("code") if isinstance(said, dict) else None
    message = said.get("message") if isinstance(said, dict) else said
    if not isinstance(message, str) or not message:
        whole = json.dumps(said, ensure_ascii=False)
        message = f"no reason, only {cut(whole, MAX_ERROR)}" if said else "its answer is no result"
    known = isinstance(code, int) and not isinstance(code, bool)
    return {"code": code if known else INTERNAL_ERROR, "message": cut(message, MAX_ERROR)}
