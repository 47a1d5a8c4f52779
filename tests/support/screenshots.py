"""The README's pictures, made anew from the product itself; with `--all`, every place to look at.

    python -m tests.support.screenshots docs/images
    python -m tests.support.screenshots --all /tmp/look

Starts a server on a folder of its own with the demo model, plays the first five minutes, and takes
the pictures. Ends what it started.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Page

from tests.support.browser import Browser, Site, Watched

GOAL = "Compare the supplier quotes, check the invoices against them, and write a report."
SIZES = {"wide": (1440, 900), "middle": (1024, 900), "phone": (390, 844)}


def main(folder: Path, *, everything: bool) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    looks = [(name, theme) for name in SIZES for theme in ("light", "dark")]
    with tempfile.TemporaryDirectory() as state, Site(Path(state)) as site, Browser() as browser:
        for name, theme in looks if everything else [("wide", "light")]:
            width, height = SIZES[name]
            window = browser.signed_in(site, viewport={"width": width, "height": height})
            window.context.add_cookies([{"name": "theme", "value": theme, "url": site.url}])
            _take(window, folder, f"-{name}-{theme}" if everything else "")
            window.context.close()
            (site.workspace / "reports" / "supplier-report.md").unlink()


def _take(window: Watched, folder: Path, look: str) -> None:
    page = window.open("/")
    if look:
        _picture(page, folder / f"start{look}.png")
    window.ask(GOAL)
    card = page.locator(".appr[data-open]")
    card.wait_for()
    _picture(page, folder / f"decision{look}.png")
    card.locator(".btn--go").click()
    page.locator(".turn[data-state=done]").wait_for()
    page.locator("#groups", has_text="Today").wait_for(state="attached")  # beside it it is done too
    _picture(page, folder / f"done{look}.png")
    if look:
        for place in ("inbox", "settings"):
            window.open(f"/{place}")
            _picture(page, folder / f"{place}{look}.png")


def _picture(page: Page, path: Path) -> None:
    page.wait_for_timeout(400)  # the lists have been asked for and are drawn
    page.screenshot(path=path)


if __name__ == "__main__":
    places = [argument for argument in sys.argv[1:] if argument != "--all"]
    main(Path(places[0] if places else "docs/images"), everything="--all" in sys.argv)
