"""Markdown -> HTML that a page may show: one renderer, one sanitiser, for live text and history alike.

1. The source is never trusted. Raw HTML in it is text; what the renderer makes goes through the
   sanitiser all the same, which knows exactly what the renderer can make (docs/pages.md lists it).
2. Nothing is fetched: images are links. Links lead to http, https and mailto, or stay text.
3. Work is bounded: what is longer than `MAX_MARKDOWN` is shown as it was written.
4. `settled` cuts a growing text where later text changes nothing: the pieces, rendered one by one
   and joined, are the whole rendered at once (but for links that are defined further down).
5. Rendering takes milliseconds of pure computing: `rendered` and `submit` do it in a few threads of
   their own, never on the event loop, and the same text once.
"""

from __future__ import annotations

import asyncio
import hashlib
import html
import logging
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ParamSpec, TypeVar

import nh3
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.token import Comment, Generic, Keyword, Literal, Name, Operator, _TokenType

MAX_MARKDOWN = 128 * 1024
"""Characters that are rendered; a longer text is shown as it was written."""
MAX_OPEN = 32 * 1024
"""Characters of a growing text behind its last settled place."""
MAX_BRACKETS = 4000
"""Looking for the end of a link takes time that grows with their square."""
MAX_HIGHLIGHT = 16 * 1024
"""Characters of one piece of code that get colours."""
SHELF_CHARS = 4 * 1024 * 1024
"""Source and HTML that are kept, so that the next reader costs nothing."""
THREADS = 2

logger = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")

_LINE_END = re.compile(r"\r\n?|\n")
_LINK = re.compile(r"https?://|mailto:", re.IGNORECASE)
_LANGUAGE = re.compile(r"[\w+#.-]{1,30}")
_LANGUAGES = frozenset(
    [
        "bash",
        "c",
        "c++",
        "cmake",
        "cpp",
        "cs",
        "csharp",
        "css",
        "csv",
        "diff",
        "docker",
        "dockerfile",
        "go",
        "graphql",
        "haskell",
        "html",
        "ini",
        "java",
        "javascript",
        "js",
        "json",
        "jsx",
        "kotlin",
        "less",
        "lua",
        "make",
        "makefile",
        "markdown",
        "md",
        "nginx",
        "perl",
        "php",
        "powershell",
        "ps1",
        "py",
        "python",
        "python3",
        "r",
        "rb",
        "rs",
        "ruby",
        "rust",
        "scala",
        "scss",
        "sh",
        "shell",
        "sql",
        "swift",
        "toml",
        "ts",
        "tsx",
        "typescript",
        "xml",
        "yaml",
        "yml",
        "zsh",
    ]
)
_CLASSES = (
    (Comment, "c"),
    (Generic.Heading, "c"),
    (Generic.Subheading, "c"),
    (Literal.Number, "m"),
    (Literal, "s"),
    (Generic.Inserted, "s"),
    (Generic.Deleted, "k"),
    (Keyword, "k"),
    (Operator.Word, "k"),
    (Name.Builtin, "k"),
    (Name.Tag, "k"),
)
_COPY = '<button class="btn btn--quiet btn--small" type="button" data-copy="">Copy</button>'
_ALIGNED = {"text-align:right": "n", "text-align:center": "mid"}


def render(text: str) -> str:
    """A whole text. Never raises."""
    return _safely(text, {}) if len(text) <= MAX_MARKDOWN else plain(text)


def plain(text: str) -> str:
    """As it was written."""
    return f'<pre class="plain">{html.escape(text)}</pre>\n'


def settled(text: str) -> int:
    """How many characters at the start of `text` nothing that may follow can change the look of.

    They end before the last block that the complete lines make: that one may still grow.
    """
    starts = [0, *(found.end() for found in _LINE_END.finditer(text))]
    if text.endswith("\r"):  # perhaps half of a line end
        starts.pop()
    tokens: list[Token] = []
    markdown = _markdown()
    complete = _LINE_END.sub("\n", text[: starts[-1]]).replace("\0", "\ufffd")
    markdown.block.parse(complete, markdown, {}, tokens)
    for token in reversed(tokens):
        if token.level == 0 and token.nesting >= 0 and token.map:
            return starts[token.map[0]]
    return 0


@dataclass(frozen=True, kw_only=True)
class Step:
    """What a growing text has become since the last one."""

    taken: int
    """Characters that are settled now."""
    piece: str
    """Their HTML, for good."""
    tail: str
    """The HTML of what is behind them, as it looks now."""


