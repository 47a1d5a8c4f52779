"""What is durable: the rows behind sessions, tasks, their events, approvals and tokens.

Status columns move only through `tasks.lifecycle` and `tasks.approvals`; `TaskEvent` rows are
written only by `tasks.events`. Everything a URL names has a UUID.
"""

from __future__ import annotations

from tasks.models.audit import AuditEntry, AuditHead
from tasks.models.columns import MODES
from tasks.models.decisions import Approval, Notice, PolicyRule
from tasks.models.people import ApiToken, SignInLink
from tasks.models.places import Member, Workspace
from tasks.models.profiles import LearntQuirks, ModelProfile
from tasks.models.schedules import Schedule, ScheduleTick
from tasks.models.servers import McpTool
from tasks.models.threads import AguiRun, AguiThread
from tasks.models.webhooks import Webhook, WebhookDelivery
from tasks.models.work import Artifact, ModelUsage, Session, Task, TaskEvent, Tombstone

__all__ = [
    "MODES",
    "AguiRun",
    "AguiThread",
    "ApiToken",
    "Approval",
    "Artifact",
    "AuditEntry",
    "AuditHead",
    "LearntQuirks",
    "McpTool",
    "Member",
    "ModelProfile",
    "ModelUsage",
    "Notice",
    "PolicyRule",
    "Schedule",
    "ScheduleTick",
    "Session",
    "SignInLink",
    "Task",
    "TaskEvent",
    "Tombstone",
    "Webhook",
    "WebhookDelivery",
    "Workspace",
]
