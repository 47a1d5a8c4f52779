"""A conversation on paper: what was asked, said, done and decided, to keep or to hand on.

As Markdown, or as one HTML file that needs nothing else: the model's words go through the pages' one
renderer, everything else is text. It is for reading; the evidence is the log with its hash chain.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.template.defaultfilters import filesizeformat
from django.utils import timezone
from django.utils.http import content_disposition_header
from django.utils.text import get_valid_filename
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from agent import events as ev
from agent.text import cut
from tasks import events, goals
from tasks.events import Row
from tasks.models import Session
from tasks.pages.views import session_of
from tasks.render import rendered_now
from tasks.told import told
from tasks.words import say

PAGE = 500
MAX_SUBJECT = 300
MAX_LINE = 500
TYPES = {"md": "text/markdown; charset=utf-8", "html": "text/html; charset=utf-8"}
_SUBJECTS = ("path", "question", "query", "url", "command", "name")
"""Arguments that say what a call is about; the first that is there."""
_REACHES = {
    "once": "this once",
    "task": "for this task",
    "session": "for this session",
    "always": "always",
}


@dataclass(frozen=True, kw_only=True)
class Part:
    """One thing that happened."""

    kind: str
    """goal, said, text, call, decision or end"""
    at: datetime
    title: str = ""
    subject: str = ""
    """Of a call: its tool and what it was about."""
    reach: str = ""
    """Of an answer that counts for more than this call: how far."""
    text: str = ""
    """What was said about it; Markdown if the kind is text."""
    diff: str = ""

    @property
    def html(self) -> str:
        return rendered_now(self.text)


@require_safe
@never_cache
@login_required
def export(request: HttpRequest, session_id: str, form: str) -> HttpResponse:
    """`?task=` for one task of it."""
    session = session_of(request, session_id)
    parts = list(_parts(session, request.GET.get("task", "")))
    title = session.title or say("Conversation")
    context = {"session": session, "title": title, "parts": parts, "now": timezone.now()}
    if form == "html":
        answer = render(request, "app/paper.html", context, content_type=TYPES[form])
    else:
        answer = HttpResponse(_markdown(session, title, parts), content_type=TYPES["md"])
    name = f"{get_valid_filename(cut(title, 60, '').strip(' .') or 'x')}.{form}"
    answer["Content-Disposition"] = content_disposition_header(True, name)
    return answer


def _parts(session: Session, task_id: str) -> Iterator[Part]:
    if not task_id:
        return Reading().parts(_rows(session))
    task = next((each for each in session.tasks.all() if str(each.pk) == task_id), None)
    if task is None:
        raise Http404(task_id)
    return Reading().parts(events.stream(task.pk))


def _rows(session: Session) -> Iterator[Row]:
    after = 0
    while rows := events.page_session(session.pk, after, PAGE):
        yield from rows
        after = rows[-1].position


# ── events -> parts ───────────────────────────────────────────────────────────────────────────


@dataclass
class Reading:
    """What has to be remembered between events."""

    calls: dict[str, ev.ToolCallRequested] = field(default_factory=dict)
    open: dict[str, tuple[datetime, ev.ApprovalRequired]] = field(default_factory=dict)
    words: list[str] = field(default_factory=list)
    """What the newest reply said."""
    tasks: int = 0

    def parts(self, rows: Iterable[Row]) -> Iterator[Part]:
        for row in rows:
            part = self._part(events.typed(row), row.created_at)
            if part is not None:
                yield part
        for at, asked in self.open.values():
            title = say("Waits for a decision")
            yield Part(kind="decision", at=at, title=title, **_about(asked), diff=asked.diff)

    def _part(self, event: ev.StoredEvent, at: datetime) -> Part | None:
        match event:
            case ev.TaskCreated():
                self.tasks += 1
                title = say("Task {n}", n=self.tasks)
                return Part(kind="goal", at=at, title=title, text=goals.plain(event.goal))
            case ev.UserMessageAdded():
                return Part(kind="said", at=at, title=event.by, text=event.text)
            case ev.ModelCallStarted() | ev.AssistantMessageAdded() | ev.AgentCompleted():
                return self._words(event, at)
            case ev.ToolCallRequested():
                self.calls[event.tool_call_id] = event
            case ev.ToolCallFinished():
                return self._call(event, at)
            case ev.ApprovalRequired():
                self.open[event.approval_id] = (at, event)
            case ev.ApprovalResolved():
                return self._decision(event, at)
            case ev.ArtifactRecorded():
                size = filesizeformat(event.size)
                return Part(kind="call", at=at, title=say("Made"), subject=event.path, text=size)
            case _:
                return _end(event, at)
        return None

    def _words(
        self,
        event: ev.ModelCallStarted | ev.AssistantMessageAdded | ev.AgentCompleted,
        at: datetime,
    ) -> Part | None:
        """The model's; the final answer only where no message said it."""
        match event:
            case ev.ModelCallStarted():
                self.words = []
                return None
            case ev.AssistantMessageAdded():
                self.words.append(event.text)
                return Part(kind="text", at=at, text=event.text)
            case ev.AgentCompleted():
                said = event.final_answer == "".join(self.words)
                return None if said else Part(kind="text", at=at, text=event.final_answer)

    def _call(self, event: ev.ToolCallFinished, at: datetime) -> Part | None:
        call = self.calls.get(event.tool_call_id)
        if call is None:
            return None
        title = say("Done") if event.ok else say("Failed")
        if not event.ok and call.decision == "deny" and call.capability:
            title = say("Blocked by policy")
        said = "" if event.ok else cut(event.content.strip().partition("\n")[0], MAX_LINE)
        return Part(kind="call", at=at, title=title, **_about(call), text=said)

    def _decision(self, event: ev.ApprovalResolved, at: datetime) -> Part | None:
        _, asked = self.open.pop(event.approval_id, (at, None))
        if asked is None:
            return None
        about = _about(asked, event.edited_arguments)
        said = (event.answer if event.kind == "question" else "") or event.comment
        diff = event.diff or asked.diff
        return Part(
            kind="decision",
            at=at,
            title=_verdict(event),
            **about,
            reach=_reach(event),
            text=said,
            diff=diff,
        )


