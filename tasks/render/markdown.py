"""The renderer: CommonMark with tables and strikethrough; raw HTML in it is text.

Images are links, headings begin below the page's own, wide tables scroll, code can be copied.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Sequence
from functools import cache

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict

from tasks.render.code import figure

_LINK = re.compile(r"https?://|mailto:", re.IGNORECASE)
_LANGUAGE = re.compile(r"[\w+#.-]{1,30}")
_ALIGNED = {"text-align:right": "n", "text-align:center": "mid"}


@cache
def markdown_it() -> MarkdownIt:
    markdown = MarkdownIt("js-default", {"html": False, "linkify": False, "typographer": False})
    markdown.validateLink = _may_link  # type: ignore[method-assign] # its documented way
    for rule in (_fence, _code_block, _image, _open_table, _close_table, _heading, _cell):
        for name in _RULES[rule]:
            markdown.add_render_rule(name, rule)
    markdown.render("*warm*")  # its rule tables are made on first use, which is not for two threads
    return markdown


def _may_link(url: str) -> bool:
    return _LINK.match(url) is not None


Rule = Callable[[RendererHTML, Sequence[Token], int, OptionsDict, EnvType], str]


def _fence(
    renderer: RendererHTML, tokens: Sequence[Token], at: int, options: OptionsDict, env: EnvType
) -> str:
    word = _LANGUAGE.match(tokens[at].info.strip())
    return figure(tokens[at].content, word[0].lower() if word else "")


def _code_block(
    renderer: RendererHTML, tokens: Sequence[Token], at: int, options: OptionsDict, env: EnvType
) -> str:
    return figure(tokens[at].content, "")


def _image(
    renderer: RendererHTML, tokens: Sequence[Token], at: int, options: OptionsDict, env: EnvType
) -> str:
    """A link to the image; inside a link only its name."""
    token = tokens[at]
    address = str(token.attrs.get("src", ""))
    name = html.escape(renderer.renderInlineAsText(token.children, options, env) or address)
    opened = sum(other.type == "link_open" for other in tokens[:at])
    closed = sum(other.type == "link_close" for other in tokens[:at])
    return name if opened > closed else f'<a href="{html.escape(address)}">{name}</a>'


def _open_table(
    renderer: RendererHTML, tokens: Sequence[Token], at: int, options: OptionsDict, env: EnvType
) -> str:
    return '<div class="scroll-x" role="region" aria-label="Table" tabindex="0"><table>\n'


def _close_table(
    renderer: RendererHTML, tokens: Sequence[Token], at: int, options: OptionsDict, env: EnvType
) -> str:
    return "</table></div>\n"


def _heading(
    renderer: RendererHTML, tokens: Sequence[Token], at: int, options: OptionsDict, env: EnvType
) -> str:
    """The page has the `h1`."""
    level = min(int(tokens[at].tag[1:]) + 1, 6)
    return f"<h{level}>" if tokens[at].nesting > 0 else f"</h{level}>\n"


def _cell(
    renderer: RendererHTML, tokens: Sequence[Token], at: int, options: OptionsDict, env: EnvType
) -> str:
    token = tokens[at]
    aligned = _ALIGNED.get(str(token.attrs.get("style", "")))
    return f'<{token.tag} class="{aligned}">' if aligned else f"<{token.tag}>"


_RULES: dict[Rule, tuple[str, ...]] = {
    _fence: ("fence",),
    _code_block: ("code_block",),
    _image: ("image",),
    _open_table: ("table_open",),
    _close_table: ("table_close",),
    _heading: ("heading_open", "heading_close"),
    _cell: ("th_open", "td_open"),
}
