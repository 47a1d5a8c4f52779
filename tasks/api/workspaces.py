"""Workspaces over HTTP, and the people in them. Their owner says who."""

from __future__ import annotations

from typing import Any

from asgiref.sync import sync_to_async
from django.http import HttpRequest
from ninja import Router
from ninja.responses import Status

from tasks import access, members, servers
from tasks.access import OWNER_ONLY, Principal
from tasks.api import paging
from tasks.api.edge import who
from tasks.api.paging import DEFAULT_LIMIT, Cursor, Limit
from tasks.api.schemas import (
    MemberIn,
    MemberList,
    MemberOut,
    WorkspaceIn,
    WorkspaceList,
    WorkspaceOut,
    answers,
)
from tasks.models import Member

router = Router(tags=["workspaces"])


@router.get("", response=answers(200, WorkspaceList))
async def list_workspaces(
    request: HttpRequest, cursor: Cursor = None, limit: Limit = DEFAULT_LIMIT
) -> WorkspaceList:
    """The workspaces that you own or are a member of."""
    principal = who(request)
    rows = access.visible_workspaces(principal)
    items, following = await sync_to_async(paging.page)(rows, "created_at", cursor, limit)
    memberships = Member.objects.filter(user_id=principal.user_id, workspace__in=items)
    roles = {member.workspace_id: member.role async for member in memberships}
    return WorkspaceList(
        items=[
            WorkspaceOut.of(
                row, "owner" if row.owner_id == principal.user_id else str(roles[row.pk])
            )
            for row in items
        ],
        next=following,
    )


@router.patch("/{workspace_id}", response=answers(200, WorkspaceOut, 404))
async def change_workspace(
    request: HttpRequest, workspace_id: str, payload: WorkspaceIn
) -> WorkspaceOut:
    """Say which MCP servers its tasks may use, of those that the settings declare. Only the owner
    may."""
    return await sync_to_async(_change)(who(request), workspace_id, payload.mcp_servers)


def _change(principal: Principal, workspace_id: str, names: list[str]) -> WorkspaceOut:
    workspace = access.find_workspace(principal, workspace_id, OWNER_ONLY)
    return WorkspaceOut.of(servers.allow(workspace, names, by=principal.username), "owner")


@router.get("/{workspace_id}/members", response=answers(200, MemberList, 404))
async def list_members(request: HttpRequest, workspace_id: str) -> MemberList:
    """Everybody in it, the owner first."""
    return await sync_to_async(_members)(who(request), workspace_id)


def _members(principal: Principal, workspace_id: str) -> MemberList:
    workspace = access.find_workspace(principal, workspace_id)
    others = [MemberOut.of(row.user, row.role) for row in members.members_of(workspace)]
    return MemberList(items=[MemberOut.of(workspace.owner, "owner"), *others], next=None)


@router.put("/{workspace_id}/members/{username}", response=answers(200, MemberOut, 404))
async def set_member(
    request: HttpRequest, workspace_id: str, username: str, payload: MemberIn
) -> MemberOut:
    """Let somebody in or change their role. Only the owner may."""
    return await sync_to_async(_set)(who(request), workspace_id, username, payload.role)


def _set(principal: Principal, workspace_id: str, username: str, role: str) -> MemberOut:
    workspace = access.find_workspace(principal, workspace_id, OWNER_ONLY)
    member = members.set_role(workspace, username, role, principal.username)
    return MemberOut.of(member.user, member.role)


@router.delete("/{workspace_id}/members/{username}", response=answers(204, None, 404))
async def remove_member(request: HttpRequest, workspace_id: str, username: str) -> Status[Any]:
    """They see nothing of it any more; their sessions in it pass to you. Only the owner may."""
    await sync_to_async(_remove)(who(request), workspace_id, username)
    return Status(204, None)


def _remove(principal: Principal, workspace_id: str, username: str) -> None:
    workspace = access.find_workspace(principal, workspace_id, OWNER_ONLY)
    members.remove(workspace, username, principal.username)
