"""Every word that pages and admin say is in the catalogues, and is said in the reader's language."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from django.contrib import admin as django_admin
from django.utils import translation

from config.env import ROOT
from tasks import words
from tasks.admin import naming
from tasks.admin.policy import MODES, OTHERS, SHOWN
from tasks.models import Member, ScheduleTick, WebhookDelivery
from tasks.policy_in_force import OTHER_ACTIONS
from tests.support.rows import make_user
from tests.support.words import ADMIN, in_python, in_scripts, in_templates, said

TASKS = ROOT / "tasks"


@pytest.mark.django_db
def test_values_in_words_are_escaped() -> None:
    make_user("<b>eve")
    from tasks.templatetags.pages import translated

    assert translated("Hello {name}", name="<b>") == "Hello &lt;b&gt;"


def test_every_word_of_the_pages_is_there_in_chinese() -> None:
    said = in_templates() | in_scripts() | in_python()
    catalogue = words.catalogue("zh-Hans")
    assert len(said) > 100
    assert sorted(said - catalogue.keys()) == [], "locale/zh_Hans.json lacks these"
    assert sorted(catalogue.keys() - said) == [], "nobody says these any more"
    for english, chinese in catalogue.items():
        assert set(re.findall(r"\{\w+\}", english)) == set(re.findall(r"\{\w+\}", chinese))


def test_every_word_of_the_admin_is_there_in_chinese() -> None:
    said = (
        in_templates(ADMIN)
        | in_python(TASKS / "admin")
        | in_python(TASKS, "notify.py")
        | set(of_models())
    )
    said |= {text for rows in SHOWN.values() for _, text in rows} | SHOWN.keys() | {OTHERS}
    said |= set(MODES.values()) | {OTHER_ACTIONS}
    pages, catalogue = words.catalogue("zh-Hans"), words.catalogue("zh-Hans", "admin")
    assert len(said) > 300
    assert sorted(said - pages.keys() - catalogue.keys()) == [], "locale/admin_zh_Hans.json"
    assert sorted(catalogue.keys() - said) == [], "nobody says these any more"
    assert sorted(catalogue.keys() & pages.keys()) == [], "the pages say these, too"
    for english, chinese in catalogue.items():
        assert set(re.findall(r"\{\w+\}", english)) == set(re.findall(r"\{\w+\}", chinese))


def of_models() -> Iterator[str]:
    with translation.override("en"):
        for model in django_admin.site._registry.keys() | {Member, ScheduleTick, WebhookDelivery}:
            if model._meta.app_label == "tasks":
                yield str(model._meta.verbose_name)
                yield str(model._meta.verbose_name_plural)
                for field in naming.fields(model):
                    yield str(field.verbose_name)
                    yield from (str(said) for _, said in field.flatchoices or [])


def test_the_search_for_words_finds_them() -> None:
    script = """t("One") + n(count, "{n} thing", '{n} things', { a: "no" });
    const x = rich(open ? "Open" : "Closed", { who: t("Two, too") }); print("not this"); cat("nor")"""
    assert set(said(script)) == {
        *("One", "{n} thing", "{n} things", "Open", "Closed", "Two, too"),
    }


def test_words_are_said_in_the_reader_s_language() -> None:
    with translation.override("zh-hans"):
        assert words.say("Sign in") == "登录"
        assert words.say("never translated {n}", n=3) == "never translated 3"
    with translation.override("en"):
        assert words.say("Sign in") == "Sign in"
