"""Faults of real servers, from public reports about other clients, and what is right.

Each has its source (repository#number). Streams are given as their payloads, or as bytes where the
framing is the fault.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from agent.errors import ProviderError
from agent.messages import (
    AssistantMessage,
    Message,
    Reasoning,
    Reply,
    Text,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from agent.providers import ModelRequest, ToolDefinition
from agent.providers.assembler import Assembler
from agent.providers.failures import failure_of, readable
from agent.providers.quirks import Quirks, learn
from agent.providers.reading import BodyReader
from agent.providers.wire import request_body

READ = ("read_file", {"path": "a.txt"})
ARGUMENTS = '{"path":"a.txt"}'


def chunk(finish: str | None = None, index: int = 0, **delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": index, "delta": delta, "finish_reason": finish}]}


def entry(arguments: Any = None, name: Any = None, **head: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {**head, "function": {key: item for key, item in function.items() if item is not None}}


def calling(*entries: dict[str, Any]) -> list[dict[str, Any]]:
    """Each entry in a chunk of its own, and the end."""
    return [*(chunk(tool_calls=[each]) for each in entries), chunk("tool_calls")]


def saying(*pieces: str) -> list[dict[str, Any]]:
    return [*(chunk(content=piece) for piece in pieces), chunk("stop")]


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A stream and the reply that it means."""

    source: str
    stream: list[Any] | bytes
    text: str = ""
    reasoning: str = ""
    calls: list[tuple[str, Any]] = field(default_factory=list)
    usage: tuple[int, int] | None = None
    finish: str = ""
    think_open: bool = False

    def body(self) -> bytes:
        if isinstance(self.stream, bytes):
            return self.stream
        payloads = [json.dumps(value) for value in self.stream]
        return "".join(f"data: {payload}\n\n" for payload in [*payloads, "[DONE]"]).encode()


