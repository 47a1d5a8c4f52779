"""Code with colours: four classes and nothing else, for languages that we name."""

from __future__ import annotations

import html
from functools import cache

from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.token import Comment, Generic, Keyword, Literal, Name, Operator, _TokenType

MAX_HIGHLIGHT = 16 * 1024
"""Characters of one piece of code that get colours."""

_LANGUAGES = {
    *("bash", "c", "c++", "cmake", "cpp", "cs", "csharp", "css", "diff", "docker"),
    *("dockerfile", "go", "graphql", "haskell", "html", "ini", "java", "javascript", "js"),
    *("json", "jsx", "kotlin", "less", "lua", "make", "makefile", "markdown", "md"),
    *("nginx", "perl", "php", "powershell", "ps1", "py", "python", "python3", "r", "rb"),
    *("rs", "ruby", "rust", "scala", "scss", "sh", "shell", "sql", "swift", "toml", "ts"),
    *("tsx", "typescript", "xml", "yaml", "yml", "zsh"),
}
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


def figure(code: str, language: str) -> str:
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
