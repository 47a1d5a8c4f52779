"""Who is asking, and what they may see, change and decide.

`identify` finds the principal of a request; `find_…` and the async functions beside them lead from
a principal to one row, the `visible_…` querysets to many. There is no other way. What somebody may
not see is `NotFound`, exactly like what does not exist: unknown, malformed and foreign ids look the
same.
"""

from __future__ import annotations

from tasks.access.deciding import Part, parts_in
from tasks.access.identity import identify, identify_now, principal_of, renewed, renewed_now
from tasks.access.principal import SAFE_METHODS, SCOPES, Principal
from tasks.access.reach import (
    APPROVERS,
    EVERY_ROLE,
    OWNER_ONLY,
    WRITERS,
    Roles,
    decidable_approval,
    decides_in_workspace,
    find,
    find_approval,
    find_session,
    find_task,
    find_workspace,
    may_approve,
    may_decide,
    may_take_back,
    open_tasks,
    parse_id,
    parts,
    usable_workspace,
    visible_approval,
    visible_approvals,
    visible_session,
    visible_sessions,
    visible_task,
    visible_tasks,
    visible_workspaces,
    writable_session,
    writable_task,
)
from tasks.access.tokens import TOKEN_USED_EVERY, digest_of, issue_token, revoke_token

__all__ = [
    "APPROVERS",
    "EVERY_ROLE",
    "OWNER_ONLY",
    "SAFE_METHODS",
    "SCOPES",
    "TOKEN_USED_EVERY",
    "WRITERS",
    "Part",
    "Principal",
    "Roles",
    "decidable_approval",
    "decides_in_workspace",
    "digest_of",
    "find",
    "find_approval",
    "find_session",
    "find_task",
    "find_workspace",
    "identify",
    "identify_now",
    "issue_token",
    "may_approve",
    "may_decide",
    "may_take_back",
    "open_tasks",
    "parse_id",
    "parts",
    "parts_in",
    "principal_of",
    "renewed",
    "renewed_now",
    "revoke_token",
    "usable_workspace",
    "visible_approval",
    "visible_approvals",
    "visible_session",
    "visible_sessions",
    "visible_task",
    "visible_tasks",
    "visible_workspaces",
    "writable_session",
    "writable_task",
]