FAULTS = [
    # ── tool calls ────────────────────────────────────────────────────────────────────────────
    Fault(
        source="BerriAI/litellm#12513: later fragments are named `null`",
        stream=calling(
            entry('{"path": "a', "read_file", index=0, id="x", type="FUNCTION"),
            entry('.txt"}', "null", index=0, id="", type="FUNCTION"),
        ),
        calls=[READ],
    ),
    Fault(
        source="ogx-ai/ogx#5462: an empty object stands before the real arguments",
        stream=calling(entry("{}", "read_file", index=0, id="x"), entry(ARGUMENTS, index=0)),
        calls=[READ],
    ),
    Fault(
        source="ogx-ai/ogx#5462, with the head repeated",
        stream=calling(
            entry("{}", "read_file", index=0, id="x"),
            entry(ARGUMENTS, "read_file", index=0, id="x"),
        ),
        calls=[READ],
    ),
    Fault(
        source="vllm-project/vllm#54964: arguments encoded twice",
        stream=calling(entry(json.dumps(ARGUMENTS), "read_file", index=0, id="x")),
        calls=[READ],
    ),
    Fault(
        source="quarkiverse/quarkus-langchain4j#2642: encoded thrice is no quirk any more",
        stream=calling(entry(json.dumps(json.dumps(ARGUMENTS)), "read_file", index=0, id="x")),
        calls=[("read_file", None)],
    ),
    Fault(
        source="vllm-project/vllm#54964: a text that only begins like an object",
        stream=calling(entry('"{hello world}"', "read_file", index=0, id="x")),
        calls=[("read_file", None)],
    ),
    Fault(
        source="QwenLM/qwen-code#3896: each fragment repeats the arguments so far",
        stream=calling(
            entry('{"pa', "read_file", index=0, id="x"),
            entry('{"path":"a', index=0),
            entry(ARGUMENTS, index=0),
        ),
        calls=[READ],
    ),
    Fault(
        source="poolsideai/pool#9: all fragments but the first have another id",
        stream=calling(
            entry("", "read_file", index=0, id="x"), *(entry(c, index=0, id="y") for c in ARGUMENTS)
        ),
        calls=[READ],
    ),
    Fault(
        source="tailcallhq/forgecode#1122: ids are numbers, names empty behind the first",
        stream=calling(
            entry("", "read_file", id=0),
            *(entry(each, "", id=0) for each in ('{"path":', '"a.txt"}')),
        ),
        calls=[READ],
    ),
    Fault(
        source="Effect-TS/effect-smol#2338: names are null behind the first",
        stream=b'data: {"choices":[{"delta":{"tool_calls":[{"index":0,"id":"x","function":'
        b'{"name":"read_file","arguments":null}}]}}]}\n\n'
        b'data: {"choices":[{"delta":{"tool_calls":[{"index":0,"id":null,"function":'
        b'{"name":null,"arguments":"{\\"path\\":\\"a.txt\\"}"}}]}}]}\n\n'
        b'data: {"choices":[{"delta":{},"finish_reason":"tool_calls"}]}\n\n',
        calls=[READ],
    ),
    Fault(
        source="vercel/ai#16507: the name comes after an empty one and after arguments",
        stream=calling(
            entry("", "", index=0, id="x"),
            entry('{"path":', index=0),
            entry("", "read_file", index=0),
            entry('"a.txt"}', index=0),
        ),
        calls=[READ],
    ),
    Fault(
        source="microsoft/semantic-kernel#9601: a name in pieces, its type with each",
        stream=calling(
            entry("", "read_", index=0, id="x", type="function"),
            entry("", "file", index=0, type="function"),
            entry(ARGUMENTS, index=0, type="function"),
        ),
        calls=[READ],
    ),
    Fault(
        source="kin of microsoft/semantic-kernel#9601: two names that are no pieces",
        stream=calling(
            entry("", "list_files", index=0, type="function"),
            entry(ARGUMENTS, "read_file", index=0, type="function"),
        ),
        calls=[("list_files", {}), READ],
    ),
    Fault(
        source="BerriAI/litellm#16188: parallel calls of one id, written side by side",
        stream=[
            chunk(
                tool_calls=[
                    entry("", "read_file", index=0, id="x"),
                    entry("", "list_files", index=1, id="x"),
                ]
            ),
            *calling(entry('{"path":', index=0), entry("{}", index=1), entry('"a.txt"}', index=0)),
        ],
        calls=[READ, ("list_files", {})],
    ),
    Fault(
        source="cubist38/mlx-openai-server#216: interleaved, told apart by index alone",
        stream=calling(
            entry("", "read_file", index=1, id="x"),
            entry("", "read_file", index=4, id="y"),
            entry('{"path":"b', index=4),
            entry('{"path":"a', index=1),
            entry('.txt"}', index=4),
            entry('.txt"}', index=1),
        ),
        calls=[READ, ("read_file", {"path": "b.txt"})],
    ),
    Fault(
        source="crewAIInc/crewAI#4461: content is null or empty beside the fragments",
        stream=[
            chunk(
                role="assistant", content=None, tool_calls=[entry("", "read_file", index=0, id="x")]
            ),
            chunk(content="", tool_calls=[entry(ARGUMENTS, index=0)]),
            chunk("tool_calls", content=None, tool_calls=[]),
        ],
        calls=[READ],
        finish="tool_calls",
    ),
    Fault(
        source="HKUDS/nanobot#1481: words in one choice, the call in the next",
        stream=[
            {
                "choices": [
                    {"index": 0, "message": {"content": "I look."}, "finish_reason": "tool_calls"},
                    {
                        "index": 1,
                        "message": {"tool_calls": [entry(ARGUMENTS, "read_file", id="x")]},
                        "finish_reason": "tool_calls",
                    },
                ]
            }
        ],
        text="I look.",
        calls=[READ],
    ),
    Fault(
        source="HKUDS/nanobot#1481, streamed",
        stream=[
            chunk(content="I "),
            chunk(content="look."),
            chunk(None, 1, tool_calls=[entry('{"path":', "read_file", index=0, id="x")]),
            chunk(None, 1, tool_calls=[entry('"a.txt"}', index=0)]),
            chunk("tool_calls"),
        ],
        text="I look.",
        calls=[READ],
    ),
    Fault(
        source="lidge-jun/opencodex#361: the arguments once more at the end",
        stream=calling(
            entry("", "read_file", index=0, id="x"),
            entry(ARGUMENTS, index=0),
            entry(ARGUMENTS, index=0),
        ),
        calls=[READ],
    ),
    Fault(
        source="RayBytes/ChatMock#114: a second finish reason contradicts the first",
        stream=[
            chunk(content="Let me look."),
            *calling(entry(ARGUMENTS, "read_file", index=0, id="x")),
            chunk("stop"),
        ],
        text="Let me look.",
        calls=[READ],
    ),
    Fault(
        source="open-webui/open-webui#29690: a call without any name is kept and answered",
        stream=calling(entry(ARGUMENTS, None, index=0, id="x")),
        calls=[("", {"path": "a.txt"})],
    ),
    Fault(
        source="earendil-works/pi#8858: fences are no arguments",
        stream=calling(entry(f"```json\n{ARGUMENTS}\n```", "read_file", index=0, id="x")),
        calls=[("read_file", None)],
    ),
    Fault(
        source="NousResearch/hermes-agent#79333: nor is an object with words behind it",
        stream=calling(entry(f"{ARGUMENTS} and so on", "read_file", index=0, id="x")),
        calls=[("read_file", None)],
    ),
    Fault(
        source="intrafind/ihub-apps#1802: `}{` in a text is text",
        stream=calling(entry('{"path":"}{"}', "read_file", index=0, id="x")),
        calls=[("read_file", {"path": "}{"})],
    ),
    Fault(
        source="experientiallabs/experiential#962: a filter ends the reply within a call",
        stream=[chunk(tool_calls=[entry(ARGUMENTS, "read_file", id="x")]), chunk("content_filter")],
        calls=[("read_file", None)],
        finish="content_filter",
    ),
    Fault(
        source="NousResearch/hermes-agent#24534: what looks like a call is text",
        stream=saying(
            "<|tool_calls_section_begin|><|tool_call_begin|>functions.read_file:0"
            "<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>"
        ),
        text="<|tool_calls_section_begin|><|tool_call_begin|>functions.read_file:0"
        "<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
    ),
    Fault(
        source="vllm-project/vllm#32506: and so are these",
        stream=saying('<tool_call>\n{"name": "read_file", "arguments": {}}\n</tool_call>'),
        text='<tool_call>\n{"name": "read_file", "arguments": {}}\n</tool_call>',
    ),
    Fault(
        source="kin of xorbitsai/inference#1215: the legacy field beside the new one is the same call",
        stream=[
            chunk(
                tool_calls=[entry(ARGUMENTS, "read_file", index=0, id="x")],
                function_call={"name": "read_file", "arguments": ARGUMENTS},
            ),
            chunk("function_call"),
        ],
        calls=[READ],
    ),
    # ── choices and text ──────────────────────────────────────────────────────────────────────
    Fault(
        source="microsoft/foundry-local#144: choices are numbered like chunks, and said twice",
        stream=[
            {
                "choices": [
                    {
                        "index": number,
                        "delta": {"role": "assistant", "content": piece, "tool_calls": []},
                        "message": {"role": "assistant", "content": piece, "tool_calls": []},
                        "finish_reason": None if number < 9 else "stop",
                    }
                ],
                "usage": None,
                "error": None,
            }
            for number, piece in enumerate(["The", " moon", " is", " far", ""], 5)
        ],
        text="The moon is far",
        finish="stop",
    ),
    Fault(
        source="microsoft/foundry-local#144: from the first chunk on",
        stream=[
            chunk(None if n < 2 else "stop", n, content=piece) for n, piece in enumerate("abc")
        ],
        text="abc",
    ),
    Fault(
        source="QwenLM/qwen-code#3896: each piece repeats the text so far",
        stream=saying("He", "Hello", "Hello wor", "Hello world"),
        text="Hello world",
    ),
    Fault(
        source="tashfeenahmed/freellmapi#1007: so does each piece of the reasoning",
        stream=[
            *(
                chunk(reasoning_content=piece)
                for piece in ("First", "First, look", "First, look up")
            ),
            *saying("Yes"),
        ],
        reasoning="First, look up",
        text="Yes",
    ),
    Fault(
        source="posit-dev/chatlas#435: equal pieces at the beginning are all meant",
        stream=saying("\n", "\n", "Here is the answer."),
        text="\n\nHere is the answer.",
    ),
    Fault(
        source="steipete/summarize#297: and so is a word that is said twice",
        stream=saying("repeat", "repeat"),
        text="repeatrepeat",
    ),
    Fault(
        source="QwenLM/qwen-code#3896: a text may begin with what grows by chance",
        stream=saying("ha", "haha", "! Very ", "funny"),
        text="hahaha! Very funny",
    ),
    Fault(
        source="go-kratos/blades#189: the last piece is everything once more",
        stream=[
            chunk(content="Hello"),
            chunk(content=" world"),
            chunk("stop", content="Hello world"),
        ],
        text="Hello world",
    ),
    Fault(
        source="abundantbeing/hermes-browser-extension#11: the same as a message",
        stream=[
            *(chunk(content=piece) for piece in ("Hello", " world")),
            {"choices": [{"message": {"content": "Hello world"}, "finish_reason": "stop"}]},
        ],
        text="Hello world",
    ),
    Fault(
        source="uezo/aiavatarkit#124: a choice without delta carries filter results",
        stream=[
            {"choices": [], "prompt_filter_results": [{"content_filter_results": {}}]},
            chunk(content="Hi"),
            {"choices": [{"index": 0, "finish_reason": None, "content_filter_offsets": {}}]},
            chunk("stop"),
        ],
        text="Hi",
    ),
    Fault(
        source="can1357/oh-my-pi#9433: `[DONE]` is an end without a finish reason",
        stream=[chunk(content="Hello"), {"choices": []}],
        text="Hello",
        finish="stop",
    ),
    Fault(
        source="earendil-works/pi#2468: null instead of a chunk",
        stream=[None, chunk(content="Hi"), None, chunk("stop")],
        text="Hi",
    ),
    # ── reasoning ─────────────────────────────────────────────────────────────────────────────
    Fault(
        source="open-webui/open-webui#9808: the template opened the reasoning",
        stream=saying("Okay, 12*3", " is 36.\n</th", "ink>\n\n36"),
        reasoning="Okay, 12*3 is 36.",
        text="36",
    ),
    Fault(
        source="open-webui/open-webui#9808, in a call",
        stream=[
            chunk(content="I should look.</think>"),
            *calling(entry(ARGUMENTS, "read_file", index=0, id="x")),
        ],
        reasoning="I should look.",
        calls=[READ],
    ),
    Fault(
        source="sgl-project/sglang#4539: a model that always thinks did not this time",
        stream=saying("It is", " 36."),
        text="It is 36.",
        think_open=True,
    ),
    Fault(
        source="linshenkx/prompt-optimizer#348: an answer about the tag is an answer",
        stream=saying("Close it with `</think>`, as ", "in `<think>x</think>`."),
        text="Close it with `</think>`, as in `<think>x</think>`.",
    ),
    Fault(
        source="microsoft/autogen#7009: many thoughts in a row",
        stream=saying("<think>One.", "</think><think>Two.</think>\n", "<think>Three.</think>Done."),
        reasoning="One.Two.Three.",
        text="Done.",
    ),
    Fault(
        source="kin of microsoft/autogen#7009: a thought between two parts of the answer",
        stream=saying("First.\n\n<think>Now", " what?</think>\n\nSecond."),
        reasoning="Now what?",
        text="First.\n\nSecond.",
    ),
    Fault(
        source="linshenkx/prompt-optimizer#348: in code the tag is code",
        stream=saying("So:\n```\n<think>x</think>\n```\nand <think>y</think> too"),
        text="So:\n```\n<think>x</think>\n```\nand <think>y</think> too",
    ),
    Fault(
        source="metabase/metabase#80959: limits and filters by other names",
        stream=[chunk(content="a"), chunk("MAX_TOKENS")],
        text="a",
        finish="length",
    ),
    Fault(
        source="kin of metabase/metabase#80959",
        stream=[chunk(content="a"), chunk("SAFETY")],
        text="a",
        finish="content_filter",
    ),
    Fault(
        source="MoonshotAI/kimi-code#3928: reasoning in two fields",
        stream=[
            *(chunk(content="", reasoning=t, reasoning_content=t) for t in ("The", " sum")),
            *saying("36"),
        ],
        reasoning="The sum",
        text="36",
    ),
    Fault(
        source="OpenRouterTeam/ai-sdk-provider#122: and in its details",
        stream=[
            chunk(
                content="",
                reasoning="Sum",
                reasoning_details=[{"type": "reasoning.summary", "summary": "Sum", "index": 0}],
            ),
            *saying("36"),
        ],
        reasoning="Sum",
        text="36",
    ),
    Fault(
        source="cita-777/metapi#32: reasoning is also written into the answer",
        stream=[
            *(chunk(content=t, reasoning_content=t) for t in ("Let me ", "think of it.")),
            *saying("\n\nIt is 36."),
        ],
        reasoning="Let me think of it.",
        text="It is 36.",
    ),
    Fault(
        source="kin of cita-777/metapi#32: an answer may begin as its reasoning did",
        stream=[
            chunk(reasoning_content="The capital is Paris"),
            *saying("The capital is Paris", "."),
        ],
        reasoning="The capital is Paris",
        text="The capital is Paris.",
    ),
    Fault(
        source="linshenkx/prompt-optimizer#348: a tag between words is a word",
        stream=saying("Use </think> to close it."),
        text="Use </think> to close it.",
    ),
    Fault(
        source="kin of infiniflow/ragflow#17292: all is well, it says",
        stream=[{"code": 0, "msg": "success", "choices": []}, *saying("a")],
        text="a",
    ),
    Fault(
        source="kekzl/imp#768: channels of gpt-oss",
        stream=saying(
            "<|channel|>analysis<|mess",
            "age|>Simple.<|end|><|start|>assistant",
            "<|channel|>final<|message|>Four.",
        ),
        reasoning="Simple.",
        text="Four.",
    ),
    Fault(
        source="vercel/ai#6715: other tags",
        stream=saying("[THI", "NK]Simple.[/THINK]\nFour."),
        reasoning="Simple.",
        text="Four.",
    ),
    Fault(
        source="BerriAI/litellm#16272: content is a list of thoughts, then of texts",
        stream=[
            chunk(content=""),
            chunk(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "Sim"}]}]),
            chunk(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "ple."}]}]),
            chunk(content=[{"type": "thinking", "thinking": [], "closed": True}]),
            chunk(content=[{"type": "text", "text": "Four."}]),
            chunk("stop", content=""),
        ],
        reasoning="Simple.",
        text="Four.",
    ),
    Fault(
        source="kin of UKGovernmentBEIS/inspect_ai#2389: reasoning is a part with a summary",
        stream=[
            chunk(
                content=[
                    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Simple."}]},
                    {"type": "text", "text": "Four."},
                ]
            ),
            chunk("stop"),
        ],
        reasoning="Simple.",
        text="Four.",
    ),
    # ── usage ─────────────────────────────────────────────────────────────────────────────────
    Fault(
        source="open-webui/open-webui#29064: usage grows from chunk to chunk",
        stream=[
            {**each, "usage": {"prompt_tokens": 10, "completion_tokens": n, "total_tokens": 10 + n}}
            for n, each in enumerate(saying("a", "b", "c"), 1)
        ],
        text="abc",
        usage=(10, 4),
    ),
    Fault(
        source="vercel/ai#2763: usage comes in parts",
        stream=[
            {**chunk(content="a"), "usage": {"prompt_tokens": 11, "total_tokens": 11}},
            chunk("stop"),
            {"choices": [], "usage": {"prompt_tokens": None, "completion_tokens": 7}},
        ],
        text="a",
        usage=(11, 7),
    ),
    Fault(
        source="router-for-me/CLIProxyAPI#3221: usage is null but in the last chunk",
        stream=[
            *({**each, "usage": None} for each in saying("a")),
            {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 1}},
            {"choices": [], "usage": None},
        ],
        text="a",
        usage=(3, 1),
    ),
    Fault(
        source="kin of router-for-me/CLIProxyAPI#3221: usage behind the end",
        stream=b'data: {"choices":[{"delta":{"content":"a"}}]}\n\ndata: [DONE]\n\n'
        b'data: {"choices":[{"delta":{"content":"b"}}],"usage":{"prompt_tokens":3,'
        b'"completion_tokens":1}}\n\ndata: {"broken\n\n',
        text="a",
        usage=(3, 1),
    ),
    Fault(
        source="zed-industries/zed#62983: counts inside it are null",
        stream=[
            *saying("a"),
            {
                "choices": [],
                "message": "",
                "usage": {
                    "prompt_tokens": 3,
                    "completion_tokens": 1,
                    "prompt_tokens_details": {"cached_tokens": None},
                },
            },
        ],
        text="a",
        usage=(3, 1),
    ),
    Fault(
        source="perplexityai/api-discussion#209: each chunk has the whole message as well",
        stream=[
            {"choices": [{"index": 0, "delta": {"content": new}, "message": {"content": whole}}]}
            for new, whole in (("He", "He"), ("llo", "Hello"), (" you", "Hello you"))
        ],
        text="Hello you",
    ),
    Fault(
        source="open-webui/open-webui#23921: a finish reason before anything is said",
        stream=[chunk("stop", content=""), *saying("Hello")],
        text="Hello",
    ),
    Fault(
        source="linagora/openrag#462: the last piece comes with the finish reason",
        stream=[chunk(content="Bon"), chunk("stop", content="jour"), chunk("stop", content=None)],
        text="Bonjour",
    ),
    Fault(
        source="rahilp/second-brain-cloudflare#353: `[DONE]` in a text",
        stream=saying("Keep [DONE] in ", "[DONE]", "this."),
        text="Keep [DONE] in [DONE]this.",
    ),
    # ── framing ───────────────────────────────────────────────────────────────────────────────
    Fault(
        source="anomalyco/opencode#27365: one line end between events",
        stream=b'data: {"choices":[{"delta":{"content":"a"}}]}\n'
        b'data: {"choices":[{"delta":{"content":"b"},"finish_reason":"stop"}]}\ndata: [DONE]\n',
        text="ab",
        finish="stop",
    ),
    Fault(
        source="SamSaffron/term-llm#454: one document in several data lines",
        stream=b'data: {"choices":[\ndata: {"delta":{"content":"a"}}\ndata: ]}\n\ndata: [DONE]\n\n',
        text="a",
    ),
    Fault(
        source="kin of SamSaffron/term-llm#487: CR alone ends lines, and a BOM begins the body",
        stream=b'\xef\xbb\xbfdata: {"choices":[{"delta":{"content":"a"}}]}\r\rdata: [DONE]\r\r',
        text="a",
    ),
    Fault(
        source="kin of SamSaffron/term-llm#487: a document behind a BOM",
        stream=b'\xef\xbb\xbf{"choices":[{"message":{"content":"a"},"finish_reason":"stop"}]}',
        text="a",
    ),
    Fault(
        source="lidge-jun/opencodex#793: the last event has no line end at all",
        stream=b'data: {"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}',
        text="a",
        finish="stop",
    ),
    Fault(
        source="kin of cline/cline#1786: `[DONE]` as JSON text",
        stream=b'data: {"choices":[{"delta":{"content":"a"}}]}\n\ndata: "[DONE]"\n\n',
        text="a",
    ),
    Fault(
        source="kin of agno-agi/agno#3868: a JSON array of chunks instead of a stream",
        stream=b'[{"choices":[{"index":0,"delta":{"content":"a"}}]}\n,\r\n'
        b'{"choices":[{"index":0,"delta":{"content":"b"},"finish_reason":"stop"}]}]',
        text="ab",
        finish="stop",
    ),
    Fault(
        source="ztjhz/BetterChatGPT#248: a document instead of a stream",
        stream=b'\n {"choices":[{"message":{"role":"assistant","content":"a"},"finish_reason":"stop"}]}',
        text="a",
    ),
    Fault(
        source="kin of earendil-works/pi#2466: NaN in probabilities, a raw line end in a text",
        stream=b'data: {"choices":[{"delta":{"content":"a\tb"},"logprobs":{"x":NaN},'
        b'"finish_reason":"stop"}]}\n\n',
        text="a\tb",
    ),
]


