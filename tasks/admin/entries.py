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
from tasks.admin.words import say as t
from tasks.told import told
from tasks.words import later


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
    "chat": later("{who} asked, from the chat page"),
    "api": later("{who} asked, by the API"),
    "agui": later("{who} asked, by AG-UI"),
    "webhook": later("{who} asked, by a webhook"),
    "cron": later("{who} asked, by a schedule"),
    "command": later("{who} asked, on the command line"),
}
_RUNS = {
    "start": later("Run {n} started with"),
    "resume": later("Run {n} went on with"),
    "recover": later("Run {n} took over with"),
}
_METERS = {
    "steps": later("steps"),
    "seconds": later("seconds"),
    "tokens": later("tokens"),
    "cost": later("cost"),
}


def _created(event: ev.TaskCreated, context: Context) -> Said:
    asked = str(_ENTRANCES.get(event.trigger, f"{{who}}: {event.trigger}"))
    lead = asked.replace("{who}", words.line(context.asker) or t("Somebody"))
    follows = t("Follow-up of task {id}.", id=event.follow_up_of) if event.follow_up_of else ""
    folds = text_fold(t("The goal"), goals.plain(event.goal))
    return Said(mark="user", lead=lead, sub=follows, folds=folds)


def _started(event: ev.TaskStarted, context: Context) -> Said:
    limits = words.listed(
        f"{_METERS.get(name, name)} {value:g}" for name, value in event.limits.items() if value
    )
    sub = [t("Mode {mode}.", mode=event.mode)]
    sub += [t("Limits: {limits}.", limits=limits)] if limits else []
    return Said(
        mark="run",
        tone="run",
        lead=str(_RUNS.get(event.reason, event.reason)).replace("{n}", str(event.run)),
        subject=words.line(event.model),
        sub=" ".join(sub),
    )


def _recovered(event: ev.TaskRecovered, context: Context) -> Said:
    sub = [words.line(told(event.reason))]
    if event.previous_worker:
        sub.append(t("It was held by {worker}.", worker=event.previous_worker))
    return Said(mark="retry", tone="risk", lead=t("Taken over"), sub=" ".join(sub))


def _message(event: ev.UserMessageAdded, context: Context) -> Said:
    return Said(
        mark="user",
        lead=t("{who} said", who=words.line(event.by)),
        sub=words.line(event.text),
        strong=True,
        folds=text_fold(t("The whole message"), event.text) if len(event.text) > 200 else (),
    )


def _answered(event: ev.AgentCompleted, context: Context) -> Said:
    return Said(
        mark="check",
        tone="ok",
        lead=t("Final answer"),
        folds=text_fold(t("The answer"), event.final_answer),
    )


def _completed(event: ev.TaskCompleted, context: Context) -> Said:
    return Said(mark="check", tone="ok", lead=t("Completed"), strong=True)


def _failed(event: ev.TaskFailed, context: Context) -> Said:
    sub = words.line(f"{told(event.error.message)} {told(event.error.hint or '')}", 1000)
    return Said(mark="cross", tone="fail", lead=t("Failed"), sub=sub, strong=True)


def _cancelled(event: ev.TaskCancelled, context: Context) -> Said:
    lead = t("Stopped by {who}", who=words.line(event.by)) if event.by else t("Stopped")
    return Said(mark="stop", tone="fail", lead=lead, strong=True)


def _over_budget(event: ev.BudgetExceeded, context: Context) -> Said:
    sub = words.line(told(event.message))
    return Said(mark="gauge", tone="fail", lead=t("Limit reached"), sub=sub, strong=True)


# ── the model ─────────────────────────────────────────────────────────────────────────────────


def _call_began(event: ev.ModelCallStarted, context: Context) -> Said:
    if event.attempt == 1:
        return Said(mark="chip", lead=t("Model asked, step {n}", n=event.step), routine=True)
    lead = t("Model asked, step {n}, attempt {attempt}", n=event.step, attempt=event.attempt)
    return Said(mark="chip", lead=lead)


def _call_retried(event: ev.ModelCallRetried, context: Context) -> Said:
    lead = t("Model call failed, attempt {n}: tried again", n=event.attempt)
    wait = t(" after {n} s", n=f"{event.delay_seconds:g}") if event.delay_seconds else ""
    sub = words.line(told(event.error.message), 1000)
    return Said(mark="retry", tone="fail", lead=lead + wait, sub=sub)


def _call_finished(event: ev.ModelCallFinished, context: Context) -> Said:
    usage = event.usage
    about = t("about ") if usage.estimated else ""
    parts = [
        words.seconds(event.duration_ms / 1000),
        t("{tokens} in", tokens=f"{about}{words.tokens(usage.input_tokens)}"),
        t("{tokens} out", tokens=words.tokens(usage.output_tokens)),
    ]
    if event.cost is not None:
        parts.append(t("cost {cost}", cost=f"{event.cost:.4f}"))
    usual = event.finish_reason in ("stop", "tool_calls")
    return Said(
        mark="chip",
        lead=t("Model call, step {n}: {parts}", n=event.step, parts=words.listed(parts)),
        routine=True,
        sub="" if usual else t("Ended: {reason}.", reason=event.finish_reason),
    )


def _reasoning(event: ev.ReasoningMessage, context: Context) -> Said:
    folds = text_fold(t("Its reasoning"), event.text)
    return Said(mark="chip", lead=t("It reasoned"), routine=True, folds=folds)


def _assistant(event: ev.AssistantMessageAdded, context: Context) -> Said:
    cut_off = event.partial is True
    return Said(
        mark="chip",
        lead=t("It began to say, and was cut off") if cut_off else t("It said"),
        sub=words.line(event.text, 160),
        folds=text_fold(t("What it said"), event.text),
    )


def _compacted(event: ev.ContextCompacted, context: Context) -> Said:
    return Said(
        mark="gap",
        lead=t(
            "Events {n} to {m} were summed up for the model",
            n=event.from_sequence,
            m=event.to_sequence,
        ),
        folds=text_fold(t("The summary"), event.summary),
    )


def _warned(event: ev.BudgetWarning, context: Context) -> Said:
    lead = t(
        "Near a limit: {used} of {limit} {which} used",
        used=f"{event.used:g}",
        limit=f"{event.limit:g}",
        which=_METERS.get(event.which, event.which),
    )
    return Said(mark="gauge", tone="risk", lead=lead)


def _artifact(event: ev.ArtifactRecorded, context: Context) -> Said:
    return Said(
        mark="file",
        tone="ok",
        lead=t("Made"),
        subject=words.visible(event.path),
        tail=t(", {n} bytes", n=f"{event.size:,}"),
        sub=t("Digest {digest}.", digest=words.ends(event.sha256)),
    )


def _other(event: Any, context: Context) -> Said:
    """A kind that has no words yet: its name, and all that it says."""
    folds = text_fold(t("Payload"), words.pretty(ev.payload_of(event)))
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
