"""One stored event as an entry of the log that people read: a mark, a sentence, what belongs to it.

Pure: events in, values out; the template escapes. `Context` knows what earlier events said about
the calls and approvals that an event names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from agent import events as ev
from tasks import goals
from tasks.admin import calls, words
from tasks.admin.said import Context, Said, text_fold


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
    return Said(
        mark="user", lead=lead, sub=follows, folds=text_fold("The goal", goals.plain(event.goal))
    )


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
        folds=text_fold("The whole message", event.text) if len(event.text) > 200 else (),
    )


def _answered(event: ev.AgentCompleted, context: Context) -> Said:
    return Said(
        mark="check",
        tone="ok",
        lead="Final answer",
        folds=text_fold("The answer", event.final_answer),
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
    folds = text_fold("Its reasoning", event.text)
    return Said(mark="chip", lead="It reasoned", routine=True, folds=folds)


def _assistant(event: ev.AssistantMessageAdded, context: Context) -> Said:
    cut_off = event.partial is True
    return Said(
        mark="chip",
        lead="It began to say, and was cut off" if cut_off else "It said",
        sub=words.line(event.text, 160),
        folds=text_fold("What it said", event.text),
    )


def _compacted(event: ev.ContextCompacted, context: Context) -> Said:
    return Said(
        mark="gap",
        lead=f"Events {event.from_sequence} to {event.to_sequence} were summed up for the model",
        folds=text_fold("The summary", event.summary),
    )


def _warned(event: ev.BudgetWarning, context: Context) -> Said:
    used = f"{event.used:g} of {event.limit:g} {event.which} used"
    return Said(mark="gauge", tone="risk", lead=f"Near a limit: {used}")


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
    folds = text_fold("Payload", words.pretty(ev.payload_of(event)))
    return Said(mark="gap", lead=event.type.replace("_", " ").capitalize(), folds=folds)


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
    ev.ToolCallRequested: calls.requested,
    ev.ToolCallStarted: calls.tool_began,
    ev.ToolCallFinished: calls.tool_ended,
    ev.ApprovalRequired: calls.asked,
    ev.ApprovalUpdated: calls.updated,
    ev.ApprovalResolved: calls.resolved,
    ev.ArtifactRecorded: _artifact,
}
