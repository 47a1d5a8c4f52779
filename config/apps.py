"""Other people's apps, without what only a server or a page needs of them.

Every command loads the apps. With their own configurations Daphne would bring Twisted's reactor
and the admin our whole API: more than half of the time that a command takes to start.
"""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.contrib import admin
from django.contrib.admin.apps import SimpleAdminConfig
from django.contrib.admin.checks import check_admin_app, check_dependencies
from django.core import checks


class Daphne(AppConfig):
    """Its `runserver`, which loads the reactor itself."""

    name = "daphne"


class Admin(SimpleAdminConfig):
    """Its pages are found when somebody asks for them (`config.urls`) or checks them."""

    def ready(self) -> None:
        checks.register(check_dependencies, checks.Tags.admin)
        checks.register(_check_pages, checks.Tags.admin)


def _check_pages(app_configs: Any, **_: Any) -> list[checks.CheckMessage]:
    admin.autodiscover()
    return check_admin_app(app_configs)
