"""Where each path leads."""

from __future__ import annotations

from django.contrib import admin
from django.urls import include, path

from tasks.pages.accounts import admin_sign_in

admin.autodiscover()
urlpatterns = [
    path("admin/login/", admin_sign_in),
    path("admin/", admin.site.urls),
    path("", include("streaming.urls")),
    path("", include("tasks.urls")),
]
