"""`policy_test`: what would happen to this call, and why? And to those of past tasks?"""

from __future__ import annotations

import json
from argparse import ArgumentParser
from pathlib import Path
from typing import Any, cast
from uuid import UUID

from asgiref.sync import async_to_sync

from tasks import explaining, toolboxes
from tasks.explaining import Question, Replayed, RuleSet
from tasks.management.people import Refused, in_words
from tasks.management.terminal import describe
from tasks.management.unchecked import UncheckedCommand
from tasks.models import Session, Task, Workspace

MODES = ("ask", "deny", "read_only")


class Command(UncheckedCommand):
    help = (
        "Say what policy decides about one call (--tool, --arguments), or about the calls of past "
        "tasks (--replay), perhaps with other rules (--rules). Nothing is run. Exit status: 0 "
        "allowed or nothing changes, 1 asked, denied or something changes, 2 usage."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--workspace", metavar="NAME", help="where the call would be made")
        parser.add_argument("--session", type=UUID, metavar="ID", help="in this session")
        parser.add_argument("--tool", metavar="NAME")
        parser.add_argument("--arguments", metavar="JSON", default="{}")
        parser.add_argument("--trigger", choices=Task.Trigger.values, default=Task.Trigger.CHAT)
        parser.add_argument("--mode", choices=MODES, default="")
        parser.add_argument("--replay", action="store_true", help="judge the calls of past tasks")
        parser.add_argument("--task", type=UUID, metavar="ID", help="with --replay: only this task")
        parser.add_argument("--last", type=int, default=50, help="with --replay: so many tasks")
        parser.add_argument("--all", action="store_true", help="also what does not change")
        parser.add_argument(
            "--rules", type=Path, metavar="FILE", help="a JSON list of rules that count as well"
        )
        parser.add_argument(
            "--only", action="store_true", help="with --rules: the stored ones do not count"
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        with in_words():
            rule_set = _rule_set(options["rules"], only=options["only"])
            if options["replay"]:
                self._replay(options, rule_set)
            elif options["tool"]:
                self._explain(_question(options), rule_set)
            else:
                raise Refused("Say which call: --tool NAME --arguments JSON, or --replay.")

    def _explain(self, question: Question, rule_set: RuleSet) -> None:
        known = toolboxes.toolbox(question.workspace).names
        if question.tool not in known:
            raise Refused(
                f"There is no tool {question.tool} in the workspace {question.workspace.name}:"
                f" {', '.join(sorted(known))}."
            )
        found = async_to_sync(explaining.explain)(question, rule_set)
        self.stdout.write(f"{found.decision}: {found.reason}")
        for step in found.chain:
            self.stdout.write(f"  {step}")
        if found.decision != "allow":
            raise SystemExit(1)

    def _replay(self, options: dict[str, Any], rule_set: RuleSet) -> None:
        where = {"pk": options["task"]} if options["task"] else {}
        tasks = explaining.latest_tasks(options["last"], **where)
        calls = async_to_sync(_replayed)(tasks, rule_set)
        changes = [call for call in calls if call.differs]
        for call in calls if options["all"] else changes:
            self.stdout.write(_line(call))
        self.stdout.write(f"{len(tasks)} tasks, {len(calls)} calls, {len(changes)} would change")
        if changes:
            raise SystemExit(1)


async def _replayed(tasks: list[Task], rule_set: RuleSet) -> list[Replayed]:
    return [call async for call in explaining.replay(tasks, rule_set)]


def _line(call: Replayed) -> str:
    what = describe(call.tool, dict(call.arguments), 80)
    verdict = f"{call.then} -> {call.now.decision}" if call.differs else call.then
    return f"task {call.task_id} event {call.sequence}: {what}: {verdict} ({call.now.rule})"


def _rule_set(file: Path | None, *, only: bool) -> RuleSet:
    if file is None:
        return RuleSet()
    try:
        return RuleSet(extra=explaining.rules_from(file.read_bytes()), stored=not only)
    except OSError as error:
        raise Refused(f"{file} cannot be read: {error.strerror}.") from None
    except ValueError as problem:
        raise Refused(f"{file}: {problem}") from None


def _question(options: dict[str, Any]) -> Question:
    session = _session(options["session"])
    return Question(
        workspace=_workspace(options["workspace"]) if session is None else session.workspace,
        tool=options["tool"],
        arguments=_arguments(options["arguments"]),
        trigger=options["trigger"],
        mode=options["mode"],
        session=session,
    )


def _session(asked: UUID | None) -> Session | None:
    if asked is None:
        return None
    found = Session.objects.select_related("workspace").filter(pk=asked).first()
    if found is None:
        raise Refused(f"There is no session {asked}.")
    return found


def _workspace(name: str | None) -> Workspace:
    found = list(Workspace.objects.filter(**({"name": name} if name else {}))[:2])
    if len(found) == 1:
        return found[0]
    if not found:
        raise Refused(f"There is no workspace called {name}." if name else "There is no workspace.")
    raise Refused("There are several such workspaces: say which session, with --session ID.")


def _arguments(text: str) -> dict[str, Any]:
    try:
        arguments = json.loads(text)
    except ValueError as error:
        raise Refused(f"--arguments is not JSON: {error}.") from None
    if not isinstance(arguments, dict):
        raise Refused("--arguments must be a JSON object.")
    return cast("dict[str, Any]", arguments)