def _verdict(event: ev.ApprovalResolved) -> str:
    who = event.resolved_by or ""
    match event.status:
        case "approved" if event.kind == "question":
            return say("{who} answered", who=who)
        case "approved":
            return say("{who} approved", who=who)
        case "rejected":
            return say("{who} rejected", who=who)
        case "expired":
            return say("Nobody answered in time")
        case "stale":
            return say("The target changed; it was asked again")
        case _:
            return say("Withdrawn")


def _reach(event: ev.ApprovalResolved) -> str:
    """How far the answer to a call counts; nothing for what nobody answered, or no call."""
    if event.kind != "call" or event.status not in ("approved", "rejected"):
        return ""
    return say(_REACHES.get(event.scope, event.scope))


def _about(
    call: ev.ToolCallRequested | ev.ApprovalRequired, edited: dict[str, Any] | None = None
) -> dict[str, str]:
    arguments = edited or call.arguments or {}
    found = next((arguments[name] for name in _SUBJECTS if name in arguments), arguments or "")
    text = found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)
    return {"subject": " ".join(cut(f"{call.name} {text}", MAX_SUBJECT).split())}


def _end(event: ev.StoredEvent, at: datetime) -> Part | None:
    match event:
        case ev.TaskCompleted():
            return Part(kind="end", at=at, title=say("Done"))
        case ev.TaskFailed():
            return Part(kind="end", at=at, title=say("Failed"), text=told(event.error.message))
        case ev.TaskCancelled():
            return Part(kind="end", at=at, title=say("Stopped"), text=event.by)
        case ev.BudgetExceeded():
            return Part(kind="end", at=at, title=say("Limit reached"), text=told(event.message))
        case _:
            return None


# ── parts -> Markdown ─────────────────────────────────────────────────────────────────────────


def _markdown(session: Session, title: str, parts: Iterable[Part]) -> str:
    facts = [session.workspace.name, session.owner.get_username(), _time(timezone.now())]
    note = say("A copy for reading. The evidence is the log.")
    head = [f"# {_one_line(title)}", f"{' · '.join(map(_one_line, facts))}  \n{note}"]
    return "\n\n".join([*head, *map(_written, parts)]) + "\n"


def _written(part: Part) -> str:
    at = _time(part.at)
    match part.kind:
        case "goal":
            return f"## {part.title}\n\n{at}\n\n{_quoted(part.text)}"
        case "said":
            return f"**{_one_line(part.title)}** · {at}\n\n{_quoted(part.text)}"
        case "text":
            return part.text.strip()
        case "end":
            return f"**{part.title}** · {at}" + (f" · {_one_line(part.text)}" if part.text else "")
    reach = f" · {part.reach}" if part.reach else ""
    line = f"- {_one_line(part.title)}: {_code(part.subject)}{reach} · {at}"
    said = f"\n\n{_indented(_quoted(part.text))}" if part.text else ""
    diff = f"\n\n{_indented(_fenced(part.diff))}" if part.diff else ""
    return line + said + diff


def _time(at: datetime) -> str:
    return timezone.localtime(at).strftime("%Y-%m-%d %H:%M:%S %Z")


def _one_line(text: str) -> str:
    """Text that stays text: nothing in it is Markdown."""
    return re.sub(r"([\\`*_\[\]<>#|!])", r"\\\1", " ".join(text.split()))


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in text.strip().splitlines())


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())


def _code(text: str) -> str:
    fence = _fence(text, 1)
    return f"{fence} {text} {fence}" if "`" in text else f"`{text}`"


def _fenced(diff: str) -> str:
    fence = _fence(diff, 3)
    return f"{fence}diff\n{diff.rstrip()}\n{fence}"


def _fence(text: str, least: int) -> str:
    """Longer than any run of backticks in the text."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    return "`" * max(least, longest + 1)
