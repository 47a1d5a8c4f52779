"""The README's pictures, made anew from the product itself.

    python -m tests.support.screenshots docs/images

Starts a server on a folder of its own with the demo model, plays the first five minutes, and takes
a picture of each place. Ends what it started.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Page

from tests.support.browser import Browser, Site, Watched

GOAL = "Compare the supplier quotes, check the invoices against them, and write a report."
SIZES = {"wide": (1440, 900), "middle": (1024, 900), "phone": (390, 844)}


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as state, Site(Path(state)) as site, Browser() as browser:
        for name, (width, height) in SIZES.items():
            for theme in ("light", "dark"):
                window = browser.signed_in(site, viewport={"width": width, "height": height})
                window.context.add_cookies([{"name": "theme", "value": theme, "url": site.url}])
                _take(window, folder, f"{name}-{theme}")
                window.context.close()
                (site.workspace / "reports" / "supplier-report.md").unlink()


def _take(window: Watched, folder: Path, name: str) -> None:
    page = window.open("/")
    page.locator("#groups").wait_for(state="attached")
    _picture(page, folder / f"start-{name}.png")
    window.ask(GOAL)
    card = page.locator(".appr[data-open]")
    card.wait_for()
    _picture(page, folder / f"decision-{name}.png")
    card.locator(".btn--go").click()
    page.locator(".turn[data-state=done]").wait_for()
    _picture(page, folder / f"done-{name}.png")


def _picture(page: Page, path: Path) -> None:
    page.wait_for_timeout(400)  # the lists have been asked for and are drawn
    page.screenshot(path=path)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/images"))
