"""Make the pictures of the demo report that README and docs show: ``make tables``.

``docs/assets/demo/*.json`` are the audits that `overheard demo` writes; the page is rendered from
them, photographed in headless Chromium, and its hash kept beside the pictures. A test compares
that hash with the page as it would be rendered now, so that no picture outlives its page.
`make tables` takes the audits anew.
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import sys
import tempfile
from pathlib import Path

from overheard.evaluation.record import Audit, read_audit
from overheard.report import render

HERE = Path(__file__).resolve().parents[1] / "assets" / "demo"
NAMES = ("linear", "network")
SHOTS = (
    ("report-light.png", (1240, 1000), "light", "header"),
    ("report-sure.png", (1240, 760), "light", "#sure"),
    ("report-phone-dark.png", (390, 844), "dark", "header"),
)
"""File, size, colours, and what stands at the top."""
MOST_BYTES = 300_000


def demo_audits() -> list[Audit]:
    """The audits of the demo's two federations."""
    return [read_audit(HERE / f"{name}.json") for name in NAMES]


def demo_page() -> str:
    """The demo's report, as `overheard demo` writes it."""
    *others, last = demo_audits()
    return render(last, beside=others)


def page_hash(page: str) -> str:
    """What is kept beside the pictures."""
    return hashlib.sha256(page.encode()).hexdigest()


def chromium() -> str | None:
    """Where the browser is."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    return next((path for name in names if (path := shutil.which(name))), None)


def take_audits(folder: Path) -> None:
    """Keep the audits of a new demo, measured seconds aside: those differ from run to run."""
    for name in NAMES:
        record = json.loads((folder / name / "audit.json").read_text(encoding="utf-8"))
        for finding in (*record["findings"], *record["pooled"], *record["curves"]):
            finding["seconds"] = float(f"{finding['seconds']:.1g}")
        text = json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n"
        (HERE / f"{name}.json").write_text(text, encoding="utf-8")


def photograph(page_text: str) -> None:
    """Write the pictures, each small enough to be committed."""
    from PIL import Image
    from playwright.sync_api import sync_playwright

    browser_path = chromium()
    if browser_path is None:
        sys.exit("no Chromium found; on Debian: apt install chromium")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as play:
        file = Path(folder) / "report.html"
        file.write_text(page_text, encoding="utf-8")
        browser = play.chromium.launch(
            executable_path=browser_path,
            args=["--no-sandbox", "--disable-background-networking"],
        )
        for name, (width, height), colours, start in SHOTS:
            view = {"width": width, "height": height}
            page = browser.new_page(viewport=view, color_scheme=colours)
            page.goto(file.as_uri())
            page.locator(start).scroll_into_view_if_needed()
            page.evaluate(f"document.querySelector({start!r}).scrollIntoView()")
            image = Image.open(io.BytesIO(page.screenshot(animations="disabled")))
            image.convert("RGB").quantize(64).save(HERE / name, optimize=True)
            size = (HERE / name).stat().st_size
            print(f"{name}: {size:,} bytes")
            if size > MOST_BYTES:
                sys.exit(f"{name} is larger than {MOST_BYTES:,} bytes")
            page.close()
        browser.close()


def main() -> None:
    """Photograph the demo's report and note its hash."""
    page = demo_page()
    photograph(page)
    (HERE / "page.sha256").write_text(page_hash(page) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