def read(body: bytes, cuts: int, **options: Any) -> tuple[Assembler, Reply]:
    """The body in pieces of `cuts` bytes."""
    numbers = itertools.count(1)
    tools = frozenset({"read_file", "list_files"})
    assembler = Assembler(1, lambda: f"b{next(numbers)}", tools=tools, **options)
    reader = BodyReader(assembler)
    for start in range(0, len(body), cuts):
        reader.feed(body[start : start + cuts])
    reader.close()
    return assembler, assembler.finish()[1]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.source.split(":")[0])
@pytest.mark.parametrize("cuts", [1, 7, 1_000_000])
def test_a_reported_stream_means_what_it_means(fault: Fault, cuts: int) -> None:
    _, reply = read(fault.body(), cuts, think_open=fault.think_open)
    texts = [block.text for block in reply.blocks if isinstance(block, Text)]
    thoughts = [block.text for block in reply.blocks if isinstance(block, Reasoning)]
    calls = [block for block in reply.blocks if isinstance(block, ToolCall)]
    assert "".join(texts) == fault.text
    assert "".join(thoughts) == fault.reasoning
    assert [(call.name, call.arguments) for call in calls] == fault.calls
    assert len({call.block_id for call in calls}) == len(calls)
    if fault.finish:
        assert reply.finish_reason == fault.finish
    if fault.usage:
        assert (reply.usage.input_tokens, reply.usage.output_tokens) == fault.usage
        assert not reply.usage.estimated


