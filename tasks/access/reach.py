"""What a principal reaches: the owner of a session, the owner of its workspace, its members.

The rule stands here twice, as a condition for lists and as a statement that brings one row together
with what its judgement needs: most requests are about one row, and building the condition costs
five times as much as executing the statement. A test compares the two. Lists take the condition in
`parts()` as well: no index has the rows of several workspaces in one order.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeVar
from uuid import UUID

from django.contrib.auth.models import User
from django.db.models import Exists, Model, OuterRef, Q, QuerySet

from tasks import quorum
from tasks.access.identity import principal_of
from tasks.access.principal import Principal
from tasks.errors import NotFound
from tasks.lane import in_lane
from tasks.models import Approval, Member, Session, Task, Workspace
from tasks.statements import Beside

Roles = Collection[str]
EVERY_ROLE = frozenset(Member.Role)
WRITERS = frozenset({Member.Role.MEMBER, Member.Role.APPROVER})
OWNER_ONLY: frozenset[str] = frozenset()
"""No role but the owner of the session or of its workspace."""
APPROVERS = frozenset({Member.Role.APPROVER})

MAX_PARTS = 200

Row = TypeVar("Row", bound=Model)


# ── many rows ─────────────────────────────────────────────────────────────────────────────────


def visible_workspaces(principal: Principal, roles: Roles = EVERY_ROLE) -> QuerySet[Workspace]:
    """Their own, and those in which they have one of `roles`."""
    memberships = Member.objects.filter(user_id=principal.user_id, role__in=list(roles))
    return Workspace.objects.filter(
        Q(owner_id=principal.user_id) | Q(pk__in=memberships.values("workspace_id"))
    )


def visible_sessions(principal: Principal, roles: Roles = EVERY_ROLE) -> QuerySet[Session]:
    """Sessions that they own or that are in such a workspace. A deleted session is nobody's."""
    return Session.objects.filter(_reach(principal, roles), hidden=False)


def visible_tasks(principal: Principal, roles: Roles = EVERY_ROLE) -> QuerySet[Task]:
    reach = _reach(principal, roles)
    if _decides_beyond(principal) and roles == EVERY_ROLE:
        reach |= Q(Exists(_decided_beyond(principal).filter(task=OuterRef("pk"))))
    return Task.objects.filter(reach, session__hidden=False).select_related("session")


def visible_approvals(principal: Principal, roles: Roles = EVERY_ROLE) -> QuerySet[Approval]:
    rows = Approval.objects.filter(task__session__hidden=False).select_related("task")
    if principal.decides_everywhere:
        return rows
    return rows.filter(_reach(principal, roles) | _of_groups(principal))


def _decides_beyond(principal: Principal) -> bool:
    """Whether they decide anything that is not in a workspace of theirs."""
    return principal.decides_everywhere or bool(principal.decides)


def _decided_beyond(principal: Principal) -> QuerySet[Approval]:
    rows = Approval.objects.all()
    return rows if principal.decides_everywhere else rows.filter(_of_groups(principal))


def _of_groups(principal: Principal) -> Q:
    return quorum.of_groups(principal.decides) if principal.decides else Q(pk__in=[])


def _reach(principal: Principal, roles: Roles) -> Q:
    """Of sessions, tasks and approvals: each knows its owner and its workspace."""
    # A subquery, not a join: a join would repeat a row for every member of its workspace.
    workspaces = visible_workspaces(principal, roles).values("pk")
    return Q(owner_id=principal.user_id) | Q(workspace_id__in=workspaces)


def parts(principal: Principal, model: type[Model]) -> list[Q]:
    """What they may see of a model, in parts that each have an index in the order of lists; empty
    when there would be too many. They only speed up a list that is narrowed to its reach anyway."""
    if principal.decides_everywhere and model is Approval:
        return [Q()]
    seen = visible_workspaces(principal).order_by().values_list("pk", flat=True)
    places = list(seen[: MAX_PARTS + 1])
    if len(places) > MAX_PARTS:
        return []
    found = [Q(owner_id=principal.user_id), *(Q(workspace_id=place) for place in places)]
    if model is Task and _decides_beyond(principal):
        found.append(Q(Exists(_decided_beyond(principal).filter(task=OuterRef("pk")))))
    if model is Approval and principal.decides:
        found.append(_of_groups(principal))
    return found


