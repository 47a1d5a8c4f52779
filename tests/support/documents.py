"""What the documentation gives to copy."""

from __future__ import annotations

import re
from collections.abc import Iterator

from config.env import ROOT

DOCUMENTS = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]


def blocks(*kinds: str) -> Iterator[tuple[str, str]]:
    """(place, text) of what a reader may copy."""
    for path in DOCUMENTS:
        text = path.read_text(encoding="utf-8")
        for found in re.finditer(r"^```(\w+)\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
            if found[1] in kinds:
                line = text.count("\n", 0, found.start()) + 1
                yield f"{path.relative_to(ROOT)}:{line}", found[2]
