"""Entries about tool calls and what people decided about them."""

from __future__ import annotations

import msgspec

from agent import events as ev
from tasks.admin import words
from tasks.admin.said import Context, Fold, Said, arguments_fold, bounded, change_fold, text_fold


def requested(event: ev.ToolCallRequested, context: Context) -> Said:
    call = words.call_of(event.name, event.arguments)
    folds = arguments_fold(event.arguments, event.raw_arguments) + _chain(event)
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


def _chain(event: ev.ToolCallRequested) -> tuple[Fold, ...]:
    """Everything that was looked at on the way to the decision."""
    steps = [] if isinstance(event.chain, msgspec.UnsetType) else event.chain
    text = "\n".join(f"{number}. {step}" for number, step in enumerate(steps, 1))
    return text_fold("How it was decided", text)


def tool_began(event: ev.ToolCallStarted, context: Context) -> Said:
    call = context.call(event.tool_call_id)
    return Said(
        mark="run", tone="run", lead=f"Began to {call.todo}", subject=call.subject, routine=True
    )


def tool_ended(event: ev.ToolCallFinished, context: Context) -> Said:
    call, began = context.call(event.tool_call_id), context.began.get(event.tool_call_id)
    took = f", {words.seconds(event.duration_ms / 1000)}" if event.duration_ms or began else ""
    folds = text_fold("What the model read", event.content)
    if event.details:
        folds += (Fold(summary="Details", text=bounded(words.pretty(event.details))),)
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


def asked(event: ev.ApprovalRequired, context: Context) -> Said:
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
        folds=change_fold(event.diff, "What would change", open_=True)
        + arguments_fold(event.arguments),
    )


_RESOLVED = {
    "approved": ("check", "ok"),
    "rejected": ("cross", "fail"),
    "expired": ("hour", "fail"),
    "stale": ("retry", "risk"),
    "cancelled": ("stop", "plain"),
}


def resolved(event: ev.ApprovalResolved, context: Context) -> Said:
    mark, tone = _RESOLVED.get(event.status, ("flag", "plain"))
    asked = context.asked.get(event.approval_id)
    folds: tuple[Fold, ...] = ()
    if event.edited_arguments is not None:
        folds = change_fold(event.diff, "What changes after the edit", open_=True)
        folds += (
            Fold(summary="Edited arguments", text=bounded(words.pretty(event.edited_arguments))),
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


def updated(event: ev.ApprovalUpdated, context: Context) -> Said:
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


_REACHES = {
    "task": "for this task",
    "session": "for this session",
    "always": "for the whole workspace",
}
"""How far an answer reaches, beyond `once`."""


def _reach(event: ev.ApprovalResolved) -> str:
    return _REACHES.get(event.scope, words.line(event.scope))


def _verdict(event: ev.ApprovalResolved) -> str:
    who = words.line(event.resolved_by) if event.resolved_by else "Nobody"
    match event.status:
        case "approved" if event.kind == "question":
            return f"{who} answered “{words.line(event.answer or '', 300)}”"
        case "approved":
            edit = ", with an edit" if event.edited_arguments is not None else ""
            answer = f" ({words.line(event.answer)})" if event.answer else ""
            return f"{who} approved {_reach(event)}{edit}{answer}"
        case "rejected" if event.scope != "once":
            return f"{who} rejected {_reach(event)}"
        case "rejected":
            return f"{who} rejected"
        case "expired":
            return "Nobody answered in time, so it counts as rejected"
        case "stale":
            return "The target changed after the question: asked again"
        case _:
            return f"Void, the task was stopped by {who.lower() if who == 'Nobody' else who}"
