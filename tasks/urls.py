"""Paths of this floor."""

from __future__ import annotations

from django.contrib.auth.views import LogoutView
from django.urls import URLPattern, URLResolver, include, path

from tasks import signin
from tasks.pages import artifact, decide, paper, views
from tasks.pages.accounts import SignIn

urlpatterns: list[URLPattern | URLResolver] = [
    path("", include("tasks.api")),
    path("", views.home, name="home"),
    path("c/<str:session_id>", views.conversation, name="conversation"),
    path("c/<str:session_id>/export.md", paper.export, {"form": "md"}, name="export-md"),
    path("c/<str:session_id>/export.html", paper.export, {"form": "html"}, name="export-html"),
    path("artifacts/<str:artifact_id>/view", artifact.view, name="artifact"),
    path("inbox", views.inbox, name="inbox"),
    path("workspaces/<str:workspace_id>", views.people, name="people"),
    path("workspaces/<str:workspace_id>/files", views.files, name="files"),
    path("decide/<str:signed>", decide.decide, name="decide"),
    path("settings", views.preferences, name="settings"),
    path("language", views.choose_language, name="language"),
    path("sign-in", SignIn.as_view(), name="sign-in-form"),
    path("sign-in/<str:token>", signin.sign_in, name="sign-in"),
    path("sign-out", LogoutView.as_view(next_page="sign-in-form"), name="sign-out"),
]