# ── failures ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("source", "body", "code", "words"),
    [
        (
            "fox1245/NeoGraph#124",
            b'data: {"error":"STREAM_EXPLODED"}\n\ndata: [DONE]\n\n',
            "provider_overloaded",
            "STREAM_EXPLODED",
        ),
        (
            "lucasjinreal/Crane#121",
            b'data: {"choices":[{"delta":{"content":"a"}}]}\n\ndata: error: out of memory\n\n'
            b"data: [DONE]\n\n",
            "provider_overloaded",
            "out of memory",
        ),
        (
            "SamSaffron/term-llm#454",
            b"event:error\ndata: upstream\ndata: timed out\n\ndata: [DONE]\n\n",
            "provider_overloaded",
            "upstream timed out",
        ),
        (
            "farzaa/clicky#132",
            b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error",'
            b'"message":"Overloaded"}}\n\n',
            "provider_overloaded",
            "Overloaded",
        ),
        (
            "dativo-io/talon#396: an error event named by its event line alone",
            b'event: error\ndata: {"reason":"x","msg":"no GPU left"}\n\ndata: [DONE]\n\n',
            "provider_overloaded",
            "no GPU left",
        ),
        (
            "infiniflow/ragflow#17292",
            b'{"choices":null,"base_resp":{"status_code":1002,"status_msg":"rate limit"}}',
            "provider_rate_limited",
            "rate limit",
        ),
        (
            "kin of infiniflow/ragflow#17292",
            b'data: {"code":500,"msg":"engine died","data":null}\n\n',
            "provider_overloaded",
            "engine died",
        ),
        (
            "preloop/preloop#117: text where a stream should be",
            b"Internal Server Error",
            "provider_incomplete",
            "only: Internal Server Error",
        ),
        (
            "open-webui/open-webui#29628: it just stops",
            b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n',
            "provider_incomplete",
            "broke off",
        ),
        (
            "s2-streamstore/s2-sdk-typescript#211: it stops within an event",
            b'data: {"choices":[{"delta":{"content":"a"}}]}\n\ndata: {"choices":[{"del',
            "provider_incomplete",
            "damaged",
        ),
    ],
)
@pytest.mark.parametrize("cuts", [1, 1_000_000])
def test_a_failure_inside_a_200_is_told(
    source: str, body: bytes, code: str, words: str, cuts: int
) -> None:
    with pytest.raises(ProviderError) as caught:
        read(body, cuts)
    assert caught.value.code == code
    assert words in str(caught.value)


