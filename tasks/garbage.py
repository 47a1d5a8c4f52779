"""How often Python looks for garbage that reference counting does not find."""

from __future__ import annotations

import gc

YOUNG = 10_000
"""New containers between two looks at the new ones; Python's own number is 700. Every hundredth look
goes through everything that lives, and waits for nothing else meanwhile. Python puts that look off
until much has been added to what lives; what is frozen does not count as living, so after `calm()` it
would come with every 70,000 containers, some hundred runs, however much those hold. So what waits for
that look waits for minutes, even on a busy server: a run, a reply and a stream that have ended must
leave nothing of theirs in cycles, and tests hold that."""


def calm() -> None:
    """Once, when all is imported: that stays for good, and is not looked through again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, *gc.get_threshold()[1:])
