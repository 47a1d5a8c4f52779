"""The pages' words in the reader's language.

One catalogue per language, `locale/<language>.json`: English text -> translated text, for templates
and scripts alike; `locale/admin_<language>.json` has what only the admin and mails say, so that no
page has to carry it. They are read where they lie: nothing has to be compiled before the server
starts or a test runs. What a catalogue lacks is shown in English. Django's own texts come from Django.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import cast

from django.conf import settings
from django.utils.functional import lazy
from django.utils.translation import get_language

FOLDER = Path(settings.BASE_DIR) / "locale"
TAGS = {"en": "en", "zh-hans": "zh-Hans"}
"""Django's name of a language -> HTML's."""
_PLACE = re.compile(r"\{(\w+)\}")


def language() -> str:
    """The reader's language, as HTML names it."""
    return TAGS.get(get_language() or "en", "en")


@cache
def catalogue(tag: str, part: str = "") -> dict[str, str]:
    """The translations of a language; none for English. `part`: `admin`, or empty for the pages."""
    file = FOLDER / f"{part}{'_' if part else ''}{tag.replace('-', '_')}.json"
    if not file.is_file():
        return {}
    return cast(dict[str, str], json.loads(file.read_text(encoding="utf-8")))


def say(text: str, **values: object) -> str:
    """`text` in the reader's language, each `{name}` replaced."""
    tag = language()
    said = catalogue(tag).get(text) or catalogue(tag, "admin").get(text, text)
    # All at once: a value may have braces of its own.
    return _PLACE.sub(lambda found: str(values.get(found[1], found[0])), said)


later = lazy(say, str)
"""The same where it is written down before there is a reader: labels, columns, tables of words."""


def js_strings() -> dict[str, str]:
    """What the scripts need of it."""
    return catalogue(language())
