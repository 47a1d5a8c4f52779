"""A whole text at once, within bounds, whatever it is."""

from __future__ import annotations

import html
import logging
from typing import Any

from tasks.render.markdown import markdown_it
from tasks.render.sanitiser import readable, sanitise

MAX_MARKDOWN = 128 * 1024
"""Characters that are rendered; a longer text is shown as it was written."""
MAX_BRACKETS = 4000
"""Looking for the end of a link takes time that grows with their square."""

logger = logging.getLogger(__name__)


def render(text: str) -> str:
    """A whole text. Never raises."""
    return safely(text, {}) if len(text) <= MAX_MARKDOWN else plain(text)


def plain(text: str) -> str:
    """As it was written, but for what turns its letters around."""
    return f'<pre class="plain">{html.escape(readable(text))}</pre>\n'


def safely(text: str, env: dict[str, Any]) -> str:
    if text.count("[") > MAX_BRACKETS:
        return plain(text)
    try:
        return sanitise(markdown_it().render(text, env))
    except Exception:  # whatever a parser trips over: the reader still gets the text
        logger.exception("A text of %d characters could not be rendered", len(text))
        return plain(text)
