"""The last gate: only what the renderer makes on purpose, whatever a bug in it lets through."""

from __future__ import annotations

import nh3

TAGS = {
    *("p", "br", "hr", "h2", "h3", "h4", "h5", "h6", "strong", "em", "s", "code", "pre"),
    *("blockquote", "ul", "ol", "li", "a", "table", "thead", "tbody", "tr", "th", "td"),
    *("div", "figure", "figcaption", "button", "span"),
}


OVERRIDES = ("\u202d", "\u202e")
"""They make text read as something else than it is, and no language needs them."""


def readable(text: str) -> str:
    """Without what turns the order of its letters around."""
    for override in OVERRIDES:
        text = text.replace(override, "")
    return text


def sanitise(made: str) -> str:
    """Only what the renderer makes on purpose, whatever a bug in it lets through."""
    return nh3.clean(
        readable(made),
        tags=TAGS,
        attributes={"a": {"href", "title"}, "ol": {"start"}},
        tag_attribute_values={
            "button": {"type": {"button"}, "data-copy": {""}},
            "div": {"role": {"region"}, "aria-label": {"Table"}, "tabindex": {"0"}},
            "pre": {"aria-label": {"Code"}, "tabindex": {"0"}},
        },
        allowed_classes={
            "button": {"btn", "btn--quiet", "btn--small"},
            "div": {"scroll-x"},
            "figure": {"code"},
            "pre": {"plain"},
            "span": {"k", "s", "m", "c"},
            "td": {"n", "mid"},
            "th": {"n", "mid"},
        },
        set_tag_attribute_values={"a": {"target": "_blank"}},
        link_rel="noopener noreferrer",
        url_schemes={"http", "https", "mailto"},
        url_relative="deny",
    )