def open_tasks(principal: Principal, limit: int = 1000) -> list[Task]:
    """What is not finished, of what they may see: every visible page asks for it all the time."""
    if principal.decides and not principal.decides_everywhere:
        rows = visible_tasks(principal).filter(status__in=Task.OPEN)
        return list(rows.order_by("first_position")[:limit])
    user = principal.user_id
    rights = [user, user, user, principal.decides_everywhere, limit]
    return list(Task.objects.raw(_OPEN_TASKS, rights))


# ── one row ───────────────────────────────────────────────────────────────────────────────────


def parse_id(value: object, what: str) -> UUID:
    """An id from a path or a body. What is not one names nothing."""
    try:
        return value if isinstance(value, UUID) else UUID(str(value))
    except ValueError:
        raise NotFound(what) from None


def find(rows: QuerySet[Row], row_id: object, what: str) -> Row:
    """The one of `rows` with this id, where there is a queryset anyway."""
    row = rows.filter(pk=parse_id(row_id, what)).first()
    if row is None:
        raise NotFound(what)
    return row


def find_workspace(
    principal: Principal, workspace_id: object, roles: Roles = EVERY_ROLE
) -> Workspace:
    return _find(principal, _ONE_WORKSPACE, Workspace, workspace_id, roles)


def find_session(principal: Principal, session_id: object, roles: Roles = EVERY_ROLE) -> Session:
    return _find(principal, _ONE_SESSION, Session, session_id, roles)


def find_task(principal: Principal, task_id: object, roles: Roles = EVERY_ROLE) -> Task:
    def decides(task: Task) -> bool:
        reads = _decides_beyond(principal) and roles == EVERY_ROLE
        return reads and _decided_beyond(principal).filter(task=task).exists()

    return _find(principal, _ONE_TASK, Task, task_id, roles, decides)


def find_approval(principal: Principal, approval_id: object, roles: Roles = EVERY_ROLE) -> Approval:
    def decides(approval: Approval) -> bool:
        return principal.decides_everywhere or quorum.decided_by_group(
            approval.capability, principal.decides
        )

    return _find(principal, _ONE_APPROVAL, Approval, approval_id, roles, decides)


def may_decide(approval: Approval, principal: Principal) -> bool:
    try:
        find_approval(principal, approval.pk, APPROVERS)
    except NotFound:
        return False
    return True


def may_take_back(task: Task, capability: str, principal: Principal) -> bool:
    """Whether somebody who sees a task decides calls like one of it: then they may undo that one,
    which is a late no."""
    if "approve" not in principal.scopes:
        return False
    if principal.decides_everywhere or quorum.decided_by_group(capability, principal.decides):
        return True
    try:
        find_task(principal, task.pk, APPROVERS)
    except NotFound:
        return False
    return True


def may_approve(approval: Approval, user_id: int) -> bool:
    """Whether a user may say yes to it now. Reads `approval.task`."""
    user = User.objects.filter(pk=user_id, is_active=True).first()
    if user is None or not may_decide(approval, principal := principal_of(user)):
        return False
    rights = quorum.Rights(user_id=user_id, patterns=principal.decides)
    return quorum.refusal(approval, rights) is None


def decides_in_workspace(approval: Approval, user_id: int) -> bool:
    """Whether a user decides calls like this one in its whole workspace, and not only because the
    session is theirs."""
    principal = principal_of(User.objects.get(pk=user_id))
    if principal.decides_everywhere:
        return True
    places = visible_workspaces(principal, APPROVERS)
    return places.filter(pk=approval.workspace_id).exists()


