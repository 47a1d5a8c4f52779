"""Names of models, their fields and choices in the reader's language.

Models have no words for people in them; Django's admin makes its titles, labels, columns and filters
of their names. So those become translations here, in the processes that load the admin. Migrations
go by what the classes wrote, and see nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.apps import apps
from django.db.models import Field, Model

from tasks.words import later


def name_all() -> None:
    """Once, before any page is made."""
    config = apps.get_app_config("tasks")
    for model in config.get_models():
        _name(model)


def _name(model: type[Model]) -> None:
    meta: Any = model._meta
    for name in ("verbose_name", "verbose_name_plural"):
        setattr(meta, name, later(str(getattr(meta, name))))
    for field in fields(model):
        field.verbose_name = later(str(field.verbose_name))
        if field.choices:
            field.choices = [(value, later(str(said))) for value, said in field.flatchoices]


def fields(model: type[Model]) -> Iterable[Any]:
    return (field for field in model._meta.get_fields() if isinstance(field, Field))
