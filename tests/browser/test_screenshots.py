"""The pictures in README and docs are of the page as it is now."""

from __future__ import annotations

from pathlib import Path

from experiments import documentation


def test_the_pictures_are_of_this_page() -> None:
    kept = (documentation.ASSETS / "page.sha256").read_text(encoding="utf-8").strip()
    assert kept == documentation.page_hash(documentation.demo_page()), (
        "the demo's report has changed since it was photographed; run `make tables` and "
        "commit docs/assets/demo"
    )


def test_the_pictures_are_small_and_shown() -> None:
    shown = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    for name, *_ in documentation.SHOTS:
        picture = documentation.ASSETS / name
        assert picture.read_bytes()[:4] == b"\x89PNG"
        assert picture.stat().st_size <= 300_000
    assert "docs/assets/demo/report-light.png" in shown
