"""What several tables have in common."""

from __future__ import annotations

from typing import Any

from django.db import models

MODES = [("ask", "ask"), ("deny", "deny"), ("read_only", "read only")]

COPIED: dict[str, Any] = {
    "on_delete": models.PROTECT,
    "related_name": "+",
    "db_constraint": False,
    "db_index": False,
    "editable": False,
}
"""A column copied from the row above, which has the constraint; `recent` has its indexes."""


def copy_place(row: Any, above: Any) -> None:
    """A new row belongs to whom the row above it belongs to."""
    if row._state.adding:
        row.owner_id, row.workspace_id = above.owner_id, above.workspace_id


def recent(name: str) -> list[models.Index]:
    """For the lists of one owner or one workspace, newest first, of all statuses or one."""
    order = ["-created_at", "-id"]
    return [
        models.Index(fields=[place, *status, *order], name="_".join([name, "of", place, *status]))
        for place in ("owner", "workspace")
        for status in ([], ["status"])
    ]