OVERFLOWS = [
    "This model's maximum context length is 262144 tokens. However, you requested 0 output tokens",
    "You passed 99073 input tokens and requested 32000 output tokens. However, the model's context "
    "length is only 131072 tokens. Please reduce the length of the input prompt.",
    "Your input exceeds the context window of this model. Please adjust your input and try again.",
    "request (8588 tokens) exceeds the available context size (8192 tokens), try increasing it",
    "total message size 10176584 exceeds limit 2097152",
    "Invalid request: Your request exceeded model token limit: 131072 (requested: 140000)",
    "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
    "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
    "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease input",
    "prompt is too long: 210000 tokens > 200000 maximum",
    "Input is too long for requested model.",
    "prompt token count of 138000 exceeds the limit of 128000",
    "Range of input length should be [1, 98304]",
    "Prompt exceeds max length",
    "length of prompt_tokens must be less than max_seq_len",
    "Input validation error: `inputs` must have less than 4096 tokens. Given: 5000",
    "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000",
    "The decoder prompt (length 10034) is longer than the maximum model length of 8192.",
    "invalid params, context window exceeds limit (2013)",
    "tokens in request more than max tokens allowed",
    "输入长度超过模型上下文限制",
]


@pytest.mark.parametrize("words", OVERFLOWS)
def test_a_full_context_is_recognised_in_any_words(words: str) -> None:
    """earendil-works/pi#5930, anomalyco/opencode#17746, MoonshotAI/kimi-code#476 …"""
    body = {"error": {"message": words, "type": "invalid_request_error"}}
    assert failure_of(body, 400).code == "context_overflow"
    assert failure_of(body).code == "context_overflow"


