"""Compaction: the older part of a history becomes a summary that the model writes. Pure.

What is covered ends where a reply or a request begins, so that what stays is a valid history; the
newest replies and what people said in the open request are never in it. Nothing leaves the log: the
event names the part of it that the summary stands for, and a fold from any point agrees.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from agent.context import KEPT_REPLIES, size
from agent.entries import Call, Entry, Exchange, Place, Said, Summary
from agent.events import ContextCompacted
from agent.messages import Reply, Text, UserMessage
from agent.prompts import compaction_prompt
from agent.providers import ModelRequest
from agent.text import cut, mark_untrusted, size_of_text
from agent.transcript import Transcript

SHARE = 0.4
"""Of the budget that may be left behind the summary."""
WORTH_IT = 0.1
"""Less than this share of the budget is not worth a model call."""
MAX_SUMMARY_CHARS = 16_000
MAX_KEPT_CHARS = 32_000
RESULT_CHARS = (2000, 500, 120)
"""Of a result in what is summarized; less when it is much."""
NOTHING = Place(task_id="", sequence=0)


def covers(entries: Sequence[Entry], budget: int) -> int | None:
    """How many entries a summary should stand for; None when it would not help."""
    replies = [i for i, entry in enumerate(entries) if isinstance(entry, Exchange)]
    if len(replies) < KEPT_REPLIES:
        return None
    latest = replies[-KEPT_REPLIES]
    borders = [i for i in range(1, latest + 1) if _is_border(entries[i])]
    sizes = [size(list(entry.messages())) for entry in entries]
    best = next((i for i in borders if sum(sizes[i:]) <= budget * SHARE), None)
    covered = best if best is not None else (borders[-1] if borders else 0)
    enough = sum(sizes[:covered]) >= budget * WORTH_IT
    new = covered > 1 or not isinstance(entries[0], Summary)
    return covered if covered and enough and new else None


def request(
    entries: Sequence[Entry], budget: int, step: int, new_block_id: Callable[[], str]
) -> ModelRequest:
    """Asks the model for the summary of these entries."""
    words = min(1500, max(100, budget // 60))
    text = mark_untrusted(_rendered(entries, budget * 3 // 4), "conversation")
    return ModelRequest(
        system=compaction_prompt(words=words),
        messages=[UserMessage(text=f"{text}\n\nWrite the summary now.")],
        tools=[],
        step=step,
        new_block_id=new_block_id,
    )


def summary_of(reply: Reply, budget: int) -> str:
    """What the model wrote, bounded; "" when it wrote nothing."""
    text = "".join(block.text for block in reply.blocks if isinstance(block, Text)).strip()
    return cut(text, min(MAX_SUMMARY_CHARS, max(400, budget // 6)))


def compacted(
    transcript: Transcript, covered: int, summary: str, step: int, budget: int
) -> ContextCompacted:
    """The event; what the call cost is for the caller to add."""
    entries = transcript.entries
    begins, ends = _begins(entries[0]), _place(entries[covered])
    limit = min(MAX_KEPT_CHARS, max(400, budget // 6))
    kept = transcript.current_words(covered)
    return ContextCompacted(
        step=step,
        from_task_id=begins.task_id,
        from_sequence=begins.sequence,
        to_task_id=ends.task_id,
        to_sequence=max(0, ends.sequence - 1),
        covered=covered,
        summary=summary,
        kept=[cut(words, limit // len(kept)) for words in kept],
    )


def _is_border(entry: Entry) -> bool:
    """Everything of earlier entries stands before it in the log."""
    return entry.is_goal if isinstance(entry, Said) else bool(getattr(entry, "blocks", ()))


def _begins(entry: Entry) -> Place:
    return (entry.begins if isinstance(entry, Summary) else entry.place) or NOTHING


def _place(entry: Entry) -> Place:
    return NOTHING if isinstance(entry, Summary) else entry.place or NOTHING


# ── what the model reads of it ────────────────────────────────────────────────────────────────


def _rendered(entries: Sequence[Entry], budget: int) -> str:
    text = ""
    for chars in RESULT_CHARS:
        text = "\n\n".join(part for entry in entries for part in _parts(entry, chars))
        if size_of_text(text) <= budget:
            return text
    # Still too much: its middle goes, because the beginning has the earlier summary and the
    # request, and the end has what is needed next.
    keep = int(len(text) * budget / size_of_text(text)) // 2
    return f"{text[:keep]}\n\n[…]\n\n{text[-keep:]}"


def _parts(entry: Entry, chars: int) -> list[str]:
    match entry:
        case Said(text=text):
            return [f"Person: {cut(text, 4 * chars)}"]
        case Summary(text=text, kept=kept):
            return [f"Summary of what was before: {text}", *(f"Person: {words}" for words in kept)]
        case Exchange():
            said = "".join(block.text for block in entry.blocks if isinstance(block, Text))
            parts = [f"Agent: {cut(said, 4 * chars)}"] if said.strip() else []
            parts += [_call(call, chars) for call in entry.calls]
            return [*parts, f"[{entry.note}]"] if entry.note else parts


def _call(call: Call, chars: int) -> str:
    arguments = msgspec.json.encode(call.asked.arguments).decode()
    if call.result is None:
        return f"Agent called {call.asked.name} {cut(arguments, chars)}: no result"
    how = "result" if call.result.ok else "failed"
    return (
        f"Agent called {call.asked.name} {cut(arguments, chars)}\n"
        f"{how}: {cut(call.result.content, chars)}"
    )
