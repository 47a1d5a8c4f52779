"""`resolve_approval`: answer an approval without the API. The rules are the same."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from asgiref.sync import async_to_sync

from agent.policy import REPLY_SCOPES
from tasks import decisions
from tasks.access import APPROVERS, find, principal_of, visible_approvals
from tasks.approvals import Reply
from tasks.errors import Conflict, ServiceError
from tasks.management.people import Refused, in_words, the_user
from tasks.management.terminal import describe
from tasks.management.unchecked import UncheckedCommand
from tasks.models import Approval


class Command(UncheckedCommand):
    help = (
        "Approve or reject what a task asks. Its run goes on where a server is running, else with "
        "recover_tasks. Exit status: 0 it is decided as you say, 1 it was decided already, 2 usage."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("approval", metavar="ID")
        parser.add_argument("decision", choices=["approve", "reject"])
        parser.add_argument("--comment", default="", help="the agent reads it")
        parser.add_argument(
            "--answer",
            default="",
            help="what you say to a question; done or retry, when it is unknown whether a call happened",
        )
        parser.add_argument(
            "--scope",
            choices=REPLY_SCOPES,
            default="once",
            help="how far it reaches: what the card names, for the task, the session or always",
        )
        parser.add_argument("--edit", metavar="JSON", help="other arguments for the call")
        parser.add_argument(
            "--user", metavar="NAME", help="who says so (default: the only superuser)"
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        with in_words():
            user = the_user(options["user"])
            approval = _approval(options["approval"], options["user"])
            reply = Reply(
                decision=options["decision"],
                comment=options["comment"],
                answer=options["answer"],
                edited_arguments=_arguments(options["edit"]),
                scope=options["scope"],
            )
            try:
                decided = async_to_sync(decisions.resolve)(approval.pk, user.pk, reply)
            except Conflict as late:
                raise Refused(_too_late(late), returncode=1) from None
        call = describe(decided.tool, decided.edited_arguments or decided.arguments, 100)
        if decided.status == Approval.Status.PENDING:
            self.stdout.write(f"Your yes is noted. One more person must agree: {call}")
            return
        self.stdout.write(f"{decided.status}: {call}")
        self.stdout.write(
            "The task goes on where a server runs, else with: .venv/bin/python manage.py recover_tasks"
        )


def _approval(asked: str, name: str | None) -> Approval:
    try:
        return find(visible_approvals(principal_of(the_user(name)), APPROVERS), asked, "approval")
    except ServiceError:
        raise Refused(f"There is no approval {asked}.") from None


def _too_late(late: Conflict) -> str:
    successor = (late.details or {}).get("approval_id") if late.code == "stale" else None
    return f"{late.message} The new approval is {successor}." if successor else late.message


def _arguments(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        arguments = json.loads(text)
    except ValueError as error:
        raise Refused(f"--edit is not JSON: {error}.") from None
    if not isinstance(arguments, dict):
        raise Refused("--edit must be a JSON object with the call's arguments.")
    return arguments