@pytest.mark.parametrize(
    ("status", "words", "code"),
    [
        (
            400,
            "`max_tokens` must be less than or equal to `16384`, the maximum value for `max_tokens`"
            " is less than the `context_window` for this model",
            "provider_refused",
        ),
        (
            400,
            "max_tokens is too large: 100000. This model supports at most 4096",
            "provider_refused",
        ),
        (
            429,
            "Request too large for gpt-4o on tokens per min (TPM): Limit 1, Requested 9",
            "context_overflow",
        ),
        (429, "Rate limit reached for tokens per min. Limit 30000", "provider_rate_limited"),
        (413, "Payload Too Large", "context_overflow"),
        (400, "registry.ollama.ai/library/gemma3:4b does not support tools", "provider_tools"),
        (400, '"auto" tool choice requires --enable-auto-tool-choice to be set', "provider_tools"),
        (404, "No endpoints found that support tool use.", "provider_tools"),
        (400, "This model does not support parallel tool calls", "provider_refused"),
        (
            400,
            "Failed to call a function. Please adjust your prompt. See 'failed_generation'.",
            "provider_bad_call",
        ),
        (500, "error parsing tool call: raw='{\"a\"' err=unexpected end", "provider_bad_call"),
        (400, "API key not valid. Please pass a valid API key.", "provider_auth"),
        (401, "Incorrect API key provided. Tools are not supported", "provider_auth"),
        (403, "Your context length plan is forbidden", "provider_auth"),
        (
            400,
            "The response was filtered due to the prompt triggering Azure OpenAI's content "
            "management policy.",
            "provider_filtered",
        ),
        (429, "You exceeded your current quota, please check your plan", "provider_quota"),
        (429, "You exceeded your current quota. Please retry in 12.5s.", "provider_rate_limited"),
        (429, "余额不足或无可用资源包,请充值。", "provider_quota"),
        (502, "the content filter service is down", "provider_overloaded"),
    ],
)
def test_refusals_are_told_apart(status: int, words: str, code: str) -> None:
    """NousResearch/hermes-agent, pydantic/pydantic-ai#703, langchain4j/langchain4j#3475 …"""
    error = failure_of({"error": {"message": words}}, status)
    assert (error.code, bool(error.hint)) == (code, True)


