"""The collected cases over HTTP."""

from __future__ import annotations

import pytest

from agent.errors import ProviderIncomplete, ProviderRefused, ProviderUnavailable
from agent.messages import (
    AssistantMessage,
    UserMessage,
)
from tests.support import cases
from tests.support.openai import ask, failure, provider, result, text


@pytest.mark.parametrize(
    "case",
    [name for name in cases.names("A") if cases.expected(name)["outcome"] in ("ok", "tool_error")],
)
async def test_a_collected_case_through_http(client, stub, case):
    right = cases.expected(case)
    _, reply = await ask(provider(client, stub.url(case)))
    assert text(reply).strip() in right.get("text_any_of", [right["text"].strip()])
    assert [block.name for block in AssistantMessage(blocks=reply.blocks).calls] == [
        wanted["name"] for wanted in right["tool_calls"]
    ]
    assert reply.finish_reason == right["finish_reason"]


@pytest.mark.parametrize(
    ("case", "kind", "code", "status"),
    [
        ("A20", ProviderIncomplete, "provider_incomplete", None),
        ("A39", ProviderUnavailable, "provider_overloaded", 503),
        ("A41", ProviderRefused, "provider_model", None),
        ("A43", ProviderUnavailable, "provider_rate_limited", 429),
        ("A45", ProviderRefused, "provider_auth", 401),
    ],
)
async def test_a_collected_failure_through_http(client, stub, case, kind, code, status):
    error = await failure(provider(client, stub.url(case)))
    assert (type(error), error.code, error.status) == (kind, code, status)
    assert cases.expected(case)["error"] is None or cases.expected(case)["error"].get(
        "contains", ""
    ) in str(error)


async def test_an_optional_field_is_given_up_for_a_strict_server(client, stub):
    target = provider(client, stub.url("A54"))
    assert (await failure(target)).adapted
    assert text((await ask(target))[1]) == "Without options."
    assert len(stub.run("A54").bodies) == 2


async def test_null_content_is_given_up_for_a_server_that_cannot_read_it(client, stub):
    target = provider(client, stub.url("A58"))
    _, reply = await ask(target)
    history = (UserMessage(text="Go"), AssistantMessage(blocks=reply.blocks), result("call_a"))
    assert (await failure(target, *history)).adapted
    assert text((await ask(target, *history))[1]) == "All done."


async def test_a_broken_call_goes_back_in_a_form_that_servers_accept(client, stub):
    for case in ("A13", "A15", "A17"):
        target = provider(client, stub.url(case))
        _, reply = await ask(target)
        history = (UserMessage(text="Go"), AssistantMessage(blocks=reply.blocks), result("call_a"))
        assert text((await ask(target, *history))[1]) == "All done."
