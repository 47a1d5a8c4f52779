"""Entries about tool calls and what people decided about them."""

from __future__ import annotations

import msgspec

from agent import events as ev
from tasks.admin import words
from tasks.admin.said import (
    Context,
    Fold,
    Said,
    arguments_fold,
    bounded,
    change_fold,
    said_risk,
    text_fold,
)
from tasks.admin.words import say as t
from tasks.told import told
from tasks.words import later

_DECIDED = {"allow": later("Allowed"), "ask": later("A person decides")}


def requested(event: ev.ToolCallRequested, context: Context) -> Said:
    call = words.call_of(event.name, event.arguments)
    folds = arguments_fold(event.arguments, event.raw_arguments) + _chain(event)
    if isinstance(event.problem, str):
        problem = words.line(told(event.problem), 1000)
        return Said(
            mark="cross",
            tone="fail",
            lead=t("Not possible: {what}", what=call.todo),
            subject=call.subject,
            sub=t("{problem} Told to the model as a result.", problem=problem),
            folds=folds,
        )
    if event.decision == "deny":
        return Said(
            mark="deny",
            tone="risk",
            lead=t("Blocked: {what}", what=call.todo),
            subject=call.subject,
            sub=t("Rule: {rule}. Nothing was done.", rule=words.line(told(event.rule))),
            folds=folds,
        )
    decided = _DECIDED.get(event.decision, event.decision)
    return Said(
        mark="chip",
        lead=t("Wants to {what}", what=call.todo),
        subject=call.subject,
        sub=t("{decided}: {rule}.", decided=decided, rule=words.line(told(event.rule))),
        routine=event.decision == "allow",
        folds=folds,
    )


def _chain(event: ev.ToolCallRequested) -> tuple[Fold, ...]:
    """Everything that was looked at on the way to the decision."""
    steps = [] if isinstance(event.chain, msgspec.UnsetType) else event.chain
    text = "\n".join(f"{number}. {told(step)}" for number, step in enumerate(steps, 1))
    return text_fold(t("How it was decided"), text)


def tool_began(event: ev.ToolCallStarted, context: Context) -> Said:
    call = context.call(event.tool_call_id)
    return Said(
        mark="run",
        tone="run",
        lead=t("Began to {what}", what=call.todo),
        subject=call.subject,
        routine=True,
    )


def tool_ended(event: ev.ToolCallFinished, context: Context) -> Said:
    call, began = context.call(event.tool_call_id), context.began.get(event.tool_call_id)
    took = f", {words.seconds(event.duration_ms / 1000)}" if event.duration_ms or began else ""
    folds = text_fold(t("What the model read"), event.content)
    if event.details:
        folds += (Fold(summary=t("Details"), text=bounded(words.pretty(event.details))),)
    if event.ok:
        effect = event.details.get("sha256")
        after = (
            t("Digest after: {digest}.", digest=words.ends(effect))
            if isinstance(effect, str)
            else ""
        )
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
        lead=t("Failed: {what}" if began else "Not done: {what}", what=call.todo),
        subject=call.subject,
        tail=took,
        sub=words.line(event.content),
        folds=folds,
    )


def asked(event: ev.ApprovalRequired, context: Context) -> Said:
    call = words.call_of(event.name, event.arguments)
    lead = {
        "unknown_effect": t("Asked, did it happen: {what}", what=call.todo),
        "limit": t("Asked, as much again: {what}", what=call.todo),
        "question": t("Asked a question: {what}", what=call.todo),
    }.get(event.kind, t("Asked: {what}", what=call.todo))
    silent = words.moment(event.expires_at)
    facts = [
        t("{risk}.", risk=said_risk(event.risk)) if event.risk else "",
        t("Rule: {rule}.", rule=words.line(told(event.rule))) if event.rule else "",
        words.line(told(event.reason)),
        t("Bound to {digest}.", digest=words.ends(event.arguments_digest))
        if event.arguments_digest
        else "",
        t("Default when silent: reject at {at} UTC.", at=f"{silent:%H:%M:%S}") if silent else "",
    ]
    return Said(
        mark="flag",
        tone="wait",
        lead=lead,
        subject=call.subject,
        sub=" ".join(fact for fact in facts if fact),
        strong=True,
        approval_id=event.approval_id,
        folds=change_fold(event.diff, t("What would change"), open_=True)
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
        folds = change_fold(event.diff, t("What changes after the edit"), open_=True)
        folds += (
            Fold(summary=t("Edited arguments"), text=bounded(words.pretty(event.edited_arguments))),
        )
    subject = context.call(event.tool_call_id)
    sub = f"“{words.line(event.comment, 1000)}”" if event.comment else ""
    return Said(
        mark=mark,
        tone=tone,
        lead=t("{verdict}: {what}", verdict=_verdict(event), what=subject.todo),
        subject=subject.subject,
        sub=sub,
        strong=True,
        approval_id=event.approval_id if asked is not None or event.approval_id else "",
        folds=folds,
    )


def updated(event: ev.ApprovalUpdated, context: Context) -> Said:
    who, until = words.line(event.by), event.expires_at
    return Said(
        mark="flag",
        tone="wait",
        lead=t("It waits on, until {until}, by {who}", until=words.line(until), who=who)
        if until
        else t("It waits on, by {who}", who=who),
        sub=" ".join(_vote(vote) for vote in event.votes),
        approval_id=event.approval_id,
    )


def _vote(vote: ev.Vote) -> str:
    edit = t(", with an edit") if vote.edited_arguments is not None else ""
    why = f": “{words.line(vote.comment, 1000)}”" if vote.comment else ""
    return t("{who} said yes{how}.", who=words.line(vote.by), how=edit + why)


_REACHES = {
    "task": later("for this task"),
    "session": later("for this session"),
    "always": later("for the whole workspace"),
}
"""How far an answer reaches, beyond `once`."""


def _reach(event: ev.ApprovalResolved) -> str:
    return str(_REACHES.get(event.scope, words.line(event.scope)))


def _verdict(event: ev.ApprovalResolved) -> str:
    who = words.line(event.resolved_by) if event.resolved_by else t("nobody")
    match event.status:
        case "approved" if event.kind == "question":
            return t("{who} answered “{said}”", who=who, said=words.line(event.answer or "", 300))
        case "approved":
            edit = t(", with an edit") if event.edited_arguments is not None else ""
            answer = f" ({words.line(event.answer)})" if event.answer else ""
            return t("{who} approved {reach}", who=who, reach=_reach(event)) + edit + answer
        case "rejected" if event.scope != "once":
            return t("{who} rejected {reach}", who=who, reach=_reach(event))
        case "rejected":
            return t("{who} rejected", who=who)
        case "expired":
            return t("Nobody answered in time, so it counts as rejected")
        case "stale":
            return t("The target changed after the question: asked again")
        case _:
            return t("Void, the task was stopped by {who}", who=who)