@pytest.mark.parametrize(
    ("words", "seconds"),
    [
        ("Rate limit reached. Please try again in 1.5s. Visit", 1.5),
        ("Please try again in 20 seconds", 20),
        ("Please retry in 350ms", 0.35),
        ("wait 2 minutes", 120),
        ("retry after 99 min", 3600),
        ("try again later, 5 of you", None),
        ("slow down", None),
    ],
)
def test_a_wait_that_only_the_words_name_is_kept(words: str, seconds: float | None) -> None:
    error = failure_of({"error": {"message": words}}, 429)
    assert error.retry_after == seconds
    assert failure_of({"error": {"message": words}}, 429, 7.0).retry_after == 7.0


def test_an_error_that_comes_as_a_stream_is_read() -> None:
    body = b'event: error\ndata: {"error":{"message":"No such model","code":404}}\n\n'
    said, value = readable(body)
    assert (said, failure_of(value, 404).code) == ("", "provider_model")


# ── what servers want of a request ────────────────────────────────────────────────────────────

SCHEMA = {
    "type": "object",
    "properties": {"title": {"type": "string", "minLength": 1}},
    "additionalProperties": False,
}
TOOL = ToolDefinition(name="read_file", description="read", parameters=SCHEMA)


def called(model: str = "", **changes: Any) -> AssistantMessage:
    fields: dict[str, Any] = {
        "block_id": "c",
        "tool_call_id": "functions.read_file:0",
        "index": 0,
        "name": "read_file",
        "arguments": {"title": "a"},
    }
    blocks = (
        Reasoning(block_id="r", text="hm", provider_data={"reasoning_details": ["signed"]}),
        Text(block_id="t", text="Let me look."),
        ToolCall(**fields | changes),
    )
    return AssistantMessage(blocks=blocks, model=model)


HISTORY = (
    UserMessage(text="Go"),
    called(provider_data={"extra_content": {"google": {"thought_signature": "s"}}}),
    ToolMessage(tool_call_id="functions.read_file:0", name="read_file", content="AAA"),
    UserMessage(text="And?"),
)
Body = dict[str, Any]


def body_of(quirks: Quirks, history: Sequence[Message] = HISTORY) -> Body:
    request = ModelRequest(
        system="Be careful.", messages=history, tools=[TOOL], step=1, new_block_id=lambda: "b"
    )
    return request_body(request, "m", quirks, {"temperature": 0.2})


def results(body: Body) -> list[Body]:
    return [message for message in body["messages"] if message["role"] == "tool"]


def calls(body: Body) -> list[Body]:
    return [call for message in body["messages"] for call in message.get("tool_calls", ())]


def callers(body: Body) -> list[Body]:
    return [message for message in body["messages"] if "tool_calls" in message]


def follows(body: Body, first: str, second: str) -> bool:
    roles = [message["role"] for message in body["messages"]]
    return (first, second) in set(itertools.pairwise(roles))


