"""Who may say yes to which capability, and how many must: demands of the settings, off by default.

A demand names a capability (`shell:execute`) or the last segment of capabilities (`execute`); the
whole name wins. It limits approving alone: whoever may decide at all may always reject.

- an approver group: only its members approve; they see and decide these approvals in every workspace
- another person: whoever asked for the task, or said something to it since, does not approve its
  calls
- two people: the second yes to the same thing counts, the first is a vote

A yes that stood for later calls would get round each of them, so such a card is for one call, and
what an earlier yes left behind does not count while the demand is set.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from django.contrib.auth.models import Group, User
from django.db.models import Q

from tasks.canonical import canonical_json
from tasks.conf import conf
from tasks.errors import Conflict
from tasks.models import Approval, Task, TaskEvent


@dataclass(frozen=True, kw_only=True)
class Rights:
    """What one person is in the eyes of these demands."""

    user_id: int
    patterns: frozenset[str] = field(default_factory=frozenset)
    """The keys of the setting whose group they are in."""


@dataclass(frozen=True, kw_only=True)
class Demands:
    """What must be true of whoever approves a capability."""

    group: str
    """Its members alone; empty: whoever may decide."""
    another_person: bool
    votes: int


def demands_of(capability: str) -> Demands:
    key = group_pattern(capability)
    return Demands(
        group="" if key is None else conf().approver_groups[key],
        another_person=_named(capability, conf().other_approver),
        votes=votes_needed(capability),
    )


def rights_of(user_id: int) -> Rights:
    """Asks the database only when there are approver groups."""
    groups = conf().approver_groups
    if not groups:
        return Rights(user_id=user_id)
    theirs = set(
        Group.objects.filter(user=user_id, name__in=set(groups.values())).values_list(
            "name", flat=True
        )
    )
    keys = frozenset(pattern for pattern, group in groups.items() if group in theirs)
    return Rights(user_id=user_id, patterns=keys)


def group_pattern(capability: str) -> str | None:
    """The key of the approver group that a capability demands."""
    groups = conf().approver_groups
    return next((key for key in _names(capability) if key in groups), None)


def demanded(capability: str) -> bool:
    """Whether any demand is set on it: then a person is asked about every call."""
    settings = conf()
    limited = (*settings.two_approvers, *settings.other_approver, *settings.approver_groups)
    return _named(capability, limited)


def votes_needed(capability: str) -> int:
    return 2 if _named(capability, conf().two_approvers) else 1


def decided_by_group(capability: str, patterns: frozenset[str]) -> bool:
    return group_pattern(capability) in patterns


def of_groups(patterns: frozenset[str]) -> Q:
    """The condition for approvals that members of these groups decide, and for rules of such."""
    whole = [key for key in patterns if ":" in key]
    reach = Q(capability__in=whole)
    others = [key for key in conf().approver_groups if ":" in key and key not in patterns]
    for key in patterns - set(whole):
        reach |= (Q(capability=key) | Q(capability__endswith=f":{key}")) & ~Q(capability__in=others)
    return reach


def refusal(approval: Approval, rights: Rights) -> Conflict | None:
    """Why this person may not approve it, although they may decide. Reads `approval.task`."""
    key = group_pattern(approval.capability)
    if key is not None and key not in rights.patterns:
        group = conf().approver_groups[key]
        message = f"Only members of the group {group} approve {approval.capability}."
        return Conflict("not_an_approver", message, {"group": group})
    if _named(approval.capability, conf().other_approver) and _asked_for(approval.task, rights):
        message = f"Whoever asked for the task does not approve {approval.capability}."
        return Conflict("own_request", message)
    return None


def _asked_for(task: Task, rights: Rights) -> bool:
    """With the goal, or with a message that steered it: a colleague's task is no way round."""
    if task.created_by_id == rights.user_id:
        return True
    name = User.objects.values_list("username", flat=True).get(pk=rights.user_id)
    said = TaskEvent.objects.filter(task_id=task.pk, type="user_message")
    # In the text of a message the quotation marks are escaped.
    return said.filter(payload__contains=f'"by":{canonical_json(name)}').exists()


def _named(capability: str, patterns: tuple[str, ...]) -> bool:
    return any(name in patterns for name in _names(capability))


def _names(capability: str) -> tuple[str, str]:
    return capability, capability.rpartition(":")[2]
