"""Markdown becomes HTML that cannot do anything, and growing text becomes pieces of the same."""

from __future__ import annotations

import asyncio
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.render import (
    MAX_BRACKETS,
    MAX_MARKDOWN,
    MAX_OPEN,
    Growth,
    code,
    plain,
    render,
    rendered,
    sanitiser,
    settled,
    shared,
    whole,
)

HOSTILE = json.loads((Path(__file__).parent / "data/hostile_texts.json").read_text("utf-8"))
DOCUMENT = """\
# Quotes

Nordlicht **quoted least**: see [the offer](https://example.org/a?b=1&c=2 "offer").

| Supplier | Price |
|:--|--:|
| Nordlicht | 186.40 |

- one
- two

  more of two

1. first

2. second

> a quote
over two lines

```python
def total(x):  # sum

    return x + 1
```

Last ~~words~~.
"""


class Tags(HTMLParser):
    """What a browser would make of it: elements with their attributes, and the text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def harmless(html: str) -> None:
    attributes = {"href", "title", "target", "rel", "class", "type", "data-copy", "role"}
    for tag, attrs in Tags(html).elements:
        assert tag in sanitiser.TAGS
        assert set(attrs) <= attributes | {"aria-label", "tabindex", "start"}
        if tag == "a":
            assert re.match("https?://|mailto:", str(attrs["href"]), re.IGNORECASE)
            assert attrs["rel"] == "noopener noreferrer"


def test_renders_what_people_write() -> None:
    html = render(DOCUMENT)

    assert "<h2>Quotes</h2>" in html
    assert '<td class="n">186.40</td>' in html
    assert '<div class="scroll-x" role="region" aria-label="Table" tabindex="0"><table>' in html
    assert '<span class="k">def</span> total(x):  <span class="c"># sum</span>' in html
    assert "data-copy" in html
    assert "<s>words</s>" in html
    harmless(html)


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_shown_and_does_nothing(text: str) -> None:
    for source in (text, f"# {text}", f"- {text}\n\n| {text} |\n|--|\n| x |", f"```\n{text}"):
        html = render(source)
        harmless(html)
        words = [word for word in re.findall(r"\w+", text) if word not in {"x09", "127", "q", "x"}]
        shown = Tags(html).text + "".join(str(attrs) for _, attrs in Tags(html).elements)
        assert [word for word in words if word not in shown] == []


def test_half_a_tag_does_not_swallow_what_follows() -> None:
    assert Tags(render("<b>half\n\n<script>\n\nnext")).text.strip().endswith("next")
    assert "<p>next</p>" in render("<!--\n\nnext")


def test_text_reads_in_the_order_in_which_it_is() -> None:
    assert render("\u202etxt.exe") == "<p>txt.exe</p>\n"
    assert render("```\n\u202dx\n```").count("\u202d") == 0
    assert plain("a\u202eb") == '<pre class="plain">ab</pre>\n'


def test_images_are_links_and_never_load() -> None:
    html = render("![leak](http://127.0.0.1:9/?q=SECRET) [![in](https://a/b.png)](https://a)")

    assert "<img" not in html
    assert '<a href="http://127.0.0.1:9/?q=SECRET"' in html
    assert re.search(r'<a href="https://a"[^>]*>in</a>', html)


@pytest.mark.parametrize(
    "target",
    [
        "javascript:x",
        "JaVaScRiPt:x",
        "data:text/html,x",
        "vbscript:x",
        "file:///etc/passwd",
        "//evil.example",
        "/admin/",
        "reports/x.md",
        "&#106;avascript:x",
        "java\tscript:x",
        "#top",
    ],
)
def test_other_links_stay_text(target: str) -> None:
    for source in (f"[x]({target})", f"[x](<{target}>)", f"<{target}>", f"[x][1]\n\n[1]: {target}"):
        html = render(source)
        assert "<a" not in html, html


def test_the_sanitiser_alone_stops_what_a_renderer_lets_through() -> None:
    html = sanitiser.sanitise(
        '<p onclick="x" style="color:red" class="z" id="y">a</p><script>b</script><form><input>'
        '<a href="javascript:c">d</a><img src=e><button formaction="/f" class="btn evil">g</button>'
    )

    assert html == (
        '<p>a</p><a target="_blank" rel="noopener noreferrer">d</a><button class="btn">g</button>'
    )


def test_unknown_languages_and_huge_code_stay_plain_but_whole() -> None:
    assert "<code>x &lt; y\n</code>" in render("```nonsense\nx < y\n```")
    huge = "def x(): pass\n" * 5000
    assert render(f"```python\n{huge}```").count("def x(): pass") == 5000


@pytest.mark.parametrize("language", sorted(code._LANGUAGES))
def test_every_language_that_we_name_has_a_lexer(language: str) -> None:
    assert "x = 1" in Tags(code.figure("x = 1\n", language)).text


def test_a_text_that_is_too_long_is_shown_as_written() -> None:
    long = "**a** <b>\n" * (MAX_MARKDOWN // 10 + 1)
    html = render(long)

    assert html.startswith('<pre class="plain">**a** &lt;b&gt;')
    assert len(Tags(html).text.strip()) == len(long.strip())
    assert render("[" * (MAX_BRACKETS + 1)).startswith('<pre class="plain">')


def test_text_that_breaks_the_parser_is_still_shown(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(html: str) -> str:
        raise IndexError

    monkeypatch.setattr(whole, "sanitise", broken)  # no text is known that does it
    assert render("<b>") == '<pre class="plain">&lt;b&gt;</pre>\n'
    assert "could not be rendered" in caplog.text


# ── growing text ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("one\n\ntwo", ""),
        ("one\n\ntwo\n", "one\n\n"),
        ("one\r\n\r\ntwo\r\n", "one\r\n\r\n"),
        ("```\na\n\nb\n\n", ""),
        ("```\na\n```\n\nb\n", "```\na\n```\n\n"),
        ("- a\n\n- b\n\n", ""),
        ("1. a\n\n2", ""),
        ("1. a\n\n2\n", "1. a\n\n"),
        ("| a |\n|--|\n| b |\n\n", ""),
        ("> a\n\n", ""),
        ("", ""),
    ],
)
def test_settled_ends_before_what_may_still_grow(text: str, kept: str) -> None:
    assert text[: settled(text)] == kept


def grown(text: str, cuts: list[int]) -> tuple[str, str]:
    """Pieces joined, and the last tail, of a text that comes in parts."""
    growth, done, pieces, tail = Growth(), 0, "", ""
    for end in [*sorted(cut % (len(text) + 1) for cut in cuts), len(text)]:
        step = growth.step(text[done:end])
        done, pieces, tail = done + step.taken, pieces + step.piece, step.tail
    return pieces, tail


BLOCKS = st.sampled_from(
    [
        *DOCUMENT.split("\n\n"),
        "- a\n  - b",
        "***",
        "Title\n=====",
        "    code",
        "1. x\n1. y",
        "a\\",
        "~~~\n\n# no title\n\n~~~",
        "# ä ü 漢字",
        "* x",
        "+ y",
        "> > z",
        "line\nline",
        "```js\nlet x",
        "```",
        "| a | b |\n|---|---|",
        "-",
        "--",
        "[x](http://a",
        "`a\n\nb`",
        "\ttab",
        "a  \nb",
    ]
)
TEXTS = st.lists(BLOCKS, max_size=8).flatmap(
    lambda blocks: st.sampled_from(["\n\n", "\n", "\n\n\n", "\r\n\r\n"]).map(
        lambda glue: glue.join(blocks)
    )
)


@settings(max_examples=150, deadline=None)
@given(TEXTS, st.lists(st.integers(0, 400), max_size=12))
def test_pieces_and_tail_are_the_whole(text: str, cuts: list[int]) -> None:
    assert "".join(grown(text, cuts)) == render(text)


def test_every_way_to_cut_gives_the_same() -> None:
    whole = render(DOCUMENT)
    assert "".join(grown(DOCUMENT, list(range(len(DOCUMENT))))) == whole


def test_a_link_that_was_defined_before_is_known_in_later_pieces() -> None:
    text = "[1]: https://example.org\n\nfirst\n\nsecond [one][1]\n\nthird\n"
    cuts = list(range(len(text)))
    assert "".join(grown(text, cuts)) == render(text)


def test_a_block_without_an_end_is_shown_as_it_is_written() -> None:
    growth = Growth()
    growth.step("intro\n\n```\n")
    first = growth.step("x\n" * MAX_OPEN)
    second = growth.step("**y**")

    assert first.piece.startswith('<pre class="plain">x')
    assert second.tail == '<pre class="plain">**y**</pre>\n'


# ── off the event loop ────────────────────────────────────────────────────────────────────────


async def test_readers_of_the_same_text_share_one_rendering(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[str] = []

    def counted(text: str) -> str:
        made.append(text)
        return render(text)

    monkeypatch.setattr(shared, "render", counted)  # to count
    text = f"*once* {id(made)}"
    answers = await asyncio.gather(*(rendered(text) for _ in range(20)))
    answers.append(await rendered(text))

    assert set(answers) == {render(text)}
    assert made == [text]


async def test_a_reader_who_leaves_does_not_take_the_rendering_from_the_others() -> None:
    text = "*shared* " * 2000
    leaving, staying = (asyncio.ensure_future(rendered(text)) for _ in range(2))
    await asyncio.sleep(0)
    leaving.cancel()
    assert await staying == render(text)


def test_the_shelf_is_bounded() -> None:
    shelf = shared.Shelf(chars=1000)
    for number in range(50):
        found = shelf.find(f"text {number} " * 10)
        if not isinstance(found, str):
            found.result()
    assert shelf._held <= 1000
    assert len(shelf._done) < 20
