"""Workspaces and the people in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from django.contrib.auth.models import User
from pydantic import BaseModel, Field

from tasks.api.schemas.common import Strict
from tasks.models import Workspace


class MemberIn(Strict):
    role: Literal["viewer", "member", "approver"]


class MemberOut(BaseModel):
    username: str
    name: str
    role: str
    """owner, approver, member or viewer"""

    @classmethod
    def of(cls, user: User, role: str) -> MemberOut:
        username = user.get_username()
        return cls(username=username, name=user.get_full_name() or username, role=role)


class MemberList(BaseModel):
    items: Sequence[MemberOut]
    next: str | None


class WorkspaceIn(Strict):
    mcp_servers: Annotated[list[str], Field(max_length=100)]
    """Names of the MCP servers that its tasks may use, all of them."""


class WorkspaceOut(BaseModel):
    id: str
    name: str
    role: str
    """owner, approver, member or viewer"""
    mcp_servers: list[str]
    """Names of the MCP servers that its tasks may use."""

    @classmethod
    def of(cls, workspace: Workspace, role: str) -> WorkspaceOut:
        return cls(
            id=str(workspace.id),
            name=workspace.name,
            role=role,
            mcp_servers=workspace.mcp_servers,
        )


class WorkspaceList(BaseModel):
    items: Sequence[WorkspaceOut]
    next: str | None
