"""Faults of tool calls."""

from __future__ import annotations

import json

from tests.support.faults.streams import ARGUMENTS, READ, Fault, calling, chunk, entry, saying

CALLS = [
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
    Fault(
        source="rhesis-ai/rhesis#2488: line ends and tabs in a text stand there as they are",
        stream=calling(
            entry('{"path":"a\n', "read_file", index=0, id="x"),
            entry('\tb"}', index=0),
            entry("{}", "list_files", index=0, id="y"),
        ),
        calls=[("read_file", {"path": "a\n\tb"}), ("list_files", {})],
    ),
    Fault(
        source="MoonshotAI/Kimi-K2#19: the model's own way to write a name",
        stream=calling(
            entry(ARGUMENTS, "functions.read_file:0", index=0, id="functions.read_file:0"),
            entry("{}", "list_files<|channel|>commentary", index=1, id="y"),
            entry("{}", "functions.forget:0", index=2, id="z"),
        ),
        calls=[READ, ("list_files", {}), ("functions.forget:0", {})],
    ),
]