def _nobody_else(row: Model) -> bool:
    return False


def _find(
    principal: Principal,
    statement: Beside[Row],
    model: type[Row],
    row_id: object,
    roles: Roles,
    others: Callable[[Row], bool] = _nobody_else,
) -> Row:
    """`others` may reach it by another right than a role."""
    what = str(model._meta.verbose_name)
    for row, (session_owner, workspace_owner, role) in statement(
        principal.user_id, parse_id(row_id, what)
    ):
        owns = principal.user_id in (session_owner, workspace_owner)
        if owns or role in roles or others(row):
            return row
    raise NotFound(what)


_WORKSPACE, _MEMBER = Workspace._meta.db_table, Member._meta.db_table
_SESSION, _TASK, _APPROVAL = (model._meta.db_table for model in (Session, Task, Approval))
_ROLE = f"LEFT JOIN {_MEMBER} m ON m.workspace_id = w.id AND m.user_id = %s"
_IN_SESSION = f"JOIN {_WORKSPACE} w ON w.id = s.workspace_id {_ROLE}"
_JUDGED = "s.owner_id, w.owner_id, m.role"
# Only names of tables are put into these texts.
_ONE_WORKSPACE = Beside(Workspace, "w", "NULL, w.owner_id, m.role", f"{_ROLE} WHERE w.id = %s")
_ONE_SESSION = Beside(Session, "s", _JUDGED, f"{_IN_SESSION} WHERE s.id = %s AND NOT s.hidden")
_ONE_TASK = Beside(
    Task,
    "t",
    _JUDGED,
    f"JOIN {_SESSION} s ON s.id = t.session_id {_IN_SESSION} WHERE t.id = %s AND NOT s.hidden",
)
_ONE_APPROVAL = Beside(
    Approval,
    "a",
    _JUDGED,
    f"""JOIN {_TASK} t ON t.id = a.task_id JOIN {_SESSION} s ON s.id = t.session_id {_IN_SESSION}
    WHERE a.id = %s AND NOT s.hidden""",
)

# The words of the index `task_open`: with parameters in their place SQLite would not use it.
_STATUSES = "('queued', 'running', 'waiting_approval')"
_OPEN_TASKS = f"""
    SELECT t.id, t.session_id, t.status FROM {_TASK} t
    JOIN {_SESSION} s ON s.id = t.session_id {_IN_SESSION}
    WHERE t.status IN {_STATUSES} AND NOT s.hidden AND (
        s.owner_id = %s OR w.owner_id = %s OR m.role IS NOT NULL
        OR (%s AND EXISTS (SELECT 1 FROM {_APPROVAL} a WHERE a.task_id = t.id)))
    ORDER BY t.first_position LIMIT %s"""  # noqa: S608


# ── the same for the event loop ───────────────────────────────────────────────────────────────


async def visible_session(principal: Principal, session_id: object) -> Session:
    return await in_lane(find_session, principal, session_id)


async def visible_task(principal: Principal, task_id: object) -> Task:
    return await in_lane(find_task, principal, task_id)


async def visible_approval(principal: Principal, approval_id: object) -> Approval:
    return await in_lane(find_approval, principal, approval_id)


async def usable_workspace(principal: Principal, workspace_id: object) -> Workspace:
    """One in which they may begin a session."""
    return await in_lane(find_workspace, principal, workspace_id, WRITERS)


async def writable_session(principal: Principal, session_id: object) -> Session:
    """One that they may change and send to; one that they may only read is NotFound as well."""
    return await in_lane(find_session, principal, session_id, WRITERS)


async def writable_task(principal: Principal, task_id: object) -> Task:
    return await in_lane(find_task, principal, task_id, WRITERS)


async def decidable_approval(principal: Principal, approval_id: object) -> Approval:
    """One that they may decide: the owner, an approver, or a holder of the permission."""
    principal.need("approve")
    return await in_lane(find_approval, principal, approval_id, APPROVERS)
