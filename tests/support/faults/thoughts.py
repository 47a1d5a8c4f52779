"""Faults of reasoning and usage."""

from __future__ import annotations

from tests.support.faults.streams import ARGUMENTS, READ, Fault, calling, chunk, entry, saying

THOUGHTS = [
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
    Fault(
        source="vercel/ai#12425: reasoning is counted beside the answer, not in it",
        stream=[
            *saying("Yes"),
            {
                "choices": [],
                "usage": {
                    "prompt_tokens": 12,
                    "completion_tokens": 1,
                    "completion_tokens_details": {"reasoning_tokens": 386},
                    "total_tokens": 399,
                },
            },
        ],
        text="Yes",
        usage=(12, 387),
    ),
    Fault(
        source="promptfoo/promptfoo#9507: it is a part of it where the sum says so",
        stream=[
            *saying("Yes"),
            {
                "choices": [],
                "usage": {
                    "prompt_tokens": "500",
                    "completion_tokens": "500",
                    "completion_tokens_details": {"reasoning_tokens": 200},
                    "total_tokens": 1000,
                },
            },
        ],
        text="Yes",
        usage=(500, 500),
    ),
    Fault(
        source="earendil-works/pi#7441: usage is the only end",
        stream=b'data: {"choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":null}]}\n\n'
        b'data: {"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":5}}\n\n',
        text="Hi",
        usage=(10, 5),
        finish="stop",
    ),
]
