"""One stored event as an entry of the log that people read: a mark, a sentence, what belongs to it.

Pure: events in, values out; the template escapes. `Context` knows what earlier events said about
the calls and approvals that an event names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import msgspec

from agent import events as ev
from agent.text import cut
from tasks.admin import diffs, words
from tasks.admin.diffs import Diff

MAX_FOLDED = 4000
"""Characters of a text that unfolds; the export has the whole."""

PERSON_TYPES = frozenset(
    {"task_created", "user_message", "approval_required", "approval_resolved", "approval_updated"}
)
"""What people did or are asked: shaded."""


@dataclass(frozen=True, kw_only=True)
class Fold:
    """Something that unfolds below an entry."""

    summary: str
    text: str = ""
    diff: Diff | None = None
    open: bool = False


@dataclass(frozen=True, kw_only=True)
class Said:
    """What an event says: `lead` `subject` `tail`, where the subject is set as code."""

    mark: str
    """Name of an icon."""
    tone: str = "plain"
    """wait, ok, fail, risk, run or plain"""
    lead: str
    subject: str = ""
    tail: str = ""
    sub: str = ""
    strong: bool = False
    routine: bool = False
    """Nothing to stop at: neighbours like it are folded together."""
    approval_id: str = ""
    folds: tuple[Fold, ...] = ()


@dataclass(kw_only=True)
class Context:
    """What the events before this one said. Fed in order."""

    calls: dict[str, ev.ToolCallRequested] = field(default_factory=dict)
    began: dict[str, tuple[int, datetime]] = field(default_factory=dict)
    """Sequence and time of the `tool_call_started` of a call."""
    asked: dict[str, datetime] = field(default_factory=dict)
    asker: str = "Somebody"
    """Whose task it is."""

    def note(self, sequence: int, at: datetime, event: ev.StoredEvent) -> None:
        match event:
            case ev.ToolCallRequested():
                self.calls[event.tool_call_id] = event
            case ev.ToolCallStarted():
                self.began[event.tool_call_id] = (sequence, at)
            case ev.ApprovalRequired():
                self.asked[event.approval_id] = at
            case _:
                pass

    def call(self, tool_call_id: str) -> words.Call:
        asked = self.calls.get(tool_call_id)
        if asked is None:  # so far back that this page does not know it
            return words.Call("run", "ran", f"call {tool_call_id[:40]}")
        return words.call_of(asked.name, asked.arguments)

    def was_allowed(self, tool_call_id: str) -> bool:
        """Without asking anybody."""
        asked = self.calls.get(tool_call_id)
        return asked is not None and asked.decision == "allow"


def say(event: ev.StoredEvent, context: Context) -> Said:
    """The entry of an event, with hidden characters written out wherever they came from."""
    said = _SAYINGS.get(type(event), _other)(event, context)
    return replace(
        said,
        lead=words.visible(said.lead),
        subject=words.visible(said.subject),
        tail=words.visible(said.tail),
        sub=words.visible(said.sub),
    )


# ── the life of the task ──────────────────────────────────────────────────────────────────────

_ENTRANCES = {
    "chat": "from the chat page",
    "api": "by the API",
    "agui": "by AG-UI",
    "webhook": "by a webhook",
    "cron": "by a schedule",
    "command": "on the command line",
}


def _created(event: ev.TaskCreated, context: Context) -> Said:
    where = _ENTRANCES.get(event.trigger, event.trigger)
    follows = f"Follow-up of task {event.follow_up_of}." if event.follow_up_of else ""
    lead = f"{words.line(context.asker)} asked, {where}"
    return Said(mark="user", lead=lead, sub=follows, folds=_text("The goal", event.goal))


def _started(event: ev.TaskStarted, context: Context) -> Said:
    how = {"start": "started", "resume": "went on", "recover": "took over"}
    limits = ", ".join(f"{name} {value}" for name, value in event.limits.items() if value)
    return Said(
        mark="run",
        tone="run",
        lead=f"Run {event.run} {how.get(event.reason, event.reason)} with",
        subject=words.line(event.model),
        sub=f"Mode {event.mode}." + (f" Limits: {limits}." if limits else ""),
    )


def _recovered(event: ev.TaskRecovered, context: Context) -> Said:
    before = f" It was held by {event.previous_worker}." if event.previous_worker else ""
    return Said(mark="retry", tone="risk", lead="Taken over", sub=words.line(event.reason) + before)


def _message(event: ev.UserMessageAdded, context: Context) -> Said:
    return Said(
        mark="user",
        lead=f"{words.line(event.by)} said",
        sub=words.line(event.text),
        strong=True,
        folds=_text("The whole message", event.text) if len(event.text) > 200 else (),
    )


def _answered(event: ev.AgentCompleted, context: Context) -> Said:
    return Said(
        mark="check", tone="ok", lead="Final answer", folds=_text("The answer", event.final_answer)
    )


def _completed(event: ev.TaskCompleted, context: Context) -> Said:
    return Said(mark="check", tone="ok", lead="Completed", strong=True)


def _failed(event: ev.TaskFailed, context: Context) -> Said:
    sub = f"{event.error.message} {event.error.hint}"
    return Said(mark="cross", tone="fail", lead="Failed", sub=words.line(sub, 1000), strong=True)


def _cancelled(event: ev.TaskCancelled, context: Context) -> Said:
    by = f" by {words.line(event.by)}" if event.by else ""
    return Said(mark="stop", tone="fail", lead=f"Stopped{by}", strong=True)


def _over_budget(event: ev.BudgetExceeded, context: Context) -> Said:
    return Said(
        mark="gauge", tone="fail", lead="Limit reached", sub=words.line(event.message), strong=True
    )


# ── the model ─────────────────────────────────────────────────────────────────────────────────


def _call_began(event: ev.ModelCallStarted, context: Context) -> Said:
    again = f", attempt {event.attempt}" if event.attempt > 1 else ""
    return Said(
        mark="chip", lead=f"Model asked, step {event.step}{again}", routine=event.attempt == 1
    )


def _call_retried(event: ev.ModelCallRetried, context: Context) -> Said:
    wait = f" after {event.delay_seconds:g} s" if event.delay_seconds else ""
    return Said(
        mark="retry",
        tone="fail",
        lead=f"Model call failed, attempt {event.attempt}: tried again{wait}",
        sub=words.line(event.error.message, 1000),
    )


def _call_finished(event: ev.ModelCallFinished, context: Context) -> Said:
    usage = event.usage
    about = "about " if usage.estimated else ""
    cost = "" if event.cost is None else f", cost {event.cost:.4f}"
    return Said(
        mark="chip",
        lead=f"Model call, step {event.step}: {words.seconds(event.duration_ms / 1000)}, "
        f"{about}{words.tokens(usage.input_tokens)} in, {words.tokens(usage.output_tokens)} out{cost}",
        routine=True,
        sub=""
        if event.finish_reason in ("stop", "tool_calls")
        else f"Ended: {event.finish_reason}.",
    )


def _reasoning(event: ev.ReasoningMessage, context: Context) -> Said:
    folds = _text("Its reasoning", event.text)
    return Said(mark="chip", lead="It reasoned", routine=True, folds=folds)


def _assistant(event: ev.AssistantMessageAdded, context: Context) -> Said:
    cut_off = event.partial is True
    return Said(
        mark="chip",
        lead="It began to say, and was cut off" if cut_off else "It said",
        sub=words.line(event.text, 160),
        folds=_text("What it said", event.text),
    )


def _compacted(event: ev.ContextCompacted, context: Context) -> Said:
    return Said(
        mark="gap",
        lead=f"Events {event.from_sequence} to {event.to_sequence} were summed up for the model",
        folds=_text("The summary", event.summary),
    )


def _warned(event: ev.BudgetWarning, context: Context) -> Said:
    used = f"{event.used:g} of {event.limit:g} {event.which} used"
    return Said(mark="gauge", tone="risk", lead=f"Near a limit: {used}")


# ── calls and decisions ───────────────────────────────────────────────────────────────────────


def _requested(event: ev.ToolCallRequested, context: Context) -> Said:
    call = words.call_of(event.name, event.arguments)
    folds = _arguments(event.arguments, event.raw_arguments)
    if isinstance(event.problem, str):
        problem = words.line(event.problem, 1000)
        return Said(
            mark="cross",
            tone="fail",
            lead=f"Not possible: {call.todo}",
            subject=call.subject,
            sub=f"{problem} Told to the model as a result.",
            folds=folds,
        )
    if event.decision == "deny":
        return Said(
            mark="deny",
            tone="risk",
            lead=f"Blocked: {call.todo}",
            subject=call.subject,
            sub=f"Rule: {words.line(event.rule)}. Nothing was done.",
            folds=folds,
        )
    decided = {"allow": "Allowed", "ask": "A person decides"}.get(event.decision, event.decision)
    return Said(
        mark="chip",
        lead=f"Wants to {call.todo}",
        subject=call.subject,
        sub=f"{decided}: {words.line(event.rule)}.",
        routine=event.decision == "allow",
        folds=folds,
    )


def _tool_began(event: ev.ToolCallStarted, context: Context) -> Said:
    call = context.call(event.tool_call_id)
    return Said(
        mark="run", tone="run", lead=f"Began to {call.todo}", subject=call.subject, routine=True
    )


def _tool_ended(event: ev.ToolCallFinished, context: Context) -> Said:
    call, began = context.call(event.tool_call_id), context.began.get(event.tool_call_id)
    took = f", {words.seconds(event.duration_ms / 1000)}" if event.duration_ms or began else ""
    folds = _text("What the model read", event.content)
    if event.details:
        folds += (Fold(summary="Details", text=_bounded(words.pretty(event.details))),)
    if event.ok:
        effect = event.details.get("sha256")
        after = f"Digest after: {words.ends(effect)}." if isinstance(effect, str) else ""
        return Said(
            mark="pencil" if effect else "check",
            tone="ok",
            lead=call.done.capitalize(),
            subject=call.subject,
            tail=took,
            sub=after,
            routine=not effect and context.was_allowed(event.tool_call_id),
            folds=folds,
        )
    return Said(
        mark="cross",
        tone="fail",
        lead=("Failed: " if began else "Not done: ") + call.todo,
        subject=call.subject,
        tail=took,
        sub=words.line(event.content),
        folds=folds,
    )


def _asked(event: ev.ApprovalRequired, context: Context) -> Said:
    call = words.call_of(event.name, event.arguments)
    lead = {
        "unknown_effect": "Asked, did it happen:",
        "limit": "Asked, as much again:",
        "question": "Asked a question:",
    }.get(event.kind, "Asked:")
    silent = words.moment(event.expires_at)
    facts = [
        f"{event.risk.capitalize()} risk." if event.risk else "",
        f"Rule: {words.line(event.rule)}." if event.rule else "",
        words.line(event.reason),
        f"Bound to {words.ends(event.arguments_digest)}." if event.arguments_digest else "",
        f"Default when silent: reject at {silent:%H:%M:%S} UTC." if silent else "",
    ]
    return Said(
        mark="flag",
        tone="wait",
        lead=f"{lead} {call.todo}",
        subject=call.subject,
        sub=" ".join(fact for fact in facts if fact),
        strong=True,
        approval_id=event.approval_id,
        folds=_change(event.diff, "What would change", open_=True) + _arguments(event.arguments),
    )


_RESOLVED = {
    "approved": ("check", "ok"),
    "rejected": ("cross", "fail"),
    "expired": ("hour", "fail"),
    "stale": ("retry", "risk"),
    "cancelled": ("stop", "plain"),
}


def _resolved(event: ev.ApprovalResolved, context: Context) -> Said:
    mark, tone = _RESOLVED.get(event.status, ("flag", "plain"))
    asked = context.asked.get(event.approval_id)
    folds: tuple[Fold, ...] = ()
    if event.edited_arguments is not None:
        folds = _change(event.diff, "What changes after the edit", open_=True)
        folds += (
            Fold(summary="Edited arguments", text=_bounded(words.pretty(event.edited_arguments))),
        )
    subject = context.call(event.tool_call_id)
    sub = f"“{words.line(event.comment, 1000)}”" if event.comment else ""
    return Said(
        mark=mark,
        tone=tone,
        lead=_verdict(event) + f": {subject.todo}",
        subject=subject.subject,
        sub=sub,
        strong=True,
        approval_id=event.approval_id if asked is not None or event.approval_id else "",
        folds=folds,
    )


def _updated(event: ev.ApprovalUpdated, context: Context) -> Said:
    until = f", until {words.line(event.expires_at)}" if event.expires_at else ""
    return Said(
        mark="flag",
        tone="wait",
        lead=f"It waits on{until}, by {words.line(event.by)}",
        sub=" ".join(_vote(vote) for vote in event.votes),
        approval_id=event.approval_id,
    )


def _vote(vote: ev.Vote) -> str:
    edit = ", with an edit" if vote.edited_arguments is not None else ""
    why = f": “{words.line(vote.comment, 1000)}”" if vote.comment else ""
    return f"{words.line(vote.by)} said yes{edit}{why}."


def _verdict(event: ev.ApprovalResolved) -> str:
    who = words.line(event.resolved_by) if event.resolved_by else "Nobody"
    match event.status:
        case "approved" if event.kind == "question":
            return f"{who} answered “{words.line(event.answer or '', 300)}”"
        case "approved":
            edit = ", with an edit" if event.edited_arguments is not None else ""
            answer = f" ({words.line(event.answer)})" if event.answer else ""
            return f"{who} approved {words.line(event.scope)}{edit}{answer}"
        case "rejected":
            return f"{who} rejected"
        case "expired":
            return "Nobody answered in time, so it counts as rejected"
        case "stale":
            return "The target changed after the question: asked again"
        case _:
            return f"Void, the task was stopped by {who.lower() if who == 'Nobody' else who}"


def _artifact(event: ev.ArtifactRecorded, context: Context) -> Said:
    return Said(
        mark="file",
        tone="ok",
        lead="Made",
        subject=words.visible(event.path),
        tail=f", {event.size:,} bytes",
        sub=f"Digest {words.ends(event.sha256)}.",
    )


def _other(event: Any, context: Context) -> Said:
    """A kind that has no words yet: its name, and all that it says."""
    folds = _text("Payload", words.pretty(ev.payload_of(event)))
    return Said(mark="gap", lead=event.type.replace("_", " ").capitalize(), folds=folds)


# ── folds ─────────────────────────────────────────────────────────────────────────────────────


def _text(summary: str, text: str) -> tuple[Fold, ...]:
    return (Fold(summary=summary, text=_bounded(words.visible(text))),) if text else ()


def _bounded(text: str) -> str:
    return cut(text, MAX_FOLDED, "\n[… cut here; the export has the whole …]")


def _change(diff: str, summary: str, *, open_: bool) -> tuple[Fold, ...]:
    parsed = diffs.parse(diff)
    if parsed is None:
        return ()
    return (Fold(summary=f"{summary}: {parsed.size}", diff=parsed, open=open_),)


def _arguments(
    arguments: dict[str, Any] | None, raw: str | msgspec.UnsetType = msgspec.UNSET
) -> tuple[Fold, ...]:
    if isinstance(raw, str):
        return _text("What the model sent", raw)
    if not arguments:
        return ()
    return (Fold(summary="Arguments", text=_bounded(words.pretty(arguments))),)


_SAYINGS: dict[type, Callable[[Any, Context], Said]] = {
    ev.TaskCreated: _created,
    ev.TaskStarted: _started,
    ev.TaskRecovered: _recovered,
    ev.UserMessageAdded: _message,
    ev.AgentCompleted: _answered,
    ev.TaskCompleted: _completed,
    ev.TaskFailed: _failed,
    ev.TaskCancelled: _cancelled,
    ev.BudgetExceeded: _over_budget,
    ev.ModelCallStarted: _call_began,
    ev.ModelCallRetried: _call_retried,
    ev.ModelCallFinished: _call_finished,
    ev.ReasoningMessage: _reasoning,
    ev.AssistantMessageAdded: _assistant,
    ev.ContextCompacted: _compacted,
    ev.BudgetWarning: _warned,
    ev.ToolCallRequested: _requested,
    ev.ToolCallStarted: _tool_began,
    ev.ToolCallFinished: _tool_ended,
    ev.ApprovalRequired: _asked,
    ev.ApprovalUpdated: _updated,
    ev.ApprovalResolved: _resolved,
    ev.ArtifactRecorded: _artifact,
}
