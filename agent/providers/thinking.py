"""Reasoning in odd places: `<think>` tags in the answer, and `reasoning_details`. Pure.

`ThinkSplitter` splits `<think>` off the beginning of an answer while it streams.

Only an opening tag before any other text counts: an answer that talks about the tag stays whole.
What might still become a tag is held back, nothing else, and `close()` gives it up.
"""

from __future__ import annotations

import re
from typing import Any

_OPEN = {
    "<think>": "</think>",
    "<thinking>": "</thinking>",
    "<thought>": "</thought>",
    "<reasoning>": "</reasoning>",
    "<seed:think>": "</seed:think>",
    "[THINK]": "[/THINK]",
    "◁think▷": "◁/think▷",
    "<|START_THINKING|>": "<|END_THINKING|>",
    "<|channel|>analysis<|message|>": "<|end|>",
    "<|start|>assistant<|channel|>analysis<|message|>": "<|end|>",
    "<|start|>assistant<|channel|>final<|message|>": "",
    "<|channel|>final<|message|>": "",
    "</think>": "",
}
"""Opening tag -> closing tag. What has no closing tag is dropped at the very beginning."""

_MOST_TAGS = 256
_TOO_MANY = re.compile(r"\n{3,}")
_MAX_HELD = 256
_MAX_DETAILS = 256


class ThinkSplitter:
    """Feed it answer text in pieces, get (is_reasoning, text) in order."""

    def __init__(self, *, inside: bool = False) -> None:
        self._closing = "</think>" if inside else ""
        self._open = not inside
        """Whether an opening tag may still come: nothing but white space was seen."""
        self._held = ""
        self._bare = inside
        """Leading white space of the current section is dropped: it belongs to the tags."""

    @property
    def done(self) -> bool:
        """Whether every further piece is plain text."""
        return not (self._closing or self._open)

    @property
    def unclosed(self) -> bool:
        """Whether the reasoning has not ended."""
        return bool(self._closing)

    def feed(self, piece: str) -> list[tuple[bool, str]]:
        if self.done:
            return [(False, piece)]
        text, self._held = self._held + piece, ""
        out: list[tuple[bool, str]] = []
        while text:
            text = self._inside(text, out) if self._closing else self._outside(text, out)
        return out

    def close(self) -> list[tuple[bool, str]]:
        held, self._held = self._held, ""
        return [(bool(self._closing), held)] if held.strip() else []

    def _outside(self, text: str, out: list[tuple[bool, str]]) -> str:
        start = text.lstrip()
        for opening, closing in _OPEN.items():
            if start.startswith(opening):
                self._closing, self._bare = closing, True
                return start[len(opening) :]
        text = start if self._bare else text
        undecided = not start or any(opening.startswith(start) for opening in _OPEN)
        if undecided and len(text) < _MAX_HELD:
            self._held = text
        else:
            self._open = False
            out.append((False, text))
        return ""

    def _inside(self, text: str, out: list[tuple[bool, str]]) -> str:
        text = text.lstrip() if self._bare else text
        thought, tag, rest = text.partition(self._closing)
        if not tag:
            keep = _overlap(text, self._closing)
            self._held = text[len(text) - keep :]
            thought = text[: len(text) - keep]
        if thought:
            self._bare = False
            out.append((True, thought))
        if not tag:
            return ""
        self._closing, self._open, self._bare = "", True, True
        return rest


def lone_end(text: str) -> tuple[str, str] | None:
    """(thought, answer) of a text whose reasoning was opened in the prompt, so that only its end
    shows; None for others, also for those that quote the tag."""
    thought, tag, answer = text.partition("</think>")
    quoted = thought.count("`") % 2 or thought[-1:] in ("'", '"', "“", "「")
    quoted = quoted or thought[-1:] == answer[:1] == " "
    if not tag or quoted or "<think>" in thought:
        return None
    return thought.strip(), answer.lstrip()


def between(text: str) -> tuple[str, str] | None:
    """(thoughts, answer) of a text with reasoning in its middle: at the beginning of a line, outside
    of code. None for others."""
    thoughts, answer = [], []
    at = fences = 0
    for _ in range(_MOST_TAGS):
        start = text.find("\n<think>", at)
        end = text.find("</think>", start)
        if start < 0 or end < 0:
            break
        fences += text.count("```", at, start)
        stop = start + 1 if fences % 2 else end + len("</think>")
        answer.append(text[at : start + 1])
        if not fences % 2:
            thoughts.append(text[start + len("\n<think>") : end].strip())
        at = stop
    answer.append(text[at:])
    whole = _TOO_MANY.sub("\n\n", "".join(answer)).strip()
    return ("\n".join(thoughts), whole) if thoughts else None


def _overlap(text: str, tag: str) -> int:
    """How many characters at the end of `text` could begin `tag`."""
    for size in range(min(len(tag) - 1, len(text)), 0, -1):
        if text.endswith(tag[:size]):
            return size
    return 0


class ReasoningDetails:
    """Fragments of `reasoning_details`, kept because a signature must go back with its text."""

    def __init__(self) -> None:
        self._merged: dict[tuple[Any, Any], dict[str, Any]] = {}
        self._texts: dict[tuple[Any, Any, str], list[str]] = {}

    def add(self, details: list[dict[str, Any]]) -> str:
        """Take fragments; returns their readable text."""
        readable: list[Any] = []
        for detail in details:
            key = (str(detail.get("type")), str(detail.get("index")))
            if key not in self._merged and len(self._merged) >= _MAX_DETAILS:
                continue
            rest = {name: value for name, value in detail.items() if value is not None}
            for name in ("text", "summary", "data"):
                if isinstance(rest.get(name), str):
                    self._texts.setdefault((*key, name), []).append(rest.pop(name))
            self._merged.setdefault(key, {}).update(rest)
            readable.append(detail.get("text") or detail.get("summary"))
        return "".join(text for text in readable if isinstance(text, str))

    def opaque(self) -> dict[str, Any] | None:
        """What must go back to the provider; None when the text alone says it all."""
        whole = {key: dict(value) for key, value in self._merged.items()}
        for (kind, index, name), pieces in self._texts.items():
            whole[kind, index][name] = "".join(pieces)
        if not any(detail.get("signature") or detail.get("data") for detail in whole.values()):
            return None
        return {"reasoning_details": list(whole.values())}
