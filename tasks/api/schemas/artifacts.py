"""Files that runs made."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel

from tasks.api.schemas.common import stamp
from tasks.artifacts import State
from tasks.models import Artifact


class ArtifactOut(BaseModel):
    id: str
    task_id: str
    path: str
    size: int
    sha256: str
    media_type: str
    created_at: str | None
    state: str
    """What became of it since: unchanged, changed, gone. Only what is unchanged can be downloaded."""
    url: str
    """Downloads it."""
    view_url: str
    """A page that shows it, if it is text."""

    @classmethod
    def of(cls, artifact: Artifact, state: State) -> ArtifactOut:
        return cls(
            id=str(artifact.pk),
            task_id=str(artifact.task_id),
            path=artifact.path,
            size=artifact.size,
            sha256=artifact.sha256,
            media_type=artifact.media_type,
            created_at=stamp(artifact.created_at),
            state=state,
            url=f"/api/artifacts/{artifact.pk}",
            view_url=f"/artifacts/{artifact.pk}/view",
        )


class ArtifactList(BaseModel):
    items: Sequence[ArtifactOut]
    next: None
