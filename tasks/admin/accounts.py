"""Accounts and groups: Django's own pages, with every change in the audit. Rights are made here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.models import Group, User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404

from tasks.admin.editing import AuditedAdmin

if TYPE_CHECKING:
    Users = UserAdmin[User]
else:
    Users = UserAdmin  # not generic at run time

admin.site.unregister(User)
admin.site.unregister(Group)


@admin.register(User)
class AccountAdmin(AuditedAdmin, Users):
    kind = "user"
    list_per_page = 50

    def user_change_password(
        self, request: HttpRequest, id: str, form_url: str = ""
    ) -> HttpResponse:
        """A page of its own, which saves by itself."""
        answer = super().user_change_password(request, id, form_url)
        if request.method == "POST" and answer.status_code == 302:
            user = get_object_or_404(User, pk=id)
            self.note(
                request, "password_changed", user, after={"usable": user.has_usable_password()}
            )
        return answer


@admin.register(Group)
class RolesAdmin(AuditedAdmin, GroupAdmin):
    kind = "group"

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).prefetch_related("permissions__content_type")
