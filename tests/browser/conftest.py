"""A headless Chromium with the demo's report in it; skipped with the reason where it is absent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from experiments import documentation

ARGUMENTS = ["--no-sandbox", "--disable-background-networking", "--disable-component-update",
             "--disable-sync", "--no-first-run", "--metrics-recording-only"]  # fmt: skip


@pytest.fixture(scope="session")
def demo_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's report, rendered now from the committed audits."""
    file: Path = tmp_path_factory.mktemp("demo") / "report.html"
    file.write_text(documentation.demo_page(), encoding="utf-8")
    return file


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = documentation.chromium()
    if path is None:
        pytest.skip("no Chromium on this machine; on Debian: apt install chromium")
    with api.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield browser
        browser.close()


class Visit:
    """An open page, what it asked the network for and what it complained about."""

    def __init__(self, browser: Any, file: Path, **look: Any) -> None:
        self.context = browser.new_context(**look)
        self.page = self.context.new_page()
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on(
            "console",
            lambda message: (
                self.complaints.append(message.text)
                if message.type in ("error", "warning")
                else None
            ),
        )
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.goto(file.as_uri())


@pytest.fixture
def visit(chromium: Any, demo_file: Path) -> Iterator[Callable[..., Visit]]:
    """``visit(width=360, theme="dark")`` opens the demo's report, or another file."""
    open_: list[Visit] = []

    def go(width: int = 1440, theme: str = "light", file: Path | None = None) -> Visit:
        look = {"viewport": {"width": width, "height": 900}, "color_scheme": theme}
        open_.append(Visit(chromium, file or demo_file, **look))
        if file is None:  # of the demo's report the annex is read
            open_[-1].page.evaluate("document.querySelectorAll('.annex').forEach(d => d.open = 1)")
        return open_[-1]

    yield go
    for one in open_:
        one.context.close()
