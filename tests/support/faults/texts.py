"""Faults of choices, text and framing."""

from __future__ import annotations

from tests.support.faults.streams import Fault, chunk, saying

TEXTS = [
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
