"""What every template may say without loading it (see `builtins` in the settings)."""

from __future__ import annotations

from django import template
from django.template import Context
from django.utils.html import conditional_escape
from django.utils.safestring import SafeString, mark_safe

from tasks import words
from tasks.told import told

THEMES = ("auto", "light", "dark")

register = template.Library()


@register.simple_tag(name="t")
def translated(text: str, **values: object) -> SafeString:
    """`{% t "Step {n}" n=3 %}`: in the reader's language; values are escaped."""
    escaped = {name: conditional_escape(str(value)) for name, value in values.items()}
    return mark_safe(words.say(text, **escaped))  # noqa: S308 - our own text, escaped values


@register.filter(name="told")
def server_sentence(text: str) -> str:
    """`{{ rule|told }}`: what the server says in English, in the reader's language."""
    return told(text)


@register.filter
def duration(seconds: float) -> str:
    """`{{ limit|duration }}`: 45 s, 30 min, 2 min 5 s, 1 h 30 min."""
    if seconds < 60:
        return f"{seconds:g} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    parts = (hours, "h"), (minutes, "min"), (0 if hours else rest, "s")
    return " ".join(f"{count:,} {unit}" for count, unit in parts if count)


@register.simple_tag
def page_language() -> str:
    return words.language()


@register.simple_tag(takes_context=True)
def page_theme(context: Context) -> str:
    """From the cookie that the page writes: known before anything is drawn."""
    request = context.get("request")
    chosen = request.COOKIES.get("theme", "") if request is not None else ""
    return chosen if chosen in THEMES else "auto"
