"""What every run in a workspace is told of its files before it reads any: memory, and skills."""

from __future__ import annotations

import asyncio
from pathlib import Path
from uuid import UUID

from asgiref.sync import sync_to_async
from django.http import HttpRequest
from ninja import Router

from agent.memory import MAX_PROMPT_BYTES, remembered
from agent.policy import Policy
from agent.text import unmark
from agent.workspace import Workspace
from tasks import access, rules, toolboxes, wiring
from tasks.api.edge import who
from tasks.api.schemas import MemoryOut, SkillList, SkillOut, answers

router = Router(tags=["files"])


@router.get("/{workspace_id}/memory", response=answers(200, MemoryOut, 404))
async def read_memory(request: HttpRequest, workspace_id: str) -> MemoryOut:
    """Memory as the next run's prompt shows it. Its files are under `memory/`."""
    workspace = await _folder(request, workspace_id)
    found = await sync_to_async(rules.in_force)(rules.Places(workspace_id=UUID(workspace_id)))
    permits = wiring.permits(Policy(rules=found), "read_file")
    text = unmark(await asyncio.to_thread(remembered, workspace, permits))
    return MemoryOut(text=text, limit=MAX_PROMPT_BYTES)


@router.get("/{workspace_id}/skills", response=answers(200, SkillList, 404))
async def list_skills(request: HttpRequest, workspace_id: str) -> SkillList:
    """The skills that count here, by name; of those that cannot be used, why not."""
    workspace = await _folder(request, workspace_id)
    skills = await asyncio.to_thread(toolboxes.library().skills, workspace)
    return SkillList(items=[SkillOut.of(skill) for skill in skills], next=None)


async def _folder(request: HttpRequest, workspace_id: str) -> Workspace:
    row = await sync_to_async(access.find_workspace)(who(request), workspace_id)
    return Workspace(Path(row.root))