@dataclass(kw_only=True)
class Growth:
    """What the pieces of one growing text know of each other. One thread at a time."""

    links: dict[str, Any] = field(default_factory=dict)
    too_long: bool = False
    """A block of it had no end in sight: from there on it is shown as it is written."""

    def step(self, text: str) -> Step:
        """`text` is everything behind what was settled before."""
        if self.too_long or len(text) > MAX_OPEN:
            return self._unrendered(text)
        taken = settled(text)
        piece = _safely(text[:taken], {"references": self.links}) if taken else ""
        # A definition that is being written must not be remembered: the first one counts.
        tail = _safely(text[taken:], {"references": dict(self.links)})
        return Step(taken=taken, piece=piece, tail=tail)

    def _unrendered(self, text: str) -> Step:
        self.too_long = True
        taken = text.rfind("\n") + 1
        taken = taken or len(text) - len(text) % MAX_OPEN
        return Step(
            taken=taken,
            piece=plain(text[:taken]) if taken else "",
            tail=plain(text[taken:]) if taken < len(text) else "",
        )


# ── off the event loop ────────────────────────────────────────────────────────────────────────


class Shelf:
    """Rendered texts, the least recently wanted go first. Any thread."""

    def __init__(self, chars: int) -> None:
        self._chars = chars
        self._held = 0
        self._done: OrderedDict[bytes, str] = OrderedDict()
        self._jobs: dict[bytes, Future[str]] = {}
        self._lock = threading.Lock()

    def find(self, text: str) -> str | Future[str]:
        """The HTML, or the one job that makes it."""
        key = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
        with self._lock:
            if (found := self._done.get(key)) is not None:
                self._done.move_to_end(key)
                return found
            if (job := self._jobs.get(key)) is None:
                job = self._jobs[key] = submit(self._make, key, text)
            return job

    def _make(self, key: bytes, text: str) -> str:
        made = render(text)
        with self._lock:
            self._done[key] = made
            self._held += len(made)
            del self._jobs[key]
            while self._held > self._chars:
                self._held -= len(self._done.popitem(last=False)[1])
        return made


async def rendered(text: str) -> str:
    """`render` for the event loop."""
    found = shelf.find(text)
    if isinstance(found, str):
        return found
    # One reader's leaving must not take the job from the others.
    return await asyncio.shield(asyncio.wrap_future(found))


def rendered_now(text: str) -> str:
    """`rendered` for code that is in a thread already."""
    found = shelf.find(text)
    return found if isinstance(found, str) else found.result()


def submit(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
    """Run it in one of the rendering threads."""
    return _pool().submit(function, *args, **kwargs)


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(THREADS, thread_name_prefix="render")


shelf = Shelf(SHELF_CHARS)


# ── the renderer ──────────────────────────────────────────────────────────────────────────────


def _safely(text: str, env: dict[str, Any]) -> str:
    if text.count("[") > MAX_BRACKETS:
        return plain(text)
    try:
        return _sanitise(_markdown().render(text, env))
    except Exception:  # whatever a parser trips over: the reader still gets the text
        logger.exception("A text of %d characters could not be rendered", len(text))
        return plain(text)


@cache
def _markdown() -> MarkdownIt:
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
    return _code(tokens[at].content, word[0].lower() if word else "")


def _code_block(
    renderer: RendererHTML, tokens: Sequence[Token], at: int, options: OptionsDict, env: EnvType
) -> str:
    return _code(tokens[at].content, "")


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


def _code(code: str, language: str) -> str:
    return (
        f'<figure class="code"><figcaption><span>{html.escape(language)}</span>{_COPY}</figcaption>'
        f'<pre tabindex="0" aria-label="Code"><code>{_coloured(code, language)}</code></pre>'
        "</figure>\n"
    )


def _coloured(code: str, language: str) -> str:
    if language not in _LANGUAGES or len(code) > MAX_HIGHLIGHT:
        return html.escape(code)
    parts: list[str] = []
    pending, before = "", ""
    for kind, text in _lexer(language).get_tokens(code):
        css = _class_of(kind)
        if css != before:
            parts.append(_span(before, pending))
            pending, before = "", css
        pending += text
    parts.append(_span(before, pending))
    return "".join(parts)


@cache
def _lexer(language: str) -> Lexer:
    return get_lexer_by_name(language, stripnl=False, ensurenl=False)


@cache
def _class_of(kind: _TokenType) -> str:
    return next((css for parent, css in _CLASSES if kind[: len(parent)] == parent), "")


def _span(css: str, text: str) -> str:
    escaped = html.escape(text)
    return f'<span class="{css}">{escaped}</span>' if css and text else escaped


# ── the sanitiser ─────────────────────────────────────────────────────────────────────────────

_TAGS = {
    "p",
    "br",
    "hr",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "strong",
    "em",
    "s",
    "code",
    "pre",
    "blockquote",
    "ul",
    "ol",
    "li",
    "a",
    "table",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
    "div",
    "figure",
    "figcaption",
    "button",
    "span",
}


def _sanitise(made: str) -> str:
    """Only what the renderer makes on purpose, whatever a bug in it lets through."""
    return nh3.clean(
        made,
        tags=_TAGS,
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
