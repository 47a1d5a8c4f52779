"""Django's permission `tasks.resolve_approval`, as a condition: every request asks for it.

It says what `has_perm()` of Django's own backend says of an active user who is no superuser.
"""

from __future__ import annotations

from django.contrib.auth.models import Group, Permission, User
from django.contrib.contenttypes.models import ContentType

from tasks.statements import fetch

MAY_RESOLVE = f"""EXISTS (
    SELECT 1 FROM {Permission._meta.db_table} permission
    JOIN {ContentType._meta.db_table} kind ON kind.id = permission.content_type_id
    WHERE kind.app_label = 'tasks' AND permission.codename = 'resolve_approval' AND (
        permission.id IN (
            SELECT permission_id FROM {User.user_permissions.through._meta.db_table}
            WHERE user_id = person.id)
        OR permission.id IN (
            SELECT granted.permission_id FROM {Group.permissions.through._meta.db_table} granted
            JOIN {User.groups.through._meta.db_table} membership
            ON membership.group_id = granted.group_id
            WHERE membership.user_id = person.id)))"""  # noqa: S608 - names of tables
"""Of the user whom the statement around it calls `person`."""

_OF_ONE = f"SELECT 1 FROM {User._meta.db_table} person WHERE person.id = %s AND {MAY_RESOLVE}"  # noqa: S608


def may_resolve(user_id: int) -> bool:
    """Whether an active user holds it, by themselves or by a group."""
    return bool(fetch(_OF_ONE, user_id))