@pytest.mark.parametrize(
    ("source", "refusal", "refuses", "learnt"),
    [
        (
            "NousResearch/hermes-agent#16478",
            "GenerateContentRequest.contents[2].parts[0].function_response.name: Name cannot be empty.",
            lambda body: any("name" not in each for each in results(body)),
            {"tool_names": True},
        ),
        (
            "su-kaka/gcli2api#200",
            "Tool message must have a 'name' field. The 'name' field is required.",
            lambda body: any("name" not in each for each in results(body)),
            {"tool_names": True},
        ),
        (
            "NousResearch/hermes-agent#19728",
            "Request contains an invalid argument.",
            lambda body: any("name" not in each for each in results(body)),
            {"tool_names": True},
        ),
        (
            "zed-industries/zed#37021",
            "Unexpected role 'user' after role 'tool'",
            lambda body: follows(body, "tool", "user"),
            {"alternate": True},
        ),
        (
            "OpenSecretCloud/maple-proxy#18",
            "messages.1.content.0.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'",
            lambda body: any(":" in call["id"] for call in calls(body)),
            {"short_ids": True},
        ),
        (
            "Laisky/one-api#60",
            'Invalid JSON payload received. Unknown name "additionalProperties" at '
            "'tools[0].function_declarations[0].parameters': Cannot find field.",
            lambda body: "additionalProperties" in body["tools"][0]["function"]["parameters"],
            {"plain_schemas": ("additionalProperties",)},
        ),
        (
            "abhigyanpatwari/GitNexus#43",
            "Missing `reasoning_content` field in the assistant message at message index 2.",
            lambda body: any("reasoning_content" not in each for each in callers(body)),
            {"reasoning_field": "reasoning_content"},
        ),
        (
            "langchain-ai/langchain#21196",
            "Assistant message must have either content or tool_calls, but not both.",
            lambda body: any(each["content"] for each in callers(body)),
            {"bare_calls": True},
        ),
        (
            "OpenMinis/OpenMinis#87",
            "body.messages.2.assistant.reasoning_details: Extra inputs are not permitted",
            lambda body: any("reasoning_details" in each for each in callers(body)),
            {"dropped": ("reasoning_details",)},
        ),
        (
            "kin of ollama/ollama#11131",
            "Unsupported value: 'temperature' does not support 0.2 with this model.",
            lambda body: "temperature" in body,
            {"dropped": ("temperature",)},
        ),
    ],
)
def test_what_a_refusal_asks_for_is_done(
    source: str, refusal: str, refuses: Callable[[Body], bool], learnt: dict[str, Any]
) -> None:
    body = body_of(Quirks())
    assert refuses(body)
    quirks = learn(Quirks(), refusal, body)
    assert quirks == Quirks(**learnt)
    assert not refuses(body_of(quirks))
    assert learn(quirks, refusal, body_of(quirks)) is None


@pytest.mark.parametrize(
    ("refusal", "filler"),
    [
        ("unsupported operand type(s) for +: 'NoneType' and 'str'", ""),
        ("messages.2: content must be a non-empty string", "…"),
        ("messages: text content blocks must be non-empty", "…"),
        ("messages.1.content: Input should be a valid string", ""),
    ],
)
def test_calls_without_words_get_a_content_that_the_server_takes(refusal: str, filler: str) -> None:
    call = called().blocks[-1]
    history = (HISTORY[0], AssistantMessage(blocks=(call,)), HISTORY[2])
    quirks = learn(Quirks(), refusal, body_of(Quirks(), history))
    assert quirks is not None
    assert callers(body_of(quirks, history))[0]["content"] == filler


def test_calls_of_another_model_get_the_signature_that_google_wants() -> None:
    """Gitlawb/openclaude#67, OpenHands/software-agent-sdk#1500"""
    history = (HISTORY[0], called("other"), *HISTORY[2:])
    refusal = "Function call is missing a thought_signature in functionCall parts."
    quirks = learn(Quirks(), refusal, body_of(Quirks(), history))
    assert quirks == Quirks(signatures=True)
    for messages, signature in ((history, "skip_thought_signature_validator"), (HISTORY, "s")):
        (call,) = calls(body_of(quirks, messages))
        assert call["extra_content"]["google"]["thought_signature"] == signature


def test_what_a_model_left_for_its_provider_goes_to_no_other() -> None:
    """earendil-works/pi#9048, huggingface/tau#557, langchain-ai/langchain#37756"""
    extra = {"extra_content": {"google": {"thought_signature": "s"}}}
    for model, own in (("", True), ("m", True), ("other", False)):
        body = body_of(Quirks(), (HISTORY[0], called(model, provider_data=extra), *HISTORY[2:]))
        (caller,), (call,), (result,) = callers(body), calls(body), results(body)
        assert ("reasoning_details" in caller) == ("extra_content" in call) == own
        assert (call["id"] == "functions.read_file:0") == own
        assert call["id"] == result["tool_call_id"]
        assert own or re.fullmatch(r"[a-zA-Z0-9_-]{1,40}", call["id"])


def test_a_property_may_be_named_like_a_keyword() -> None:
    said = "tools.0.function.parameters: title, minLength are not supported in a schema"
    quirks = learn(Quirks(), said, body_of(Quirks()))
    assert quirks == Quirks(plain_schemas=("minLength",))
    parameters = body_of(quirks)["tools"][0]["function"]["parameters"]
    assert parameters["properties"] == {"title": {"type": "string"}}
