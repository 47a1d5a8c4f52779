"""`run_task`: one task in this process, shown as it happens. The exit status is the outcome.

It creates an ordinary task through the service and runs it with the server's own code: policy,
approvals and the log are the same, and another process takes over if this one dies.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from typing import Any, TextIO, cast
from uuid import UUID

from django.contrib.auth.models import User

from agent.events import TERMINAL_TYPES, ApprovalRequired, ApprovalResolved
from tasks import events
from tasks.access import WRITERS, Principal, find, principal_of, visible_tasks
from tasks.commands import TaskRequest
from tasks.conf import conf
from tasks.errors import ServiceError
from tasks.events import Row
from tasks.management.asking import Asker, Keyboard
from tasks.management.feed import Feed
from tasks.management.here import Here
from tasks.management.people import Refused, in_words, quiet, the_user, the_workspace
from tasks.management.terminal import Screen
from tasks.management.unchecked import UncheckedCommand
from tasks.management.views import Json, Outlet, Plain, View
from tasks.models import Approval, Task, Workspace
from tasks.runner import worker_name

EXIT = {
    "task_completed": 0,
    "task_failed": 1,
    "waiting_approval": 3,
    "task_cancelled": 4,
    "budget_exceeded": 5,
}
RELEASED = 128 + 15
"""SIGTERM: the task has not ended, another process continues it."""
SETTLED = frozenset({"already_resolved", "expired", "stale"})
"""Refusals of an answer after which the question is not open any more."""


class Command(UncheckedCommand):
    help = (
        "Run one task here and show it live. Exit status: 0 completed, 1 failed, 2 usage, "
        "3 waiting for an approval, 4 cancelled, 5 over budget."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--workspace", metavar="NAME|PATH", help="a workspace, or a folder to work in"
        )
        parser.add_argument("--goal", required=True, help="what should be done")
        parser.add_argument("--user", metavar="NAME", help="who asks (default: the only superuser)")
        parser.add_argument(
            "--follow-up", metavar="TASK", help="continue the conversation of this task"
        )
        parser.add_argument(
            "--json", action="store_true", help="one line of JSON per event, as on the stream"
        )
        parser.add_argument(
            "--approve",
            choices=["ask", "deny", "wait"],
            help="ask here (default on a terminal), refuse, or leave it in the inbox (default else)",
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        approve = options["approve"] or _default_approve(options["json"])
        with quiet(options["verbosity"]), in_words(), Here() as here, here.signals():
            request, workspace = _request(options, approve)
            view, screen = self._view(options["json"])
            created, feed = here.create(request)
            view.began(created.task_id, workspace.name)
            _note_turn(created.task_id, view)
            asker = Asker(screen, Keyboard(sys.stdin)) if approve == "ask" else None
            status = Showing(here, feed, view, asker).run()
        if status:
            sys.exit(status)

    def _view(self, as_json: bool) -> tuple[View, Screen]:
        """Where it is shown, and where questions are asked."""
        out, err = (cast(TextIO, Outlet(stream)) for stream in (self.stdout, self.stderr))
        screen = Screen(err if as_json else out)
        return (Json(out, screen) if as_json else Plain(screen)), screen


class Showing:
    """Shows a task until it ends or waits for somebody who is not here."""

    def __init__(self, here: Here, feed: Feed, view: View, asker: Asker | None) -> None:
        self._here = here
        self._feed = feed
        self._view = view
        self._asker = asker
        self._open: dict[str, ApprovalRequired] = {}
        self._end = ""

    def run(self) -> int:
        """The exit status."""
        for item in self._feed:
            if isinstance(item, Row):
                self._stored(item)
            elif item is not None:
                self._view.live(item)
            elif self._open and not self._settle():
                self._view.left_open(list(self._open.values()))
                return EXIT["waiting_approval"]
        if self._end:
            return EXIT[self._end]
        self._view.note("Let go of the task: a server or `manage.py recover_tasks` continues it.")
        return RELEASED

    def _stored(self, row: Row) -> None:
        self._view.stored(row)
        if row.type in TERMINAL_TYPES:
            self._end = row.type
        elif row.type in {"approval_required", "approval_resolved"}:
            self._remember(events.typed(row))

    def _remember(self, event: object) -> None:
        if isinstance(event, ApprovalRequired):
            self._open[event.approval_id] = event
        elif isinstance(event, ApprovalResolved):
            self._open.pop(event.approval_id, None)

    def _settle(self) -> bool:
        """Deal with the first open question; False when it stays open."""
        if self._asker is None:
            return False
        question = next(iter(self._open.values()))
        approval_id = UUID(question.approval_id)
        if isinstance(self._view, Json):
            self._asker.show(question)
        reply = self._asker.ask(
            question, lambda: not self._here.terminated and _is_pending(approval_id)
        )
        if reply is None:
            return self._here.terminated or not _is_pending(approval_id)
        try:
            decided = self._here.resolve(Approval.objects.get(pk=approval_id), reply)
            if decided.status == Approval.Status.PENDING:
                self._view.note("Your yes is noted. One more person must agree.")
                return False
        except ServiceError as refused:
            self._view.note(refused.message)
            if refused.code not in SETTLED:
                return True  # asked again
        del self._open[question.approval_id]
        return True


def _is_pending(approval_id: UUID) -> bool:
    return Approval.objects.filter(pk=approval_id, status=Approval.Status.PENDING).exists()


def _request(options: dict[str, Any], approve: str) -> tuple[TaskRequest, Workspace]:
    user = the_user(options["user"], may_make=True)
    principal = principal_of(user)
    followed = _followed(options["follow_up"], principal)
    workspace = _workspace(options["workspace"], followed, user, principal)
    request = TaskRequest(
        goal=options["goal"],
        owner_id=user.pk,
        by=user.get_username(),
        trigger=Task.Trigger.COMMAND,
        session_id=followed.session_id if followed else None,
        workspace_id=workspace.pk,
        follow_up_of=followed.pk if followed else None,
        when_busy="queue",
        # A request cannot loosen: a server that only reads stays so.
        mode="deny" if approve == "deny" and conf().mode == "ask" else "",
        worker=worker_name(),
    )
    return request, workspace


def _followed(task_id: str | None, principal: Principal) -> Task | None:
    if not task_id:
        return None
    try:
        return find(visible_tasks(principal, WRITERS), task_id, "task")
    except ServiceError:
        raise Refused(f"There is no task {task_id}.") from None


def _workspace(
    asked: str | None, followed: Task | None, user: User, principal: Principal
) -> Workspace:
    if asked:
        workspace = the_workspace(asked, user, principal)
        if followed and followed.session.workspace_id != workspace.pk:
            raise Refused(
                f"Task {followed.pk} belongs to another workspace; leave --workspace out."
            )
        return workspace
    if followed is None:
        raise Refused("Say where to work: --workspace NAME or PATH.")
    return followed.session.workspace


def _note_turn(task_id: UUID, view: View) -> None:
    task = Task.objects.get(pk=task_id)
    earlier = Task.objects.filter(
        session_id=task.session_id, status__in=Task.OPEN, first_position__lt=task.first_position
    ).first()
    if earlier is not None:
        view.note(f"Waits for its turn: task {earlier.pk} of this session is {earlier.status}.")


def _default_approve(as_json: bool) -> str:
    somebody = sys.stdin.isatty() and sys.stdout.isatty()
    return "ask" if somebody and not as_json else "wait"
