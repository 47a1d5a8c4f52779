"""The Django admin: a window on everything durable, and a door only where people decide.

Evidence (tasks, events, approvals, sessions, artifacts, audit entries) is read-only; what people
may do here (decide, revoke, schedule, manage members) calls the same functions as the API and is
audited. All pages work without inline script or style, and everything shown is escaped.
"""

from __future__ import annotations

from tasks.admin import accounts as accounts
from tasks.admin import approvals as approvals
from tasks.admin import auditing as auditing
from tasks.admin import jobs as jobs
from tasks.admin import naming
from tasks.admin import notices as notices
from tasks.admin import people as people
from tasks.admin import places as places
from tasks.admin import profiles as profiles
from tasks.admin import rules as rules
from tasks.admin import schedules as schedules
from tasks.admin import servers as servers
from tasks.admin import tasks as tasks
from tasks.admin import usage as usage
from tasks.admin import webhooks as webhooks

naming.name_all()
