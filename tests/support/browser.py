"""A real browser in front of a real server: Debian's Chromium, driven by playwright.

    with Browser() as browser, Site(tmp_path) as site:
        page = browser.signed_in(site)
        page.goto(site.url)

Every page keeps a record of what must not happen: console errors, script errors, requests to
anywhere but the server (`Watched.problems`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import httpx
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Browser as Chromium
from playwright.sync_api import BrowserContext, Page, Playwright, ViewportSize, sync_playwright

from tests.support.daphne import Daphne, manage, migrated
from tests.support.e2e_model import Model

EXECUTABLE = "/usr/bin/chromium"
ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
WIDE: ViewportSize = {"width": 1440, "height": 900}


def asking(model: Model) -> dict[str, str]:
    """Settings of a site that asks this model instead of the demo's."""
    return {
        "PILOTHOUSE_DEMO_MODEL": "0",
        "PILOTHOUSE_LLM_BASE_URL": model.base_url,
        "PILOTHOUSE_LLM_MODEL": "m",
        "PILOTHOUSE_LLM_API_KEY": "k",
    }


class Site:
    """A server with the demo workspace and the demo model; `admin` signs in by link."""

    def __init__(self, state: Path, env: Mapping[str, str] | None = None) -> None:
        settings = {
            "PILOTHOUSE_DEMO_MODEL": "1",
            "PILOTHOUSE_SSE_HEARTBEAT_SECONDS": "1",
            "PILOTHOUSE_LEASE_SECONDS": "2",
            **(env or {}),
        }
        migrated(state)
        self.server = Daphne(state, env=settings)
        self.state, self.url = state, self.server.url
        manage(state, "seed_demo", env=self.server.env)
        self.cookies: dict[str, Any] = {}
        """Of those who have signed in, whatever browser they used."""
        self._tokens: dict[str, str] = {}

    def api(self, method: str, path: str, body: Any = None, *, user: str = "admin") -> Any:
        """As somebody else's script would: with a token."""
        headers = self.headers(user)
        answer = httpx.request(method, self.url + path, json=body, headers=headers, timeout=30)
        answer.raise_for_status()
        return answer.json() if answer.content else None

    def headers(self, user: str = "admin") -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token(user)}"}

    def member(self, name: str, role: str) -> str:
        """Somebody else in the demo workspace."""
        code = (
            "from django.contrib.auth.models import User; from tasks.models import Member, Workspace;"
            f"user = User.objects.create(username={name!r});"
            "workspace = Workspace.objects.get(name='demo');"
            f"Member.objects.create(workspace=workspace, user=user, role={role!r})"
        )
        manage(self.state, "shell", "-v0", "-c", code, env=self.server.env)
        return name

    def _token(self, user: str) -> str:
        if user not in self._tokens:
            output = manage(self.state, "create_token", user, env=self.server.env)
            self._tokens[user] = output.strip().splitlines()[-1]
        return self._tokens[user]

    @property
    def workspace(self) -> Path:
        return next((self.state / "var").rglob("quotes")).parent

    def link(self, user: str = "admin") -> str:
        """A sign-in link: good once."""
        output = manage(self.state, "seed_demo", "--link", user, env=self.server.env)
        path = re.search(r"/sign-in/\S+", output)
        assert path is not None, output
        return self.url + path[0]

    def __enter__(self) -> Self:
        self.server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.__exit__()


class Browser:
    """One Chromium for many tests; each test has contexts of its own."""

    def __enter__(self) -> Self:
        self._playwright: Playwright = sync_playwright().start()
        self.chromium: Chromium = self._playwright.chromium.launch(
            executable_path=EXECUTABLE, headless=True, args=ARGUMENTS
        )
        return self

    def __exit__(self, *_: object) -> None:
        self.chromium.close()
        self._playwright.stop()

    def signed_in(self, site: Site, user: str = "admin", **context: Any) -> Watched:
        """A window of somebody who signed in; by the link the first time, then by its cookie."""
        if user not in site.cookies:
            site.cookies[user] = self._sign_in(site, user)
        cookies = site.cookies[user]
        made = self.chromium.new_context(
            **{"viewport": WIDE, "storage_state": cookies, "locale": "en-GB", **context}
        )
        return Watched(made, site)

    def _sign_in(self, site: Site, user: str) -> Any:
        with self.chromium.new_context() as context:
            page = context.new_page()
            page.goto(site.link(user))
            page.locator("main form .btn--go").click()
            page.wait_for_url(lambda url: "/sign-in" not in url)
            return context.storage_state()


class Watched:
    """A signed-in person's browser window."""

    def __init__(self, context: BrowserContext, site: Site) -> None:
        self.context, self.site = context, site
        self.problems: list[str] = []
        self.requests: list[str] = []
        self.page = self.tab()

    def tab(self) -> Page:
        page = self.context.new_page()
        page.set_default_timeout(15_000)
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("dialog", self._dialog)
        page.on("request", lambda request: self._request(request.url))
        return page

    def open(self, path: str = "/") -> Page:
        self.page.goto(self.site.url + path)
        return self.page

    def ask(self, goal: str) -> str:
        """Start a task on the first page; the session's id."""
        page = self.open("/")
        page.locator("#say").fill(goal)
        page.keyboard.press("Enter")
        page.wait_for_url("**/c/*")
        return page.url.rpartition("/")[2]

    def streams(self) -> int:
        """How often a stream was opened."""
        return sum("/stream" in url for url in self.requests)

    def _console(self, message: Any) -> None:
        # A server that is down or a refusal of the API is what some tests are about.
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.problems.append(message.text)

    def _dialog(self, dialog: Any) -> None:
        self.problems.append(f"a dialog: {dialog.message}")
        dialog.dismiss()

    def _request(self, url: str) -> None:
        self.requests.append(url)
        if not url.startswith((self.site.url, "data:", "blob:")):
            self.problems.append(f"a request to {url}")


def axe(page: Page) -> list[str]:
    """What axe-core finds wrong with the page as it is now."""
    results = Axe().run(page, options={"resultTypes": ["violations"]}).response
    return [
        f"{found['id']}: {found['help']}: {node['html'][:200]}"
        for found in results["violations"]
        for node in found["nodes"]
    ]
