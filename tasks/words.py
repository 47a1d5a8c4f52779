"""The pages' words in the reader's language.

One catalogue per language, `locale/<language>.json`: English text -> translated text, for templates
and scripts alike. It is read where it lies: nothing has to be compiled before the server starts or a
test runs. What a catalogue lacks is shown in English. Django's own texts come from Django.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import cast

from django.conf import settings
from django.utils.translation import get_language

FOLDER = Path(settings.BASE_DIR) / "locale"
TAGS = {"en": "en", "zh-hans": "zh-Hans"}
"""Django's name of a language -> HTML's."""


def language() -> str:
    """The reader's language, as HTML names it."""
    return TAGS.get(get_language() or "en", "en")


@cache
def catalogue(tag: str) -> dict[str, str]:
    """The translations of a language; none for English."""
    file = FOLDER / f"{tag.replace('-', '_')}.json"
    if not file.is_file():
        return {}
    return cast(dict[str, str], json.loads(file.read_text(encoding="utf-8")))


def say(text: str, **values: object) -> str:
    """`text` in the reader's language, each `{name}` replaced."""
    said = catalogue(language()).get(text, text)
    for name, value in values.items():
        said = said.replace(f"{{{name}}}", str(value))
    return said


def js_strings() -> dict[str, str]:
    """What the scripts need of it."""
    return catalogue(language())
