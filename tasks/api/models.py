"""The models that everybody may choose from. Where they are and their keys are for staff alone."""

from __future__ import annotations

from asgiref.sync import sync_to_async
from django.http import HttpRequest
from ninja import Router

from tasks.api import paging
from tasks.api.paging import DEFAULT_LIMIT, Cursor, Limit
from tasks.api.schemas import ModelList, ModelOut, answers
from tasks.models import ModelProfile

router = Router(tags=["models"])


@router.get("", response=answers(200, ModelList))
async def list_models(
    request: HttpRequest, cursor: Cursor = None, limit: Limit = DEFAULT_LIMIT
) -> ModelList:
    """For `model_profile_id` of a session and `model` of a task."""
    rows = ModelProfile.objects.all()
    items, following = await sync_to_async(paging.page)(rows, "created_at", cursor, limit)
    return ModelList(items=[ModelOut.of(row) for row in items], next=following)
